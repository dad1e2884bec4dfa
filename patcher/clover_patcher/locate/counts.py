"""What the repository's own token counts say about an edit (`clover_engine.statistics`).

The counts are made from the snapshot's Python files in a thread beside the check's first runs,
near files first, within a bound of time. Files that nobody may read are not counted.
"""

from __future__ import annotations

import posixpath
import threading
import time
from collections.abc import Callable, Iterable, Sequence

from clover_engine.errors import CheckpointError
from clover_engine.line_ends import to_lf
from clover_engine.statistics.cutter import Cutter
from clover_engine.statistics.edits import FileStatistics
from clover_engine.statistics.grams import Grams

_LONGEST = 400_000
"""Characters of a file; beyond, it is data."""
BUILD_S = 6.0
"""Time for reading and cutting; sorting takes about as long again."""
_PAUSE_S = 0.0005


class RepositoryCounts:
    """Counts of a snapshot. `start` it early; `delta` from one thread.

    `read` gives a file's bytes or raises `OSError`; `withheld` says which files to leave out.
    """

    def __init__(
        self,
        paths: Iterable[str],
        read: Callable[[str], bytes],
        withheld: Callable[[str], bool] | None = None,
    ) -> None:
        self._paths, self._read = list(paths), read
        self._withheld = withheld or (lambda _: False)
        self._thread: threading.Thread | None = None
        self._stopped = threading.Event()
        self._cutter: Cutter | None = None
        self._grams: Grams | None = None
        self._counted: set[str] = set()
        self._files: dict[str, _File | None] = {}

    def start(self) -> None:
        """Begins to count, in a thread of its own. Once."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._build, name="token-counts", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Gives up what is not done yet."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()

    def wait(self, timeout_s: float) -> bool:
        """Whether the counts are there, within the time."""
        if self._thread is None:
            self._build()
        else:
            self._thread.join(timeout_s)
        return self._grams is not None

    def delta(self, path: str, text: str, start: int, end: int, new: str) -> float | None:
        """log p(lines with the edit) − log p(lines as they stand), nats; None without counts.

        `new` replaces the characters [start, end) of `text`, the file as the snapshot has it.
        """
        if self._grams is None or self._cutter is None:
            return None
        if path not in self._files:
            self._files[path] = self._open(path, text)
        file = self._files[path]
        if file is None:
            return None
        if file.crlf:
            start, end = file.at(start), file.at(end)
        return file.statistics.delta(start, end, to_lf(new))

    def _open(self, path: str, text: str) -> _File | None:
        assert self._cutter is not None
        if self._withheld(path) or len(text) > _LONGEST:
            return None
        counted = to_lf(text) if path in self._counted else None
        statistics = FileStatistics(to_lf(text), self._cutter, self._grams, counted)
        return _File(text, statistics)

    def _build(self) -> None:
        try:
            cutter = Cutter.load()
        except CheckpointError:
            return  # an installation without the tokenizer ranks without counts
        end = time.monotonic() + BUILD_S
        texts: list[Sequence[int]] = []
        for path in sorted(self._paths, key=lambda p: (p.count("/"), posixpath.dirname(p), p)):
            if self._stopped.is_set() or time.monotonic() > end:
                break
            if (text := self._text(path)) is not None:
                texts.append(cutter.cut(text))
                self._counted.add(path)
                time.sleep(_PAUSE_S)  # the thread that runs the check must not wait for this one
        if not self._stopped.is_set():
            grams = Grams.of(texts)
            self._cutter, self._grams = cutter, grams

    def _text(self, path: str) -> str | None:
        """A file's text; None for one that is withheld, unreadable or no code."""
        if self._withheld(path):
            return None
        try:
            text = self._read(path).decode("utf-8-sig")
        except (OSError, ValueError):
            return None
        return to_lf(text) if len(text) <= _LONGEST else None


class _File:
    """A file's counts, and how its offsets become those of the text with LF line ends."""

    def __init__(self, text: str, statistics: FileStatistics) -> None:
        self.statistics = statistics
        self.crlf = "\r\n" in text
        self._text = text

    def at(self, offset: int) -> int:
        return offset - self._text.count("\r\n", 0, offset)
