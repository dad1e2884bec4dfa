"""Which repairs the templates reach, and what they leave alone."""

from __future__ import annotations

import time

import pytest
from tests.patcher.samples import CLASSES, SEARCH, result, tree

from clover_patcher.propose.source import CandidateSource
from clover_patcher.propose.syntax import Source, load_source
from clover_patcher.propose.templates import PRIORS
from clover_patcher.types import Candidate, Location

SMALL = b"""\
def walk(graph, start, limit=10, stop=None):
    found, seen, total = [start], set(), 0
    for child in graph.nexts(start, stop=stop):
        if child in seen or not limit:
            walk(graph, start, limit=1)
            found.append(child)
    queue, cost = graph.costs[start], limit
"""
HEAD = b"""\
def walk(graph, start, stop=None, limit=10):
    found, queue, seen = [], [start], set()
    total = 0
    while queue and len(found) < limit:
        node, cost = queue.pop(), graph.costs[start]
        for child in graph.nexts(node):
            if child in seen:
                continue
            queue.append(child)
            seen.add(child)
        found.append(node)
"""


def candidates(content: bytes, line: int) -> list[Candidate]:
    source = CandidateSource({"a.py": content}, [Location("a.py", line, 1.0)], None)
    return [c for batch in source.batches(time.monotonic() + 60) for c in batch]


def reached(broken: str, fixed: str, indent: str = "    ") -> bool:
    """Whether the line becomes the other one, at the end of a function with some names."""
    content = SMALL + f"{indent}{broken}\n".encode()
    goal = tree(SMALL + f"{indent}{fixed}\n".encode())
    line = content.count(b"\n")
    return any(tree(result(content, c)) == goal for c in candidates(content, line))


@pytest.mark.parametrize(
    ("broken", "fixed"),
    [
        # operators and operands
        ("return total < limit", "return total <= limit"),
        ("return total < limit", "return limit < total"),
        ("return len(found) == 0", "return len(found) <= 1"),
        ("if graph.size: return 1", "if graph is None or graph.size: return 1"),
        ("found.append(node)", "found = node"),
        ("total = total + cost", "total = max(0, total + cost)"),
        ("cost = cost + 1", "cost = max(cost, cost + 1)"),
        ("return found[total, cost]", "return found[cost, total]"),
        ("return start == stop", "return start is stop"),
        ("return start in seen", "return start not in seen"),
        ("return 0 < total < limit", "return total < limit"),
        ("return total + limit", "return total - limit"),
        ("return total / limit", "return total // limit"),
        ("total ^= limit", "total &= limit"),
        ("return total - limit", "return limit - total"),
        ("return total - limit * cost", "return (total - limit) * cost"),
        ("return (total + limit) * cost", "return total + limit * cost"),
        ("return total and limit", "return total or limit"),
        ("return not total", "return total"),
        ("return total and limit", "return limit"),
        ("return -total", "return total"),
        ("total += limit", "total = limit"),
        ("total = limit", "total += limit"),
        ("total = a if limit else b", "total = b if limit else a"),
        ("total, cost = limit, stop", "cost, total = limit, stop"),
        ("total, cost = limit, stop", "total, cost = stop, limit"),
        # constants
        ("return total[0]", "return total[1]"),
        ("total = 10", "total = 9"),
        ("total = 10", "total = limit"),
        ("return False", "return True"),
        ("return None", "return []"),
        ("return []", "return [[]]"),
        ("return [total]", "return [total, cost]"),
        ("total = []", "total = {}"),
        ("return 'a'", "return ''"),
        # names, attributes, calls
        ("return total", "return found"),
        ("limit = stop", "total = stop"),
        ("return self.total", "return total"),
        ("found.append(node)", "found.extend(node)"),
        ("found.append(node)", "seen.append(node)"),
        ("return found.pop()", "return found"),
        ("return max(total, cost)", "return min(total, cost)"),
        ("return walk(graph, start)", "return walk(start, graph)"),
        ("return walk(graph, start)", "return walk(graph)"),
        ("return walk(graph, start)", "return walk(graph, start, stop)"),
        ("return walk(graph, 0, 2)", "return walk(graph, start, 2)"),
        ("return walk(graph, stop=start)", "return walk(graph, limit=start)"),
        ("return walk(graph)", "return graph"),
        ("return found", "return list(found)"),
        ("return found", "return walk(found)"),
        ("return found", "return len(found)"),
        ("return limit", "return limit - 1"),
        ("return walk(graph)", "return walk(graph) + 1"),
        ("return total", "return total + cost"),
        ("found.append(seen)", "found.append(seen[:])"),
        ("for i in range(limit): total = i", "for i in range(1, limit + 1): total = i"),
        ("for i in range(limit): total = i", "for i in range(limit - 1, -1, -1): total = i"),
        ("for i in found: total = i", "for i in reversed(found): total = i"),
        # subscripts and slices
        ("return found[total]", "return found[total + 1]"),
        ("return found[total][limit]", "return found[limit][total]"),
        ("return found[total:]", "return found[:total]"),
        ("return found[total:]", "return found[total + 1:]"),
        ("return found[total:]", "return found[total:limit]"),
        ("return found[total]", "return found.get(total, 0)"),
        # conditions
        ("if total: return 1", "if not total: return 1"),
        ("if total: return 1", "if total or not limit: return 1"),
        ("while True: total += 1", "while queue: total += 1"),
        ("if total: return 1", "if total and child in seen: return 1"),
        ("return [x for x in found]", "return [x for x in found if not limit]"),
        ("return [x for x in found if x]", "return [x for x in found]"),
        # statement forms
        ("return total", "yield total"),
        ("yield total", "yield from total"),
        ("return total", "return [total]"),
        ("walk(graph, start)", "return walk(graph, start)"),
        ("walk(graph, start)", "total = walk(graph, start)"),
        ("total = 3", "if total: total = 3"),
    ],
)
def test_one_line_repairs(broken: str, fixed: str) -> None:
    assert reached(broken, fixed)


@pytest.mark.parametrize(
    ("line", "added", "after"),
    [
        (6, b"            seen.add(node)\n", 5),
        (4, b"    if not graph: return []\n", 3),
        (7, b"            total += 1\n", 6),
        (11, b"    return found\n", 11),
        (11, b"        total += 1\n", 11),
        (5, b"        if not node:\n            continue\n", 5),
    ],
)
def test_missing_lines(line: int, added: bytes, after: int) -> None:
    lines = HEAD.splitlines(keepends=True)
    goal = tree(b"".join(lines[:after]) + _indented(added, lines, after) + b"".join(lines[after:]))
    assert any(tree(result(HEAD, c)) == goal for c in candidates(HEAD, line))


LOGIC = b"""\
class Reader:
    def __init__(self, stream, limit):
        self.limit = limit
        self.count = 0

    def first(self, text):
        rows = self.rows(text)
        if not rows:
            return None
        return rows[0]

    def last(self, text):
        rows = self.rows(text)
        if not rows:
            return None
        return rows[-1]

    def size(self, text, key):
        if key in text:
            pass
        return None

    def store(self, table, key, value):
        if isinstance(value, str):
            table[key] = value
        width = self.width(table, "wide")
        height = self.height(table, "wide")
        return width, height

    def get_limit(self):
        return self.limit

    def _sorted(self, rows, key):
        return sorted(rows, key=key)

    def by(self, rows, key):
        rows = self._sorted(rows, key)
        return rows

    def all_by(self, rows, key):
        print(rows)
        return self._sorted(rows, key)
"""
"""Methods that are like each other."""


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        # a difference from a similar line, taken over in this line's names
        (b'height = self.height(table, "wide")', b"height = self.height()"),
        (b"        return self.limit", b"        return None"),
        # lines lost where a similar place has one
        (b"        rows = self.rows(text)\n        if not rows:\n            return None\n"
         b"        return rows[-1]\n",
         b"        if not rows:\n            return None\n        return rows[-1]\n"),
        (b"        self.limit = limit\n        self.count", b"        self.count"),
        # what a placeholder stands for
        (b"table[key] = value", b"pass"),
        # a call of a helper that nothing else calls
        (b"        rows = self._sorted(rows, key)\n", b""),
        (b"return self._sorted(rows, key)", b"return None"),
        # arguments that say what a value is
        (b"isinstance(value, str)", b"isinstance(value)"),
    ],
)  # fmt: skip
def test_repairs_by_analogy(right: bytes, wrong: bytes) -> None:
    assert LOGIC.count(right) == 1
    content = LOGIC.replace(right, wrong)
    line = content[: len(LOGIC) - len(LOGIC.split(right)[1]) - len(right)].count(b"\n") + 1
    assert any(tree(result(content, c)) == tree(LOGIC) for c in candidates(content, line))


def test_lines_of_code_leave_out_comments_blanks_and_long_strings() -> None:
    source = _source(b'"""Long\nstring."""\n\nx = f("a # b", 1.5)  # why\n# only this\n')
    (line,) = source.code_lines
    assert line.number == 4
    assert [t.text for t in line.tokens] == ["x", "=", "f", "(", '"a # b"', ",", "1.5", ")"]
    assert "".join(t.space + t.text for t in line.tokens) == 'x = f("a # b", 1.5)'


def _indented(added: bytes, lines: list[bytes], after: int) -> bytes:
    return added if added.strip() != b"seen.add(node)" else added[4:]


def test_deleted_moved_and_exchanged_lines() -> None:
    results = [result(HEAD, c) for c in candidates(HEAD, 10)]
    assert HEAD.replace(b"            seen.add(child)\n", b"") in results
    assert HEAD.replace(b"            seen.add(child)\n", b"        seen.add(child)\n") in results
    first, second = b"            queue.append(child)\n", b"            seen.add(child)\n"
    assert HEAD.replace(first + second, second + first) in results


def test_the_only_line_of_a_block_becomes_pass() -> None:
    results = [result(HEAD, c) for c in candidates(HEAD, 8)]
    assert HEAD.replace(b"continue", b"pass") in results
    assert HEAD.replace(b"                continue\n", b"") not in results


def test_parts_of_long_statements_are_changed_in_place() -> None:
    content = b"def f(a, b):\n    return max(\n        a,  # first\n        b,\n    )\n"
    results = [result(content, c) for c in candidates(content, 4)]
    assert content.replace(b"        b,\n", b"        b + 1,\n") in results


def test_every_kind_has_a_prior() -> None:
    for content in (SEARCH, CLASSES, HEAD):
        for line in range(1, content.count(b"\n") + 1):
            assert {c.kind for c in candidates(content, line)} <= set(PRIORS)


def test_statements_know_their_surroundings() -> None:
    source = _source(CLASSES)
    (found,) = [s for s in source.statements if s.kind == "raise_statement"]
    assert found.owner is not None and found.owner.kind == "else_clause"
    assert not found.in_loop and found.is_last and found.own_lines
    assert found.function is not None and found.function.first_line == 21
    doubled = source.on_line(34)
    assert [s.own_lines for s in doubled] == [False, False]


def test_offsets_are_bytes_of_the_file() -> None:
    content = b"\xef\xbb\xbf" + "s = 'é'\r\nx = s\r\n".encode()
    source = _source(content)
    edit = source.edit(source.content_start(2), source.line_end(2), "x = 1")
    assert edit is not None
    assert content[edit.start : edit.end] == b"x = s"
    assert (source.eol, source.indent_unit, source.line_count) == ("\r\n", "    ", 2)


def _source(content: bytes) -> Source:
    source = load_source("a.py", content)
    assert source is not None
    return source


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        (b"    while queue and len(found) < limit:", b"    while queue and len(found) < limit"),
        (b"queue.append(child)", b"queue.append(child"),
        (b"for child in graph", b"for child graph"),
        (b"for child in graph", b"fro child in graph"),
        (b"found, queue, seen = [], [start], set()", b"found, queue, seen = [], [start, set()"),
        (b"        found.append(node)\n", b"          found.append(node)\n"),
        (b"            if child in seen:\n", b"            else if child in seen:\n"),
        (b"            if child in seen:\n", b"            if child in seen:;\n"),
    ],
)
def test_files_that_do_not_parse(right: bytes, wrong: bytes) -> None:
    content = HEAD.replace(right, wrong)
    line = content[: content.index(wrong)].count(b"\n") + 1
    results = [result(content, c) for c in candidates(content, line)]
    assert len(set(results)) == len(results)
    for after in results:
        tree(after)
    if b"else" not in wrong:
        assert tree(HEAD) in [tree(after) for after in results]


def test_other_lines_of_files_that_do_not_parse_give_nothing() -> None:
    content = HEAD.replace(b"queue.append(child)", b"queue.append(child")
    assert candidates(content, 4) == []
