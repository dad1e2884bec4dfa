"""Code actions over the real protocol: listed at once, resolved later, never applied blindly."""

from __future__ import annotations

from typing import Any

import pytest
from lsprotocol import types

from clover_lsp.actions.instructed import PRESETS

BROKEN = "def double(count):\n    return coutn * 2\n"
FIXED = "def double(count):\n    return count * 2\n"
MESSAGE = "Undefined name `coutn`"


def fix_of(bench: Any, uri: str, word: str = "coutn", message: str = MESSAGE) -> Any:
    """The resolved fix of a diagnostic at the last `word`."""
    diagnostic = bench.diagnostic(uri, word, message, "F821")
    return bench.resolve(bench.actions(uri, [diagnostic])[0])


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8", "utf-32"])
def test_a_fix_lands_right_behind_an_emoji_in_every_encoding(benches: Any, encoding: str) -> None:
    bench = benches(benches.abilities(encoding))
    text = "def double(count):\n    note = '\U0001f600ö'; return coutn * 2\n"
    uri = bench.editor.open("untitled:emoji.py", text)
    action = fix_of(bench, uri)
    assert bench.after(action.edit, uri) == text.replace("coutn", "count")
    assert action.edit.document_changes[0].text_document.version == 1


def test_fixes_crlf_files_and_unsaved_text(bench: Any) -> None:
    uri = bench.editor.open("untitled:crlf.py", "x = 1\r\n")
    bench.editor.type(uri, BROKEN.replace("\n", "\r\n"))
    after = bench.after(fix_of(bench, uri).edit, uri)
    assert after == "x = 1\r\n" + FIXED.replace("\n", "\r\n")


def test_lists_fixes_without_asking_the_model_and_honours_only(bench: Any) -> None:
    """`@@crash@@` would end the model's process if the list asked it anything."""
    uri = bench.editor.open("untitled:list.py", "# @@crash@@\n" + BROKEN)
    diagnostic = bench.diagnostic(uri, "coutn", MESSAGE, "F821")
    titles = [a.title for a in bench.actions(uri, [diagnostic])]
    written = ["Write the selection anew", *PRESETS.values()]
    assert titles == [f"Fix: {MESSAGE}", "Fix with tests", *written]
    kinds = {
        "quickfix": titles[:2],
        "quickfix.other": [],
        "refactor": titles[2:],
        "refactor.rewrite": titles[2:],
        "refactor.re": [],
        "source.fixAll": [],
        "": titles,
    }
    for kind, expected in kinds.items():
        assert [a.title for a in bench.actions(uri, [diagnostic], only=[kind])] == expected, kind
    assert bench.command("clover.status")["works"] is True


def test_says_that_a_model_may_have_a_part_in_it(bench: Any) -> None:
    uri = bench.editor.open("untitled:tags.py", BROKEN)
    listed = bench.actions(uri, [bench.diagnostic(uri, "coutn", MESSAGE, "F821")])
    assert list(listed[0].tags) == [types.CodeActionTag.LlmGenerated]
    resolved = bench.resolve(listed[0])
    assert not resolved.tags  # found by looking at the names in reach
    assert resolved.is_preferred


def test_offers_nothing_where_no_fix_could_be_judged(bench: Any) -> None:
    uri = bench.editor.open("untitled:types.py", BROKEN)
    typed = bench.diagnostic(uri, "coutn", "Incompatible types", "operator", "mypy")
    assert [a.title for a in bench.actions(uri, [typed])][:1] == ["Fix with tests"]
    other = bench.editor.open("untitled:other.lua", "x = coutn\n", "lua")
    assert bench.actions(other, [bench.diagnostic(other, "coutn", MESSAGE)]) == []


def test_says_why_there_is_no_fix(benches: Any) -> None:
    bench = benches(settings={"engine": "none"})
    uri = bench.editor.open("untitled:none.py", "x = qwertyuiop\n")
    action = fix_of(bench, uri, "qwertyuiop", "Undefined name `qwertyuiop`")
    assert action.edit is None
    assert "no fix is known to help" in action.disabled.reason
    assert "Fix with tests" in bench.editor.messages[-1].message


def test_an_action_that_is_a_command_stays_as_it_is(bench: Any) -> None:
    """VS Code asks to resolve it nevertheless."""
    uri = bench.editor.open("untitled:command.py", BROKEN)
    listed = bench.actions(uri, [bench.diagnostic(uri, "coutn", MESSAGE, "F821")])
    assert listed[1].command.command == "clover.fixTests"
    resolved = bench.resolve(listed[1])
    assert resolved.edit is None and resolved.disabled is None
    assert resolved.command.command == "clover.fixTests"


def test_refuses_to_fix_a_document_that_changed_meanwhile(bench: Any) -> None:
    uri = bench.editor.open("untitled:moved.py", BROKEN)
    listed = bench.actions(uri, [bench.diagnostic(uri, "coutn", MESSAGE, "F821")])
    bench.editor.type(uri, "# more\n", at=0)
    action = bench.resolve(listed[0])
    assert action.edit is None and "changed meanwhile" in action.disabled.reason


def test_a_client_without_resolve_or_versions_gets_a_command(benches: Any) -> None:
    bench = benches(benches.abilities(resolve=False, versioned=False))
    uri = bench.editor.open("untitled:old.py", BROKEN)
    action = bench.actions(uri, [bench.diagnostic(uri, "coutn", MESSAGE, "F821")])[0]
    answer = bench.command(action.command.command, *action.command.arguments)
    assert answer["applied"]
    edit = bench.asked[-1].edit
    assert edit.document_changes is None and bench.after(edit, uri) == FIXED


def test_tells_the_reason_when_the_editor_refuses(bench: Any) -> None:
    bench.refuse = "the file is read-only"
    uri = bench.editor.open("untitled:refused.py", BROKEN)
    diagnostic = bench.diagnostic(uri, "coutn", MESSAGE, "F821")
    data = bench.actions(uri, [diagnostic])[0].data
    answer = bench.command("clover.fixDiagnostic", data)
    assert not answer["applied"] and "read-only" in answer["reason"]
    assert "read-only" in bench.editor.messages[-1].message


@pytest.mark.parametrize("argument", [None, 3, {"version": 1}, {"uri": "u", "range": "x"}])
def test_bad_arguments_are_one_clear_line(bench: Any, argument: Any) -> None:
    for name in ("clover.fixDiagnostic", "clover.editSelection", "clover.showContext"):
        with pytest.raises(Exception, match=rf"{name} (takes|needs)"):
            bench.command(name, argument)
    assert bench.command("clover.status")["works"] is True


def test_writes_a_selection_anew(benches: Any, worker: Any) -> None:
    bench = benches(worker=worker(infills=["return a + b"], confidence=0.9))
    text = "def add(a, b):\r\n    return a - b\r\n"
    uri = bench.editor.open("untitled:edit.py", text)
    start = text.index("return")
    span = types.Range(bench.editor.position(uri, start), bench.editor.position(uri, len(text) - 2))
    action = bench.resolve(bench.actions(uri, span=span, only=["refactor.rewrite"])[0])
    assert bench.after(action.edit, uri) == text.replace("-", "+")
    answer = bench.command("clover.listAlternatives", action.data)
    assert [a["text"] for a in answer["alternatives"]] == ["return a + b"] and not bench.asked


@pytest.mark.parametrize(
    "options", [{"infills": ["return a * b"], "confidence": 0.2}, {"infills": ["return (a"]}]
)
def test_writes_nothing_that_is_unsure_or_broken(benches: Any, worker: Any, options: Any) -> None:
    bench = benches(worker=worker(**options))
    text = "def add(a, b):\n    return a - b\n"
    uri = bench.editor.open("untitled:unsure.py", text)
    span = types.Range(types.Position(1, 4), types.Position(1, 16))
    action = bench.resolve(bench.actions(uri, span=span, only=["refactor.rewrite"])[0])
    assert action.edit is None and "not sure enough" in action.disabled.reason


def test_shows_the_context_and_clears_the_cache(bench: Any) -> None:
    bench.editor.open("untitled:other.py", "def double_all(counts):\n    return counts\n")
    uri = bench.editor.open("untitled:context.py", BROKEN)
    place = {"line": 1, "character": 4}
    span = {"start": place, "end": place}
    shown = bench.command("clover.showContext", {"uri": uri, "range": span})
    assert set(shown) == {"withheld", "snippets", "lookups"} and shown["withheld"] == ""
    assert all(s["path"] and s["score"] >= 0 for s in shown["snippets"])
    assert bench.command("clover.clearCache")["cleared"]
