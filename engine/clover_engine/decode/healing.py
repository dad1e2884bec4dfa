"""Token healing: the text begins with characters that stand before the hole already.

A hole in the middle of a word, or after blanks, ends its prefix inside a token; a model continues
such a prefix badly, since in training the cut would have been elsewhere. The caller cuts the prefix
back to where a token surely ends, and what it cut off is forced here: only tokens that agree with
it are allowed until all of it is there. The last one may go beyond.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass, field

import torch

from clover_engine.decode.common import Limits, Sampling, Start, Tally, clean_pass
from clover_engine.model import Clover
from clover_engine.text.tokenizer import Tokenizer


class Pieces:
    """The vocabulary's tokens as bytes, in order, for questions about beginnings."""

    def __init__(self, tokenizer: Tokenizer, banned: set[int]) -> None:
        found = ((tokenizer.piece(i), i) for i in range(tokenizer.vocab_size) if i not in banned)
        self._ordered = sorted((piece, i) for piece, i in found if piece)
        self._ids = {piece: i for piece, i in reversed(self._ordered)}
        self._longest = 1 + max((len(piece) for piece in self._ids), default=0)
        self.piece = tokenizer.piece

    def agreeing(self, text: bytes) -> list[int]:
        """Tokens that begin with `text`, or that `text` begins with."""
        begin = bisect_left(self._ordered, (text, -1))
        # Bytes end at 255, so nothing that begins with `text` comes after this.
        end = bisect_left(self._ordered, (text + b"\xff" * self._longest, -1), begin)
        found = [i for _, i in self._ordered[begin:end]]
        shorter = (self._ids.get(text[:n]) for n in range(1, len(text)))
        return found + [i for i in shorter if i is not None]


@dataclass(slots=True)
class Healed:
    """Forced tokens, committed already, and each one's probability among those allowed."""

    tokens: list[int] = field(default_factory=list)
    probs: list[float] = field(default_factory=list)


@torch.inference_mode()
def heal(
    model: Clover,
    start: Start,
    required: bytes,
    pieces: Pieces,
    limits: Limits,
    sampling: Sampling,
    tally: Tally,
    generator: torch.Generator | None = None,
) -> tuple[Healed, Start]:
    """Commits tokens to `start`'s cache until they begin with `required`; where to go on.

    Ends early, with less than that, only when cancelled or past the deadline.
    """
    done, rest = Healed(), required
    while rest and limits.interrupted() is None:
        allowed = pieces.agreeing(rest)
        if not allowed:
            break
        mask = torch.full_like(start.logits, -math.inf)
        index = torch.tensor(allowed)
        mask[index] = start.logits[index]
        probs = sampling.probabilities(mask)
        token = int(sampling.pick(probs, generator))
        done.tokens.append(token)
        done.probs.append(float(probs[token]))
        rest = rest[len(pieces.piece(token)) :]
        start = Start(start.cache, clean_pass(model, [token], start.cache, tally)[-1])
    return done, start
