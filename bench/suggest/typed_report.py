"""From what every source said at the same places to the figures of `typed.py`."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from clover_engine.gate import SMALL, model_probability
from clover_lsp.completion.compute import QUICK_IS_ENOUGH
from clover_lsp.suggest.joint import joint

Case = dict[str, Any]
Shown = tuple[str, float]
"""A text and the probability that it is exactly right; ("", 0.0) for none."""
NOTHING: Shown = ("", 0.0)
GATES = (0.3, 0.4, 0.5, 0.6, 0.7)
_TOKEN = re.compile(r"\w+|[^\w\s]")
_WORD = re.compile(r"\w+|[^\w\s]|\s+")


def own(answer: dict[str, Any]) -> float:
    """The shipped probability of an answer, given its proposer alone."""
    if answer["source"] == "look-up":
        return float(answer["sure"])
    name = SMALL if answer["source"] == "nano" else answer["source"]
    return model_probability(answer["features"][0], answer["text"], name)


def best(source: str) -> Callable[[Case], Shown]:
    """The most probable text of one source."""

    def chosen(case: Case) -> Shown:
        found = [(a["text"], own(a)) for a in case["answers"] if a["source"] == source]
        return max(found, key=lambda f: f[1], default=NOTHING)

    return chosen


def together(case: Case) -> Shown:
    """As the server does it: the large model counts where the others are unsure."""
    quick = _joined(case, ("look-up", "nano"))
    return quick if quick[1] >= QUICK_IS_ENOUGH else _joined(case)


def without_large(case: Case) -> Shown:
    """As the server does it where nothing but clover-nano is installed."""
    return _joined(case, ("look-up", "nano"))


def _joined(case: Case, sources: tuple[str, ...] = ()) -> Shown:
    who = {"look-up": "look-up", "nano": "small"}
    found = joint(
        (who.get(a["source"], "large"), a["text"].rstrip(), own(a))
        for a in case["answers"]
        if a["text"].strip() and (not sources or a["source"] in sources)
    )
    return max(found.items(), key=lambda f: f[1], default=NOTHING)


def any_right(case: Case) -> Shown:
    """What a perfect choice would show."""
    right = [a["text"] for a in case["answers"] if is_right(a["text"], case)]
    return (right[0], 1.0) if right else NOTHING


def is_right(text: str, case: Case) -> bool:
    return bool(text.rstrip() == case["rest"].rstrip())


def kept(text: str, rest: str) -> int:
    """Characters of the longest correct beginning, in whole words."""
    length = 0
    for mine, theirs in zip(_WORD.findall(text), _WORD.findall(rest), strict=False):
        if mine != theirs:
            break
        length += len(mine)
    return length


def table(cases: Sequence[Case], ways: dict[str, Callable[[Case], Shown]], least: float) -> str:
    """One line a way; percentages of all places, `right` of those shown."""
    lines = [
        "| | exact | first token | tokens right | similarity | shown | right | kept of 1,000 |",
        "|-|-|-|-|-|-|-|-|",
    ]
    for name, way in ways.items():
        texts = [(way(case), case) for case in cases]
        shown = [(text, case) for (text, sure), case in texts if text and sure >= least]
        typed = sum(len(case["rest"]) for case in cases)
        lines.append(
            f"| {name} | {_share(is_right(text, case) for (text, _), case in texts)} "
            f"| {_share(_same_first(text, case) for (text, _), case in texts)} "
            f"| {sum(_run(text, case['rest']) for (text, _), case in texts) / len(cases):.2f} "
            f"| {sum(_alike(text, case['rest']) for (text, _), case in texts) / len(cases):.2f} "
            f"| {100 * len(shown) / len(cases):.1f} % "
            f"| {_share(is_right(text, case) for text, case in shown)} "
            f"| {1000 * sum(kept(text, case['rest']) for text, case in shown) / typed:.0f} |"
        )
    return "\n".join(lines)


def _share(of: Any) -> str:
    found = list(of)
    return f"{100 * sum(found) / len(found):.1f} %" if found else "–"


def _same_first(text: str, case: Case) -> bool:
    mine, theirs = _TOKEN.findall(text)[:1], _TOKEN.findall(case["rest"])[:1]
    return bool(mine and mine == theirs)


def _run(text: str, rest: str) -> int:
    count = 0
    for mine, theirs in zip(_TOKEN.findall(text), _TOKEN.findall(rest), strict=False):
        if mine != theirs:
            break
        count += 1
    return count


def _alike(text: str, rest: str) -> float:
    return difflib.SequenceMatcher(None, text.strip(), rest.strip(), autojunk=False).ratio()


def read(path: Path) -> list[Case]:
    return [json.loads(line) for line in path.open(encoding="utf-8")]


def report(path: Path, fit_on: Path | None, least: float) -> None:
    """Prints the tables; with `fit_on`, new weights for the choice as well (`typed_fit.py`)."""
    cases = read(path)
    sources = dict.fromkeys(a["source"] for case in cases for a in case["answers"])
    ways: dict[str, Callable[[Case], Shown]] = {name: best(name) for name in sources}
    ways["together without the large one"] = without_large
    ways["together"] = together
    ways["some candidate is right"] = any_right
    if fit_on is not None:
        from bench.suggest.typed_fit import fitted

        ways["together, fitted anew"] = fitted(read(fit_on))
    for variant in ("open", "end"):
        part = [case for case in cases if case["variant"] == variant]
        print(f"\n{len(part)} places, {variant}; shown from {least} on\n")
        print(table(part, ways, least))
        for name, way in ways.items():
            if name.startswith("together"):
                print(f"\n{name}, by gate: " + "; ".join(_gate(part, way, g) for g in GATES))
    for kind in dict.fromkeys(case["kind"] for case in cases):
        part = [case for case in cases if case["kind"] == kind]
        exact = {n: _share(is_right(w(c)[0], c) for c in part) for n, w in ways.items()}
        print(f"\n{kind} ({len(part)}), exact: " + ", ".join(f"{n} {s}" for n, s in exact.items()))


def _gate(cases: Sequence[Case], way: Callable[[Case], Shown], least: float) -> str:
    shown = [(text, c) for c in cases for text, sure in [way(c)] if text and sure >= least]
    right = _share(is_right(text, case) for text, case in shown)
    return f"from {least}: {100 * len(shown) / len(cases):.0f} %, {right} right"
