"""Look-ups: what followed the same text elsewhere."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clover_lsp.context.confidence import confidence
from clover_lsp.context.lookup import MAX_LINES, Query, Source, own_sources, search
from clover_lsp.context.types import Lookup


def ask(here: str, *others: str) -> tuple[Lookup, ...]:
    """Look-ups at the `|` of `here`, in itself and in other texts."""
    prefix, _, suffix = here.partition("|")
    query = Query(prefix, suffix)
    sources = own_sources(query, "here.py")
    sources += [Source(f"other{n}.py", text, 2) for n, text in enumerate(others)]
    return search(query, sources)


OPENED = """\
def load(path):
    with open(path, encoding="utf-8") as file:
        data = json.load(file)
    return check(data)
"""


def test_next_line_after_the_same_line() -> None:
    found = ask('    with open(name, encoding="utf-8") as file:\n        |\n', OPENED)
    assert not found, "the line above differs"
    found = ask('def f(path):\n    with open(path, encoding="utf-8") as file:\n        |\n', OPENED)
    assert found[0].text == "data = json.load(file)" and found[0].path == "other0.py"
    assert found[0].matched >= 14 and (found[0].count, found[0].rivals) == (1, 0)


def test_indentation_does_not_matter_but_depth_does() -> None:
    deep = 'class A:\n\tdef g(path):\n\t\twith open(path, encoding="utf-8") as file:\n\t\t\t|'
    assert ask(deep, OPENED)[0].text == "data = json.load(file)"
    level = 'def g(path):\n    with open(path, encoding="utf-8") as file:\n    |'
    assert not ask(level, OPENED)


def test_rest_of_a_line_that_begins_alike() -> None:
    (found, *_) = ask("x = 1\ndata = json.l|\n", OPENED)
    assert found.text == "oad(file)"
    assert found.matched == 5


def test_rest_after_the_last_tokens_within_a_line() -> None:
    (found, *_) = ask("result = self.cache.get(json.load(|", OPENED)
    assert found.text == "file)"


def test_several_lines_are_indented_for_here() -> None:
    other = "if ready:\n    begin()\n    for x in items:\n        use(x)\n    end()\n\nafter()\n"
    (found, *_) = ask("\tif ready:\n\t\t|", other)
    assert found.text == "begin()\n\t\tfor x in items:\n\t\t    use(x)\n\t\tend()"


def test_text_stops_before_what_stands_below_already() -> None:
    """Complaint 2: code was repeated after the cursor."""
    other = "start()\nfirst()\nsecond()\nthird()\n"
    (found, *_) = ask("start()\n|\nsecond()\nthird()\n", other)
    assert found.text == "first()" and found.followed == 6
    (found, *_) = ask("start()\n|\nthird()\n", other)
    assert found.text == "first()\nsecond()" and found.followed == 3


def test_closing_brackets_after_the_cursor_are_not_repeated() -> None:
    """Complaint 1."""
    (found, *_) = ask("value = compute(alpha, |)\n", "value = compute(alpha, beta)\n")
    assert found.text == "beta"


def test_nothing_in_the_middle_of_code() -> None:
    assert not ask("value = compute(|alpha, beta)\n", "value = compute(gamma, alpha, beta)\n")


def test_a_place_before_the_same_line_below() -> None:
    (found, *_) = ask(
        "a = 1\n|\nreturn combine(left, right)\n", "x()\nleft = 2\nreturn combine(left, right)\n"
    )
    assert found.text == "left = 2" and found.matched == 0 and found.followed >= 7


def test_agreement_and_rivals() -> None:
    texts = ["open_it(door)\nwalk(door)\n"] * 2 + ["open_it(door)\nrun(door)\n"]
    found = ask("open_it(door)\n|", *texts)
    assert [(f.text, f.count, f.rivals) for f in found] == [
        ("walk(door)", 2, 1),
        ("run(door)", 1, 2),
    ]
    assert confidence(found[0]) > confidence(found[1])


def test_more_equal_lines_above_win() -> None:
    far = "def a(x):\n    check(x)\n    store(x)\n"
    near = "def b(x):\n    check(x)\n    report(x)\n"
    (first, second) = ask("def b(x):\n    check(x)\n    |", far, near)
    assert first.text == "report(x)" and first.matched > second.matched


def test_same_file_before_others_on_equal_evidence() -> None:
    (first, *_) = ask("go(one)\nhere(one)\n\ngo(one)\n|", "go(one)\nthere(one)\n")
    assert first.path == "here.py" and first.text.startswith("here(one)")


def test_lines_that_end_there_are_no_answer() -> None:
    assert not ask("return total|", "return total\nother()\n")


@pytest.mark.parametrize("here", ["|", "\n\n|\n", "   |", "x|"])
def test_too_little_to_go_by(here: str) -> None:
    assert not ask(here, "a = 1\nb = 2\n")


def test_huge_lines_and_many_places_stay_cheap() -> None:
    (found, *_) = ask("else:\n    |", "else:\n    pass\n" * 5000 + "x" * 100_000)
    assert found.text == "pass" and found.count <= 100
    assert not ask("xxxx = |", "xxxx = " + "y" * 5000)
    long = "start()\n" + "step()\n" * 50
    assert ask("start()\n|", long)[0].text.count("\n") < MAX_LINES


LINES = st.sampled_from(["a(b)", "  a(b)", "\tx = a(b)", "x = a(", "", "  ", "else:", "é.ü()", ")"])
TEXT = st.lists(LINES, max_size=12).map("\n".join)


@settings(max_examples=200, deadline=None)
@given(TEXT, TEXT, st.lists(TEXT, max_size=3))
def test_any_text_gives_sound_answers(prefix: str, suffix: str, others: list[str]) -> None:
    found = ask(f"{prefix}|{suffix}", *others)
    whole = [f"{prefix}\n{suffix}", *others]
    for look in found:
        first = look.text.partition("\n")[0]
        assert first and any(first in text for text in whole)
        assert look.matched + look.followed >= 2 and look.count >= 1 and look.rivals >= 0
        assert 0 < confidence(look) < 1
    assert len({look.text.partition("\n")[0] for look in found}) == len(found)


def test_confidence_grows_with_evidence() -> None:
    weak = Lookup("return x", 2, 1, 3, "a.py")
    strong = Lookup("return x", 40, 3, 0, "a.py", followed=12)
    assert 0 < confidence(weak) < 0.2 and 0.9 < confidence(strong) < 1
    assert confidence(Lookup("x", 10**6, 10**6, 0, "a.py", 10**6)) <= 1
