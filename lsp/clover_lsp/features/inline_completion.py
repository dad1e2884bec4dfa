"""`textDocument/inlineCompletion`: one item while typing, several when asked for."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass

from lsprotocol import types

from clover_lsp.completion.completer import Answer, Completer, Question
from clover_lsp.connection.scheduler import Ticket
from clover_lsp.documents.documents import Snapshot
from clover_lsp.features.acceptance import ACCEPTED
from clover_lsp.server import CloverServer
from clover_lsp.suggest.types import Popup

DEBUG_METRICS = "clover/debug/metrics"
"""Request for benchmarks: `metrics.Metrics.take`, times in seconds."""


@dataclass(frozen=True, slots=True)
class _InlineCompletion:
    server: CloverServer
    completer: Completer

    def request(
        self, params: types.InlineCompletionParams
    ) -> Awaitable[types.InlineCompletionList | None] | None:
        """Takes the snapshot at once; the answer comes later."""
        snapshot = self.server.documents.get(params.text_document.uri)
        if snapshot is None or snapshot.is_too_large:
            return None
        offset = snapshot.offset(params.position)
        selected = params.context.selected_completion_info
        popup = None if selected is None else popup_of(snapshot, offset, selected)
        if selected is not None and popup is None:
            return None  # the protocol wants the popup's range, and that one is not at the cursor
        invoked = params.context.trigger_kind == types.InlineCompletionTriggerKind.Invoked
        return self._answer(*self.completer.ask(snapshot, offset, popup, invoked))

    async def _answer(
        self, question: Question, ticket: Ticket
    ) -> types.InlineCompletionList | None:
        answers = await self.completer.answer(question, ticket)
        return types.InlineCompletionList([item(a) for a in answers]) if answers else None

    def metrics(self, _: object) -> dict[str, object]:
        return self.server.metrics.take()


def popup_of(
    snapshot: Snapshot, offset: int, selected: types.SelectedCompletionInfo
) -> Popup | None:
    """The popup's item relative to the cursor; None where its range is not around the cursor."""
    start, end = snapshot.offsets(selected.range)
    if not start <= offset <= end or selected.range.start.line != selected.range.end.line:
        return None
    return Popup(selected.text, offset - start, end - offset)


def item(answer: Answer) -> types.InlineCompletionItem:
    command = types.Command("Suggestion accepted", ACCEPTED, arguments=[answer.id])
    return types.InlineCompletionItem(answer.text, range=answer.range, command=command)


def register(server: CloverServer) -> None:
    feature = _InlineCompletion(server, server.completer)
    server.feature(types.TEXT_DOCUMENT_INLINE_COMPLETION, types.InlineCompletionOptions())(
        feature.request
    )
    server.feature(DEBUG_METRICS)(feature.metrics)
