"""Files on disk: what is selected in one, and what an edit by instruction makes of its bytes."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath

from clover_patcher.edits import FileChange, apply_edits
from clover_patcher.errors import UsageError
from clover_patcher.locate.functions import functions, grammar_of
from clover_patcher.propose.rewrite.edits import edits_between, text_of

_LINES = re.compile(r"(?P<path>.+?):(?P<first>[0-9]+)(?:-(?P<last>[0-9]+))?", re.DOTALL)
_FORMS = "FILE:FROM-TO, FILE:LINE, FILE::NAME or FILE"


def split_place(text: str) -> tuple[str, str]:
    """FILE and what is selected of it: "12-20", "12", "::Cart.total", or "" for all of it."""
    path, mark, name = text.partition("::")
    if mark:
        return path, mark + name
    found = _LINES.fullmatch(text)
    if found is None:
        return text, ""
    return found["path"], text[len(found["path"]) + 1 :]


def selection(path: str, text: str, selected: str) -> tuple[int, int]:
    """First and last line of what `split_place` found. Raises `UsageError`."""
    lines = text.split("\n")
    if not selected:
        return 1, max(1, len(lines) - (text.endswith("\n") and len(lines) > 1))
    if selected.startswith("::"):
        return _lines_of(path, text, selected[2:])
    first, _, last = selected.partition("-")
    return int(first), int(last or first)


def _lines_of(path: str, text: str, name: str) -> tuple[int, int]:
    """The lines of the function or class of that name, decorators included."""
    code = text.encode()
    language = grammar_of(path, code.split(b"\n", 1)[0])
    known = functions(language, code) if language else []
    found = [f for f in known if f.qualname == name] or [f for f in known if f.name == name]
    if len(found) != 1:
        what = "no" if not found else "more than one"
        raise UsageError(
            f"{path} has {what} function or class {name}: select lines, as in {_FORMS}"
        )
    at = found[0]
    return code.count(b"\n", 0, at.outer_start) + 1, code.count(b"\n", 0, at.outer_end) + 1


def read_text(path: str, content: bytes) -> str:
    """A file's text with line feeds only. Raises `UsageError` where it cannot be edited exactly."""
    text = text_of(path, content)
    if text is None:
        raise UsageError(f"{path} is not text in UTF-8 or its declared encoding")
    return text


def change_of(path: str, content: bytes, after: str) -> FileChange:
    """The file with the text `after`: its line ends, encoding and order mark stay.

    Raises `UsageError` where the encoding lacks a character.
    """
    try:
        edits = edits_between(path, content, after)
    except UnicodeEncodeError as exc:
        char = exc.object[exc.start]
        raise UsageError(f"{path} is {exc.encoding}, which has no {char!r}") from exc
    return FileChange(path, content, apply_edits(content, edits))


def place_for_tests(path: str, files: frozenset[str]) -> str:
    """Where new tests of a file go: where its project has tests, under a name that is free."""
    stem = PurePosixPath(path).stem
    names = [PurePosixPath(name) for name in files]
    folders = [p.parent for p in names if re.fullmatch(r"test_\w+\.py|\w+_test\.py", p.name)]
    folder = max(set(folders), key=folders.count) if folders else PurePosixPath("tests")
    for number in range(1, 100):
        name = f"test_{stem}.py" if number == 1 else f"test_{stem}_{number}.py"
        if (place := str(folder / name)) not in files:
            return place
    raise UsageError(f"there are too many test files for {path}: give the new one a name")


def inside(root: Path, path: Path) -> str:
    """A file's path relative to the repository. Raises `UsageError` for one outside of it."""
    full = Path(path).resolve()
    if not full.is_relative_to(root):
        raise UsageError(f"{path} is outside the repository {root}")
    return full.relative_to(root).as_posix()
