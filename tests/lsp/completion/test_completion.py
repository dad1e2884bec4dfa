"""The popup for clients without inline completion."""

from __future__ import annotations

import sys
from typing import Any

from lsprotocol import types

CLIENT = sys.modules["lsp_client"]
QUIET = {"completion": {"debounceMs": 0, "prefetch": False}}


def complete(editor: Any, uri: str) -> Any:
    params = types.CompletionParams(
        types.TextDocumentIdentifier(uri), editor.position(uri, len(editor.texts[uri]))
    )
    return editor.request(types.TEXT_DOCUMENT_COMPLETION, params)


def test_one_item_that_survives_the_clients_filter(servers: Any) -> None:
    editor = servers(client=CLIENT.capabilities(inline=False), settings=QUIET)
    assert editor.server.capabilities.completion_provider is not None
    target = "def f(😀x):\n    result = compute(1)\n"
    editor.script.set(targets=[target])
    uri = editor.open("untitled:a.py", "def f(😀x):\n    result = com")
    found = complete(editor, uri)
    (item,) = found.items
    assert found.is_incomplete
    assert item.filter_text == item.text_edit.new_text == "compute(1)"
    word = len("com")
    end = editor.position(uri, len(editor.texts[uri]))
    assert item.text_edit.range == types.Range(types.Position(end.line, end.character - word), end)
    assert item.label == "compute(1)" and item.command.command == "clover.accepted"
    assert item.sort_text.isprintable()  # Emacs refuses the whole answer for a NUL in it
    editor.close(uri)
    assert complete(editor, uri) is None
    assert editor.stop() == 0


def test_several_lines_have_a_short_label(servers: Any) -> None:
    editor = servers(client=CLIENT.capabilities(inline=False), settings=QUIET)
    target = "def f(x):\n    y = x + 1\n    return y\n"
    editor.script.set(targets=[target])
    uri = editor.open("untitled:a.py", "def f(x):\n    ")
    (item,) = complete(editor, uri).items
    assert item.label == "y = x + 1 …"
    assert item.text_edit.new_text == "y = x + 1\n    return y"
    assert editor.stop() == 0


def test_not_offered_to_clients_with_inline_completion(editor: Any) -> None:
    """Two sources of the same text would show it twice."""
    assert editor.server.capabilities.completion_provider is None
    assert editor.server.capabilities.inline_completion_provider is not None
