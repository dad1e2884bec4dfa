"""Typing through what is shown: the store of `reuse.py`."""

from __future__ import annotations

from clover_lsp.context.types import Place
from clover_lsp.suggest.reuse import Shown
from clover_lsp.suggest.scene import accepted
from clover_lsp.suggest.types import Popup, Suggestion

CALL = Suggestion("compute(first, second)", 0.8, "model")


def at(prefix: str, suffix: str = "\nother = 1\n", uri: str = "file:///a") -> Place:
    return Place(uri, "python", prefix, suffix)


def texts(store: Shown, place: Place, popup: Popup | None = None) -> list[str]:
    return [r.suggestion.text for r in store.get(place, 1.0, popup)]


def test_typing_leaves_the_rest_with_the_same_identity() -> None:
    store = Shown()
    (shown,) = store.put(at("x = "), [CALL], 0.0)
    for typed in range(len(CALL.text)):
        (left,) = store.get(at("x = " + CALL.text[:typed]), 1.0)
        assert left.identity == shown.identity and left.typed == typed
        assert CALL.text[:typed] + left.suggestion.text == CALL.text
    assert not store.get(at("x = " + CALL.text), 1.0)


def test_deleting_brings_it_back() -> None:
    store = Shown()
    store.put(at("x = "), [CALL], 0.0)
    assert texts(store, at("x = comp")) == ["ute(first, second)"]
    assert not store.get(at("x = comb"), 1.0)
    assert texts(store, at("x = com")) == ["pute(first, second)"]
    assert not store.get(at("x ="), 1.0)


def test_changes_around_it_end_it() -> None:
    store = Shown()
    store.put(at("x = "), [CALL], 0.0)
    assert not store.get(at("x = ", "\nother = 2\n"), 1.0)
    assert not store.get(at("y = "), 1.0)
    assert not store.get(at("x = ", uri="file:///b"), 1.0)
    assert not store.get(at("x = ", "\n"), 1.0)


def test_far_changes_do_not_matter() -> None:
    store = Shown()
    store.put(at("a" * 5000 + "\nx = ", "\n" + "b" * 5000), [CALL], 0.0)
    assert texts(store, at("c" * 5000 + "a" * 500 + "\nx = co", "\n" + "b" * 600 + "d")) == [
        "mpute(first, second)"
    ]


def test_brackets_that_the_editor_closes_and_that_are_typed_over() -> None:
    store = Shown()
    store.put(at("x = "), [CALL], 0.0)
    assert texts(store, at("x = compute(", ")\nother = 1\n")) == ["first, second"]
    assert texts(store, at("x = compute(first, second", "\nother = 1\n")) == [")"]
    store = Shown()
    replacing = Suggestion("a):", 0.8, "model", replace_after=1)
    store.put(at("def f(", ")\n"), [replacing], 0.0)
    (left,) = store.get(at("def f(a", ")\n"), 1.0)
    assert (left.suggestion.text, left.suggestion.replace_after) == ("):", 1)
    (left,) = store.get(at("def f(a)", "\n"), 1.0)
    assert (left.suggestion.text, left.suggestion.replace_after) == (":", 0)


def test_crlf_documents_reuse_suggestions_with_lf() -> None:
    store = Shown()
    several = Suggestion("\n    a = 1\n    b = 2", 0.8, "model")
    store.put(at("def f():", "\r\nx = 1\r\n"), [several], 0.0)
    assert texts(store, at("def f():\r\n    a = 1\r\n    ", "\r\nx = 1\r\n")) == ["b = 2"]


def test_popup_items_are_extended_with_their_range() -> None:
    store = Shown()
    store.put(at("x = "), [CALL], 0.0)
    (left,) = store.get(at("x = com"), 1.0, Popup("compute", 3))
    assert left.suggestion.text == CALL.text
    assert (left.suggestion.replace_before, left.suggestion.replace_after) == (3, 0)
    assert not store.get(at("x = com"), 1.0, Popup("combine", 3))


def test_a_suggestion_for_a_popup_stays_once_the_popup_is_gone() -> None:
    store = Shown()
    store.put(at("x = com"), [Suggestion(CALL.text, 0.8, "model", replace_before=3)], 0.0)
    assert texts(store, at("x = com")) == ["pute(first, second)"]
    assert texts(store, at("x = compute(f")) == ["irst, second)"]


def test_the_newest_wins_and_several_keep_their_order() -> None:
    store = Shown()
    store.put(at("x = "), [CALL], 0.0)
    others = [Suggestion("mpute(1)", 0.9, "model"), Suggestion("nnect()", 0.5, "model")]
    store.put(at("x = co"), others, 0.5)
    assert texts(store, at("x = co")) == ["mpute(1)", "nnect()"]
    assert texts(store, at("x = con")) == ["nect()"]
    assert texts(store, at("x = compute(f")) == ["irst, second)"]


def test_prefetched_texts_wait_where_acceptance_leads() -> None:
    store = Shown()
    place = at("x = ", ")\n")
    shown = Suggestion("f(a))", 0.8, "model", replace_after=1)
    then = accepted(place, shown.text, shown.replace_before, shown.replace_after)
    assert (then.prefix, then.suffix) == ("x = f(a))", "\n")
    store.put(then, [Suggestion("\ny = 2", 0.5, "prefetch")], 0.0)
    assert texts(store, at("x = f(a))", "\n")) == ["\ny = 2"]


def test_old_far_dismissed_and_surplus_ones_are_gone() -> None:
    store = Shown(capacity=3, look_back=4, max_age_s=10.0)
    (first,) = store.put(at("x = "), [CALL], 0.0)
    assert store.get(at("x = comp"), 10.0) and not store.get(at("x = comp"), 10.1)
    assert not store.get(at("x = compu"), 1.0)
    store.forget(first.identity)
    assert not store.get(at("x = "), 1.0) and len(store) == 0
    for i in range(5):
        store.put(at(f"{i} = "), [CALL], 0.0)
    assert len(store) == 3 and not store.get(at("1 = "), 1.0)
    store.forget_document("file:///a")
    assert len(store) == 0
