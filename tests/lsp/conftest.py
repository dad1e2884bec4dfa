"""Servers for tests: one shared by all tests of a transport, and fresh ones for special cases."""

from __future__ import annotations

import importlib.util
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


def _load(name: str) -> ModuleType:
    """A helper beside this file (pytest's importlib mode has no package to import it from)."""
    known = sys.modules.get(f"lsp_{name}")
    if known is not None:
        return known
    spec = importlib.util.spec_from_file_location(
        f"lsp_{name}", Path(__file__).parent / f"{name}.py"
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[f"lsp_{name}"] = module
    spec.loader.exec_module(module)
    return module


client = _load("client")
_load("fuzz")


class Servers:
    """Starts servers with the scripted model and ends them after the test."""

    def __init__(self, folder: Path, loop: Any) -> None:
        self._folder, self._loop = folder, loop
        self._numbers = itertools.count()
        self._open: list[Any] = []

    def __call__(
        self,
        transport: str = "stdio",
        *,
        worker: str | None = None,
        checkpoint: str = "",
        say_hello: bool = True,
        **how: Any,
    ) -> Any:
        """An editor with a fresh server; `editor.script` steers its model. `worker` replaces it;
        with a `checkpoint` of another kind than the shipped one there are two models."""
        folder = self._folder / str(next(self._numbers))
        folder.mkdir()
        script = client.Script(folder)
        editor = client.Editor(self._loop.loop)
        editor.script, editor.folder = script, folder
        env = client.environment(folder, script.command if worker is None else worker)
        if checkpoint:
            env["CLOVER_CHECKPOINT"] = checkpoint
        self._open.append(editor)
        if say_hello:
            editor.start(transport, env, **how)
        else:
            editor.connect(transport, env, how.get("arguments", ()))
        return editor

    def close(self) -> None:
        for editor in self._open:
            editor.kill()


@pytest.fixture(scope="session")
def client_loop() -> Iterator[Any]:
    loop = client.Loop()
    yield loop
    loop.close()


@pytest.fixture
def servers(tmp_path: Path, client_loop: Any) -> Iterator[Servers]:
    made = Servers(tmp_path, client_loop)
    yield made
    made.close()


@pytest.fixture(scope="session", params=["stdio", "tcp"])
def shared(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, client_loop: Any
) -> Iterator[Any]:
    made = Servers(tmp_path_factory.mktemp(request.param), client_loop)
    # No waiting and no prefetching unless a test asks: what a test sees is what it caused.
    settings = {"completion": {"debounceMs": 0, "prefetch": False}}
    editor = made(request.param, settings=settings)
    editor.default_settings = settings
    yield editor
    assert editor.stop() == 0, editor.stderr
    assert "Traceback" not in editor.log.read_text(), editor.log.read_text()
    made.close()


@pytest.fixture
def editor(shared: Any) -> Any:
    """The shared server with a quiet model and an empty log; documents get new names."""
    shared.script.set()
    shared.script.clear()
    shared.name = lambda suffix="py", numbers=_numbers: f"untitled:{next(numbers)}.{suffix}"
    yield shared
    for uri in list(shared.texts):
        shared.close(uri)
        del shared.texts[uri]


_numbers = itertools.count(1)
