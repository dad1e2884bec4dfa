"""`clover-code context`: what the model would read, in words and as JSON."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

KEY = "ghp_" + "a1B2" * 9


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace that the command is run in."""
    monkeypatch.setenv("CLOVER_CACHE_DIR", str(tmp_path / "cache"))
    root = tmp_path / "shop"
    (root / ".git").mkdir(parents=True)
    (root / "prices.py").write_text("def gross(net, vat):\n    return net * (1 + vat)\n")
    (root / "a.py").write_text("def f(s):\n    s.begin_it()\n    s.commit_now()\n")
    (root / "cart.py").write_text(
        f"from prices import gross\nkey = '{KEY}'\n"
        "def g(s):\n    s.begin_it()\n    \n    gross(1)\n"
    )
    (root / ".env").write_text("A=1\n")
    monkeypatch.chdir(root)
    return root


@pytest.mark.usefixtures("shop")
def test_json(command: Callable[..., Any]) -> None:
    ran = command("context", "--json", "--budget", "100", "cart.py:5:5")
    assert ran.code == 0 and ran.err == ""
    found = ran.json
    (definition, *_) = found["snippets"]
    assert (definition["path"], definition["kind"]) == ("prices.py", "definition")
    assert definition["text"] == "def gross(net, vat):" and definition["score"] > 6
    assert sum(s["tokens"] for s in found["snippets"]) <= found["budget_tokens"] == 100
    assert found["lookups"][0]["text"] == "s.commit_now()" and found["lookups"][0]["path"] == "a.py"
    assert found["redacted_characters"] == len(KEY) and KEY not in ran.out
    assert found["prefix"].endswith("s.begin_it()\n    ") and found["withheld"] == ""


@pytest.mark.usefixtures("shop")
def test_words(command: Callable[..., Any]) -> None:
    ran = command("context", "cart.py:5:5")
    assert ran.code == 0
    assert "definition prices.py:1" in ran.out and "gross is imported from prices" in ran.out
    assert "  | s.commit_now()" in ran.out and "equal tokens before" in ran.out
    assert "40 characters of secrets replaced by *" in ran.out and KEY not in ran.out


@pytest.mark.usefixtures("shop")
def test_nothing_fits_a_budget_of_nothing(command: Callable[..., Any]) -> None:
    found = command("context", "--json", "--budget", "0", "cart.py:5:5").json
    assert found["snippets"] == []
    assert "over the budget" in {left["why"] for left in found["left_out"]}


@pytest.mark.usefixtures("shop")
def test_withheld_files(command: Callable[..., Any]) -> None:
    ran = command("context", ".env:1:1")
    assert ran.code == 0 and ran.out.startswith("withheld: .env is a file for secrets")
    ran = command("context", "--json", "--exclude", "ca*.py", "cart.py:1:1")
    assert ran.json["withheld"] == "cart.py is excluded by the settings"
    assert ran.json["prefix"] == "" and ran.json["snippets"] == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nowhere.py:1:1",), "cannot read nowhere.py"),
        (("cart.py:99:1",), "ends at line"),
        (("cart.py",), "is not FILE:LINE:COL"),
        (("-:1:1",), "standard input is in no workspace"),
        (("--root", "nowhere", "cart.py:1:1"), "nowhere is not a folder"),
        (("--root", ".git", "cart.py:1:1"), "give a folder around the file"),
        (("--budget", "-3", "cart.py:1:1"), "is not a number of tokens"),
    ],
)
@pytest.mark.usefixtures("shop")
def test_bad_input_is_one_line(
    arguments: tuple[str, ...], words: str, command: Callable[..., Any]
) -> None:
    ran = command("context", *arguments)
    assert ran.code == 2 and words in ran.err and "Traceback" not in ran.err


@pytest.mark.usefixtures("shop")
def test_an_index_that_cannot_be_made(
    command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "blocked").write_text("")
    monkeypatch.setenv("CLOVER_CACHE_DIR", str(tmp_path / "blocked"))
    ran = command("context", "cart.py:5:5")
    assert ran.code == 1 and "the index could not be made" in ran.err
    assert "prefix" in ran.out, "what there is without it is shown"
