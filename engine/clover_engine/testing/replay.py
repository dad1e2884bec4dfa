"""An engine that gives the answers of a recorded run again: a trajectory is a test.

A trajectory is JSON lines, those with ``"event": "answer"`` have what the model wrote (`text`).
"""

from __future__ import annotations

import json
from pathlib import Path

from clover_engine.errors import CheckpointError
from clover_engine.testing.fakes import FakeTalker


def recorded_answers(path: Path) -> tuple[str, ...]:
    """The answers of a trajectory in their order. Raises `CheckpointError` for another file."""
    try:
        lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        answers = tuple(str(line["text"]) for line in lines if line["event"] == "answer")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{path} is no trajectory: {error}; record one first") from error
    if not answers:
        raise CheckpointError(f"{path} has no answers; record a run that has some")
    return answers


def replay(path: Path) -> FakeTalker:
    """The engine; the last answer repeats."""
    return FakeTalker(answers=recorded_answers(path))
