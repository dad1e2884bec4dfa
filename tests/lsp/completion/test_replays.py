"""Keystroke replays against the real server with a model of controllable speed.

Every test names the complaint about other tools that it stands for. Nothing here measures time:
orders and counts of events say what happened.
"""

from __future__ import annotations

import sys
from typing import Any

import pytest
from lsprotocol import types

CLIENT = sys.modules["lsp_client"]
SLOW = 0.02
"""Seconds a step: a suggestion of some tokens is surely still running at the next keystroke."""

FUNCTION = "def area(width, height):\n    return width * height\n"


def type_to(target: str, stop: str) -> str:
    """The part of a target document up to and including `stop`."""
    return target[: target.index(stop) + len(stop)]


def steps_after_cancel(events: list[dict[str, Any]]) -> int:
    """The most steps that any request computed after its cancellation reached the model."""
    worst, after = 0, None
    for event in events:
        if event["event"] == "begin":
            after = None
        elif event["event"] == "cancel" and event["running"]:
            after = 0
        elif event["event"] == "step" and after is not None and not event["cancelled"]:
            after += 1
            worst = max(worst, after)
    return worst


def test_suggests_what_the_model_says(editor: Any) -> None:
    editor.script.set(targets=[FUNCTION])
    uri = editor.open(editor.name(), type_to(FUNCTION, "return "))
    (item,) = editor.suggest(uri)
    assert item.insert_text == "width * height"
    editor.accept(uri, item)
    assert editor.texts[uri] == editor.server_text(uri) == FUNCTION.rstrip("\n")


def test_19_typed_characters_survive_a_stale_item(editor: Any) -> None:
    """minuet#149: an item for an older text ate what was typed since."""
    editor.script.set(targets=[FUNCTION], step_s=SLOW)
    uri = editor.open(editor.name(), type_to(FUNCTION, "return "))
    pending = editor.ask(uri)
    editor.script.wait_for("begin")
    editor.type(uri, "None")
    assert pending.result(CLIENT.WAIT_S) is None
    assert editor.server_text(uri) == editor.texts[uri]


def test_19_an_item_that_was_typed_into_meanwhile_still_fits(editor: Any) -> None:
    editor.script.set(targets=[FUNCTION], step_s=SLOW)
    uri = editor.open(editor.name(), type_to(FUNCTION, "return "))
    pending = editor.ask(uri)
    editor.script.wait_for("begin")
    editor.type(uri, "wid")
    found = pending.result(CLIENT.WAIT_S)
    assert found is not None
    editor.accept(uri, found.items[0])
    assert editor.texts[uri] == FUNCTION.rstrip("\n")


def test_20_accepting_right_after_typing_leaves_no_extra_character(editor: Any) -> None:
    """neovim#36529: the item's range must cover what was typed since it was asked for."""
    editor.script.set(targets=[FUNCTION], step_s=SLOW)
    uri = editor.open(editor.name(), type_to(FUNCTION, "return "))
    pending = editor.ask(uri)
    editor.script.wait_for("begin")
    editor.type(uri, "w")
    (item,) = pending.result(CLIENT.WAIT_S).items
    start, end = (editor.offset(uri, p) for p in (item.range.start, item.range.end))
    assert editor.texts[uri][start:end] == "w"
    assert item.insert_text == "width * height"


def test_21_deleting_the_last_row(editor: Any) -> None:
    """neovim#35971: index out of bounds."""
    editor.script.set(targets=[FUNCTION], step_s=SLOW)
    uri = editor.open(editor.name(), type_to(FUNCTION, "return "))
    pending = editor.ask(uri)
    editor.script.wait_for("begin")
    last = editor.texts[uri].rindex("\n")
    editor.replace(uri, last, len(editor.texts[uri]), "")
    assert pending.result(CLIENT.WAIT_S) is None
    outside = types.Position(7, 3)
    params = types.InlineCompletionParams(
        context=types.InlineCompletionContext(CLIENT.AUTOMATIC),
        text_document=types.TextDocumentIdentifier(uri),
        position=outside,
    )
    editor.request(types.TEXT_DOCUMENT_INLINE_COMPLETION, params)
    assert editor.server_text(uri) == "def area(width, height):"


def test_22_the_remainder_is_the_same_after_a_partial_accept(editor: Any) -> None:
    """zed#24263, copilot.lua PR#469: another suggestion appeared after accepting a word."""
    editor.script.set(targets=[FUNCTION])
    uri = editor.open(editor.name(), type_to(FUNCTION, "return "))
    (item,) = editor.suggest(uri)
    asked = len(editor.script.prompts())
    editor.script.set(targets=[], default="something_else()")
    for part, rest in (("width", " * height"), (" *", " height"), (" height", "")):
        editor.type(uri, part)
        editor.notify(
            "textDocument/didPartiallyAcceptCompletion",
            {"item": {"insertText": item.insert_text}, "acceptedLength": 5},
        )
        if rest:
            (left,) = editor.suggest(uri)
            assert left.insert_text == rest
            assert left.command.arguments == item.command.arguments
    assert len(editor.script.prompts()) == asked


def test_22_typing_through_asks_the_model_once(editor: Any) -> None:
    editor.script.set(targets=[FUNCTION])
    uri = editor.open(editor.name(), type_to(FUNCTION, "return "))
    whole = editor.suggest(uri)[0].insert_text
    for i, character in enumerate(whole[:-1]):
        editor.type(uri, character)
        assert [item.insert_text for item in editor.suggest(uri)] == [whole[i + 1 :]]
    assert len(editor.script.prompts()) == 1


def test_24_what_was_deleted_is_not_proposed_again(editor: Any) -> None:
    """vscode-copilot-release#8763."""
    editor.script.set(targets=[FUNCTION])
    text = FUNCTION.rstrip("\n")
    uri = editor.open(editor.name(), text)
    start = text.index("width * height")
    editor.replace(uri, start, len(text), "")
    assert editor.suggest(uri) == []
    assert len(editor.script.prompts()) == 1


def test_25_every_keystroke_stops_the_request_before(editor: Any) -> None:
    """continue#2838: requests of earlier keystrokes were never aborted."""
    target = FUNCTION + "print(area(1, 2) + area(3, 4) + area(5, 6) + area(7, 8))\n"
    editor.script.set(targets=[target], step_s=SLOW)
    uri = editor.open(editor.name(), FUNCTION + "p")
    pending = []
    for character in "rint(ar":
        pending.append(editor.ask(uri))
        editor.script.wait_for("begin", len(pending))
        editor.type(uri, character)
    last = editor.suggest(uri)
    assert [request.result(CLIENT.WAIT_S) for request in pending] == [None] * len(pending)
    assert last[0].insert_text.startswith("ea(1, 2)")
    assert len(editor.script.wait_for("cancel", len(pending))) == len(pending)
    editor.script.wait_for("end", len(pending) + 1)
    assert steps_after_cancel(editor.script.events()) <= 1


def test_25_the_protocols_own_cancellation_stops_the_model(editor: Any) -> None:
    editor.script.set(targets=[FUNCTION], step_s=SLOW)
    uri = editor.open(editor.name(), type_to(FUNCTION, "return "))
    pending = editor.ask(uri)
    editor.script.wait_for("begin")
    number = next(k for k, f in editor.client.protocol._request_futures.items() if f is pending)
    editor.notify(types.CANCEL_REQUEST, types.CancelParams(number))
    error = pending.exception(CLIENT.WAIT_S)
    assert error is not None and error.code == -32800
    editor.script.wait_for("end")
    assert steps_after_cancel(editor.script.events()) <= 1


def test_25_a_backlog_of_cancelled_requests_never_reaches_the_model(editor: Any) -> None:
    """pygls#517: cancellations behind their requests came too late."""
    editor.script.set(targets=[FUNCTION])
    uri = editor.open(editor.name(), type_to(FUNCTION, "return "))
    position = editor.position(uri, len(editor.texts[uri]))
    context = types.InlineCompletionContext(CLIENT.AUTOMATIC)
    params = types.InlineCompletionParams(context, types.TextDocumentIdentifier(uri), position)

    async def burst() -> list[Any]:
        """All requests and then all cancellations, in one write."""
        protocol = editor.client.protocol
        written: list[bytes] = []
        writer, protocol.writer = protocol.writer, Kept(written)
        try:
            names = [f"burst-{uri}-{number}" for number in range(20)]
            method = types.TEXT_DOCUMENT_INLINE_COMPLETION
            sent = [protocol.send_request(method, params, None, name) for name in names]
            for name in names:
                protocol.notify(types.CANCEL_REQUEST, types.CancelParams(name))
        finally:
            protocol.writer = writer
        writer.write(b"".join(written))
        return sent

    for request in editor.run(burst()):
        error = request.exception(CLIENT.WAIT_S)
        assert error.code == -32800 if error is not None else request.result() is None
    assert len(editor.script.prompts()) <= 1


class Kept:
    """A writer that keeps what it gets."""

    def __init__(self, data: list[bytes]) -> None:
        self.write = data.append


def test_26_nothing_runs_when_nobody_asks(editor: Any) -> None:
    """llama.vim#42: the GPU worked outside of insert mode, and two documents fought."""
    editor.script.set(targets=[FUNCTION], step_s=SLOW)
    first = editor.open(editor.name(), type_to(FUNCTION, "return "))
    second = editor.open(editor.name(), type_to(FUNCTION, "def "))
    pending = editor.ask(first)
    editor.script.wait_for("begin")
    # The cursor's line goes away without a new request: the model must not go on.
    editor.replace(first, 0, len(editor.texts[first]), "")
    assert pending.result(CLIENT.WAIT_S) is None
    editor.script.wait_for("end")
    assert steps_after_cancel(editor.script.events()) <= 1
    editor.type(second, "x")
    editor.notify("textDocument/didFocus", {"textDocument": {"uri": second}})
    assert editor.server_text(second) == editor.texts[second]
    assert len(editor.script.prompts()) == 1


def test_28_the_server_asks_for_no_file_watchers(editor: Any) -> None:
    """openai/codex#23574, neovim#23291: a million watches."""
    assert editor.registrations == []


def test_29_an_engine_that_fails_leaves_no_busy_state(servers: Any) -> None:
    """llama.vscode#217: "thinking" for ever after an error; and the engine comes back."""
    editor = servers(settings={"completion": {"debounceMs": 0}})
    editor.script.set(fail="the model is away; start it")
    uri = editor.open("untitled:a.py", type_to(FUNCTION, "return "))
    assert editor.suggest(uri) == []
    said = CLIENT.until(lambda: [s for s in editor.statuses if s["kind"] == "Error"])
    assert "the model is away; start it" in said[-1]["message"]
    assert editor.status()["busy"] is False
    editor.script.set(targets=[FUNCTION])
    found = CLIENT.until(lambda: editor.suggest(uri))
    assert found[0].insert_text == "width * height"
    CLIENT.until(lambda: editor.statuses[-1]["kind"] == "Normal")
    assert editor.stop() == 0


def test_29_a_crashed_engine_restarts(servers: Any) -> None:
    editor = servers(settings={"completion": {"debounceMs": 0}})
    editor.script.set(targets=[FUNCTION])
    uri = editor.open("untitled:a.py", "# @@crash@@\n" + type_to(FUNCTION, "return "))
    assert editor.suggest(uri) == []
    other = editor.open("untitled:b.py", type_to(FUNCTION, "return "))
    found = CLIENT.until(lambda: editor.suggest(other))
    assert found[0].insert_text == "width * height"
    assert editor.stop() == 0


def test_30_an_unsaved_document_is_read_as_it_is(editor: Any) -> None:
    """continue#1293, cody#3453: an empty prompt, or none at all, for untitled documents."""
    text = "import math\n\n\ndef root(x):\n    return "
    editor.script.set(targets=[text + "math.sqrt(x)\n"])
    uri = editor.open("untitled:Untitled-1", text)
    (item,) = editor.suggest(uri)
    assert item.insert_text == "math.sqrt(x)"
    prompt = editor.script.prompts()[-1]
    assert prompt["prefix"] + prompt["must_start_with"] == text


def open_notebook(editor: Any, cells: list[tuple[int, str, str]]) -> tuple[str, list[str]]:
    """(kind, language, text) for each cell; the notebook's and the cells' URIs."""
    path = editor.name("ipynb")
    uris = [f"vscode-notebook-cell:{path}#{number}" for number in range(len(cells))]
    notebook = types.NotebookDocument(
        uri=path,
        notebook_type="jupyter-notebook",
        version=1,
        cells=[
            types.NotebookCell(types.NotebookCellKind(kind), uri)
            for (kind, _, _), uri in zip(cells, uris, strict=True)
        ],
    )
    items = [
        types.TextDocumentItem(uri, language, 1, text)
        for (_, language, text), uri in zip(cells, uris, strict=True)
    ]
    for item in items:
        editor.texts[item.uri], editor.versions[item.uri] = item.text, 1
    params = types.DidOpenNotebookDocumentParams(notebook, items)
    editor.notify(types.NOTEBOOK_DOCUMENT_DID_OPEN, params)
    return path, uris


CELLS = [
    (2, "python", "import statistics\nvalues = [1, 2]"),
    (1, "markdown", "# A heading"),
    (2, "python", "mean = statistics."),
    (2, "python", "print(mean)"),
]


def test_31_other_cells_are_context(editor: Any) -> None:
    """tabby#788."""
    editor.script.set(default="mean(values)")
    _, uris = open_notebook(editor, CELLS)
    (item,) = editor.suggest(uris[2])
    assert item.insert_text == "mean(values)"
    assert (item.range.start.line, item.range.start.character) == (0, 18)
    prompt = editor.script.prompts()[-1]
    assert prompt["prefix"] == "import statistics\nvalues = [1, 2]\nmean = statistics."
    assert prompt["suffix"] == "\nprint(mean)"


def test_31_cells_that_move_or_change(editor: Any) -> None:
    path, uris = open_notebook(editor, CELLS)
    change = types.NotebookDocumentChangeEvent(
        cells=types.NotebookDocumentCellChanges(
            structure=types.NotebookDocumentCellChangeStructure(
                array=types.NotebookCellArrayChange(start=3, delete_count=1, cells=[]),
                did_close=[types.TextDocumentIdentifier(uris[3])],
            ),
            text_content=[
                types.NotebookDocumentCellContentChanges(
                    document=types.VersionedTextDocumentIdentifier(2, uris[0]),
                    changes=[types.TextDocumentContentChangeWholeDocument("x = 1")],
                )
            ],
        )
    )
    document = types.VersionedNotebookDocumentIdentifier(2, path)
    params = types.DidChangeNotebookDocumentParams(document, change)
    editor.notify(types.NOTEBOOK_DOCUMENT_DID_CHANGE, params)
    editor.suggest(uris[2])
    prompt = editor.script.prompts()[-1]
    assert (prompt["prefix"], prompt["suffix"]) == ("x = 1\nmean = statistics.", "")
    assert editor.server_text(uris[3]) is None


def test_32_a_cell_or_document_that_nobody_opened(editor: Any) -> None:
    """positron#9142: "document not found" once notebooks are advertised."""
    editor.texts["vscode-notebook-cell:nobody#1"] = "x"
    assert editor.suggest("vscode-notebook-cell:nobody#1") == []
    del editor.texts["vscode-notebook-cell:nobody#1"]
    assert editor.server.capabilities.notebook_document_sync is not None
    path, uris = open_notebook(editor, CELLS)
    assert editor.server_text(uris[2]) == CELLS[2][2]
    editor.notify(
        types.NOTEBOOK_DOCUMENT_DID_CLOSE,
        types.DidCloseNotebookDocumentParams(
            types.NotebookDocumentIdentifier(path), [types.TextDocumentIdentifier(u) for u in uris]
        ),
    )
    assert [editor.server_text(uri) for uri in uris] == [None] * 4


def popup_at(editor: Any, uri: str, word: str, text: str) -> types.SelectedCompletionInfo:
    """A popup whose item replaces `word` before the end of the document by `text`."""
    end = len(editor.texts[uri])
    span = types.Range(editor.position(uri, end - len(word)), editor.position(uri, end))
    return types.SelectedCompletionInfo(span, text)


def test_23_with_a_popup_in_a_notebook_the_prefix_is_that_cells(editor: Any) -> None:
    """continue#1400; and the item must extend the popup's text, in its range."""
    editor.script.set(default="(values)")
    _, uris = open_notebook(editor, CELLS)
    editor.type(uris[2], "me")
    popup = popup_at(editor, uris[2], "me", "mean")
    (item,) = editor.ask(uris[2], popup=popup).result(CLIENT.WAIT_S).items
    assert (item.insert_text, item.range) == ("mean(values)", popup.range)
    prompt = editor.script.prompts()[-1]
    assert (prompt["prefix"] + prompt["must_start_with"]).endswith(
        "values = [1, 2]\nmean = statistics.mean"
    )


def test_7_accepting_after_the_popup_repeats_no_word(editor: Any) -> None:
    """zed#17981."""
    editor.script.set(default="(x)")
    uri = editor.open(editor.name(), "import math\nx = 2\ny = math.sq")
    popup = popup_at(editor, uri, "sq", "sqrt")
    (item,) = editor.ask(uri, popup=popup).result(CLIENT.WAIT_S).items
    editor.accept(uri, item)
    assert editor.texts[uri].endswith("y = math.sqrt(x)")


def test_popup_elsewhere_gets_nothing(editor: Any) -> None:
    editor.script.set(default="(x)")
    uri = editor.open(editor.name(), "import math\nx = 2\ny = math.sq")
    far = types.SelectedCompletionInfo(
        types.Range(types.Position(0, 0), types.Position(0, 3)), "import"
    )
    assert editor.ask(uri, popup=far).result(CLIENT.WAIT_S) is None


def test_34_changes_of_one_message_apply_one_after_the_other(editor: Any) -> None:
    """avante#1179: the second hunk landed on the lines of the text before the first."""
    uri = editor.open(editor.name(), "a\nb\nc\n")
    first = types.Range(types.Position(0, 0), types.Position(1, 0))
    second = types.Range(types.Position(0, 0), types.Position(0, 1))
    editor.change(
        uri,
        [
            types.TextDocumentContentChangePartial(first, ""),
            types.TextDocumentContentChangePartial(second, "B\nB2"),
        ],
    )
    assert editor.server_text(uri) == "B\nB2\nc\n"


@pytest.mark.parametrize("end", ["\r\n", "\r"])
def test_13_14_no_carriage_returns_in_prompts_or_items(editor: Any, end: str) -> None:
    """copilot.vim#83, tabby#3279."""
    target = "def f(x):\n    if x:\n        y = 1\n        return y\n"
    editor.script.set(targets=[target])
    start = "def f(x):\n    if x:\n        "
    uri = editor.open(editor.name(), start.replace("\n", end))
    (item,) = editor.suggest(uri)
    assert item.insert_text == "y = 1\n        return y"
    assert editor.script.prompts()[-1]["prefix"] == start
    assert item.range.start == item.range.end == types.Position(2, 8)


@pytest.mark.parametrize("before", ["# 😀 漢字\n", "s = '😀漢'; "])
def test_16_positions_after_wide_characters(editor: Any, before: str) -> None:
    """ruff-lsp#358: emoji and CJK shifted everything after them."""
    editor.script.set(targets=[before + "x = compute(1)"])
    uri = editor.open(editor.name(), before + "x = ")
    (item,) = editor.suggest(uri)
    editor.accept(uri, item)
    assert editor.texts[uri] == editor.server_text(uri) == before + "x = compute(1)"


def test_17_typing_in_a_client_of_utf_8(servers: Any) -> None:
    """pygls PR#564: ``öbc`` and an ``a`` became ``öbac``."""
    utf8 = servers(client=CLIENT.capabilities(["utf-8", "utf-16"]))
    assert utf8.encoding == "utf-8"
    uri = utf8.open("untitled:a.py", "öbc")
    utf8.type(uri, "a", at=1)
    assert utf8.server_text(uri) == "öabc"
    assert utf8.stop() == 0


def test_18_positions_past_the_end(editor: Any) -> None:
    """llm-vscode#107: the server panicked."""
    editor.script.set(targets=["x = 1"])
    uri = editor.open(editor.name(), "x = ")
    far = types.Position(2**31 - 1, 2**31 - 1)
    params = types.InlineCompletionParams(
        context=types.InlineCompletionContext(CLIENT.AUTOMATIC),
        text_document=types.TextDocumentIdentifier(uri),
        position=far,
    )
    (item,) = editor.request(types.TEXT_DOCUMENT_INLINE_COMPLETION, params).items
    assert (item.insert_text, item.range.start) == ("1", types.Position(0, 4))
    editor.change(
        uri, [types.TextDocumentContentChangePartial(types.Range(types.Position(9, 9), far), "2")]
    )
    assert editor.server_text(uri) == "x = 2"


def test_several_items_when_invoked(editor: Any) -> None:
    editor.script.set(targets=[FUNCTION], default="other")
    uri = editor.open(editor.name(), type_to(FUNCTION, "return "))
    items = editor.suggest(uri, kind=CLIENT.INVOKED)
    assert items[0].insert_text == "width * height"
    modes = [(p["mode"], p["n"]) for p in editor.script.prompts()]
    assert modes == [("speculative", 1), ("threshold", 2)]


def test_unsure_text_is_not_shown_by_itself(editor: Any) -> None:
    editor.script.set(targets=[FUNCTION], confidence=0.1)
    uri = editor.open(editor.name(), type_to(FUNCTION, "return "))
    assert editor.suggest(uri) == []
    (item,) = editor.suggest(uri, kind=CLIENT.INVOKED)
    assert item.insert_text == "width * height"
