"""What holds for any text at any place."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from clover_engine.line_ends import to_lf
from clover_lsp.context.types import Place
from clover_lsp.suggest.polish import polish
from clover_lsp.suggest.scene import accepted, at_popup
from clover_lsp.suggest.shape import Plan, Skip, plan
from clover_lsp.suggest.types import Draft, Popup

LANGUAGES = ("python", "javascript", "go", "rust", "cpp", "java", "lua", "plaintext", "yaml")
PIECES = (
    "\n", "\n", "\n    ", "\n\t", "\r\n", "\r", " ", "    ", "\t", "(", ")", "[", "]", "{", "}",
    '"', "'", "`", '"""', "\\", "#", "//", "/*", "*/", "--", "--[[", "]]", ",", ";", ":", "=",
    "def f():", "if x:", "else:", "return", "function", "end", "repeat", "until", "then", "do",
    "x", "name", "self.", "foo(a)", "});", "=>", "'a'", "é", "名", "😀", "\u2028", "\x0c", "\x00",
    "\ud800", "\ufffd", "<mask>", "<eom>", "<|x|>", "\x1b", "\u202e", "1", "100",
)  # fmt: skip
texts = st.one_of(st.lists(st.sampled_from(PIECES), max_size=14).map("".join), st.text(max_size=30))
code = st.lists(st.sampled_from(PIECES), max_size=14).map("".join)
places = st.builds(
    lambda language, before, after: Place("file:///a", language, before, after),
    st.sampled_from(LANGUAGES),
    texts,
    texts,
)


def asked(place: Place, heal: bool = False) -> Plan | None:
    found = plan(place, heal=heal, invoked=True)
    return None if isinstance(found, Skip) else found


@settings(max_examples=600, deadline=None)
@given(places, texts, st.booleans(), st.booleans())
def test_what_is_shown_is_fit_to_be_shown(
    place: Place, text: str, complete: bool, heal: bool
) -> None:
    """No text and no place raises; line ends are LF; nothing of the document gets lost."""
    request = asked(place, heal)
    if request is None:
        return
    assert request.prefix + request.must_start_with == to_lf(place.prefix)
    found = polish(Draft(text, 0.5, "model", complete), place, request)
    if found is None:
        return
    assert found.text.strip() and not set(found.text) & set(
        "\r\x00\x0c\x1b\u2028\u202e\ufffd\ud800"
    )
    assert request.multiline or "\n" not in found.text
    replaced = place.suffix[: found.replace_after]
    assert found.replace_before == 0 and not set(replaced) & set("\r\n")
    rest = iter(found.text)
    assert all(sign in rest for sign in replaced), "what is replaced comes again in the text"


@settings(max_examples=600, deadline=None)
@given(places, texts)
def test_polished_text_stays_as_it_is(place: Place, text: str) -> None:
    request = asked(place)
    found = request and polish(Draft(text, 0.5, "model"), place, request)
    if request and found:
        assert polish(Draft(found.text, 0.5, "model"), place, request) == found


@settings(max_examples=300, deadline=None)
@given(places, texts, st.text(min_size=1, max_size=6), st.integers(0, 4), st.integers(0, 4))
def test_a_popup_is_extended_in_its_own_range(
    place: Place, text: str, item: str, before: int, after: int
) -> None:
    before = min(before, len(place.prefix))
    popup = Popup(item, before, min(after, len(place.suffix)))
    request = asked(at_popup(place, popup))
    found = request and polish(Draft(text, 0.5, "model"), place, request, popup)
    if found:
        assert found.text.startswith(item) and len(found.text) > len(item)
        assert (found.replace_before, found.replace_after) == (before, popup.replace_after)


openings = st.lists(st.sampled_from("([{"), min_size=1, max_size=3).map("".join)
openings = openings.filter(lambda text: "[[" not in text)  # begins a string in Lua
arguments = st.lists(st.sampled_from(("a", ", ", "b", "f(x)", "[1]", ".y")), max_size=6).map(
    "".join
)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(LANGUAGES), openings, arguments, st.sampled_from(("", ";", ":")))
def test_the_suffix_s_brackets_are_never_doubled(
    language: str, opened: str, inner: str, end: str
) -> None:
    """However much of the closing the model writes, each bracket is closed once."""
    closing = "".join({"(": ")", "[": "]", "{": "}"}[c] for c in reversed(opened))
    place = Place("file:///a", language, f"call = g{opened}", closing + "\n")
    request = asked(place)
    assert request is not None
    for written in range(len(closing) + 1):
        text = inner + closing[:written] + (end if written == len(closing) else "")
        found = polish(Draft(text, 0.5, "model"), place, request)
        if found is None:
            continue
        after = accepted(place, found.text, 0, found.replace_after)
        document = after.prefix + after.suffix
        for left, right in ("()", "[]", "{}"):
            assert document.count(left) == document.count(right), document


@settings(max_examples=200, deadline=None)
@given(places, code)
def test_accepting_only_inserts_text_and_replaces_the_range(place: Place, text: str) -> None:
    request = asked(place)
    found = request and polish(Draft(text, 0.5, "model"), place, request)
    if found:
        after = accepted(place, found.text, found.replace_before, found.replace_after)
        assert after.prefix == place.prefix + found.text
        assert place.suffix.endswith(after.suffix)
        assert len(place.suffix) - len(after.suffix) == found.replace_after


def test_a_plan_is_the_same_for_every_kind_of_line_end() -> None:
    lf = Place("file:///a", "python", "def f():\n    ", "\n\nx = 1\n")
    crlf = replace(lf, prefix="def f():\r\n    ", suffix="\r\n\r\nx = 1\r\n")
    assert plan(lf) == plan(crlf)
