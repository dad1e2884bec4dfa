"""A finished run to print, in every format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from clover_patcher.edits import FileChange
from clover_patcher.fix import FixResult
from clover_patcher.request import Explanation
from clover_patcher.types import EngineUse, Location, Origin

BEFORE = "# Größe\ndef f(x):\n    return x < 'ä'\n"
AFTER = BEFORE.replace("<", "<=")
SUSPECTS = (Location("pkg/größe 1.py", 3, 1.0, ("Ochiai 1.00",)), Location("b.py", 9, 0.5))
WHY = Explanation(
    failure="Failing before: t.py::test (AssertionError) of 3 tests",
    place="pkg/größe 1.py:3 was suspected because Ochiai 1.00",
    change="The change (operator) gives `return x <= 'ä'`",
    validation="The whole check passes with it",
    proposer="a template, ranked by the model clover-nano",
    tests=("t.py::test",),
    kind="operator",
    prior=0.12,
    logprob=-1.25,
    place_rank=1,
    suspects=SUSPECTS,
    num_suspects=2,
)


def fixed(before: bytes = BEFORE.encode(), after: bytes = AFTER.encode(), **more: Any) -> FixResult:
    """A run that found a patch and applied it."""
    said: dict[str, Any] = {
        "status": "fixed",
        "exit_code": 0,
        "seconds": 1.5,
        "candidates_tried": 12,
        "changes": (FileChange("pkg/größe 1.py", before, after),),
        "path": "pkg/größe 1.py",
        "line": 3,
        "applied": True,
        "rank": 11,
        "passing": 1,
        "engine": EngineUse(calls=3, detail="clover-nano"),
        "origin": Origin("template", "", "clover-nano"),
        "explanation": WHY,
        "fix_id": "20260101-000000-00000",
        "root": Path("/repo with space"),
    }
    return FixResult(**said | more)


def unfixed(**more: Any) -> FixResult:
    """A run that found none."""
    said: dict[str, Any] = {"status": "none_found", "exit_code": 1, "seconds": 2.0}
    return FixResult(**said | {"error": "no candidate makes the check pass"} | more)
