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
from clover_engine.generation import (
    DecisionRequest,
    DecisionResult,
    GenerateRequest,
    GenerateResult,
    OnPiece,
    Question,
    TextEngine,
)
from clover_engine.privacy.secrets import MARK, redact, redact_parts


class DiscreetEngine:
    """An engine that sees every secret as stars, and no hole that has one inside.

    Raises `Unsupported` where a secret stands in what must come back as it is: the hole's own
    text, a candidate, an option of a question.
    """

    def __init__(self, inner: Engine) -> None:
        self._inner = inner

    def infill(self, request: InfillRequest, cancel: CancelToken | None = None) -> InfillResult:
        begun, original = request.must_start_with, request.original
        prefix, start, seen, suffix = redact_parts(
            request.prefix, begun, original or "", request.suffix
        )
        if start != begun:
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
        prefix, suffix = _around(request.prefix, request.original or "", request.suffix)
        for candidate in request.candidates:
            before, after = _around(request.prefix, candidate, request.suffix)
            prefix, suffix = _hidden_in_either(prefix, before), _hidden_in_either(suffix, after)
        return self._inner.score(replace(request, prefix=prefix, suffix=suffix), cancel)

    def cloze(self, request: ClozeRequest, cancel: CancelToken | None = None) -> ClozeResult:
        prefix, suffix = _around(request.prefix, request.original, request.suffix)
        return self._inner.cloze(replace(request, prefix=prefix, suffix=suffix), cancel)

    def generate(
        self,
        request: GenerateRequest,
        cancel: CancelToken | None = None,
        on_piece: OnPiece | None = None,
    ) -> GenerateResult:
        """Raises `Unsupported` also where the engine within holds no conversations."""
        messages = tuple(replace(m, content=redact(m.content)) for m in request.messages)
        safe = replace(request, messages=messages)
        return self._talking().generate(safe, cancel, on_piece)

    def decide(self, request: DecisionRequest, cancel: CancelToken | None = None) -> DecisionResult:
        """Raises `Unsupported` also where the engine within takes no decisions."""
        questions = tuple(Question(redact(q.text), q.options) for q in request.questions)
        if any(redact(option) != option for q in questions for option in q.options):
            raise Unsupported(_WITHHELD)
        safe = replace(request, material=redact(request.material), questions=questions)
        return self._talking().decide(safe, cancel)

    def health(self) -> Health:
        return self._inner.health()

    def close(self) -> None:
        self._inner.close()

    def _talking(self) -> TextEngine:
        if not isinstance(self._inner, TextEngine):
            raise Unsupported("this engine only fills holes: ask another one")
        return self._inner


_WITHHELD = "there is a secret in this line, which no server is sent; the embedded model may see it"


def _around(prefix: str, middle: str, suffix: str) -> tuple[str, str]:
    """Both sides without secrets. Raises Unsupported where one reaches into the middle."""
    before, seen, after = redact_parts(prefix, middle, suffix)
    if seen != middle:
        raise Unsupported(_WITHHELD)
    return before, after


def _hidden_in_either(one: str, other: str) -> str:
    """Of two versions of a text, one with everything hidden that is hidden in either."""
    if one == other or MARK not in other:
        return one
    return "".join(b if b == MARK else a for a, b in zip(one, other, strict=True))
