"""The log holds every verdict, survives a torn line, and tells a later run what to skip."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from clover_patcher.errors import UsageError
from clover_patcher.report.runlog import KEPT, RunLog, edit_key, read_log, run_key
from clover_patcher.repository.snapshot import Stamp
from clover_patcher.types import Candidate, Edit, Outcome, Status, TestFailure, Validation

BASELINE = Outcome("failed", 1.0, (TestFailure("test_a.py::test", "AssertionError", "no"),))
ENDED = SimpleNamespace(
    status="fixed",
    exit_code=0,
    candidates_tried=2,
    passing=1,
    seconds=1.5,
    fix_id="7",
    commit=None,
)


def candidate(new: bytes, start: int = 0, path: str = "a.py") -> Candidate:
    return Candidate((Edit(path, start, start + 1, new),), 1, "name", "\udcff text", -1.5, 2.0)


def validation(new: bytes, status: Status) -> Validation:
    return Validation(candidate(new), Outcome(status, 0.25))


def write(path: Path, key: str = "key", **verdicts: Status) -> None:
    log = RunLog(path, key)
    log.start(Path("/repo"), "pytest", BASELINE)
    for number, (new, status) in enumerate(verdicts.items(), 1):
        log.candidate(validation(new.encode(), status), number)
    log.end(ENDED)


def test_every_verdict_is_logged(tmp_path: Path) -> None:
    write(tmp_path / "log", x="failed", y="passed")
    start, first, second, end = read_log(tmp_path / "log")
    assert (start["event"], start["key"], start["format"]) == ("start", "key", 1)
    assert start["failing"] == [["test_a.py::test", "AssertionError"]]
    assert first == {
        "event": "candidate",
        "number": 1,
        "edit": edit_key(candidate(b"x")),
        "path": "a.py",
        "line": 1,
        "kind": "name",
        "text": "\udcff text",
        "logprob": -1.5,
        "priority": 2.0,
        "status": "failed",
        "seconds": 0.25,
    }
    assert second["status"] == "passed"
    assert (end["status"], end["tried"], end["fix"]) == ("fixed", 2, "7")


def test_a_resumed_run_skips_what_failed(tmp_path: Path) -> None:
    write(tmp_path / "log", x="failed", y="passed", z="timeout")
    log = RunLog.open(tmp_path / "log", None, "key", resume=True)
    assert [log.is_new(candidate(new)) for new in (b"x", b"y", b"z", b"w")] == [
        False,
        True,
        False,
        True,
    ]
    assert log.notes == ["resumed: 2 candidates that failed before were skipped"]


def test_edits_differ_by_place_file_and_text(tmp_path: Path) -> None:
    write(tmp_path / "log", x="failed")
    log = RunLog.open(tmp_path / "log", None, "key", resume=True)
    others = [candidate(b"x", start=1), candidate(b"x", path="b.py"), candidate(b"X")]
    assert all(map(log.is_new, others))


def test_another_tree_or_check_is_not_resumed(tmp_path: Path) -> None:
    write(tmp_path / "log", key="other", x="failed")
    log = RunLog.open(tmp_path / "log", None, "key", resume=True)
    assert log.is_new(candidate(b"x"))
    assert "nothing to resume" in log.notes[0]


def test_without_resume_nothing_is_skipped(tmp_path: Path) -> None:
    write(tmp_path / "log", x="failed")
    log = RunLog.open(tmp_path / "log", None, "key", resume=False)
    assert log.is_new(candidate(b"x"))
    assert log.notes == []


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_a_line_that_was_cut_off_costs_that_line_only(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "log"
    write(path, x="failed", y="failed")
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:2]) + lines[2][:-cut])
    log = RunLog.open(path, None, "key", resume=True)
    log.start(Path("/repo"), "pytest", BASELINE)
    log.candidate(validation(b"z", "failed"), 1)
    assert not log.is_new(candidate(b"x"))
    assert log.is_new(candidate(b"y")) == (cut > 1)
    again = RunLog.open(path, None, "key", resume=True)
    assert [again.is_new(candidate(new)) for new in (b"x", b"z")] == [False, False]
    assert len(path.read_bytes().splitlines()) == 5


def test_lines_that_are_not_ours_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b'\xff\n[1]\n"x"\n{"a": 1}\n{"event": "end"}\n\n')
    assert list(read_log(tmp_path / "log")) == [{"event": "end"}]
    assert list(read_log(tmp_path / "nothing")) == []


def test_logs_without_a_name_are_kept_for_a_while(tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    for number in range(KEPT + 3):
        folder.mkdir(exist_ok=True)
        name = f"20200101-0000{number:02}-7.jsonl"
        (folder / name).write_text(json.dumps({"event": "end"}) + "\n")
    (folder / "2019-mine.jsonl").write_text("a user's own file\n")
    log = RunLog.open(None, folder, "key", resume=False)
    assert log.path is not None and log.path.parent == folder
    assert len(list(folder.iterdir())) == KEPT + 1
    assert not (folder / "20200101-000000-7.jsonl").exists()
    assert (folder / "2019-mine.jsonl").exists(), "only names of our own making are removed"


def test_all_logs_of_the_folder_are_resumed(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    write(tmp_path / "runs/1.jsonl", x="failed")
    write(tmp_path / "runs/2.jsonl", y="failed")
    log = RunLog.open(None, tmp_path / "runs", "key", resume=True)
    assert [log.is_new(candidate(new)) for new in (b"x", b"y")] == [False, False]


def test_a_log_that_nobody_reads() -> None:
    log = RunLog.open(None, None, "key", resume=True)
    log.start(Path("/repo"), "pytest", BASELINE)
    assert (log.path, log.is_new(candidate(b"x"))) == (None, True)
    log.end(ENDED)


def test_a_log_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot write the log"):
        RunLog.open(tmp_path / "no/log", None, "key", resume=False)


def test_the_key_stands_for_check_and_tree(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("data")
    stamps = {"a.py": Stamp(1, 2, 3, "digest")}
    names = ("a.py", "a.txt", "gone")
    base = run_key(("pytest",), tmp_path, names, stamps)
    assert base == run_key(("pytest",), tmp_path, names, stamps)
    touched = {"a.py": Stamp(9, 9, 9, "digest")}
    assert run_key(("pytest",), tmp_path, names, touched) == base
    others = [
        run_key(("pytest", "-x"), tmp_path, names, stamps),
        run_key(("pytest",), tmp_path, names[:2], stamps),
        run_key(("pytest",), tmp_path, names, {"a.py": Stamp(1, 2, 3, "other")}),
    ]
    os.utime(tmp_path / "a.txt", (1, 1))
    others.append(run_key(("pytest",), tmp_path, names, stamps))
    assert len({base, *others}) == 5
