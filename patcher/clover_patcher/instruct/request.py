"""What an edit by instruction is asked for, and what comes back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from clover_patcher.errors import PatcherError, UsageError

Kind = Literal["edit", "say", "file"]
"""New text for the selected lines; words about them; the text of a new file."""

NO_MODEL = (
    "only a model that converses edits by instruction, and this one fills holes: run "
    "`clover-code model get coder-1.5b`, or name a server (CLOVER_OPENAI_URL)"
)


class NoConversation(UsageError):
    """The engine cannot converse; the message says what to do."""

    def __init__(self) -> None:
        super().__init__(NO_MODEL)


class NoEdit(PatcherError):
    """The model's answers could not be used; the message says why."""


@dataclass(frozen=True, slots=True)
class Turn:
    """An earlier instruction about the same lines, and the text that it gave."""

    words: str
    text: str


@dataclass(frozen=True, slots=True)
class Instruction:
    """Which lines of a file are to become what.

    `text` is the whole file with line feeds only, as it was before the first turn. Lines count
    from 1, both ends belong to the selection; a blank line says where new code is to go.
    """

    path: str
    text: str
    first: int
    last: int
    words: str
    turns: tuple[Turn, ...] = ()
    """Earlier instructions that were carried out on the same lines, oldest first."""
    kind: Kind = "edit"
    imports: bool = False
    """Whether imports that the new lines need may be added at the top of the file."""
    attempt: int = 0
    """Counts up when the user wants another answer to the same words."""
    deadline_s: float | None = None

    @property
    def lines(self) -> list[str]:
        """The file's lines, without their ends."""
        return self.text.split("\n")

    @property
    def selected(self) -> list[str]:
        return self.lines[self.first - 1 : self.last]

    def require_lines(self) -> None:
        """Raises `UsageError` where the selection is not in the file, or nothing is asked."""
        count = len(self.lines) - (self.text.endswith("\n") and len(self.lines) > 1)
        if not 1 <= self.first <= self.last:
            raise UsageError(f"lines {self.first}-{self.last}: the first line comes first, from 1")
        if self.last > count:
            raise UsageError(f"{self.path} ends at line {count}; there is no line {self.last}")
        if not self.words.strip():
            raise UsageError("the instruction is empty: say what is to become of the lines")


@dataclass(frozen=True, slots=True)
class Edited:
    """How an edit ended. Of `Kind` "say" and "file" the file stays as it is."""

    text: str
    """The new text of the selected lines without the last line's end; "say": empty; "file": the
    new file's."""
    explanation: str = ""
    """What the model said beside the code; may be empty."""
    imports: tuple[str, ...] = ()
    """Import lines that the new text needs and the file lacks."""
    after: str = ""
    """The whole file's new text: with `imports` in it only where the request allows that."""
    notes: tuple[str, ...] = ()
    """What is probably wrong with the answer."""
    asked: int = 1
    """How often the model was asked until its answer could be used."""
    tokens: int = 0
    """Tokens that the model wrote."""
    seconds: float = 0.0
    model: str = ""
