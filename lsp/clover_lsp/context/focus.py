"""The names that matter at a place: what is used near the cursor, and where it comes from."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property, lru_cache

from clover_lsp.context.symbols import Import, Symbols, identifiers

ABOVE_LINES = 30
BELOW_LINES = 12
MAX_NAMES = 24
KNOWN_CHARS = 12_000
"""So much text on each side of the cursor counts as read by the model already."""
_COMMON_TEXT = """
and the not get set this are can any args assert async await auto bool boolean break byte case
catch char class cls const continue def default del delete dict double elif else enum except
export extends extern final finally float for fn from func function global goto impl implements
import inline int interface kwargs lambda len let list local long match mod mut namespace new
nil none null number object package pass print private protected pub public raise range return
self short signed static str string struct super switch template then throw throws true false
try tuple type typedef typename typeof union unsigned use using var void volatile where while
with yield None True False
"""
_COMMON = frozenset(_COMMON_TEXT.split())


_USE = re.compile(r"(\.|->|::|@)?\s*((?:[^\W\d]|\$)[\w$]{2,63})(\s*[(<])?")
_BOUND = re.compile(r"(?<![.\w])([A-Za-z_]\w*)\s*(?::[^=\n(]{1,40})?:?=(?!=)")
_HEAD = re.compile(r"\b(?:def|func|function|fn|lambda|for)\b([^\n]*)")


@dataclass(frozen=True)
class Focus:
    """The surroundings of a cursor (LF line ends), read once for all rankings."""

    prefix: str
    suffix: str
    symbols: Symbols | None

    @cached_property
    def _near(self) -> list[tuple[str, int]]:
        """The lines around the cursor, each with its distance, nearest above first."""
        above = self.prefix[-120 * ABOVE_LINES :].split("\n")[-ABOVE_LINES:]
        below = self.suffix[: 120 * BELOW_LINES].split("\n")[:BELOW_LINES]
        near = [(line, n) for n, line in enumerate(reversed(above))]
        return near + [(line, n + 4) for n, line in enumerate(below)]

    @cached_property
    def weights(self) -> dict[str, float]:
        """Names near the cursor with a weight that falls with their distance, heaviest first."""
        weights: dict[str, float] = {}
        for line, far in self._near:
            for name in identifiers(line):
                if name not in _COMMON:
                    weights[name] = weights.get(name, 0.0) + 1.0 / (1.0 + far / 6.0)
        ranked = sorted(weights.items(), key=lambda item: (-item[1], item[0]))
        return dict(ranked)

    @cached_property
    def _uses(self) -> tuple[frozenset[str], frozenset[str]]:
        """Names used as members (after a dot), and names that are called or decorate."""
        members, called = set(), set()
        for line, _ in self._near:
            for before, name, after in _USE.findall(line):
                if before in (".", "->", "::"):
                    members.add(name)
                if after or before == "@":
                    called.add(name)
        return frozenset(members), frozenset(called)

    @cached_property
    def bound(self) -> frozenset[str]:
        """Names that the lines around the cursor give a value: variables and parameters."""
        found: set[str] = set()
        for line, _ in self._near:
            found.update(_BOUND.findall(line))
            for head in _HEAD.findall(line):
                found.update(identifiers(head.partition("(")[2] or head))
        return frozenset(found)

    def may_mean(self, name: str, kind: str, places: int) -> bool:
        """Whether a name near the cursor can stand for a definition of this kind elsewhere.

        `places` is how many definitions of the name there are.
        """
        members, called = self._uses
        if kind in ("method", "field"):
            return name in members
        if name in self.bound:
            return False
        if kind == "function":
            return name in called
        return kind != "constant" or name.isupper() or places <= 2

    @cached_property
    def names(self) -> list[str]:
        return list(self.weights)[:MAX_NAMES]

    @cached_property
    def imports(self) -> dict[str, Import]:
        """Local name → import of the document."""
        return {i.local: i for i in self.symbols.imports} if self.symbols else {}

    def module_fit(self, path: str) -> float:
        """How well a file fits any module that is imported as a whole (`#include "list.h"`)."""
        modules = {i.module for i in self.imports.values() if i.name in ("", "*")}
        return max((from_module(path, module) for module in modules), default=0.0)

    @cached_property
    def own_names(self) -> frozenset[str]:
        """What the document defines itself: the prefix and suffix show it."""
        return frozenset(d.name for d in self.symbols.definitions) if self.symbols else frozenset()

    @cached_property
    def known_lines(self) -> frozenset[str]:
        """Stripped lines that the model reads in any case."""
        text = self.prefix[-KNOWN_CHARS:] + "\n" + self.suffix[:KNOWN_CHARS]
        return frozenset(line.strip() for line in text.split("\n") if len(line.strip()) > 3)


@lru_cache(8192)
def from_module(path: str, module: str) -> float:
    """How well a file's path fits a module's name as written in an import, 0..1.

    `a.b` fits `a/b.py`, `src/a/b/__init__.py`; `./util` fits `util.ts`, `util/index.js`;
    `crate::net` fits `src/net.rs`; `<list.h>` fits `include/list.h`.
    """
    if not module:
        return 0.0
    for mark in ("::", "/", "."):
        separator = mark
        if mark in module.strip("."):
            break
    stem = path.rpartition(".")[0] if "." in path.rpartition("/")[2] else path
    parts = stem.split("/")
    if parts[-1] in ("__init__", "index", "mod", "init", "lib"):
        parts.pop()
    wanted = [p for p in module.split(separator) if p not in ("", ".", "..", "crate", "self")]
    if wanted and "." in wanted[-1] and separator == "/":
        wanted[-1] = wanted[-1].rpartition(".")[0]
    if separator == "." and wanted[-1:] == ["h"]:
        wanted.pop()
    matched = 0
    for mine, theirs in zip(reversed(parts), reversed(wanted), strict=False):
        if mine != theirs:
            break
        matched += 1
    if wanted and not matched and wanted[-1:] == parts[-2:-1]:
        return 0.5  # a package (Go, Java, Rust) is the folder of the file
    return matched / len(wanted) if wanted else 0.0
