"""`fix` with a conversing model: scripted answers, real checks in real copies."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from clover_engine.errors import EngineUnavailable
from clover_engine.generation import GenerateRequest
from clover_engine.testing.fakes import FakeEngine, FakeTalker
from clover_patcher.fix import FixRequest, FixResult, fix

CHECK = f"{sys.executable} -m pytest -q -p no:cacheprovider"
FILES = {
    "shop/__init__.py": "",
    "shop/parse.py": (
        "from shop.units import scale\n\n\n"
        "def price(text):\n"
        "    # like '3 EUR'\n"
        "    amount = text.split()[0]\n"
        "    return scale(int(amount))\n"
    ),
    "shop/units.py": "def scale(value):\n    return value * 100\n",
    "test_parse.py": (
        "from shop.parse import price\n\n\n"
        "def test_plain():\n    assert price('3 EUR') == 300\n\n\n"
        "def test_cents():\n    assert price('3.25 CHF') == (325, 'CHF')\n"
    ),
}
"""No template repairs this: a tuple must be returned, of what the text is split into."""
WRONG = "```python\ndef price(text):\n    return 1\n```"
RIGHT = (
    "```python\ndef price(text):\n"
    "    amount, currency = text.split()\n"
    "    cents = round(float(amount) * 100)\n"
    "    return cents if currency == 'EUR' else (cents, currency)\n```"
)


def repair(root: Path, engine: FakeEngine | None, **more: Any) -> FixResult:
    request = FixRequest(root=root, check=CHECK, budget_s=300.0, **more)
    return fix(request, engine)


@pytest.fixture
def project(make_repo: Any) -> Path:
    return Path(make_repo(FILES))


def test_the_first_failure_goes_back_and_the_second_answer_is_applied(project: Path) -> None:
    engine = FakeTalker(answers=(WRONG, RIGHT))
    result = repair(project, engine)
    assert result.status == "fixed", result.error
    text = (project / "shop/parse.py").read_text()
    assert "amount, currency = text.split()" in text and "# like '3 EUR'" in text
    first, second, *_ = engine.conversations
    asked = first.messages[-1].content
    assert "shop/parse.py::price" in asked and "def test_cents" in asked
    assert "ValueError" in asked or "invalid literal" in asked, "the failure's own message"
    back = second.messages
    assert back[-2].content == WRONG and "still fails" in back[-1].content
    assert "assert 1 ==" in back[-1].content, "with the values it has now"


def test_unusable_answers_are_said_to_be_so(project: Path) -> None:
    engine = FakeTalker(answers=("I cannot help with that.", RIGHT))
    assert repair(project, engine).status == "fixed"
    assert "no code block" in engine.conversations[1].messages[-1].content


def test_two_files_change_together_or_not_at_all(project: Path) -> None:
    (project / "shop/parse.py").write_text(
        FILES["shop/parse.py"].replace("scale(int(amount))", "scale(amount, text.split()[1])")
    )
    both = (
        "shop/parse.py::price\n```python\ndef price(text):\n"
        "    amount, currency = text.split()\n    return scale(amount, currency)\n```\n"
        "shop/units.py::scale\n```python\ndef scale(value, currency):\n"
        "    cents = round(float(value) * 100)\n"
        "    return cents if currency == 'EUR' else (cents, currency)\n```\n"
    )
    engine = FakeTalker(answers=(both,))
    result = repair(project, engine)
    assert result.status == "fixed", result.error
    head = "def scale(value): ...  # shop/units.py::scale"
    assert head in engine.conversations[0].messages[-1].content
    assert {change.path for change in result.changes} == {"shop/parse.py", "shop/units.py"}


def test_a_long_function_is_edited_by_search(project: Path) -> None:
    padding = "".join(
        f"    known_{n} = 'a text that nobody reads, number {n}'\n" for n in range(80)
    )
    long = FILES["shop/parse.py"].replace("    # like", padding + "    # like")
    (project / "shop/parse.py").write_text(long)
    edit = (
        "shop/parse.py::price\n```\n<<<<<<< SEARCH\n    amount = text.split()[0]\n"
        "    return scale(int(amount))\n=======\n    amount, currency = text.split()\n"
        "    cents = round(float(amount) * 100)\n"
        "    return cents if currency == 'EUR' else (cents, currency)\n>>>>>>> REPLACE\n```"
    )
    engine = FakeTalker(answers=(edit,))
    assert repair(project, engine).status == "fixed"
    asked = engine.conversations[0].messages[-1].content
    assert "Do not write `shop/parse.py::price` again" in asked
    text = (project / "shop/parse.py").read_text()
    assert padding in text and "(cents, currency)" in text


def test_a_short_function_is_written_again(project: Path) -> None:
    engine = FakeTalker(answers=(RIGHT,))
    assert repair(project, engine).status == "fixed"
    assert "SEARCH" not in engine.conversations[0].messages[-1].content


def test_frozen_files_are_not_rewritten(project: Path) -> None:
    weak = "test_parse.py::test_cents\n```python\ndef test_cents():\n    assert True\n```"
    before = (project / "test_parse.py").read_bytes()
    result = repair(project, FakeTalker(answers=(weak, weak, RIGHT)))
    assert result.status == "fixed" and (project / "test_parse.py").read_bytes() == before


def test_withheld_files_are_not_in_the_prompt(project: Path) -> None:
    engine = FakeTalker(answers=(RIGHT,))
    result = repair(project, engine, withheld=lambda path: path.startswith("shop/"))
    assert result.status != "fixed" and not engine.conversations


def test_engines_that_do_not_converse_change_nothing_about_templates(project: Path) -> None:
    (project / "shop/units.py").write_text("def scale(value):\n    return value + 100\n")
    (project / "test_parse.py").write_text(FILES["test_parse.py"].partition("\n\n\ndef test_c")[0])
    result = repair(project, FakeEngine())
    assert result.status == "fixed" and not [n for n in result.notes if "model" in n]


def test_a_server_that_goes_away_is_a_note(project: Path) -> None:
    def gone(request: GenerateRequest) -> str:
        raise EngineUnavailable("the server is gone; start it")

    result = repair(project, FakeTalker(on_generate=gone))
    assert result.status == "none_found" and any("server is gone" in n for n in result.notes)
