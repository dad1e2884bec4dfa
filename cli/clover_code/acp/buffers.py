"""What the editor has unsaved, and how a change gets past it into the tree."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from acp import RequestError

from clover_code.acp.editor import Editor, ToolCall
from clover_code.desk import Desk
from clover_code.errors import UserError
from clover_engine.line_ends import to_lf
from clover_patcher.deliver.deliver import Delivered
from clover_patcher.edits import FileChange
from clover_patcher.errors import TreeChanged
from clover_patcher.instruct.files import change_of
from clover_patcher.repository.git import Repository
from clover_patcher.repository.treecopy import is_other_source, is_python

_RECENT = 20
"""So many source files that were changed last are asked for."""


class Buffers:
    """The files that may have unsaved changes: linked, and changed lately."""

    def __init__(self, desk: Desk, editor: Editor, links: Iterable[Path]) -> None:
        self._desk, self._editor = desk, editor
        self._unsaved: dict[str, bytes] = {}
        if editor.reads:
            for name in dict.fromkeys((*self._inside(links), *self._recent())):
                self._look(name)

    @property
    def unsaved(self) -> dict[str, bytes]:
        """Bytes that saving would write, by path from the repository's top."""
        return dict(self._unsaved)

    def content(self, name: str) -> bytes:
        """A file as the editor has it."""
        self._look(name)
        return self._unsaved.get(name) or self._read(name)

    def _look(self, name: str) -> None:
        path = self._desk.top / name
        if not path.is_file() or self._desk.hides(name):
            return
        text, saved = self._editor.read(path), self._read(name)
        self._unsaved.pop(name, None)
        if text is None:
            return
        try:
            data = change_of(name, saved, to_lf(text)).after
        except ValueError:  # no text in any encoding that is known
            return
        if data != saved:
            self._unsaved[name] = data

    def _read(self, name: str) -> bytes:
        try:
            return (self._desk.top / name).read_bytes()
        except OSError as error:
            raise UserError(f"cannot read {name}: {error.strerror}") from None

    def _inside(self, paths: Iterable[Path]) -> list[str]:
        real = (path.resolve() for path in paths)
        top = self._desk.top
        return [p.relative_to(top).as_posix() for p in real if p.is_relative_to(top)]

    def _recent(self) -> list[str]:
        """Source files of the repository that were changed last."""
        files = Repository.open(self._desk.top).listing().files
        sources = [name for name in files if is_python(name, b"") or is_other_source(name)]
        return sorted(sorted(sources, key=self._changed, reverse=True)[:_RECENT])

    def _changed(self, name: str) -> float:
        try:
            return os.stat(self._desk.top / name).st_mtime
        except OSError:
            return 0.0

    def apply(
        self,
        call: ToolCall,
        changes: Sequence[FileChange],
        deliver: Callable[[], Delivered],
        title: str,
    ) -> str:
        """Asks, then writes; what was done in words, "" where the user said no.

        Saved files are written by clover, all or nothing, and `/undo` takes that back. Files with
        unsaved changes are left to the editor. Raises `TreeChanged` where a file is not what the
        change was made for, and `Cancelled`.
        """
        if not self._editor.may(call, title, "Apply", "Discard"):
            call.end(ok=False)
            return ""
        for change in changes:
            if not change.created and self.content(change.path) != change.before:
                call.end(ok=False)
                raise TreeChanged(f"{change.path} changed meanwhile: nothing was applied")
        mixed = [change for change in changes if change.path in self._unsaved]
        if not mixed:
            done = deliver()
            call.end()
            return f"Applied; `/undo` takes it back (id {done.id})."
        self._through_editor(call, changes)
        names = ", ".join(change.path for change in mixed)
        return f"Applied through the editor, since {names} had unsaved changes: undo it there."

    def _through_editor(self, call: ToolCall, changes: Sequence[FileChange]) -> None:
        if not self._editor.writes:
            call.end(ok=False)
            raise UserError("a file has unsaved changes: save it, and ask again")
        try:
            for change in changes:
                text = to_lf(change.after.decode("utf-8", "replace"))
                self._editor.write(self._desk.top / change.path, text)
        except RequestError as error:
            call.end(ok=False)
            raise UserError(f"the editor did not write the file: {error}") from error
        call.end()
