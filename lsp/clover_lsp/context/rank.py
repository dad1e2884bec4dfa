"""Candidates → the snippets that the model reads: ranked, without duplicates, within a budget.

Scores are comparable between kinds. Roughly, from the top: other cells of the same notebook (9),
definitions of imported names used near the cursor (6 to 8), of other names (2 to 5), diagnostics
(4), recent edits elsewhere (3), similar windows of open files (1 to 4), usages in the repository
(1 to 3), changes since the last commit (1 to 2).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from clover_lsp.context.types import ScoredSnippet

CHARS_PER_TOKEN = 3.0
"""Source code in the model's tokens; a low figure, so that the budget holds."""
SNIPPET_TOKENS = 2
"""What a snippet costs besides its text."""
MAX_KNOWN = 0.5
"""A snippet is left out if more of its lines than this are in the document around the cursor."""
MAX_SIMILAR = 0.6
"""… or in a snippet that was chosen before."""
MIN_LINES = 3
"""A snippet that is cut to the budget keeps at least so many lines."""
_CUTTABLE = frozenset({"open", "reference", "diff", "edit"})


@dataclass(frozen=True, slots=True)
class Rejected:
    """A candidate that was not taken, for people who ask why."""

    snippet: ScoredSnippet
    why: str


def cost(text: str) -> int:
    """Tokens that a snippet takes, estimated on the safe side."""
    return int(len(text) / CHARS_PER_TOKEN) + 1 + SNIPPET_TOKENS


def choose(
    candidates: Iterable[ScoredSnippet], known: frozenset[str], budget: int
) -> tuple[list[ScoredSnippet], list[Rejected]]:
    """Takes the best candidates until the budget is full. The same input gives the same output."""
    chosen: list[ScoredSnippet] = []
    rejected: list[Rejected] = []
    taken: list[frozenset[str]] = []
    paths: set[str] = set()
    left = budget
    ordered = sorted(candidates, key=lambda s: (-s.score, s.path, s.first_line, s.kind, s.text))
    for snippet in ordered:
        lines = _lines(snippet.text)
        why = _duplicate(snippet, lines, known, taken, paths)
        if not why and cost(snippet.text) > left:
            cut = _cut(snippet, left)
            if cut is None:
                why = "over the budget"
            else:
                snippet, lines = cut, _lines(cut.text)
        if why:
            rejected.append(Rejected(snippet, why))
            continue
        chosen.append(snippet)
        taken.append(lines)
        if snippet.kind != "diagnostic":
            paths.add(snippet.path)
        left -= cost(snippet.text)
    return chosen, rejected


def _duplicate(
    snippet: ScoredSnippet,
    lines: frozenset[str],
    known: frozenset[str],
    taken: Sequence[frozenset[str]],
    paths: set[str],
) -> str:
    if not snippet.text.strip():
        return "empty"
    if snippet.kind == "diagnostic":
        return ""
    if snippet.path in paths:
        return "the same file is there already"
    if lines and len(lines & known) > MAX_KNOWN * len(lines):
        return "the document shows it already"
    for other in taken:
        if lines and len(lines & other) > MAX_SIMILAR * len(lines):
            return "nearly the same as another snippet"
    return ""


def _lines(text: str) -> frozenset[str]:
    return frozenset(line.strip() for line in text.split("\n") if len(line.strip()) > 3)


def _cut(snippet: ScoredSnippet, left: int) -> ScoredSnippet | None:
    """The snippet's first lines that fit, if enough of them do."""
    if snippet.kind not in _CUTTABLE:
        return None
    kept: list[str] = []
    for line in snippet.text.split("\n"):
        if cost("\n".join([*kept, line])) > left:
            break
        kept.append(line)
    if len(kept) < MIN_LINES:
        return None
    return replace(snippet, text="\n".join(kept))
