"""How often the repository itself has the next line: look-ups on held-out packages.

    python -m bench.suggest.lookup [--holes N] [--extra FOLDER] [--packages NAME …] [--fit]

Every package is indexed by itself. A hole is a whole line (as in `bench.holes`), asked for with the
cursor after its indentation ("line"), and again after a random token of it ("inside"). The file
itself is given without the line. Reported are the share of holes that have an answer, of those
where the first line of the best answer is exactly the missing text, and the precision by
`Lookup.matched` and by confidence. `--fit` prints the weights of `clover_lsp.context.confidence`
for the packages asked.

`--extra` holds packages that are not installed (unpacked wheels of held-out packages).
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import re
import shutil
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from clover_lsp.context.confidence import NAMES, confidence, features
from clover_lsp.context.lookup import Query, own_sources, search
from clover_lsp.context.sources import candidates, read_sources
from clover_lsp.context.store import Reader
from clover_lsp.context.types import Lookup
from clover_lsp.context.worker import Worker

from .holes import PACKAGES, Hole, holes

EXTRA = ("trio", "jedi", "flask", "requests", "werkzeug", "starlette", "httpx", "responses")
BUCKETS = (2, 4, 8, 16, 32, 64)
_TOKEN_END = re.compile(r"\w+\s*|[^\w\s]\s*")


@dataclass(frozen=True)
class Answer:
    """One question and what came back."""

    package: str
    kind: str
    lookup: Lookup | None
    right: bool
    milliseconds: float


def inside(hole: Hole) -> Hole | None:
    """The same line with the cursor after one of its tokens, chosen by hash."""
    ends = [m.end() for m in _TOKEN_END.finditer(hole.middle)][:-1]
    if not ends:
        return None
    at = ends[int(hashlib.sha256(hole.middle.encode()).hexdigest(), 16) % len(ends)]
    return Hole(hole.path, hole.line, hole.prefix + hole.middle[:at], hole.middle[at:], hole.suffix)


def index(package: str, folder: Path) -> tuple[Path, Reader]:
    """A copy of the package below `folder`, and its index."""
    spec = importlib.util.find_spec(package)
    assert spec is not None and spec.submodule_search_locations
    root = folder / f"root-{package}"
    shutil.copytree(spec.submodule_search_locations[0], root / package)
    store = folder / f"{package}.sqlite"
    worker = Worker(store, root, [], lambda message: None)
    worker.serve({"id": 1, "op": "scan"})
    worker.writer.close()
    return root, Reader(store)


def ask(root: Path, reader: Reader, hole: Hole) -> tuple[tuple[Lookup, ...], float]:
    """The look-ups of one hole and the milliseconds of this thread's time they took."""
    begun = time.thread_time()
    query = Query(hole.prefix, hole.suffix)
    sources = own_sources(query, hole.path)
    sources += read_sources(root, candidates(reader, query, hole.path, ()))
    found = search(query, sources)
    return found, (time.thread_time() - begun) * 1e3


def answers(packages: tuple[str, ...], count: int) -> Iterator[Answer]:
    """Asks `count` whole lines of every package, and as many places inside of lines."""
    with tempfile.TemporaryDirectory() as folder:
        for package in packages:
            root, reader = index(package, Path(folder))
            for hole in holes(count, (package,)):
                for kind, asked in (("line", hole), ("inside", inside(hole))):
                    if asked is None:
                        continue
                    found, spent = ask(root, reader, asked)
                    best = found[0] if found else None
                    first = best.text.partition("\n")[0].strip() if best else ""
                    yield Answer(package, kind, best, first == asked.middle.strip(), spent)
            reader.close()


def report(all_: list[Answer]) -> None:
    """Prints the figures."""
    for kind in ("line", "inside"):
        asked = [a for a in all_ if a.kind == kind]
        with_answer = [a for a in asked if a.lookup]
        right = sum(a.right for a in asked)
        times = sorted(a.milliseconds for a in asked)
        print(
            f"{kind}: {len(asked)} holes, answered {len(with_answer) / len(asked):.1%}, exact "
            f"{right / len(asked):.1%}; CPU ms median {statistics.median(times):.2f}, p95 "
            f"{times[int(0.95 * len(times))]:.2f}"
        )
        print("  matched   answers  precision   with equal text below: answers  precision")
        for low, high in zip((0, *BUCKETS), (*BUCKETS, 10**9), strict=True):
            part = [a for a in with_answer if a.lookup and low <= a.lookup.matched < high]
            both = [a for a in part if a.lookup and a.lookup.followed]
            if part:
                print(
                    f"  {low:3d}-{'' if high > 999 else high - 1:<4} {len(part):8d} "
                    f"{_share(part):10} {len(both):32d} {_share(both):>10}"
                )
        print("  confidence  answers  precision")
        for low in range(10):
            part = [a for a in with_answer if a.lookup and int(confidence(a.lookup) * 10) == low]
            print(f"  {low / 10:.1f}-{low / 10 + 0.1:.1f} {len(part):12d} {_share(part):>10}")
        for threshold in (0.3, 0.5, 0.7, 0.9):
            shown = [a for a in with_answer if a.lookup and confidence(a.lookup) >= threshold]
            print(
                f"  confidence ≥ {threshold}: shown {len(shown) / len(asked):.1%}, "
                f"precision {_share(shown)}"
            )
    per_package: Counter[str] = Counter(a.package for a in all_ if a.right and a.kind == "line")
    print("exact lines by package:", dict(per_package))


def _share(part: list[Answer]) -> str:
    return f"{sum(a.right for a in part) / len(part):.1%}" if part else "-"


def fit(all_: list[Answer]) -> None:
    """Prints the weights of a logistic model of right answers (Newton's method, ridge 1)."""
    rows = [(features(a.lookup), a.right) for a in all_ if a.lookup]
    x = np.array([row for row, _ in rows])
    y = np.array([right for _, right in rows], dtype=float)
    weights = np.zeros(x.shape[1])
    for _ in range(30):
        p = 1 / (1 + np.exp(-x @ weights))
        slope = x.T @ (y - p) - weights
        curve = (x * (p * (1 - p))[:, None]).T @ x + np.eye(x.shape[1])
        weights += np.linalg.solve(curve, slope)
    for name, weight in zip(NAMES, weights, strict=True):
        print(f"    {weight:.3f},  # {name}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures look-ups on held-out packages.")
    parser.add_argument("--holes", type=int, default=200, help="per package (default: 200)")
    parser.add_argument("--extra", metavar="FOLDER", help="packages that are not installed")
    parser.add_argument("--packages", nargs="+")
    parser.add_argument("--fit", action="store_true", help="print the table of confidences")
    args = parser.parse_args()
    if args.extra:
        sys.path.insert(0, args.extra)
    packages = tuple(args.packages or (*PACKAGES, *(EXTRA if args.extra else ())))
    found = list(answers(packages, args.holes))
    report(found)
    if args.fit:
        fit(found)


if __name__ == "__main__":
    main()
