"""Counts of token n-grams of any order in some texts, from one array: six bytes a token.

`Grams` keeps the tokens (two bytes each) and their positions (four bytes each), sorted by the
token there, then the one before it, and so on: texts read backwards. All places where a context
of k tokens ended are neighbours in that order, and a part of those where its last k - 1 did, so
that the counts of all orders come from narrowing one range (Manber and Myers 1993, suffix
arrays; nested as in cache language models, Kuhn and De Mori 1990). Plain Python, no numpy.
"""

from __future__ import annotations

import mmap
import os
import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from pathlib import Path

from clover_engine.statistics.cutter import SEPARATOR

ORDERS = 12
"""The longest context, in tokens."""
MOST_TOKENS = 4_000_000
"""Texts beyond that are left out (24 MB of memory, some 13 MB of source)."""
_VALUES = 1 << 16
_HEADER = struct.Struct("<8sQQ")
_MAGIC = b"CLVRNGM1"


class Grams:
    """The tokens of some texts and their order. Immutable; any thread.

    `tokens`: uint16 [n], begins with `ORDERS` + 1 separators, and one ends every text. `order`:
    uint32 [n - ORDERS], positions in `tokens`. Contexts that reach over the beginning of a text
    are counted roughly. `starts`: where the positions of each token begin.
    """

    def __init__(self, tokens: Sequence[int], order: Sequence[int]) -> None:
        self.tokens, self.order = tokens, order
        self.starts = _starts(tokens, order)

    @classmethod
    def of(cls, texts: Iterable[Sequence[int]]) -> Grams:
        """Of texts given as token ids."""
        tokens = array("H", [SEPARATOR] * (ORDERS + 1))
        for text in texts:
            if len(tokens) + len(text) >= MOST_TOKENS:
                continue
            tokens.extend(text)
            tokens.append(SEPARATOR)
        return cls(tokens, _sorted(tokens))

    @classmethod
    def open(cls, path: Path) -> Grams:
        """Maps a file that `save` wrote. Raises OSError where it is missing or damaged."""
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            try:
                magic, tokens, order = _HEADER.unpack(file.read(_HEADER.size))
            except struct.error as error:
                raise OSError(f"{path} is no file of counts") from error
            padded = tokens + tokens % 2
            if magic != _MAGIC or size != _HEADER.size + 2 * padded + 4 * order or not order:
                raise OSError(f"{path} is no file of counts")
            view = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        body = view[_HEADER.size :]
        return cls(body[: 2 * tokens].cast("H"), body[2 * padded :].cast("I"))

    def save(self, path: Path) -> None:
        """Writes the file beside `path` and puts it in place at once. Raises OSError."""
        temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
        tokens = array("H", self.tokens)
        tokens.extend([0] * (len(tokens) % 2))
        try:
            with temporary.open("wb") as out:
                out.write(_HEADER.pack(_MAGIC, len(self.tokens), len(self.order)))
                out.write(tokens.tobytes())
                out.write(array("I", self.order).tobytes())
            os.replace(temporary, path)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise

    def __len__(self) -> int:
        return len(self.order)

    def contexts(self, context: Sequence[int]) -> list[int]:
        """How often the last k tokens of `context` stand here, for k = 1, 2, … while they do."""
        return self._narrowed(context[: -ORDERS - 1 : -1], 0)

    def followed(self, context: Sequence[int], token: int) -> list[int]:
        """How often `token` follows the last k tokens of `context`, for k = 0, 1, … while it does.

        At index 0 stands how often it occurs at all.
        """
        return self._narrowed((token, *context[: -ORDERS - 1 : -1]), 0)

    def _narrowed(self, backwards: Sequence[int], depth: int) -> list[int]:
        """Sizes of the ranges that agree with more and more of a text read backwards."""
        if not backwards:
            return []
        tokens, order = self.tokens, self.order
        low, high = self.starts[backwards[0]], self.starts[backwards[0] + 1]
        sizes = []
        while low < high:
            sizes.append(high - low)
            depth += 1
            if depth == len(backwards):
                break
            token = backwards[depth]
            if high - low == 1:
                if tokens[order[low] - depth] != token:
                    break
                continue

            def before(at: int, depth: int = depth) -> int:
                return tokens[at - depth]

            low = bisect_left(order, token, low, high, key=before)
            high = bisect_right(order, token, low, high, key=before)
        return sizes


def _sorted(tokens: array[int]) -> array[int]:
    """Positions from `ORDERS` on, by the token there and the `ORDERS` before it."""
    backwards = array("H", reversed(tokens))
    if sys.byteorder == "little":
        backwards.byteswap()
    keys = backwards.tobytes()
    last, width = len(tokens) - 1, 2 * (ORDERS + 1)
    groups: dict[int, list[int]] = {}
    for at in range(ORDERS, len(tokens)):
        groups.setdefault(tokens[at], []).append(at)
    order = array("I")
    for token in sorted(groups):  # one token at a time: the keys take ten times the memory
        group = groups.pop(token)
        group.sort(key=lambda at: keys[2 * (last - at) : 2 * (last - at) + width])
        order.extend(group)
    return order


def _starts(tokens: Sequence[int], order: Sequence[int]) -> array[int]:
    """For each token value where its positions begin in `order`; one entry more for the end."""
    starts = array("I")
    low = 0
    while low < len(order):
        token = tokens[order[low]]
        starts.extend([low] * (token + 1 - len(starts)))
        low = bisect_right(order, token, low, key=lambda at: tokens[at])
    starts.extend([low] * (_VALUES + 1 - len(starts)))
    return starts
