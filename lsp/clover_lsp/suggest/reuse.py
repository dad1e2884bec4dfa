"""Suggestions that were shown or prefetched, found again while the user types through them.

A suggestion belongs to the text before it. Typing (or accepting) characters that agree with it
leaves the rest of the same suggestion, with the same identity; deleting them brings it back. Any
other change of what surrounds it makes it unfindable. Not thread-safe.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from clover_engine.line_ends import to_lf
from clover_lsp.context.types import Place
from clover_lsp.suggest.overlap import fit
from clover_lsp.suggest.scene import at_popup, scene
from clover_lsp.suggest.types import Popup, Suggestion

CAPACITY = 250
LOOK_BACK = 128
"""Characters that may have been typed since (llama.vim's numbers)."""
MAX_AGE_S = 300.0
_FINGERPRINT = 400
"""Characters before and after a place that identify it."""
_READ = 4 * _FINGERPRINT
"""Characters that are looked at, so that enough are left once CR LF is LF."""
_LONGEST_CLOSING = 4
"""Characters that an editor may close by itself while the user types."""
_CLOSING = ")]}>\"'`;"

_Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Remembered:
    """A suggestion, or what is left of it. `identity` stays the same while it is typed through."""

    identity: int
    suggestion: Suggestion
    typed: int = 0
    """Characters of its text that stand in the document by now."""


@dataclass(frozen=True, slots=True)
class _Entry:
    suffix: str
    items: tuple[tuple[int, Suggestion], ...]
    """Identities and suggestions; the texts follow the key's prefix."""
    since: float


class Shown:
    """The store. Every call takes `now`, the seconds of any steady clock."""

    def __init__(
        self, capacity: int = CAPACITY, look_back: int = LOOK_BACK, max_age_s: float = MAX_AGE_S
    ) -> None:
        self._capacity, self._look_back, self._max_age_s = capacity, look_back, max_age_s
        self._entries: OrderedDict[_Key, _Entry] = OrderedDict()
        self._last_identity = 0

    def __len__(self) -> int:
        return len(self._entries)

    def put(
        self, place: Place, suggestions: Sequence[Suggestion], now: float
    ) -> tuple[Remembered, ...]:
        """Stores what is offered at `place`, best first, and gives each an identity.

        Also for prefetched texts: with the place that acceptance will lead to
        (`scene.accepted`). Ranges may cover typed text (a popup's item).
        """
        stored: dict[int, list[tuple[int, Suggestion]]] = {}
        answer = []
        for suggestion in suggestions:
            self._last_identity += 1
            item = (self._last_identity, suggestion)
            stored.setdefault(suggestion.replace_before, []).append(item)
            answer.append(Remembered(*item))
        for before, items in stored.items():
            prefix = _tail(place.prefix[: len(place.prefix) - before])
            key = (place.uri, prefix[-_FINGERPRINT:])
            self._entries[key] = _Entry(_head(place.suffix), tuple(items), now)
            self._entries.move_to_end(key)
        while len(self._entries) > self._capacity:
            self._entries.popitem(last=False)
        return tuple(answer)

    def add(self, place: Place, suggestions: Sequence[Suggestion], now: float) -> None:
        """Stores more for a place that has some already, behind it; as `put` where it has none.

        None that covers typed text: those are a popup's.
        """
        fitting = [s for s in suggestions if not s.replace_before]
        key = (place.uri, _tail(place.prefix)[-_FINGERPRINT:])
        before = self._entries.get(key)
        if before is None:
            self.put(place, fitting, now)
            return
        items = list(before.items)
        for suggestion in fitting:
            self._last_identity += 1
            items.append((self._last_identity, suggestion))
        self._entries[key] = replace(before, items=tuple(items))

    def get(self, place: Place, now: float, popup: Popup | None = None) -> tuple[Remembered, ...]:
        """What is left of the newest suggestions that agree with what stands at `place`.

        With a popup: only those that extend its item, with its text and range. () for a miss.
        """
        after = at_popup(place, popup)
        prefix = _tail(after.prefix)
        best: tuple[float, tuple[Remembered, ...]] | None = None
        for typed in range(min(self._look_back, len(prefix)) + 1):
            end = len(prefix) - typed
            key = (place.uri, prefix[max(0, end - _FINGERPRINT) : end])
            entry = self._entries.get(key)
            if entry is None or now - entry.since > self._max_age_s:
                continue
            left = _left(entry, after, prefix[end:])
            if left and (best is None or entry.since > best[0]):
                self._entries.move_to_end(key)
                best = (entry.since, left)
        if best is None:
            return ()
        return tuple(_with_popup(r, popup) for r in best[1]) if popup else best[1]

    def forget(self, identity: int) -> None:
        """Drops one suggestion (the user dismissed it)."""
        for key, entry in list(self._entries.items()):
            kept = tuple(item for item in entry.items if item[0] != identity)
            if not kept:
                del self._entries[key]
            elif len(kept) < len(entry.items):
                self._entries[key] = replace(entry, items=kept)

    def forget_document(self, uri: str) -> None:
        """Drops all of a document (it was closed)."""
        for key in [key for key in self._entries if key[0] == uri]:
            del self._entries[key]


def _left(entry: _Entry, place: Place, typed: str) -> tuple[Remembered, ...]:
    found = []
    for identity, suggestion in entry.items:
        text = suggestion.text
        if len(text) <= len(typed) or not text.startswith(typed):
            continue
        rest = _rest(text[len(typed) :], suggestion.replace_after, entry.suffix, place)
        if rest is not None:
            left = replace(suggestion, text=rest[0], replace_before=0, replace_after=rest[1])
            found.append(Remembered(identity, left, len(typed)))
    return tuple(found)


def _rest(text: str, replace_after: int, suffix: str, place: Place) -> tuple[str, int] | None:
    """(text, characters to replace after it) if what stands after the cursor is what stood there,
    but for signs that were typed over or that the editor closed by itself."""
    now = _head(place.suffix)
    for over in range(replace_after + 1):
        if _same(now, suffix, over):
            return text, replace_after - over
    for extra in range(1, _LONGEST_CLOSING + 1):
        if now[:extra].strip(_CLOSING) == "" and _same(now[extra:], suffix):
            fitted = fit(text, scene(place))
            return (fitted.text, fitted.replace_after) if fitted.text else None
    return None


def _same(now: str, stored: str, over: int = 0) -> bool:
    """Is `now` what was stored, but for its first `over` characters? A full store was cut."""
    if len(stored) < _FINGERPRINT:
        return now == stored[over:]
    common = min(len(now), len(stored) - over)
    return common >= _FINGERPRINT - _LONGEST_CLOSING and now[:common] == stored[over:][:common]


def _tail(prefix: str) -> str:
    return to_lf(prefix[-_READ:])


def _head(suffix: str) -> str:
    return to_lf(suffix[:_READ])[:_FINGERPRINT]


def _with_popup(left: Remembered, popup: Popup) -> Remembered:
    suggestion = replace(
        left.suggestion,
        text=popup.text + left.suggestion.text,
        replace_before=popup.replace_before,
        replace_after=popup.replace_after,
    )
    return replace(left, suggestion=suggestion)
