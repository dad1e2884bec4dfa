"""What followed the same text elsewhere: finds it in some texts, weighs it, words it for here.

Lines are compared without their indentation and blank lines are skipped. With something typed on
the line, places are lines that begin alike, or else hold the last tokens before the cursor; on an
empty line, places follow a line like the one above, or precede a line like the one below. Further
equal lines above and below add to the evidence.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache

from clover_lsp.context.types import Lookup

MAX_ABOVE = 12
MAX_BELOW = 4
MAX_PLACES = 48
"""Places looked at in one text."""
MIN_BELOW = 3
"""A shorter line below (a bracket) says nothing by itself."""
MAX_LINES = 6
"""Lines of one proposal."""
MAX_LINE = 400
MIN_EVIDENCE = 2
"""Equal tokens above and below together."""
MAX_COUNT = 4
"""So many agreeing places add to the rank, a token each."""
RESULTS = 3
_TAILS = (8, 5, 3, 2)
"""How many tokens before the cursor are searched for within lines, longest first."""
_TOKEN = re.compile(r"\w+|[^\w\s]")
_CLOSERS = re.compile(r"[\s)\]}>\"'`;:,]*\Z")


@lru_cache(8192)
def token_count(line: str) -> int:
    """How many words and punctuation marks a line has."""
    return len(_TOKEN.findall(line))


@dataclass(frozen=True, slots=True)
class Source:
    """A text to look in, with LF line ends. `rank`: 0 same file, 1 open in the editor, 2 other."""

    path: str
    text: str
    rank: int


@dataclass(frozen=True)
class Query:
    """The surroundings of the cursor, with LF line ends."""

    prefix: str
    suffix: str

    @cached_property
    def partial(self) -> str:
        """The cursor's line up to the cursor."""
        return self.prefix[self.prefix.rfind("\n") + 1 :]

    @cached_property
    def body(self) -> str:
        return self.partial.lstrip()

    @cached_property
    def indent(self) -> str:
        return self.partial[: len(self.partial) - len(self.body)]

    @cached_property
    def rest(self) -> str:
        """The cursor's line after the cursor."""
        return self.suffix.partition("\n")[0].rstrip()

    @cached_property
    def above(self) -> list[str]:
        """Stripped lines that are not blank, nearest first."""
        cut = len(self.prefix) - len(self.partial)
        lines = self.prefix[max(0, cut - 4000) : cut].split("\n")
        return [line.strip() for line in reversed(lines) if line.strip()][:MAX_ABOVE]

    @cached_property
    def indent_above(self) -> int:
        cut = len(self.prefix) - len(self.partial)
        for line in reversed(self.prefix[max(0, cut - 4000) : cut].split("\n")):
            if line.strip():
                return width(line)
        return 0

    @cached_property
    def below(self) -> list[str]:
        lines = self.suffix[: 4 * MAX_LINE].split("\n")[1:]
        return [line.strip() for line in lines if line.strip()][:MAX_BELOW]

    @cached_property
    def answerable(self) -> bool:
        """Not in the middle of a line, and not without anything before the cursor."""
        known = bool(self.body.strip()) or bool(self.above)
        return known and _CLOSERS.match(self.rest) is not None and len(self.partial) <= MAX_LINE


def width(line: str) -> int:
    """The width of a line's indentation, tabs to multiples of 8."""
    return len((line[: len(line) - len(line.lstrip())]).expandtabs(8))


@dataclass(frozen=True, slots=True)
class _Place:
    """A continuation found in a source."""

    text: str
    matched: int
    followed: int
    rank: int
    order: int
    path: str

    @property
    def first(self) -> str:
        return self.text.partition("\n")[0]

    @property
    def evidence(self) -> int:
        return self.matched + self.followed


def search(query: Query, sources: Iterable[Source]) -> tuple[Lookup, ...]:
    """The best continuations, best first; of each first line only one."""
    if not query.answerable:
        return ()
    places: list[_Place] = []
    for source in sources:
        places += _places(query, source, len(places))
    groups: dict[str, list[_Place]] = {}
    for place in sorted(places, key=lambda p: (-p.evidence, p.rank, p.order)):
        groups.setdefault(place.first, []).append(place)
    ranked = sorted(
        (group for first, group in groups.items() if first and group[0].evidence >= MIN_EVIDENCE),
        key=lambda g: (-g[0].evidence - min(len(g) - 1, MAX_COUNT), g[0].rank, g[0].order),
    )
    found = []
    for group in ranked[:RESULTS]:
        top = group[0]
        rivals = sum(p.evidence >= top.evidence for p in places if p.first != top.first)
        found.append(Lookup(top.text, top.matched, len(group), rivals, top.path, top.followed))
    return tuple(found)


def own_sources(query: Query, path: str) -> list[Source]:
    """The document itself: before the cursor's line, and after it."""
    before = query.prefix[: len(query.prefix) - len(query.partial)]
    return [Source(path, before, 0), Source(path, query.suffix.partition("\n")[2], 0)]


def _places(query: Query, source: Source, order: int) -> Iterator[_Place]:
    text = source.text
    found = 0
    for at in _starts(query, text):
        cut = _continuation(query, text, at)
        if cut is None:
            continue
        proposal, followed = cut
        yield _Place(
            proposal, _matched(query, text, at), followed, source.rank, order + found, source.path
        )
        found += 1
        if found == MAX_PLACES:
            return


def _starts(query: Query, text: str) -> Iterator[int]:
    """Offsets in `text` that correspond to the cursor."""
    body = query.body
    if not body:
        known = list(_after_line(query, text))
        yield from known
        yield from (at for at in _before_line(query, text) if at not in known)
        return
    any_ = False
    for at in _finds(text, body):
        if not text[text.rfind("\n", 0, at) + 1 : at].strip():
            any_ = True
            yield at + len(body)
    if any_:
        return
    tokens = list(_TOKEN.finditer(body))
    for size in _TAILS:
        if size < len(tokens):
            needle = body[tokens[-size].start() :]
            ends = [
                at + len(needle)
                for at in _finds(text, needle)
                if not (needle[0].isalnum() and at and (text[at - 1].isalnum()))
            ]
            if ends:
                yield from ends
                return


def _after_line(query: Query, text: str) -> Iterator[int]:
    """Beginnings (after the indentation) of the lines that follow a line like the one above."""
    if not query.above:
        return
    deeper = _sign(width(query.partial), query.indent_above)
    for start, end in _whole_lines(text, query.above[0]):
        while end < len(text):
            next_ = end + 1
            end = text.find("\n", next_)
            end = len(text) if end < 0 else end
            line = text[next_:end]
            if line.strip():
                if _sign(width(line), width(text[start:next_])) == deeper:
                    yield next_ + len(line) - len(line.lstrip())
                break


def _before_line(query: Query, text: str) -> Iterator[int]:
    """The same for the lines that precede a line like the one below."""
    if not query.below or len(query.below[0]) < MIN_BELOW:
        return
    for start, _ in _whole_lines(text, query.below[0]):
        while start > 0:
            end = start - 1
            start = text.rfind("\n", 0, end) + 1
            line = text[start:end]
            if line.strip():
                if width(line) == width(query.partial):
                    yield start + len(line) - len(line.lstrip())
                break


def _whole_lines(text: str, line: str) -> Iterator[tuple[int, int]]:
    """(start, end) of the lines that are `line` but for blanks around it."""
    for at in _finds(text, line):
        start, end = text.rfind("\n", 0, at) + 1, text.find("\n", at)
        end = len(text) if end < 0 else end
        if text[start:end].strip() == line:
            yield start, end


def _sign(one: int, other: int) -> int:
    return (one > other) - (one < other)


def _finds(text: str, needle: str) -> Iterator[int]:
    """Where `needle` stands; from the end, since the nearest text before the cursor counts most."""
    at = text.rfind(needle)
    tried = 0
    while at >= 0 and tried < 4 * MAX_PLACES:
        yield at
        tried += 1
        at = text.rfind(needle, 0, at + len(needle) - 1)


def _matched(query: Query, text: str, at: int) -> int:
    """How many tokens before offset `at` are those before the cursor."""
    start = text.rfind("\n", 0, at) + 1
    here = text[start:at].strip()
    body = query.body.rstrip()
    if here != body:
        return _common_tail(here, body)
    count = token_count(body) if body else 0
    for line in query.above:
        start -= 1
        while start > 0:
            previous = text.rfind("\n", 0, start) + 1
            other = text[previous:start].strip()
            if other:
                break
            start = previous - 1
        else:
            return count
        if other != line:
            return count + _common_tail(other, line)
        count += token_count(line)
        start = previous
        if start == 0:
            break
    return count


def _common_tail(one: str, other: str) -> int:
    """How many tokens two lines have in common at their ends."""
    count = 0
    a, b = _TOKEN.findall(one[-MAX_LINE:]), _TOKEN.findall(other[-MAX_LINE:])
    for x, y in zip(reversed(a), reversed(b), strict=False):
        if x != y:
            break
        count += 1
    return count


def _continuation(query: Query, text: str, at: int) -> tuple[str, int] | None:
    """The proposal from offset `at` on, and how many tokens after it are those below the cursor.

    None where it is no use: the line ends there, or is too long.
    """
    start = text.rfind("\n", 0, at) + 1
    lines = text[start : at + MAX_LINES * MAX_LINE].split("\n")[: MAX_LINES + MAX_BELOW + 3]
    head = lines[0]
    if len(head) > MAX_LINE:
        return None
    first = head[at - start :].rstrip()
    if query.rest and first.endswith(query.rest.strip()):
        first = first[: len(first) - len(query.rest.strip())].rstrip()
    margin = head[: len(head) - len(head.lstrip())]
    out = [first]
    below = query.below[0] if query.below else None
    for n, line in enumerate(lines[1:], start=1):
        if line.strip() and line.strip() == below:
            return "\n".join(out).rstrip(), _followed(query, lines[n:])
        if n >= MAX_LINES or not line.startswith(margin) or not line.strip():
            break
        if not query.rest:
            out.append(query.indent + line[len(margin) :].rstrip())
    return "\n".join(out), _followed(query, lines[1:])


def _followed(query: Query, lines: list[str]) -> int:
    count = 0
    left = [line.strip() for line in lines if line.strip()]
    for mine, theirs in zip(query.below, left, strict=False):
        if mine != theirs:
            break
        count += token_count(mine)
    return count
