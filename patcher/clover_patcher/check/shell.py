"""Reads a check as people type it in a shell, without running one.

What every shell does alike is understood here: quotes, `NAME=value cmd`, `cd DIR && cmd`,
`source DIR/bin/activate && cmd`, `$NAME`, `~`, patterns of file names, redirections that only move
output, and a pipe into a pager. Anything beyond that needs a shell.
"""

from __future__ import annotations

import glob
import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from clover_patcher.errors import UsageError

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OPERATOR = re.compile(r"&>>|&>|>>|<<|>&|<&|&&|\|\||\|&|;;|[;&|<>()\n]")
_MOVED = re.compile(r"(?:2>&1|1>&2|>&2|[12]?>>?[ \t]*/dev/null|&>[ \t]*/dev/null)(?=[\s;&|]|$)")
"""Redirections that change nothing but where output is shown."""
_SHOWING = frozenset({"tail", "head", "cat", "less", "more"})
"""What people pipe a check into to read it: these never fail themselves."""
_READERS = frozenset(
    {"tee", "sort", "grep", "egrep", "sed", "awk", "cut", "tr", "nl", "uniq", "wc"}
)
"""Filters that read all of their input, so that the first command never writes to nobody."""
_ONLY_IN_A_SHELL = frozenset(
    {"!", ".", ":", "[[", "{", "alias", "bind", "case", "cd", "command", "declare", "eval", "exec"}
    | {"export", "for", "function", "if", "popd", "pushd", "set", "shopt", "source", "time", "trap"}
    | {"ulimit", "umask", "unset", "until", "while"}
)


@dataclass(frozen=True, slots=True)
class Line:
    """A command line. Without `shell`, `words` is a program with its arguments.

    `folder` is where it runs, absolute; `env` are the variables that are set for it. With `shell`,
    `words` are the plain words of the line, for those who look for file names, and `script` is
    what a shell is to run.
    """

    words: tuple[str, ...]
    folder: Path
    env: Mapping[str, str] = field(default_factory=dict)
    shell: bool = False
    script: str = ""


def read(command: str, folder: Path) -> Line:
    """Understands a command line as typed in `folder`.

    Raises `UsageError` where there is an open quote, nothing to run, or no folder to go to.
    """
    try:
        empty = not shlex.split(command)
    except ValueError as exc:
        raise UsageError(f"the check `{command}` has an open quote: close it") from exc
    if empty:
        raise UsageError("the check is empty: give a command, such as `pytest tests`")
    return _Reader(command, folder).line()


class _NeedsShell(Exception):
    """The line has something that only a shell understands."""


class _Reader:
    """One pass over a line: leading steps are taken in, the rest must be one plain command."""

    def __init__(self, command: str, folder: Path) -> None:
        self.command = command
        self.folder = folder
        self.env: dict[str, str] = {}
        self.at = 0

    def line(self) -> Line:
        try:
            while self._step():
                pass
            found = self._simple()
            assigned = self._assignments(found)
            if not self._at_end() and not self._only_shown():
                raise _NeedsShell
            if not found or found[0] in _ONLY_IN_A_SHELL:
                raise _NeedsShell
            return Line(tuple(found), self.folder, self.env | assigned)
        except _NeedsShell:
            lexer = shlex.shlex(self.command, posix=True, punctuation_chars=True)
            plain = tuple(word for word in lexer if not _OPERATOR.match(word))
            return Line(plain, self.folder, self.env, True, self.command[self._taken :].strip())

    _taken = 0
    """Up to here the line was taken in; a shell runs the rest."""

    def _step(self) -> bool:
        """Takes in `cd DIR &&`, `export A=b &&` or `source …/activate &&`; False at the rest."""
        before = self.at
        words = self._simple()
        operator = self._operator()
        if operator in ("&&", ";", "\n") and words and self._taken_in(words):
            self.at += len(operator)
            self._taken = self.at
            return True
        self.at = before
        return False

    def _taken_in(self, words: list[str]) -> bool:
        if words[0] == "cd" and len(words) == 2 and words[1] != "-":
            target = Path(os.path.normpath(self.folder / words[1]))
            if not target.is_dir():
                raise UsageError(f"the check goes to {words[1]}, which is no folder: correct it")
            self.folder = target
            return True
        if words[0] == "export" and len(words) > 1:
            rest = words[1:]
            assigned = self._assignments(rest)
            self.env.update({} if rest else assigned)
            return not rest
        script = Path(words[1]) if len(words) == 2 and words[0] in ("source", ".") else Path()
        if script.name.startswith("activate"):
            environment = Path(os.path.abspath(self.folder / script)).parent.parent
            if (environment / "bin").is_dir():
                self.env.update(activated(environment, self.env))
                return True
        return False

    def _assignments(self, words: list[str]) -> dict[str, str]:
        """Takes NAME=value words off the front, those behind `env` too."""
        found: dict[str, str] = {}
        while words:
            name, equals, value = words[0].partition("=")
            if equals and _NAME.fullmatch(name):
                found[name] = value
            elif words[0] != "env" or len(words) < 2 or words[1].startswith("-"):
                break
            del words[0]
        return found

    def _only_shown(self) -> bool:
        """Whether all that follows is a pipe into something that shows output."""
        while self._operator() in ("|", "|&"):
            self.at += len(self._operator() or "")
            words = self._simple()
            if not words or words[0] not in _SHOWING:
                return False
        return self._at_end()

    def _at_end(self) -> bool:
        return not self.command[self.at :].strip(" \t\n;")

    # --- words ------------------------------------------------------------------------------

    def _operator(self) -> str | None:
        match = _OPERATOR.match(self.command, self.at)
        return match[0] if match else None

    def _simple(self) -> list[str]:
        """Words up to the next operator, expanded as a shell does."""
        words: list[str] = []
        text = self.command
        while self.at < len(text):
            if text[self.at] in " \t":
                self.at += 1
            elif text[self.at] == "#":
                self.at = (text + "\n").index("\n", self.at)
            elif match := _MOVED.match(text, self.at):
                self.at = match.end()
            elif self._operator() is not None:
                break
            else:
                words += self._word()
        return words

    def _word(self) -> list[str]:
        """One word; none or several where a variable or a pattern gives that many."""
        text, raw, pattern, literal, quoted = self.command, "", "", True, False
        start = self.at
        while self.at < len(text):
            char = text[self.at]
            if char in " \t" or self._operator() is not None:
                break
            if char == "'":
                end = text.index("'", self.at + 1)
                piece, quoted = text[self.at + 1 : end], True
                self.at = end + 1
            elif char == '"':
                piece, quoted = self._double_quoted(), True
            elif char == "\\":
                piece = text[self.at + 1 : self.at + 2]
                self.at += 2
            elif char in "`{" and (char == "`" or self._braces()):
                raise _NeedsShell
            elif char == "$":
                value = self._variable()
                raw, pattern, literal = raw + value, pattern + value, False
                continue
            else:
                if char == "~" and self.at == start:
                    piece = self._home()
                else:
                    self.at += 1
                    raw, pattern = raw + char, pattern + char
                    continue
            raw, pattern = raw + piece, pattern + glob.escape(piece)
        if not literal and not quoted:
            return [name for one in raw.split() for name in self._matching(one, one)]
        return self._matching(raw, pattern)

    def _matching(self, raw: str, pattern: str) -> list[str]:
        if not glob.has_magic(pattern):
            return [raw]
        return sorted(glob.glob(pattern, root_dir=self.folder)) or [raw]

    def _braces(self) -> bool:
        return re.match(r"\{[^{}\s]*(,|\.\.)[^{}\s]*\}", self.command[self.at :]) is not None

    def _home(self) -> str:
        match = re.compile(r"~[A-Za-z0-9_.-]*(?=[/\s;&|]|$)").match(self.command, self.at)
        if match is None:
            self.at += 1
            return "~"
        self.at = match.end()
        return os.path.expanduser(match[0])

    def _double_quoted(self) -> str:
        piece = ""
        self.at += 1
        while (char := self.command[self.at]) != '"':
            if char == "`":
                raise _NeedsShell
            if char == "$":
                piece += self._variable()
                continue
            if char == "\\" and self.command[self.at + 1] in '"\\$`':
                self.at += 1
                char = self.command[self.at]
            piece += char
            self.at += 1
        self.at += 1
        return piece

    def _variable(self) -> str:
        match = re.compile(r"\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))").match(self.command, self.at)
        if match is None:
            if re.match(r"\$[({@*#?$!0-9-]", self.command[self.at :]):
                raise _NeedsShell
            self.at += 1
            return "$"
        self.at = match.end()
        name = match[1] or match[2]
        return self.env.get(name, os.environ.get(name, ""))


def activated(environment: Path, env: Mapping[str, str]) -> dict[str, str]:
    """The variables that activating a virtual environment sets."""
    path = env.get("PATH", os.environ.get("PATH", os.defpath))
    return {"VIRTUAL_ENV": str(environment), "PATH": f"{environment / 'bin'}{os.pathsep}{path}"}


def shell_command(script: str) -> tuple[str, ...]:
    """A shell that runs the script; a pipe into filters fails where its first command does."""
    bash = next((path for path in ("/bin/bash", "/usr/bin/bash") if os.access(path, os.X_OK)), None)
    if bash is None:
        return ("/bin/sh", "-c", script)
    piped = re.findall(r"(?<![|>])\|&?(?!\|)\s*([\w./-]+)", script)
    if piped and all(os.path.basename(name) in _READERS | _SHOWING - {"head"} for name in piped):
        return (bash, "-o", "pipefail", "-c", script)
    return (bash, "-c", script)
