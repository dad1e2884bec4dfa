"""Every one of the forty hard cases has a test that names it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from .cases import CASES


def marked() -> Iterator[int]:
    """The number of every `@case`, read from the files: no selection of tests hides any."""
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        for node in ast.parse(path.read_text("utf-8")).body:
            if not isinstance(node, ast.FunctionDef) or not node.name.startswith("test_"):
                continue
            for mark in node.decorator_list:
                if isinstance(mark, ast.Call) and getattr(mark.func, "id", "") == "case":
                    yield ast.literal_eval(mark.args[0])


def test_all_forty_cases_are_covered() -> None:
    assert sorted(CASES) == list(range(1, 41))
    assert set(marked()) == set(CASES)
