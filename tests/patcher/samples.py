"""Source texts and helpers that the tests of candidates share."""

from __future__ import annotations

import ast
import tokenize
from io import BytesIO

from clover_patcher.edits import apply_edits
from clover_patcher.types import Candidate, Location

SEARCH = b'''\
"""A module."""
import math

LIMIT = 10


def clamp(value, low=0, high=LIMIT):
    if value < low or not value > high and value:
        return low  # a comment
    return min(value, high)


def search(items, target):
    lo, hi = 0, len(items)
    seen = set()
    while lo < hi:
        mid = (lo + hi) // 2
        if items[mid] == target and target not in seen:
            return mid
        elif items[mid][1:] < target:
            lo = mid
        else:
            hi = mid - 1
            seen.add(hi)
    return -1
'''

CLASSES = b"""\
from os import path as p


class Node:
    size: int = 3

    def __init__(self, name, *children, **more):
        self.name = name
        self.children = list(children)
        self.parent = None

    @property
    def depth(self):
        try:
            return self.parent.depth + 1
        except AttributeError as error:
            return 0
        finally:
            pass

    async def visit(self, f, deep=True):
        for child in self.children:
            async with f as g:
                await child.visit(g, deep=deep)
            yield [x + 1 for x in child.children if x is not None]
        else:
            raise ValueError(f"bad {self.name!r}")

    def match(self, other):
        match other:
            case Node(name=n) if n:
                return lambda x, y=1: x[y:2] if x else {"a": 1, **self.more}
            case [1, 2]:
                x = y = 3; z = 4
                print("a"
                      "b", x, sep="")
        global size
        assert p, "no path"
        size: int = -1
        size += 2 ** 3
"""


def locations(path: str, content: bytes) -> list[Location]:
    """Every line, the later the less suspicious."""
    lines = content.count(b"\n")
    return [Location(path, line, 1 / (1 + line / 10)) for line in range(1, lines + 1)]


def result(content: bytes, candidate: Candidate) -> bytes:
    return apply_edits(content, candidate.edits)


def tree(content: bytes) -> str:
    """The file's syntax tree as text; raises SyntaxError for what Python would refuse."""
    encoding, _ = tokenize.detect_encoding(BytesIO(content).readline)
    compile(content, "x", "exec", ast.PyCF_ONLY_AST, dont_inherit=True)
    return ast.dump(ast.parse(content.decode(encoding)))
