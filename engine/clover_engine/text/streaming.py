"""An assistant's turn as it streams in: thinking split off, the answer cut at stop strings."""

from __future__ import annotations

from clover_engine.generation import OnPiece, Piece, PieceKind
from clover_engine.text.thinking import Opening, ThinkingSplit


class Stream:
    """Feed it text; pieces go out once they are certain not to belong to a stop string."""

    def __init__(self, opening: Opening, stops: tuple[str, ...], on_piece: OnPiece | None) -> None:
        self._split = ThinkingSplit(opening)
        self._stops = stops
        self._hold = max((len(stop) for stop in stops), default=1) - 1
        self._tell: OnPiece = on_piece or (lambda piece: None)
        self._pending = ""  # of the answer: may be the beginning of a stop string
        self.thinking = ""
        self.answer = ""
        self.has_stopped = False
        """A stop string came; nothing after it counts."""

    @property
    def is_empty(self) -> bool:
        return not (self.thinking or self.answer or self._pending)

    def feed(self, text: str, *, last: bool = False) -> None:
        """The next text; `last` gives out what was held back."""
        if self.has_stopped:
            return
        for piece in self._split.feed(text, last=last):
            if piece.kind == "thinking":
                self.thought(piece.text)
            else:
                self._pending += piece.text
        self._release(0 if last else self._hold)

    def thought(self, text: str) -> None:
        """Thinking that comes apart from the text."""
        self._out("thinking", text)

    def _release(self, hold: int) -> None:
        ends = [at for stop in self._stops if (at := self._pending.find(stop)) >= 0]
        self.has_stopped = bool(ends)
        sure = min(ends) if ends else max(0, len(self._pending) - hold)
        self._out("answer", self._pending[:sure])
        self._pending = "" if ends else self._pending[sure:]

    def _out(self, kind: PieceKind, text: str) -> None:
        if not text:
            return
        if kind == "thinking":
            self.thinking += text
        else:
            self.answer += text
        self._tell(Piece(text, kind))
