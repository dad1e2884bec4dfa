"""Prompts for servers: token ids of the project's tokenizer, no special ones."""

from __future__ import annotations

import random

from tests.serving.models import SPECIAL_TOKENS, TOKENS


def random_ids(length: int, seed: int) -> list[int]:
    """The same ids for the same seed; shorter ones begin as longer ones do."""
    chosen = random.Random(seed)
    return [chosen.randrange(SPECIAL_TOKENS, TOKENS) for _ in range(length)]
