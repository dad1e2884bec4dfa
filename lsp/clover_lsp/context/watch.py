"""File events of one root, from folders that are worth it only.

A recursive watch would take one inotify watch for every folder of `node_modules` and `.git`. So
each folder of the index's own walk is watched by itself, up to `MAX_FOLDERS`; beyond that, or
where the system refuses, nothing is watched and the index looks at times by itself.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

LOG = logging.getLogger(__name__)

MAX_FOLDERS = 4096
_STEP_MS = 250
"""How often waiting events are collected; a shorter step would wake an idle process too often."""
_DEBOUNCE_MS = 1000


class Watch:
    """Calls `changed` with relative paths, on a thread of its own."""

    def __init__(
        self,
        root: Path,
        changed: Callable[[Sequence[str]], None],
        enters: Callable[[str], bool],
    ) -> None:
        """`enters`: whether a new folder (relative) is worth a watch."""
        self.root, self._changed, self._enters = root, changed, enters
        self.active = False
        self.detail = ""
        """Why nothing is watched, if so."""
        self._stop: threading.Event | None = None
        self._folders: frozenset[str] = frozenset()
        self._lock = threading.Lock()
        self._closed = False

    def start(self, folders: Sequence[str]) -> None:
        """Watches exactly these folders (relative, "" is the root)."""
        wanted = frozenset(folders)
        with self._lock:
            if self._closed or (self.active and wanted == self._folders):
                return
            if self._stop is not None:
                self._stop.set()
                self._stop = None
            self._folders = wanted
            if len(wanted) > MAX_FOLDERS:
                self.active = False
                self.detail = f"more than {MAX_FOLDERS} folders: changes are looked for on focus"
                return
            self._stop, self.active, self.detail = threading.Event(), True, ""
            threading.Thread(
                target=self._run, args=(self._stop, wanted), name="index-watch", daemon=True
            ).start()

    def close(self) -> None:
        with self._lock:
            self._closed, self.active = True, False
            if self._stop is not None:
                self._stop.set()

    def _run(self, stop: threading.Event, folders: frozenset[str]) -> None:
        from watchfiles import Change, watch

        existing = [self.root / f for f in sorted(folders) if (self.root / f).is_dir()]
        new_folders: set[str] = set()
        try:
            for events in watch(
                *existing,
                watch_filter=None,
                recursive=False,
                stop_event=stop,
                step=_STEP_MS,
                debounce=_DEBOUNCE_MS,
                rust_timeout=60_000,
                raise_interrupt=False,
                ignore_permission_denied=True,
            ):
                paths = set()
                for change, name in events:
                    with contextlib.suppress(ValueError):
                        path = Path(name).relative_to(self.root).as_posix()
                        if change == Change.added and Path(name).is_dir():
                            new_folders |= self._below(path)
                        elif path not in folders:
                            paths.add(path)
                paths |= self._files_of(new_folders)
                if paths and not stop.is_set():
                    self._changed(sorted(paths))
                if new_folders:
                    break
        except (OSError, RuntimeError) as error:
            LOG.info("not watching %s: %s", self.root, error)
            self.active, self.detail = False, f"files are not watched ({error})"
            return
        if new_folders and not stop.is_set():
            self.start(sorted(folders | new_folders))

    def _below(self, path: str) -> set[str]:
        """A folder that appeared, with the folders in it: a copied tree comes as one event."""
        found: set[str] = set()
        pending = [path]
        while pending and len(found) <= MAX_FOLDERS:
            folder = pending.pop()
            if not self._enters(folder):
                continue
            found.add(folder)
            with contextlib.suppress(OSError):
                pending += [
                    f"{folder}/{child.name}"
                    for child in (self.root / folder).iterdir()
                    if child.is_dir() and not child.is_symlink()
                ]
        return found

    def _files_of(self, folders: set[str]) -> set[str]:
        found: set[str] = set()
        for folder in folders:
            with contextlib.suppress(OSError):
                found |= {
                    f"{folder}/{child.name}"
                    for child in (self.root / folder).iterdir()
                    if child.is_file()
                }
        return found
