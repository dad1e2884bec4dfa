"""The grammar of the Python that runs the check, where that is another one than ours.

It is asked in a process of its own that parses texts and never runs them. Where it cannot be
asked, everything is judged by our own Python.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from contextlib import suppress
from typing import Self

_SCRIPT = """
import ast, json, sys, warnings
warnings.simplefilter("ignore")
print(json.dumps(list(sys.version_info[:2])), flush=True)
for line in sys.stdin:
    try:
        said = ast.dump(ast.parse(json.loads(line)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        said = None
    print(json.dumps(said), flush=True)
"""


class Grammar:
    """Asks an interpreter what a text means; a context manager. Safe for several threads."""

    def __init__(self, interpreter: str | None) -> None:
        self.version: tuple[int, int] | None = None
        """None where our own Python is the judge."""
        self._process: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()
        if interpreter is None or os.path.realpath(interpreter) == os.path.realpath(sys.executable):
            return
        with suppress(OSError, ValueError, TypeError):
            self._process = subprocess.Popen(
                [interpreter, "-I", "-S", "-c", _SCRIPT],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                encoding="ascii",
                start_new_session=True,
            )
            assert self._process.stdout is not None
            major, minor = json.loads(self._process.stdout.readline())
            self.version = major, minor
        if self.version in (None, sys.version_info[:2]):
            self.version = None
            self.close()

    @property
    def newer(self) -> bool:
        """Whether it may understand what our own Python does not."""
        return self.version is not None and self.version > sys.version_info[:2]

    def feature_version(self) -> tuple[int, int] | None:
        """For `ast.parse`: an older version that texts must be written for, None for ours."""
        return self.version if self.version and self.version < sys.version_info[:2] else None

    def meaning(self, text: str) -> str | None:
        """The syntax tree as text; None where the text does not parse, or nobody can tell."""
        with self._lock:
            process = self._process
            if not self.newer or process is None or not process.stdin or not process.stdout:
                return None
            try:
                process.stdin.write(json.dumps(text) + "\n")
                process.stdin.flush()
                said = json.loads(process.stdout.readline())
            except (OSError, ValueError):
                return None
            return str(said) if said is not None else None

    def close(self) -> None:
        """Ends the process. Safe to call twice."""
        with self._lock:
            if self._process is not None:
                self._process.kill()
                self._process.communicate()
                self._process = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
