"""The check command that a repair must make pass: what kind it is, and who runs it."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from clover_patcher.check.launchers import unwrapped
from clover_patcher.check.lints import Linter, recognise
from clover_patcher.check.shell import Line, read, shell_command
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
    env: tuple[tuple[str, str], ...] = ()
    """Variables that the command line sets."""
    folder: Path | None = None
    """Where the command line goes before anything runs, absolute; None: nowhere."""
    script: str = ""
    """What a shell runs, where the check needs one."""
    script_words: tuple[str, ...] = ()
    """The plain words of such a script."""

    @property
    def words(self) -> tuple[str, ...]:
        """The words of the command line."""
        return self.script_words or self.argv

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
    def parse(cls, command: str, folder: Path, root: Path | None = None) -> Check:
        """Understands a command as typed in `folder`, where relative programs are looked up.

        Names of pytest tests (`test_x.py::test_y`) stand for `pytest` with them. What needs a
        shell becomes a command that one runs. `root` is the top of the repository: the check's
        own environment is looked for up to there.

        Raises `UsageError` where the text is empty or has an open quote, and where the program
        does not exist.
        """
        line = read(command, folder)
        if root is not None and not line.folder.resolve().is_relative_to(root):
            line = Line(line.words, folder, {}, True, command)
        went = line.folder if line.folder != folder else None
        if line.shell:
            env, argv = tuple(line.env.items()), shell_command(line.script)
            return cls(
                argv,
                "command",
                command,
                env=env,
                folder=went,
                script=line.script,
                script_words=line.words,
            )
        words, env_map = list(line.words), dict(line.env)
        if "::" in words[0] and (line.folder / words[0].split("::")[0]).is_file():
            words.insert(0, "pytest")
        if found := unwrapped(words, line.folder, root, env_map or os.environ):
            words, env_map = list(found[0]), env_map | found[1]
        check = cls._plain(words, command, line.folder, env_map.get("PATH"))
        return replace(check, env=tuple(env_map.items()), folder=went)

    @classmethod
    def _plain(cls, words: Sequence[str], command: str, folder: Path, path: str | None) -> Check:
        """The check that one program with its arguments is."""
        program = _find(words[0], folder, path)
        argv = (program, *words[1:])
        if (linter := recognise(argv)) is not None:
            return cls(argv, "lint", command, linter=linter)
        if _PYTHON.fullmatch(Path(words[0]).name):
            return _python_check(argv, command, folder)
        if Path(words[0]).name in ("pytest", "py.test"):
            interpreter = _script_interpreter(Path(program))
            if interpreter is not None:
                return cls(argv, "pytest", command, interpreter, (), argv[1:])
        if os.sep in words[0] and (interpreter := _own_script(Path(program), folder)) is not None:
            arguments = (os.path.relpath(program, folder), *words[1:])
            return cls(argv, "python", command, interpreter, (), arguments)
        return cls(argv, "command", command)


def _python_check(argv: tuple[str, ...], command: str, folder: Path) -> Check:
    """`python -m pytest`, `python -m unittest` and `python file.py`; all else is a command."""
    at = 1
    while at < len(argv) and argv[at].startswith("-") and argv[at] not in ("-m", "-c", "-"):
        at += 2 if argv[at] in _FLAGS_WITH_VALUE else 1
    flags, rest = argv[1:at], argv[at:]
    if rest[:2] == ("-m", "pytest"):
        return Check(argv, "pytest", command, argv[0], flags, rest[2:])
    if rest[:2] in (("-m", "unittest"), ("-m", "doctest")):
        return Check(argv, "python", command, argv[0], flags, rest)
    if rest and not rest[0].startswith("-"):
        if not (folder / rest[0]).is_file():
            raise UsageError(f"the check's script {rest[0]} does not exist: correct its path")
        return Check(argv, "python", command, argv[0], flags, rest)
    return Check(argv, "command", command)


def _find(program: str, folder: Path, search: str | None = None) -> str:
    """The program's absolute path; symbolic links stay, since they make an environment."""
    if os.sep in program:
        path = Path(os.path.abspath(folder / Path(program).expanduser()))
        if path.is_file() and os.access(path, os.X_OK):
            return str(path)
        problem = "is not executable" if path.exists() else "does not exist"
        raise UsageError(f"the check's program {program} {problem}: correct the path")
    found = shutil.which(program, path=search)
    if found is None:
        raise UsageError(
            f"the check's program `{program}` was not found: install it, activate its "
            "environment, or give its full path"
        )
    return os.path.abspath(found)


def _own_script(script: Path, folder: Path) -> str | None:
    """The Python that runs a script of the project itself; None for other programs."""
    if not script.is_relative_to(folder) or any(
        (parent / "pyvenv.cfg").exists() for parent in script.parents if parent != folder
    ):
        return None
    found = _from_first_line(script)
    return found if found and os.access(found, os.X_OK) else None


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
