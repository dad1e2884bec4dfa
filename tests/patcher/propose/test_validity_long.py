"""Long statements: only the element around an edit is parsed, with the same verdicts."""

from __future__ import annotations

import pytest

from clover_patcher.propose.syntax import load_source
from clover_patcher.propose.validity import Checker

ROWS = 200
TABLE = "TABLE = {\n" + "".join(f'    "k{n}": (f(x, {n}), [y]),\n' for n in range(ROWS)) + "}\n"
SHORT = 'TABLE = {\n    "k0": (f(x, 0), [y]),\n    "k1": (f(x, 1), [y]),\n}\n'


def meaning(code: str, old: str, new: str, inside: int = 1) -> str | None:
    """What the statement on line 2 means with the `inside`-th text `old` replaced."""
    source = load_source("a.py", code.encode())
    assert source is not None
    (statement,) = source.on_line(2)
    at = -1
    for _ in range(inside):
        at = code.index(old, at + 1)
    return Checker(source).meaning(statement, at, at + len(old), new)


CASES = [
    ("x, 0", "x, 1", True),
    ("x, 0", "y, 0", True),
    ("f(x, 0)", "f(x, 0, k=x)", True),
    ("(f(x, 0), [y])", "None", True),
    ("x, 0", "x,  0", False),
    ("[y]", "[(y)]", False),
    ("x, 0", "x, 0)", False),
    ("[y]", "[y", False),
    ("f(x, 0)", "x y", False),
    ('"k0": (f(x, 0), [y])', '"k0"', False),
    ("f(x, 0)", "(yield)", False),
]


@pytest.mark.parametrize(("old", "new", "meaningful"), CASES)
def test_long_and_short_statements_get_the_same_verdict(
    old: str, new: str, meaningful: bool
) -> None:
    assert len(TABLE) > 4_000
    assert (meaning(SHORT, old, new) is not None) == meaningful
    assert (meaning(TABLE, old, new) is not None) == meaningful


def test_equal_edits_of_different_elements_are_different() -> None:
    first, second = (meaning(TABLE, "[y]", "[z]", inside) for inside in (1, 2))
    assert None not in (first, second)
    assert first != second


def test_edits_between_the_elements_of_a_huge_statement_are_dropped() -> None:
    huge = TABLE.replace("}\n", "") + "    # filler\n" * 6_000 + "}\n"
    assert len(huge) > 64_000
    row = '    "k0": (f(x, 0), [y]),\n'
    assert meaning(huge, row, "") is None
    assert meaning(huge, "x, 0", "x, 1") is not None
    assert meaning(TABLE, row, "") is not None
