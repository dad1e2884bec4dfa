"""What suggestions must know of a language: how its blocks close, its comments and its strings."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from clover_engine.languages import Manner, language

Blocks = Literal["indent", "brackets", "end"]


@dataclass(frozen=True, slots=True)
class Syntax:
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


def _syntax(
    name: str,
    blocks: Blocks,
    *,
    comments: tuple[str, ...] = (),
    quotes: tuple[str, ...] = ('"',),
    characters: bool = False,
    keywords: tuple[tuple[str, str], ...] = (),
    indent: str = "",
) -> Syntax:
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
    return Syntax(name, blocks, pattern, lines, keywords, indent, spanning)


_C_COMMENTS = ("//", "/*")
_BY_MANNER: dict[Manner, Syntax] = {
    "python": _syntax("python", "indent", comments=("#",), quotes=('"', "'", '"""', "'''")),
    "script": _syntax("script", "brackets", comments=_C_COMMENTS, quotes=('"', "'", "`")),
    "go": _syntax(
        "go", "brackets", comments=_C_COMMENTS, quotes=('"', "`"), characters=True, indent="\t"
    ),
    "c": _syntax("c", "brackets", comments=_C_COMMENTS, characters=True),
    "lua": _syntax(
        "lua", "end", comments=("--", "--[["), quotes=('"', "'", "[["), keywords=_LUA_BLOCKS
    ),
    "hashed": _syntax("hashed", "indent", comments=("#",), quotes=('"', "'")),
    "dashed": _syntax("dashed", "indent", comments=("--",)),
    "plain": _syntax("plain", "indent"),
}

MARKUP = frozenset(
    ("html", "xml", "svg", "vue", "svelte", "markdown", "php", "javascript", "javascriptreact",
     "typescript", "typescriptreact", "jsx", "tsx", "handlebars", "astro")
)  # fmt: skip
"""Languages in which words between angle brackets are the user's own."""


def syntax_of(identifier: str) -> Syntax:
    """By the client's language id; an unknown one is treated as indented text with brackets."""
    return _BY_MANNER[language(identifier).manner]
