"""Thinking and answer are the same texts however the stream is cut into pieces."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from clover_engine.text.thinking import CLOSE, OPEN, ThinkingSplit

LETTERS = st.text(alphabet="ab<>/think \né", max_size=24)


def run(state: str, parts: list[str]) -> tuple[ThinkingSplit, list[tuple[str, str]]]:
    split = ThinkingSplit(state)  # type: ignore[arg-type]
    pieces = [(p.kind, p.text) for part in parts for p in split.feed(part)]
    pieces += [(p.kind, p.text) for p in split.feed("", last=True)]
    return split, pieces


def cut(text: str, places: list[int]) -> list[str]:
    edges = sorted({0, len(text), *(p % (len(text) + 1) for p in places)})
    return [text[a:b] for a, b in zip(edges, edges[1:], strict=False)]


def test_the_models_own_marks() -> None:
    split, _ = run("start", ["\n<think>\nfirst\n\nthen\n</think>\n\n  Answer\n"])
    assert (split.thinking, split.answer) == ("first\n\nthen", "  Answer\n")


def test_the_prompt_opened_the_thinking() -> None:
    split, _ = run("thinking", ["so be it</think>done"])
    assert (split.thinking, split.answer) == ("so be it", "done")


def test_thinking_that_never_ends() -> None:
    split, _ = run("thinking", ["hm </thin"])
    assert (split.thinking, split.answer) == ("hm </thin", "")


def test_no_thinking_at_all() -> None:
    split, _ = run("start", ["<", "thin ice"])
    assert (split.thinking, split.answer) == ("", "<thin ice")


def test_marks_inside_an_answer_are_text() -> None:
    split, _ = run("answer", ["a <think> b </think> c"])
    assert (split.thinking, split.answer) == ("", "a <think> b </think> c")


@given(LETTERS, LETTERS, st.sampled_from(["start", "thinking", "answer"]), st.lists(st.integers(0)))
def test_cuts_change_nothing(thought: str, answer: str, state: str, places: list[int]) -> None:
    text = {"start": OPEN, "thinking": "", "answer": ""}[state]
    text += f"{thought}{CLOSE}{answer}" if state != "answer" else answer
    whole, _ = run(state, [text])
    parts, pieces = run(state, cut(text, places))
    assert (parts.thinking, parts.answer) == (whole.thinking, whole.answer)
    for kind, joined in (("thinking", parts.thinking), ("answer", parts.answer)):
        assert "".join(t for k, t in pieces if k == kind) == joined
    assert [k for k, _ in pieces] == sorted((k for k, _ in pieces), key=lambda k: k == "answer")


@given(LETTERS.filter(lambda t: CLOSE not in t and not t.endswith(CLOSE[:1])), LETTERS)
def test_what_is_between_the_marks(thought: str, answer: str) -> None:
    if CLOSE in thought + CLOSE[:-1]:
        return
    split, _ = run("thinking", [f"{thought}{CLOSE}{answer}"])
    assert split.thinking == thought.strip(" \t\r\n")
    assert split.answer == answer.lstrip("\r\n")
