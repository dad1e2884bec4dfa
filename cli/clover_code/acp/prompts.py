"""A prompt, read: slash command, words, and the files that the user linked."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from acp import helpers
from acp.schema import (
    AvailableCommand,
    AvailableCommandInput,
    AvailableCommandsUpdate,
    UnstructuredCommandInput,
)

from clover_engine.privacy.uris import to_path

_LINES = re.compile(r"#?L?(\d+)(?:[-:]L?(\d+))?")
COMMANDS = {
    "fix": (
        "repair a failing check with a validated patch",
        "CHECK, as pytest -q; found if left out",
    ),
    "edit": (
        "change lines of a file as you say",
        "FILE:FROM-TO INSTRUCTION, or a linked selection and the instruction",
    ),
    "check": ("run a check in a copy, and remember it", "CHECK; none forgets it"),
    "undo": ("take the last change back", ""),
    "message": ("write a commit message for what is staged", ""),
}


@dataclass(frozen=True, slots=True)
class Link:
    """A file that the prompt mentions; lines from 1, 0 for all of it."""

    path: Path
    first: int = 0
    last: int = 0


@dataclass(frozen=True, slots=True)
class Prompt:
    """`command` is empty for plain words."""

    command: str
    words: str
    links: tuple[Link, ...] = ()


def read_prompt(blocks: Iterable[Any]) -> Prompt:
    """Texts of a prompt joined; links stand in them as their file's name."""
    words, links = "", []
    for block in blocks:
        if block.type == "text":
            words += block.text
        elif block.type in ("resource_link", "resource"):
            uri = block.uri if block.type == "resource_link" else block.resource.uri
            if (link := _link(uri)) is not None:
                links.append(link)
                words += link.path.name
    text = words.strip()
    name, _, rest = text.partition(" ")
    first, _, more = name.partition("\n")
    if first.startswith("/") and first[1:] in COMMANDS:
        return Prompt(first[1:], f"{more} {rest}".strip(), tuple(links))
    return Prompt("", text, tuple(links))


def commands_update() -> AvailableCommandsUpdate:
    """What the client offers after a slash."""
    return helpers.update_available_commands(
        AvailableCommand(
            name=name,
            description=description,
            input=AvailableCommandInput(UnstructuredCommandInput(hint=hint)) if hint else None,
        )
        for name, (description, hint) in COMMANDS.items()
    )


def _link(uri: str) -> Link | None:
    address, _, fragment = uri.partition("#")
    path = to_path(address)
    if path is None:
        return None
    found = _LINES.fullmatch(fragment)
    if found is None:
        return Link(path)
    return Link(path, int(found[1]), int(found[2] or found[1]))
