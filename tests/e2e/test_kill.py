"""A dozen random kills; `kill_moments.py` makes as many as you like."""

from __future__ import annotations

import random
from pathlib import Path

from .kill_moments import Project, moments


def test_a_kill_at_any_moment_leaves_everything_whole(tmp_path: Path) -> None:
    project = Project(tmp_path / "kills")
    seed = random.randrange(10**6)
    found = [project.kill_at(moment) for moment in moments(12, project.whole_run_s, seed)]
    assert not [item for item in found if item.wrong], f"seed {seed}"
    assert len({item.stage for item in found}) >= 2, "the moments say nothing"
