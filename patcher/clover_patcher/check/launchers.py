"""Programs that only start another one in the project's environment: `uv run pytest` and the like.

Where that environment is known (a `.venv` in the project, or a variable that names it), the check
is the program itself in it. That needs neither the launcher nor what it does first: it would look
the project up on the network, and install it again from the copy's path.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from clover_patcher.check.shell import activated

_LAUNCHERS = frozenset({"uv", "poetry", "pdm", "pipenv", "rye", "hatch"})
_FLAGS = frozenset(
    {"--frozen", "--locked", "--no-sync", "--offline", "-q", "--quiet", "-v", "--verbose", "--dev"}
    | {"--all-extras", "--all-groups", "--no-dev", "--exact", "-n", "--no-interaction"}
)
_NAMES = (".venv", "venv", "env")
_VARIABLES = {"uv": "UV_PROJECT_ENVIRONMENT"}


def unwrapped(
    words: Sequence[str], folder: Path, root: Path | None, env: Mapping[str, str]
) -> tuple[tuple[str, ...], dict[str, str]] | None:
    """The program that a launcher starts, and the variables for it; None where that is unknown.

    Environments are looked for in `folder` and its parents, up to `root`.
    """
    name = Path(words[0]).name
    if name not in _LAUNCHERS or list(words[1:2]) != ["run"]:
        return None
    at = 2
    while at < len(words) and words[at] in _FLAGS:
        at += 1
    rest = list(words[at:])
    if rest[:1] == ["--"]:
        del rest[0]
    if rest[:1] == ["-m"]:
        rest.insert(0, "python")
    if not rest or rest[0].startswith("-"):
        return None
    environment = find_environment(folder, root, env.get(_VARIABLES.get(name, ""), ""))
    if environment is None:
        return None
    program = environment / "bin" / rest[0]
    if program.is_file() and os.access(program, os.X_OK):
        rest[0] = str(program)
    elif os.sep not in rest[0] and not rest[0].endswith(".py"):
        return None
    elif rest[0].endswith(".py"):
        rest.insert(0, str(environment / "bin" / "python"))
    return tuple(rest), activated(environment, env)


def find_environment(folder: Path, root: Path | None, named: str = "") -> Path | None:
    """The project's own virtual environment around `folder`."""
    names = (named, *_NAMES) if named else _NAMES
    for place in (folder, *folder.parents):
        for name in names:
            if (place / name / "pyvenv.cfg").is_file() and (place / name / "bin").is_dir():
                return place / name
        if root is None or place == root:
            break
    return None
