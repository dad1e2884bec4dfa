"""Lines, positions and changes, against slow and simple definitions of the same."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lsprotocol import types

from clover_engine.line_ends import line_starts
from clover_lsp.documents.documents import Documents, Snapshot, path_uri, uri_path
from clover_lsp.documents.text import (
    Encoding,
    Lines,
    characters,
    join_pairs,
    main_line_end,
    units,
)

TEXT = st.text(
    st.sampled_from("ab é漢😀\n\r\t\x0b\x0c\x1c\x85\u2028\ud83d\ude00"), max_size=30
).map(join_pairs)
ENCODINGS: tuple[Encoding, ...] = ("utf-8", "utf-16", "utf-32")


@given(TEXT)
def test_only_three_line_ends(text: str) -> None:
    """pygls splits at form feeds and Unicode separators; the protocol does not."""
    lines = re.split(r"\r\n|\n|\r", text)
    table = Lines(text, "utf-16")
    assert [table.line(n) for n in range(len(table))] == lines
    assert len(line_starts(text)) == len(lines)


@given(TEXT, st.sampled_from(ENCODINGS))
def test_positions_and_offsets_agree(text: str, encoding: Encoding) -> None:
    table = Lines(text, encoding)
    for offset in range(len(text) + 1):
        inside = text[offset - 1 : offset + 1] == "\r\n" and offset > 0
        assert table.offset(*table.position(offset)) == offset - inside


@given(TEXT, st.sampled_from(ENCODINGS), st.integers(-3, 80))
def test_a_column_inside_a_character_or_outside_the_line(
    text: str, encoding: Encoding, column: int
) -> None:
    line = re.split(r"\r\n|\n|\r", text)[0]
    starts = [units(line[:n], encoding) for n in range(len(line) + 1)]
    expected = max((n for n, start in enumerate(starts) if start <= max(0, column)))
    assert characters(line, column, encoding) == expected


@pytest.mark.parametrize(
    ("text", "end"), [("a", "\n"), ("a\r\nb\r\nc\n", "\r\n"), ("a\rb", "\r"), ("a\nb\r\n", "\n")]
)
def test_main_line_end(text: str, end: str) -> None:
    assert main_line_end(text) == end


def opened(text: str, encoding: Encoding = "utf-16") -> Documents:
    documents = Documents()
    documents.encoding = encoding
    documents.open(types.TextDocumentItem("untitled:x", "python", 1, text))
    return documents


def changed(documents: Documents, start: tuple[int, int], end: tuple[int, int], new: str) -> str:
    span = types.Range(types.Position(*start), types.Position(*end))
    documents.change("untitled:x", 2, [types.TextDocumentContentChangePartial(span, new)])
    snapshot = documents.get("untitled:x")
    assert snapshot is not None
    return snapshot.text


def test_surrogates_that_meet_are_one_character() -> None:
    """A client in UTF-16 may send the halves of an emoji one after the other."""
    documents = opened("a\ud83d")
    assert changed(documents, (0, 2), (0, 2), "\ude00b") == "a😀b"
    assert changed(documents, (0, 3), (0, 4), "c") == "a😀c"


def test_reversed_ranges_are_put_in_order() -> None:
    assert changed(opened("abcd"), (0, 3), (0, 1), "-") == "a-d"


def test_edits_tell_what_was_replaced() -> None:
    documents = opened("a\r\nb")
    whole = types.TextDocumentContentChangeWholeDocument("new")
    span = types.Range(types.Position(0, 3), types.Position(0, 3))
    found = documents.change(
        "untitled:x", 2, [whole, types.TextDocumentContentChangePartial(span, "er")]
    )
    assert found is not None
    snapshot, edits = found
    assert (snapshot.text, snapshot.version) == ("newer", 2)
    assert [(e.start, e.end, e.new) for e in edits] == [(0, 4, "new"), (3, 3, "er")]


def test_a_change_of_an_unknown_document_is_ignored() -> None:
    assert Documents().change("untitled:nobody", 1, []) is None


def test_snapshots_do_not_change() -> None:
    documents = opened("one")
    before = documents.get("untitled:x")
    assert before is not None and documents.is_current(before)
    changed(documents, (0, 3), (0, 3), "!")
    assert before.text == "one" and not documents.is_current(before)


@pytest.mark.parametrize(
    ("data", "text"),
    [(b"a\r\nb\xe9\r\n", "a\r\nbé\r\n"), ("ö\r".encode(), "ö\r"), (b"\xef\xbb\xbfx", "x")],
)
def test_15_files_that_are_not_open_keep_their_line_ends(
    tmp_path: Path, data: bytes, text: str
) -> None:
    """avante#1593; and Latin-1 is no reason to fail."""
    path = tmp_path / "a b.py"
    path.write_bytes(data)
    snapshot = Documents().read(path_uri(path))
    assert snapshot is not None
    assert (snapshot.text, snapshot.version, snapshot.language) == (text, None, "python")
    assert snapshot.path == str(path)
    path.write_bytes(b"other")
    assert not Documents().is_current(snapshot)


@pytest.mark.parametrize("uri", ["untitled:x", "vscode-notebook-cell:/a.ipynb#1", "git:/a?b", ":"])
def test_other_schemes_have_no_path(uri: str) -> None:
    assert uri_path(uri) is None
    assert Documents().read(uri) is None
    assert Snapshot(uri, "python", 1, "").path is None
