"""Buffers as bytes and patches as edits: encodings, line ends, several hunks, names of files."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lsprotocol import types

from clover_lsp.actions.buffers import (
    DocumentEdit,
    buffer_bytes,
    client_uri,
    document_edits,
    overlay,
)
from clover_lsp.actions.diff import Moved, apply_edits, minimal_edits
from clover_lsp.actions.errors import ActionRefused
from clover_lsp.connection.capabilities import Capabilities
from clover_lsp.context.types import Edit
from clover_lsp.documents.documents import Documents, Snapshot
from clover_lsp.features.workspace_edit import workspace_edit
from clover_patcher.edits import FileChange

TEXTS = st.text(st.sampled_from("ab\r\n \U0001f600ö"), max_size=40)


def opened(documents: Documents, path: Path, text: str) -> Snapshot:
    return documents.open(types.TextDocumentItem(path.as_uri(), "python", 7, text))


@given(TEXTS, TEXTS)
def test_minimal_edits_give_the_text_and_never_split_crlf(before: str, after: str) -> None:
    edits = minimal_edits(before, after)
    assert apply_edits(before, edits) == after
    for edit in edits:
        for at in (edit.start, edit.end):
            assert before[max(0, at - 1) : at + 1] != "\r\n" or at == 0


def test_several_hunks_keep_their_own_lines() -> None:
    """Complaint 34: the second hunk is not moved by the first one."""
    before = "".join(f"line {n}\n" for n in range(20))
    after = before.replace("line 3\n", "line 3\nmore\nmore\n").replace("line 15", "LINE 15")
    edits = minimal_edits(before, after)
    assert [before.count("\n", 0, e.start) for e in edits] == [4, 15]
    assert [e.new for e in edits] == ["more\nmore\n", "LINE"]


def test_follows_untouched_places_through_an_edit() -> None:
    before, after = "a = old(1)\nb = 2\nc = 3\n", "first = new(1)\nb = 2\nd = 1\nc = 3\n"
    moved = Moved(before, after, "python")
    start = before.index("c")
    assert moved.span(start, start + 1) == (after.index("c"), after.index("c") + 1)
    assert moved.span(0, 1) is None  # it was renamed
    one = before.index("1")
    assert moved.span(one, one + 1) == (after.index("1"), after.index("1") + 1)


@pytest.mark.parametrize(
    ("disk", "text", "expected"),
    [
        (b"\xef\xbb\xbfx = 1\r\n", "x = 2\n", b"\xef\xbb\xbfx = 2\r\n"),
        (b"x = 1\r\ny = 1\n", "x = 2\n", b"x = 2\n"),
        (
            b"# coding: latin-1\nx = '\xf6'\n",
            "# coding: latin-1\nx = 'öß'\n",
            b"# coding: latin-1\nx = '\xf6\xdf'\n",
        ),
        (b"x = '\xf6'\n", "x = 'ö'\n", b"x = '\xf6'\n"),
        (None, "x = 'ö'\n", "x = 'ö'\n".encode()),
    ],
)
def test_a_buffer_is_written_as_its_file_is(disk: bytes, text: str, expected: bytes) -> None:
    assert buffer_bytes(text, disk, "a.py") == expected


def test_a_character_that_the_encoding_lacks_is_refused() -> None:
    with pytest.raises(ActionRefused, match=r"a\.py has a character that .* lacks: save it as"):
        buffer_bytes("# coding: latin-1\nx = '€'\n", b"# coding: latin-1\n", "a.py")


def test_only_unsaved_buffers_of_the_repository_are_taken(tmp_path: Path) -> None:
    root = tmp_path / "repo"
    root.mkdir()
    documents = Documents()
    for name, disk, text in (
        ("same.py", "a\r\n", "a\n"),
        ("new.py", None, "n"),
        ("x.py", "1", "2"),
    ):
        if disk is not None:
            (root / name).write_bytes(disk.encode())
        opened(documents, root / name, text)
    opened(documents, tmp_path / "outside.py", "o")
    documents.open(types.TextDocumentItem("untitled:u.py", "python", 1, "u"))
    assert overlay(documents, root) == {"new.py": b"n", "x.py": b"2"}


def test_a_patch_of_an_open_file_lands_in_what_the_client_shows(tmp_path: Path) -> None:
    """The client shows LF and a byte order mark; the file has CRLF."""
    documents = Documents()
    snapshot = opened(documents, tmp_path / "a.py", "\ufeffone\ntwo\n")
    change = FileChange("a.py", b"\xef\xbb\xbfone\r\ntwo\r\n", b"\xef\xbb\xbfone\r\nTWO\r\n")
    (edit,) = document_edits(tmp_path, [change], documents)
    assert edit == DocumentEdit(snapshot, (Edit(5, 8, "TWO"),))


def test_a_patch_of_another_text_is_refused(tmp_path: Path) -> None:
    documents = Documents()
    opened(documents, tmp_path / "a.py", "one\nthree\n")
    (tmp_path / "b.py").write_bytes(b"other\n")
    for name in ("a.py", "b.py"):
        with pytest.raises(ActionRefused, match=rf"{name} changed meanwhile"):
            document_edits(tmp_path, [FileChange(name, b"one\n", b"two\n")], documents)
    with pytest.raises(ActionRefused, match="not in the repository"):
        document_edits(tmp_path, [FileChange("../b.py", b"other\n", b"x")], documents)


def test_files_have_the_names_that_the_client_uses(tmp_path: Path) -> None:
    """Complaint 33: below the right one of nested and linked folders."""
    real = tmp_path / "real"
    (real / "folder1" / "folder2").mkdir(parents=True)
    (tmp_path / "link").symlink_to(real)
    folders = [str(tmp_path / "link" / "folder1"), str(tmp_path / "link" / "folder1" / "folder2")]
    uri = client_uri(real / "folder1" / "folder2" / "demo.py", folders)
    assert uri == (tmp_path / "link" / "folder1" / "folder2" / "demo.py").as_uri()
    assert client_uri(tmp_path / "else.py", folders) == (tmp_path / "else.py").as_uri()


def capabilities(**options: object) -> Capabilities:
    edit = types.WorkspaceEditClientCapabilities(**options)  # type: ignore[arg-type]
    workspace = types.WorkspaceClientCapabilities(workspace_edit=edit)
    return Capabilities(types.ClientCapabilities(workspace=workspace))


def test_edits_of_several_files_ask_for_confirmation(tmp_path: Path) -> None:
    documents = Documents()
    changed = [
        DocumentEdit(opened(documents, tmp_path / name, "x"), (Edit(0, 1, "y"),))
        for name in ("a.py", "b.py")
    ]
    can = capabilities(
        document_changes=True, change_annotation_support=types.ChangeAnnotationsSupportOptions()
    )
    edit = workspace_edit(changed, can, documents, "Fix")
    assert edit.change_annotations is not None and edit.document_changes is not None
    assert [a.needs_confirmation for a in edit.change_annotations.values()] == [True]
    assert all(
        isinstance(e, types.AnnotatedTextEdit)
        for c in edit.document_changes
        for e in c.edits  # type: ignore[union-attr]
    )
    alone = workspace_edit(changed[:1], can, documents, "Fix")
    assert alone.change_annotations is None
    plain = workspace_edit(changed, capabilities(), documents, "Fix")
    assert plain.document_changes is None and set(plain.changes or {}) == {
        c.snapshot.uri for c in changed
    }


def test_without_versions_a_document_that_moved_is_refused(tmp_path: Path) -> None:
    documents = Documents()
    snapshot = opened(documents, tmp_path / "a.py", "x")
    documents.change(snapshot.uri, 8, [types.TextDocumentContentChangeWholeDocument("xx")])
    with pytest.raises(ActionRefused, match="changed meanwhile"):
        workspace_edit(
            [DocumentEdit(snapshot, (Edit(0, 1, "y"),))], capabilities(), documents, "Fix"
        )
