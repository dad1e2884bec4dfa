"""Which file of the repository a text around a cursor is from, where a client does not say."""

from __future__ import annotations

from clover_engine.line_ends import to_lf
from clover_lsp.context.index import Index
from clover_lsp.context.lookup import Query
from clover_lsp.context.sources import candidates, read

MIN_LINES = 3
"""Fewer lines around the cursor than this say nothing."""
MIN_SHARE = 0.7
"""Part of the lines around the cursor that the file must have: some were edited since."""


def whose(index: Index, prefix: str, suffix: str) -> str:
    """The file's path below the index's folder, or "" where none has the lines around."""
    reader = index.reader
    before = to_lf(prefix)
    query = Query(before[: before.rfind("\n") + 1], to_lf(suffix))
    around = [line for line in (*query.above, *query.below) if len(line) > 2]
    if reader is None or len(around) < MIN_LINES:
        return ""
    best, chosen = MIN_SHARE, ""
    for file in candidates(reader, query, "", ()):
        text = read(index.root, file)
        lines = {line.strip() for line in text.split("\n")} if text else set()
        share = sum(line in lines for line in around) / len(around)
        if share > best:
            best, chosen = share, file.path
    return chosen
