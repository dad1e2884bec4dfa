"""Next edits cost in proportion to the document and its history, and end when they are told to."""

from __future__ import annotations

import re
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from clover_engine.api import CancelToken
from clover_lsp.actions.diff import changed_runs, minimal_edits
from clover_lsp.actions.limit import Limit, OutOfTime
from clover_lsp.actions.names import Names
from clover_lsp.actions.next_edit import CPU_S, next_edits
from clover_lsp.actions.proposals import Moment, _names
from clover_lsp.context.types import Problem

FORMER = (
    *("fsrc", "fdst", "length", "follow_symlinks"),
    *("ignore", "dirs_exist_ok", "copy_function", "onerror"),
)


def steps(work: Callable[[], object]) -> int:
    """How many lines of our code run: the same on any machine, however busy."""
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace if "clover_lsp" in frame.f_code.co_filename else None

    _names.cache_clear()
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def asked(now: str, history: list[str], change: str, **more: Any) -> Moment:
    """The next edit at the end of `change`; `history` oldest first."""
    cursor = now.index(change) + len(change)
    return Moment(now, "python", cursor, tuple(reversed(history)), **more)


def renamed(size: int) -> Moment:
    """A name used on every line is renamed at its definition, after earlier edits elsewhere."""
    text = "total = 1\n" + "".join(f"print(total, {n})\n" for n in range(size))
    history = []
    for number in range(4):
        history.append(text)
        text += f"earlier_{number} = {number}\n"
    history.append(text)
    return asked(text.replace("total = 1", "amount = 1", 1), history, "amount")


def attributes(size: int) -> Moment:
    body = "class Box:\n    def __init__(self):\n        self.content = 1\n\n\n"
    before = body + "".join(f"box_{n}.content.take()\n" for n in range(size))
    after = before.replace("self.content", "self.inside", 1)
    return asked(after, [before], "self.inside")


def parameters(size: int) -> Moment:
    calls = "".join(f"def user_{n}(scale):\n    return area({n})\n\n\n" for n in range(size))
    before = "def area(width):\n    return width\n\n\n" + calls
    return asked(before.replace("(width)", "(width, scale)", 1), [before], "(width, scale")


def replaced(size: int) -> Moment:
    before = "".join(f"log.info(value_{n})\n" for n in range(size))
    after = before.replace("log.info", "log.debug", 2)
    return asked(after, [before], after.split("\n")[1][:9])


def inserted(size: int) -> Moment:
    before = "".join(f"result = send(value_{n})\n" for n in range(size))
    after = before.replace("= send", "= await send", 2)
    return asked(after, [before], after.split("\n")[1][:14])


def undefined(size: int) -> Moment:
    text = "".join(f"number_{n} = unknown_{n}\n" for n in range(size))
    problems = [Problem(n, f"undefined name 'unknown_{n}'", "error") for n in range(13)]
    return Moment(text, "python", 0, (), problems)


@pytest.mark.parametrize("make", [renamed, attributes, parameters, replaced, inserted])
def test_the_work_grows_no_faster_than_the_document(make: Callable[[int], Moment]) -> None:
    assert next_edits(make(50), cpu_s=60), "the case has to lead to an edit"
    small = steps(lambda: next_edits(make(50), cpu_s=60))
    large = steps(lambda: next_edits(make(400), cpu_s=60))
    assert large < 12 * small


def test_problems_far_from_the_cursor_cost_nothing() -> None:
    small = steps(lambda: next_edits(undefined(50), cpu_s=60))
    assert steps(lambda: next_edits(undefined(200), cpu_s=60)) < 6 * small


def test_the_work_grows_no_faster_than_the_history() -> None:
    def moment(count: int) -> Moment:
        text = "first = 1\n" + "".join(f"print(first, {n})\n" for n in range(40))
        history = []
        for number in range(count):
            history.append(text)
            text += f"earlier_{number} = {number}\n"
        history.append(text)
        return asked(text.replace("first = 1", "begin = 1", 1), history, "begin")

    assert steps(lambda: next_edits(moment(48))) < 8 * steps(lambda: next_edits(moment(8)))


def test_the_worst_file_at_hand_takes_half_a_second_of_the_processor() -> None:
    """50 s at 2846628."""
    text, history = Path(shutil.__file__).read_text("utf-8"), []
    for name in FORMER:
        history.append(text)
        text = re.sub(rf"\b{name}\b", f"{name}_now", text)
    history.append(text)
    moment = asked(text.replace("import os\n", "import osx\n", 1), history, "import osx")
    begun = time.thread_time()
    found = next_edits(moment, cpu_s=60)
    assert time.thread_time() - begun < 5
    assert found and found[0].new == "osx"


@pytest.mark.parametrize("make", [renamed, attributes, parameters, replaced, inserted])
def test_a_limit_ends_the_work(make: Callable[[int], Moment]) -> None:
    begun = time.thread_time()
    assert next_edits(make(4000), cpu_s=0.02) == []
    assert time.thread_time() - begun < CPU_S + 1


def test_a_cancelled_search_finds_nothing_and_stops_at_its_next_look() -> None:
    cancel = CancelToken()
    seen = []
    with pytest.raises(OutOfTime):
        for number in Limit(cancel=cancel).each(range(1000)):
            seen.append(number)
            if number == 3:
                cancel.cancel()
    assert seen == [0, 1, 2, 3]
    assert next_edits(renamed(50), cpu_s=60, cancel=cancel) == []


def test_a_diff_of_many_equal_lines_is_linear_and_right() -> None:
    def pair(size: int) -> tuple[list[str], list[str]]:
        old = ["\n" if n % 3 else f"line {n}\n" for n in range(size)]
        new = [line for n, line in enumerate(old) if n % 100 != 7]
        return ["first\n", *old, "last\n"], ["other\n", *new, "end\n"]

    old, new = pair(9000)
    at = made = 0
    out: list[str] = []
    for a, b, c, d in changed_runs(old, new):
        assert old[at:a] == new[made:c]
        out += old[at:a] + new[c:d]
        at, made = b, d
    assert out + old[at:] == new
    assert steps(lambda: changed_runs(*pair(9000))) < 12 * steps(lambda: changed_runs(*pair(3000)))
    same = ["\n"] * 3000
    assert changed_runs([*same, "a\n", *same], [*same, "b\n", *same]) == [(3000, 3001, 3000, 3001)]
    assert minimal_edits("x" * 9 + "\n" * 5000, "\n" * 5000 + "y" * 9)


@pytest.mark.parametrize("text", ["größe = 'naïve 🍀'\n" * 40, "x = 1\n" * 99, "", "🍀" * 300])
def test_places_in_bytes_and_characters_agree(text: str) -> None:
    names = Names(text)
    for offset in range(len(text) + 1):
        at = len(text[:offset].encode())
        assert (names.byte(offset), names.char(at)) == (at, offset)
    assert all(text[o.start : o.end] == o.name for o in names.occurrences)
