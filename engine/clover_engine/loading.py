"""`clover_engine.load`: a checkpoint or a served model, ready to be asked from Python. ::

    import clover_engine

    model = clover_engine.load("path/to/checkpoint")
    result = model.generate("Why is the sky blue?", max_new_tokens=24576, thinking=True)
    print(result.text)

Torch is imported only for a checkpoint, and only when it is loaded.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, cast

from clover_engine.api import (
    CancelToken,
    ClozeRequest,
    ClozeResult,
    Engine,
    Health,
    InfillRequest,
    InfillResult,
    ScoreRequest,
    ScoreResult,
)
from clover_engine.checkpoint.catalog import OFFERED
from clover_engine.errors import CheckpointError, RequestError
from clover_engine.generation import (
    DecisionRequest,
    DecisionResult,
    GenerateRequest,
    GenerateResult,
    Message,
    Piece,
    Question,
    TextEngine,
)

Messages = str | Sequence[Message | Mapping[str, str]]


class FullEngine(Engine, TextEngine, Protocol):
    """Everything an engine can do."""


class LoadedModel:
    """A model to ask. Close it, or use it in a `with` statement; `engine` is what answers."""

    def __init__(self, engine: FullEngine) -> None:
        self.engine = engine

    def generate(
        self, messages: Messages, *, cancel: CancelToken | None = None, **options: Any
    ) -> GenerateResult:
        """Answers a conversation: a question, `Message`s, or dicts with "role" and "content".

        `options` are the fields of `GenerateRequest`. Raises RequestError for bad ones, and the
        errors of `clover_engine.api.Engine`.
        """
        return self.engine.generate(_request(messages, options), cancel)

    def stream(self, messages: Messages, **options: Any) -> Generator[Piece, None, GenerateResult]:
        """The answer as it comes; leaving the loop early cancels the rest. Errors as `generate`.

        The generator's return value (``StopIteration.value``) is the `GenerateResult`.
        """
        return _stream(self.engine, _request(messages, options))

    def decide(
        self, material: str, questions: Sequence[Question], *, joint: bool = True,
        deadline_s: float | None = None, cancel: CancelToken | None = None,
    ) -> DecisionResult:  # fmt: skip
        """Answers up to eight multiple-choice questions about `material`."""
        request = DecisionRequest(material, tuple(questions), joint, deadline_s)
        return self.engine.decide(request, cancel)

    def infill(self, request: InfillRequest, cancel: CancelToken | None = None) -> InfillResult:
        return self.engine.infill(request, cancel)

    def score(self, request: ScoreRequest, cancel: CancelToken | None = None) -> ScoreResult:
        return self.engine.score(request, cancel)

    def cloze(self, request: ClozeRequest, cancel: CancelToken | None = None) -> ClozeResult:
        return self.engine.cloze(request, cancel)

    def health(self) -> Health:
        return self.engine.health()

    def close(self) -> None:
        self.engine.close()

    def __enter__(self) -> LoadedModel:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self.close()


def load(
    source: str | os.PathLike[str],
    *,
    device: str = "cpu",
    dtype: str = "float32",
    expert_budget_bytes: int | None = None,
    threads: int = 0,
    api_key: str | None = None,
    model: str = "",
) -> LoadedModel:
    """A checkpoint's folder, a GGUF file, or the name of a model that `clover-code model` lists,
    loaded into this process; or a server's address.

    Addresses: ``sglang:http://HOST:30000`` (``http://…`` alone means SGLang),
    ``llamacpp:http://HOST:8080`` and ``openai:http://HOST:11434`` (Ollama, LM Studio, vLLM), with
    `api_key` where it wants one and `model` where it has several. For a checkpoint: `device` and
    `dtype` as torch names them ("cuda", "bfloat16"), `threads` of torch (0: its own choice), and
    how many bytes of a mixture's experts stay on the device, the others in host memory (None: all).
    Raises CheckpointError, or EngineUnavailable for a bad address.
    """
    text = os.fspath(source)
    kind, _, address = text.partition(":")
    if kind in ("http", "https"):
        kind, address = "sglang", text
    if kind == "sglang" and "://" in address:
        from clover_engine.clients.sglang import SGLangEngine

        return LoadedModel(SGLangEngine(address, api_key=api_key, model=model))
    if kind == "llamacpp" and "://" in address:
        from clover_engine.clients.llamacpp import LlamaCppEngine

        return LoadedModel(LlamaCppEngine(address, api_key=api_key, model=model))
    if kind == "openai" and "://" in address:
        from clover_engine.clients.openai import OpenAIEngine

        return LoadedModel(OpenAIEngine(address, api_key=api_key, model=model))
    options = {"device": device, "dtype": dtype, "expert_budget_bytes": expert_budget_bytes}
    named = OFFERED.get(text)
    path = Path(text).expanduser() if named is None else named.path
    return LoadedModel(_in_process(path, threads, options))


def _in_process(folder: Path, threads: int, options: dict[str, Any]) -> FullEngine:
    from clover_engine.worker.local import install_command, missing_packages

    is_file = folder.suffix == ".gguf"
    if not is_file and not (folder / "config.json").is_file():
        raise CheckpointError(
            f"{folder} is no checkpoint: it has no config.json; give a folder with config.json, "
            "tokenizer.json and *.safetensors, a GGUF file, or a server's address"
        )
    if missing := missing_packages():
        raise CheckpointError(f"{', '.join(missing)} not installed; run {install_command()}")
    from clover_engine.inprocess.conversation import InProcessEngine

    return InProcessEngine.load(folder, threads, **options)


def _request(messages: Messages, options: Mapping[str, Any]) -> GenerateRequest:
    if isinstance(messages, str):
        messages = [Message("user", messages)]
    turns = []
    for message in messages:
        if isinstance(message, Mapping):
            if not {"role", "content"} <= message.keys():
                raise RequestError('a message needs "role" and "content"')
            message = Message(cast(Any, message["role"]), message["content"])
        turns.append(message)
    if "stop" in options:
        stop = options["stop"]
        options = {**options, "stop": (stop,) if isinstance(stop, str) else tuple(stop)}
    try:
        return GenerateRequest(tuple(turns), **options)
    except TypeError as error:
        known = ", ".join(GenerateRequest.__dataclass_fields__)
        raise RequestError(f"{str(error).split(') ')[-1]}; known options: {known}") from error


def _stream(engine: TextEngine, request: GenerateRequest) -> Generator[Piece, None, GenerateResult]:
    """Runs the engine on a thread of its own; at most a few hundred pieces wait."""
    cancel = CancelToken()
    pieces: queue.Queue[Piece | GenerateResult | BaseException] = queue.Queue(maxsize=256)

    def put(item: Piece | GenerateResult | BaseException) -> None:
        while not cancel.cancelled:
            try:
                pieces.put(item, timeout=0.1)
            except queue.Full:
                continue
            return

    def work() -> None:
        try:
            put(engine.generate(request, cancel, put))
        except BaseException as error:
            put(error)

    thread = threading.Thread(target=work, name="clover-stream", daemon=True)
    thread.start()
    try:
        while True:
            item = pieces.get()
            if isinstance(item, BaseException):
                raise item
            if isinstance(item, GenerateResult):
                return item
            yield item
    finally:
        cancel.cancel()
        thread.join()
