"""Selected lines changed as somebody says in words, and what else a model writes about them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from clover_engine.api import CancelToken
from clover_engine.generation import Converses
from clover_engine.line_ends import line_starts, to_lf
from clover_lsp.actions.errors import ActionRefused
from clover_lsp.context.types import Edit
from clover_lsp.documents.text import main_line_end
from clover_patcher.errors import PatcherError

if TYPE_CHECKING:  # the server must start fast
    from clover_patcher.instruct.request import Edited, Instruction

PRESETS = {
    "docstring": "Write a docstring",
    "types": "Add type annotations",
    "tests": "Write tests for this",
    "explain": "Explain this",
    "simplify": "Simplify this",
}
"""Titles by name; `clover_patcher.instruct.presets` has the words."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What is asked for about lines of a document. `turns` are (words, text that they gave)."""

    words: str = ""
    preset: str = ""
    turns: tuple[tuple[str, str], ...] = ()
    attempt: int = 0
    imports: bool = False


@dataclass(frozen=True, slots=True)
class Instructed:
    """What came of it: edits of the document, or words, or a new file's text."""

    kind: str
    """"edit", "say" or "file"."""
    text: str
    """The new lines, or the new file, with line feeds only."""
    explanation: str
    edits: tuple[Edit, ...]
    notes: tuple[str, ...]
    model: str
    tokens: int
    seconds: float


Told = Callable[[str], None]
"""Called with the new lines so far, on the calling thread."""


def lines_of(text: str, start: int, end: int) -> tuple[int, int]:
    """The first and last line, from 1, that a range of offsets touches."""
    starts = line_starts(text)
    first = sum(at <= start for at in starts)
    last = sum(at <= end for at in starts)
    if last > first and starts[last - 1] == end:
        last -= 1  # it ends before the line's first character
    return first, last


def instructed(
    path: str,
    text: str,
    lines: tuple[int, int],
    wish: Wish,
    engine: Converses,
    cancel: CancelToken | None = None,
    told: Told = lambda text: None,
) -> Instructed:
    """Asks the model; blocks. Raises `ActionRefused` and the engine's errors."""
    from clover_patcher.instruct.edit import edit, so_far

    try:
        request = _request(path, text, lines, wish)
        done = edit(engine, request, cancel, lambda said: told(so_far(request, said)))
    except PatcherError as error:
        raise ActionRefused(str(error)) from error
    notes = list(done.notes)
    if done.imports and not wish.imports:
        notes.append(f"the new lines need `{'; '.join(done.imports)}`")
    return Instructed(
        request.kind,
        done.text,
        done.explanation,
        _edits(text, request, done) if request.kind == "edit" else (),
        notes=tuple(notes),
        model=done.model,
        tokens=done.tokens,
        seconds=done.seconds,
    )


def _request(path: str, text: str, lines: tuple[int, int], wish: Wish) -> Instruction:
    from clover_patcher.instruct.presets import PRESETS as KNOWN
    from clover_patcher.instruct.request import Instruction, Turn

    turns = tuple(Turn(words, new) for words, new in wish.turns)
    request = Instruction(path, to_lf(text), *lines, wish.words, turns)
    if wish.preset:
        if wish.preset not in KNOWN:
            raise ActionRefused(f"there is no preset {wish.preset!r}: {', '.join(KNOWN)}")
        request = KNOWN[wish.preset].applied(request)
    return replace(request, imports=wish.imports, attempt=wish.attempt)


def _edits(text: str, request: Instruction, done: Edited) -> tuple[Edit, ...]:
    """In the document's own line ends, the selected lines and nothing else but wanted imports."""
    starts = [*line_starts(text), len(text)]
    start, end = starts[request.first - 1], starts[request.last]
    line_end = main_line_end(text)
    new = done.text.replace("\n", line_end)
    if new or not text[start:end]:
        kept = len(text[start:end]) - len(text[start:end].rstrip("\r\n"))
        end -= min(kept, 2 if text[start:end].endswith("\r\n") else 1)
    edits = [Edit(start, end, new)]
    if request.imports and done.imports:
        edits += _import_edits(text, request, done, line_end)
    return tuple(edits)


def _import_edits(text: str, request: Instruction, done: Edited, line_end: str) -> list[Edit]:
    """The lines that stand above the new ones in `done.after` and not in the document."""
    head = to_lf(text).split("\n")[: request.first - 1]
    after = done.after.split("\n")
    added = len(after) - len(head) - len(done.text.split("\n"))
    added -= len(to_lf(text).split("\n")) - request.last
    if added <= 0:
        return []
    at = next((n for n, line in enumerate(head) if line != after[n]), len(head))
    new = "".join(line + line_end for line in after[at : at + added])
    return [Edit(line_starts(text)[at], line_starts(text)[at], new)]


def place_for(path: str, files: frozenset[str]) -> str:
    """Where new tests of a file go, relative to the repository. Raises `ActionRefused`."""
    from clover_patcher.instruct.files import place_for_tests

    try:
        return place_for_tests(path, files)
    except PatcherError as error:
        raise ActionRefused(str(error)) from error


def tests_path(path: str | None) -> Path:
    """The file where new tests of a document go: by its repository's conventions, or beside it.

    Blocks. Raises `ActionRefused` for a document that is no file.
    """
    from clover_patcher.repository.git import Repository

    if path is None:
        raise ActionRefused("the document is no file: save it first")
    full = Path(path).resolve()
    try:
        repository = Repository.open(full.parent)
    except PatcherError:
        return full.with_name(PurePosixPath(place_for(full.name, frozenset())).name)
    inside = full.relative_to(repository.root).as_posix()
    return repository.root / place_for(inside, frozenset(repository.listing().files))


def staged_message(
    folder: Path, engine: Converses, withheld: Callable[[str], bool], cancel: CancelToken
) -> str:
    """A commit message for what is staged in the repository around a folder; blocks.

    `withheld` takes absolute paths. Raises `ActionRefused` and the engine's errors.
    """
    from clover_patcher.instruct.message import suggest_message
    from clover_patcher.instruct.staged import recent_subjects, staged_diff
    from clover_patcher.repository.git import Repository

    try:
        repository = Repository.open(folder)
        diff = staged_diff(repository, lambda path: withheld(str(repository.root / path)))
        return suggest_message(engine, diff, cancel, recent_subjects(repository))
    except PatcherError as error:
        raise ActionRefused(str(error)) from error
