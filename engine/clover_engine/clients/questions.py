"""Decisions by a served chat model: what it is asked, and how its words are read.

Jointly, one answer names an option for every question; the model commits its answers in order, so
each may depend on those before it. A text has no probabilities: see `certain`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from clover_engine.errors import Unsupported
from clover_engine.generation import Decision, Question

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_LINE = re.compile(r"^\W*(\d+)\s*[.:)\]=-]+\s*\W*([A-Za-z])\b", re.MULTILINE)
_ONE = re.compile(r"\b([A-Z])\b")


def joint_prompt(material: str, questions: Sequence[Question]) -> str:
    """The message that asks everything at once."""
    parts = [material.rstrip("\n"), ""]
    for number, question in enumerate(questions, 1):
        parts.append(f"{number}. {question.text}")
        parts += [f"{LETTERS[i]}. {option}" for i, option in enumerate(question.options)]
        parts.append("")
    example = "\n".join(f"{number}: letter" for number in range(1, len(questions) + 1))
    parts.append(
        "Answer every question with the letter of the right option, one line a question, in this "
        f"form and without anything else:\n{example}"
    )
    return "\n".join(parts)


def read_answers(text: str, questions: Sequence[Question]) -> list[int]:
    """The chosen options. Raises Unsupported where the text does not name one for each question."""
    chosen: dict[int, int] = {}
    for number, letter in _LINE.findall(text):
        chosen.setdefault(int(number) - 1, LETTERS.index(letter.upper()))
    if len(questions) == 1 and 0 not in chosen and (found := _ONE.search(text)):
        chosen[0] = LETTERS.index(found[1])
    answers = [chosen.get(i, -1) for i in range(len(questions))]
    for number, (answer, question) in enumerate(zip(answers, questions, strict=True), 1):
        if not 0 <= answer < len(question.options):
            raise Unsupported(
                f"the served model did not name an option for question {number}; "
                "ask one by one (joint=False), or serve a model that follows instructions"
            )
    return answers


def certain(option: int, question: Question) -> Decision:
    """The decision for an option of which no probability is known: it gets all of it."""
    return Decision(option, tuple(float(i == option) for i in range(len(question.options))))
