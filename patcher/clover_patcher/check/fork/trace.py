"""Which lines each test executes, written so that it survives a killed process.

Loaded by path beside `server.py`; standard library only, syntax of Python 3.8. The record is a
shared mapping of pairs (file number, line), 16 and 32 bits; file 0 ends it, file 65535 starts
bucket number `line`. Names of files and buckets go through the pipe.
"""

from __future__ import annotations

import mmap
import struct
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

RECORD = struct.Struct("<HI")
BUCKET = 0xFFFF
SIZE = RECORD.size * 4_000_000


class Tracer:
    """Records the first execution of every line of the worktree's files, per bucket."""

    def __init__(self, path: str, mapper: Any, emit: Callable[..., None]) -> None:
        with open(path, "wb+") as file:
            file.truncate(SIZE)
            self.map = mmap.mmap(file.fileno(), SIZE)
        self.mapper = mapper
        self.emit = emit
        self.position = 0
        self.buckets: dict[str, int] = {}
        self.files: dict[str, int] = {}
        self.seen: list[set[int]] = []
        self.locals: dict[str, Any] = {}
        self.started = False

    def start(self) -> None:
        self.started = True
        threading.settrace(self._on_call)
        sys.settrace(self._on_call)

    def stop(self) -> None:
        self.started = False
        sys.settrace(None)
        threading.settrace(None)

    def switch(self, bucket: str) -> None:
        """What is executed from now on belongs to `bucket`."""
        number = self.buckets.get(bucket)
        if number is None:
            number = self.buckets[bucket] = len(self.buckets)
            self.emit(e="bucket", i=number, id=bucket)
        for lines in self.seen:
            lines.clear()
        self._put(BUCKET, number)
        if self.started:  # Python stops tracing where the stack overflows in a trace function
            sys.settrace(self._on_call)

    def _put(self, file: int, line: int) -> None:
        end = self.position + RECORD.size
        if end + RECORD.size <= SIZE:
            self.map[self.position : end] = RECORD.pack(file, line)
            self.position = end

    def _on_call(self, frame: FrameType, event: str, arg: Any) -> Any:
        filename = frame.f_code.co_filename
        try:
            return self.locals[filename]
        except KeyError:
            made = self.locals[filename] = self._local(filename)
            return made

    def _local(self, filename: str) -> Callable[..., Any] | None:
        """The trace function for frames of one file; None where nobody wants to know."""
        path = self.mapper.relative(filename)
        if path is None or len(self.files) >= BUCKET - 1:
            return None
        number = self.files.setdefault(path, len(self.files) + 1)
        self.emit(e="file", i=number, path=path)
        seen: set[int] = set()
        self.seen.append(seen)
        put = self._put

        def local(frame: FrameType, event: str, arg: Any) -> Any:
            if event == "line":
                line = frame.f_lineno
                if line not in seen:
                    seen.add(line)
                    put(number, line)
            return local

        return local
