"""A `triton` whose kernels can be defined, while launching one needs a stand-in.

On a CPU SGLang only defines nearly all of its kernels. The few that it launches all the same have
a function of the same name in `kernels`, in plain torch. Every other name of triton resolves, to
something that serves as a module, a decorator, a type or a constant.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

VERSION = "3.9.0"
"""What importers compare with; the version that SGLang 0.5.23 asks for."""


class Kernel:
    """What `triton.jit` makes of a function: `kernel[grid](...)` launches its stand-in."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.fn = function
        self.__name__ = function.__name__

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        stand_in = getattr(importlib.import_module("kernels"), self.__name__, None)
        if stand_in is None:
            raise NotImplementedError(
                f"triton kernel {self.__name__} has no stand-in; write one in shim/kernels.py"
            )
        return stand_in  # type: ignore[no-any-return]


def jit(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """`@triton.jit` and `@triton.jit(...)`."""
    return Kernel if function is None else Kernel(function)


def cdiv(x: int, y: int) -> int:
    return -(-x // y)


def next_power_of_2(n: int) -> int:
    return 1 << (n - 1).bit_length()


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
        """A decorator that changes nothing, with arguments or without."""
        bare = len(args) == 1 and isinstance(args[0], Kernel | type) and not named
        return args[0] if bare else lambda decorated: decorated

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
            own = {"jit": jit, "cdiv": cdiv, "next_power_of_2": next_power_of_2}
            vars(module).update(own, __version__=VERSION)
        return module

    def exec_module(self, module: ModuleType) -> None:
        """There is nothing to run."""
