"""Decisions by a served chat model: what it is asked, and how its words are read.

Jointly, one answer names an option for every question; the model commits its answers in order, so
each may depend on those before it. How probable the options were follows from what the model had to
choose from where it wrote each letter, if the server tells; else see `certain`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clover_engine.clients.address import Address
from clover_engine.clients.faults import malformed
from clover_engine.errors import Unsupported
from clover_engine.generation import LETTERS, Decision, Question, numbered

_LINE = re.compile(r"^\W*(\d+)\s*[.:)\]=-]+\s*\W*([A-Za-z])\b", re.MULTILINE)
_ONE = re.compile(r"\b([A-Z])\b")


def joint_prompt(material: str, questions: Sequence[Question]) -> str:
    """The message that asks everything at once."""
    parts = numbered(material, questions)
    example = "\n".join(f"{number}: letter" for number in range(1, len(questions) + 1))
    parts.append(
        "Answer every question with the letter of the right option, one line a question, in this "
        f"form and without anything else:\n{example}"
    )
    return "\n".join(parts)


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of the answer, and the log-probabilities of what could have stood there."""

    text: str
    alternatives: Mapping[str, float]


def read_answers(text: str, questions: Sequence[Question]) -> list[int]:
    """The chosen options. Raises Unsupported where the text does not name one for each question."""
    return [LETTERS.index(text[place].upper()) for place in _places(text, questions)]


def read_decisions(
    text: str, questions: Sequence[Question], tokens: Sequence[Token]
) -> list[Decision]:
    """As `read_answers`, with the probabilities that `tokens`, if they are the text's, tell."""
    if "".join(token.text for token in tokens) != text:
        tokens = ()
    decisions = []
    for place, question in zip(_places(text, questions), questions, strict=True):
        option = LETTERS.index(text[place].upper())
        shares = _shares(_token_at(tokens, place), len(question.options))
        if shares is None or not shares[option]:
            decisions.append(certain(option, question))
        else:
            decisions.append(Decision(option, shares))
    return decisions


def read_chat(address: Address, answer: Any, asked: Sequence[Question]) -> list[Decision]:
    """The decisions in an answer of ``/v1/chat/completions`` that was not streamed.

    Raises EngineUnavailable where it is no such answer, and Unsupported as `read_answers`.
    """
    listed = _get(answer, "choices")
    choice = listed[0] if isinstance(listed, list) and listed else None
    text = _get(_get(choice, "message"), "content")
    if text is not None and not isinstance(text, str):
        raise malformed(address, "its answer is no chat")
    tokens = _tokens(_get(_get(choice, "logprobs"), "content"))
    return read_decisions(text or "", asked, tokens)


def certain(option: int, question: Question) -> Decision:
    """The decision for an option of which no probability is known: it gets all of it."""
    return Decision(option, tuple(float(i == option) for i in range(len(question.options))))


def _places(text: str, questions: Sequence[Question]) -> list[int]:
    """Where in the text each question's letter stands. Raises Unsupported as `read_answers`."""
    places = {int(found[1]) - 1: found.start(2) for found in reversed([*_LINE.finditer(text)])}
    if len(questions) == 1 and 0 not in places and (only := _ONE.search(text)):
        places[0] = only.start(1)
    for number, question in enumerate(questions):
        place = places.get(number)
        if place is None or text[place].upper() not in LETTERS[: len(question.options)]:
            raise Unsupported(
                f"the served model did not name an option for question {number + 1}; "
                "ask one by one (joint=False), or serve a model that follows instructions"
            )
    return [places[number] for number in range(len(questions))]


def _token_at(tokens: Sequence[Token], place: int) -> Token | None:
    """The token with the character at `place`."""
    end = 0
    for token in tokens:
        end += len(token.text)
        if place < end:
            return token
    return None


def _shares(token: Token | None, count: int) -> tuple[float, ...] | None:
    """The options' shares of the probability that their letters had together."""
    if token is None:
        return None
    weights = [0.0] * count
    for text, logprob in token.alternatives.items():
        letter = text.strip()
        if len(letter) == 1 and letter in LETTERS[:count]:
            weights[LETTERS.index(letter)] += math.exp(min(0.0, logprob))
    total = sum(weights)
    return tuple(weight / total for weight in weights) if total > 0 else None


def _tokens(data: Any) -> list[Token]:
    """Reads ``[{"token": …, "top_logprobs": [{"token": …, "logprob": …}]}]``; none where it is
    anything else."""
    try:
        return [
            Token(
                str(entry["token"]),
                {str(top["token"]): float(top["logprob"]) for top in entry["top_logprobs"]},
            )
            for entry in data
        ]
    except (TypeError, KeyError, ValueError):
        return []


def _get(data: Any, key: str) -> Any:
    """`data[key]`, None where there is none."""
    return data.get(key) if isinstance(data, Mapping) else None
