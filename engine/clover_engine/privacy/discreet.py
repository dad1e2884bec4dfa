"""What leaves for a model server: everything, except for secrets.

The context room takes them out of what is read for a suggestion. Repairs and commands read files
themselves; here, the last place before a server, nothing depends on who asks.
"""

from __future__ import annotations

from dataclasses import replace

from clover_engine.api import (
    CancelToken,
    ClozeRequest,
    ClozeResult,
    Engine,
    Health,
    InfillRequest,
    InfillResult,
    ScoreRequest,
    ScoreResult,
)
from clover_engine.errors import Unsupported
from clover_engine.privacy.secrets import has_secret, redact


class DiscreetEngine:
    """An engine that sees every secret as stars, and no hole that has one inside."""

    def __init__(self, inner: Engine) -> None:
        self._inner = inner

    def infill(self, request: InfillRequest, cancel: CancelToken | None = None) -> InfillResult:
        begun, original = request.must_start_with, request.original
        middle = begun if original is None else original
        prefix, seen, suffix = _redacted(request.prefix, middle, request.suffix)
        if original is None and seen != begun:
            raise Unsupported(_WITHHELD)
        snippets = tuple(replace(s, text=redact(s.text)) for s in request.snippets)
        safe = replace(
            request,
            prefix=prefix,
            suffix=suffix,
            original=None if original is None else seen,
            snippets=snippets,
            drafts=(),
        )
        return self._inner.infill(safe, cancel)

    def score(self, request: ScoreRequest, cancel: CancelToken | None = None) -> ScoreResult:
        if any(map(has_secret, request.candidates)):
            raise Unsupported(_WITHHELD)
        prefix, suffix = self._around(request, request.original or "")
        return self._inner.score(replace(request, prefix=prefix, suffix=suffix), cancel)

    def cloze(self, request: ClozeRequest, cancel: CancelToken | None = None) -> ClozeResult:
        prefix, suffix = self._around(request, request.original)
        return self._inner.cloze(replace(request, prefix=prefix, suffix=suffix), cancel)

    def health(self) -> Health:
        return self._inner.health()

    def close(self) -> None:
        self._inner.close()

    def _around(self, request: ScoreRequest | ClozeRequest, original: str) -> tuple[str, str]:
        """Both sides of the hole. What stands in it must come back as it is, so that a secret in
        it cannot be replaced."""
        prefix, seen, suffix = _redacted(request.prefix, original, request.suffix)
        if seen != original:
            raise Unsupported(_WITHHELD)
        return prefix, suffix


_WITHHELD = "there is a secret in this line, which no server is sent; the embedded model may see it"


def _redacted(*texts: str) -> tuple[str, ...]:
    """The parts of one text without its secrets, which may reach over their borders."""
    whole = redact("".join(texts))
    parts, at = [], 0
    for text in texts:
        parts.append(whole[at : at + len(text)])
        at += len(text)
    return tuple(parts)
