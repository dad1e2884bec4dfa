"""Patches that pass, compared on inputs that the tests do not have."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clover_patcher.check.command import Check
from clover_patcher.check.runner import ProgramRunner
from clover_patcher.types import Candidate, Edit
from clover_patcher.validate.choice import Passing
from clover_patcher.validate.differential import Differential, agreement, near, neighbours

PROGRAM = """\
def largest(values):
    best = 0
    for value in values:
        if value < best:
            best = value
    return best


def both(a, b, *, more=False):
    return _inner(a) + b


def _inner(a):
    return a
"""
TESTS = """\
from program import both, largest


def test_largest():
    assert largest([1, 5, 3]) == 5


def test_one():
    assert largest([4]) == 4


def test_both():
    assert both(1, 2, more=True) == 3
"""
RIGHT, ALSO, NARROW, HANGS = (
    "value > best",
    "best < value",
    "value > best and len(values) < 4",
    "value > best or (len(values) == 2 and [0 for _ in iter(int, 1)])",
)


class Copy:
    """A copy of the program and the real runner of its check."""

    def __init__(self, runner: ProgramRunner) -> None:
        self.runner, self.tree = runner, runner.worktree

    def passing(self, edits: Sequence[Edit] = ()) -> frozenset[str]:
        return self.runner.passing(edits)


@pytest.fixture
def differential(tmp_path: Path) -> Iterator[Differential]:
    tree, tmp = tmp_path / "tree", tmp_path / "tmp"
    tree.mkdir()
    tmp.mkdir()
    (tree / "program.py").write_text(PROGRAM)
    (tree / "test_program.py").write_text(TESTS)
    check = Check.parse(f"{sys.executable} -m pytest -q", tree)
    with ProgramRunner(check, tree, tmp=tmp) as runner:
        yield Differential(Copy(runner), lambda path: (tree / path).read_bytes())


def passing(condition: str, proposer: str = "templates", priority: float = 0.0) -> Passing:
    at = PROGRAM.index("value < best")
    edit = Edit("program.py", at, at + len("value < best"), condition.encode())
    candidate = Candidate((edit,), 4, "operator", condition, priority=priority, proposer=proposer)
    return Passing(candidate, 1)


def first(differential: Differential, *found: Passing) -> str:
    ordered = differential.order(found, 100.0, 1.0)
    assert sorted(map(id, ordered)) == sorted(map(id, found))
    return ordered[0].candidate.text


def test_what_two_proposers_agree_on_goes_first(differential: Differential) -> None:
    found = [passing(NARROW), passing(RIGHT), passing(ALSO, "rewrite")]
    assert first(differential, *found) == RIGHT
    assert "3 passing patches behave in 2 ways" in differential.summary


def test_else_what_is_nearest_to_all(differential: Differential) -> None:
    found = [passing(NARROW), passing(RIGHT), passing(HANGS)]
    assert first(differential, *found) == RIGHT


def test_where_all_behave_alike_the_order_stays(differential: Differential) -> None:
    assert first(differential, passing(ALSO), passing(RIGHT)) == ALSO
    assert "2 passing patches behave alike" in differential.summary


def test_nothing_is_compared_without_time_or_inputs(differential: Differential) -> None:
    found = [passing(NARROW), passing(RIGHT), passing(ALSO, "rewrite")]
    assert differential.order(found, 3.0, 1.0) == found and not differential.summary
    (differential.tests.tree / "test_program.py").write_text("def test_nothing(): pass\n")
    assert differential.order(found, 100.0, 1.0) == found and not differential.summary


def test_the_copy_is_left_as_it_was(differential: Differential) -> None:
    tree = differential.tests.tree

    def files() -> dict[str, bytes]:
        return {p.name: p.read_bytes() for p in tree.iterdir() if p.is_file()}

    before = files()
    first(differential, passing(NARROW), passing(RIGHT))
    assert files() == before


def test_calls_from_inside_the_file_are_no_inputs(differential: Differential) -> None:
    names = {call[0] for call in differential._inputs("program.py", len(PROGRAM))}
    assert names == {"largest", "both"}


values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(-9, 9) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner),
)


@given(values, st.integers(0, 99))
def test_neighbours_have_the_same_type(value: object, seed: int) -> None:
    assert type(near(value, Random(seed))) is type(value)


@given(st.lists(st.tuples(st.just("f"), st.tuples(values), st.just({})), max_size=4))
def test_neighbours_keep_the_calls_and_are_all_different(calls: list) -> None:  # type: ignore[type-arg]
    made = neighbours(calls, 30)
    assert [repr(call) for call in made[: len(set(map(repr, calls)))]] == list(
        dict.fromkeys(map(repr, calls))
    )
    assert len(set(map(repr, made))) == len(made) <= max(30, len(calls))
    assert neighbours(calls, 30) == made


def test_agreement() -> None:
    assert agreement(("a", "b"), ("a", "c")) == 0.5
    assert agreement((), ()) == 0.0
