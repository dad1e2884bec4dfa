"""A request, understood: the repository, the check, the place where it runs, and the clock."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from clover_engine.api import CancelToken
from clover_patcher.check.command import Check
from clover_patcher.errors import Cancelled
from clover_patcher.progress import Clock, Progress, Quiet
from clover_patcher.repository.git import Repository
from clover_patcher.repository.include import included
from clover_patcher.repository.scope import resolve_paths
from clover_patcher.request import FixRequest
from clover_patcher.task.implied import implied_check
from clover_patcher.task.tracebacks import Trace, read_traceback


@dataclass(frozen=True, slots=True)
class Task:
    """What a run is about, and whom it tells and obeys."""

    request: FixRequest
    repository: Repository
    check: Check
    cwd: str
    """The folder where the check runs, from the repository's top."""
    include: tuple[str, ...]
    """Paths that are copied whatever their size, relative to the repository's top."""
    paths: tuple[str, ...]
    """The files and folders that the user named, from the repository's top."""
    traces: tuple[Trace, ...]
    """The exceptions of a pasted traceback."""
    clock: Clock
    progress: Progress
    cancel: CancelToken
    """The caller's."""

    @classmethod
    def of(
        cls,
        request: FixRequest,
        progress: Progress | None = None,
        cancel: CancelToken | None = None,
    ) -> Task:
        """Finds the repository and the check; the clock starts.

        Raises `UsageError` for a request that cannot be tried.
        """
        clock = Clock(request.budget_s)
        repository = Repository.open(request.root)
        paths = resolve_paths(repository.root, request.root, request.paths)
        (cwd,) = resolve_paths(repository.root, request.root, ["."])
        traces = read_traceback(request.traceback) if request.traceback else []
        named = (*request.only, *request.diagnostics)
        command = request.check or implied_check(named, request.traceback, cwd)
        check = Check.parse(command, request.root, repository.root)
        (cwd,) = resolve_paths(repository.root, request.root, [str(check.folder or ".")])
        return cls(
            request=request,
            repository=repository,
            check=check,
            cwd=cwd,
            include=included(repository.root, request.root, request.include),
            paths=tuple(paths),
            traces=tuple(traces),
            clock=clock,
            progress=progress or Quiet(),
            cancel=cancel or CancelToken(),
        )

    @property
    def check_words(self) -> tuple[str, ...]:
        """Words of the command that may name files which decide; a linter's name what it reads."""
        return () if self.check.kind == "lint" else self.check.words

    @property
    def folder(self) -> Path:
        """The folder where the check runs, in the user's tree."""
        return self.repository.root / self.cwd

    @property
    def writes(self) -> bool:
        """Whether a patch goes into the user's tree."""
        return not (self.request.dry_run or self.request.overlay)

    def require_going(self) -> None:
        """Raises `Cancelled` once the caller asked to stop."""
        if self.cancel.cancelled:
            raise stopped()


def stopped() -> Cancelled:
    """What a run ends with when the caller asked to stop."""
    return Cancelled("stopped: nothing was changed")
