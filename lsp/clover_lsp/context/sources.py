"""Files of the repository that are worth a look from here: chosen by the index, read redacted."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence
from functools import lru_cache
from pathlib import Path

from clover_engine.line_ends import to_lf
from clover_engine.privacy.secrets import redact
from clover_lsp.context.lookup import Query, Source
from clover_lsp.context.store import Reader, StoredFile
from clover_lsp.context.symbols import identifiers, line_hash, word_hash

MAX_FILES = 6
"""Files read for one look-up."""
MAX_BYTES = 400_000
_POSTINGS = 512
"""Of a line or word in more files than this, only so many are considered."""


def candidates(
    reader: Reader, query: Query, path: str, skip: Collection[str], limit: int = MAX_FILES
) -> list[StoredFile]:
    """Files that have the lines and words around the cursor, most promising first."""
    above = [line_hash(line) for line in query.above[:6] if len(line) > 2]
    below = [line_hash(line) for line in query.below[:2] if len(line) > 2]
    whole = identifiers(query.body)
    if query.body and (query.body[-1].isalnum() or query.body[-1] == "_"):
        whole = whole[:-1]  # it is still being typed
    words = [word_hash(word) for word in whole[-6:]]
    must = words or above[:1] + below[:1]
    weights: Counter[int] = Counter()
    allowed: set[int] = set()
    for value in dict.fromkeys([*words, *above, *below]):
        files, total = reader.postings(value, _POSTINGS)
        if not files:
            continue
        if value in must:
            allowed.update(files)
        weight = math.log(1 + len(reader.files) / total)
        for file in files:
            weights[file] += weight  # type: ignore[assignment]
    ranked = sorted(
        ((weights[f], reader.files[f]) for f in allowed if f in reader.files),
        key=lambda pair: (-pair[0], distance(path, pair[1].path), pair[1].path),
    )
    return [file for _, file in ranked if file.path != path and file.path not in skip][:limit]


def distance(one: str, other: str) -> int:
    """How many folders lie between two files."""
    a, b = one.split("/")[:-1], other.split("/")[:-1]
    common = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        common += 1
    return len(a) + len(b) - 2 * common


def read(root: Path, file: StoredFile) -> str | None:
    """The file's text as the model may see it, with LF line ends; None if it cannot be had."""
    full = root / file.path
    try:
        stat = full.stat()
        if stat.st_size > MAX_BYTES:
            return None
        safe = not file.secret and (stat.st_mtime_ns, stat.st_size) == (file.mtime_ns, file.size)
        return _read(str(full), stat.st_mtime_ns, safe)
    except OSError:
        return None


@lru_cache(64)
def _read(path: str, _mtime_ns: int, safe: bool) -> str:
    text = Path(path).read_bytes().decode("utf-8-sig", "replace")
    text = to_lf(text)
    return text if safe else redact(text)


def read_sources(root: Path, files: Sequence[StoredFile]) -> list[Source]:
    """The texts of files for a look-up."""
    texts = [(file.path, read(root, file)) for file in files]
    return [Source(path, text, 2) for path, text in texts if text is not None]
