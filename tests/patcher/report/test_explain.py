"""The words about a patch name the failure, the place, the change and the evidence."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clover_patcher.propose.templates import PRIORS
from clover_patcher.report.explain import describe_failures, explain
from clover_patcher.types import Candidate, Edit, Location, Outcome, TestFailure

CANDIDATE = Candidate(
    (Edit("a.py", 0, 1, b"x"),), 7, "operator", "    if a < b:\n        x\n", -2.5
)
BASELINE = Outcome(
    "failed", 1.0, tuple(TestFailure(f"t.py::test_{n}", "KeyError", "") for n in range(5)), passed=4
)
LOCATIONS = [
    Location("a.py", 3, 1.0, ("Ochiai 0.90: executed by 5 of 5 failing and 1 of 4 passing tests",)),
    Location("a.py", 7, 0.5, ("innermost frame of KeyError", "Ochiai 0.71")),
    *(Location("b.py", n, 0.1) for n in range(1, 30)),
]


def test_the_summary_says_everything_in_one_paragraph() -> None:
    why = explain(CANDIDATE, BASELINE, LOCATIONS, tried=37, passing=3)
    assert why.summary == (
        "Failing before: t.py::test_0 (KeyError), t.py::test_1 (KeyError), t.py::test_2 (KeyError) "
        "and 2 more of 9 tests. "
        "a.py:7 was suspected because innermost frame of KeyError; Ochiai 0.71, number 2 of 31 "
        "lines. "
        "The change (operator) gives `if a < b: ⏎ x`. "
        "The whole check passes with it in a fresh copy of the tree, from a cold start, after 37 "
        "candidates were tried; 2 of the others pass it too."
    )
    assert len(why.tests) == 5


def test_the_lines_rank_the_first_places_and_weigh_the_patch() -> None:
    why = explain(CANDIDATE, BASELINE, LOCATIONS, tried=1, passing=1)
    lines = list(why.lines())
    assert lines[0].startswith("Failing before: ")
    assert lines[1].startswith("Why here: a.py:7 was suspected because")
    assert f"templates put {PRIORS['operator']:.0%} of repairs down to this kind" in lines[2]
    assert "log-probability is -2.50 nats" in lines[2]
    assert lines[3].endswith("after 1 candidate was tried.")
    assert lines[4] == "Suspicious lines (first 10 of 31):"
    assert lines[5].split() == ["1", "1.00", "a.py:3", *LOCATIONS[0].reasons[0].split()]
    assert lines[6].startswith(" *  2  0.50  a.py:7  innermost")
    assert len(lines) == 15


def test_without_a_model_it_says_so() -> None:
    why = explain(replace(CANDIDATE, logprob=None), BASELINE, LOCATIONS, 2, 1)
    assert "no model scored it" in list(why.lines())[2]


def test_a_place_beside_the_suspected_lines_has_no_rank() -> None:
    why = explain(replace(CANDIDATE, line=8), BASELINE, LOCATIONS, 2, 1)
    assert why.place_rank is None
    assert why.place == "a.py:8 was suspected because innermost frame of KeyError; Ochiai 0.71"


@pytest.mark.parametrize(
    "outcome,words",
    [
        (Outcome("failed", 1.0, (TestFailure("", "exit 1", ""),)), "the check fails (exit 1)"),
        (Outcome("timeout", 1.0), "the check fails (timeout)"),
    ],
)
def test_checks_that_are_not_made_of_tests(outcome: Outcome, words: str) -> None:
    assert describe_failures(outcome) == words
    assert explain(CANDIDATE, outcome, LOCATIONS, 1, 1).tests == ()
