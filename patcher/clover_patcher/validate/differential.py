"""Do patches that pass behave alike? Their functions on inputs that the tests do not have.

The check runs once with a recorder at the end of the patched file: it notes with which arguments
(numbers, texts, lists and other literals) code outside of the file calls its functions. From those,
neighbouring inputs are made. Then the check runs with each patch and a probe at the end of the
file, which answers all inputs when the file is imported. Differential testing, as in Evans and
McKeeman, "Differential Testing: A New Approach to Change Detection" (FSE 2007).
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Protocol

from clover_patcher.errors import PatcherError
from clover_patcher.types import Candidate, Edit
from clover_patcher.validate.choice import Passing
from clover_patcher.validate.probes import ANSWERS, CALLS, INPUTS, probe, recorder

MOST_INPUTS = 160
MOST_COMPARED = 5
_RECORDED = 40
_SEED = 7
_STEP_S = 2.5
"""What a run takes beside the check: at most the time that all inputs may take."""

Answers = tuple[str, ...]
"""A digest of what each input gave."""
Call = tuple[str, tuple[Any, ...], dict[str, Any]]


class Tests(Protocol):
    """A copy of the tree, and the check to run there; see `TestsOf`."""

    @property
    def tree(self) -> Path: ...

    def passing(self, edits: Sequence[Edit] = ()) -> frozenset[str]: ...


@dataclass(slots=True)
class Differential:
    """Compares patches of one file. Runs in a copy of its own; not for several threads."""

    tests: Tests
    read: Callable[[str], bytes]
    """A file's bytes as of the snapshot; raises `OSError`."""
    summary: str = ""
    """What the last comparison showed, in a clause; empty where nothing was compared."""

    def order(self, passing: Sequence[Passing], left_s: float, check_s: float) -> list[Passing]:
        """The passing candidates (best first), those first that most agree on.

        `left_s`: time for it; `check_s`: what a run of the check takes. Too little time, nothing
        that can be compared: the order stays.
        """
        count = min(len(passing), MOST_COMPARED)
        self.summary = ""
        if count < 2 or left_s < (count + 2) * (check_s + _STEP_S):
            return list(passing)
        answers = self.answers([one.candidate for one in passing])
        ordered, self.summary = by_behaviour(passing, answers)
        return ordered

    def answers(self, candidates: Sequence[Candidate]) -> dict[int, Answers]:
        """What each candidate that edits the first one's file alone gives, by its position.
        Empty where the inputs cannot be had."""
        path = candidates[0].path
        compared = {
            number: candidate.edits
            for number, candidate in enumerate(candidates)
            if candidate.paths == (path,)
        }
        compared = dict(list(compared.items())[:MOST_COMPARED])
        if len(compared) < 2 or not path.endswith(".py"):
            return {}
        try:
            end = len(self.read(path))
            inputs = self._inputs(path, end)
            if not inputs:
                return {}
            found = {n: self._asked(path, end, edits, inputs) for n, edits in compared.items()}
        except (PatcherError, OSError, ValueError):  # it was worth a try
            return {}
        asked_all = min((len(answers) for answers in found.values() if answers), default=0)
        return {number: answers[:asked_all] for number, answers in found.items() if answers}

    def _inputs(self, path: str, end: int) -> list[Call]:
        self.tests.passing([Edit(path, end, end, recorder())])
        folder = self._folder(path)
        try:
            lines = (folder / CALLS).read_text("utf-8").splitlines()
        finally:
            (folder / CALLS).unlink(missing_ok=True)
        calls = [call for line in dict.fromkeys(lines) if (call := _literal(line)) is not None]
        return neighbours(calls[:_RECORDED], MOST_INPUTS)

    def _asked(self, path: str, end: int, edits: Sequence[Edit], inputs: Sequence[Call]) -> Answers:
        folder = self._folder(path)
        try:
            (folder / INPUTS).write_text("\n".join(map(repr, inputs)), "utf-8")
            self.tests.passing([*edits, Edit(path, end, end, probe())])
            return tuple((folder / ANSWERS).read_text("ascii").split())
        except FileNotFoundError:
            return ()
        finally:
            for name in (INPUTS, ANSWERS):
                (folder / name).unlink(missing_ok=True)

    def _folder(self, path: str) -> Path:
        return (self.tests.tree / path).parent


def by_behaviour(
    passing: Sequence[Passing], answers: Mapping[int, Answers]
) -> tuple[list[Passing], str]:
    """Those that most agree on first, and a clause about that ("" where nothing was compared).

    `passing` is best first; `answers` are by its positions. Patches that behave alike form a
    group. A group of several proposers comes first; of others, the one nearest to all others.
    """
    groups: dict[Answers, list[int]] = {}
    for number in range(len(passing)):
        if number in answers:
            groups.setdefault(answers[number], []).append(number)
    compared = sum(map(len, groups.values()))
    if compared < 2:
        return list(passing), ""
    if len(groups) < 2:
        said = f"{compared} passing patches behave alike on {len(next(iter(groups)))} more inputs"
        return list(passing), said

    def rank(item: tuple[Answers, list[int]]) -> tuple[int, float, int]:
        own, numbers = item
        proposers = {passing[number].candidate.proposer for number in numbers}
        near = sum(agreement(own, other) for other in groups if other is not own)
        return (-len(proposers), -round(near / (len(groups) - 1), 2), numbers[0])

    order = sorted(groups.items(), key=rank)
    first = [number for _, numbers in order for number in numbers]
    rest = [number for number in range(len(passing)) if number not in answers]
    said = (
        f"{compared} passing patches behave in {len(groups)} ways on {len(order[0][0])} more "
        "inputs; this one agrees most with the others"
    )
    return [passing[number] for number in (*first, *rest)], said


def agreement(one: Answers, other: Answers) -> float:
    """The share of the inputs on which both give the same."""
    pairs = list(zip(one, other, strict=False))
    return sum(a == b for a, b in pairs) / len(pairs) if pairs else 0.0


def _literal(line: str) -> Call | None:
    """A recorded call whose arguments are written as they are."""
    try:
        name, args, kwargs = ast.literal_eval(line)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    return (name, args, kwargs) if args or kwargs else None


def neighbours(calls: Sequence[Call], most: int) -> list[Call]:
    """The calls, and calls like them with one argument changed a little; the same every time."""
    random = Random(_SEED)
    made = {repr(call): call for call in calls}
    for _ in range(20 * most if calls else 0):
        if len(made) >= most:
            break
        name, args, kwargs = random.choice(calls)
        places = [*range(len(args)), *kwargs]
        place = random.choice(places)
        if isinstance(place, int):
            changed = (*args[:place], near(args[place], random), *args[place + 1 :])
            call: Call = (name, changed, kwargs)
        else:
            call = (name, args, {**kwargs, place: near(kwargs[place], random)})
        made.setdefault(repr(call), call)
    return list(made.values())


def near(value: Any, random: Random) -> Any:
    """A value of the same type that differs a little; None and the like stay."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return random.choice([value + 1, value - 1, value * 2, value // 2, 0, 1, value + 7])
    if isinstance(value, float):
        return random.choice([value + 1, value / 2, -value, 0.0, float(round(value))])
    if isinstance(value, str | bytes):
        return _near_sequence(value, random)
    if isinstance(value, list | tuple):
        if value and random.random() < 0.5:
            at = random.randrange(len(value))
            changed = [*value[:at], near(value[at], random), *value[at + 1 :]]
        else:
            changed = list(_near_sequence(list(value), random))
        return type(value)(changed)
    if isinstance(value, dict) and value:
        key = random.choice(list(value))
        rest = {k: v for k, v in value.items() if k != key}
        return rest if random.random() < 0.3 else {**value, key: near(value[key], random)}
    return value


def _near_sequence(value: Any, random: Random) -> Any:
    """Without an item, with one twice, two exchanged, shortened, backwards."""
    size = len(value)
    if not size:
        return value
    at, kind = random.randrange(size), random.randrange(5)
    if kind == 0:
        return value[:at] + value[at + 1 :]
    if kind == 1:
        return value[: at + 1] + value[at:]
    if kind == 2 and at + 1 < size:
        return value[:at] + value[at + 1 : at + 2] + value[at : at + 1] + value[at + 2 :]
    return value[:at] if kind == 3 else value[::-1]
