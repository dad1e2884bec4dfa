"""Thinking kept apart from the answer, as text arrives in pieces of any size.

Models of the Qwen3 family write ``<think> … </think>`` before they answer; newer templates put the
opening mark into the prompt, and an empty pair of marks where thinking is switched off.
"""

from __future__ import annotations

from typing import Literal

from clover_engine.generation import Piece, PieceKind

Opening = Literal["start", "thinking", "answer"]
"""How the assistant's turn begins: see `ThinkingSplit`."""
OPEN, CLOSE = "<think>", "</think>"
_BLANK = " \t\r\n"


class ThinkingSplit:
    """Feed it text; it gives pieces. Joined by kind, they are the texts without marks, without
    blank lines before either text and after the thinking."""

    def __init__(self, state: Opening = "start") -> None:
        """`state`: "thinking" where the prompt ends with an opening mark, "answer" where thinking
        is off, "start" where the model may open with a mark itself."""
        self._state = state
        self._held = ""  # may turn out to be a mark, or blanks that a mark swallows
        self._begun = False  # has the present text begun?
        self.thinking = ""
        self.answer = ""

    def feed(self, text: str, *, last: bool = False) -> list[Piece]:
        """Pieces that are certain now; `last` gives up what was held back."""
        self._held += text
        pieces: list[Piece] = []
        if self._state == "start":
            self._start(last)
        if self._state == "thinking":
            self._think(pieces, last)
        if self._state == "answer":
            self._emit(pieces, "answer", self._held)
            self._held = ""
        return pieces

    def _start(self, last: bool) -> None:
        begun = self._held.lstrip(_BLANK)
        if begun.startswith(OPEN):
            self._state, self._held = "thinking", begun[len(OPEN) :]
        elif last or not OPEN.startswith(begun):
            self._state = "answer"

    def _think(self, pieces: list[Piece], last: bool) -> None:
        before, mark, after = self._held.partition(CLOSE)
        if mark:
            self._emit(pieces, "thinking", before.rstrip(_BLANK))
            self._state, self._held, self._begun = "answer", after, False
            return
        sure = before.rstrip(_BLANK) if last else _certain(before)
        self._emit(pieces, "thinking", sure)
        self._held = "" if last else before[len(sure) :]

    def _emit(self, pieces: list[Piece], kind: PieceKind, text: str) -> None:
        if not self._begun:
            text = text.lstrip("\r\n" if kind == "answer" else _BLANK)
        if not text:
            return
        self._begun = True
        if kind == "thinking":
            self.thinking += text
        else:
            self.answer += text
        pieces.append(Piece(text, kind))


def _certain(text: str) -> str:
    """`text` without an end that may be the beginning of a closing mark, and the blanks before."""
    cut = next((n for n in range(len(CLOSE) - 1, 0, -1) if text.endswith(CLOSE[:n])), 0)
    return text[: len(text) - cut].rstrip(_BLANK)
