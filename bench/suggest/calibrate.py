"""How often is a model's suggestion exactly right, given how sure the model seems?

    python -m bench.suggest.calibrate [--holes 200] [--checkpoint DIR] [--no-heal]

Run it after every new checkpoint and copy the line it prints last into
`engine/clover_engine/gate.py`: that is all a retrained model needs.

Asks for the rest of lines of held-out packages (`holes.py`) as the language server would: at the
line's start, inside a word and after a blank, shaped and polished by `clover_lsp.suggest`. A
suggestion is right if it is the rest of the line, character for character. A logistic regression
is fitted on the mean token probability and the text's length. The reliability table is
cross-validated (five folds by file), so that no suggestion is judged by a curve that has seen its
file. `--points FILE` keeps what was asked, so that another fit takes seconds. Look-ups have their
own bench, `lookup.py`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from bench.suggest.holes import Hole
from bench.suggest.holes import holes as find_holes

from clover_engine.api import InfillRequest
from clover_engine.gate import SHOWN_CONFIDENCE, model_features
from clover_engine.worker.local import checkpoint_path
from clover_lsp.context.types import Place
from clover_lsp.suggest.polish import polish
from clover_lsp.suggest.shape import Plan, plan
from clover_lsp.suggest.types import Draft

Vector = npt.NDArray[np.float64]
FOLDS = 5
RIDGE = 1.0
PRECISIONS = (0.3, 0.5, 0.7, 0.9)


@dataclass(frozen=True)
class Point:
    """One suggestion: where, what the fit sees of it, and whether it was right."""

    path: str
    kind: str
    features: tuple[float, ...]
    right: bool


@dataclass(frozen=True)
class Asked:
    place: Place
    kind: str
    rest: str


def asked(hole: Hole) -> Asked:
    """The hole as a keystroke: at its start, in a word, or after a blank; chosen by its hash."""
    key = int(hashlib.sha256(f"{hole.path}:{hole.line}".encode()).hexdigest(), 16)
    body = hole.middle
    inside = [i for i in range(1, len(body)) if body[i - 1].isalnum() and body[i].isalnum()]
    after = [i for i in range(1, len(body)) if body[i - 1] == " "]
    kind = ("start", "word", "blank")[key % 3]
    cuts = {"word": inside, "blank": after}.get(kind, [])
    cut = cuts[key // 3 % len(cuts)] if cuts else 0
    place = Place(hole.path, "python", hole.prefix + body[:cut], hole.suffix)
    return Asked(place, kind if cut else "start", body[cut:].rstrip())


def is_right(draft: Draft, case: Asked, request: Plan) -> bool | None:
    """None where nothing would be shown."""
    shown = polish(draft, case.place, request)
    return None if shown is None else shown.text.rstrip() == case.rest


def model_points(args: argparse.Namespace) -> list[Point]:
    from clover_engine.inprocess.embedded import EmbeddedEngine

    engine = EmbeddedEngine.load(args.checkpoint, args.threads)
    points = []
    for hole in find_holes(args.holes):
        case = asked(hole)
        request = plan(case.place, lines="single", heal=not args.no_heal, invoked=True)
        if not isinstance(request, Plan):
            continue
        infill = engine.infill(
            InfillRequest(
                request.prefix,
                request.suffix,
                max_tokens=request.max_tokens,
                mode="speculative",
                stop=request.stop,
                must_start_with=request.must_start_with,
            )
        ).choices[0]
        whole = infill.finish_reason in ("eom", "stop")
        right = is_right(Draft(infill.text, infill.confidence, "model", whole), case, request)
        if right is not None:
            features = model_features(infill.confidence, infill.text)
            points.append(Point(hole.path, case.kind, features, right))
    return points


def logistic(rows: Sequence[Sequence[float]], right: Sequence[bool]) -> Vector:
    """Ridge logistic regression by Newton's method; the first column, the intercept, is free."""
    x, y = np.array(rows, float), np.array(right, float)
    weights = np.zeros(x.shape[1])
    penalty = np.diag([1e-6] + [RIDGE] * (x.shape[1] - 1))
    for _ in range(50):
        p = 1 / (1 + np.exp(-np.clip(x @ weights, -30, 30)))
        gradient = x.T @ (p - y) + penalty @ weights
        hessian = (x * (p * (1 - p))[:, None]).T @ x + penalty
        step = np.linalg.solve(hessian, gradient)
        weights = weights - step
        if float(np.abs(step).max()) < 1e-8:
            break
    return weights


def probability(weights: Vector, row: Sequence[float]) -> float:
    """What `logistic` has learnt, for one row."""
    score = float(weights @ np.array(row))
    return 1 / (1 + math.exp(-min(30.0, max(-30.0, score))))


def fit(points: Sequence[Point]) -> Vector:
    return logistic([(1.0, *p.features) for p in points], [p.right for p in points])


def predict(weights: Vector, point: Point) -> float:
    return probability(weights, (1.0, *point.features))


def cross_validated(points: Sequence[Point]) -> list[tuple[float, bool, str]]:
    """(predicted probability, was it right, kind); no curve has seen the file it judges."""
    fold = {p.path: int(hashlib.sha256(p.path.encode()).hexdigest(), 16) % FOLDS for p in points}
    judged = []
    for i in range(FOLDS):
        weights = fit([p for p in points if fold[p.path] != i])
        judged += [(predict(weights, p), p.right, p.kind) for p in points if fold[p.path] == i]
    return sorted(judged, reverse=True)


def report(points: Sequence[Point], asked_count: int) -> None:
    judged = cross_validated(points)
    right = sum(r for _, r, _ in judged)
    brier = sum((p - r) ** 2 for p, r, _ in judged) / len(judged)
    print(f"{asked_count} places, {len(judged)} suggestions, {right} exactly right")
    for kind in sorted({k for _, _, k in judged}):
        own = [r for _, r, k in judged if k == kind]
        print(f"  {kind:6} {len(own):5} suggestions, {100 * sum(own) / len(own):5.1f} % right")
    print(
        f"  Brier score {brier:.4f}; of always saying the mean {base_brier(right, len(judged)):.4f}"
    )
    print("  said      were right  suggestions")
    edges = (0, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 1.01)
    for low, high in zip(edges, edges[1:], strict=False):
        bin_ = [(p, r) for p, r, _ in judged if low <= p < high]
        if bin_:
            said = sum(p for p, _ in bin_) / len(bin_)
            print(f"  {100 * said:5.1f} %   {100 * sum(r for _, r in bin_) / len(bin_):5.1f} %"
                  f"     {len(bin_):5}")  # fmt: skip
    shown = [r for p, r, _ in judged if p >= SHOWN_CONFIDENCE]
    print(f"  shown by itself (from {SHOWN_CONFIDENCE} on): {len(shown)}, right {sum(shown)}")
    for wanted in PRECISIONS:
        print(f"  precision {wanted:.0%}: {threshold(judged, wanted, asked_count)}")


def base_brier(right: int, count: int) -> float:
    return right / count * (1 - right / count)


def threshold(judged: Sequence[tuple[float, bool, str]], wanted: float, asked_count: int) -> str:
    """The lowest probability from which on at least that share was right."""
    hits, best = 0, 0
    for i, (_, right, _) in enumerate(judged, start=1):
        hits += right
        if hits / i >= wanted:
            best = i
    if best < 5:
        return "not reached by five suggestions"
    return f"from {judged[best - 1][0]:.3f} on, shown at {100 * best / asked_count:.1f} % of places"


def cached(file: Path | None, name: str, make: Callable[[], list[Point]]) -> list[Point]:
    """The points of an earlier run, or new ones, which are kept."""
    known = json.loads(file.read_text()) if file and file.exists() else {}
    if name in known:
        return [Point(**{**p, "features": tuple(p["features"])}) for p in known[name]]
    points = make()
    if file:
        file.write_text(json.dumps(known | {name: [asdict(p) for p in points]}))
    return points


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--holes", type=int, default=200, help="places that the model is asked at")
    parser.add_argument("--checkpoint", type=Path, default=checkpoint_path())
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--no-heal", action="store_true", help="leave prefixes as they are")
    parser.add_argument("--points", type=Path, help="keeps what was asked in this file")
    args = parser.parse_args()
    name = f"{args.checkpoint} {args.holes} {'plain' if args.no_heal else 'healed'}"
    points = cached(args.points, name, lambda: model_points(args))
    report(points, args.holes)
    print("\n# for MODEL_CURVES in engine/clover_engine/gate.py")
    print(f"({', '.join(f'{weight:.3f}' for weight in fit(points))})")


if __name__ == "__main__":
    main()
