"""A quick model that answers at once, a large one where that is not sure: through the real server.

Both are the scripted model, each in a process of its own; the log says which one was asked.
"""

from __future__ import annotations

import sys
from typing import Any

import pytest

CLIENT = sys.modules["lsp_client"]
ALONE = {"completion": {"debounceMs": 0, "prefetch": False}}
AHEAD = {"completion": {"debounceMs": 0}}
QUICK = "value = quick_answer(1)"
LARGE = "value = large_answer(2)"


@pytest.fixture
def start(servers: Any) -> Any:
    def started(settings: Any, **script: Any) -> Any:
        editor = servers(settings=settings, checkpoint="/nowhere/large.gguf")
        editor.script.set(targets=[QUICK], large={"targets": [LARGE]}, **script)
        return editor

    return started


def asked(editor: Any) -> list[bool]:
    """For each request in order: was the large model asked?"""
    return [prompt["is_large"] for prompt in editor.script.prompts()]


def test_a_sure_quick_answer_waits_for_nobody(start: Any) -> None:
    editor = start(ALONE)
    uri = editor.open("untitled:a.py", "value = ")
    (item,) = editor.suggest(uri)
    assert item.insert_text == "quick_answer(1)"
    assert asked(editor) == [False]
    assert editor.status()["answered"] == {"origin": "model", "model": "scripted"}
    assert editor.stop() == 0


def test_where_the_quick_one_is_not_sure_the_large_one_answers(start: Any) -> None:
    editor = start(ALONE, confidence=0.6)
    editor.script.set(
        targets=[QUICK], confidence=0.6, large={"targets": [LARGE], "confidence": 0.9999}
    )
    uri = editor.open("untitled:a.py", "value = ")
    (item,) = editor.suggest(uri)
    assert item.insert_text == "large_answer(2)"
    assert asked(editor) == [False, True]
    assert editor.stop() == 0


def test_by_key_press_both_are_asked_and_both_texts_offered(start: Any) -> None:
    editor = start({"completion": {"debounceMs": 0, "prefetch": False, "alternatives": 2}})
    uri = editor.open("untitled:a.py", "value = ")
    texts = {item.insert_text for item in editor.suggest(uri, kind=CLIENT.INVOKED)}
    assert texts == {"quick_answer(1)", "large_answer(2)"}
    assert editor.stop() == 0


def test_the_large_models_text_comes_up_when_the_user_types_on_differently(start: Any) -> None:
    editor = start(AHEAD)
    uri = editor.open("untitled:a.py", "value = ")
    (shown,) = editor.suggest(uri)
    assert shown.insert_text == "quick_answer(1)"
    follow_up = CLIENT.until(lambda: follow_ups(editor))
    CLIENT.until(lambda: has_ended(editor, follow_up[0]))
    (same,) = editor.suggest(uri)
    assert same.insert_text == "quick_answer(1)", "what is on the screen stays"
    editor.script.set(targets=[])  # from now on only what is remembered can come up
    CLIENT.until(lambda: offered_after(editor, uri, "l") == ["arge_answer(2)"])
    assert editor.stop() == 0


def follow_ups(editor: Any) -> list[dict[str, Any]]:
    """What the large model was asked for the place at which the quick one had answered."""
    return [p for p in editor.script.prompts() if p["is_large"] and "quick" not in p["prefix"]]


def has_ended(editor: Any, prompt: dict[str, Any]) -> bool:
    return any(e["event"] == "end" and e["at"] > prompt["at"] for e in editor.script.events())


def offered_after(editor: Any, uri: str, typed: str) -> list[str]:
    """Types, asks, and takes back what was typed."""
    editor.type(uri, typed)
    texts = [item.insert_text for item in editor.suggest(uri)]
    end = len(editor.texts[uri])
    editor.replace(uri, end - len(typed), end, "")
    return texts


def test_saving_power_the_large_one_is_asked_by_key_press_only(start: Any) -> None:
    editor = start({**AHEAD, "power": "low"}, confidence=0.5)
    uri = editor.open("untitled:a.py", "value = ")
    assert editor.suggest(uri) == []
    assert asked(editor) == [False]
    assert editor.suggest(uri, kind=CLIENT.INVOKED)
    assert True in asked(editor)
    assert editor.stop() == 0


def test_languages_that_only_the_large_one_knows(start: Any) -> None:
    editor = start(ALONE)
    uri = editor.open("untitled:a.lua", "value = ", "lua")
    (item,) = editor.suggest(uri)
    assert item.insert_text == "large_answer(2)"
    assert asked(editor) == [True]
    assert editor.stop() == 0


def test_while_the_large_one_fails_the_quick_one_answers_and_the_status_says_so(
    start: Any,
) -> None:
    editor = start(ALONE)
    editor.script.set(
        targets=[QUICK], confidence=0.9, large={"fail": "no memory", "confidence": 0.9}
    )
    uri = editor.open("untitled:a.py", "value = ")
    editor.suggest(uri, kind=CLIENT.INVOKED)
    CLIENT.until(lambda: "answers meanwhile" in editor.status()["message"])
    assert editor.status()["kind"] == "Warning"
    assert editor.stop() == 0
