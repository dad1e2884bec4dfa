"""Where is the known repair among all candidates, before any test is run?

    python -m bench.fix.rank [--engine none|local] [--cases 100] [--lines 5] [--docs FILE]

Takes functions from permissively licensed packages, breaks one line of each with random edits of
one to three tokens (independent of the templates and of the training data's mutations), hands
`--lines` equally suspicious lines to the candidate source, the broken one among them, and looks
at the rank of the edit that restores the original. Prints the share of repairs that are among
the candidates, MRR, top-1/10/100, and the same by what was broken.

`--docs` reads functions from a JSON-lines file with a `text` field (the corpus's validation
split: text that the embedded model has not seen) instead of the installed packages. The
weights of the ranking are fitted by `deltas.py`.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import keyword
import math
import random
import statistics
import sys
import time
import tokenize
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from clover_engine.api import Engine
from clover_engine.train.corpus import HELD_OUT
from clover_patcher.edits import apply_edits
from clover_patcher.propose.source import CandidateSource, Options
from clover_patcher.types import Location

PACKAGES = (
    "networkx", "pygments", "hatchling", "packaging", "tomlkit", "markdown_it", "yaml", "anyio",
    "identify", "sortedcontainers", "pyparsing", "virtualenv", "dateutil",
)  # fmt: skip
_LIMIT = 3000
_OPERATORS = ("+", "-", "*", "/", "//", "%", "<", "<=", ">", ">=", "==", "!=", "&", "|")
_WORDS = ("and", "or", "not", "in", "is", "True", "False", "None")


@dataclass(frozen=True)
class Case:
    """One broken function. `lines` are the suspicious ones in the broken text."""

    broken: bytes
    original: bytes
    lines: tuple[int, ...]
    how: str


def functions(args: argparse.Namespace, rng: random.Random) -> Iterator[str]:
    """Sources of files that hold functions, in random order."""
    if args.docs:
        lines = Path(args.docs).read_text(encoding="utf-8").split("\n")
        texts = [json.loads(line)["text"] for line in lines if line]
    else:
        site = Path(tokenize.__file__).parent / "site-packages"
        site = next((Path(p) for p in sys.path if p.endswith("site-packages")), site)
        names = [n for n in PACKAGES if n not in HELD_OUT]
        files = sorted(f for n in names for f in (site / n).rglob("*.py") if "test" not in f.parts)
        texts = [f.read_text(encoding="utf-8", errors="replace") for f in files]
    texts = [t for t in texts if 500 < len(t) < 30_000 and "\r" not in t and t.isascii()]
    rng.shuffle(texts)
    yield from texts


def cases(args: argparse.Namespace) -> Iterator[Case]:
    """One case from each file, until there are enough."""
    rng, made = random.Random(args.seed), 0
    for text in functions(args, rng):
        try:
            found = _spans(ast.parse(text))
        except SyntaxError:
            continue
        if found and (case := _break(text, rng.choice(found), args.lines, rng)):
            yield case
            made += 1
        if made >= args.cases:
            return


def _spans(tree: ast.Module) -> list[tuple[int, int]]:
    """First and last line of the bodies of middle-sized functions, without docstrings."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[1:] if ast.get_docstring(node) is not None else node.body
            if body and 4 <= (node.end_lineno or 0) - body[0].lineno <= 40:
                found.append((body[0].lineno, node.end_lineno or 0))
    return found


def _break(text: str, span: tuple[int, int], count: int, rng: random.Random) -> Case | None:
    """Random edits of the span's tokens until one parses and means something else."""
    tokens = [
        t
        for t in tokenize.generate_tokens(io.StringIO(text).readline)
        if span[0] <= t.start[0] <= span[1] and t.end[0] == t.start[0]
        and t.type in (tokenize.NAME, tokenize.OP, tokenize.NUMBER, tokenize.STRING)
    ]  # fmt: skip
    if len(tokens) < 8:
        return None
    before = ast.dump(ast.parse(text))
    lines = text.splitlines(keepends=True)
    for _ in range(60):
        edited, at, how = _mutate(lines, tokens, span, rng)
        try:
            if ast.dump(ast.parse("".join(edited))) == before:
                continue
        except (SyntaxError, ValueError):
            continue
        code = sorted({t.start[0] for t in tokens} - {at})
        others = [n if how != "line" or n < at else n - 1 for n in code]
        lost = [min(at, len(edited))] if how == "line" else [at]
        picked = lost + rng.sample(others, min(count - 1, len(others)))
        return Case("".join(edited).encode(), text.encode(), tuple(dict.fromkeys(picked)), how)
    return None


def _mutate(
    lines: list[str], tokens: list[tokenize.TokenInfo], span: tuple[int, int], rng: random.Random
) -> tuple[list[str], int, str]:
    """(all lines after the edit, the line it was on, what was done)."""
    i = rng.randrange(len(tokens))
    token, size = tokens[i], rng.choice((1, 1, 2, 3))
    row = token.start[0]
    how = rng.choices(("replace", "delete", "copy", "line"), (6, 2, 2, 0.7))[0]
    if how == "line":
        return lines[: row - 1] + lines[row:], row, how
    last = tokens[min(i + size - 1, len(tokens) - 1)]
    end = last.end[1] if how == "delete" and last.start[0] == row else token.end[1]
    new = "" if how == "delete" else _other(token, tokens, rng)
    if how == "copy":
        j = rng.randrange(len(tokens))
        piece = [t.string for t in tokens[j : j + size] if t.start[0] == tokens[j].start[0]]
        new = " ".join([token.string, *piece])
    line = lines[row - 1]
    changed = line[: token.start[1]] + new + line[end:]
    label = {tokenize.NAME: "name", tokenize.OP: "operator"}.get(token.type, "constant")
    if keyword.iskeyword(token.string):
        label = "keyword"
    return lines[: row - 1] + [changed] + lines[row:], row, label if how == "replace" else how


def _other(token: tokenize.TokenInfo, tokens: list[tokenize.TokenInfo], rng: random.Random) -> str:
    if token.type == tokenize.NUMBER:
        return rng.choice(("0", "1", "2", "-1", "3", "10"))
    if token.type == tokenize.OP and token.string in _OPERATORS:
        return rng.choice(_OPERATORS)
    if token.string in _WORDS:
        return rng.choice((*_WORDS, ""))
    same = [t.string for t in tokens if t.type == token.type and t.string != token.string]
    return rng.choice(same) if same else ""


def rank(case: Case, engine: Engine | None) -> int | None:
    """Place of the repair among the candidates; None if it is not among them."""
    place = 0
    for batch in _source(case, engine, Options().answers_per_batch).batches(_later()):
        for candidate in batch:
            place += 1
            if _squeezed(apply_edits(case.broken, candidate.edits)) == _squeezed(case.original):
                return place
        if place >= _LIMIT:
            break
    return None


def _source(case: Case, engine: Engine | None, answers: int) -> CandidateSource:
    patience = 600.0 if engine else 0.0
    options = Options(first_wait_s=patience, wait_s=patience, answers_per_batch=answers)
    where = [Location("a.py", line, 1.0) for line in case.lines]
    return CandidateSource({"a.py": case.broken}, where, engine, options=options)


def _later() -> float:
    return time.monotonic() + 600


def _squeezed(content: bytes) -> bytes:
    return b"".join(content.split())


def report(rows: list[tuple[str, int | None]]) -> None:
    """One table line for each way of breaking, and one for all."""
    groups = {"all": rows, **{how: [r for r in rows if r[0] == how] for how in _kinds(rows)}}
    print(f"{'broken':10} {'cases':>5} {'found':>6} {'MRR':>6} {'top1':>6} {'top10':>6} "
          f"{'top100':>6} {'median':>7}")  # fmt: skip
    for name, group in groups.items():
        ranks = [r for _, r in group if r is not None]
        share = [sum(r <= k for r in ranks) / len(group) for k in (1, 10, 100)]
        mrr = sum(1 / r for r in ranks) / len(group)
        middle = statistics.median([r if r is not None else math.inf for _, r in group])
        print(f"{name:10} {len(group):5d} {len(ranks) / len(group):6.1%} {mrr:6.3f} "
              + " ".join(f"{s:6.1%}" for s in share) + f" {middle:7.0f}")  # fmt: skip


def _kinds(rows: list[tuple[str, int | None]]) -> list[str]:
    return sorted({how for how, _ in rows})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--engine", choices=("none", "local"), default="none")
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--lines", type=int, default=5)
    parser.add_argument("--docs", default="")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--misses", action="store_true", help="print the repairs not found")
    args = parser.parse_args()
    warnings.simplefilter("ignore", SyntaxWarning)  # about the broken texts: `1if x`
    engine: Engine | None = None
    if args.engine == "local":
        from clover_engine.worker.local import LocalEngine

        engine = LocalEngine()
    rows, started = [], time.monotonic()
    for case in cases(args):
        rows.append((case.how, rank(case, engine)))
        if rows[-1][1] is None and args.misses:
            _show(case)
    report(rows)
    print(f"{time.monotonic() - started:.0f} s, engine {args.engine}, {args.lines} lines a case")


def _show(case: Case) -> None:
    old, new = case.broken.decode().splitlines(), case.original.decode().splitlines()
    for a, b in zip(old, new, strict=False):
        if a != b:
            print(f"- {a.strip()}\n+ {b.strip()}   [{case.how}]\n")
            return


if __name__ == "__main__":
    main()
