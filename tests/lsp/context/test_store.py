"""The index on disk: what is asked of it, damage, versions, several processes."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clover_lsp.context.store import Reader, Writer, remove, store_path
from clover_lsp.context.symbols import grams, line_hash, parse, word_hash
from clover_lsp.context.worker import Worker


def index(root: Path, store: Path) -> dict[str, Any]:
    """Scans in this process and returns the last answer."""
    answers: list[dict[str, Any]] = []
    worker = Worker(store, root, [], answers.append)
    worker.serve({"id": 1, "op": "scan"})
    worker.writer.close()
    return answers[-1]


def put(writer: Writer, path: str, text: str) -> None:
    data = text.encode()
    writer.put(path, (1, len(data)), "python", False, parse(data, "python"), grams(data))


def test_answers(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "s.sqlite")
    put(writer, "a.py", "from m import thing\nclass A:\n    x: int\n    def go(self): pass\n")
    put(writer, "b.py", "def go(): return thing\n")
    writer.write_grams()
    put(writer, "c.py", "thing = 3\n")  # newer than the array
    reader = Reader(tmp_path / "s.sqlite")
    found = [(reader.files[d.file].path, d.definition.kind) for d in reader.definitions("go", 9)]
    assert found == [("a.py", "method"), ("b.py", "function")]
    a = reader.by_path["a.py"]
    assert [m.definition.name for m in reader.members(a, "A", 9)] == ["x", "go"]
    assert reader.importers("thing", 9) == [(a, "m")]
    files, total = reader.postings(word_hash("thing"), 10)
    assert {reader.files[f].path for f in files} == {"a.py", "b.py", "c.py"} and total == 3
    assert reader.postings(line_hash("  class A:"), 10) == ([a], 1)
    assert reader.postings(word_hash("nowhere"), 10) == ([], 0)
    assert len(reader.postings(word_hash("thing"), 1)[0]) == 2, "one, and the newer one"
    reader.close()
    writer.close()


def test_replaced_and_dropped_files_disappear(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "s.sqlite")
    put(writer, "a.py", "def old(): pass\n")
    put(writer, "b.py", "def gone(): pass\n")
    writer.write_grams()
    reader = Reader(tmp_path / "s.sqlite")
    put(writer, "a.py", "def new(): pass\n")
    writer.drop(["b.py"])
    reader.refresh(["a.py", "b.py"])
    assert not reader.definitions("old", 9) and not reader.definitions("gone", 9)
    assert reader.definitions("new", 9)
    assert reader.postings(word_hash("old"), 9)[0] == []
    assert reader.postings(word_hash("new"), 9)[0] == [reader.by_path["a.py"]]
    reader.close()
    writer.close()


def test_store_is_outside_of_the_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CLOVER_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    if sys.platform == "linux":
        assert store_path(tmp_path / "r").is_relative_to(tmp_path / "xdg" / "clover-code")
    monkeypatch.setenv("CLOVER_CACHE_DIR", str(tmp_path / "mine"))
    one, other = store_path(tmp_path / "r"), store_path(tmp_path / "s")
    assert one.parent == other.parent == tmp_path / "mine" / "index" and one != other
    (tmp_path / "link").symlink_to(tmp_path / "r")
    assert store_path(tmp_path / "link") == one, "a link to a folder is that folder"


@pytest.mark.parametrize("damage", ["garbage", "empty", "cut", "grams", "no grams"])
def test_damaged_store_is_built_again(
    damage: str, write: Callable[..., Path], tmp_path: Path
) -> None:
    root, store = write({f"{n}.py": f"def f{n}(): pass\n" for n in range(120)}), tmp_path / "s.db"
    assert index(root, store)["changed"] == 120
    grams_file = store.with_suffix(".grams")
    match damage:
        case "garbage":
            store.write_bytes(os.urandom(20_000))
        case "empty":
            store.write_bytes(b"")
        case "cut":
            store.write_bytes(store.read_bytes()[:5000])
        case "grams":
            grams_file.write_bytes(grams_file.read_bytes()[:40])
        case _:
            grams_file.unlink()
    assert index(root, store)["ok"]
    reader = Reader(store)
    assert reader.definitions("f7", 9) and reader.postings(word_hash("def"), 9)[1] == 120
    reader.close()


def test_scan_takes_only_what_changed(write: Callable[..., Path], tmp_path: Path) -> None:
    root, store = (
        write({f"f{n}.py": f"def f{n}(): pass\n" for n in range(5)}),
        tmp_path / "s.sqlite",
    )
    assert index(root, store)["changed"] == 5
    assert index(root, store)["changed"] == 0
    (root / "f1.py").write_text("def changed(): pass\n")
    (root / "f2.py").unlink()
    (root / "new.py").write_text("def new(): pass\n")
    (root / ".cloverignore").write_text("f3.py\n")
    assert index(root, store)["changed"] == 5, "and the ignore file itself"
    reader = Reader(store)
    assert set(reader.by_path) == {"f0.py", "f1.py", "f4.py", "new.py", ".cloverignore"}
    reader.close()


def test_unreadable_and_unfit_files_do_not_stop_a_scan(
    write: Callable[..., Path], tmp_path: Path
) -> None:
    root = write(
        {
            "binary.py": b"\0\1\2", "latin.py": "n = 'é'\n".encode("latin-1"),
            "deep.py": "(" * 60_000,
            "big.py": "x = 1\n" * 200_000, "empty.py": "", "ok.py": "def ok(): pass\n",
            "secret.py": "token = 'ghp_" + "a1B2" * 9 + "'\n",
        }
    )  # fmt: skip
    os.mkfifo(root / "pipe.py")
    assert index(root, tmp_path / "s.sqlite")["ok"]
    reader = Reader(tmp_path / "s.sqlite")
    assert reader.definitions("ok", 9) and "pipe.py" not in reader.by_path
    assert [f.path for f in reader.files.values() if f.secret] == ["secret.py"]
    reader.close()


def test_two_processes_may_index_one_root_at_once(
    write: Callable[..., Path], tmp_path: Path
) -> None:
    root = write({f"f{n}.py": f"def f{n}(): pass\n" for n in range(150)})
    store = tmp_path / "s.sqlite"
    command = [sys.executable, "-m", "clover_lsp.context.worker", str(store), str(root)]
    running = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    for process in running:
        assert process.stdin is not None
        process.stdin.write('{"id": 1, "op": "scan"}\n')
        process.stdin.flush()
    for process in running:
        assert process.stdout is not None
        last = next(m for m in map(json.loads, process.stdout) if "ok" in m)
        assert last["ok"], last
    for process in running:
        assert process.communicate()[0] == "" and process.returncode == 0
    reader = Reader(store)
    assert len(reader.files) == 150 and reader.postings(word_hash("def"), 500)[1] == 150
    reader.close()


def test_worker_answers_short_requests_during_a_scan(
    write: Callable[..., Path], tmp_path: Path
) -> None:
    root = write({f"f{n}.py": "def f(): pass\n" for n in range(200)})
    answers: list[dict[str, Any]] = []
    worker = Worker(tmp_path / "s.sqlite", root, [], answers.append)
    worker.requests.put({"id": 2, "op": "parse", "language": "python", "text": "def x(): pass\n"})
    worker.requests.put({"id": 3, "op": "no such thing"})
    worker.serve({"id": 1, "op": "scan"})
    order = [a["id"] for a in answers if "ok" in a]
    assert order == [2, 3, 1]
    assert answers[0].get("symbols", {}).get("definitions", [["x"]])[0][0] == "x"
    assert not next(a for a in answers if a["id"] == 3)["ok"]
    worker.writer.close()


def test_read_only_access(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "s.sqlite")
    put(writer, "a.py", "x = 1\n")
    writer.close()
    reader = Reader(tmp_path / "s.sqlite")
    with pytest.raises(sqlite3.OperationalError):
        reader.db.execute("DELETE FROM files")
    reader.close()
    remove(tmp_path / "s.sqlite")
    assert list(tmp_path.iterdir()) == []


def test_hashes_of_a_file_are_sorted_and_distinct() -> None:
    found = grams(b"a = foo\na = foo\nbar\n" * 50)
    assert found == array("I", sorted(set(found)))
