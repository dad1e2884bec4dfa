"""What every engine can do, without torch: requests, results and the `Engine` protocol.

All text is `str`, all times are seconds, all log-probabilities are nats. Requests and results
are immutable and plain enough to cross a process boundary as JSON (`to_json`, `from_json`).

The model sees one *hole*: the text before it (`prefix`), the text after it (`suffix`), and for
repairs the text that stands in it now (`original`). Context budgets are in tokens and belong to
the engine: callers pass as much text as they have, the engine keeps what is nearest to the hole.
"""

from __future__ import annotations

import threading
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Literal, Protocol, TypeVar, runtime_checkable

Mode = Literal["threshold", "speculative", "ar"]
FinishReason = Literal["eom", "stop", "length", "deadline", "cancelled"]


class CancelToken:
    """A flag that the caller sets and the engine looks at between denoising steps."""

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event = threading.Event()

    def cancel(self) -> None:
        """Asks the engine to stop; safe from any thread, any number of times."""
        self._event.set()

    @property
    def cancelled(self) -> bool:
        return self._event.is_set()


@dataclass(frozen=True, slots=True)
class Snippet:
    """A piece of other text that helps (a definition, a recent edit), most relevant first."""

    text: str
    path: str = ""


@dataclass(frozen=True, slots=True)
class DecodeStats:
    """Where the work went. One forward pass is one call of the network, whatever its rows."""

    forward_passes: int = 0
    prefill_tokens: int = 0
    cached_tokens: int = 0
    tokens: int = 0
    drafted: int = 0
    accepted: int = 0
    denoising_steps: int = 0
    seconds: float = 0.0

    def __add__(self, other: DecodeStats) -> DecodeStats:
        return DecodeStats(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


@dataclass(frozen=True, slots=True)
class InfillRequest:
    """Fill the hole between `prefix` and `suffix` with free text."""

    prefix: str
    suffix: str = ""
    snippets: tuple[Snippet, ...] = ()
    original: str | None = None
    """Text that stands in the hole now and is believed wrong (repair); None for a plain hole."""
    max_tokens: int = 64
    mode: Mode = "speculative"
    """Self-speculation gives plain decoding's text, sooner (docs/benchmarks.md)."""
    threshold: float | None = None
    """For mode "threshold": commit a masked token once its probability passes this; None takes the
    checkpoint's own."""
    block_size: int | None = None
    """Rows of a block, 1 to 32; None takes the checkpoint's own. Mode "ar" has no blocks."""
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0
    n: int = 1
    """How many samples; more than one needs a temperature above 0."""
    stop: tuple[str, ...] = ()
    """Generation ends before the first of these strings (``"\\n"`` gives a single line)."""
    must_start_with: str = ""
    """The result begins with this: the end of the text before the hole, cut off `prefix` because
    it may end inside a token (token healing)."""
    drafts: tuple[str, ...] = ()
    """Texts that may belong into the hole, most probable first (found in the repository, say).
    Speculative decoding verifies them; they change its speed, never its result."""
    deadline_s: float | None = None


@dataclass(frozen=True, slots=True)
class Infill:
    """One generated text with the model's own mean token probability (0..1)."""

    text: str
    confidence: float
    finish_reason: FinishReason


@dataclass(frozen=True, slots=True)
class InfillResult:
    choices: tuple[Infill, ...]
    stats: DecodeStats = field(default_factory=DecodeStats)
    model: str = ""
    """Which model generated; its name finds its curve in `clover_engine.gate`. Empty: unknown."""

    @classmethod
    def late(cls, count: int) -> InfillResult:
        """For a request of `count` samples whose deadline came before anything was generated."""
        return cls((Infill("", 0.0, "deadline"),) * max(1, count))


@dataclass(frozen=True, slots=True)
class ScoreRequest:
    """How probable is each candidate text in the hole (all its tokens and the end of the hole)?"""

    prefix: str
    suffix: str
    candidates: tuple[str, ...]
    original: str | None = None
    deadline_s: float | None = None


@dataclass(frozen=True, slots=True)
class ScoreResult:
    """`logprobs[i]` belongs to `candidates[i]`; None where the deadline came first."""

    logprobs: tuple[float | None, ...]
    tokens: tuple[int, ...]
    stats: DecodeStats = field(default_factory=DecodeStats)
    model: str = ""
    """Which model answered. Empty: the engine has only one, and `health` names it."""

    @classmethod
    def late(cls, count: int) -> ScoreResult:
        """For `count` candidates, none of which was scored before the deadline."""
        return cls((None,) * count, (0,) * count)


@dataclass(frozen=True, slots=True)
class ClozeRequest:
    """Small edits of `original`: mask every span of it, fill each mask, return the best texts.

    Spans remove 0..`max_remove` tokens and put 0..`max_insert` masks in their place, so that
    replacement, insertion and deletion are all enumerated; `top` distinct texts come back.
    """

    prefix: str
    original: str
    suffix: str
    max_remove: int = 3
    max_insert: int = 4
    top: int = 50
    deadline_s: float | None = None


@dataclass(frozen=True, slots=True)
class ClozeFill:
    """A full replacement of `original` and its joint log-probability, as `score` gives it."""

    text: str
    logprob: float


@dataclass(frozen=True, slots=True)
class ClozeResult:
    fills: tuple[ClozeFill, ...]
    stats: DecodeStats = field(default_factory=DecodeStats)
    model: str = ""
    """Which model answered. Empty: the engine has only one, and `health` names it."""


@dataclass(frozen=True, slots=True)
class Health:
    """`ready` engines answer at once; `detail` says in words why not, and what to do."""

    ready: bool
    name: str
    detail: str = ""
    model: str = ""
    checkpoint: str = ""
    parameters: int = 0
    restarts: int = 0
    pid: int | None = None


@runtime_checkable
class Engine(Protocol):
    """A model that fills holes. Calls block; `cancel` ends them within one step.

    Raises (any call): `EngineUnavailable`, `EngineCrashed`, `CheckpointError`, `RequestError`;
    `RequestCancelled` only where nothing was generated yet (`infill` returns its confident
    prefix with finish_reason "cancelled").
    """

    def infill(self, request: InfillRequest, cancel: CancelToken | None = None) -> InfillResult: ...

    def score(self, request: ScoreRequest, cancel: CancelToken | None = None) -> ScoreResult: ...

    def cloze(self, request: ClozeRequest, cancel: CancelToken | None = None) -> ClozeResult: ...

    def health(self) -> Health: ...

    def close(self) -> None: ...


T = TypeVar("T")


def to_json(value: Any) -> Any:
    """Turns a request or result into plain JSON values."""
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_json(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, tuple | list):
        return [to_json(v) for v in value]
    return value


def from_json(kind: type[T], data: Mapping[str, Any]) -> T:
    """Rebuilds a dataclass of this module; unknown keys are ignored, missing ones defaulted."""
    hints = typing.get_type_hints(kind)
    known = {f.name for f in fields(kind)}  # type: ignore[arg-type]
    return kind(**{k: _build(hints[k], v) for k, v in data.items() if k in known})


def _build(hint: Any, value: Any) -> Any:
    if value is None:
        return None
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        hint = next(a for a in typing.get_args(hint) if a is not type(None))
    if typing.get_origin(hint) is tuple:
        item = typing.get_args(hint)[0]
        return tuple(_build(item, v) for v in value)
    if is_dataclass(hint):
        return from_json(hint, value)  # type: ignore[arg-type]
    return value
