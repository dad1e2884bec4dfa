"""`clover-code edit` and `message`, with scripted answers behind the real worker protocol."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Command = Callable[..., Any]
CART = """\
def total(items):
    return sum(items)


def first(items):
    return items[0]
""".replace("\n", "\r\n")
ANSWER = "```python\ndef first(items):\n    return items[0] if items else None\n```"
NEW = CART.replace("items[0]", "items[0] if items else None")
PLACE = "shop/cart.py:5-6"


@pytest.fixture(autouse=True)
def root(make_repo, monkeypatch: pytest.MonkeyPatch, temporary_root: Path, fake_model) -> Path:
    path: Path = make_repo({"shop/cart.py": CART, "tests/test_other.py": "def test(): pass\n"})
    monkeypatch.chdir(path)
    fake_model(answers=[ANSWER])
    return path


def text(root: Path) -> str:
    return (root / "shop/cart.py").read_bytes().decode()


def test_the_diff_is_printed_and_nothing_changes(command: Command, root: Path) -> None:
    ran = command("edit", PLACE, "return None for an empty list")
    assert ran.code == 0
    assert "-    return items[0]\r\n+    return items[0] if items else None\r\n" in ran.out
    assert "nothing was changed, --apply does it" in ran.err
    assert text(root) == CART


@pytest.mark.parametrize("place", [PLACE, "shop/cart.py::first"])
def test_apply_and_undo(command: Command, root: Path, place: str) -> None:
    ran = command("edit", place, "return None for an empty list", "--apply")
    assert ran.code == 0 and text(root) == NEW
    assert "`clover-code undo` takes it back" in ran.err
    assert (
        command("undo", "--list")
        .out.rstrip()
        .endswith("return None for an empty list  [shop/cart.py]")
    )
    assert command("undo").code == 0
    assert text(root) == CART


def test_commit(command: Command, root: Path, make_repo) -> None:
    ran = command("edit", PLACE, "Return None for an empty list.", "--commit", "--json")
    assert ran.json["commit"] == make_repo.git(root, "rev-parse", "HEAD").strip()
    message = make_repo.git(root, "log", "-1", "--format=%B")
    assert message.startswith("Return None for an empty list\n\nAssisted-by: ")
    assert ran.json["fix_id"] in message


def test_json(command: Command, root: Path) -> None:
    said = command("edit", PLACE, "return None for an empty list", "--json").json
    assert said["status"] == "edited" and said["applied"] is False
    assert said["text"] == "def first(items):\n    return items[0] if items else None"
    assert (said["first"], said["last"], said["asked"]) == (5, 6, 1)
    assert said["patch"].startswith("diff --git a/shop/cart.py b/shop/cart.py\n")


def test_explain_is_read_only(command: Command, root: Path, fake_model) -> None:
    fake_model(answers=["It returns the first item."])
    ran = command("edit", PLACE, "--preset", "explain")
    assert (ran.code, ran.out) == (0, "It returns the first item.\n")
    assert text(root) == CART


def test_tests_go_into_a_new_file(command: Command, root: Path, fake_model) -> None:
    fake_model(answers=["```python\nfrom shop.cart import first\n```"])
    ran = command("edit", PLACE, "--preset", "tests", "--apply")
    new = root / "tests/test_cart.py"
    assert ran.code == 0 and new.read_text() == "from shop.cart import first\n"
    assert "new file mode 100644" in ran.out
    assert command("undo").code == 0
    assert not new.exists()


def test_a_model_that_only_fills_holes(command: Command, fake_model) -> None:
    fake_model(infills=["x"])
    ran = command("edit", PLACE, "sort them", "--json")
    assert ran.code == 2
    assert "clover-code model get coder-1.5b" in ran.json["error"]


@pytest.mark.parametrize(
    "arguments,words",
    [
        ((PLACE,), "say what to change"),
        (("shop/none.py:1", "x"), "cannot read shop/none.py"),
        (("shop/cart.py:7-9", "x"), "ends at line 6"),
        (("shop/cart.py::gone", "x"), "no function or class gone"),
        ((PLACE, "x", "--dry-run", "--apply"), "--dry-run changes nothing"),
        ((PLACE, "x", "--out", "y.py"), "--out is for --preset tests"),
    ],
)
def test_what_cannot_be_done(command: Command, arguments: tuple[str, ...], words: str) -> None:
    ran = command("edit", *arguments)
    assert ran.code == 2 and words in ran.err


def test_answers_that_cannot_be_used(command: Command, root: Path, fake_model) -> None:
    fake_model(answers=["I would rather not."])
    ran = command("edit", PLACE, "sort them", "--apply")
    assert ran.code == 1 and "no code block was found" in ran.err
    assert text(root) == CART


def test_message(command: Command, root: Path, fake_model, make_repo) -> None:
    fake_model(answers=["```\nfix: return None for an empty list.\n\nIt raised.\n```"])
    assert command("message").code == 2
    (root / "shop/cart.py").write_bytes(NEW.encode())
    make_repo.git(root, "add", "-A")
    ran = command("message")
    assert (ran.code, ran.out) == (0, "fix: return None for an empty list\n\nIt raised.\n")


def test_outside_a_repository_the_diff_is_all(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "plain").mkdir()
    monkeypatch.chdir(tmp_path / "plain")
    Path("cart.py").write_bytes(CART.encode())
    assert "+    return items[0] if items else None" in command("edit", "cart.py:5-6", "x").out
    ran = command("edit", "cart.py:5-6", "x", "--apply")
    assert ran.code == 2 and ran.out == "" and "run `git init` there first" in ran.err
    assert Path("cart.py").read_bytes() == CART.encode()
