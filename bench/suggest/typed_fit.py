"""Fits what joins the proposers (`clover_lsp.suggest.joint`) and the larger models' curves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from bench.suggest.calibrate import Vector, logistic, probability

from clover_engine.gate import model_features
from clover_lsp.suggest.joint import PROPOSERS, log_odds

Case = dict[str, Any]
_WHO = {"look-up": "look-up", "nano": "small"}


def curve(cases: Sequence[Case], source: str) -> Vector:
    """A model's curve for `clover_engine.gate.MODEL_CURVES`."""
    rows, right = [], []
    for case in cases:
        for answer in case["answers"]:
            if answer["source"] == source:
                rows.append((1.0, *model_features(answer["features"][0], answer["text"])))
                right.append(answer["text"].rstrip() == case["rest"].rstrip())
    return logistic(rows, right)


def proposals(case: Case, curves: dict[str, Vector]) -> dict[str, dict[str, float]]:
    """By text: each proposer's own probability."""
    found: dict[str, dict[str, float]] = {}
    for answer in case["answers"]:
        who = _WHO.get(answer["source"], "large")
        sure = answer["sure"]
        if who == "large":
            features = model_features(answer["features"][0], answer["text"])
            sure = probability(curves[answer["source"]], (1.0, *features))
        if text := answer["text"].rstrip():
            said = found.setdefault(text, {})
            said[who] = max(sure, said.get(who, 0.0))
    return found


def row(said: dict[str, float], proposers: Sequence[str]) -> list[float]:
    values = [1.0]
    for who in proposers:
        values += [log_odds(said[who]) + 2, 1.0] if who in said else [0.0, 0.0]
    return values


def joined(cases: Sequence[Case], curves: dict[str, Vector], proposers: Sequence[str]) -> Vector:
    rows, right = [], []
    for case in cases:
        for text, said in proposals(case, curves).items():
            mine = {who: p for who, p in said.items() if who in proposers}
            if mine:
                rows.append(row(mine, proposers))
                right.append(text == case["rest"].rstrip())
    return logistic(rows, right)


def fitted(cases: Sequence[Case], enough: float = 0.6) -> Callable[[Case], tuple[str, float]]:
    """The server's way with weights from `cases`: the large model where the others are unsure."""
    sources = {a["source"] for case in cases for a in case["answers"]} - set(_WHO)
    curves = {source: curve(cases, source) for source in sources}
    before = joined(cases, curves, PROPOSERS[:2])
    every = joined(cases, curves, PROPOSERS)

    def chosen(case: Case) -> tuple[str, float]:
        found = proposals(case, curves)
        quick = _best(found, before, PROPOSERS[:2])
        return quick if quick[1] >= enough else _best(found, every, PROPOSERS)

    return chosen


def _best(
    found: dict[str, dict[str, float]], weights: Vector, proposers: Sequence[str]
) -> tuple[str, float]:
    best = ("", 0.0)
    for text, said in found.items():
        mine = {who: p for who, p in said.items() if who in proposers}
        if mine and (sure := probability(weights, row(mine, proposers))) > best[1]:
            best = (text, sure)
    return best


def print_weights(cases: Sequence[Case]) -> None:
    """What to copy into `gate.py` and `joint.py`."""
    sources = sorted({a["source"] for case in cases for a in case["answers"]} - set(_WHO))
    curves = {source: curve(cases, source) for source in sources}
    for source, weights in curves.items():
        print(f'"{source}": ({", ".join(f"{w:.3f}" for w in weights)}),')
    for proposers in (PROPOSERS[:2], PROPOSERS):
        intercept, *rest = joined(cases, curves, proposers).tolist()
        terms = {
            who: (round(rest[2 * i], 2), round(rest[2 * i + 1] + 2 * rest[2 * i], 2))
            for i, who in enumerate(proposers)
        }
        print(f"Weights({intercept:.2f}, {terms})")
