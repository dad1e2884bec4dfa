"""Which lines of a working tree may be changed to repair a failure, most suspicious first."""

from __future__ import annotations

from collections.abc import Sequence, Set

from clover_patcher.check.runners import AnyRunner
from clover_patcher.errors import PatcherError
from clover_patcher.locate.localise import localise
from clover_patcher.repository.scope import FROZEN, is_frozen, without_tests
from clover_patcher.repository.workspace import Workspace
from clover_patcher.types import Diagnostic, Location, Outcome

_FEW_FILES = 300
"""So many files may be suspected without any evidence, where a check cannot be traced."""


class NothingSuspicious(PatcherError):
    """No line that may be patched is involved in the failure."""


def suspects(
    workspace: Workspace,
    baseline: Outcome,
    runner: AnyRunner,
    allowed: Sequence[str],
    paths: Sequence[str],
    diagnostics: Sequence[Diagnostic],
    only: Sequence[Diagnostic],
    unfrozen: Set[str] = frozenset(),
    checks: Set[str] = frozenset(),
) -> list[Location]:
    """Lines of files in `allowed`; `paths` are those that the user named, if any.

    Files that hold the check's tests are left out unless named or `unfrozen`. `checks` are files
    that the check command names: that they ran says nothing about where the program runs.
    Raises `NothingSuspicious` where nothing points anywhere.
    """
    coverage = runner.trace()
    nodeids = [*(test.nodeid for test in baseline.failures), *(test.nodeid for test in coverage)]
    allowed = without_tests(allowed, nodeids, unfrozen | set(paths))
    evidence = (*runner.targets, *diagnostics)
    executed = {path for covered in coverage for path, _ in covered.lines}
    elsewhere = all(is_frozen(path) for path in executed - checks)
    blind = elsewhere and not runner.targets
    may_be_changed = frozenset(allowed)
    found = localise(
        baseline,
        coverage,
        allowed if paths or (blind and len(allowed) <= _FEW_FILES) else (),
        lambda path: path not in may_be_changed,
        workspace.read,
        evidence,
        only,
        elsewhere=elsewhere,
    )
    usable = {path for path in {at.path for at in found} if workspace.intact(path)}
    locations = [at for at in found if at.path in usable]
    if not locations:
        raise NothingSuspicious(_why(paths, (*only, *evidence), may_be_changed))
    return locations


def _why(paths: Sequence[str], named: Sequence[Diagnostic], may_be_changed: frozenset[str]) -> str:
    frozen = [said.path for said in named if said.path not in may_be_changed]
    if frozen:
        return f"{frozen[0]} may not be patched: it is not among the files named, or {FROZEN}"
    if named:
        return f"{named[0].path}:{named[0].line} holds no statement of a Python file"
    if paths:
        where = ", ".join(path or "." for path in paths)
        return f"the failing check runs no line of {where}: name other files or none"
    return "nothing says where the fault may be: name the file as PATH"
