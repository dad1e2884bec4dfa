"""Training samples: documents → holes in the editor layout, as fixed-length token rows.

Layout, everything a multiple of the block size so that the hole starts on a block::

    <doc> <snip> other text <suf> suffix <pre> prefix [<bug> wrong text] <mid> | middle <eom> <pad>…

One hole a row is little to learn repairing from, so lines of the prefix are now and then written
as ``<bug> wrong line <mid> right line <eom>`` too.

The context is exactly `length - middle_rows` tokens, filled on the left with other text: pieces of
the same file and its neighbours that share names with the text around the hole, or a random window.
Three kinds: whole lines, spans inside a line (0–8 tokens), and repairs (a mutated line, or a line
that is missing or doubled).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np
import numpy.typing as npt

from clover_engine.text.tokenizer import Tokenizer
from clover_engine.train.mutate import mutate

_WORD = re.compile(r"[A-Za-z_]\w*")
WINDOW = 1600
"""Tokens of a document that one sample looks at."""


@dataclass(frozen=True, slots=True)
class Mix:
    """Shares of the sample kinds; the rest is spans inside a line."""

    repair: float = 0.35
    lines: float = 0.45
    annotated: float = 0.5
    """Share of rows whose prefix has repairs written into it."""
    annotated_lines: float = 0.3
    """Share of such a prefix's lines that are repairs."""
    related: float = 0.4
    """Share of rows that give room to related snippets."""


CONTEXT, WRONG, MIDDLE = 1.0, 0.0, 3.0
"""Weights of a token's AR loss by the part of the row that it stands in."""

Ids = list[int]
Weights = list[float]


@dataclass(frozen=True, slots=True)
class Window:
    """Tokens [start, end) of the corpus, all of document `doc`."""

    doc: int
    start: int
    end: int


class Documents:
    """`train.bin` and `train.idx.npy`: uint16 tokens of documents, each after a <doc>."""

    def __init__(self, directory: Path, split: str) -> None:
        self.tokens: npt.NDArray[np.uint16] = np.memmap(
            directory / f"{split}.bin", dtype=np.uint16, mode="r"
        )
        self.starts: npt.NDArray[np.int64] = np.load(directory / f"{split}.idx.npy")

    def window(self, rng: Random) -> Window:
        """Up to WINDOW tokens of one document, chosen so that every token is equally likely."""
        at = rng.randrange(len(self.tokens))
        doc = int(np.searchsorted(self.starts, at, side="right")) - 1
        first, end = self._bounds(doc)
        start = max(first, min(at, end - WINDOW))
        return Window(doc, start, min(end, start + WINDOW))

    def ids(self, window: Window) -> Ids:
        return self.tokens[window.start : window.end].tolist()  # type: ignore[no-any-return]

    def around(self, window: Window, rng: Random) -> list[Window]:
        """Other stretches of the same document and one of a neighbour (often the same package)."""
        first, end = self._bounds(window.doc)
        doc = min(max(0, window.doc + rng.choice((-2, -1, 1, 2))), len(self.starts) - 1)
        start, stop = self._bounds(doc)
        start = rng.randrange(start, max(start + 1, stop - WINDOW))
        found = [
            Window(window.doc, max(first, window.start - WINDOW), window.start),
            Window(window.doc, window.end, min(end, window.end + WINDOW)),
        ]
        if doc != window.doc:
            found.append(Window(doc, start, min(stop, start + WINDOW)))
        return [w for w in found if w.end - w.start > 16]

    def _bounds(self, doc: int) -> tuple[int, int]:
        """Where a document's text starts (after its <doc>) and ends."""
        end = int(self.starts[doc + 1]) if doc + 1 < len(self.starts) else len(self.tokens)
        return int(self.starts[doc]) + 1, end


@dataclass(frozen=True, slots=True)
class MaskedSpan:
    prefix: str
    middle: str
    suffix: str
    bug: str | None = None


@dataclass(frozen=True, slots=True)
class Batch:
    """Token rows [size, length], the weight of each token's AR loss (0 for padding and wrong
    text), and how many rows at the end hold the middle."""

    ids: npt.NDArray[np.int64]
    weights: npt.NDArray[np.float32]
    middle_rows: int


class Sampler:
    """Draws samples; the same seed and step give the same batch, so runs resume exactly."""

    def __init__(self, docs: Documents, tokenizer: Tokenizer, length: int, mix: Mix) -> None:
        self.docs, self.tok, self.length, self.mix = docs, tokenizer, length, mix
        names = ("pad", "eom", "doc", "snip", "suf", "pre", "bug", "mid")
        self.pad, self.eom, self.doc, self.snip, self.suf, self.pre, self.bug, self.mid = (
            tokenizer.required(f"<{name}>") for name in names
        )

    def batch(self, size: int, middle_rows: int, rng: Random) -> Batch:
        """Rows whose last `middle_rows` tokens hold the middle."""
        ids = np.empty((size, self.length), dtype=np.int64)
        weights = np.empty((size, self.length), dtype=np.float32)
        for i in range(size):
            ids[i], weights[i] = self._row(middle_rows, rng)
        return Batch(ids, weights, middle_rows)

    def _row(self, middle_rows: int, rng: Random) -> tuple[Ids, Weights]:
        while True:
            window = self.docs.window(rng)
            hole = self._hole(self.tok.decode(self.docs.ids(window)), middle_rows, rng)
            if hole is None:
                continue
            middle = [*self.tok.encode(hole.middle), self.eom]
            if len(middle) > middle_rows:
                continue
            size = self.length - middle_rows
            ids, weights = self._context(hole, size, self._snippets(hole, window, size, rng), rng)
            rest = middle_rows - len(middle)
            ids += middle + [self.pad] * rest
            weights += [MIDDLE] * len(middle) + [0.0] * rest
            return ids, weights

    def _snippets(self, hole: MaskedSpan, window: Window, size: int, rng: Random) -> Ids:
        """Related pieces of other text, the best one last, as the prompt has them; often none."""
        if rng.random() >= self.mix.related:
            return []
        texts = [self.tok.decode(self.docs.ids(w)) for w in self.docs.around(window, rng)]
        ids: Ids = []
        room = int(size * rng.uniform(0.08, 0.3))
        for piece in related(texts, hole.prefix[-600:] + hole.suffix[:300], rng):
            piece_ids = [self.snip, *self.tok.encode(piece)][: room - len(ids)]
            if len(piece_ids) > 12:
                ids = piece_ids + ids
        return ids

    def _context(
        self, hole: MaskedSpan, size: int, snippets: Ids, rng: Random
    ) -> tuple[Ids, Weights]:
        """Exactly `size` tokens ending in <mid>, and their weights."""
        t = self.tok
        bug = [] if hole.bug is None else [self.bug, *t.encode(hole.bug)[: size // 4]]
        room = size - len(bug) - len(snippets) - 4  # <doc> <suf> <pre> <mid>
        suffix = t.encode(hole.suffix[: 6 * room])[: int(room * rng.uniform(0.15, 0.45))]
        prefix, weights = self._prefix(hole.prefix[-6 * room :], rng)
        cut = max(0, len(prefix) - (room - len(suffix)))
        prefix, weights = prefix[cut:], weights[cut:]
        spare = room - len(suffix) - len(prefix)
        other = self.docs.ids(self.docs.window(rng)) if spare else []
        filler = [self.snip, *other[: spare - 1]] if spare else []
        filler += [self.snip] * (spare - len(filler)) + snippets
        ids = [self.doc, *filler, self.suf, *suffix, self.pre, *prefix, *bug, self.mid]
        before = len(filler) + len(suffix) + 3
        return ids, [CONTEXT] * before + weights + [WRONG] * (len(bug) + 1)

    def _prefix(self, text: str, rng: Random) -> tuple[Ids, Weights]:
        """Tokens of the prefix, in some rows with repairs written into it."""
        if rng.random() >= self.mix.annotated:
            ids = self.tok.encode(text)
            return ids, [CONTEXT] * len(ids)
        ids, weights, plain = [], [], ""
        lines = text.splitlines(keepends=True)
        last = lines.pop() if lines else ""  # ends at the hole
        for i, line in enumerate(lines):
            body = line.strip()
            wrong = None
            if len(body) > 4 and rng.random() < self.mix.annotated_lines:
                wrong = _wrong(body, _WORD.findall("".join(lines[max(0, i - 10) : i + 3])), rng)
            if wrong is None:
                plain += line
                continue
            indent, end = line[: line.index(body)], line[line.index(body) + len(body) :]
            before = self.tok.encode(plain + indent)
            bug, right = self.tok.encode(wrong), self.tok.encode(body)
            ids += [*before, self.bug, *bug, self.mid, *right, self.eom]
            weights += [CONTEXT] * len(before) + [WRONG] * (len(bug) + 2)
            weights += [MIDDLE] * (len(right) + 1)
            plain = end
        tail = self.tok.encode(plain + last)
        return ids + tail, weights + [CONTEXT] * len(tail)

    def _hole(self, text: str, middle_rows: int, rng: Random) -> MaskedSpan | None:
        lines = text.splitlines(keepends=True)
        if len(lines) < 6:
            return None
        kind = rng.random()
        if middle_rows <= 32 and kind < self.mix.repair:
            return _repair(lines, rng)
        if kind < self.mix.repair + self.mix.lines or middle_rows > 32:
            return _lines(lines, middle_rows, rng)
        return _span(lines, rng)


def related(texts: list[str], near: str, rng: Random) -> list[str]:
    """Pieces of 4–14 lines of `texts` that share names with `near`, those that share most first."""
    names = set(_WORD.findall(near))
    scored = []
    for text in texts:
        lines = text.splitlines(keepends=True)[1:-1]  # the ends of a window are torn
        at = 0
        while at < len(lines):
            count = rng.randint(4, 14)
            piece = "".join(lines[at : at + count]).strip("\r\n")
            at += count
            words = set(_WORD.findall(piece))
            if words & names:
                scored.append((len(words & names) / (len(words) + 8) ** 0.5, piece))
    scored.sort(key=lambda found: -found[0])
    return [piece for _, piece in scored[:6]]


def _code_line(lines: list[str], rng: Random) -> int | None:
    for _ in range(8):
        i = rng.randrange(2, len(lines) - 1)
        text = lines[i].strip()
        if len(text) > 3 and not text.startswith(("#", '"', "'", "import ", "from ")):
            return i
    return None


def _lines(lines: list[str], middle_rows: int, rng: Random) -> MaskedSpan | None:
    """One whole line, or a few; the prefix ends at a line start, after the indent, or mid-line."""
    i = rng.randrange(1, len(lines) - 1)
    count = 1 if middle_rows <= 16 or rng.random() < 0.5 else rng.randint(2, 6)
    before, middle = "".join(lines[:i]), "".join(lines[i : i + count]).rstrip("\r\n")
    rest = "".join(lines[i : i + count])[len(middle) :] + "".join(lines[i + count :])
    if not middle.strip():
        return None
    where = rng.random()
    indent = len(middle) - len(middle.lstrip())
    cut = 0 if where < 0.3 else indent
    if where > 0.7 and len(middle) > indent + 2:
        cut = rng.randrange(indent, len(middle) - 1)
    return MaskedSpan(before + middle[:cut], middle[cut:], rest)


def _span(lines: list[str], rng: Random) -> MaskedSpan | None:
    """0–30 characters inside one line; cut at word edges mostly, anywhere sometimes."""
    i = _code_line(lines, rng)
    if i is None:
        return None
    line = lines[i].rstrip("\r\n")
    edges = sorted({e for m in re.finditer(r"\w+|[^\w\s]+", line) for e in m.span()})
    a = rng.choice(edges) if rng.random() < 0.8 else rng.randrange(len(line))
    later = [e for e in edges if a <= e <= a + 30]
    b = rng.choice(later) if later and rng.random() < 0.8 else min(len(line), a + rng.randrange(30))
    before, after = "".join(lines[:i]), lines[i][len(line) :] + "".join(lines[i + 1 :])
    return MaskedSpan(before + line[:a], line[a:b], line[b:] + after)


def _repair(lines: list[str], rng: Random) -> MaskedSpan | None:
    """<bug> wrong line <mid> right line; the hole holds the line's content after its indent."""
    i = _code_line(lines, rng)
    if i is None:
        return None
    line = lines[i].rstrip("\r\n")
    body = line.lstrip()
    indent, end = line[: len(line) - len(body)], lines[i][len(line) :]
    near = _WORD.findall("".join(lines[max(0, i - 12) : i + 6]))
    before, after = "".join(lines[:i]), end + "".join(lines[i + 1 :])
    if rng.random() < 0.12:  # the line is missing: insert it
        return MaskedSpan(before + indent, body, "\n" + indent + after.lstrip("\r\n \t"), bug="")
    wrong = _wrong(body, near, rng)
    return None if wrong is None else MaskedSpan(before + indent, body, after, bug=wrong)


def _wrong(body: str, names: list[str], rng: Random) -> str | None:
    """A mutated line mostly; one in twelve is right already and stays."""
    return body if rng.random() < 0.08 else mutate(body, names, rng)


def batches(
    sampler: Sampler, size: int, seed: int, first_step: int, stride: int = 1
) -> Iterator[tuple[int, Batch]]:
    """Endless (step, batch): every `stride`-th step from `first_step` on."""
    step = first_step
    while True:
        rng = Random(f"{seed}/{step}")
        middle_rows = rng.choices((32, 64), weights=(5, 1))[0]
        yield step, sampler.batch(size, middle_rows, rng)
        step += stride
