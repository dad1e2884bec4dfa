"""With a model that writes the right answer, the agent solves every requirement of the bench."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from bench.edit.agent import PERFECT, failure, project, tried
from bench.edit.requirements import WISHES

from clover_engine.testing.fakes import FakeTalker
from clover_patcher.agent.task import Limits


@pytest.mark.parametrize("number", range(1, len(WISHES) + 1))
def test_the_loop_is_not_the_limit(number: int, make_repo: object) -> None:
    wish = WISHES[number - 1]
    engine = FakeTalker(answers=[wish.answer + "DONE"])
    row = tried(engine, PERFECT, number, wish, Limits(), None)
    assert row.solved, row.why
    assert (row.status, row.steps, row.errors) == ("done", 1, 0)


def test_no_check_passes_without_the_change(tmp_path: Path, make_repo: object) -> None:
    root = project(tmp_path)
    assert all(failure(root, wish) for wish in WISHES)
    said = subprocess.run(["git", "status", "--porcelain"], cwd=root, capture_output=True)
    assert said.stdout == b""
