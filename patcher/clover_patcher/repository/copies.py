"""Several copies of a working tree: the first at once, the others while checks run already."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import NamedTuple

from clover_patcher.errors import UsageError
from clover_patcher.repository.git import Repository
from clover_patcher.repository.gitdir import OwnGit
from clover_patcher.repository.overlay import write_overlay
from clover_patcher.repository.treecopy import Stamp, copy_files

_SCRIPT = Path(__file__).with_name("treecopy.py")


class Copy(NamedTuple):
    """A working tree of its own with the user's files, and the stamps of what was copied."""

    tree: Path
    stamps: dict[str, Stamp]


class Copies:
    """Makes trees `folder`/NUMBER/REPOSITORY with the files `names` and buffers in them.

    Each has a git directory of its own (see `gitdir`).

    `lock` is a descriptor that copying processes keep open, so that their folder counts as in use
    until they have ended, whatever becomes of this process.
    """

    def __init__(
        self,
        repository: Repository,
        folder: Path,
        names: Sequence[str],
        overlay: Mapping[str, bytes],
        lock: int,
    ) -> None:
        self._repository = repository
        self._folder = folder
        self._names = list(names)
        self._overlay = overlay
        self._lock = lock
        self._git = OwnGit.of(repository)
        self._list = folder / "names"
        self._copies: dict[int, Future[Copy]] = {}
        self._thread: threading.Thread | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._guard = threading.Lock()
        self._stopped = False

    def first(self, others: Sequence[int]) -> Copy:
        """Makes copy 0, and begins to make the others in processes of their own."""
        target = self._begun(0)
        self._write_list()
        self._copies = {number: Future() for number in others}
        self._thread = threading.Thread(target=self._make, name="copies", daemon=True)
        self._thread.start()
        return self._filled(target)

    def add(self, names: Sequence[str], trees: Sequence[Path]) -> None:
        """Copies more files, into `trees` and whatever was begun or comes later.

        A name may lead out of the repository with "../": it lies beside the copies then.
        """
        source = str(self._repository.root)
        begun = [future.result().tree for future in self._copies.values()]
        for tree in dict.fromkeys([*trees, *begun]):
            copy_files(source, names, str(tree))
        self._names += names
        self._write_list()

    def _write_list(self) -> None:
        self._list.write_bytes(b"".join(os.fsencode(name) + b"\0" for name in self._names))

    def take(self, number: int) -> Copy:
        """A copy that was begun, when it is done; one that was not is made now."""
        if number not in self._copies:
            return self._filled(self._begun(number))
        return self._copies[number].result()

    def another(self, number: int, names: Sequence[str]) -> Copy:
        """A copy of these files of the user's tree as they are now, and of git's state now."""
        self._git = OwnGit.of(self._repository)
        return self._filled(self._begun(number), names)

    def stop(self) -> None:
        """Makes no more copies, and waits until nothing is written any more."""
        with self._guard:
            self._stopped = True
            if self._process is not None:
                self._process.kill()
        if self._thread is not None:
            self._thread.join()

    def _make(self) -> None:
        for number, future in self._copies.items():
            try:
                future.set_result(self._copied(number))
            except BaseException as exc:  # raised in `take`
                future.set_exception(exc)

    def _copied(self, number: int) -> Copy:
        self._require_going()
        target = self._begun(number)
        request = {"source": str(self._repository.root), "target": str(target)}
        request["names"] = str(self._list)
        with self._guard:
            self._require_going()
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_SCRIPT)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=[self._lock],
                start_new_session=True,
            )
        said, complaint = self._process.communicate(json.dumps(request).encode())
        if self._process.returncode:
            lines = complaint.decode("utf-8", "replace").strip().splitlines() or ["it was ended"]
            raise UsageError(f"the working tree cannot be copied: {lines[-1]}")
        stamps = {name: Stamp(*stamp) for name, stamp in json.loads(said).items()}
        return self._finished(target, stamps)

    def _require_going(self) -> None:
        if self._stopped:
            raise UsageError("the run is over: no more copies are made")

    def _begun(self, number: int) -> Path:
        """A new tree with nothing but its git directory."""
        target = self._folder / str(number) / self._repository.root.name
        target.mkdir(parents=True)
        self._git.write(target)
        return target

    def _filled(self, target: Path, names: Sequence[str] | None = None) -> Copy:
        names = self._names if names is None else names
        stamps = copy_files(str(self._repository.root), names, str(target))
        return self._finished(target, stamps)

    def _finished(self, target: Path, stamps: dict[str, Stamp]) -> Copy:
        return Copy(target, stamps | write_overlay(target, self._overlay))
