"""The Python programs that a check starts, and how each of them ended."""

from __future__ import annotations

import json
import posixpath
import re
from pathlib import Path

from clover_patcher.check.command import Check
from clover_patcher.types import Frame, Outcome, Program

_CHECKS = re.compile(r"(^|[_\W])(check|test|verify|validate|smoke|assert)", re.IGNORECASE)


def started_script(check: Check, cwd: str, outcome: Outcome) -> list[Program]:
    """The script that a `python` check runs in `cwd`, with how the baseline says it ended."""
    if check.kind != "python" or check.arguments[0] == "-m":
        return []
    main = posixpath.normpath(posixpath.join(cwd, check.arguments[0]))
    for failure in outcome.failures:
        if not failure.nodeid:
            kind = "SystemExit" if failure.kind.startswith("exit ") else failure.kind
            return [Program(main, True, kind, failure.frames)]
    return [Program(main, True, "SystemExit")]  # tests of unittest in a script


def read_programs(log: Path) -> list[Program]:
    """What `hook/sitecustomize.py` wrote; empty where no Python ran, or none could tell."""
    try:
        lines = log.read_bytes().splitlines()
    except OSError:
        return []
    programs = []
    for line in lines:
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        main = entry["main"] or ""
        if entry["module"] and not _CHECKS.search(main):
            main = ""  # `-m package.module` runs a program
        programs.append(
            Program(
                main,
                bool(entry["failed"]),
                entry["kind"],
                tuple(Frame(*frame) for frame in entry["frames"]),
                frozenset(entry["loaded"]),
                frozenset(entry["tests"]),
            )
        )
    return programs
