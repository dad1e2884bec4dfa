"""The programming languages by the protocol's ids: suffixes, grammar and manner of writing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal

Manner = Literal["python", "script", "c", "go", "lua", "hashed", "dashed", "plain"]
COMMENTS: dict[Manner, str] = {
    "python": "#",
    "hashed": "#",
    "script": "//",
    "c": "//",
    "go": "//",
    "lua": "--",
    "dashed": "--",
}
"""What starts a comment that ends with its line."""


@dataclass(frozen=True, slots=True)
class Language:
    """One row of the table."""

    id: str
    """As clients say it: "python", "typescriptreact"."""
    manner: Manner
    """Languages of one manner have the same comments, strings and blocks."""
    suffixes: tuple[str, ...] = ()
    grammar: str = ""
    """The name of the tree-sitter grammar that reads it."""
    interpreter: bytes = b""
    """What its `#!` lines name."""


def _row(
    id: str, manner: Manner, suffixes: str = "", grammar: str = "", interpreter: str = ""
) -> Language:
    return Language(id, manner, tuple(suffixes.split()), grammar, interpreter.encode())


def _rows(manner: Manner, ids: str) -> Iterator[Language]:
    return (Language(id, manner) for id in ids.split())


LANGUAGES = (
    _row("python", "python", ".py .pyi", "python", "python"),
    _row("javascript", "script", ".js .mjs .cjs", "javascript", "node"),
    _row("javascriptreact", "script", ".jsx", "javascript"),
    _row("typescript", "script", ".ts .mts .cts", "typescript"),
    _row("typescriptreact", "script", ".tsx", "tsx"),
    _row("jsx", "script", "", "javascript"),
    _row("tsx", "script", "", "tsx"),
    _row("go", "go", ".go", "go"),
    _row("rust", "c", ".rs", "rust"),
    _row("c", "c", ".c", "c"),
    _row("objective-c", "c", "", "c"),
    _row("cpp", "c", ".cc .cpp .cxx .c++ .h .hh .hpp .hxx .ipp", "cpp"),
    _row("java", "c", ".java", "java"),
    _row("lua", "lua", ".lua", "lua", "lua"),
    _row("ruby", "hashed", ".rb", "ruby", "ruby"),
    _row("markdown", "plain", ".md"),
    _row("json", "script", ".json"),
    _row("shellscript", "hashed", ".sh"),
    *_rows("script", "vue svelte php dart scss css less jsonc"),
    *_rows("c", "cuda-cpp objective-cpp csharp kotlin scala swift zig"),
    *_rows("hashed", "yaml toml sh makefile dockerfile r perl elixir julia cmake nim"),
    *_rows("dashed", "sql haskell"),
)

_BY_ID = {language.id: language for language in LANGUAGES}
_BY_SUFFIX = {suffix: language for language in LANGUAGES for suffix in language.suffixes}
_BY_GRAMMAR = {language.grammar: language for language in LANGUAGES if language.grammar}
PLAIN = Language("plaintext", "plain")


def language(id: str) -> Language:
    """By the client's language id; `PLAIN` for one that is not in the table."""
    return _BY_ID.get(id.lower(), PLAIN)


def language_of(path: str, first_line: bytes = b"") -> Language:
    """By a file's suffix or its `#!` line; `PLAIN` where neither tells."""
    known = _BY_SUFFIX.get(PurePosixPath(path).suffix.lower())
    if known is None and first_line.startswith(b"#!"):
        named = (one for one in LANGUAGES if one.interpreter and one.interpreter in first_line)
        known = next(named, None)
    return known or PLAIN


def comment_mark(grammar: str | None) -> str:
    """What starts a comment line for a grammar; `#` where that is not known."""
    known = _BY_GRAMMAR.get(grammar or "")
    return COMMENTS[known.manner] if known else "#"
