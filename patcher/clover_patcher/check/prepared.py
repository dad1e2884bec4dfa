"""What both runners are: a worktree's prepared process, to be stopped and closed."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from clover_patcher.check.command import Check
from clover_patcher.check.editing import Editor
from clover_patcher.check.forkserver import ForkServer, ServerOptions
from clover_patcher.errors import Cancelled


@dataclass(frozen=True, slots=True)
class View:
    """What runs see beside the files of their copy."""

    left_out: tuple[str, ...] = ()
    """Paths of the repository that were not copied: shown copy-on-write where that is possible."""
    loopback: bool = False
    """The services on the machine's loopback device are reached, the network is not."""
    network: bool = False


class Prepared:
    """Owns a `ForkServer` and its folder of files, `tmp`. A context manager."""

    def __init__(
        self,
        check: Check,
        worktree: Path,
        *,
        tmp: Path,
        timeout_s: float | None,
        original_root: Path | None,
        cwd: str,
        view: View | None,
    ) -> None:
        self.check, self.worktree, self.timeout_s = check, worktree.resolve(), timeout_s
        self.view = view = view or View()
        self.imported_outside: tuple[str, ...] = ()
        self.installed_twins: tuple[tuple[str, str], ...] = ()
        """Packages of the worktree that the check imports from an installation: name and place."""
        self._tmp, self._original = tmp, original_root.resolve() if original_root else None
        self._editor = Editor(self.worktree)
        self._stopped = False
        self._options = ServerOptions(
            check,
            self.worktree,
            tmp,
            self._original,
            isolate=not view.network,
            cwd=cwd,
            left_out=view.left_out,
            loopback=view.loopback,
        )
        self._server = ForkServer(self._options)

    @property
    def isolated(self) -> bool:
        """Whether runs have no network but their own loopback device."""
        return self._server.isolated

    @property
    def not_seen(self) -> tuple[str, ...]:
        """Paths of the view that could not be shown."""
        return self._server.left_out

    @property
    def isolation_problem(self) -> str:
        """Why the network could not be taken away; "" where it was."""
        return self._server.isolation_problem

    def stop(self) -> None:
        """From another thread: ends what is running; that call and later ones raise `Cancelled`."""
        self._stopped = True
        self._server.interrupt()

    def close(self) -> None:
        """Ends all processes and removes their files. Safe to call twice."""
        self._server.close()
        shutil.rmtree(self._tmp, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _require_going(self) -> None:
        if self._stopped:
            raise Cancelled("stopped by the caller")

    def _replace_server(self) -> None:
        self._server.close()
        self._server = ForkServer(self._options)
