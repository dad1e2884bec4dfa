"""The check command that a repair must make pass: what kind it is, and who runs it."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from clover_patcher.check.lints import Linter, recognise
from clover_patcher.errors import UsageError

Kind = Literal["pytest", "python", "lint", "command"]

_PYTHON = re.compile(r"(python|pypy)[0-9.]*(\.exe)?$")
_FLAGS_WITH_VALUE = frozenset({"-W", "-X", "--check-hash-based-pycs"})


@dataclass(frozen=True, slots=True)
class Check:
    """A parsed check command.

    `pytest` and `python` checks run inside a process that `interpreter` started beforehand;
    a `command` is started anew each time, and only its exit code counts; so is a `lint`, whose
    diagnostics count.
    """

    argv: tuple[str, ...]
    kind: Kind
    display: str
    interpreter: str | None = None
    """Absolute path of the Python that runs a `pytest` or `python` check."""
    flags: tuple[str, ...] = ()
    """The interpreter's own options (`-X dev`, `-W error`)."""
    arguments: tuple[str, ...] = ()
    """pytest's arguments; for `python` the script or `-m module` with its arguments."""
    linter: Linter | None = None
    """How to read what a `lint` says."""

    @property
    def import_first(self) -> str | None:
        """The folder that comes first on the import path, relative to where the check runs.

        Absolute for a console script's own folder; None where the interpreter's options say
        that there is none.
        """
        if self.kind in ("command", "lint") or {"-I", "-P"} & set(self.flags):
            return None
        if self.kind == "pytest":
            return "" if self.argv[1:] != self.arguments else str(Path(self.argv[0]).parent)
        return "" if self.arguments[0] == "-m" else str(Path(self.arguments[0]).parent)

    @classmethod
    def parse(cls, command: str, folder: Path) -> Check:
        """Understands a command as typed in `folder`, where relative programs are looked up.

        Names of pytest tests (`test_x.py::test_y`) stand for `pytest` with them.

        Raises `UsageError` where the text is empty or has an open quote, and where the program
        does not exist.
        """
        try:
            words = shlex.split(command)
        except ValueError as exc:
            raise UsageError(f"the check `{command}` has an open quote: close it") from exc
        if not words:
            raise UsageError("the check is empty: give a command, such as `pytest tests`")
        if "::" in words[0] and (folder / words[0].split("::")[0]).is_file():
            words.insert(0, "pytest")
        program = _find(words[0], folder)
        argv = (program, *words[1:])
        if (linter := recognise(argv)) is not None:
            return cls(argv, "lint", command, linter=linter)
        if _PYTHON.fullmatch(Path(words[0]).name):
            return _python_check(argv, command, folder)
        if Path(words[0]).name in ("pytest", "py.test"):
            interpreter = _script_interpreter(Path(program))
            if interpreter is not None:
                return cls(argv, "pytest", command, interpreter, (), argv[1:])
        return cls(argv, "command", command)


def _python_check(argv: tuple[str, ...], command: str, folder: Path) -> Check:
    """`python -m pytest`, `python -m unittest` and `python file.py`; all else is a command."""
    at = 1
    while at < len(argv) and argv[at].startswith("-") and argv[at] not in ("-m", "-c", "-"):
        at += 2 if argv[at] in _FLAGS_WITH_VALUE else 1
    flags, rest = argv[1:at], argv[at:]
    if rest[:2] == ("-m", "pytest"):
        return Check(argv, "pytest", command, argv[0], flags, rest[2:])
    if rest[:2] == ("-m", "unittest"):
        return Check(argv, "python", command, argv[0], flags, rest)
    if rest and not rest[0].startswith("-"):
        if not (folder / rest[0]).is_file():
            raise UsageError(f"the check's script {rest[0]} does not exist: correct its path")
        return Check(argv, "python", command, argv[0], flags, rest)
    return Check(argv, "command", command)


def _find(program: str, folder: Path) -> str:
    """The program's absolute path; symbolic links stay, since they make an environment."""
    if os.sep in program:
        path = Path(os.path.abspath(folder / Path(program).expanduser()))
        if path.is_file() and os.access(path, os.X_OK):
            return str(path)
        problem = "is not executable" if path.exists() else "does not exist"
        raise UsageError(f"the check's program {program} {problem}: correct the path")
    found = shutil.which(program)
    if found is None:
        raise UsageError(
            f"the check's program `{program}` was not found: install it, activate its "
            "environment, or give its full path"
        )
    return os.path.abspath(found)


def _script_interpreter(script: Path) -> str | None:
    """The Python that a console script starts: from its first line, else the one beside it."""
    found = _from_first_line(script) or str(script.parent / "python")
    return found if os.access(found, os.X_OK) else None


def _from_first_line(script: Path) -> str | None:
    try:
        with script.open("rb") as file:
            head = file.read(1024)
    except OSError:
        return None
    lines = head.decode("utf-8", "replace").splitlines()
    if not lines or not lines[0].startswith("#!"):
        return None
    words = lines[0][2:].split()
    if words[:1] == ["/bin/sh"] and len(lines) > 1:  # long paths: '''exec' /path/python "$0" "$@"
        words = [w.strip("'\"") for w in lines[1].replace("'''exec'", "").split()]
    if words and Path(words[0]).name == "env" and len(words) > 1:
        words = [shutil.which(words[1]) or ""]
    return words[0] if words and _PYTHON.fullmatch(Path(words[0]).name) else None
