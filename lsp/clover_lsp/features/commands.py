"""`workspace/executeCommand`: what can be asked for by name.

Arguments that do not fit are the protocol's InvalidParams. What cannot be done is no error: the
answer says `{"applied": false, "reason": …}`, and the user is told the reason.
"""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import asdict, dataclass

from pygls.exceptions import JsonRpcInvalidParams

from clover_engine.api import CancelToken
from clover_lsp.actions.buffers import DocumentEdit
from clover_lsp.actions.errors import ActionRefused
from clover_lsp.features.arguments import Target
from clover_lsp.features.service import Service
from clover_lsp.server import CloverServer

FIX_TESTS = "clover.fixTests"
"""`{uri?, diagnostic?}` or nothing → `{applied, files, explanation, tried, seconds}`: repairs the
program so that the check passes. One at a time in a repository."""
FIX_DIAGNOSTIC = "clover.fixDiagnostic"
"""`{uri, version?, diagnostic, choice?}` → `{applied, fixes}`: applies a quick fix."""
CLEAR_CACHE = "clover.clearCache"
"""Forgets remembered suggestions; they are asked for anew."""
SHOW_CONTEXT = "clover.showContext"
"""`{uri, range}` → what the model would read at the range's start, with scores."""
STATUS = "clover.status"
"""→ the status item's `{busy, kind, message}`, `engine` in words, and the index's state."""


@dataclass(frozen=True, slots=True)
class _Commands:
    server: CloverServer
    service: Service

    def fix_tests(self, *arguments: object) -> Awaitable[dict[str, object]]:
        target = Target.read(arguments[0], FIX_TESTS) if arguments and arguments[0] else None
        return self._fix_tests(target)

    async def _fix_tests(self, target: Target | None) -> dict[str, object]:
        try:
            answer = await self.service.repair(target)
        except ActionRefused as refused:
            return self._refused(refused)
        self.service.tell(f"fixed. {answer['explanation']}")
        return answer

    def fix_diagnostic(self, *arguments: object) -> Awaitable[dict[str, object]]:
        return self._fix_diagnostic(Target.read(next(iter(arguments), None), FIX_DIAGNOSTIC))

    async def _fix_diagnostic(self, target: Target) -> dict[str, object]:
        cancel = CancelToken()
        try:
            async with self.service.progress("Fix diagnostic", cancel):
                snapshot, fixes = await self.service.fixes(target, cancel)
            fix = fixes[min(target.choice, len(fixes) - 1)]
            await self.service.apply([DocumentEdit(snapshot, fix.edits)], fix.title)
        except ActionRefused as refused:
            return self._refused(refused)
        return {"applied": True, "fixes": [f.title for f in fixes]}

    def clear_cache(self, *_: object) -> dict[str, object]:
        self.server.completer.clear()
        return {"cleared": True}

    def show_context(self, *arguments: object) -> Awaitable[dict[str, object]]:
        target = Target.read(next(iter(arguments), None), SHOW_CONTEXT)
        if target.range is None:
            raise JsonRpcInvalidParams(f"{SHOW_CONTEXT} needs a `range`: where the cursor is")
        return self._show_context(target)

    async def _show_context(self, target: Target) -> dict[str, object]:
        assert target.range is not None
        server = self.server
        try:
            snapshot = target.snapshot(server.documents)
        except ActionRefused as refused:
            return self._refused(refused)
        place = server.place(snapshot, snapshot.offset(target.range.start))
        budget = server.settings.context.budget_tokens
        context = await server.workers.now(lambda: server.context.gather(place, budget))
        return {
            "withheld": context.withheld,
            "snippets": [asdict(snippet) for snippet in context.snippets],
            "lookups": [asdict(lookup) for lookup in context.lookups],
        }

    def status(self, *_: object) -> dict[str, object]:
        works, engine = self.server.engine.describe()
        index = asdict(self.server.context.status())
        return {**self.server.status.params(), "works": works, "engine": engine, "index": index}

    def _refused(self, refused: ActionRefused) -> dict[str, object]:
        self.service.tell(str(refused))
        return {"applied": False, "reason": str(refused)}


def register(server: CloverServer) -> None:
    commands = _Commands(server, Service(server))
    server.command(FIX_TESTS)(commands.fix_tests)
    server.command(FIX_DIAGNOSTIC)(commands.fix_diagnostic)
    server.command(CLEAR_CACHE)(commands.clear_cache)
    server.command(SHOW_CONTEXT)(commands.show_context)
    server.command(STATUS)(commands.status)
