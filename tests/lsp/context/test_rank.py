"""Choosing snippets: the budget, duplicates, and the same answer every time."""

from __future__ import annotations

import random

from clover_lsp.context.focus import Focus, from_module
from clover_lsp.context.rank import choose, cost
from clover_lsp.context.symbols import parse
from clover_lsp.context.types import ScoredSnippet, SnippetKind

NOTHING: frozenset[str] = frozenset()


def snippet(text: str, path: str, score: float, kind: SnippetKind = "open") -> ScoredSnippet:
    return ScoredSnippet(text, path, 1, kind, score)


def test_best_first_and_never_over_the_budget() -> None:
    pool = [snippet(f"line_{n}\n" * 3 + f"own_{n}", f"{n}.py", n / 10) for n in range(50)]
    for budget in (0, 5, 17, 60, 200, 10_000):
        chosen, rejected = choose(pool, NOTHING, budget)
        assert sum(cost(s.text) for s in chosen) <= budget
        assert len(chosen) + len(rejected) == 50
        assert [s.score for s in chosen] == sorted((s.score for s in chosen), reverse=True)


def test_same_input_in_any_order_gives_the_same_output() -> None:
    pool = [snippet(f"text {n % 7} {n}", f"{n % 5}.py", n % 3) for n in range(40)]
    expected = choose(pool, NOTHING, 300)[0]
    for seed in range(5):
        random.Random(seed).shuffle(pool)
        assert choose(pool, NOTHING, 300)[0] == expected


def test_no_file_twice() -> None:
    """Complaint 6: the same file stood in the prompt twice."""
    chosen, rejected = choose([snippet("aaaa", "a.py", 2), snippet("bbbb", "a.py", 1)], NOTHING, 99)
    assert [s.text for s in chosen] == ["aaaa"]
    assert rejected[0].why == "the same file is there already"


def test_nothing_that_the_document_shows_or_that_is_there_already() -> None:
    """Complaint 6: text of the document itself stood in the prompt again."""
    text = "def f(x):\n    return x + 1\n"
    known = frozenset({"def f(x):", "return x + 1"})
    chosen, rejected = choose([snippet(text, "copy.py", 2)], known, 99)
    assert not chosen and "document" in rejected[0].why
    pool = [snippet(text, "a.py", 2), snippet(text.replace("    ", "\t"), "b.py", 1)]
    chosen, rejected = choose(pool, NOTHING, 99)
    assert len(chosen) == 1 and "another snippet" in rejected[0].why


def test_windows_are_cut_to_the_budget_and_definitions_are_not() -> None:
    text = "\n".join(f"number_{n} = {n}" for n in range(30))
    (cut,), _ = choose([snippet(text, "a.py", 1)], NOTHING, 50)
    assert 3 <= cut.text.count("\n") + 1 < 30 and text.startswith(cut.text)
    chosen, rejected = choose([snippet(text, "a.py", 1, "definition")], NOTHING, 50)
    assert not chosen and rejected[0].why == "over the budget"


def test_modules_and_files() -> None:
    assert from_module("src/a/b.py", "a.b") == 1
    assert from_module("a/b/__init__.py", ".b") == 1
    assert from_module("web/util.ts", "./util") == 1
    assert from_module("web/util/index.js", "../util.js") == 1
    assert from_module("src/net.rs", "crate::net") == 1
    assert from_module("include/list.h", "list.h") == 1
    assert from_module("pkg/http/server.go", "example.com/x/pkg/http") == 0.5
    assert from_module("other/c.py", "a.b") == 0


def test_how_a_name_is_used_decides_what_it_can_mean() -> None:
    code = "def go(total):\n    speed = measure(total)\n    car.drive(speed)\n    "
    focus = Focus(code, "", parse(code.encode(), "python"))
    assert focus.may_mean("measure", "function", 1)
    assert focus.may_mean("drive", "method", 1) and not focus.may_mean("measure", "method", 1)
    assert not focus.may_mean("speed", "constant", 1) and not focus.may_mean("total", "class", 1)
    assert list(focus.weights)[0] in ("drive", "speed")
    assert "self" not in focus.weights
