"""Token counts of a snapshot: which files they hold, and what they do to the order of repairs."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

import pytest

from clover_patcher.locate.counts import RepositoryCounts
from clover_patcher.propose.source import CandidateSource
from clover_patcher.types import Location

USES = """def {name}(self, rows):
    for row in rows:
        self.append(row.key, row.value)
        self.count += 1
    return self.count
"""
BROKEN = """def insert(self, rows):
    for row in rows:
        self.append(row.value, row.value)
        self.count += 1
    return self.count
"""


def counts_of(files: Mapping[str, str | bytes], withheld: tuple[str, ...] = ()) -> RepositoryCounts:
    def read(path: str) -> bytes:
        data = files[path]
        return data if isinstance(data, bytes) else data.encode()

    counts = RepositoryCounts(files, read, lambda path: path in withheld)
    counts.start()
    assert counts.wait(60)
    return counts


def others() -> dict[str, str]:
    return {f"lib/{name}.py": USES.format(name=name) for name in ("extend", "update", "merge")}


def change(counts: RepositoryCounts, text: str, old: str, new: str) -> float | None:
    start = text.index(old)
    return counts.delta("broken.py", text, start, start + len(old), new)


def test_what_other_files_write_is_likelier() -> None:
    counts = counts_of({"broken.py": BROKEN, **others()})
    assert (change(counts, BROKEN, "row.value", "row.key") or 0) > 2
    assert (change(counts, BROKEN, "+= 1", "-= 1") or 0) < -2


def test_withheld_files_are_not_counted() -> None:
    files = {"broken.py": BROKEN, **others()}
    counts = counts_of(files, withheld=tuple(others()))
    alone = counts_of({"broken.py": BROKEN})
    told, own = (change(c, BROKEN, "row.value", "row.key") for c in (counts, alone))
    assert told is not None
    assert told == own


def test_a_withheld_file_has_no_deltas() -> None:
    counts = counts_of({"broken.py": BROKEN, **others()}, withheld=("broken.py",))
    assert change(counts, BROKEN, "row.value", "row.key") is None


def test_line_ends_and_byte_order_marks_change_nothing() -> None:
    plain = counts_of({"broken.py": BROKEN, **others()})
    files = {path: text.replace("\n", "\r\n").encode() for path, text in others().items()}
    windows = BROKEN.replace("\n", "\r\n")
    counts = counts_of({"broken.py": b"\xef\xbb\xbf" + windows.encode(), **files})
    for old, new in (("row.value", "row.key"), ("+= 1", "-= 1"), ("return", "yield")):
        assert change(counts, windows, old, new) == change(plain, BROKEN, old, new)


@pytest.mark.parametrize("data", [b"\xff\xfe\x00", b"", b"x" * 500_000])
def test_files_that_are_no_code_are_passed_over(data: bytes) -> None:
    counts = counts_of({"broken.py": BROKEN, "odd.py": data, **others()})
    assert (change(counts, BROKEN, "row.value", "row.key") or 0) > 2


def test_stopping_does_not_wait_for_all_files() -> None:
    started = threading.Event()

    def read(path: str) -> bytes:
        started.set()
        time.sleep(0.01)
        return BROKEN.encode()

    counts = RepositoryCounts([f"{n}.py" for n in range(10_000)], read)
    counts.start()
    assert started.wait(30)
    counts.stop()
    assert not counts.wait(0)


def first_fixing(counts: RepositoryCounts | None) -> int:
    """How many candidates are proposed before the one that restores the line."""
    goal = USES.format(name="insert")
    data = goal.replace("+= 1", "-= 1").encode()
    places = [Location("broken.py", line, 1.0) for line in (1, 2, 3, 4, 5)]
    source = CandidateSource({"broken.py": data}, places, None, counts=counts)
    number = 0
    for batch in source.batches(time.monotonic() + 60):
        for candidate in batch:
            (edit,) = candidate.edits
            if data[: edit.start] + edit.new + data[edit.end :] == goal.encode():
                return number
            number += 1
    raise AssertionError("the repair is not among the candidates")


def test_the_repair_comes_sooner_with_counts() -> None:
    broken = USES.format(name="insert").replace("+= 1", "-= 1")
    counts = counts_of({"broken.py": broken, **others()})
    assert 2 * first_fixing(counts) < first_fixing(None)
