"""`textDocument/completion` for clients that know no inline completion: one item in the popup."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass

from lsprotocol import types

from clover_lsp.completion.completer import Answer, Question
from clover_lsp.connection.scheduler import Ticket
from clover_lsp.features.acceptance import ACCEPTED
from clover_lsp.server import CloverServer

TRIGGERS = (".", "(", "[", "{", ",", "=", ":", " ")
_LONGEST_LABEL = 60


@dataclass(frozen=True, slots=True)
class _Completion:
    server: CloverServer

    def request(
        self, params: types.CompletionParams
    ) -> Awaitable[types.CompletionList | None] | None:
        snapshot = self.server.documents.get(params.text_document.uri)
        if snapshot is None or snapshot.is_too_large:
            return None
        offset = snapshot.offset(params.position)
        # Clients ask by themselves as "Invoked" too, while an identifier is typed.
        return self._answer(*self.server.completer.ask(snapshot, offset, None, invoked=False))

    async def _answer(self, question: Question, ticket: Ticket) -> types.CompletionList | None:
        answers = await self.server.completer.answer(question, ticket)
        if not answers:
            return None
        snapshot, cursor = question.snapshot, question.offset
        word = _word_before(snapshot.text, cursor)
        items = [_item(a, word, snapshot.position(cursor - len(word))) for a in answers]
        return types.CompletionList(is_incomplete=True, items=items)

    def offer(self, _: types.InitializeParams) -> None:
        """Registers where the client needs it."""
        able = self.server.capabilities
        if able.completion and not able.inline_completion:
            options = types.CompletionOptions(trigger_characters=list(TRIGGERS))
            self.server.feature(types.TEXT_DOCUMENT_COMPLETION, options)(self.request)


def _word_before(text: str, offset: int) -> str:
    start = offset
    while start and (text[start - 1].isalnum() or text[start - 1] == "_"):
        start -= 1
    return text[start:offset]


def _item(answer: Answer, word: str, word_start: types.Position) -> types.CompletionItem:
    """An item whose range covers the word that is being typed: clients filter by that word."""
    text, span = answer.text, answer.range
    if not answer.typed and word:
        text, span = word + text, types.Range(word_start, span.end)
    first, _, rest = text.strip().partition("\n")
    label = first if len(first) <= _LONGEST_LABEL else first[: _LONGEST_LABEL - 1] + "…"
    return types.CompletionItem(
        label=label + (" …" if rest else ""),
        kind=types.CompletionItemKind.Text,
        detail="clover-code",
        documentation=types.MarkupContent(types.MarkupKind.PlainText, text) if rest else None,
        filter_text=text,
        sort_text=" ",  # first; Emacs reads no NUL
        insert_text_format=types.InsertTextFormat.PlainText,
        text_edit=types.TextEdit(span, text),
        command=types.Command("Suggestion accepted", ACCEPTED, arguments=[answer.id]),
    )


def register(server: CloverServer) -> None:
    server.on_initialize(_Completion(server).offer)
