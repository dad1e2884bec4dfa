"""Free generation and decisions: requests and results beside those of `clover_engine.api`.

A *conversation* is answered with text; with `thinking`, the model first writes what it thinks
(between its template's thinking marks), which is kept apart from the answer. A *decision* answers
up to eight multiple-choice questions about one material: jointly (one denoising, the answers see
each other) or one by one. Torch-free, like `api`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

from clover_engine.api import CancelToken, DecodeStats, FinishReason, Mode

Role = Literal["system", "user", "assistant", "tool"]
PieceKind = Literal["thinking", "answer"]
MAX_QUESTIONS = 8
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
"""They name options."""


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation."""

    role: Role
    content: str


@dataclass(frozen=True, slots=True)
class GenerateRequest:
    """Continue a conversation with the assistant's turn."""

    messages: tuple[Message, ...]
    max_new_tokens: int = 24576
    """Thinking and answer together."""
    thinking: bool = True
    mode: Mode = "speculative"
    threshold: float | None = None
    """For mode "threshold"; None takes the checkpoint's own."""
    block_size: int | None = None
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0
    stop: tuple[str, ...] = ()
    """The answer ends before the first of these strings."""
    deadline_s: float | None = None


@dataclass(frozen=True, slots=True)
class Piece:
    """New text of a stream; the pieces of one kind, joined, are that kind's final text."""

    text: str
    kind: PieceKind = "answer"


@dataclass(frozen=True, slots=True)
class GenerateResult:
    text: str
    thinking: str
    finish_reason: FinishReason
    stats: DecodeStats = field(default_factory=DecodeStats)
    model: str = ""
    """Which model answered; empty: unknown."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question and the answers to choose from (2 or more, all different)."""

    text: str
    options: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DecisionRequest:
    """1 to `MAX_QUESTIONS` questions about one material."""

    material: str
    questions: tuple[Question, ...]
    joint: bool = True
    deadline_s: float | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """The chosen option's index, and the probability of each option (they sum to 1)."""

    option: int
    probabilities: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class DecisionResult:
    """`decisions[i]` belongs to `questions[i]`."""

    decisions: tuple[Decision, ...]
    stats: DecodeStats = field(default_factory=DecodeStats)


def numbered(material: str, questions: Sequence[Question]) -> list[str]:
    """Lines of what a model reads to decide: the material, numbered questions, lettered options."""
    lines = [material.rstrip("\n"), ""]
    for number, question in enumerate(questions, 1):
        lines.append(f"{number}. {question.text}")
        lines += [f"{LETTERS[i]}. {option}" for i, option in enumerate(question.options)]
        lines.append("")
    return lines


OnPiece = Callable[[Piece], None]
"""Called with each new piece of text, on the calling thread."""


@runtime_checkable
class Converses(Protocol):
    """An engine that answers conversations; one that cannot after all raises `Unsupported`."""

    def generate(
        self,
        request: GenerateRequest,
        cancel: CancelToken | None = None,
        on_piece: OnPiece | None = None,
    ) -> GenerateResult: ...


@runtime_checkable
class TextEngine(Protocol):
    """What engines with a chat template offer beside `clover_engine.api.Engine`; same errors.

    `RequestError` where the model has no chat template, or cannot decide.
    """

    def generate(
        self,
        request: GenerateRequest,
        cancel: CancelToken | None = None,
        on_piece: OnPiece | None = None,
    ) -> GenerateResult: ...

    def decide(
        self, request: DecisionRequest, cancel: CancelToken | None = None
    ) -> DecisionResult: ...
