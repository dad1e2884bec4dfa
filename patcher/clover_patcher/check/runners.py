"""The runner that fits a check: tests and programs, or linters."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from clover_patcher.check.command import Check
from clover_patcher.check.lintrunner import LintRunner
from clover_patcher.check.runner import Runner
from clover_patcher.types import Diagnostic

AnyRunner = Runner | LintRunner


def start_runner(
    check: Check,
    worktree: Path,
    *,
    timeout_s: float | None,
    tmp: Path,
    original_root: Path,
    cwd: str,
    only: Sequence[Diagnostic],
) -> AnyRunner:
    """Starts a runner; the arguments are those of `Runner` and `LintRunner`."""
    tmp.mkdir(exist_ok=True)
    if check.kind == "lint":
        return LintRunner(
            check,
            worktree,
            timeout_s=timeout_s,
            tmp=tmp,
            original_root=original_root,
            cwd=cwd,
            only=only,
        )
    return Runner(
        check, worktree, timeout_s=timeout_s, tmp=tmp, original_root=original_root, cwd=cwd
    )


def confirmed(runner: AnyRunner, first: AnyRunner) -> bool:
    """Whether the check passes on a patched worktree from a cold start.

    `first` ran the baseline: it knows what a linter's check is measured by.
    """
    if isinstance(runner, LintRunner) and isinstance(first, LintRunner):
        runner.adopt(first)
        return runner.run([]).status == "passed"
    return runner.baseline().status == "passed"


def cautions(runner: AnyRunner) -> list[str]:
    """What a user should know about how the check was run; call it after the baseline."""
    found = []
    if runner.isolation_problem:
        why = runner.isolation_problem
        found.append(f"the check ran with the network, which could not be cut off: {why}")
    if outside := runner.imported_outside:
        more = f" and {len(outside) - 1} more" if len(outside) > 1 else ""
        found.append(
            f"the check imports {outside[0]}{more} from the original tree instead of the copy: "
            "patches of it have no effect there"
        )
    return found
