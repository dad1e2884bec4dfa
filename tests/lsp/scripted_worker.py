"""The real worker protocol around a fake model that a test steers while it runs.

``scripted_worker.py CONTROL LOG``: CONTROL is a JSON file, read anew for every request::

    {"targets": ["whole document", …],  a prefix of one is continued with what follows there
     "default": "text for other places", "confidence": 0.9999, "step_s": 0.0, "fail": "",
     "large": {…}}  what differs where the checkpoint is a GGUF file

LOG gets a line for every request that begins or ends, every step and every cancellation, in the
order in which the worker saw them.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

from clover_engine.api import CancelToken, InfillRequest, InfillResult
from clover_engine.errors import EngineUnavailable
from clover_engine.testing.fakes import FakeEngine
from clover_engine.worker.serve import Worker, _take_over_streams

IS_LARGE = os.environ.get("CLOVER_CHECKPOINT", "").endswith(".gguf")


class Log:
    def __init__(self, path: Path) -> None:
        self._file = path.open("a", buffering=1)
        self._lock = threading.Lock()

    def __call__(self, event: str, **facts: Any) -> None:
        with self._lock:
            self._file.write(json.dumps({"event": event, "at": time.monotonic(), **facts}) + "\n")


class Watched(CancelToken):
    """Logs when the model looks (once a step) and what it sees."""

    def __init__(self, token: CancelToken, log: Log) -> None:
        super().__init__()
        self._token, self._log = token, log

    @property
    def cancelled(self) -> bool:
        seen = self._token.cancelled
        self._log("step", cancelled=seen)
        return seen


class Scripted:
    """A model of `clover_engine.worker`."""

    def __init__(self, control: Path, log: Log) -> None:
        self._control, self._log = control, log
        self._fake = FakeEngine(in_worker=True)

    def infill(self, request: InfillRequest, cancel: CancelToken | None = None) -> InfillResult:
        script = json.loads(self._control.read_text())
        script |= script.get("large", {}) if IS_LARGE else {}
        facts: dict[str, Any] = {"is_large": IS_LARGE}
        facts |= {"prefix": request.prefix, "suffix": request.suffix, "mode": request.mode}
        facts["must_start_with"] = request.must_start_with
        facts |= {"snippets": [s.text for s in request.snippets], "drafts": list(request.drafts)}
        self._log("begin", **facts, n=request.n, max_tokens=request.max_tokens)
        try:
            if script.get("fail"):
                raise EngineUnavailable(script["fail"])
            self._fake.step_s = script.get("step_s", 0.0)
            self._fake.confidence = script.get("confidence", 0.9999)
            self._fake.on_infill = lambda request: text_for(request, script)
            token = Watched(cancel, self._log) if cancel is not None else None
            return self._fake.infill(request, token)
        finally:
            self._log("end")

    def score(self, request: Any, cancel: CancelToken | None = None) -> Any:
        return self._fake.score(request, cancel)

    def cloze(self, request: Any, cancel: CancelToken | None = None) -> Any:
        return self._fake.cloze(request, cancel)

    def info(self) -> dict[str, Any]:
        return {"model": "scripted", "parameters": 0}


def text_for(request: InfillRequest, script: dict[str, Any]) -> str:
    for target in script.get("targets", ()):
        if target.startswith(request.prefix):
            rest: str = target[len(request.prefix) :]
            return rest.removesuffix(request.suffix) if request.suffix else rest
    default: str = script.get("default", "")
    return default


class LoggingWorker(Worker):
    def __init__(self, log: Log, *streams: Any) -> None:
        super().__init__(*streams)
        self._log = log

    def _cancel(self, number: int) -> None:
        self._log("cancel", running=self._running == number)
        super()._cancel(number)


def main() -> None:
    control, path = map(Path, sys.argv[1:])
    log = Log(path)
    worker = LoggingWorker(log, *_take_over_streams())
    worker.listen()
    model = Scripted(control, log)
    worker.send({"op": "ready", "protocol": 1, "pid": 0, **model.info()})
    worker.serve(model)


if __name__ == "__main__":
    main()
