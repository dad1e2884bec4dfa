"""What every runner of a check can do, and the one that fits: tests and programs, or linters."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, Self

from clover_patcher.check.command import Check
from clover_patcher.check.lintrunner import LintRunner
from clover_patcher.check.prepared import View
from clover_patcher.check.runner import ProgramRunner
from clover_patcher.types import Candidate, Diagnostic, Edit, Outcome, Program, TestCoverage


class Runner(Protocol):
    """A check and a copy of the tree to run it in. One thread at a time, `stop` aside."""

    @property
    def imported_outside(self) -> tuple[str, ...]:
        """Files that the check imports from the original tree instead of the copy."""

    @property
    def isolation_problem(self) -> str:
        """Why the network could not be taken away; "" where it was."""

    @property
    def view(self) -> View:
        """What runs see beside the files of their copy."""

    @property
    def worktree(self) -> Path:
        """The copy."""

    @property
    def isolated(self) -> bool:
        """Whether runs have no network but their own loopback device."""

    @property
    def not_seen(self) -> tuple[str, ...]:
        """Paths of the view that could not be shown."""

    @property
    def installed_twins(self) -> tuple[tuple[str, str], ...]:
        """Packages of the copy that the check imports from an installation: name and place."""

    @property
    def targets(self) -> tuple[Diagnostic, ...]:
        """What a linter reports and a candidate must remove; empty for other checks."""

    def baseline(self) -> Outcome:
        """Runs the whole check on the copy as it is; call it twice to see flaky checks."""

    def look(self) -> Outcome:
        """The first part of `baseline`: one run of the whole check; `prepare` must follow."""

    def prepare(self) -> None:
        """Gets ready for candidates."""

    def run(self, edits: Sequence[Edit], *, only_failing: bool = True) -> Outcome:
        """Runs the check with the edits in place, the failing tests first; restores the bytes."""

    def trace(self) -> list[TestCoverage]:
        """Lines that each test executes; empty where the check cannot be traced."""

    def programs(self) -> list[Program]:
        """The Python programs that the check starts, and how they ended."""

    def proposals(self) -> list[Candidate]:
        """The tool's own repairs, where it has any."""

    def confirm(self, first: Self) -> Outcome:
        """The whole check on the copy as it is, from a cold start; `first` ran the baseline."""

    def stop(self) -> None:
        """From another thread: ends what is running; that call and later ones raise `Cancelled`."""

    def close(self) -> None:
        """Ends all processes and removes their files. Safe to call twice."""


def start_runner(
    check: Check,
    worktree: Path,
    *,
    timeout_s: float | None,
    tmp: Path,
    original_root: Path,
    cwd: str,
    only: Sequence[Diagnostic],
    view: View | None = None,
) -> Runner:
    """Starts a runner; the arguments are those of `ProgramRunner` and `LintRunner`."""
    tmp.mkdir(exist_ok=True)
    view = view or View()
    if check.kind == "lint":
        return LintRunner(
            check,
            worktree,
            timeout_s=timeout_s,
            tmp=tmp,
            original_root=original_root,
            cwd=cwd,
            only=only,
            view=view,
        )
    return ProgramRunner(
        check,
        worktree,
        timeout_s=timeout_s,
        tmp=tmp,
        original_root=original_root,
        cwd=cwd,
        view=view,
    )


def cautions(runner: Runner) -> list[str]:
    """What a user should know about how the check was run; call it after the baseline."""
    notes = []
    if runner.isolation_problem and not runner.view.network:
        why = runner.isolation_problem
        notes.append(f"the check ran with the network, which could not be cut off: {why}")
    if outside := runner.imported_outside:
        more = f" and {len(outside) - 1} more" if len(outside) > 1 else ""
        notes.append(
            f"the check imports {outside[0]}{more} from the original tree instead of the copy: "
            "patches of it have no effect there"
        )
    return notes
