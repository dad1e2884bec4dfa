"""Edits that switch a check off instead of making it right come last."""

from __future__ import annotations

import time

import pytest
from tests.patcher.samples import result

from clover_patcher.propose.clues import clues_of
from clover_patcher.propose.source import CandidateSource
from clover_patcher.types import Candidate, Location

GUARDED = """\
def area(width, height):
    if width < 0:
        raise ValueError(width)
    assert height > 0, height
    return width + height
"""


def ranked(text: str, line: int, said: str = "") -> list[Candidate]:
    source = CandidateSource(
        {"a.py": text.encode()}, [Location("a.py", line, 1.0)], None, clues=clues_of([said])
    )
    return [c for batch in source.batches(time.monotonic() + 60) for c in batch]


def lasts(text: str, line: int, weakened: str) -> None:
    """The weakened text is among the candidates, far behind."""
    made = ranked(text, line)
    texts = [result(text.encode(), c).decode() for c in made]
    place = texts.index(weakened)
    assert place >= 0.8 * len(made)
    assert made[place].priority < -13 <= made[0].priority + 13


@pytest.mark.parametrize(
    ("line", "old", "new"),
    [
        (3, "raise ValueError(width)", "pass"),
        (3, "        raise ValueError(width)", "        return\n        raise ValueError(width)"),
        (4, "    assert height > 0, height\n", ""),
        (
            4,
            "    assert height > 0, height\n",
            "    return height\n    assert height > 0, height\n",
        ),
        (4, "height > 0", "True"),
        (2, "width < 0", "False"),
        (2, "width < 0", "True"),
    ],
)
def test_switching_a_check_off_comes_last(line: int, old: str, new: str) -> None:
    lasts(GUARDED, line, GUARDED.replace(old, new, 1))


def test_making_a_check_right_does_not() -> None:
    for line, old, new in ((2, "width < 0", "width <= 0"), (4, "height > 0", "height >= 0")):
        texts = [result(GUARDED.encode(), c).decode() for c in ranked(GUARDED, line)]
        assert texts.index(GUARDED.replace(old, new)) < 10


def test_a_constant_condition_may_become_another_one() -> None:
    text = "def f(q):\n    while True:\n        q.pop()\n"
    made = ranked(text, 2)
    texts = [result(text.encode(), c).decode() for c in made]
    assert made[texts.index(text.replace("True", "False"))].priority > -13


def test_leaving_out_the_line_that_raised_comes_late() -> None:
    text = "names = ['a']\ntable = {}\nfor name in names:\n    print(name, table[name])\n"
    made = ranked(text, 4, "KeyError: 'a'")
    texts = [result(text.encode(), c).decode() for c in made]
    looked_up = texts.index(text.replace("table[name]", "table.get(name)"))
    left_out = texts.index(text.replace("print(name, table[name])", "pass"))
    assert looked_up < 5 < 40 < left_out


def test_a_program_that_checks_itself_keeps_its_checks() -> None:
    text = "def half(n):\n    return n / 3\n\n\nassert half(4) == 2\nassert half(3) == 1\n"
    assert ranked(text, 5, "AssertionError")[0].priority < -13
    assert ranked(text, 2, "AssertionError")[0].priority > -5


@pytest.mark.parametrize(
    "test",
    [
        "def test_half():\n    value = half(4)\n    assert value == 2\n",
        "class Halves(unittest.TestCase):\n    def runTest(self):\n        self.fail(half(4))\n",
    ],
)
def test_a_test_in_the_programs_own_file_comes_last(test: str) -> None:
    text = f"import unittest\n\n\ndef half(n):\n    return n / 3\n\n\n{test}"
    assert ranked(text, 10)[0].priority < -13
    assert ranked(text, 5)[0].priority > -5


def test_the_block_that_runs_a_program_is_not_switched_off() -> None:
    text = "def half(n):\n    return n / 3\n\n\nif __name__ == '__main__':\n    half(4)\n"
    assert all(c.priority < -13 for c in ranked(text, 5) if c.text.startswith("if "))
    assert ranked(text, 2)[0].priority > -5
