"""Paths and rooms that the documentation names exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("engine/clover_engine", "patcher/clover_patcher", "lsp/clover_lsp", "cli/clover_code")
FILE = re.compile(r"`([\w/]+\.py)`")
ROOM = re.compile(r"(?:\*\*|`)((?:\w+/)*\w+)/(?:\*\*|`)")


def sections() -> list[tuple[str, str]]:
    """(package, text) for the sections of the architecture that are about one package."""
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    parts = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    found = []
    for part in parts:
        package = next(p for p in PACKAGES if f"`{p}/`" in part)
        found.append((package, part))
    return found


def exists(package: str, name: str) -> bool:
    base = ROOT / package
    return (ROOT / name).exists() or (base / name).exists() or bool([*base.rglob(name)])


@pytest.mark.parametrize(("package", "text"), sections(), ids=[p for p, _ in sections()])
def test_the_architecture_names_files_and_rooms_that_are_there(package: str, text: str) -> None:
    names = [*FILE.findall(text), *ROOM.findall(text)]
    assert len(names) > 10
    assert not [name for name in names if not exists(package, name)]


def test_every_room_is_named_in_the_architecture() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    rooms = {
        path.parent.name
        for package in PACKAGES[:3]
        for path in (ROOT / package).glob("*/__init__.py")
    }
    known = set(ROOM.findall(text)) | set(re.findall(r"`(\w+)/`", text))
    assert rooms - known - {"settings", "testing"} == set()


def test_the_readme_s_layout_names_every_room_and_no_other() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    layout = text.partition("## Layout")[2].split("```")[1]
    package, named = "", set()
    for line in layout.strip().split("\n"):
        folders = re.match(r" *(?:[\w/]+/ )*[\w/]+/", line)
        assert folders is not None, line
        if not line.startswith(" "):
            package = folders[0].split()[0]
            assert all((ROOT / folder).is_dir() for folder in folders[0].split())
        else:
            named |= {package + folder for folder in folders[0].split()}
    rooms = {
        f"{path.parent.relative_to(ROOT).as_posix()}/"
        for package in PACKAGES
        for path in (ROOT / package).glob("*/__init__.py")
    }
    assert named == rooms
