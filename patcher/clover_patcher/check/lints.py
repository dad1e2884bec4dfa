"""Which checks are linters or type checkers, and how to make them say what they found.

A tool is known by its name, behind `python -m` or a runner such as `uv run` too; the options that
make its output readable are added to the command. Any other command whose options ask for JSON
or SARIF is taken at its word.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from clover_patcher.check.lint_output import Format
from clover_patcher.types import Diagnostic

SCRATCH = "{scratch}"
"""Stands in an argument for a folder of the runner's own."""

_PYTHON = re.compile(r"(python|pypy)[0-9.]*(\.exe)?$")
_RUNNERS = frozenset({"uv", "poetry", "pdm", "hatch", "rye", "pipenv"})
_OUTPUT_OPTION = re.compile(r"--?(output-?format|format|outputjson|message-format|output|f|o)$")
_MACHINE = frozenset({"json", "sarif", "json-lines", "jsonl", "sarif-json"})


@dataclass(frozen=True, slots=True)
class Linter:
    """A recognised command. `argv` replaces the user's; it may hold `SCRATCH`."""

    name: str
    argv: tuple[str, ...]
    form: Format
    broken: int
    """Exit codes from this one on say that the tool itself failed."""


@dataclass(frozen=True, slots=True)
class _Tool:
    form: Format
    options: tuple[str, ...]
    valued: frozenset[str]
    """The user's options that are dropped together with their values."""
    flags: frozenset[str] = frozenset()
    """The user's options that are dropped: they change the output, or files."""
    subcommand: str = ""
    broken: int = 2


_TOOLS: Mapping[str, _Tool] = {
    "ruff": _Tool(
        "ruff",
        ("--output-format=json", "--no-fix", "--no-cache"),
        frozenset({"--output-format", "--output-file", "-o", "--cache-dir"}),
        frozenset(
            {"--fix", "--no-fix", "--unsafe-fixes", "--fix-only", "--show-fixes", "--diff"}
            | {"--watch", "-w", "--statistics", "--no-cache", "-n", "--add-noqa", "--exit-zero"}
        ),
        subcommand="check",
    ),
    "mypy": _Tool(
        "mypy",
        (
            *("--no-pretty", "--show-error-codes", "--show-column-numbers"),
            *("--no-error-summary", "--hide-error-context", "--no-color-output"),
            f"--cache-dir={SCRATCH}/mypy",
        ),
        frozenset({"--cache-dir", "--output", "-O"}),
        frozenset({"--pretty", "--install-types", "--show-error-end", "--show-absolute-path"}),
    ),
    "flake8": _Tool(
        "flake8",
        ("--format=default",),
        frozenset({"--format", "--output-file"}),
        frozenset({"--show-source", "--statistics", "--count", "-q", "--quiet", "--exit-zero"}),
    ),
    "pyright": _Tool(
        "pyright",
        ("--outputjson",),
        frozenset(),
        frozenset({"--outputjson", "--stats", "--watch", "-w", "--verbose"}),
    ),
    "pylint": _Tool(
        "pylint",
        ("--output-format=json", "--persistent=n", "--score=n", "--reports=n"),
        frozenset({"--output-format", "-f", "--output"}),
        frozenset({"--exit-zero"}),
        broken=32,
    ),
}
_ALIASES = {"basedpyright": "pyright"}
_SOURCES = {"ruff": "ruff check", "mypy": "mypy", "flake8": "flake8", "pylint": "pylint"} | {
    name: name for name in ("pyright", "basedpyright")
}
_SPOKEN = {"dmypy": "mypy", "pylance": "pyright", "pyright (pylance)": "pyright"}


def recognise(argv: Sequence[str]) -> Linter | None:
    """The linter that a command starts, or None. The first word is the program's full path."""
    at = _tool_at(argv)
    if at is None:
        return _by_options(argv)
    name = Path(argv[at]).name
    tool = _TOOLS[_ALIASES.get(name, name)]
    head, rest = [*argv[: at + 1]], [*argv[at + 1 :]]
    if tool.subcommand:
        if rest[:1] != [tool.subcommand]:
            return None
        head.append(rest.pop(0))
    return Linter(name, (*head, *_rearranged(rest, tool)), tool.form, tool.broken)


def check_for(diagnostic: Diagnostic, cwd: str = "") -> str | None:
    """The command that would repeat an editor's diagnostic, run in `cwd` of the repository.

    None where the source is not a tool that can be run alone.
    """
    source = diagnostic.source.strip().lower()
    command = _SOURCES.get(_SPOKEN.get(source, source))
    if command is None:
        return None
    path = posixpath.relpath(diagnostic.path, cwd or ".")
    return f"{command} {shlex.quote(f'./{path}' if path.startswith('-') else path)}"


def _tool_at(argv: Sequence[str]) -> int | None:
    """Where in a command the tool's name stands."""
    at = 0
    if Path(argv[0]).name in _RUNNERS and list(argv[1:2]) == ["run"]:
        at = 2
    words = argv[at:]
    if len(words) > 2 and _PYTHON.fullmatch(Path(words[0]).name) and words[1] == "-m":
        at += 2
    if at < len(argv) and _ALIASES.get(Path(argv[at]).name, Path(argv[at]).name) in _TOOLS:
        return at
    return None


def _rearranged(rest: Iterable[str], tool: _Tool) -> list[str]:
    """The tool's arguments with our options instead of those that contradict them."""
    options: list[str] = []
    words = iter(rest)
    for word in words:
        if word == "--":
            return [*options, *tool.options, "--", *words]
        if word in tool.valued:
            next(words, None)
        elif word not in tool.flags and word.split("=", 1)[0] not in tool.valued:
            options.append(word)
    return [*options, *tool.options]


def _by_options(argv: Sequence[str]) -> Linter | None:
    """A command that says itself that it prints JSON or SARIF."""
    for number, word in enumerate(argv[1:], 1):
        option, _, value = word.partition("=")
        if _OUTPUT_OPTION.fullmatch(option):
            value = value or "".join(argv[number + 1 : number + 2])
            if value.lower() in _MACHINE or option == "--outputjson":
                return Linter(Path(argv[0]).name, tuple(argv), "any", 128)
    return None
