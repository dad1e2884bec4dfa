"""Makes the user's interpreter import the repository's modules from the worktree.

Loaded by path beside `server.py`; standard library only, syntax of Python 3.8. Editable
installs point into the original repository in several ways (`.pth` lines, finder objects):
entries of `sys.path` are translated, and a finder in front of all others translates what other
finders find there.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys
import sysconfig
from collections.abc import Sequence
from types import ModuleType
from typing import Any


def inside(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip(os.sep) + os.sep)


_LIBRARY = {os.path.realpath(sysconfig.get_paths()[k]) for k in ("stdlib", "platstdlib")}


def installed(path: str) -> bool:
    """Is the path part of an environment rather than of a repository?"""
    parts = path.split(os.sep)
    if "site-packages" in parts or "dist-packages" in parts:
        return True
    return any(inside(path, root) for root in _LIBRARY)


class Mapper:
    """Knows the worktree, the repository that it was made from, and where the check starts.

    All are real paths.
    """

    def __init__(self, worktree: str, original: str | None, cwd: str) -> None:
        self.worktree = worktree
        self.cwd = cwd
        self.original = original if original != worktree else None
        self._relative: dict[str, str | None] = {}

    def in_worktree(self, path: str) -> bool:
        return inside(path, self.worktree) and not installed(path)

    def in_original(self, path: str) -> bool:
        return (
            self.original is not None
            and inside(path, self.original)
            and not inside(path, self.worktree)
            and not installed(path)
        )

    def translate(self, path: str) -> str:
        """The worktree's counterpart of a path in the original, where there is one."""
        if self.original is None:
            return path
        real = os.path.realpath(path)
        if not self.in_original(real):
            return path
        twin = os.path.join(self.worktree, os.path.relpath(real, self.original))
        return os.path.normpath(twin) if os.path.exists(twin) else path

    def back(self, path: str) -> str | None:
        """The original's counterpart of a path in the worktree."""
        if self.original is None or not self.in_worktree(path):
            return None
        return os.path.join(self.original, os.path.relpath(path, self.worktree))

    def relative(self, filename: str) -> str | None:
        """Posix path below the worktree; None for every other file."""
        try:
            return self._relative[filename]
        except KeyError:
            found = self._relative[filename] = self._find_relative(filename)
            return found

    def _find_relative(self, filename: str) -> str | None:
        if not filename or filename[0] == "<":
            return None
        path = os.path.realpath(os.path.join(self.cwd, filename))  # patches go to the real file
        if not self.in_worktree(path):
            return None
        return os.path.relpath(path, self.worktree).replace(os.sep, "/")


class TranslatingFinder:
    """Asks the other finders and sends what they find in the original to the worktree."""

    def __init__(self, mapper: Mapper) -> None:
        self.mapper = mapper
        self.busy = False

    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> Any:
        if self.busy or path is not None:
            return None
        self.busy = True
        try:
            for finder in list(sys.meta_path):
                find = getattr(finder, "find_spec", None)
                spec = find(name, path, target) if find and finder is not self else None
                if spec is not None:
                    return self._translate(spec)
        finally:
            self.busy = False
        return None

    def _translate(self, spec: Any) -> Any:
        """None lets the other finders answer as if we had not been here."""
        locations = [str(p) for p in spec.submodule_search_locations or ()]
        twins = [self.mapper.translate(p) for p in locations]
        origin = spec.origin
        if not isinstance(origin, str) or not os.path.isabs(origin):
            if twins == locations:
                return None
            _set_python_path(self.mapper, [os.path.dirname(p) for p in twins])
            spec.submodule_search_locations = twins
            return spec
        twin = self.mapper.translate(origin)
        if twin == origin:
            return None
        if len(locations) == 1 and twins == locations:  # a folder of links to the package's files
            twins = [os.path.dirname(twin)]
        _set_python_path(self.mapper, [os.path.dirname(p) for p in twins or [twin]])
        return importlib.util.spec_from_file_location(
            spec.name, twin, submodule_search_locations=twins if locations else None
        )


class GeneratedFinder:
    """Comes last: modules that exist only in the original (built extensions, version files)."""

    def __init__(self, mapper: Mapper) -> None:
        self.mapper = mapper

    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> Any:
        places = [self.mapper.back(p) for p in path or () if isinstance(p, str)]
        existing = [p for p in places if p is not None and os.path.isdir(p)]
        if not existing:
            return None
        return importlib.machinery.PathFinder.find_spec(name, existing, target)


def install(mapper: Mapper, first: list[str]) -> None:
    """Puts `first` and the worktree's own folders before everything else on `sys.path`."""
    translated = [mapper.translate(p) for p in sys.path]
    moved = [new for i, new in enumerate(translated) if new != sys.path[i]]
    rest = [p for p in translated if p not in moved]
    sys.path[:] = list(dict.fromkeys(first + moved + rest))
    if mapper.original is None:
        return
    sys.meta_path.insert(0, TranslatingFinder(mapper))
    sys.meta_path.append(GeneratedFinder(mapper))
    _set_python_path(mapper, moved)


def export(mapper: Mapper) -> None:
    """For other programs: the worktree's folders come before any editable install."""
    if mapper.original is not None:
        tops = dict.fromkeys([mapper.cwd, mapper.worktree])
        folders = [folder for top in tops for folder in (os.path.join(top, "src"), top)]
        _set_python_path(mapper, [f for f in folders if os.path.isdir(f)])


def _set_python_path(mapper: Mapper, first: list[str]) -> None:
    inherited = [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]
    everywhere = list(dict.fromkeys(first + [mapper.translate(p) for p in inherited]))
    if everywhere:
        os.environ["PYTHONPATH"] = os.pathsep.join(everywhere)


def loaded_files(mapper: Mapper) -> tuple[list[str], list[str]]:
    """Files of loaded modules: (relative in the worktree, names of modules of the original)."""
    here: list[str] = []
    outside: list[str] = []
    for name, module in list(sys.modules.items()):
        filename = getattr(module, "__file__", None)
        if not isinstance(filename, str):
            continue
        relative = mapper.relative(filename)
        if relative is not None:
            here.append(relative)
        elif mapper.in_original(os.path.realpath(filename)):
            twin = mapper.translate(filename)
            if twin != filename:  # generated files have no twin and are meant to be shared
                outside.append(name)
    return here, outside


def installed_twins(mapper: Mapper, known: Any) -> list[tuple[str, str]]:
    """(name, folder of the installation) of top packages that are in the worktree as well.

    Such a package was imported from where it is installed; `known` are modules that do not count.
    """
    found = []
    for name, module in list(sys.modules.items()):
        filename = getattr(module, "__file__", None)
        if name in known or "." in name or not isinstance(filename, str):
            continue
        real = os.path.realpath(filename)
        if not installed(real) or mapper.in_original(real):
            continue
        for folder in (mapper.cwd, mapper.worktree):
            tops = [os.path.join(folder, inner, name) for inner in ("", "src", "lib")]
            if any(os.path.isfile(os.path.join(top, "__init__.py")) for top in tops):
                package = os.path.dirname(real)
                inside = os.path.basename(filename).startswith("__init__.")
                found.append((name, os.path.dirname(package) if inside else package))
                break
    return found


def preloadable(mapper: Mapper, known: Any) -> list[str]:
    """Names of installed modules that are loaded now and were not in `known`, in order."""
    names = []
    for name, module in list(sys.modules.items()):
        spec = getattr(module, "__spec__", None)
        if name in known or spec is None or spec.name != name or name == "__main__":
            continue
        origin = getattr(spec, "origin", None)
        if not isinstance(origin, str):
            continue
        if origin in ("built-in", "frozen") or installed(os.path.realpath(origin)):
            names.append(name)
    return names
