"""One edit by instruction: ask, read the answer, ask again with what was wrong.

The engine must converse. Nothing outside the selected lines changes, unless the request allows
imports. Whether the file parses as well as before is looked at here; what it does is the user's
to judge, from the diff.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import replace

from clover_engine.api import CancelToken
from clover_engine.errors import Unsupported
from clover_engine.generation import Converses, GenerateRequest, GenerateResult, Message, Piece
from clover_patcher.instruct.answer import (
    Doubtful,
    NewLines,
    Refused,
    new_file,
    new_lines,
    with_imports,
)
from clover_patcher.instruct.place import Place
from clover_patcher.instruct.prompt import Conversation, first_prompt, next_prompt
from clover_patcher.instruct.request import Edited, Instruction, NoConversation, NoEdit

ASKS = 3
"""So often is the model asked, at most, for an answer that can be used."""
_TEMPERATURE, _TOP_P = 0.7, 0.95
_MOST_TOKENS, _SAID, _NEW = 2_048, 400, 700
"""Tokens of any answer, of an explanation, of new code."""
_OPENED = re.compile(r"^[ \t]*(`{3,})[^\n`]*\n", re.MULTILINE)
_FENCE = re.compile(r"^[ \t]*```", re.MULTILINE)
_REMOVES = re.compile(
    r"\b(?:delete|remove|drop|renam\w+|replac\w+|merge|split|move|inline|instead|call it)\b",
    re.IGNORECASE,
)
"""Words that say that names may vanish."""

OnText = Callable[[str], None]
"""Called with the text so far: the new lines, or the words of an explanation."""


def edit(
    engine: Converses,
    request: Instruction,
    cancel: CancelToken | None = None,
    on_text: OnText | None = None,
) -> Edited:
    """Carries out an instruction.

    Raises `UsageError` for a request that cannot be tried (`NoConversation` where the engine only
    fills holes), `NoEdit` where the model's answers cannot be used, and the engine's errors.
    """
    request.require_lines()
    began, place = time.monotonic(), Place.of(request)
    conversation = first_prompt(request, place)
    tokens, why = 0, ""
    done: Edited | None = None
    for asked in range(1, ASKS + 1):
        result = _ask(engine, _request(request, place, conversation, asked), cancel, on_text)
        tokens += result.stats.tokens
        try:
            done = _read(request, place, result.text)
            break
        except Refused as exc:
            why = str(exc)
            if isinstance(exc, Doubtful):
                done = done or _edited(request, place, exc.lines, result.text, (why,))
            conversation = next_prompt(conversation, result.text, why)
    if done is None:
        raise NoEdit(f"the model's answer cannot be used: {why}; try other words or other lines")
    seconds = round(time.monotonic() - began, 3)
    return replace(done, asked=asked, tokens=tokens, seconds=seconds, model=result.model)


def _read(request: Instruction, place: Place, answer: str) -> Edited:
    """What an answer makes of the file. Raises `Refused`."""
    if request.kind == "say":
        return Edited("", answer.strip(), after=request.text)
    if request.kind == "file":
        return Edited(new_file(answer, place.language), after=request.text)
    new = new_lines(answer, place, may_vanish=bool(_REMOVES.search(request.words)))
    return _edited(request, place, new, answer)


def _edited(
    request: Instruction, place: Place, new: NewLines, answer: str, notes: tuple[str, ...] = ()
) -> Edited:
    after = place.whole(new.text)
    if request.imports:
        after = with_imports(after, new.imports)
    return Edited(new.text, _beside(answer), new.imports, after, notes)


def _beside(answer: str) -> str:
    """What stands before the code."""
    opened = _OPENED.search(answer)
    return answer[: opened.start()].strip() if opened else ""


def _request(
    request: Instruction, place: Place, conversation: Conversation, asked: int
) -> GenerateRequest:
    again = request.attempt * ASKS + asked - 1
    fences = "```" in place.code  # then the answer has some that do not end it
    size = len(place.code) // 2 + 200
    most = {"say": _SAID, "file": _NEW, "edit": max(size, _NEW * place.is_blank)}[request.kind]
    return GenerateRequest(
        tuple(Message(role, text) for role, text in conversation),
        max_new_tokens=min(most, _MOST_TOKENS),
        thinking=False,
        temperature=_TEMPERATURE if again else 0.0,
        top_p=_TOP_P if again else 1.0,
        seed=again,
        stop=() if fences or request.kind == "say" else ("\n```\n",),
        deadline_s=request.deadline_s,
    )


def _ask(
    engine: Converses,
    request: GenerateRequest,
    cancel: CancelToken | None,
    on_text: OnText | None,
) -> GenerateResult:
    said = ""

    def tell(piece: Piece) -> None:
        nonlocal said
        if piece.kind == "answer":
            said += piece.text
            on_text(said) if on_text else None

    try:
        result = engine.generate(request, cancel, tell if on_text else None)
    except Unsupported as exc:
        raise NoConversation from exc
    is_open = len(_FENCE.findall(result.text)) % 2 and result.finish_reason in ("stop", "eom")
    return replace(result, text=result.text + "\n```" * bool(is_open))


def so_far(request: Instruction, said: str) -> str:
    """For a preview: the new lines in an answer that is still coming."""
    if request.kind == "say":
        return said
    opened = _OPENED.search(said)
    if opened is None:
        return ""
    code = said[opened.end() :].split("\n" + opened[1])[0]
    if request.kind == "file":
        return code
    margin = Place.of(request).margin
    return "\n".join(margin + line if line.strip() else "" for line in code.split("\n"))
