"""docs/model.md names functions that exist, and figures that docs/benchmarks.md has."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
ENGINE = ROOT / "engine" / "clover_engine"
PAGE = (ROOT / "docs" / "model.md").read_text("utf-8")


def definitions(path: Path) -> set[str]:
    """Names of a file's functions and classes, `Class.method` too."""
    found = set()
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            inside = (n for n in node.body if isinstance(n, ast.FunctionDef))
            found |= {f"{node.name}.{n.name}" for n in inside}
    return found


def test_every_function_that_the_page_names_exists() -> None:
    named = re.findall(r"`([\w/]+\.py):([\w.]+)`", PAGE)
    assert len(named) > 15
    for file, name in named:
        place = ENGINE / file if "/" in file else ENGINE / "model" / file
        assert name in definitions(place), f"{file} has no {name}"


def test_every_file_and_module_that_the_page_names_exists() -> None:
    for file in re.findall(r"`((?:\w+/)+\w+\.py)", PAGE):
        assert any((base / file).is_file() for base in (ROOT, ENGINE)), file
    for module in re.findall(r"`python -m ([\w.]+)`", PAGE):
        assert (ROOT / f"{module.replace('.', '/')}.py").is_file(), module
    parts = definitions(ENGINE / "cpu" / "fused_parts.py")
    assert {"convolve", "clean_heads", "block_heads"} <= parts


def test_every_public_function_of_the_block_is_on_the_page() -> None:
    tree = ast.parse((ENGINE / "model" / "block.py").read_text("utf-8"))
    names = {n.name for n in tree.body if isinstance(n, ast.FunctionDef)} - {"wide"}
    assert names <= set(re.findall(r"`block\.py:(\w+)", PAGE))


def test_the_ablations_are_those_that_were_measured() -> None:
    """The second column of both tables in docs/benchmarks.md."""
    text = (ROOT / "docs" / "benchmarks.md").read_text("utf-8")
    begin = text.index("## Ablations")
    section = text[begin : text.index("\n## ", begin + 1)]
    own = PAGE[PAGE.index("## What the ablations say") :]
    measured = re.findall(r"^\| [a-z ]+ \| (\d\.\d{3}) ", section, re.MULTILINE)
    shown = re.findall(r"^\| [^|]+ \| (\d\.\d{3}) \| (\d\.\d{3}) \|", own, re.MULTILINE)
    assert [a for a, _ in shown] + [b for _, b in shown] == measured
