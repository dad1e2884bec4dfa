"""A run as JSON lines: what was asked, every answer, what its calls gave, how it ended.

`clover_engine.testing.replay` gives the answers again: a recorded run is a test.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from clover_patcher.agent.task import Limits, Outcome, Requirement, Result
from clover_patcher.deliver.journal import Entry
from clover_patcher.errors import UsageError

KEPT = 20
"""So many are kept where no file is named."""


class Trajectory:
    """An open file; every line is on its way to the disk when a method returns."""

    def __init__(self, path: Path | None, folder: Path, root: Path) -> None:
        """Writes to `path`, else to a new file in `folder`. Raises `UsageError`."""
        self.path = path or folder / f"{Entry.make(root, '').id}.jsonl"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self.path.open("w", encoding="utf-8")
        except OSError as exc:
            raise UsageError(f"cannot write {self.path}: {exc.strerror}") from exc
        if path is None:
            for old in sorted(folder.glob("*.jsonl"))[:-KEPT]:
                with suppress(OSError):
                    old.unlink()

    def start(
        self, requirement: Requirement, limits: Limits, prompt: list[tuple[Any, str]]
    ) -> None:
        self._write(
            "start",
            requirement=requirement.words,
            check=requirement.check,
            limits=asdict(limits),
            prompt=prompt,
        )

    def answer(self, step: int, text: str, tokens: int, seconds: float) -> None:
        self._write("answer", step=step, text=text, tokens=tokens, seconds=round(seconds, 3))

    def observed(self, step: int, results: list[Result], said: str) -> None:
        calls = [{**asdict(r.call), "ok": r.ok, "said": r.text} for r in results]
        self._write("observation", step=step, calls=calls, text=said)

    def end(self, outcome: Outcome) -> None:
        self._write(
            "end",
            status=outcome.status,
            steps=outcome.steps,
            errors=outcome.errors,
            tokens=outcome.tokens,
            seconds=outcome.seconds,
            model=outcome.model,
            runs=[asdict(run) for run in outcome.runs],
            patch=outcome.patch.decode("utf-8", "replace"),
        )

    def close(self) -> None:
        self._file.close()

    def _write(self, event: str, **more: Any) -> None:
        self._file.write(json.dumps({"event": event, **more}) + "\n")
        self._file.flush()
