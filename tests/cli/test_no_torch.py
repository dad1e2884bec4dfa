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
    "api", "errors", "gate", "model.config", "serving.launch", "serving.supervisor", "testing",
    "validation", "worker", "worker.local", "worker.process", "worker.serve", "capacity.plan",
    "capacity.sizes",
)  # fmt: skip


def light_modules() -> list[str]:
    names = [f"clover_engine.{name}" for name in LIGHT_ENGINE]
    light = (clover_engine.choice, clover_engine.clients, clover_engine.privacy)
    for package in (clover_code, clover_lsp, clover_patcher, *light):
        found = pkgutil.walk_packages(package.__path__, package.__name__ + ".")
        names += [m.name for m in found if not m.name.endswith("__main__")]
    return names


@pytest.mark.parametrize("module", light_modules())
def test_module_does_not_import_torch(module: str) -> None:
    code = f"import sys, {module}; print([m for m in {HEAVY!r} if m in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == "[]"


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
