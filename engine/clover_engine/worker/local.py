"""The embedded model as an `Engine`: a client of one worker process. Never imports torch.

Nothing starts before the first request. Requests from several threads queue in the worker. A
worker that dies costs the requests in flight (`EngineCrashed`); the next one starts it again,
after a pause that grows while starts keep failing. The process ends with `close`, at interpreter
exit, and by itself when this process is gone.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import shlex
import sys
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from clover_engine.api import (
    CancelToken,
    ClozeRequest,
    ClozeResult,
    Health,
    InfillRequest,
    InfillResult,
    ScoreRequest,
    ScoreResult,
    from_json,
    to_json,
)
from clover_engine.checkpoint.catalog import OFFERED
from clover_engine.checkpoint.catalog import chosen as in_use
from clover_engine.checkpoint.catalog import missing as gguf_missing
from clover_engine.checkpoint.known import CANDIDATES, candidate_at
from clover_engine.checkpoint.known import DEFAULT_CHECKPOINT as DEFAULT_CHECKPOINT
from clover_engine.errors import EngineCrashed, EngineError, EngineUnavailable, RequestCancelled
from clover_engine.generation import (
    DecisionRequest,
    DecisionResult,
    GenerateRequest,
    GenerateResult,
    OnPiece,
    Piece,
)
from clover_engine.validation import check_decision, check_generate, check_request
from clover_engine.worker.process import Reply, WorkerProcess, copy_error, error_from

ENGINE_PACKAGES = ("torch", "numpy", "safetensors", "tokenizers")
_POLL_S = 0.004
_MAX_PAUSE_S = 30.0

Request = InfillRequest | ScoreRequest | ClozeRequest | GenerateRequest | DecisionRequest
Result = TypeVar("Result", InfillResult, ScoreResult, ClozeResult, GenerateResult, DecisionResult)


def checkpoint_path(checkpoint: Path | str | None = None) -> Path:
    """The checkpoint's folder or file: the argument, else CLOVER_CHECKPOINT, else what
    `clover-code model use` remembered, else the shipped model.

    The name of a candidate (`smollm2`) stands for the folder it is converted into, that of a model
    to be got (`coder-0.5b`) for its file.
    """
    chosen = checkpoint or os.environ.get("CLOVER_CHECKPOINT") or in_use() or DEFAULT_CHECKPOINT
    if candidate := CANDIDATES.get(str(chosen)):
        return candidate.folder
    if offered := OFFERED.get(str(chosen)):
        return offered.path
    return Path(chosen).expanduser().absolute()


def default_threads() -> int:
    """CLOVER_THREADS, else the cores this process may use, at most 8."""
    given = os.environ.get("CLOVER_THREADS", "")
    if given.isdigit() and int(given) > 0:
        return int(given)
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    return max(1, min(8, cores))


def install_command() -> str:
    """The command that installs the embedded engine's packages beside this Python's own."""
    source = Path(__file__).parents[3]
    is_checkout = (source / "pyproject.toml").is_file()
    what = ["-e", f"{source}[engine]"] if is_checkout else ["clover-code[engine]"]
    return shlex.join([sys.executable, "-m", "pip", "install", *what])


def missing_packages() -> tuple[str, ...]:
    """Packages of the `engine` extra that this Python cannot import; imports none of them."""
    return tuple(name for name in ENGINE_PACKAGES if importlib.util.find_spec(name) is None)


class LocalEngine:
    """Runs the model in a worker process; see `clover_engine.api.Engine` for the calls."""

    def __init__(
        self,
        checkpoint: Path | None = None,
        threads: int | None = None,
        command: Sequence[str] | None = None,
        *,
        start_timeout_s: float = 120.0,
        hang_grace_s: float = 30.0,
    ) -> None:
        """`command`, or CLOVER_WORKER, replaces the worker's whole command line: the model can
        live in another environment than the caller, and tests run a fake. It finds the checkpoint
        in its own CLOVER_CHECKPOINT.

        `start_timeout_s`: longest wait for the model to load. `hang_grace_s`: how long after a
        deadline or a cancellation the worker may stay silent before it is ended.
        """
        self.checkpoint = checkpoint_path(checkpoint)
        self.threads = threads or default_threads()
        if command is None:
            command = shlex.split(os.environ.get("CLOVER_WORKER", ""))
        self._custom = bool(command)
        self._command = list(command) or self._worker_command()
        self._start_timeout_s = start_timeout_s
        self._hang_grace_s = hang_grace_s
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._process: WorkerProcess | None = None
        self._starts = 0
        self._failures = 0
        self._closed = False
        self._reaper: weakref.finalize[..., LocalEngine] | None = None

    def infill(self, request: InfillRequest, cancel: CancelToken | None = None) -> InfillResult:
        late = InfillResult.late(request.n)
        result = self._call("infill", request, cancel, InfillResult, late)
        process = self._process
        return result if process is None else replace(result, model=_model(process))

    def score(self, request: ScoreRequest, cancel: CancelToken | None = None) -> ScoreResult:
        late = ScoreResult.late(len(request.candidates))
        return self._call("score", request, cancel, ScoreResult, late)

    def cloze(self, request: ClozeRequest, cancel: CancelToken | None = None) -> ClozeResult:
        return self._call("cloze", request, cancel, ClozeResult, ClozeResult(()))

    def generate(
        self,
        request: GenerateRequest,
        cancel: CancelToken | None = None,
        on_piece: OnPiece | None = None,
    ) -> GenerateResult:
        """Raises `Unsupported` where the model only fills holes."""
        check_generate(request)
        late = GenerateResult("", "", "deadline")
        result = self._call("generate", request, cancel, GenerateResult, late, on_piece)
        process = self._process
        return result if process is None else replace(result, model=_model(process))

    def decide(self, request: DecisionRequest, cancel: CancelToken | None = None) -> DecisionResult:
        """Raises `Unsupported` where the model only fills holes, RequestCancelled when late."""
        check_decision(request)
        result = self._call("decide", request, cancel, DecisionResult, DecisionResult(()))
        if not result.decisions:
            raise RequestCancelled("ended before all questions were answered; allow more time")
        return result

    @property
    def only_fills_holes(self) -> bool:
        """Whether the model is known not to converse, before it is loaded."""
        return not self._custom and self.checkpoint == DEFAULT_CHECKPOINT

    def health(self, start: bool = False) -> Health:
        """Looks, without starting anything; `start=True` loads the model and waits for it."""
        detail = ""
        if start:
            try:
                self._wait_ready(self._ensure())
            except EngineError as error:
                detail = str(error)
        with self._lock:
            process, closed = self._process, self._closed
            restarts = max(0, self._starts - 1)
        alive = process is not None and process.alive
        ready = process is not None and alive and process.is_ready
        if not ready and not detail:
            detail = "the engine is closed" if closed else self._why_not(process)
        return Health(
            ready=ready,
            name="local",
            detail=detail,
            model=_model(process) if process else "",
            checkpoint="" if self._custom else str(self.checkpoint),
            parameters=int(process.info.get("parameters", 0)) if process else 0,
            restarts=restarts,
            pid=process.pid if process is not None and alive else None,
        )

    def close(self) -> None:
        """Ends the worker; requests in flight raise `EngineUnavailable`."""
        with self._lock:
            self._closed = True
            process, self._process = self._process, None
        if self._reaper is not None:
            self._reaper.detach()
        if process is not None:
            process.end(EngineUnavailable("the engine was closed"))

    def __enter__(self) -> LocalEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _worker_command(self) -> list[str]:
        # -P: modules of the user's current folder must not shadow ours.
        arguments = ["--checkpoint", str(self.checkpoint), "--threads", str(self.threads)]
        return [sys.executable, "-P", "-m", "clover_engine.worker", *arguments]

    def _why_not(self, process: WorkerProcess | None) -> str:
        if process is not None and process.alive:
            return "the model is loading"
        if process is not None and process.failure is not None:
            return str(process.failure)
        if not self._custom:
            if missing := missing_packages():
                return f"{', '.join(missing)} not installed; run: {install_command()}"
            if (candidate := candidate_at(self.checkpoint)) is not None:
                return candidate.missing() or "not started yet; the first request starts it"
            if self.checkpoint.suffix == ".gguf":
                return (
                    gguf_missing(self.checkpoint) or "not started yet; the first request starts it"
                )
            if not (self.checkpoint / "config.json").is_file():
                return f"no checkpoint in {self.checkpoint}; set CLOVER_CHECKPOINT to its folder"
        return "not started yet; the first request starts it"

    def _call(
        self,
        op: str,
        request: Request,
        cancel: CancelToken | None,
        kind: type[Result],
        late: Result,
        on_piece: OnPiece | None = None,
    ) -> Result:
        begun = time.monotonic()
        if isinstance(request, InfillRequest | ScoreRequest | ClozeRequest):
            check_request(request)
        if cancel is not None and cancel.cancelled:
            raise RequestCancelled("the request was cancelled before it began")
        process = self._ensure()
        if request.deadline_s is not None:
            left = max(0.0, request.deadline_s - (time.monotonic() - begun))
            request = replace(request, deadline_s=left)
        number = next(self._numbers)
        answer = process.submit(number, op, to_json(request), stream=on_piece is not None)
        frame = self._await(process, number, answer, cancel, request.deadline_s, on_piece)
        if frame is None:
            return late
        if "error" in frame:
            error = error_from(frame)
            if isinstance(error, RequestCancelled) and not (cancel and cancel.cancelled):
                return late  # nobody cancelled: the deadline ended it
            raise error
        return from_json(kind, frame["result"])

    def _await(
        self,
        process: WorkerProcess,
        number: int,
        answer: Reply,
        cancel: CancelToken | None,
        deadline_s: float | None,
        on_piece: OnPiece | None = None,
    ) -> Mapping[str, Any] | None:
        """The worker's frame; None where the deadline came while the model was loading."""
        begun = time.monotonic()
        asked_to_stop: float | None = None
        while not answer.wait(_POLL_S if cancel is not None else 0.05):
            _tell(answer, on_piece)
            now = time.monotonic()
            cancelled = cancel is not None and cancel.cancelled
            late = deadline_s is not None and now > begun + deadline_s
            if not process.is_ready:
                if now > process.started + self._start_timeout_s:
                    process.end(self._start_timeout())
                elif cancelled or late:
                    process.cancel(number)
                    if cancelled:
                        raise RequestCancelled("cancelled while the model was loading")
                    return None
                continue
            if (cancelled or late) and asked_to_stop is None:
                asked_to_stop = now
                if cancelled:
                    process.cancel(number)
            if asked_to_stop is not None and now > asked_to_stop + self._hang_grace_s:
                process.end(
                    EngineCrashed(
                        f"the model did not stop within {self._hang_grace_s:g} s and was ended; "
                        "ask again"
                    )
                )
        _tell(answer, on_piece)
        return answer.get()

    def _start_timeout(self) -> EngineUnavailable:
        return EngineUnavailable(
            f"the model did not load within {self._start_timeout_s:g} s; try again when the "
            "machine is less busy, or run: clover-code doctor"
        )

    def _wait_ready(self, process: WorkerProcess) -> None:
        while not process.ready.wait(0.05):
            if time.monotonic() > process.started + self._start_timeout_s:
                process.end(self._start_timeout())
        if process.failure is not None:
            raise copy_error(process.failure)

    def _ensure(self) -> WorkerProcess:
        """The live worker, started if need be and allowed."""
        with self._lock:
            if self._closed:
                raise EngineUnavailable("the engine is closed; open a new one")
            old = self._process
            if old is not None and not old.mine:
                old = None
            if old is not None and old.alive:
                return old
            if old is not None:
                self._check_pause(old)
            self._starts += 1
            try:
                self._process = WorkerProcess(self._command, self.threads, str(self.checkpoint))
            except OSError as error:
                raise EngineUnavailable(
                    f"cannot start {self._command[0]}: {error.strerror or error}; "
                    "run: clover-code doctor"
                ) from error
            if self._reaper is not None:
                self._reaper.detach()
            self._reaper = weakref.finalize(self, WorkerProcess.end, self._process, None)
            return self._process

    def _check_pause(self, old: WorkerProcess) -> None:
        """A first crash restarts at once; failed starts and crashes in a row wait longer."""
        failures = 1 if old.served else self._failures + 1
        loaded = bool(old.info)
        pause = 0.0 if loaded and failures == 1 else min(_MAX_PAUSE_S, 0.5 * 2.0**failures)
        left = old.ended + pause - time.monotonic()
        if left <= 0:
            self._failures = failures
            return
        if not loaded and old.failure is not None:
            raise copy_error(old.failure)
        raise EngineUnavailable(
            f"the model's process died {failures} times in a row; "
            f"next try in {left:.0f} s; run: clover-code doctor"
        )


def _tell(answer: Reply, on_piece: OnPiece | None) -> None:
    """Hands on what has come of the answer."""
    for piece in answer.pieces():
        if on_piece is not None:
            on_piece(from_json(Piece, piece))


def _model(process: WorkerProcess) -> str:
    """The model's name, once it is loaded."""
    return str(process.info.get("model", ""))
