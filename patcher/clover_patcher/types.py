"""Data that the patcher's rooms hand to each other. Immutable; offsets are bytes, lines 1-based."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Status = Literal["passed", "failed", "timeout", "error"]


@dataclass(frozen=True, slots=True)
class Edit:
    """Replace bytes [start, end) of a file's current content by `new`."""

    path: str
    """Repository-relative, posix separators."""
    start: int
    end: int
    new: bytes


@dataclass(frozen=True, slots=True)
class Frame:
    """One traceback frame inside the repository, outermost first."""

    path: str
    line: int
    function: str


@dataclass(frozen=True, slots=True)
class TestFailure:
    """One failing test, or the whole command where tests are unknown (`nodeid` = "")."""

    __test__ = False  # not a pytest class

    nodeid: str
    kind: str
    """Exception type, "timeout", or "exit N"."""
    message: str
    frames: tuple[Frame, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one run of the check gave."""

    status: Status
    seconds: float
    failures: tuple[TestFailure, ...] = ()
    passed: int = 0
    output: str = ""
    """Tail of what the check printed."""

    @property
    def signature(self) -> frozenset[tuple[str, str]]:
        """Same signature twice = the same failure."""
        return frozenset((f.nodeid, f.kind) for f in self.failures) or frozenset(
            {("", self.status)}
        )


@dataclass(frozen=True, slots=True)
class TestCoverage:
    """Lines of repository files that one test executed."""

    __test__ = False

    nodeid: str
    failed: bool
    lines: frozenset[tuple[str, int]]


@dataclass(frozen=True, slots=True)
class Program:
    """A Python program that the check started, and how it ended."""

    main: str
    """Its script in the repository; "" for `-m` and for programs from elsewhere."""
    failed: bool
    kind: str = ""
    """Exception type; "SystemExit" where it asked for a bad exit code."""
    frames: tuple[Frame, ...] = ()
    """The repository's frames of that exception, outermost first."""
    loaded: frozenset[str] = frozenset()
    """Files of the repository that it loaded."""
    tests: frozenset[str] = frozenset()
    """Those that hold tests which it collected."""


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """What a linter, a type checker or an editor says about a line of a file."""

    path: str
    """Repository-relative, posix separators."""
    line: int
    message: str
    code: str = ""
    """The rule, such as "F401" or "return-value"."""
    source: str = ""
    """Who says it, such as "ruff"."""
    column: int | None = None
    """1-based; None where it is not known."""


@dataclass(frozen=True, slots=True)
class Location:
    """A suspicious line; `score` falls from 1.0, `reasons` says why in words."""

    path: str
    line: int
    score: float
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Origin:
    """Who proposed a candidate, and who only had a say in its rank."""

    proposer: Literal["template", "tool", "model"] = "template"
    name: str = ""
    """Of the tool or the model."""
    ranked_by: str = ""
    """The model that scored it among others; empty for none."""

    @property
    def words(self) -> str:
        """For people, as in "proposed by …"."""
        who = {"template": "a template", "tool": f"{self.name} itself"}.get(
            self.proposer, f"the model {self.name}"
        )
        by_another = self.ranked_by and (self.proposer, self.name) != ("model", self.ranked_by)
        return f"{who}, ranked by the model {self.ranked_by}" if by_another else who


@dataclass(frozen=True, slots=True)
class Candidate:
    """A change worth trying: one or more edits, in one or more files, all or none of them.

    Edits of one file refer to its bytes before any of them, and must not overlap.
    """

    edits: tuple[Edit, ...]
    line: int
    """Where the first edit begins."""
    kind: str
    """"operator", "name", "constant", "call", "cloze", "insert", "delete", "line", …"""
    text: str
    """The line(s) after the edit, for people."""
    logprob: float | None = None
    """The model's, in nats; None where it was not asked."""
    priority: float = 0.0
    """Higher is tried first; location score, model and template prior together."""
    proposer: str = "templates"
    """The name of the `Proposer` that made it."""
    origin: Origin = Origin()

    @property
    def path(self) -> str:
        """The file of the first edit."""
        return self.edits[0].path

    @property
    def paths(self) -> tuple[str, ...]:
        """All files that are edited, each once."""
        return tuple(dict.fromkeys(edit.path for edit in self.edits))

    @property
    def size(self) -> int:
        """Bytes that go and come."""
        return sum(len(edit.new) + edit.end - edit.start for edit in self.edits)


@dataclass(frozen=True, slots=True)
class Validation:
    """A candidate and what the check said."""

    candidate: Candidate
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class EngineUse:
    """The engine's part in a run."""

    calls: int = 0
    forward_passes: int = 0
    seconds: float = 0.0
    detail: str = ""
    extra: dict[str, float] = field(default_factory=dict)
