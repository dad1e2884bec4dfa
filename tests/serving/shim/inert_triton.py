"""A `triton` whose kernels can be defined and not launched: on a CPU SGLang only defines them.

Every name resolves. Decorators (`triton.jit`, `triton.autotune(...)`) return the function as it
is, so that launching one, `kernel[grid](...)`, fails at once: functions have no items.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

VERSION = "3.9.0"
"""What importers compare with; the version that SGLang 0.5.23 asks for."""


def _same(function: Any) -> Any:
    return function


class Name(ModuleType):
    """A module, a decorator, a type or a constant, whichever the importer takes it for."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__: list[str] = []
        self.__spec__ = ModuleSpec(name, Finder(), is_package=True)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        value: Any
        if name[:1].isupper():  # a class, which importers derive from or make objects of
            value = type(name, (), {"__init__": lambda self, *args, **named: None})
        else:
            value = Name(f"{self.__name__}.{name}")
        setattr(self, name, value)
        return value

    def __call__(self, *args: Any, **named: Any) -> Any:
        bare = len(args) == 1 and callable(args[0]) and not named
        return args[0] if bare else _same

    def __getitem__(self, item: Any) -> Name:
        return self


class Finder(MetaPathFinder, Loader):
    """Answers every import below `triton`."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] != "triton":
            return None
        return ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        parent, _, last = spec.name.rpartition(".")
        known = vars(sys.modules[parent]).get(last) if parent in sys.modules else None
        module = known if isinstance(known, Name) else Name(spec.name)
        if spec.name == "triton":
            module.__version__ = VERSION  # type: ignore[attr-defined]
        return module

    def exec_module(self, module: ModuleType) -> None:
        """There is nothing to run."""
