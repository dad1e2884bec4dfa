"""All that is known about a failure before a patch is proposed, gathered from one baseline."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from clover_patcher.check.command import Check
from clover_patcher.check.runners import Runner
from clover_patcher.errors import PatcherError
from clover_patcher.locate.counts import RepositoryCounts
from clover_patcher.locate.localise import localise
from clover_patcher.locate.mentions import mentions
from clover_patcher.locate.observe import observe
from clover_patcher.repository.permission import Permission, all_frozen
from clover_patcher.repository.treecopy import is_other_source
from clover_patcher.repository.workspace import Workspace
from clover_patcher.task.task import Task
from clover_patcher.task.tracebacks import located
from clover_patcher.types import Candidate, Diagnostic, Location, Outcome, TestCoverage, TestFailure

_FEW_FILES = 300
"""So many files may be suspected without any evidence, where a check cannot be traced."""


class NothingSuspicious(PatcherError):
    """No line that may be patched is involved in the failure."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What proposers work from. Immutable; safe to read from several threads."""

    check: Check
    baseline: Outcome
    """The failing tests with their messages and frames, and the tail of the check's output."""
    pasted: tuple[TestFailure, ...]
    """Exceptions of a traceback that the user pasted."""
    coverage: tuple[TestCoverage, ...]
    """What each test executed, as far as it was traced."""
    locations: tuple[Location, ...]
    """Suspicious lines of files that may be patched, best first; never empty."""
    sources: Mapping[str, bytes]
    """The content of the files that `locations` names."""
    suggestions: tuple[Candidate, ...]
    """Repairs that the checking tool itself offers."""
    permission: Permission
    """Which files a patch may change."""
    involved: frozenset[str]
    """Files that hold the tests, or that the failing tests ran, or that the check names."""
    read: Callable[[str], bytes]
    """Any Python file's bytes as of the snapshot; raises `OSError` where the check rewrote it."""
    counts: RepositoryCounts | None
    """Token counts of the snapshot, perhaps still being made."""
    deadline: float
    """When proposing must end (`time.monotonic`)."""

    @property
    def failing(self) -> tuple[str, ...]:
        """Names of the failing tests; empty where the check is not made of tests."""
        return tuple(failure.nodeid for failure in self.baseline.failures if failure.nodeid)

    @property
    def suspected(self) -> frozenset[str]:
        """The files that `locations` names."""
        return frozenset(self.sources)


def gather(
    task: Task,
    workspace: Workspace,
    permission: Permission,
    baseline: Outcome,
    runner: Runner,
    counts: RepositoryCounts | None = None,
    around: Callable[[], Sequence[TestCoverage]] = tuple,
) -> Evidence:
    """Traces the failing tests and ranks the lines that may be patched.

    `around` traces tests that pass beside the check's own; it is asked where all of these fail.
    Raises `NothingSuspicious` where nothing points anywhere, and `UsageError` where all
    suspected files are read-only.
    """
    request = task.request
    pasted = tuple(located(task.traces, workspace.python_files, workspace.read))
    failed = replace(baseline, failures=(*pasted, *baseline.failures))
    coverage = tuple(runner.trace())
    seen = observe(task, workspace, baseline, coverage, runner)
    if coverage and not baseline.passed:
        coverage += tuple(around())
    freed = permission.named & (permission.named if seen.programs else seen.freed)
    permission = permission.settled(seen.oracle(permission.free | freed), freed)
    crashes = tuple(
        TestFailure("", program.kind, "", program.frames)
        for program in seen.programs
        if program.main in seen.freed and program.failed and program.frames
    )
    failed = replace(failed, failures=(*failed.failures, *crashes))
    others = [path for path in permission.free if is_other_source(path)]
    scripts = permission.checks.intersection(workspace.other_sources)
    spoken_of = mentions(baseline.output, others, sorted(scripts), workspace.read)
    failed = replace(failed, failures=(*failed.failures, *spoken_of))
    diagnostics = (*runner.targets, *request.diagnostics)
    locations = _suspects(
        workspace, permission, failed, coverage, diagnostics, request.only, bool(runner.targets)
    )
    if task.writes:
        root = task.repository.root
        permission = permission.without_read_only(root, (at.path for at in locations))
        locations = [at for at in locations if permission.allows(at.path)]
    return Evidence(
        check=task.check,
        baseline=baseline,
        pasted=pasted,
        coverage=coverage,
        locations=tuple(locations),
        sources={path: workspace.read(path) for path in {at.path for at in locations}},
        suggestions=tuple(runner.proposals()),
        permission=permission,
        involved=seen.involved | permission.checks,
        read=workspace.read,
        counts=counts,
        deadline=task.clock.end,
    )


def _suspects(
    workspace: Workspace,
    permission: Permission,
    failed: Outcome,
    coverage: Sequence[TestCoverage],
    diagnostics: Sequence[Diagnostic],
    only: Sequence[Diagnostic],
    linted: bool,
) -> list[Location]:
    """Lines of files that may be changed, most suspicious first; raises `NothingSuspicious`."""
    executed = {path for covered in coverage for path, _ in covered.lines}
    elsewhere = all_frozen(executed - permission.checks)
    blind = elsewhere and not linted and len(permission.free) <= _FEW_FILES
    ranked = localise(
        failed,
        coverage,
        sorted(permission.free) if permission.paths or blind else (),
        lambda path: not permission.allows(path),
        workspace.read,
        diagnostics,
        only,
        elsewhere=elsewhere,
    )
    usable = {path for path in {at.path for at in ranked} if workspace.intact(path)}
    locations = [at for at in ranked if at.path in usable]
    if not locations:
        involved = executed | {f.path for t in failed.failures for f in t.frames}
        raise NothingSuspicious(_why(permission, (*only, *diagnostics), frozenset(involved)))
    return locations


def _why(permission: Permission, named: Sequence[Diagnostic], involved: frozenset[str]) -> str:
    for one in named:
        if not permission.allows(one.path):
            return permission.why_not(one.path)
    if named:
        return f"{named[0].path}:{named[0].line} holds no statement of a Python file"
    if permission.paths:
        where = ", ".join(path or "." for path in permission.paths)
        return f"the failing check runs no line of {where}: name other files or none"
    if frozen := [path for path in sorted(involved) if path in permission.frozen]:
        more = f" and {len(frozen) - 1} more" if frozen[1:] else ""
        return (
            f"the failing check runs nothing but frozen files: {frozen[0]}{more} "
            f"({permission.frozen[frozen[0]]}); --allow {frozen[0]} lets a patch change it"
        )
    return "nothing says where the fault may be: name the file as PATH"
