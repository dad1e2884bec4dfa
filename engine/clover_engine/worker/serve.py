"""The worker process: one model, driven over its standard input and output.

``python -P -m clover_engine.worker --checkpoint DIR --threads N`` (`-P` keeps modules of the
current folder out). One JSON object a line, ASCII only. The client sends::

    {"id": 7, "op": "infill", "request": {…}}      also "score", "cloze",
                                                       "generate", "decide"
    {"id": 7, "op": "cancel"}

(a "generate" with "stream": true wants the answer's pieces as they come)

and the worker answers::

    {"op": "ready", "protocol": 1, "pid": …, "model": …, "parameters": …}    once
    {"op": "failed", "error": "CheckpointError", "message": …}               then it exits
    {"id": 7, "piece": {…}}                                                  of a stream
    {"id": 7, "result": {…}}
    {"id": 7, "error": "RequestError", "message": …}

The main thread computes, one request after the other; a reader thread queues requests (also
while the model still loads) and sets their cancel tokens. Time spent in the queue counts towards
a request's deadline. The process ends when its standard input closes, or its parent is gone.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import signal
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, Protocol

from clover_engine.api import (
    CancelToken,
    ClozeRequest,
    ClozeResult,
    InfillRequest,
    InfillResult,
    ScoreRequest,
    ScoreResult,
    from_json,
    to_json,
)
from clover_engine.errors import (
    CheckpointError,
    EngineError,
    EngineUnavailable,
    RequestCancelled,
    RequestError,
    Unsupported,
)
from clover_engine.generation import DecisionRequest, GenerateRequest, OnPiece, TextEngine
from clover_engine.validation import check_decision, check_generate, check_request
from clover_engine.worker.local import ENGINE_PACKAGES, install_command

PROTOCOL = 1
_PARENT_CHECK_S = 2.0
_LAST_WORDS_S = 2.0

Request = InfillRequest | ScoreRequest | ClozeRequest | GenerateRequest | DecisionRequest
_KINDS: dict[str, type[Request]] = {
    "infill": InfillRequest,
    "score": ScoreRequest,
    "cloze": ClozeRequest,
    "generate": GenerateRequest,
    "decide": DecisionRequest,
}


class Model(Protocol):
    """What the worker drives: `clover_engine.inprocess.embedded.EmbeddedEngine`, or a fake."""

    def infill(self, request: InfillRequest, cancel: CancelToken | None = None) -> InfillResult: ...

    def score(self, request: ScoreRequest, cancel: CancelToken | None = None) -> ScoreResult: ...

    def cloze(self, request: ClozeRequest, cancel: CancelToken | None = None) -> ClozeResult: ...

    def info(self) -> dict[str, Any]: ...


@dataclass
class _Job:
    id: int
    op: str
    request: Request
    received: float
    cancel: CancelToken
    stream: bool = False


class Worker:
    """The protocol's two ends and the queue between them."""

    def __init__(self, frames_in: IO[bytes], frames_out: IO[bytes]) -> None:
        self._in = frames_in
        self._out = frames_out
        self._out_lock = threading.Lock()
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._open: dict[int, _Job] = {}
        self._running: int | None = None
        self._state_lock = threading.Lock()

    def listen(self) -> None:
        """Starts the reader thread."""
        threading.Thread(target=self._read, name="frames", daemon=True).start()

    def send(self, frame: dict[str, Any]) -> None:
        """Writes one frame; a client that is gone ends the process."""
        line = json.dumps(frame, ensure_ascii=True, separators=(",", ":")).encode() + b"\n"
        with self._out_lock:
            try:
                self._out.write(line)
                self._out.flush()
            except OSError:
                os._exit(0)

    def serve(self, model: Model) -> None:
        """Computes until the client closes the pipe."""
        while (job := self._jobs.get()) is not None:
            with self._state_lock:
                if job.id not in self._open:
                    continue  # cancelled in the queue and answered already
                self._running = job.id
            frame = _compute(model, job, self._teller(job))
            with self._state_lock:
                self._running = None
                self._open.pop(job.id, None)
            self.send({"id": job.id, **frame})

    def _teller(self, job: _Job) -> OnPiece | None:
        """What sends the pieces of the job's answer."""
        if not job.stream:
            return None
        return lambda piece: self.send({"id": job.id, "piece": to_json(piece)})

    def _read(self) -> None:
        for line in self._in:
            try:
                self._take(line)
            except (ValueError, KeyError, TypeError, AttributeError, RequestError) as error:
                self.send({"id": _id_of(line), **_error_frame(RequestError(_text(error)))})
        with self._state_lock:
            for job in self._open.values():
                job.cancel.cancel()
        self._jobs.put(None)
        time.sleep(_LAST_WORDS_S)
        os._exit(0)

    def _take(self, line: bytes) -> None:
        frame = json.loads(line)
        number = int(frame["id"])
        op = frame["op"]
        if op == "cancel":
            self._cancel(number)
            return
        if op not in _KINDS:
            raise RequestError(f"unknown operation {op!r}: use {', '.join(_KINDS)} or cancel")
        job = _Job(
            id=number,
            op=op,
            request=from_json(_KINDS[op], frame["request"]),
            received=time.monotonic(),
            cancel=CancelToken(),
            stream=bool(frame.get("stream")),
        )
        with self._state_lock:
            self._open[number] = job
        self._jobs.put(job)

    def _cancel(self, number: int) -> None:
        with self._state_lock:
            job = self._open.get(number)
            if job is None:
                return
            job.cancel.cancel()
            if self._running == number:
                return  # the model answers within one step
            del self._open[number]
        self.send({"id": number, **_error_frame(RequestCancelled("cancelled before it began"))})


def _compute(model: Model, job: _Job, on_piece: OnPiece | None) -> dict[str, Any]:
    try:
        request = job.request
        _check(request)
        if request.deadline_s is not None:
            waited = time.monotonic() - job.received
            request = replace(request, deadline_s=max(0.0, request.deadline_s - waited))
        return {"result": to_json(_asked(model, request, job.cancel, on_piece))}
    except Exception as error:  # whatever the model raises is this request's answer
        if not isinstance(error, EngineError):
            traceback.print_exc()
        return _error_frame(error)


def _check(request: Request) -> None:
    if isinstance(request, GenerateRequest):
        check_generate(request)
    elif isinstance(request, DecisionRequest):
        check_decision(request)
    else:
        check_request(request)


def _asked(model: Model, request: Request, cancel: CancelToken, on_piece: OnPiece | None) -> Any:
    """The model's result. Raises `Unsupported` where one that only fills holes is to converse."""
    if isinstance(request, InfillRequest):
        return model.infill(request, cancel)
    if isinstance(request, ScoreRequest):
        return model.score(request, cancel)
    if isinstance(request, ClozeRequest):
        return model.cloze(request, cancel)
    if not isinstance(model, TextEngine):
        raise Unsupported(
            "this model only fills holes; `clover-code model list` shows those that converse"
        )
    if isinstance(request, GenerateRequest):
        return model.generate(request, cancel, on_piece)
    return model.decide(request, cancel)


def _error_frame(error: BaseException) -> dict[str, Any]:
    return {"error": type(error).__name__, "message": _text(error)}


def _text(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _id_of(line: bytes) -> int | None:
    try:
        return int(json.loads(line)["id"])
    except (ValueError, KeyError, TypeError):
        return None


def _take_over_streams() -> tuple[IO[bytes], IO[bytes]]:
    """Keeps private copies of standard input and output; others read nothing, print to stderr."""
    frames_in = os.fdopen(os.dup(0), "rb")
    frames_out = os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    sys.stdout.flush()
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return frames_in, frames_out


def _watch_parent(parent: int) -> None:
    """Ends the process when its parent died but someone else still holds the pipe open."""
    while os.getppid() == parent:
        time.sleep(_PARENT_CHECK_S)
    os._exit(0)


def load_model(checkpoint: Path, threads: int) -> Model:
    """Imports torch and loads the checkpoint; raises `EngineUnavailable`, `CheckpointError`."""
    try:
        from clover_engine.inprocess.conversation import InProcessEngine
        from clover_engine.inprocess.embedded import EmbeddedEngine
        from clover_engine.inprocess.opened import is_gguf
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in ENGINE_PACKAGES:
            raise
        raise EngineUnavailable(f"{missing} is not installed; run: {install_command()}") from error
    try:
        model: Model
        if is_gguf(checkpoint):  # it brings a chat template
            model = InProcessEngine.load(checkpoint, threads)
        else:
            model = EmbeddedEngine.load(checkpoint, threads, wait=False)
    except CheckpointError as error:
        where = "" if str(checkpoint) in str(error) else f"{checkpoint}: "
        raise CheckpointError(f"{where}{error}") from error
    return model


def _load(args: argparse.Namespace) -> Model:
    if args.fake is not None:
        from clover_engine.testing.fakes import FakeEngine, FakeTalker

        options = json.loads(args.fake)
        time.sleep(options.pop("load_s", 0.0))
        if (message := options.pop("broken", None)) is not None:
            raise CheckpointError(message)
        if (recorded := options.pop("replay", None)) is not None:
            from clover_engine.testing.replay import recorded_answers

            options["answers"] = recorded_answers(Path(recorded))
        fake = FakeTalker if "answers" in options else FakeEngine
        return fake(**options, in_worker=True)
    if args.checkpoint is None:
        raise EngineUnavailable("no checkpoint given; pass --checkpoint DIR")
    return load_model(args.checkpoint, args.threads)


def _limit_threads(threads: int) -> None:
    """Must run before torch is imported. Passive waiting leaves a busy machine's cores alone."""
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = str(threads)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m clover_engine.worker", description=__doc__)
    parser.add_argument("--checkpoint", type=Path, help="folder of the model's weights")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--fake",
        nargs="?",
        const="{}",
        help="no model: a fake with these fields (JSON); also load_s, broken, replay",
    )
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the worker; returns its exit code."""
    args = parse_args(argv)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the client's to handle
    _limit_threads(args.threads)
    worker = Worker(*_take_over_streams())
    worker.listen()
    if sys.platform != "win32":
        threading.Thread(target=_watch_parent, args=(os.getppid(),), daemon=True).start()
    try:
        model = _load(args)
        info = model.info()
    except Exception as error:  # reported to the client, which knows whom to tell
        if not isinstance(error, EngineError):
            traceback.print_exc()
        worker.send({"op": "failed", **_error_frame(error)})
        return 1
    worker.send({"op": "ready", "protocol": PROTOCOL, "pid": os.getpid(), **info})
    worker.serve(model)
    return 0
