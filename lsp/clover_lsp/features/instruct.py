"""What a model does with lines and words: edits by instruction, presets, commit messages."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lsprotocol import types
from pygls.exceptions import JsonRpcInvalidParams

from clover_engine.api import CancelToken
from clover_engine.errors import EngineError
from clover_engine.generation import Converses
from clover_lsp.actions.buffers import DocumentEdit
from clover_lsp.actions.errors import ActionRefused
from clover_lsp.actions.instructed import (
    PRESETS,
    Instructed,
    Wish,
    instructed,
    lines_of,
    staged_message,
    tests_path,
)
from clover_lsp.documents.documents import Snapshot, path_uri, uri_path
from clover_lsp.features.arguments import Target, plain
from clover_lsp.features.service import Service
from clover_lsp.server import CloverServer

EDIT_SELECTION = "clover.editSelection"
"""With an `instruction` or a `preset`: `{uri, version?, range, instruction?, preset?, followUps?:
[{instruction, text}], attempt?, imports?, apply?, token?}` → `{applied, kind, text, explanation,
notes, edits, version, uri?, model, tokens, seconds}`; see docs/protocol.md."""
COMMIT_MESSAGE = "clover.commitMessage"
"""`{uri?}` or nothing → `{message}`: for what is staged in the repository of the document, or of
the first folder."""
PREVIEW = "clover/editPreview"
"""To the client, for requests with a `token`: `{token, text}`, the new lines so far."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """The argument of `clover.editSelection`."""

    target: Target
    wish: Wish
    apply: bool = False
    token: str | int | None = None

    @classmethod
    def read(cls, value: object) -> _Asked:
        """Raises the protocol's InvalidParams."""
        target, data = Target.read(value, EDIT_SELECTION), plain(value)
        try:
            turns = [(str(t["instruction"]), str(t["text"])) for t in data.get("followUps") or ()]
            wish = Wish(
                str(data.get("instruction") or ""),
                str(data.get("preset") or ""),
                tuple(turns),
                int(data.get("attempt") or 0),
                bool(data.get("imports")),
            )
        except (TypeError, KeyError, ValueError, AttributeError) as error:
            raise JsonRpcInvalidParams(f"{EDIT_SELECTION}: {error!r} in its argument") from error
        if target.range is None or not (wish.words.strip() or wish.preset):
            raise JsonRpcInvalidParams(
                f"{EDIT_SELECTION} needs `range`, and `instruction` or `preset`"
            )
        return cls(target, wish, bool(data.get("apply")), data.get("token"))


@dataclass(frozen=True, slots=True)
class Instructor:
    """Asks the model that converses."""

    service: Service

    @property
    def server(self) -> CloverServer:
        return self.service.server

    def run(self, *arguments: object) -> Awaitable[dict[str, object]]:
        asked = _Asked.read(next(iter(arguments), None))
        return self._run(asked)

    async def _run(self, asked: _Asked) -> dict[str, object]:
        cancel = CancelToken()
        title = PRESETS.get(asked.wish.preset, "Edit by instruction")
        try:
            async with self.service.progress(title, cancel) as progress:
                snapshot, done = await self.ask(asked, cancel, self._teller(asked, progress.report))
            return await self._ended(asked, snapshot, done, title)
        except ActionRefused as refused:
            self.service.tell(str(refused))
            return {"applied": False, "reason": str(refused)}

    async def ask(
        self, asked: _Asked, cancel: CancelToken, told: Callable[[str], None] = lambda text: None
    ) -> tuple[Snapshot, Instructed]:
        """The document and what the model makes of it. Raises `ActionRefused`."""
        snapshot = asked.target.snapshot(self.server.documents)
        assert asked.target.range is not None
        lines = lines_of(snapshot.text, *snapshot.offsets(asked.target.range))
        await self.service.opened()
        if reason := await self.server.workers.act(
            lambda: self.server.context.withheld(snapshot.uri)
        ):
            raise ActionRefused(f"no model may read this: {reason}")
        engine, path = self.engine(), self._shown_path(snapshot)
        work = self.server.workers.act(
            lambda: instructed(path, snapshot.text, lines, asked.wish, engine, cancel, told)
        )
        return snapshot, await self.waited(work, cancel)

    def engine(self) -> Converses:
        """Raises `ActionRefused` where no model is wanted."""
        engine = self.server.engine.conversing()
        if engine is None:
            raise ActionRefused("no model is in use: set `clover.engine`")
        return engine

    async def waited(self, work: Any, cancel: CancelToken) -> Any:
        """The work's result; a request that the client cancels stops the model."""
        try:
            return await work
        except asyncio.CancelledError:
            cancel.cancel()
            raise
        except EngineError as error:
            raise ActionRefused("cancelled" if cancel.cancelled else str(error)) from error

    def _teller(self, asked: _Asked, report: Callable[[str], None]) -> Callable[[str], None]:
        """Shows the text so far: a client with a token gets all of it, others the last line."""
        loop, protocol = asyncio.get_running_loop(), self.server.protocol
        seen = ""

        def told(text: str) -> None:
            nonlocal seen
            if text == seen:
                return
            seen = text
            report(text.rstrip().rpartition("\n")[2].strip()[:80])
            if asked.token is not None:
                params = {"token": asked.token, "text": text}
                loop.call_soon_threadsafe(protocol.notify, PREVIEW, params)

        return told

    async def _ended(
        self, asked: _Asked, snapshot: Snapshot, done: Instructed, title: str
    ) -> dict[str, object]:
        answer = self._answer(snapshot, done)
        if done.kind == "file":
            place = await self.server.workers.act(lambda: tests_path(snapshot.path))
            answer["uri"] = path_uri(place)
        if asked.apply:
            for note in done.notes:
                self.service.tell(note)
            if done.kind == "edit":
                await self.service.apply([DocumentEdit(snapshot, done.edits)], title)
                answer["applied"] = True
            elif done.kind == "say":
                self.service.tell(done.explanation)
            else:
                await self._create(str(answer["uri"]), done.text, title)
                answer["applied"] = True
        return answer

    async def _create(self, uri: str, text: str, title: str) -> None:
        """Has the client make a new file."""
        changes: list[Any] = [
            types.CreateFile(uri),
            types.TextDocumentEdit(
                types.OptionalVersionedTextDocumentIdentifier(uri, None),
                [types.TextEdit(types.Range(types.Position(0, 0), types.Position(0, 0)), text)],
            ),
        ]
        can = self.server.capabilities
        if "create" not in can.resource_operations:
            raise ActionRefused(
                f"this editor makes no files for a server: {title} with the command"
            )
        from clover_lsp.features.workspace_edit import apply

        await apply(self.server, types.WorkspaceEdit(document_changes=changes), title)

    def _answer(self, snapshot: Snapshot, done: Instructed) -> dict[str, object]:
        edits = [
            {"range": plain_range(snapshot.range(edit.start, edit.end)), "newText": edit.new}
            for edit in done.edits
        ]
        return {
            "applied": False,
            "kind": done.kind,
            "text": done.text,
            "explanation": done.explanation,
            "notes": list(done.notes),
            "edits": edits,
            "version": snapshot.version,
            "model": done.model,
            "tokens": done.tokens,
            "seconds": done.seconds,
        }

    def _shown_path(self, snapshot: Snapshot) -> str:
        """The document's path as the model reads it: below its folder of the workspace."""
        path = Path(snapshot.path or uri_path(snapshot.uri) or snapshot.uri)
        inside = (root for root in self.server.roots if path.is_relative_to(root))
        root = next(inside, None)
        return path.relative_to(root).as_posix() if root else path.name

    # --- commit messages -----------------------------------------------------------------------

    def message(self, *arguments: object) -> Awaitable[dict[str, object]]:
        given = next(iter(arguments), None)
        target = Target.read(given, COMMIT_MESSAGE) if given else None
        return self._message(target)

    async def _message(self, target: Target | None) -> dict[str, object]:
        cancel = CancelToken()
        try:
            await self.service.opened()
            folder, engine = self._folder(target), self.engine()
            withheld = self.server.context.withheld
            async with self.service.progress("Commit message", cancel):
                work = self.server.workers.act(
                    lambda: staged_message(
                        folder, engine, lambda path: bool(withheld(path_uri(path))), cancel
                    )
                )
                return {"message": await self.waited(work, cancel)}
        except ActionRefused as refused:
            self.service.tell(str(refused))
            return {"message": None, "reason": str(refused)}

    def _folder(self, target: Target | None) -> Path:
        path = uri_path(target.uri) if target else None
        if path is not None:
            found = Path(path)
            return found if found.is_dir() else found.parent
        if not self.server.roots:
            raise ActionRefused("no folder is open: open the repository")
        return Path(self.server.roots[0])


def plain_range(span: types.Range) -> dict[str, dict[str, int]]:
    """As JSON."""
    return {
        name: {"line": at.line, "character": at.character}
        for name, at in (("start", span.start), ("end", span.end))
    }


async def preset_edit(service: Service, target: Target, cancel: CancelToken) -> DocumentEdit:
    """What a preset makes of the target's lines. Raises `ActionRefused`."""
    asked = _Asked(replace(target, kind=""), Wish(preset=target.kind))
    snapshot, done = await Instructor(service).ask(asked, cancel)
    return DocumentEdit(snapshot, done.edits)


def is_instruction(argument: object) -> bool:
    """Whether `clover.editSelection` is asked for an edit in words."""
    data = plain(argument)
    return isinstance(data, dict) and bool(data.get("instruction") or data.get("preset"))


def register(server: CloverServer) -> None:
    instructor = Instructor(Service(server))
    server.command(COMMIT_MESSAGE)(instructor.message)
