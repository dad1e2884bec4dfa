"""Prompts in which a client has put a family's marks around the hole, taken apart again.

Zed's edit predictions and minuet write `<|fim_prefix|>…<|fim_suffix|>…<|fim_middle|>` for the
family that their user names. Here the marks only say where the hole is: the engine that answers
writes its own.
"""

from __future__ import annotations

from clover_engine.api import Snippet
from clover_engine.clients.fim import TEMPLATES, FimParts, FimTemplate


def unmarked(prompt: str) -> FimParts | None:
    """The hole that the prompt's marks describe; None where it has no family's marks."""
    for template in TEMPLATES.values():
        if template.after and (found := _taken_apart(prompt, template)) is not None:
            return found
    return None


def _taken_apart(prompt: str, template: FimTemplate) -> FimParts | None:
    middle = template.middle.strip()
    text = prompt.rstrip() if middle else prompt
    if not text.endswith(middle):
        return None
    body = text.removesuffix(middle)
    body = body.removesuffix(" ") if template.middle.startswith(" ") else body
    marks = (template.before, template.after)
    first, second = marks if template.order == "prefix first" else reversed(marks)
    head, begun, rest = body.partition(first)
    one, split, other = rest.partition(second)
    if not begun or not split or (not middle and head.strip()):
        return None
    prefix, suffix = (one, other) if template.order == "prefix first" else (other, one)
    snippets, path = _others(head, template)
    return FimParts(prefix, suffix, snippets, path=path)


def _others(head: str, template: FimTemplate) -> tuple[tuple[Snippet, ...], str]:
    """Other files before the hole, most relevant first, and the path of the hole's own file."""
    mark, named, tail = template.file.partition("{path}")
    if not mark or not named:
        return (), ""
    files = [each.partition(tail) for each in head.split(mark)[1:]]
    own = files.pop()[0] if files and not files[-1][2].strip() else ""
    found = [Snippet(text, path.strip()) for path, _, text in files if text.strip()]
    return tuple(reversed(found)), own.strip()
