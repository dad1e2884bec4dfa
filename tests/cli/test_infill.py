"""`clover-code infill` with the fake model behind the real worker protocol."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clover_code.errors import UserError
from clover_code.places import Place, cut, parse_place

Command = Callable[..., Any]
FakeModel = Callable[..., None]


def hole(text: str, line: int, column: int) -> tuple[str, str]:
    found = cut(text, Place(Path("a.py"), line, column))
    return found.prefix, found.suffix


@pytest.mark.parametrize(
    ("text", "line", "column", "prefix", "suffix"),
    [
        ("", 1, 1, "", ""),
        ("ab", 1, 3, "ab", ""),
        ("ab\ncd\n", 2, 1, "ab\n", "cd\n"),
        ("ab\ncd\n", 2, 3, "ab\ncd", "\n"),
        ("ab\ncd\n", 3, 1, "ab\ncd\n", ""),
        ("ab\r\ncd\r\n", 1, 3, "ab", "\ncd\n"),
        ("ab\rcd", 2, 2, "ab\nc", "d"),
        ("é漢\U0001f40dx", 1, 4, "é漢\U0001f40d", "x"),
        ("a\x0cb\u2028c\x85d\n", 1, 8, "a\x0cb\u2028c\x85d", "\n"),
    ],
)
def test_places(text: str, line: int, column: int, prefix: str, suffix: str) -> None:
    assert hole(text, line, column) == (prefix, suffix)


@pytest.mark.parametrize(
    ("text", "line", "column"), [("", 1, 2), ("ab", 1, 4), ("ab\r\n", 1, 4), ("ab", 2, 1)]
)
def test_places_outside_the_file(text: str, line: int, column: int) -> None:
    with pytest.raises(UserError):
        hole(text, line, column)


def test_place_names() -> None:
    assert parse_place("C:/a b.py:3:4") == Place(Path("C:/a b.py"), 3, 4)
    assert parse_place("-:3:4") == Place(None, 3, 4)
    for wrong in (
        "a.py",
        "a.py:3",
        ":3:4",
        "a.py:0:1",
        "a.py:1:0",
        "a.py:-1:1",
        "a.py:x:1",
        "a:²:1",
    ):
        with pytest.raises(UserError, match="FILE:LINE:COL"):
            parse_place(wrong)


def test_prints_the_text(tmp_path: Path, command: Command, fake_model: FakeModel) -> None:
    fake_model(infills=["a + b\n\nprint(1)"])
    file = tmp_path / "a.py"
    file.write_text("def add(a, b):\n    return \n")
    ran = command("infill", f"{file}:2:12")
    assert (ran.code, ran.out) == (0, "a + b\n")
    assert "0.90" in ran.err
    ran = command("infill", "--multi-line", f"{file}:2:12")
    assert ran.out == "a + b\n\nprint(1)\n"


def test_json(tmp_path: Path, command: Command, fake_model: FakeModel) -> None:
    fake_model(infills=["x\ny"], confidence=0.25)
    file = tmp_path / "a.py"
    file.write_bytes(b"one\r\ntwo\r\n")
    found = command("infill", "--json", "--multi-line", f"{file}:1:4").json
    assert found["text"] == "x\r\ny"
    assert found["confidence"] == 0.25
    assert found["shown"] is False
    assert found["seconds"] > 0
    assert found["statistics"]["forward_passes"] > 0
    assert [choice["text"] for choice in found["choices"]] == ["x\r\ny"]


def test_samples(tmp_path: Path, command: Command, fake_model: FakeModel) -> None:
    file = tmp_path / "a.py"
    file.write_text("x")
    assert len(command("infill", "--json", "--n", "3", f"{file}:1:2").json["choices"]) == 3
    ran = command("infill", "--n", "3", "--temperature", "0", f"{file}:1:2")
    assert ran.code == 2 and "temperature above 0" in ran.err


def test_standard_input(
    command: Command, fake_model: FakeModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = io.TextIOWrapper(io.BytesIO(b"abc\n"))
    monkeypatch.setattr(sys, "stdin", stream)
    ran = command("infill", "-:1:2", "--json")
    assert ran.code == 0 and ran.json["text"] == "pass"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"abc\n")))
    ran = command("infill", "-:9:2")
    assert ran.code == 2 and "standard input ends at line 2" in ran.err


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("missing.py", None, "No such file"),
        ("bytes.txt", b"\xff\xfe\xfa", "is not text in UTF-8"),
        ("cookie.py", b"# coding: nonsense\n", "is not text in UTF-8 or its declared encoding"),
        ("binary.bin", b"a\0b", "is a binary file"),
    ],
)
def test_unusable_files(
    name: str, content: bytes | None, said: str, tmp_path: Path, command: Command
) -> None:
    file = tmp_path / name
    if content is not None:
        file.write_bytes(content)
    ran = command("infill", f"{file}:1:1")
    assert ran.code == 2
    assert said in ran.err and ran.err.count("\n") == 1
    ran = command("infill", f"{tmp_path}:1:1")
    assert ran.code == 2 and "Is a directory" in ran.err


def test_declared_encoding(tmp_path: Path, command: Command, fake_model: FakeModel) -> None:
    file = tmp_path / "latin.py"
    file.write_bytes(b"# coding: latin-1\ns = '\xe9'\n")
    assert command("infill", f"{file}:2:8").code == 0
    assert command("infill", f"{file}:2:9").code == 2


def test_model_failures(tmp_path: Path, command: Command, fake_model: FakeModel) -> None:
    file = tmp_path / "a.py"
    file.write_text("@@crash@@")
    ran = command("infill", f"{file}:1:10")
    assert ran.code == 1 and "died" in ran.err and ran.err.count("\n") == 1
    fake_model(broken="model.safetensors is truncated; copy it again")
    ran = command("infill", f"{file}:1:1")
    assert ran.code == 2
    assert ran.err == "clover-code: model.safetensors is truncated; copy it again\n"
