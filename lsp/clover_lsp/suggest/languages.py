"""What suggestions must know of a language: how its blocks close, its comments and its strings."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Blocks = Literal["indent", "brackets", "end"]


@dataclass(frozen=True, slots=True)
class Language:
    """`token` finds what `brackets.scan` must stop at: comments, quotes, brackets, keywords."""

    name: str
    blocks: Blocks
    token: re.Pattern[str]
    line_comments: tuple[str, ...] = ()
    keywords: tuple[tuple[str, str], ...] = ()
    """Words that open a block, each with the word that closes it."""
    indent: str = ""
    """One level of indentation, where the language prescribes it."""
    spanning: tuple[str, ...] = ()
    """What opens its comments and strings that may span lines."""

    @property
    def closing(self) -> dict[str, str]:
        return dict(self.keywords)

    @property
    def words(self) -> frozenset[str]:
        """Words that open or close a block."""
        return frozenset(word for pair in self.keywords for word in pair)


_CHARACTER = r"'(?:\\[^\n']{1,10}|[^'\\\n])'"
_LUA_BLOCKS = (("function", "end"), ("if", "end"), ("do", "end"), ("repeat", "until"))

SPANNING = {"/*": "*/", "--[[": "]]", '"""': '"""', "'''": "'''", "`": "`", "[[": "]]"}
"""Comments and strings that may span lines, and what ends them."""
COMMENTS = frozenset(("/*", "--[[", "[["))
"""Those of them in which a backslash is nothing special."""


def _language(
    name: str,
    blocks: Blocks,
    *,
    comments: tuple[str, ...] = (),
    quotes: tuple[str, ...] = ('"',),
    characters: bool = False,
    keywords: tuple[tuple[str, str], ...] = (),
    indent: str = "",
) -> Language:
    """`comments` that start with two signs and end elsewhere ("/*", "--[[") span lines."""
    parts = [re.escape(mark) for mark in sorted((*comments, *quotes), key=len, reverse=True)]
    if characters:
        parts.insert(0, _CHARACTER)
    if keywords:
        words = sorted({word for pair in keywords for word in pair})
        parts.append(rf"(?<![\w.:])(?:{'|'.join(words)})(?!\w)")
    parts.append(r"[()\[\]{}]")
    lines = tuple(c for c in comments if c not in SPANNING)
    spanning = tuple(mark for mark in (*comments, *quotes) if mark in SPANNING and mark != "[[")
    pattern = re.compile("|".join(parts))
    return Language(name, blocks, pattern, lines, keywords, indent, spanning)


_C_COMMENTS = ("//", "/*")
_PYTHON = _language("python", "indent", comments=("#",), quotes=('"', "'", '"""', "'''"))
_SCRIPT = _language("script", "brackets", comments=_C_COMMENTS, quotes=('"', "'", "`"))
_GO = _language(
    "go", "brackets", comments=_C_COMMENTS, quotes=('"', "`"), characters=True, indent="\t"
)
_C = _language("c", "brackets", comments=_C_COMMENTS, characters=True)
_LUA = _language(
    "lua", "end", comments=("--", "--[["), quotes=('"', "'", "[["), keywords=_LUA_BLOCKS
)
_HASHED = _language("hashed", "indent", comments=("#",), quotes=('"', "'"))
_PLAIN = _language("plain", "indent")

_BY_ID = {
    "python": _PYTHON,
    "go": _GO,
    "lua": _LUA,
    **dict.fromkeys(
        ("javascript", "javascriptreact", "typescript", "typescriptreact", "jsx", "tsx",
         "vue", "svelte", "php", "dart", "scss", "css", "less", "json", "jsonc"),
        _SCRIPT,
    ),
    **dict.fromkeys(
        ("c", "cpp", "cuda-cpp", "objective-c", "objective-cpp", "java", "rust", "csharp",
         "kotlin", "scala", "swift", "zig"),
        _C,
    ),
    **dict.fromkeys(
        ("yaml", "toml", "shellscript", "sh", "makefile", "dockerfile", "ruby", "r", "perl",
         "elixir", "julia", "cmake", "nim"),
        _HASHED,
    ),
}  # fmt: skip

MARKUP = frozenset(
    ("html", "xml", "svg", "vue", "svelte", "markdown", "php", "javascript", "javascriptreact",
     "typescript", "typescriptreact", "jsx", "tsx", "handlebars", "astro")
)  # fmt: skip
"""Languages in which words between angle brackets are the user's own."""


def language(identifier: str) -> Language:
    """By the client's language id; an unknown one is treated as indented text with brackets."""
    return _BY_ID.get(identifier.lower(), _PLAIN)
