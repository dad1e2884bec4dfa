"""Indentation of a rewritten function, made to fit the place where it goes."""

from __future__ import annotations

from clover_patcher.locate.functions import GRAMMARS, parse


def fitted(code: str, own: str, margin: str, before: str, language: str) -> str:
    """`code` with every line moved from the margin `own` to `margin`; strings stay as they are.

    `code` begins at its own first character (no blanks before it). `before` is the text that it
    replaces: its unit of indentation (tabs, two, four blanks) is used.
    """
    lines = code.rstrip("\n").split("\n")
    inside = _inside_strings(code, language)
    unit, target = _unit(lines, own, inside), _unit(before.split("\n"), margin, frozenset())
    out = [lines[0].lstrip()]
    for number, line in enumerate(lines[1:], 1):
        if number in inside:
            out.append(line)
        elif not line.strip():
            out.append("")
        else:
            out.append(margin + _moved(line, own, unit, target))
    return "\n".join(out)


def _unit(lines: list[str], margin: str, inside: frozenset[int]) -> str:
    deeper = [
        blanks[len(margin) :]
        for n, line in enumerate(lines)
        if n and line.strip() and n not in inside
        if (blanks := _blanks(line)).startswith(margin) and len(blanks) > len(margin)
    ]
    if not deeper:
        return "    "
    least = min(deeper, key=len)
    return "\t" if least.startswith("\t") else least


def _moved(line: str, own: str, unit: str, target: str) -> str:
    blanks = _blanks(line)
    rest = blanks[len(own) :] if blanks.startswith(own) else ""
    levels, left = divmod(len(rest), len(unit)) if rest.strip(unit[0]) == "" else (0, len(rest))
    return target * levels + " " * left + line.lstrip(" \t")


def _blanks(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]


def _inside_strings(code: str, language: str) -> frozenset[int]:
    """Numbers (from 0) of lines that begin inside a string."""
    tree = parse(language, code.encode()) if language in GRAMMARS else None
    if tree is None:
        return frozenset()
    found: set[int] = set()
    stack = [tree.root_node]
    while stack:
        node = stack.pop()
        if (
            "string" in node.type
            and node.type != "string_content"
            or node.type == "template_string"
        ):
            found.update(range(node.start_point.row + 1, node.end_point.row + 1))
        else:
            stack.extend(node.children)
    return frozenset(found)
