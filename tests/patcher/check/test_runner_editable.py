"""Real `pip install -e` of the user's tree: the checks import the package from the copy."""

from __future__ import annotations

import subprocess
import textwrap
import venv
from pathlib import Path

import pytest

from clover_patcher.check.command import Check
from clover_patcher.check.runner import ProgramRunner
from clover_patcher.types import Edit

setuptools = pytest.importorskip("setuptools")

PROJECT = """\
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"

[project]
name = "shop"
version = "1"

[tool.setuptools.packages.find]
where = ["{where}"]
include = ["shop*"]
"""
FILES = {
    "shop/__init__.py": "from .prices import total\n",
    "shop/prices.py": "def total(a, b):\n    return a - b\n",
    "shop/deep/__init__.py": "from shop.prices import total as again\n",
    "tests/test_shop.py": """\
        import subprocess, sys
        import shop, shop.deep, shop.prices

        def test_total():
            assert shop.total(2, 3) == 5
            assert shop.deep.again(2, 3) == 5

        def test_place():
            assert shop.prices.__file__.startswith(TREE)
            assert shop.deep.__file__.startswith(TREE)

        def test_process():
            code = "import shop.deep; print(shop.deep.again(2, 3))"
            done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
            assert done.stdout == "5\\n", done.stderr
        """,
}


def write(root: Path, layout: str, tree: Path) -> None:
    """A project; its tests know where the package must come from."""
    files = {f"{layout}/{k}" if k.startswith("shop") else k: v for k, v in FILES.items()}
    files["pyproject.toml"] = PROJECT.format(where=layout)
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(textwrap.dedent(text).replace("TREE", repr(str(tree))))


def install(original: Path, environment: Path, mode: str) -> str:
    """Installs the project editably into an environment that borrows pytest and setuptools."""
    venv.create(environment, symlinks=True, with_pip=False)
    (packages,) = environment.glob("lib/python*/site-packages")
    (packages / "borrowed.pth").write_text(str(Path(pytest.__file__).parent.parent))
    python = str(environment / "bin" / "python")
    options = ["--no-build-isolation", "--no-deps", "--no-index", "-q", "--ignore-installed"]
    if mode:
        options += ["--config-settings", f"editable_mode={mode}"]
    command = [python, "-m", "pip", "install", *options, "-e", str(original)]
    subprocess.run(command, check=True, capture_output=True, cwd=environment)
    return python


@pytest.mark.parametrize(
    ("layout", "mode", "style"),
    [("src", "", "*.pth"), (".", "", "__editable___shop_1_finder.py"), ("src", "strict", "*.pth")],
)
def test_the_package_comes_from_the_copy(
    tmp_path: Path, layout: str, mode: str, style: str
) -> None:
    original, tree = tmp_path / "original", tmp_path / "tree"
    for root in (original, tree):
        write(root, layout, tree)
    python = install(original, tmp_path / "environment", mode)
    installed = list((tmp_path / "environment").glob(f"lib/python*/site-packages/{style}"))
    assert any("shop" in file.name for file in installed), "pip installs it in another way now"
    where = subprocess.run(
        [python, "-c", "import shop; print(shop.__file__)"], capture_output=True, text=True
    )
    assert where.stdout.startswith(str(original)), "the installation itself must work"

    check = Check.parse(f"{python} -m pytest -q --import-mode=importlib tests", tree)
    tmp = tmp_path / "tmp"
    tmp.mkdir()
    with ProgramRunner(check, tree, tmp=tmp, original_root=original) as runner:
        outcome = runner.baseline()
        assert {f.nodeid.split("::")[1] for f in outcome.failures} == {"test_total", "test_process"}
        assert runner.imported_outside == ()
        path = "src/shop/prices.py" if layout == "src" else "shop/prices.py"
        at = (tree / path).read_bytes().index(b"-")
        assert runner.run([Edit(path, at, at + 1, b"+")]).status == "passed"
        assert runner.run([Edit(path, at, at + 1, b"*")]).status == "failed"
