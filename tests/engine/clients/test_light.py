"""Importing a client costs little: no torch, and no HTTP library before the first request."""

from __future__ import annotations

import pkgutil
import subprocess
import sys

import clover_engine.clients

MODULES = [
    m.name for m in pkgutil.iter_modules(clover_engine.clients.__path__, "clover_engine.clients.")
]
HEAVY = ("torch", "numpy", "tokenizers", "transformers", "httpx2", "anyio")
MAKE = """
import sys
from clover_engine.clients.sglang import SGLangEngine
engine = SGLangEngine("http://127.0.0.1:9")
engine.close()
"""


def imported(code: str) -> list[str]:
    code += f"\nimport sys; print(*(m for m in {HEAVY!r} if m in sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return run.stdout.split()


def test_importing_all_clients() -> None:
    assert "clover_engine.clients.sglang" in MODULES
    assert imported("import " + ", ".join([*MODULES, "clover_engine.testing.server"])) == []


def test_making_an_engine() -> None:
    assert imported(MAKE) == []


def test_the_first_request_does_import_it() -> None:
    """Else the tests above would hold for a client without a library, too."""
    assert "httpx2" in imported(MAKE.replace("engine.close", "engine.health"))
