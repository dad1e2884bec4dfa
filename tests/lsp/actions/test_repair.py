"""`clover.fixTests` over the real protocol: real repositories, real pytest, unsaved buffers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lsprotocol import types

WRONG = "def add(a, b):\n    return a - b\n"
RIGHT = "def add(a, b):\n    return a + b\n"
TEST = "from calc import add\n\n\ndef test_add():\n    assert add(2, 3) == 5\n"
SLOW = "import time\n" + TEST.replace("    assert", "    time.sleep(0.4)\n    assert")
NO_MODEL = {"engine": "none", "fix": {"budgetS": 60}}


def opened(bench: Any, path: Path, text: str | None = None) -> str:
    """Opens a file as an editor would: without its byte order mark."""
    data = path.read_bytes()
    shown = data.decode("utf-8-sig") if text is None else text
    return str(bench.editor.open(path.as_uri(), shown))


def test_fixes_unsaved_text_in_the_second_root(benches: Any, make_repo: Any) -> None:
    """Complaint 33: the edit names the file in its own folder, and the disk is not touched."""
    first = make_repo({"calc.py": WRONG, "test_calc.py": TEST}, "folder1")
    second = make_repo({"calc.py": RIGHT, "tests/test_calc.py": TEST}, "folder2")
    bench = benches(roots=[first, second], settings=NO_MODEL)
    uri = opened(bench, second / "calc.py")
    start = bench.editor.texts[uri].index("+")
    bench.editor.replace(uri, start, start + 1, "-")
    answer = bench.command("clover.fixTests", {"uri": uri})
    assert answer["applied"] and answer["files"] == [uri], answer
    edit = bench.asked[-1].edit
    assert bench.after(edit, uri) == RIGHT
    assert edit.document_changes[0].text_document.version == 2
    assert (second / "calc.py").read_text() == RIGHT  # the disk still has what was saved
    assert (first / "calc.py").read_text() == WRONG
    assert any("baseline" in (p.value.get("message") or "") for p in reports(bench))


def reports(bench: Any) -> list[Any]:
    found = [p for p in bench.progress if isinstance(p.value, dict)]
    return [p for p in found if p.value.get("kind") == "report"]


def test_keeps_line_ends_byte_order_mark_and_encoding(bench: Any, make_repo: Any) -> None:
    """Complaint 15: a client that shows LF for a CRLF file gets its edit on the right line."""
    body = "# größe\r\n" + WRONG.replace("\n", "\r\n")
    data = b"\xef\xbb\xbf" + body.encode()
    root = make_repo({"calc.py": data, "test_calc.py": TEST})
    uri = opened(bench, root / "calc.py", body.replace("\r\n", "\n"))
    answer = bench.command("clover.fixTests", {"uri": uri})
    assert answer["applied"], answer
    assert bench.after(bench.asked[-1].edit, uri) == "# größe\n" + RIGHT
    assert (root / "calc.py").read_bytes() == data


def test_edits_files_that_are_not_open(bench: Any, make_repo: Any) -> None:
    root = make_repo({"calc.py": WRONG, "test_calc.py": TEST})
    test = opened(bench, root / "test_calc.py")
    answer = bench.command("clover.fixTests", test)
    assert answer["files"] == [(root / "calc.py").as_uri()]
    change = bench.asked[-1].edit.document_changes[0]
    assert change.text_document.version is None
    assert [e.new_text for e in change.edits] == ["+"]


def test_a_cancelled_fix_stops_and_the_next_one_may_run(bench: Any, make_repo: Any) -> None:
    """Cancelled in the middle; a second fix meanwhile is refused, one afterwards is not."""
    root = make_repo({"calc.py": WRONG, "test_calc.py": SLOW})
    uri = opened(bench, root / "calc.py")
    answers = []

    def stop(params: types.ProgressParams) -> None:
        if bench.progress and not answers and "baseline" in str(params.value):
            answers.append(bench.editor.client.protocol.send_request(*second))
            token = types.WorkDoneProgressCancelParams(params.token)
            cancel = bench.editor.client.window_work_done_progress_cancel
            answers[0].add_done_callback(lambda _: cancel(token))

    second = (
        types.WORKSPACE_EXECUTE_COMMAND,
        types.ExecuteCommandParams("clover.fixTests", arguments=[uri]),
    )
    bench.on_progress = stop
    answer = bench.command("clover.fixTests", uri)
    assert not answer["applied"] and "cancelled" in answer["reason"]
    assert "running already" in answers[0].result(60)["reason"]
    assert not bench.asked
    ends = [p for p in bench.progress if "'kind': 'end'" in str(p.value)]
    assert len(ends) == 1
    bench.on_progress = lambda params: None
    assert bench.command("clover.fixTests", uri)["applied"]


def test_text_that_changed_during_the_fix_is_not_patched(bench: Any, make_repo: Any) -> None:
    root = make_repo({"calc.py": WRONG, "test_calc.py": TEST})
    uri = opened(bench, root / "calc.py")
    typed = []

    def type_something(params: types.ProgressParams) -> None:
        if not typed and "localise" in str(params.value):
            typed.append(True)
            document = types.VersionedTextDocumentIdentifier(2, uri)
            place = types.Range(types.Position(0, 0), types.Position(0, 0))
            change = types.TextDocumentContentChangePartial(place, "# new\n")
            bench.editor.client.text_document_did_change(
                types.DidChangeTextDocumentParams(document, [change])
            )

    bench.on_progress = type_something
    answer = bench.command("clover.fixTests", {"uri": uri})
    assert typed and not answer["applied"] and "changed meanwhile" in answer["reason"]
    assert not bench.asked


def test_says_what_is_missing(bench: Any, make_repo: Any, tmp_path: Path) -> None:
    root = make_repo({"calc.py": WRONG})
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "calc.py").write_text(WRONG)
    assert "no folder is open" in bench.command("clover.fixTests")["reason"]
    alone = opened(bench, root / "calc.py")
    assert "clover.fix.check" in bench.command("clover.fixTests", alone)["reason"]
    elsewhere = opened(bench, outside / "calc.py")
    assert "not in a git repository" in bench.command("clover.fixTests", elsewhere)["reason"]
    untitled = bench.editor.open("untitled:a.py", WRONG)
    assert "save it" in bench.command("clover.fixTests", untitled)["reason"]


def test_an_edit_that_the_editor_refuses_is_reported(bench: Any, make_repo: Any) -> None:
    root = make_repo({"calc.py": WRONG, "test_calc.py": TEST})
    uri = opened(bench, root / "calc.py")
    bench.refuse = "no"
    answer = bench.command("clover.fixTests", uri)
    assert not answer["applied"] and "did not apply it (no)" in answer["reason"]
    assert (root / "calc.py").read_text() == WRONG


def test_an_editor_that_takes_no_edits_is_told_so(benches: Any, make_repo: Any) -> None:
    root = make_repo({"calc.py": WRONG, "test_calc.py": TEST})
    bench = benches(benches.abilities(apply=False, progress=False), [root], NO_MODEL)
    assert "takes no edits" in bench.command("clover.fixTests")["reason"]
    assert not bench.progress
