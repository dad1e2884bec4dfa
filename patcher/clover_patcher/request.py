"""What `fix` is asked for, and how a run ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from clover_patcher.edits import FileChange, unified_diff
from clover_patcher.types import Diagnostic, EngineUse, Location, Origin, TestFailure

FixStatus = Literal[
    "fixed", "none_found", "not_reproducible", "tree_changed", "budget", "cancelled"
]


@dataclass(frozen=True, slots=True)
class FixRequest:
    """What to repair.

    `root` is a folder in the repository: the check runs there (in a copy), and `paths` are
    relative to it.
    """

    root: Path
    check: str
    """The failing command; "" repeats what a diagnostic's own tool says."""
    paths: tuple[str, ...] = ()
    budget_s: float = 120.0
    dry_run: bool = False
    check_timeout_s: float | None = None
    """Limit for one test or command; None lets the runner choose from the baseline's time."""
    jobs: int = 0
    """Copies of the tree that are tried in parallel; 0 takes the cores, at most two."""
    overlay: Mapping[str, bytes] = field(default_factory=dict)
    """Unsaved buffers, by repository-relative path: the check sees them and the patch is one of
    them. With any, nothing is written to the user's tree (a dry run)."""
    diagnostics: tuple[Diagnostic, ...] = ()
    """Evidence where the fault is; these lines are tried first, in this order."""
    only: tuple[Diagnostic, ...] = ()
    """If any, no other lines are changed."""
    traceback: str = ""
    """A pasted traceback of the failure, from any machine: evidence where the fault is."""
    commit: bool = False
    """Commit the patched files, and nothing else; see `commit`."""
    log: Path | None = None
    """Where the run is logged; None: in the git directory, unless there are unsaved buffers."""
    resume: bool = False
    """Skip candidates that failed in an earlier run of this check on this very tree."""
    withheld: Callable[[str], bool] | None = None
    """True for a repository-relative path whose text the engine must not see: such a file is
    repaired by templates alone."""
    allow: tuple[str, ...] = ()
    """Patterns as in `.gitignore`, from the repository's top: tests that may be changed."""
    check_only: bool = False
    """Run no tests beside the check's own: a patch may break others."""
    thorough: bool = False
    """Go on after the first patch that passes, for most of the time, and take the best of all."""
    include: tuple[str, ...] = ()
    """Paths that are copied whatever their size: ignored ones, and some beside the repository."""
    network: bool = False
    """Checks keep the network."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a patch is what it is. The first four are sentences without their full stop."""

    failure: str
    place: str
    change: str
    validation: str
    proposer: str
    """Who proposed it, as in "proposed by …"."""
    tests: tuple[str, ...]
    """Names of the failing tests; empty where the check is not made of tests."""
    kind: str
    prior: float
    """How often a repair is of this kind, as the templates assume (0..1)."""
    logprob: float | None
    """The model's log-probability of the new line in nats; None where it was not asked."""
    place_rank: int | None
    """The place's rank among the suspicious lines, from 1; None for a line beside them."""
    suspects: tuple[Location, ...]
    """The most suspicious lines, best first."""
    num_suspects: int

    @property
    def summary(self) -> str:
        """All of it in one paragraph."""
        return " ".join(
            f"{text}." for text in (self.failure, self.place, self.change, self.validation)
        )

    def lines(self) -> Iterator[str]:
        """For a terminal: the sentences, then the ranking of suspicious lines."""
        yield f"{self.failure}."
        yield f"Why here: {self.place}."
        yield f"Why this: {self.change[0].lower()}{self.change[1:]}; {self._likelihood()}."
        yield f"Validated: {self.validation[0].lower()}{self.validation[1:]}."
        yield f"Suspicious lines (first {len(self.suspects)} of {self.num_suspects}):"
        for rank, at in enumerate(self.suspects, 1):
            mark = "*" if rank == self.place_rank else " "
            why = "; ".join(at.reasons) or "no evidence of its own"
            yield f" {mark}{rank:3}  {at.score:.2f}  {at.path}:{at.line}  {why}"

    def _likelihood(self) -> str:
        who = f"proposed by {self.proposer}"
        if self.kind == "linter":
            return who
        kind = f"templates put {self.prior:.0%} of repairs down to this kind"
        if self.logprob is None:
            return f"{who}; {kind}; no model scored it"
        return f"{who}; {kind}; the model's log-probability is {self.logprob:.2f} nats"


@dataclass(frozen=True, slots=True)
class FixResult:
    """How a run ended. Fields about the patch are None or empty where there is none."""

    status: FixStatus
    exit_code: int
    seconds: float
    candidates_tried: int = 0
    changes: tuple[FileChange, ...] = ()
    path: str | None = None
    line: int | None = None
    applied: bool = False
    rank: int | None = None
    """How many candidates had been tried when the chosen one passed, itself included."""
    origin: Origin | None = None
    """Who proposed the patch; the engine may have done no more than rank it, or nothing."""
    passing: int = 0
    """How many of the tried candidates passed the check."""
    alternatives: tuple[tuple[FileChange, ...], ...] = ()
    """Other patches that pass, the most probable first: at most a few."""
    frozen: tuple[tuple[str, str], ...] = ()
    """Files that took part in the failure and were left alone, with the reason in words."""
    failures: tuple[TestFailure, ...] = ()
    """What was reproduced: how the check fails without a patch."""
    check: str = ""
    """The command that was repaired; see `FixRequest.check`."""
    engine: EngineUse = field(default_factory=EngineUse)
    explanation: Explanation | None = None
    fix_id: str | None = None
    """Names an applied fix for undo."""
    commit: str | None = None
    log: Path | None = None
    root: Path | None = None
    """The top of the working tree that paths are relative to."""
    notes: tuple[str, ...] = ()
    """What went wrong on the way without ending the run, such as an engine that failed."""
    error: str | None = None

    @property
    def patch(self) -> bytes:
        """The unified diff, in the files' own bytes."""
        return unified_diff(self.changes)
