"""A commit message from a staged diff."""

from __future__ import annotations

import re
import textwrap

from clover_engine.api import CancelToken
from clover_engine.errors import Unsupported
from clover_engine.generation import Converses, GenerateRequest, Message
from clover_patcher.instruct.request import NoConversation, NoEdit

_SYSTEM = (
    "You write commit messages. Answer with the message alone: one line of at most 70 characters"
    " in the imperative mood that says what the change does; then, only if the change needs it,"
    " an empty line and one or two sentences that say why."
)
_MOST = 5_000
"""Characters of a diff that are read."""
_WIDTH = 72


def suggest_message(
    engine: Converses, diff: str, cancel: CancelToken | None = None, like: tuple[str, ...] = ()
) -> str:
    """A message for the change; `like` are subjects of earlier commits, for their manner.

    Raises `NoConversation`, `NoEdit` where the model says nothing, and the engine's errors.
    """
    parts = [f"The change:\n\n```diff\n{shortened(diff)}\n```"]
    if like:
        parts.append("Earlier messages here, for their manner:\n" + "\n".join(like))
    parts.append("Write the commit message of this change.")
    messages = (Message("system", _SYSTEM), Message("user", "\n\n".join(parts)))
    request = GenerateRequest(messages, max_new_tokens=120, thinking=False)
    try:
        said = engine.generate(request, cancel).text
    except Unsupported as exc:
        raise NoConversation from exc
    if not (message := tidied(said)):
        raise NoEdit("the model wrote no message: write it yourself, or ask again")
    return message


def shortened(diff: str) -> str:
    """The diff with as much of every file as fits: all files are named."""
    files = re.split(r"^(?=diff --git )", diff, flags=re.MULTILINE)
    files = [text for text in files if text.strip()]
    room = _MOST // max(1, len(files))
    return "".join(_beginning(text, room) for text in files)


def _beginning(text: str, room: int) -> str:
    if len(text) <= room:
        return text
    kept = text[:room].rpartition("\n")[0] or text.partition("\n")[0]
    return f"{kept}\n[…]\n"


def tidied(said: str) -> str:
    """A model's answer as a message: no fences, no quotes, lines that are not too long."""
    lines = [line.rstrip() for line in said.strip().split("\n") if not line.startswith("```")]
    text = "\n".join(lines).strip()
    text = re.sub(r"^(?:commit message|message|subject)\s*:\s*", "", text, flags=re.IGNORECASE)
    subject, _, body = text.partition("\n")
    subject = subject.strip().strip("\"'`*").strip().rstrip(".")
    if len(subject) > _WIDTH:
        subject, more = _cut(subject)
        body = f"{more}\n{body}"
    paragraphs = [_filled(part) for part in body.strip().strip("\"'`").split("\n\n")]
    rest = "\n\n".join(part for part in paragraphs if part)
    return f"{subject}\n\n{rest}".strip()


def _cut(subject: str) -> tuple[str, str]:
    """A first line that is too long, and its end for the body."""
    at = subject.rfind(" ", 0, _WIDTH)
    at = at if at > 0 else _WIDTH
    return subject[:at].rstrip(" ,;:"), subject[at:].strip()


def _filled(paragraph: str) -> str:
    """A paragraph with lines of at most `_WIDTH`; the points of a list stay apart."""
    points = re.split(r"\n(?=\s*[-*] )", paragraph.strip())
    return "\n".join(
        textwrap.fill(" ".join(point.split()), _WIDTH, subsequent_indent="  " * (point[:1] in "-*"))
        for point in points
        if point.strip()
    )
