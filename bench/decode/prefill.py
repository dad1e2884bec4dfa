"""How much of a context is read again at each keystroke, and what that costs.

    python -m bench.decode.prefill [--keystrokes 300] [--context 1024] [--checkpoint DIR] [--json]

Real files are typed in, character by character, at places within them, with the text after the
cursor and two snippets in the context; one keystroke in twelve deletes. Every keystroke's context
is built as the engine builds it and prefilled from what the cache has; the word being typed is left
out of the prefix and forced, as the language server asks for it. Beside that: going back and forth
between two files. CPU time is of one thread.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import torch
from bench.editor.lsp import places

from clover_engine.api import Snippet
from clover_engine.checkpoint.weights import load_model
from clover_engine.decode.common import Limits, Tally
from clover_engine.inprocess.prefill import PrefixCache
from clover_engine.model import Clover
from clover_engine.text.prompt import Prompt
from clover_engine.text.tokenizer import Tokenizer
from clover_engine.worker.local import checkpoint_path

MAX_TOKENS = 32
SNIPPETS = (
    Snippet("def clamp(value, low, high):\n    return max(low, min(value, high))\n"),
    Snippet("class Reader:\n    def __init__(self, path):\n        self.path = path\n"),
)


def keystrokes(count: int) -> Iterator[tuple[int, str, str]]:
    """(place, prefix, suffix) after each keystroke."""
    choose, done = Random(5), 0
    for number, (text, start, end) in enumerate(places(count, seed=3)):
        at = start
        while at < end and done < count:
            at = at - 1 if at > start and choose.random() < 1 / 12 else at + 1
            done += 1
            yield number, text[:at], text[end:]


def context(prompt: Prompt, prefix: str, suffix: str) -> list[int]:
    """As `EmbeddedEngine.infill` builds it; the word at the cursor is forced, not read."""
    whole = prefix.rstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789")
    forced = len(prefix) - len(whole)
    return prompt.context(whole, suffix, None, SNIPPETS, MAX_TOKENS + forced + 1)


class Measured:
    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.computed: list[int] = []
        self.cpu_ms: list[float] = []

    def ask(self, cache: PrefixCache, tokens: list[int]) -> None:
        began = time.thread_time()
        _, cached = cache.start(tokens, Limits(0), Tally())
        self.cpu_ms.append(1000 * (time.thread_time() - began))
        self.tokens.append(len(tokens))
        self.computed.append(len(tokens) - cached)

    def summary(self) -> dict[str, float]:
        counts, times = sorted(self.computed), sorted(self.cpu_ms)
        p95 = int(0.95 * len(counts))
        return {
            "contexts": len(counts),
            "tokens of a context, mean": round(statistics.mean(self.tokens)),
            "computed again, % of tokens": round(100 * sum(counts) / sum(self.tokens), 2),
            "tokens computed, median": statistics.median(counts),
            "tokens computed, p95": counts[p95],
            "contexts computed by more than half": sum(
                2 * c > t for c, t in zip(self.computed, self.tokens, strict=True)
            ),
            "CPU ms, median": round(statistics.median(times), 2),
            "CPU ms, p95": round(times[p95], 2),
        }


def typing(model: Clover, prompt: Prompt, count: int) -> dict[str, float]:
    """Every place's first context is left out: nothing can be known of it."""
    cache, measured, last = PrefixCache(model), Measured(), -1
    for place, prefix, suffix in keystrokes(count):
        tokens = context(prompt, prefix, suffix)
        (measured if place == last else Measured()).ask(cache, tokens)
        last = place
    return measured.summary()


def switching(model: Clover, prompt: Prompt, count: int) -> dict[str, float]:
    """A few characters in one file, then in another, and back."""
    cache, measured = PrefixCache(model), Measured()
    files = places(200, seed=4)[:2]
    for i in range(count):
        text, start, end = files[i // 5 % 2]
        at = start + i // 10 * 5 + i % 5
        (measured if i >= 10 else Measured()).ask(cache, context(prompt, text[:at], text[end:]))
    return measured.summary()


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--keystrokes", type=int, default=300)
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--checkpoint", type=Path, default=checkpoint_path())
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    model = load_model(args.checkpoint)
    prompt = Prompt(Tokenizer.load(args.checkpoint / "tokenizer.json"), args.context)
    found = {
        "typing": typing(model, prompt, args.keystrokes),
        "two files": switching(model, prompt, 60),
    }
    if args.json:
        print(json.dumps(found))
        return
    for part, rows in found.items():
        print(f"\n{part}")
        for name, value in rows.items():
            print(f"  {name:38} {value:g}")


if __name__ == "__main__":
    main()
