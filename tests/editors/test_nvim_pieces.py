"""The plugin's own arithmetic, run in a real Neovim without a server."""

from __future__ import annotations

from collections.abc import Callable

import pytest


@pytest.fixture
def editor(open_editor: Callable[..., object]) -> object:
    return open_editor()


@pytest.mark.parametrize(
    ("text", "word", "line"),
    [
        ("return value", "return", "return value"),
        (" + total\n    return", " +", " + total"),
        ("name_1(x)", "name_1", "name_1(x)"),
        ("(x)", "(", "(x)"),
        ("\n    return x\n", "\n    ", "\n    return x"),
        ("größe = 1", "größe", "größe = 1"),
        ("日本(x)", "日本", "日本(x)"),
        ("  ", "  ", "  "),
        ("", "", ""),
    ],
)
def test_what_a_partial_accept_takes(editor, text: str, word: str, line: str) -> None:  # type: ignore[no-untyped-def]
    assert editor.lua("require('clover.pieces').word(...)", text) == word
    assert editor.lua("require('clover.pieces').line(...)", text) == line


def test_parts_make_the_whole_again(editor) -> None:  # type: ignore[no-untyped-def]
    text = "  if größe(日本) >= 1:\n        return '🍀' + name\n\n    x"
    taken, rest = "", text
    while rest:
        part = editor.lua("require('clover.pieces').word(...)", rest)
        assert part and rest.startswith(part)
        taken, rest = taken + part, rest[len(part) :]
    assert taken == text


@pytest.mark.parametrize(
    ("item", "line", "col", "encoding", "expected"),
    [
        ({"insertText": "turn x"}, "re", 2, "utf-16", ("turn x", 0)),
        ({"insertText": "return x", "range": (0, 2)}, "re", 2, "utf-16", ("turn x", 0)),
        ({"insertText": "foo)", "range": (6, 7)}, "print()", 6, "utf-16", ("foo)", 1)),
        ({"insertText": "x = 🍀y", "range": (0, 6)}, "x = 🍀", 8, "utf-16", ("y", 0)),
        ({"insertText": "x = 🍀y", "range": (0, 8)}, "x = 🍀", 8, "utf-8", ("y", 0)),
        ({"insertText": "a\r\nb"}, "", 0, "utf-8", ("a\nb", 0)),
        ({"insertText": "other", "range": (0, 2)}, "re", 2, "utf-16", None),
        ({"insertText": "re", "range": (0, 2)}, "re", 2, "utf-16", None),
        ({"insertText": "x", "range": (0, 1)}, "re", 2, "utf-16", None),
    ],
)
def test_where_an_item_belongs(editor, item, line, col, encoding, expected) -> None:  # type: ignore[no-untyped-def]
    item = dict(item)
    if "range" in item:
        first, last = item["range"]
        item["range"] = {
            "start": {"line": 0, "character": first},
            "end": {"line": 0, "character": last},
        }
    found = editor.run(
        "local s = require('clover.place').suggestion(...) return s and {s.text, s.after}",
        item, line, 0, col, encoding,
    )  # fmt: skip
    assert found == (list(expected) if expected else None)


def test_what_is_right_of_the_cursor_already_is_not_shown_twice(editor) -> None:  # type: ignore[no-untyped-def]
    shown = editor.run(
        "return require('clover.place').shown({text = 'foo)', after = 1}, 'print()', 6)"
    )
    assert shown == ["foo"]


def test_bad_options_are_reported_and_defaulted(editor) -> None:  # type: ignore[no-untyped-def]
    said = editor.run(
        """
        local said = {}
        vim.notify = function(text) said[#said + 1] = text end
        local set = require('clover.config').set({
          ghost = "loud", nonsense = 1, keys = { accept = 3 }, next_edit = false })
        return { said, set.ghost, set.next_edit, set.keys.accept }
        """
    )
    assert len(said[0]) == 3 and all("clover-options" in text for text in said[0])
    assert said[1:] == ["auto", False, "<Tab>"]


def test_without_a_server_the_user_is_told_what_to_do(open_editor) -> None:  # type: ignore[no-untyped-def]
    editor = open_editor(env={"PATH": "/usr/bin:/bin"})
    editor.run(
        """
        said = {}
        vim.notify_once = function(text) said[#said + 1] = text end
        local server = require('clover.server')
        server.command = function() return nil, 'nowhere' end
        require('clover').setup({})
        """
    )
    assert "checkhealth clover" in editor.lua("said[1]")
    assert editor.lua("require('clover').status()") == "clover: failed"
    editor.command("checkhealth clover")
    text = "\n".join(editor.lines())
    assert "clover-code was not found" in text and "pip install" in text
