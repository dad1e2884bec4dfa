"""The command, the server, the patcher and the engine's client start without torch."""

from __future__ import annotations

import pkgutil
import subprocess
import sys

import pytest

import clover_code
import clover_engine.choice
import clover_engine.clients
import clover_engine.privacy
import clover_lsp
import clover_patcher

HEAVY = ("torch", "numpy", "safetensors", "tokenizers", "transformers")
LIGHT_ENGINE = (
    "api", "capacity.plan", "capacity.sizes", "checkpoint.known", "errors", "gate", "generation",
    "loading", "model.config", "serving.launch", "serving.supervisor", "testing.fakes",
    "testing.server", "validation", "worker.local", "worker.process", "worker.serve",
)  # fmt: skip

IMPORTS = """
import asyncio, importlib, os, sys, typing, pygls.lsp.server, lsprotocol.types
heavy = sys.argv[1].split(",")
for name in sys.argv[2:]:
    child = os.fork()  # a fresh interpreter's state for each module, without its start
    if not child:
        try:
            importlib.import_module(name)
            print(name, *[m for m in heavy if m in sys.modules], flush=True)
        except BaseException as exc:
            print(name, repr(exc), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""


def light_modules() -> list[str]:
    names = [f"clover_engine.{name}" for name in LIGHT_ENGINE]
    light = (clover_engine.choice, clover_engine.clients, clover_engine.privacy)
    for package in (clover_code, clover_lsp, clover_patcher, *light):
        found = pkgutil.walk_packages(package.__path__, package.__name__ + ".")
        names += [m.name for m in found if not m.name.endswith("__main__")]
    return names


def test_modules_do_not_import_torch() -> None:
    names = light_modules()
    run = subprocess.run(
        [sys.executable, "-c", IMPORTS, ",".join(HEAVY), *names], capture_output=True, text=True
    )
    assert run.stdout.splitlines() == names, run.stderr


BLOCKED = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {heavy!r}:
            raise ModuleNotFoundError("blocked", name=name)
sys.meta_path.insert(0, Block())
from clover_code.main import main
sys.exit(main({arguments!r}))
"""


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], ["fix", "--help"], ["infill", "--help"]]
)
def test_help_works_without_torch(arguments: list[str]) -> None:
    code = BLOCKED.format(heavy=HEAVY, arguments=arguments)
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert "clover-code" in run.stdout
