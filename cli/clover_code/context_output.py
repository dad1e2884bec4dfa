"""What the model would read at one place, as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from clover_code.places import CursorText

if TYPE_CHECKING:
    from clover_lsp.context.gather import Explained
    from clover_lsp.context.types import Context, ScoredSnippet


def described(explained: Explained, hole: CursorText, budget: int) -> dict[str, Any]:
    """What `clover-code context --json` prints."""
    from clover_lsp.context.confidence import confidence
    from clover_lsp.context.rank import cost

    context = explained.context
    return {
        "withheld": context.withheld,
        "prefix": context.place.prefix,
        "suffix": context.place.suffix,
        "redacted_characters": _redacted(hole.prefix + hole.suffix, context),
        "budget_tokens": budget,
        "snippets": [
            {**_fields(s), "tokens": cost(s.text), "text": s.text} for s in context.snippets
        ],
        "lookups": [
            {
                "text": look.text,
                "confidence": round(confidence(look), 3),
                "path": look.path,
                "matched": look.matched,
                "followed": look.followed,
                "count": look.count,
                "rivals": look.rivals,
            }
            for look in context.lookups
        ],
        "left_out": [{**_fields(r.snippet), "why": r.why} for r in explained.rejected],
    }


def _fields(snippet: ScoredSnippet) -> dict[str, Any]:
    return {
        "path": snippet.path,
        "line": snippet.first_line,
        "kind": snippet.kind,
        "score": snippet.score,
        "reason": snippet.reason,
    }


def _redacted(text: str, context: Context) -> int:
    shown = context.place.prefix + context.place.suffix
    if context.withheld:
        return 0
    return sum(a != b for a, b in zip(text, shown, strict=True))
