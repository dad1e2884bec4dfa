"""What the commands and code actions do with the server at hand: ask, check, apply, tell."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from lsprotocol import types

from clover_engine.api import CancelToken, Engine, Snippet
from clover_engine.errors import EngineError
from clover_engine.gate import SHOWN_CONFIDENCE
from clover_lsp.actions.buffers import DocumentEdit, document_edits
from clover_lsp.actions.errors import ActionRefused
from clover_lsp.actions.quickfix import Fix, Question, isolated_fixes
from clover_lsp.actions.rewrite import Alternative, rewrite
from clover_lsp.actions.validated import Job, plan, run
from clover_lsp.context.closed_room import OPENING
from clover_lsp.context.types import Context
from clover_lsp.documents.documents import Snapshot
from clover_lsp.features.arguments import Target
from clover_lsp.features.diagnostics import problem_of
from clover_lsp.features.progress import WorkDone, work_done
from clover_lsp.features.workspace_edit import apply, workspace_edit
from clover_lsp.isolated.client import Helper, HelperEnded
from clover_lsp.server import CloverServer

T = TypeVar("T")
_PATIENCE_S = 10.0


class Service:
    """One for a server; coroutines run on the event loop, the work on the server's threads."""

    def __init__(self, server: CloverServer) -> None:
        self.server = server
        self._repairing: set[Path] = set()

    async def fixes(self, target: Target, cancel: CancelToken) -> tuple[Snapshot, list[Fix]]:
        """Quick fixes of the target's diagnostic. Raises `ActionRefused` where there is none."""
        snapshot = target.snapshot(self.server.documents)
        if target.diagnostic is None:
            raise ActionRefused("no diagnostic was given: put the cursor on one")
        start, end = snapshot.offsets(target.diagnostic.range)
        question = Question(snapshot.text, snapshot.path, problem_of(target.diagnostic), start, end)
        engine = await self._engine(snapshot, start)
        helper = self.server.workers.action_helper
        work = self.server.workers.act(
            lambda: helper.run(isolated_fixes, question, cancel=cancel, engine=engine)
        )
        try:
            found = await self._cancellable(work, cancel)
        except HelperEnded as error:
            raise ActionRefused(str(error)) from error
        if cancel.cancelled:
            raise ActionRefused("cancelled")
        if not found:
            raise ActionRefused("no fix is known to help here; `Fix with tests` may find one")
        return snapshot, found

    async def alternatives(
        self, target: Target, cancel: CancelToken
    ) -> tuple[Snapshot, int, int, list[Alternative]]:
        """Other texts for the target's range. Raises `ActionRefused` where none is sure enough."""
        snapshot = target.snapshot(self.server.documents)
        start, end = snapshot.offsets(target.range) if target.range else (0, 0)
        if not snapshot.text[start:end].strip():
            raise ActionRefused("nothing is selected: select the code to write anew")
        await self.opened()
        context = await self._context(snapshot, start)
        engine = self.server.engine.interactive(snapshot.language)
        if engine is None or context.withheld:
            reason = context.withheld or f"no model knows {snapshot.language}"
            raise ActionRefused(f"nothing can be written here: {reason}")
        gate = max(SHOWN_CONFIDENCE, self.server.settings.completion.min_confidence)
        snippets = tuple(Snippet(s.text, s.path) for s in context.snippets)
        work = self.server.workers.act(
            lambda: rewrite(snapshot.text, start, end, engine, gate, snippets, cancel)
        )
        try:
            found = await self._cancellable(work, cancel)
        except EngineError as error:
            raise ActionRefused(str(error)) from error
        if not found:
            raise ActionRefused("the model is not sure enough of anything else to stand here")
        return snapshot, start, end, found

    async def opened(self) -> None:
        """Waits a while for a workspace that is just being opened: until then nothing may be
        read."""
        loop = asyncio.get_running_loop()
        end = loop.time() + _PATIENCE_S
        while self.server.context.status().detail == OPENING and loop.time() < end:
            await asyncio.sleep(0.05)

    def edit(self, changed: list[DocumentEdit], label: str, why: str = "") -> types.WorkspaceEdit:
        """For this client. Raises `ActionRefused` where a document changed meanwhile."""
        return workspace_edit(changed, self.server.capabilities, self.server.documents, label, why)

    async def apply(self, changed: list[DocumentEdit], label: str, why: str = "") -> None:
        """Has the client change its documents. Raises `ActionRefused` with the reason if not."""
        await apply(self.server, self.edit(changed, label, why), label)

    async def repair(self, target: Target | None) -> dict[str, object]:
        """A repair that the check confirms, applied; what happened, as JSON.

        Raises `ActionRefused` where there was nothing to do, or not enough time to do it.
        """
        server, settings = self.server, self.server.settings.fix
        snapshot = target.snapshot(server.documents) if target is not None else None
        found = target.diagnostic if target is not None else None
        problem = problem_of(found) if found is not None else None
        evidence = (
            [(problem.line + 1, problem.message, problem.code, problem.source)] if problem else []
        )
        job = await server.workers.repair(
            lambda: plan(
                server.documents,
                server.roots,
                snapshot,
                settings.check,
                settings.budget_s,
                evidence,
            )
        )
        with self._only_one(job):
            return await self._repair(job)

    async def _repair(self, job: Job) -> dict[str, object]:
        cancel, server = CancelToken(), self.server
        engine, helper = server.engine.background("python"), Helper(0, cleans_up=True)
        async with work_done(server, "Fix with tests", cancel) as progress:
            answers: dict[str, Callable[..., Any]] = {
                "progress": progress.report,
                "withheld": server.context.withheld,
            }
            work = server.workers.repair(
                lambda: helper.run(run, job, cancel=cancel, engine=engine, answers=answers)
            )
            server.workers.helpers.add(helper)
            try:
                result = await self._cancellable(work, cancel)
            except (EngineError, HelperEnded) as error:
                raise ActionRefused(str(error)) from error
            finally:
                server.workers.helpers.discard(helper)
                helper.close()
            if result.status == "cancelled":
                raise ActionRefused("the fix was cancelled; nothing was changed")
            if not result.changes:
                raise ActionRefused(f"no fix: {result.error or result.status}")
            changed = document_edits(job.repository, result.changes, server.documents, server.roots)
            why = result.explanation.summary if result.explanation else ""
            await self.apply(changed, "Fix with tests", why)
        return {
            "applied": True,
            "files": [c.snapshot.uri for c in changed],
            "explanation": why,
            "tried": result.candidates_tried,
            "seconds": result.seconds,
        }

    @asynccontextmanager
    async def progress(self, title: str, cancel: CancelToken) -> AsyncIterator[WorkDone]:
        """Work-done progress with a cancel button."""
        async with work_done(self.server, title, cancel) as done:
            yield done

    def tell(self, message: str, kind: types.MessageType = types.MessageType.Info) -> None:
        """Says something to the user."""
        self.server.window_show_message(types.ShowMessageParams(kind, f"clover-code: {message}"))

    def _only_one(self, job: Job) -> _Claim:
        if job.repository in self._repairing:
            raise ActionRefused(
                f"a fix of {job.repository.name} is running already: wait for it or cancel it"
            )
        return _Claim(self._repairing, job.repository)

    async def _context(self, snapshot: Snapshot, offset: int) -> Context:
        server = self.server
        place, budget = server.place(snapshot, offset), server.settings.context.budget_tokens
        return await server.workers.act(lambda: server.context.gather(place, budget))

    async def _engine(self, snapshot: Snapshot, offset: int) -> Engine | None:
        """The model, unless it must not read the document."""
        engine = self.server.engine.interactive(snapshot.language)
        if engine is not None and (await self._context(snapshot, offset)).withheld:
            return None
        return engine

    async def _cancellable(self, work: Coroutine[Any, Any, T], cancel: CancelToken) -> T:
        """Awaits; a request that the client cancels stops the work within one step."""
        try:
            return await work
        except asyncio.CancelledError:
            cancel.cancel()
            raise


class _Claim:
    """Holds a repository while a repair runs in it."""

    def __init__(self, claimed: set[Path], repository: Path) -> None:
        self._claimed, self._repository = claimed, repository

    def __enter__(self) -> None:
        self._claimed.add(self._repository)

    def __exit__(self, *_: object) -> None:
        self._claimed.discard(self._repository)
