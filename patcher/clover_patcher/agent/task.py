"""What an agent is asked for, what it may use up, what it tells, and how it ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from clover_patcher.edits import FileChange, unified_diff

Tool = Literal["list", "search", "read", "edit", "check", "done"]
Status = Literal["done", "failing", "steps", "budget", "tokens", "format", "cancelled"]
EXIT_CODES: Mapping[Status, int] = {
    "done": 0, "failing": 1, "steps": 1, "tokens": 1, "format": 1, "budget": 124, "cancelled": 130,
}  # fmt: skip
WHY: Mapping[Status, str] = {
    "done": "",
    "failing": "the check fails with these changes",
    "steps": "all steps were used",
    "tokens": "all tokens were used",
    "format": "the model wrote nothing that could be carried out, again and again",
    "budget": "the time was spent",
    "cancelled": "stopped",
}


@dataclass(frozen=True, slots=True)
class Requirement:
    """A task for the agent. `root` is a folder in the repository: the check runs there."""

    root: Path
    words: str
    check: str = ""
    """A command that must pass in the end; empty where nothing but the model judges."""
    paths: tuple[str, ...] = ()
    """Change only these files or folders, relative to `root`."""
    allow: tuple[str, ...] = ()
    """Patterns of tests that may be changed although there is a check."""
    withheld: Callable[[str], bool] = lambda _: False
    """Of which paths, from the repository's top, the model must see nothing."""
    overlay: Mapping[str, bytes] = field(default_factory=dict)
    """Unsaved buffers by path: the copy has these bytes instead of the files'."""
    include: tuple[str, ...] = ()
    """Ignored paths that the copy has all the same."""
    network: bool = False
    check_timeout_s: float | None = None
    trajectory: Path | None = None
    """Where every step is written as JSON lines; None: in the git directory."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a run may use up."""

    steps: int = 16
    """Answers of the model."""
    seconds: float = 600.0
    tokens: int = 24_000
    """That the model writes."""
    answer_tokens: int = 1_500
    output: int = 3_000
    """Characters of one observation; longer ones lose their middle."""
    errors: int = 3
    """So many answers in a row that hold nothing to carry out end the run."""


@dataclass(frozen=True, slots=True)
class Call:
    """One use of a tool, as the model wrote it."""

    tool: Tool
    argument: str = ""
    """A path, a text to search for, the last words of `done`."""
    code: str = ""
    """What an `edit` puts there."""
    old: str = ""
    """The text that an `edit` replaces; empty for a whole function or file."""


@dataclass(frozen=True, slots=True)
class Result:
    """What a call gave. `text` is what the model reads."""

    call: Call
    text: str
    ok: bool = True
    changes: tuple[FileChange, ...] = ()
    """What an edit changed, each file against what it was just before."""
    line: int = 0
    """Where the first change is, from 1; 0 for none."""


@dataclass(frozen=True, slots=True)
class Event:
    """What happens in a run: "text" as the model writes it, a "call" about to be made, its
    "result", a "note"."""

    kind: Literal["text", "call", "result", "note"]
    step: int
    text: str = ""
    call: Call | None = None
    result: Result | None = None


OnEvent = Callable[[Event], None]


@dataclass(frozen=True, slots=True)
class CheckRun:
    """One run of the check in the copy."""

    command: str
    passed: bool
    output: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended. Nothing in the user's tree has changed; see `deliver` for that."""

    status: Status
    requirement: str
    root: Path
    """The top of the working tree."""
    changes: tuple[FileChange, ...] = ()
    summary: str = ""
    """The model's last words."""
    runs: tuple[CheckRun, ...] = ()
    """What was run, in order; the last one is a cold run in a fresh copy."""
    check: str = ""
    steps: int = 0
    errors: int = 0
    """Answers that held nothing to carry out."""
    tokens: int = 0
    seconds: float = 0.0
    model: str = ""
    notes: tuple[str, ...] = ()
    trajectory: Path | None = None

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.status]

    @property
    def patch(self) -> bytes:
        return unified_diff(self.changes)
