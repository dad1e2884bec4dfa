"""Calls in what a model wrote: command words at the start of a line, and headed code blocks.

    READ shop/cart.py
    SEARCH total(
    `shop/cart.py::Cart.total`
    ```python
    …the whole new function…
    ```
    CHECK

Whole functions in headed blocks are what small models write best; no JSON has to be escaped.
What models that were trained on tools write (`<tool_call>{…}</tool_call>`) is read as well.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from clover_patcher.agent.task import Call, Tool
from clover_patcher.propose.rewrite.answers import read_answer

_COMMAND = re.compile(
    r"^[ \t]*(?:[-*>$]+[ \t]*|\d+[.)][ \t]*)?[`*]{0,3}(LIST|SEARCH|READ|CHECK|DONE)\b[`*]{0,3}"
    r"[ \t]*:?[ \t]*(.*?)[ \t]*$"
)
_FENCED = re.compile(r"^[ \t]*(`{3,}|~{3,})[^\n]*\n.*?(?:^[ \t]*\1[ \t]*$|\Z)", re.M | re.S)
_JSON = re.compile(r"<tool_call>\s*(\{.*?\})\s*</tool_call>", re.DOTALL)
_ARGUMENTS = ("path", "text", "pattern", "query", "summary", "file")
NO_CALL = "no command was found"


def read_calls(answer: str) -> list[Call]:
    """The calls of one turn in the order of the text; edits come before the check and the end."""
    written = [*_json_calls(answer)]
    answer = _JSON.sub("", answer)
    prose = _FENCED.sub(_commands_inside, answer)
    commands = [call for line in prose.split("\n") if (call := _command(line))]
    edits = [*_edits(answer)]
    looks = [c for c in commands if c.tool in ("list", "search", "read")]
    ends = [c for c in commands if c.tool in ("check", "done")]
    return _distinct([*written, *looks, *edits, *ends])


def _command(line: str) -> Call | None:
    found = _COMMAND.match(line)
    if found is None:
        return None
    tool: Tool = found[1].lower()  # type: ignore[assignment]
    argument = found[2].strip("`*\"' ")
    if tool in ("search", "read") and not argument:
        return None
    return Call(tool, argument)


def _commands_inside(fenced: re.Match[str]) -> str:
    """A block that holds nothing but commands stands for them; others are code."""
    lines = [line for line in fenced[0].split("\n")[1:] if line.strip()]
    if lines and lines[-1].strip().startswith(fenced[1][0] * 3):
        lines = lines[:-1]
    return "\n".join(lines) if lines and all(_command(line) for line in lines) else ""


def _edits(answer: str) -> Iterator[Call]:
    found = read_answer(answer)
    for block in found.blocks:
        if block.complete and not all(
            _command(line) for line in block.code.split("\n") if line.strip()
        ):
            heading = f"{block.path}::{block.qualname}" if block.qualname else block.path
            yield Call("edit", heading, block.code)
    for pair in found.replacements:
        yield Call("edit", pair.path, pair.new, pair.old)


def _json_calls(answer: str) -> Iterator[Call]:
    for found in _JSON.finditer(answer):
        try:
            said = json.loads(found[1])
            name, given = str(said["name"]).lower(), dict(said.get("arguments") or {})
        except (ValueError, KeyError, TypeError):
            continue
        argument = next((str(given[key]) for key in _ARGUMENTS if key in given), "")
        if name in ("list", "search", "read", "check", "done"):
            yield Call(name, argument)  # type: ignore[arg-type]
        elif name == "edit":
            code = str(given.get("new", given.get("code", "")))
            yield Call("edit", argument, code, str(given.get("old", "")))


def _distinct(calls: list[Call]) -> list[Call]:
    return list(dict.fromkeys(calls))
