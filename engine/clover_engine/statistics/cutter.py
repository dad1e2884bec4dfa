"""clover-nano's tokenizer in plain Python, for processes that have only the base install.

The counts of this package are about tokens, and the index's process, the server and the patcher
have neither `tokenizers` nor numpy. `Cutter` reads the same ``tokenizer.json`` and gives the same
ids (`tests/engine/statistics/test_cutter.py`): the file's own pattern cuts the text into words,
byte-pair merges cut words into tokens, and words are remembered.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from pathlib import Path

from clover_engine.errors import CheckpointError
from clover_engine.text.tokenizer import byte_characters

TOKENIZER = Path(__file__).parents[1] / "weights" / "nano" / "tokenizer.json"
SEPARATOR = 3
"""The id between texts: the tokenizer's ``<doc>``, which no text can contain."""
_BLANK = r"\t\x0b\x0c \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
"""Unicode's white space but CR and LF. Python's ``\\s`` has four control characters more."""
_REMEMBERED = 200_000
"""Words whose tokens are kept; then all are forgotten (some 30 MB)."""


class Cutter:
    """Text → token ids. Not for several threads at once: they would fill one memory."""

    def __init__(self, pattern: str, vocabulary: dict[str, int], merges: list[list[str]]) -> None:
        self._words = re.compile(pattern)
        self._ids = vocabulary
        self._ranks = {(a, b): rank for rank, (a, b) in enumerate(merges)}
        self._shown = {byte: char for char, byte in byte_characters().items()}
        self._known: dict[str, tuple[int, ...]] = {}
        self.size = max(vocabulary.values()) + 1

    @classmethod
    def load(cls, path: Path = TOKENIZER) -> Cutter:
        """Raises CheckpointError where the file is missing or another kind of tokenizer."""
        try:
            spec = json.loads(path.read_text(encoding="utf-8"))
            pattern = spec["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"]
            pattern = pattern.replace(r"[^\S\r\n]", f"[{_BLANK}]").replace(r"\s", rf"{_BLANK}\r\n")
            merges = [m.split(" ") if isinstance(m, str) else m for m in spec["model"]["merges"]]
            return cls(pattern, spec["model"]["vocab"], merges)
        except (OSError, ValueError, LookupError, TypeError, re.error) as error:
            raise CheckpointError(
                f"cannot use the tokenizer {path}: {error}; install clover-code again"
            ) from error

    def cut(self, text: str) -> list[int]:
        """Token ids of `text`; lone surrogates become ``?``."""
        if not text.isascii():
            text = text.encode("utf-8", "replace").decode("utf-8")
        known = self._known
        ids: list[int] = []
        for word in self._words.findall(text):
            found = known.get(word)
            ids += self._remember(word) if found is None else found
        return ids

    def _remember(self, word: str) -> tuple[int, ...]:
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
        parts = [self._shown[byte] for byte in word.encode("utf-8")]
        self._known[word] = found = tuple(self._ids[part] for part in self._merged(parts))
        return found

    def _merged(self, parts: list[str]) -> list[str]:
        """Joins the pair of the lowest rank, leftmost first, until none has a rank."""
        ranks, never = self._ranks, len(self._ranks)
        while len(parts) > 1:
            pairs = [ranks.get(pair, never) for pair in zip(parts, parts[1:], strict=False)]
            best = min(pairs)
            if best == never:
                break
            joined, at = [], 0
            while at < len(parts):
                if at < len(pairs) and pairs[at] == best:
                    joined.append(parts[at] + parts[at + 1])
                    at += 2
                else:
                    joined.append(parts[at])
                    at += 1
            parts = joined
        return parts


@lru_cache(1)
def cutter() -> Cutter:
    """The shipped tokenizer, read once."""
    return Cutter.load()
