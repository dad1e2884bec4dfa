"""What ruff says about a text that is nowhere on disk. Nothing of the repository is run.

ruff reads the project's own configuration, and the text from its standard input. Only a ruff
beside our Python or on PATH is used, never one that the repository brings along.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from clover_lsp.context.types import Edit
from clover_lsp.documents.text import Lines

TIMEOUT_S = 5.0
PYFLAKES = ("--isolated", "--select", "F,E9")
"""Options for a diagnostic of another tool: only what is wrong in any project."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Lines from 0; `fix`, in characters of the text, is ruff's own, if it has one to show."""

    code: str
    message: str
    line: int
    fix: tuple[Edit, ...] = ()
    fix_title: str = ""
    fix_is_safe: bool = False
    """Whether the fix keeps what the program does."""

    @property
    def kind(self) -> tuple[str, str]:
        """What stays the same when lines move."""
        return self.code, self.message


@lru_cache(maxsize=1)
def ruff_program() -> str | None:
    """ruff's path, None if it is not installed."""
    beside = Path(sys.executable).parent / ("ruff.exe" if os.name == "nt" else "ruff")
    return str(beside) if beside.is_file() else shutil.which("ruff")


def lint(text: str, path: str | None, options: tuple[str, ...] = ()) -> list[Finding] | None:
    """ruff's findings; None where it is not installed, fails, or takes too long.

    `path` decides which configuration holds and need not exist.
    """
    program = ruff_program()
    if program is None:
        return None
    command = [program, "check", "--no-cache", "--quiet", "--output-format", "json", *options]
    try:
        done = subprocess.run(
            [*command, "--stdin-filename", path or "untitled.py", "-"],
            input=text.encode("utf-8", "replace"),
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
            cwd=_folder(path),
        )
        rows = json.loads(done.stdout) if done.returncode in (0, 1) else None
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
    if not isinstance(rows, list):
        return None
    lines = Lines(text, "utf-32")
    return [_finding(row, lines) for row in rows]


def is_better(before: list[Finding], after: list[Finding], gone: Finding) -> bool:
    """Whether `gone` disappeared and nothing new came."""
    old, new = Counter(f.kind for f in before), Counter(f.kind for f in after)
    return new[gone.kind] < old[gone.kind] and not new - old


def _folder(path: str | None) -> str | None:
    """Where ruff runs: the file's folder, so that its own name for the file is right."""
    folder = os.path.dirname(path) if path else ""
    return folder if folder and os.path.isdir(folder) else None


def _finding(row: dict[str, Any], lines: Lines) -> Finding:
    fix = row.get("fix") or {}
    edits = []
    if fix.get("applicability") in ("safe", "unsafe"):
        edits = [
            Edit(_offset(lines, e["location"]), _offset(lines, e["end_location"]), e["content"])
            for e in fix.get("edits", ())
        ]
    return Finding(
        str(row.get("code") or "syntax-error"),
        str(row.get("message", "")),
        int(row["location"]["row"]) - 1,
        tuple(edits),
        str(fix.get("message") or ""),
        fix.get("applicability") == "safe",
    )


def _offset(lines: Lines, place: dict[str, int]) -> int:
    return lines.offset(place["row"] - 1, place["column"] - 1)
