"""From a file's new text to edits of its own bytes: line ends, encoding and order mark stay."""

from __future__ import annotations

import codecs
from difflib import SequenceMatcher

from clover_engine.line_ends import to_lf
from clover_patcher.propose.syntax import load_source
from clover_patcher.types import Edit


def text_of(path: str, content: bytes) -> str | None:
    """The file's text with line feeds only; None where it cannot be edited exactly."""
    if path.endswith((".py", ".pyi")) or content.startswith(b"#!"):
        source = load_source(path, content)
        return to_lf(source.code.decode()) if source else None
    body = content.removeprefix(codecs.BOM_UTF8)
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return None
    return None if "\0" in text or "\r" in text.replace("\r\n", "") else to_lf(text)


def edits_between(path: str, content: bytes, after: str) -> tuple[Edit, ...]:
    """The edits, a run of changed lines each, that give the file the text `after`.

    Applied to `content` and read with `text_of`, they give `after` again. Raises `ValueError`
    where the file's encoding lacks a character of `after`.
    """
    encoding, mark = _encoding(path, content)
    old, new = _lines(content[len(mark) :].decode(encoding)), _lines(after)
    end = "\r\n" if 2 * sum(line.endswith("\r\n") for line in old) > len(old) else "\n"
    starts = [len(mark)]
    for line in old:
        starts.append(starts[-1] + len(line.encode(encoding)))
    plain = [to_lf(line) for line in old]
    codes = SequenceMatcher(None, plain, new, autojunk=False).get_opcodes()
    return tuple(
        Edit(path, starts[i1], starts[i2], "".join(new[j1:j2]).replace("\n", end).encode(encoding))
        for tag, i1, i2, j1, j2 in codes
        if tag != "equal"
    )


def _lines(text: str) -> list[str]:
    """Lines with their ends; only a line feed ends one."""
    lines = text.split("\n")
    last = lines.pop()
    return [line + "\n" for line in lines] + ([last] if last else [])


def _encoding(path: str, content: bytes) -> tuple[str, bytes]:
    mark = codecs.BOM_UTF8 if content.startswith(codecs.BOM_UTF8) else b""
    source = load_source(path, content) if path.endswith((".py", ".pyi")) else None
    return (source.encoding if source else "utf-8"), mark
