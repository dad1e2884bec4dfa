"""What a model answered, taken apart: fenced blocks and the names above them.

Models put prose around, open fences that they never close, fence inside fences, leave fences out,
think aloud, write a unified diff or SEARCH/REPLACE marks where they were asked for a function.
Everything that can be told apart is; the rest is a complaint in words that can be given back to
the model. Nothing here looks at the repository.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from textwrap import dedent

from clover_engine.line_ends import to_lf


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of code of an answer, with the `path` and `qualname` that its heading names."""

    code: str
    path: str = ""
    qualname: str = ""
    language: str = ""
    complete: bool = True
    """False where the answer ended before the block did."""


@dataclass(frozen=True, slots=True)
class Replacement:
    """A SEARCH/REPLACE pair: `old` stands in the file (once) and becomes `new`."""

    old: str
    new: str
    path: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """All that an answer proposes, and what was wrong with the rest."""

    blocks: tuple[Block, ...] = ()
    replacements: tuple[Replacement, ...] = ()
    complaints: tuple[str, ...] = field(default=())


_THINKING = re.compile(
    r"<(think|thinking|thought|reasoning)>.*?(?:</\1>|\Z)|<\|channel\|>analysis.*?(?:<\|end\|>|\Z)",
    re.DOTALL | re.IGNORECASE,
)
_MARKS = re.compile(r"<\|(?:im_end|endoftext|eot_id|end|fim_pad|file_sep)\|>|</s>")
_FENCE = re.compile(r"^[ \t>]*(`{3,}|~{3,})[ \t]*([^`\n]*)$")
_PATH = re.compile(
    r"(?P<path>(?:[A-Za-z]:)?[\w./\\@+-]*[\w+-]\.[A-Za-z]\w{0,5})"
    r"(?:(?:::|:|#)(?P<name>[A-Za-z_]\w*(?:(?:\.|::)[A-Za-z_<]\w*>?)*))?"
)
_SEARCH = re.compile(
    r"^[ \t]*<{5,}[ \t]*(?:SEARCH|ORIGINAL|HEAD|OLD)?.*?\n(?P<old>.*?)^[ \t]*={5,}[ \t]*\n"
    r"(?P<new>.*?)^[ \t]*>{5,}[^\n]*$",
    re.DOTALL | re.MULTILINE | re.IGNORECASE,
)
_HUNK = re.compile(r"^@@.*@@.*$", re.MULTILINE)
_LANGUAGES = {
    "py": "python", "python3": "python", "js": "javascript", "jsx": "javascript",
    "ts": "typescript",
    "golang": "go", "rs": "rust", "c++": "cpp", "rb": "ruby",
}  # fmt: skip
_NOT_CODE = frozenset(
    [
        *("text", "txt", "output", "console", "shell", "sh", "bash", "zsh", "terminal", "log"),
        *("traceback", "pytest", "none", "markdown", "md", "json", "yaml", "toml", "plaintext"),
    ]
)
_DEFINITION = re.compile(
    r"^[ \t]*(?:@\w|(?:async[ \t]+)?def[ \t]+\w|class[ \t]+\w|func[ \t]+[\w(]"
    r"|(?:pub[ \t(].*)?fn[ \t]+\w"
    r"|(?:export[ \t]+)?(?:async[ \t]+)?function\b|import[ \t]+\w|from[ \t]+[\w.]+[ \t]+import\b)",
    re.MULTILINE,
)


def read_answer(text: str) -> Answer:
    """Blocks and replacements of an answer, in the order of the text."""
    text = _MARKS.sub("", _THINKING.sub("", to_lf(text)))
    if not text.strip():
        return Answer(complaints=("the answer is empty: it must contain the corrected code",))
    blocks: list[Block] = []
    replacements: list[Replacement] = []
    pieces = list(_fenced(text)) or _unfenced(text)
    for block in pieces:
        pairs = [*_search_replace(block), *_unified(block)]
        replacements += pairs
        if not pairs and block.language not in _NOT_CODE and block.code.strip():
            blocks.append(block)
    if not blocks and not replacements:
        why = "no code block was found: put the corrected function between ``` lines"
        return Answer(complaints=(why,))
    cut = [b for b in blocks if not b.complete]
    complaints = ("the answer ended in the middle of a code block",) if cut else ()
    return Answer(tuple(blocks), tuple(replacements), complaints)


def _fenced(text: str) -> Iterator[Block]:
    lines = text.split("\n")
    at, above = 0, ""
    while at < len(lines):
        opened = _FENCE.match(lines[at])
        if opened is None:
            above = lines[at] if lines[at].strip() else above
            at += 1
            continue
        mark, info = opened[1], opened[2].strip()
        end, complete = _closing(lines, at + 1, mark)
        body = lines[at + 1 : end]
        yield _block(body, info, above, complete=complete)
        at, above = end + 1, ""


def _closing(lines: list[str], start: int, mark: str) -> tuple[int, bool]:
    """The line that ends a block opened by `mark`, and whether there is one.

    A fence with an info string inside opens a nested one, as in an example in a docstring.
    """
    depth = 0
    for number in range(start, len(lines)):
        match = _FENCE.match(lines[number])
        if match is None or match[1][0] != mark[0] or len(match[1]) < len(mark):
            continue
        if match[2].strip():
            depth += 1
        elif depth:
            depth -= 1
        else:
            return number, True
    if depth:  # the "nested" fences were blocks of their own, and this one was not closed
        for number in range(start, len(lines)):
            match = _FENCE.match(lines[number])
            if match is not None and match[1][0] == mark[0]:
                return (number, True) if not match[2].strip() else (number - 1, True)
    return len(lines), False


def _block(body: list[str], info: str, above: str, *, complete: bool) -> Block:
    words = info.split()
    language = words[0].lower().strip("{.}") if words else ""
    headings = [" ".join(words[1:]) if language else "", info, above]
    if body and re.match(r"^[ \t]*(?:#|//|--|/\*|<!--)", body[0]):
        headings.insert(0, body[0])
    path = name = ""
    for heading in headings:
        path, name = _heading(heading)
        if path:
            if heading and body and heading is body[0]:
                body = body[1:]
            break
    if "." in language or "/" in language:
        language = ""
    code = dedent("\n".join(body).expandtabs() if _mixed(body) else "\n".join(body))
    return Block(code.strip("\n") + "\n", path, name, _LANGUAGES.get(language, language), complete)


def _mixed(body: list[str]) -> bool:
    starts = {line[0] for line in body if line[:1] in ("\t", " ")}
    return len(starts) == 2


def _heading(line: str) -> tuple[str, str]:
    """The path and the qualified name that a line above a block names, if it is a heading."""
    if len(line) > 300:
        return "", ""
    match = _PATH.search(line.replace("`", " ").replace("*", " "))
    if match is None:
        return "", ""
    name = (match["name"] or "").replace("::", ".")
    return match["path"].replace("\\", "/").removeprefix("./"), name


def _unfenced(text: str) -> list[Block]:
    """The answer as code, from the first line that looks like a definition or a marked edit."""
    if _SEARCH.search(text) or _HUNK.search(text):
        path, _ = _heading(text.lstrip().split("\n", 1)[0])
        return [Block(text, path)]
    first = _DEFINITION.search(text)
    if first is None:
        return []
    lines = text[first.start() :].split("\n")
    kept = len(lines)
    for number in range(1, len(lines)):  # prose behind the code starts at the margin
        line = lines[number]
        prose = re.match(r"^[A-Z][a-z']*(?: [\w,.'()-]+){3,}", line)
        if prose and not lines[number - 1].strip():
            kept = number
            break
    above = text[: first.start()].rstrip().rpartition("\n")[2]
    path, name = _heading(above)
    return [Block(dedent("\n".join(lines[:kept])).strip("\n") + "\n", path, name)]


def _search_replace(block: Block) -> Iterator[Replacement]:
    end = 0
    for match in _SEARCH.finditer(block.code):
        path, _ = _heading(block.code[end : match.start()].strip().rpartition("\n")[2])
        end = match.end()
        yield Replacement(match["old"], match["new"], path or block.path)


def _unified(block: Block) -> Iterator[Replacement]:
    """The hunks of a unified diff; their line numbers are not trusted."""
    if not _HUNK.search(block.code):
        return
    path, old, new = block.path, list[str](), list[str]()
    inside = False
    for line in [*block.code.split("\n"), "@@ end @@"]:
        if line.startswith("+++ ") and not (inside and old):
            path = re.sub(r"^[ab]/", "", line[4:].strip())
        elif line.startswith("@@"):
            if old != new:
                yield Replacement("".join(old), "".join(new), path)
            old, new, inside = [], [], True
        elif line.startswith("diff --git") or line.startswith("--- "):
            continue
        elif inside:
            sign, rest = line[:1], line[1:] + "\n"
            if sign in (" ", "-", ""):
                old.append(rest)
            if sign in (" ", "+", ""):
                new.append(rest)
