"""One folder for all that can be made again, and CLOVER_CACHE_DIR moves all of it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from clover_engine import folders

ROOT = Path(__file__).parents[2]
CODE = """
from clover_engine.cpu import kernels
import numpy as np

@kernels.compiled
def double(x):
    return x + x

assert double(np.float32(2)) == 4
print(kernels.code_folder())
"""


@pytest.mark.parametrize("variable", ["CLOVER_CACHE_DIR", "XDG_CACHE_HOME"])
def test_compiled_code_is_kept_where_the_environment_says(tmp_path: Path, variable: str) -> None:
    if variable == "XDG_CACHE_HOME" and sys.platform in ("win32", "darwin"):
        pytest.skip("these platforms have other folders")
    home, chosen, module = tmp_path / "home", tmp_path / "chosen", tmp_path / "doubles.py"
    module.write_text(CODE)
    unwanted = ("CLOVER_CACHE_DIR", "XDG_CACHE_HOME", "NUMBA_CACHE_DIR")
    env = {k: v for k, v in os.environ.items() if k not in unwanted}
    env |= {"HOME": str(home), variable: str(chosen)}
    run = subprocess.run([sys.executable, str(module)], env=env, text=True, capture_output=True)
    assert run.returncode == 0, run.stderr
    assert Path(run.stdout.strip()).is_relative_to(chosen)
    assert list(chosen.rglob("*.nbi")) and not list(tmp_path.rglob("__pycache__/*.nbi"))
    assert not home.exists()


def test_the_folder_is_named_in_one_place() -> None:
    places = [ROOT / room for room in ("cli", "engine", "lsp", "patcher")]
    names = re.compile(r"XDG_CACHE_HOME|environ\W+(get\W+)?CLOVER_CACHE_DIR")
    users = [p for place in places for p in place.rglob("*.py") if names.search(p.read_text())]
    assert users == [Path(folders.__file__)]


def test_a_relative_folder_is_the_callers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CLOVER_CACHE_DIR", "here")
    assert folders.cache_folder() == tmp_path / "here"
