"""A round of the algorithm over the requests of one batch. Torch only, no SGLang.

`advance` is given the two passes that the server can run (`passes`), or anything that does the
same: the tests drive it with this project's own model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from torch import Tensor

from clover_engine.decode.diffusion import Block
from clover_engine.decode.speculative import accept, draw
from clover_engine.serving.passes import Part
from clover_engine.serving.request import Generation


class RunPass(Protocol):
    """One forward pass: each part's logits [rows, vocab], in the order of `parts`."""

    def __call__(
        self, parts: Sequence[Part], kind: Literal["block", "clean"]
    ) -> Sequence[Tensor]: ...


@dataclass(slots=True)
class Turn:
    """One request in one round."""

    index: int
    request: Any
    """Its `output_ids` are what was generated so far."""
    state: Generation
    tokens: list[int]
    """Clean rows of this round, empty if there are none yet."""
    drafted: Tensor | None = None
    """The distributions [draft, vocab] that a denoised draft was drawn from."""

    @property
    def generated(self) -> int:
        return len(self.request.output_ids)


def advance(
    turns: Sequence[Turn], mask: int, run: RunPass, commit: Callable[[Sequence[int]], None]
) -> list[list[int]]:
    """What each request emits in this round; `commit` is told how many clean rows of each request
    that had any are kept, `mask` is the id of masked rows."""
    _denoise(turns, mask, run)
    ready = [turn for turn in turns if turn.tokens]
    new: list[list[int]] = [[] for _ in turns]
    for turn in turns:
        turn.state.committed = 0
    if not ready:
        return new
    parts = [Part(turn.index, tuple(turn.tokens)) for turn in ready]
    for turn, rows in zip(ready, run(parts, "clean"), strict=True):
        kept = len(turn.tokens) if turn.state.known is None else _verify(turn, rows.cpu())
        turn.state.committed = kept
        new[turn.index] = turn.tokens[:kept]
    commit([turn.state.committed for turn in ready])
    return new


def _denoise(turns: Sequence[Turn], mask: int, run: RunPass) -> None:
    """The pass of block rows; sets `tokens` of every turn that has clean rows after it."""
    wanted = {turn.index: ids for turn in turns if (ids := _block_ids(turn, mask))}
    parts = [Part(index, tuple(ids)) for index, ids in wanted.items()]
    if not parts:
        return
    by_index = {turn.index: turn for turn in turns}
    for part, logits in zip(parts, run(parts, "block"), strict=True):
        turn = by_index[part.index]
        if turn.state.block is not None:
            _step(turn, turn.state.block, logits.cpu())
        else:
            _draft(turn, logits[1:].cpu())


def _block_ids(turn: Turn, mask: int) -> list[int]:
    """The rows that this turn wants denoised; sets `tokens` where the clean rows are known."""
    state = turn.state
    if state.known is None:
        if state.block is None:
            state.block = Block(state.size(turn.generated), mask, state.limits)
        return [int(i) for i in state.block.ids]
    turn.tokens = [state.known]
    room = min(state.limits.max_tokens - turn.generated, state.options.block_size) - 1
    if state.options.mode == "ar" or room <= 0:
        return []
    draft = state.lookup.draft([*turn.request.output_ids, state.known], room)
    if draft:
        turn.tokens += draft
        return []
    return [state.known, *[mask] * room] if state.drafting.wanted else []


def _step(turn: Turn, block: Block, logits: Tensor) -> None:
    """Denoises once; a finished block becomes this turn's clean rows."""
    state = turn.state
    known = [token for token, _ in block.prefix()]
    logits = state.sampling.penalised(logits, [*turn.request.output_ids, *known])
    probs = state.sampling.probabilities(logits)
    block.commit(probs, state.options.threshold, state.sampling, state.generator)
    if block.done:
        turn.tokens = [token for token, _ in block.prefix()]
        state.block = None


def _draft(turn: Turn, logits: Tensor) -> None:
    """Adds a denoised draft to the clean rows."""
    state = turn.state
    logits = state.sampling.penalised(logits, [*turn.request.output_ids, *turn.tokens])
    ahead = state.sampling.probabilities(logits)  # [draft, vocab]
    draft, turn.drafted = draw(
        ahead, state.options.draft_threshold, state.sampling, state.generator
    )
    turn.tokens += draft


def _verify(turn: Turn, logits: Tensor) -> int:
    """How many of the clean rows stand; decides the token that follows them."""
    state, draft = turn.state, turn.tokens[1:]
    before = [*turn.request.output_ids, turn.tokens[0]]
    verified = state.sampling.probabilities(state.sampling.penalised(logits, before, draft))
    accepted, state.known, _ = accept(
        draft, turn.drafted, verified, state.sampling, state.generator
    )
    state.drafting.count(turn.drafted is not None, accepted)
    return 1 + accepted
