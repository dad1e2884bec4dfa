"""A typist: real files typed again, with pauses. Shared by the benchmarks of servers.

What is typed is real: stretches of standard-library modules. When is a model with assumed figures
(`PAUSES`): keys follow each other by a normal distribution; after some words and most lines the
typist thinks for a log-normal time.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

FILES = ("argparse", "textwrap", "configparser", "shlex", "fractions", "difflib")
"""Modules whose text is typed."""
CHARS_PER_TOKEN = 3.5


@dataclass(frozen=True, slots=True)
class Pauses:
    """Assumptions, in seconds: 100 keys a minute while typing on, more with thinking."""

    key: float = 0.15
    after_word: float = 0.12
    """Share of words after which the typist thinks."""
    after_line: float = 0.6
    think_median: float = 1.2
    think_sigma: float = 0.8


PAUSES = Pauses()


@dataclass(frozen=True, slots=True)
class Stretch:
    """Characters [start, end) of `text` are typed; the rest stands around them."""

    text: str
    start: int
    end: int


def stretches(choose: Random, length: int = 120) -> Iterator[Stretch]:
    """Stretches of whole lines without end."""
    texts = [Path(_origin(name)).read_text("utf-8") for name in FILES]
    while True:
        text = choose.choice(texts)
        start = text.find("\n", choose.randrange(len(text) // 4, len(text) - 4 * length)) + 1
        yield Stretch(text, start, text.index("\n", start + length) + 1)


def pause(choose: Random, text: str, at: int, pauses: Pauses = PAUSES) -> float:
    """Seconds before the key at offset `at` follows the one before it."""
    seconds = max(0.03, choose.gauss(pauses.key, pauses.key / 3))
    before = text[at - 1] if at else "\n"
    share = pauses.after_line if before == "\n" else pauses.after_word * (not before.isalnum())
    if choose.random() < share:
        seconds += choose.lognormvariate(math.log(pauses.think_median), pauses.think_sigma)
    return seconds


def wanted(text: str, at: int) -> str:
    """What the typist is going to type: the rest of the line; where it opens a block, up to four
    lines of the block as well."""
    end = text.find("\n", at)
    end = len(text) if end < 0 else end
    for _ in range(4 if text[at:end].rstrip().endswith(":") else 0):
        following = text.find("\n", end + 1)
        if following < 0 or not text[end + 1 : following].startswith(" "):
            break
        end = following
    return text[at:end]


def tokens(text: str) -> int:
    """About how many tokens the text has, its end mark included."""
    return 1 + math.ceil(len(text) / CHARS_PER_TOKEN)


def _origin(name: str) -> str:
    spec = importlib.util.find_spec(name)
    assert spec is not None and spec.origin is not None
    return spec.origin
