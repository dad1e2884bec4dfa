"""Changes of a document against their slow and simple definition: cut, paste, split anew."""

from __future__ import annotations

import sys
import time
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lsprotocol import types

from clover_lsp.documents import table as tables
from clover_lsp.documents.documents import MAX_CHARS, Documents
from clover_lsp.documents.table import Table, split_lines
from clover_lsp.documents.text import Encoding, Lines, join_pairs
from clover_lsp.documents.workspace import Workspace

TEXT = st.text(st.sampled_from("ab é漢😀\n\r\t\x0b\x0c\x85\u2028\ud83d\ude00\n\r"), max_size=40)
PLACE = st.tuples(st.integers(0, 12), st.integers(0, 9))
CHANGE = st.tuples(PLACE, PLACE, TEXT)
ENCODINGS: tuple[Encoding, ...] = ("utf-8", "utf-16", "utf-32")


def partial(start: tuple[int, int], end: tuple[int, int], new: str) -> Any:
    span = types.Range(types.Position(*start), types.Position(*end))
    return types.TextDocumentContentChangePartial(span, new)


def opened(text: str, encoding: Encoding = "utf-16") -> Documents:
    documents = Documents()
    documents.encoding = encoding
    documents.open(types.TextDocumentItem("untitled:a", "python", 1, text))
    return documents


def naive(text: str, change: Any, encoding: Encoding) -> tuple[str, tuple[int, int]]:
    lines = Lines(text, encoding)
    span = change.range
    places = [lines.offset(p.line, p.character) for p in (span.start, span.end)]
    start, end = sorted(places)
    return join_pairs(text[:start] + change.text + text[end:]), (start, end)


@given(TEXT, st.lists(CHANGE, max_size=8), st.sampled_from(ENCODINGS), st.integers(1, 4))
def test_changes_equal_cutting_and_pasting(
    text: str, changes: list[Any], encoding: Encoding, block: int
) -> None:
    """Also with blocks of very few lines, which long documents have many of."""
    before, tables.BLOCK = tables.BLOCK, block
    try:
        documents = opened(text, encoding)
        made = [partial(*change) for change in changes]
        done = documents.change("untitled:a", 2, made)
        assert done is not None
        expected = join_pairs(text)
        for change, edit in zip(made, done[1], strict=True):
            expected, span = naive(expected, change, encoding)
            assert (edit.start, edit.end, edit.new) == (*span, change.text)
        snapshot = done[0]
        assert snapshot.text == expected
        assert [line for b in snapshot.table._blocks for line in b.lines] == split_lines(expected)
        lines = Lines(expected, encoding)
        for offset in range(-1, len(expected) + 2):
            assert snapshot.table.position(offset, encoding) == lines.position(offset)
        for line in range(-1, len(lines) + 1):
            for column in range(-1, 12):
                found = snapshot.table.offset(line, column, encoding)
                assert found == lines.offset(line, column)
    finally:
        tables.BLOCK = before


def test_the_table_before_stays_as_it_was() -> None:
    before = Table("one\ntwo\nthree\n")
    after = before.replaced(4, 7, "2\n2")
    assert (before.text, after.text) == ("one\ntwo\nthree\n", "one\n2\n2\nthree\n")
    assert (len(before), len(after), before.size, after.size) == (4, 5, 14, 14)


def steps(work: Any) -> int:
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace if "clover_lsp" in frame.f_code.co_filename else None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def bulk(count: int, lines: int) -> Any:
    documents = opened("".join(f"value_{n} = {n}\n" for n in range(lines)))
    made = [partial((7 * n % lines, 0), (7 * n % lines, 1), "wx\n") for n in range(count)]
    return lambda: documents.change("untitled:a", 2, made)


def test_a_thousand_changes_in_one_notification_are_linear() -> None:
    """Each change copied the text and split all its lines at 2846628: 2.1 s for these."""
    assert steps(bulk(800, 2000)) < 6 * steps(bulk(200, 2000))
    assert steps(bulk(200, 20_000)) < 3 * steps(bulk(200, 2000))
    begun = time.thread_time()
    bulk(1000, 20_000)()
    assert time.thread_time() - begun < 1.0


@pytest.mark.parametrize("line", ["x = 1  # größer\n", "y" * 200 + "\r\n"])
def test_a_key_in_a_very_large_document_copies_nothing(line: str) -> None:
    documents = opened(line * (20_000_000 // len(line)))
    begun = time.thread_time()
    for number in range(20):
        documents.change("untitled:a", number, [partial((number * 100, 2), (number * 100, 2), "é")])
    assert time.thread_time() - begun < 1.0, "20 keys"
    found = documents.get("untitled:a")
    assert found is not None and found.is_too_large and found.text.count("é") >= 20


def test_a_document_that_is_too_large_is_closed_for_all_but_itself() -> None:
    workspace = Workspace()
    heard: list[str] = []
    workspace.on_open(lambda snapshot: heard.append("open"))
    workspace.on_change(lambda before, after, edits: heard.append("change"))
    workspace.on_close(lambda uri: heard.append("close"))
    workspace.on_size(
        lambda s: heard.append("large" if s is not None and s.is_too_large else "small")
    )
    workspace.open(types.TextDocumentItem("untitled:a", "python", 1, "x\n"))
    workspace.change("untitled:a", 2, [partial((0, 0), (0, 0), "y")])
    workspace.change("untitled:a", 3, [partial((1, 0), (1, 0), "z" * MAX_CHARS)])
    workspace.change("untitled:a", 4, [partial((0, 0), (0, 0), "y")])
    workspace.change("untitled:a", 5, [partial((1, 0), (1, MAX_CHARS), "")])
    workspace.close("untitled:a")
    assert heard == ["open", "small", "change", "close", "large", "open", "small", "close", "small"]
