"""Quick fixes: only what is known to help, with a real ruff; nothing rather than rubbish."""

from __future__ import annotations

import pytest

from clover_engine.api import CancelToken
from clover_engine.testing.fakes import FakeEngine
from clover_lsp.actions.diff import apply_edits
from clover_lsp.actions.quickfix import Fix, Question, may_help, quick_fixes
from clover_lsp.context.types import Problem

UNDEFINED = "F821"


def question(text: str, word: str, message: str, code: str = "", source: str = "Ruff") -> Question:
    """A diagnostic that underlines the last `word`."""
    start = text.rindex(word)
    line = text.count("\n", 0, start)
    problem = Problem(line, message, "error", source, code)
    return Question(text, None, problem, start, start + len(word))


def results(asked: Question, engine: FakeEngine | None = None) -> list[str]:
    return [apply_edits(asked.text, fix.edits) for fix in quick_fixes(asked, engine)]


def fixes(asked: Question) -> list[Fix]:
    return quick_fixes(asked)


@pytest.mark.parametrize(
    ("text", "word", "expected"),
    [
        ("def f(count):\n    return coutn\n", "coutn", "def f(count):\n    return count\n"),
        (
            '"""Doc."""\nimport re\nimport sys\n\nos.getcwd(re, sys)\n',
            "os",
            '"""Doc."""\nimport os\nimport re\nimport sys\n\nos.getcwd(re, sys)\n',
        ),
        (
            "#!/bin/x\nx = Path(1)\r\n",
            "Path",
            "#!/bin/x\nfrom pathlib import Path\r\n\r\nx = Path(1)\r\n",
        ),
        (
            "class A:\n    def size(self): ...\n    def g(self):\n        size()\n",
            "size",
            "class A:\n    def size(self): ...\n    def g(self):\n        self.size()\n",
        ),
    ],
)
def test_undefined_names(text: str, word: str, expected: str) -> None:
    for source, message in (
        ("Ruff", f"Undefined name `{word}`"),
        ("Pylance", f'"{word}" is not defined'),
        ("pylint", f"Undefined variable '{word}'"),
    ):
        assert results(question(text, word, message, source=source))[:1] == [expected]


def test_a_name_that_nothing_looks_like_is_not_guessed() -> None:
    asked = question("x = qwertyuiop(1)\n", "qwertyuiop", "Undefined name `qwertyuiop`", UNDEFINED)
    assert results(asked) == [] and results(asked, FakeEngine(fills=["print"])) == []


def test_lost_tokens() -> None:
    asked = question("def f(a)\n    return a\n", "def f(a)", "expected ':'", source="Pylance")
    assert results(asked) == ["def f(a):\n    return a\n"]
    lost = question("x = foo(1, (2)\ny = 2\n", "x = foo", "'(' was never closed")
    assert results(lost)[0] == "x = foo(1, (2))\ny = 2\n"
    engine = FakeEngine(scores={"x = foo(1), (2)": -0.1})
    assert results(lost, engine)[0] == "x = foo(1), (2)\ny = 2\n"


def test_the_linters_own_fix() -> None:
    unused = fixes(question("import os\nimport re\n\nre.x\n", "os", "`os` imported", "F401"))
    assert [f.is_sure for f in unused] == [True] and "os" in unused[0].title
    unsafe = fixes(question("x = 1\nif x == None:\n    pass\n", "None", "Comparison", "E711"))
    assert [f.is_sure for f in unsafe] == [False]
    assert "may change what the code does" in unsafe[0].title


def test_a_fix_that_brings_a_new_finding_is_none(tmp_path: object) -> None:
    """Removing the import would leave `os` undefined, so ruff has nothing to say against it."""
    text = "import os\n\nprint(os)\n"
    assert results(question(text, "import os", "`os` imported but unused", "F401")) == []


def test_templates_need_the_model_and_the_linter_to_agree() -> None:
    text, right = "x = type(1) == int\n", "x = type(1) is int"
    asked = question(text, "type(1) == int", "Use `is` and `is not`", "E721")
    assert results(asked) == []
    engine = FakeEngine(on_score=lambda request, c: -1.0 if c == right else -9.0)
    assert results(asked, engine) == [right + "\n"]
    liked = "x = type(1) != int"  # likely, but the linter has the same to say against it
    engine.on_score = lambda request, c: -1.0 if c == liked else -9.0
    assert results(asked, engine) == []


def test_short_lines_are_not_taken_for_repairs() -> None:
    text = "def f(a):\n    return '%s %s' % (a,)\n"
    asked = question(text, "'%s %s' % (a,)", "2 placeholder(s) but 1", "F507")
    assert all(after.count(" ") >= 8 for after in results(asked, FakeEngine()))
    engine = FakeEngine(on_score=lambda request, c: -float(len(c)))
    assert "    return False" not in str(results(asked, engine))


def test_type_checkers_are_believed_only_when_they_name_the_fix() -> None:
    text = "x = 'a'\nx.uper()\n"
    message = '"str" has no attribute "uper"; maybe "upper"?'
    assert results(question(text, "uper", message, "attr-defined", "mypy")) == [
        "x = 'a'\nx.upper()\n"
    ]
    other = question(text, "uper", '"str" has no attribute "uper"', "attr-defined", "mypy")
    assert results(other, FakeEngine(fills=["upper"])) == []
    assert not may_help(other.problem)


def test_keeps_a_byte_order_mark_and_counts_characters() -> None:
    text = "\ufeffdef f(count): return '\U0001f600', coutn\n"
    asked = question(text, "coutn", "Undefined name `coutn`", UNDEFINED)
    assert results(asked) == [text.replace("coutn", "count")]


def test_a_cancelled_search_gives_nothing() -> None:
    cancel = CancelToken()
    cancel.cancel()
    asked = question("def f(count):\n    return coutn\n", "coutn", "Undefined name `coutn`")
    assert quick_fixes(asked, None, cancel) == []
