"""Grouping of edits, as Zed does it: 8 lines, one second."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from clover_lsp.context.edits import KEPT, EditLog
from clover_lsp.context.types import Edit

TEXT = "".join(f"line {n}\n" for n in range(40))


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def type_in(log: EditLog, uri: str, text: str, at: int, new: str, remove: int = 0) -> str:
    after = text[:at] + new + text[at + remove :]
    log.record(uri, text, after, [Edit(at, at + remove, new)])
    return after


def test_keystrokes_make_one_edit() -> None:
    log, text = EditLog(Clock()), TEXT
    for n, letter in enumerate("hello "):
        text = type_in(log, "u", text, n, letter)
    (group,) = log.recent(9)
    assert group.lines() == ("line 0", "hello line 0")
    assert group.first_line == 1


def test_a_pause_or_a_distance_begins_a_new_edit() -> None:
    clock = Clock()
    log, text = EditLog(clock), TEXT
    text = type_in(log, "u", text, 0, "a")
    clock.now = 0.9
    text = type_in(log, "u", text, text.index("line 8"), "b")
    assert len(log.recent(9)) == 1, "eight lines apart"
    text = type_in(log, "u", text, text.index("line 30"), "c")
    assert len(log.recent(9)) == 2, "further apart"
    clock.now = 2.1
    text = type_in(log, "u", text, text.index("cline 30"), "d")
    assert [g.lines()[1] for g in log.recent(9)][0] == "dcline 30"
    assert len(log.recent(9)) == 3 and len(log.recent(2)) == 2


def test_documents_are_kept_apart() -> None:
    log = EditLog(Clock())
    a = type_in(log, "a", "x\n", 0, "1")
    type_in(log, "b", "y\n", 0, "2")
    type_in(log, "a", a, 0, "3")
    assert [g.uri for g in log.recent(9)] == ["a", "b", "a"]
    log.forget("a")
    assert [g.uri for g in log.recent(9)] == ["b"]


def test_blank_undone_and_huge_changes_are_no_edits() -> None:
    log, text = EditLog(Clock()), TEXT
    text = type_in(log, "u", text, 0, "abc")
    text = type_in(log, "u", text, 0, "", remove=3)
    assert not log.recent(9), "typed and deleted again"
    text = type_in(log, "u", text, 6, "   ")
    log.record("v", "", "x = 1\n" * 2000, [])
    assert not log.recent(9)


def test_number_of_edits_is_limited() -> None:
    clock = Clock()
    log, text = EditLog(clock), TEXT
    for n in range(3 * KEPT):
        clock.now += 5
        text = type_in(log, "u", text, 0, str(n % 10))
    assert len(log.recent(1000)) == KEPT


@settings(max_examples=200, deadline=None)
@given(st.text("ab\n", max_size=40), st.integers(0, 2**32))
def test_regions_rebuild_the_text(text: str, seed: int) -> None:
    rng = random.Random(seed)
    log, first = EditLog(Clock()), text
    for _ in range(4):
        at = rng.randint(0, len(text))
        remove = rng.randint(0, len(text) - at)
        new = "".join(rng.choice("ab\n") for _ in range(rng.randint(0, 5)))
        after = text[:at] + new + text[at + remove :]
        log.record("u", text, after, [Edit(at, at + remove, new)] if rng.random() < 0.5 else [])
        text = after
    groups = list(log._groups)
    current = first
    for group in groups:
        assert group.old == current
        rebuilt = group.old[: group.start] + group.new[group.start : group.new_end]
        current = rebuilt + group.old[group.end :]
        assert current == group.new
    assert current == text
