"""A selected piece of code filled anew: what the model would write in its place."""

from __future__ import annotations

from dataclasses import dataclass, replace

from clover_engine.api import CancelToken, Engine, Infill, InfillRequest, Snippet
from clover_engine.errors import EngineError
from clover_engine.line_ends import to_lf
from clover_lsp.actions.quickfix import parses
from clover_lsp.documents.text import main_line_end

MOST = 3
_TEMPERATURE = 0.7
_EXTRA_TOKENS = 24
_MAX_TOKENS = 256


@dataclass(frozen=True, slots=True)
class Alternative:
    """A text for the selection, in the document's own line ends."""

    text: str
    confidence: float


def rewrite(
    text: str,
    start: int,
    end: int,
    engine: Engine,
    gate: float,
    snippets: tuple[Snippet, ...] = (),
    cancel: CancelToken | None = None,
    deadline_s: float = 8.0,
) -> list[Alternative]:
    """Up to three texts that differ from the selection, surest first; none below `gate`. Blocks.

    A text that breaks a file which parsed is left out. Raises the engine's errors.
    """
    selected = to_lf(text[start:end])
    request = InfillRequest(
        to_lf(text[:start]),
        to_lf(text[end:]),
        snippets,
        original=selected,
        max_tokens=min(_MAX_TOKENS, len(selected) // 2 + _EXTRA_TOKENS),
        deadline_s=deadline_s,
    )
    found = list(engine.infill(request, cancel).choices)
    sampled = replace(request, temperature=_TEMPERATURE, n=MOST - 1, seed=1)
    try:
        found += engine.infill(sampled, cancel).choices
    except EngineError:
        if cancel is not None and cancel.cancelled:
            raise
    good: dict[str, Alternative] = {}
    whole = parses(text)
    for infill in found:
        new = to_lf(infill.text).replace("\n", main_line_end(text))
        if not _is_fit(infill, selected, gate) or new in good:
            continue
        if not whole or parses(text[:start] + new + text[end:]):
            good[new] = Alternative(new, infill.confidence)
    return sorted(good.values(), key=lambda a: -a.confidence)[:MOST]


def _is_fit(infill: Infill, selected: str, gate: float) -> bool:
    finished = infill.finish_reason in ("eom", "stop")
    changed = infill.text.strip() and to_lf(infill.text) != selected
    return bool(finished and changed) and infill.confidence >= gate
