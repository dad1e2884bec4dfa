"""The search for a next edit, in a helper process that keeps the former texts it was sent."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace

from clover_engine.api import CancelToken
from clover_lsp.actions.next_edit import Memory, next_edits
from clover_lsp.actions.proposals import Moment, Proposal
from clover_lsp.isolated.client import Helper, HelperEnded
from clover_lsp.isolated.outside import Outside

KEPT = 256
"""Former texts that the helper keeps, of all documents together."""
Key = tuple[int, int]


class Search:
    """The server's side: a text goes to the helper once. Any thread, one search at a time."""

    def __init__(self, helper: Helper) -> None:
        self._helper = helper
        self._sent: OrderedDict[Key, None] = OrderedDict()
        self._lock = threading.Lock()

    def run(self, moment: Moment, memory: Memory, cancel: CancelToken) -> list[Proposal]:
        """`next_edits`; none where the helper ended meanwhile."""
        with self._lock:
            try:
                found = self._ask(moment, memory, cancel)
                if found is None and not cancel.cancelled:  # the helper is a new one
                    self._sent.clear()
                    found = self._ask(moment, memory, cancel)
            except HelperEnded:
                self._sent.clear()
                return []
        return found or []

    def _ask(self, moment: Moment, memory: Memory, cancel: CancelToken) -> list[Proposal] | None:
        keys = [(hash(text), len(text)) for text in moment.history]
        new = {
            key: text
            for key, text in zip(keys, moment.history, strict=True)
            if key not in self._sent
        }
        for key in keys:
            self._sent[key] = None
            self._sent.move_to_end(key)
        gone = []
        while len(self._sent) > max(KEPT, len(keys)):
            gone.append(self._sent.popitem(last=False)[0])
        bare = replace(moment, history=())
        return self._helper.run(search, bare, keys, new, gone, memory, cancel=cancel)


_texts: dict[Key, str] = {}
"""The helper's own, by the server's keys."""


def search(
    moment: Moment,
    keys: Sequence[Key],
    new: dict[Key, str],
    gone: Sequence[Key],
    memory: Memory,
    outside: Outside,
) -> list[Proposal] | None:
    """In the helper. None where a text was never sent to this process."""
    for key in gone:
        _texts.pop(key, None)
    _texts.update(new)
    if any(key not in _texts for key in keys):
        return None
    history = tuple(_texts[key] for key in keys)
    return next_edits(replace(moment, history=history), memory, cancel=outside.cancel)
