"""A thorough search goes on after the first patch that passes."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from clover_patcher.fix import FixRequest, FixResult, fix

PROGRAM = "def last(items, count):\n    return items[len(items) - count - 1 :]\n"
TEST = (
    "from prog import last\n\n\ndef test_one():\n    assert last([1, 2, 3], 1) == [3]\n"
    "\n\ndef test_two():\n    assert last([1, 2, 3], 2) == [2, 3]\n"
)


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, temporary_root: Path) -> Iterator[None]:
    monkeypatch.setenv("PATH", os.path.dirname(sys.executable), prepend=os.pathsep)
    yield


def run(root: Path, **more: bool) -> FixResult:
    check = f"{sys.executable} -m pytest -q test_prog.py"
    return fix(FixRequest(root, check, jobs=1, budget_s=12.0, dry_run=True, **more))  # type: ignore[arg-type]


def test_more_candidates_are_tried_and_more_patches_found(make_repo) -> None:
    files = {"prog.py": PROGRAM, "test_prog.py": TEST, "pytest.ini": "[pytest]\npythonpath = .\n"}
    root = make_repo(files)
    quick, thorough = run(root), run(root, thorough=True)
    assert quick.status == thorough.status == "fixed"
    assert thorough.candidates_tried > quick.candidates_tried
    assert thorough.passing >= max(2, quick.passing) and thorough.alternatives
    assert thorough.explanation is not None and quick.explanation is not None
    assert "went on after the first patch" in thorough.explanation.validation
    assert "went on" not in quick.explanation.validation
