"""Edits of a file's bytes that give it a new text: the law, over line ends, marks and encodings."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from clover_patcher.edits import apply_edits
from clover_patcher.propose.rewrite.edits import edits_between, text_of

LINES = st.lists(st.sampled_from(["x = 1", "", "    y", "é = 'ü'", "# 𝛼", "def f():"]), max_size=8)


@given(LINES, LINES, st.sampled_from(["\n", "\r\n"]), st.booleans(), st.booleans(), st.booleans())
def test_the_new_text_is_what_comes_out(
    before: list[str], after: list[str], end: str, mark: bool, newline: bool, python: bool
) -> None:
    path = "a.py" if python else "a.js"
    content = end.join(before).encode() + (end.encode() if newline and before else b"")
    content = b"\xef\xbb\xbf" + content if mark else content
    new = "\n".join(after)
    edits = edits_between(path, content, new)
    assert text_of(path, apply_edits(content, edits)) == new
    assert not edits or content != apply_edits(content, edits)


def test_other_lines_keep_their_ends_and_encoding() -> None:
    content = "# -*- coding: latin-1 -*-\r\nx = 'é'\ny = 1\r\nz = 2\r\n".encode("latin-1")
    text = text_of("a.py", content)
    assert text is not None
    (edit,) = edits_between("a.py", content, text.replace("y = 1", "y = 'ü'"))
    expected = content.replace(b"y = 1", "y = 'ü'".encode("latin-1"))
    assert apply_edits(content, [edit]) == expected
