"""What is asked for at a place."""

from __future__ import annotations

import pytest

from clover_lsp.context.types import Place
from clover_lsp.suggest.shape import BLOCK_TOKENS, LINE_TOKENS, Plan, Skip, plan


def at(text: str, language: str = "python") -> Place:
    before, _, after = text.partition("║")
    return Place("file:///a", language, before, after)


def asked(text: str, language: str = "python") -> Plan:
    found = plan(at(text, language))
    assert isinstance(found, Plan)
    return found


OPENING = [
    ("python", "def f():║\n"),
    ("python", "def f():\n    ║\n"),
    ("python", "def f():  # why\n    ║\n\nx = 1\n"),
    ("python", "class A:\n    async def f(self):\n        ║\n\n    def g(self):\n        pass\n"),
    ("python", 'def f():\n    """║'),
    ("python", 'def f():\n    """║"""\n'),
    ("python", 'def f():\n    """\n    ║\n    """\n'),
    ("python", "x = [\n    ║\n]\n"),
    ("javascript", "const f = () => {║}\n"),
    ("typescriptreact", "function f(): void {\n  ║\n}\n"),
    ("go", "func f() {\n\t║\n}\n\nfunc g() {\n}\n"),
    ("rust", "fn f() {║\n"),
    ("rust", "match x {\n    ║\n}\n"),
    ("c", "int f(void)\n{\n  ║\n}\n"),
    ("cpp", "/**║\n"),
    ("java", "class A {\n    void f() {\n        ║\n    }\n}\n"),
    ("lua", "local function f(a, b)\n  ║\nend\n"),
    ("lua", "if x then║\n"),
    ("plaintext", "void f() {\n    ║\n}\n"),
]
ONE_LINE = [
    ("python", "x = ║\n"),
    ("python", "def f():\n    ║\n    return 1\n"),
    ("python", "def f():\n    a = 1\n    ║\n"),
    ("python", "x = {'a':║\n"),
    ("python", "x = y[1:║\n"),
    ("python", "print(║)\n"),
    ("python", "# if this:║\n"),
    ("python", 'x = "if this:║"\n'),
    ("python", "if x:\n    if y:\n║\n"),
    ("javascript", "function f() {\n  ║\n  return 1;\n}\n"),
    ("javascript", "switch (x) {\n  case 1:║\n}\n"),
    ("go", "x := ║\n"),
    ("lua", "local x = ║\n"),
    ("c", "for (║)\n"),
]


@pytest.mark.parametrize(("language", "text"), OPENING)
def test_several_lines_where_a_block_begins(language: str, text: str) -> None:
    found = asked(text, language)
    assert found.multiline and found.max_tokens == BLOCK_TOKENS and "\n" not in found.stop
    single = plan(at(text, language), lines="single")
    assert isinstance(single, Plan) and not single.multiline


@pytest.mark.parametrize(("language", "text"), ONE_LINE)
def test_one_line_elsewhere(language: str, text: str) -> None:
    found = asked(text, language)
    assert not found.multiline and found.max_tokens == LINE_TOKENS and found.stop == ("\n",)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("║", "empty"),
        ("\n\n║\n}\n", "empty"),
        ("val║ue = 1", "inside a word"),
        ("x = ║ + compute_it(1)", "after the cursor"),
        ("x" * 2500 + " ║", "longer than"),
        ("a = 1\r║\nb = 2", "line end"),
    ],
)
def test_nothing_is_asked(text: str, reason: str) -> None:
    found = plan(at(text))
    assert isinstance(found, Skip) and reason in found.reason


def test_brackets_after_the_cursor_are_no_code() -> None:
    assert isinstance(plan(at("f(g([║]), {}, ())\n")), Plan)
    assert isinstance(plan(at("f(║a, b, c, d)\n")), Plan)
    assert isinstance(plan(at("f(║first, second, third)\n")), Skip)
    assert isinstance(plan(at("f(║first, second, third)\n"), invoked=True), Plan)


@pytest.mark.parametrize(
    ("before", "prefix", "must"),
    [
        ("x = na", "x =", " na"),
        ("x = ", "x =", " "),
        ("x.na", "x.", "na"),
        ("f(", "f(", ""),
        ("def f():\n    ", "def f():\n    ", ""),
        ("def f():\n    re", "def f():\n    ", "re"),
        ("a = " + "b" * 60, "a = " + "b" * 60, ""),
    ],
)
def test_healing_cuts_back_to_where_a_token_ends(before: str, prefix: str, must: str) -> None:
    found = plan(Place("file:///a", "python", before, "\n"), heal=True)
    assert isinstance(found, Plan)
    assert (found.prefix, found.must_start_with) == (prefix, must)


def test_a_text_stops_before_the_line_below_and_the_end_of_a_docstring() -> None:
    assert "\nother_name = 1" in asked("def f():\n    ║\n\nother_name = 1\n").stop
    assert '"""' in asked('def f():\n    """║"""\n').stop
