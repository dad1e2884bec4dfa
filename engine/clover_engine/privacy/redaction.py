"""Redacted text of a document that grows by keystrokes: only the lines that changed are scanned."""

from __future__ import annotations

import threading
from collections import OrderedDict

from clover_engine.privacy.secrets import redact

_KEPT = 32


class Redacted:
    """Remembers what it said about each document last; any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[str, bool], tuple[str, str]] = OrderedDict()

    def split(self, uri: str, prefix: str, suffix: str) -> tuple[str, str]:
        """Both sides of the cursor with their secrets replaced, one that the cursor is in too."""
        if "PRIVATE KEY" in prefix or "PRIVATE KEY" in suffix:
            whole = redact(prefix + suffix)
            return whole[: len(prefix)], whole[len(prefix) :]
        start = prefix.rfind("\n") + 1
        end = suffix.find("\n")
        end = len(suffix) if end < 0 else end
        line = redact(prefix[start:] + suffix[:end])
        cut = len(prefix) - start
        above = self._remembered((uri, True), prefix[:start])
        below = self._remembered((uri, False), suffix[end:])
        return above + line[:cut], line[cut:] + below

    def _remembered(self, key: tuple[str, bool], text: str) -> str:
        with self._lock:
            known = self._known.get(key)
        if known is not None and known[0] == text:
            return known[1]
        if known is not None and key[1] and text.startswith(known[0]):
            found = known[1] + redact(text[len(known[0]) :])
        elif known is not None and not key[1] and text.endswith(known[0]):
            found = redact(text[: len(text) - len(known[0])]) + known[1]
        else:
            found = redact(text)
        with self._lock:
            self._known[key] = (text, found)
            self._known.move_to_end(key)
            while len(self._known) > _KEPT:
                self._known.popitem(last=False)
        return found
