"""The same edit was made in several places: the other places where it applies.

Either the same tokens were replaced in the same surroundings, or calls of the same function got,
lost or changed the same argument. Works on tokens, for any language.
"""

from __future__ import annotations

import keyword
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from clover_lsp.actions.callchange import argument_edit, calls_at
from clover_lsp.actions.diff import Hunk
from clover_lsp.actions.names import BUILTINS
from clover_lsp.actions.proposals import Change, Moment, Proposal
from clover_lsp.actions.scopes import resolve
from clover_lsp.actions.tokens import Token, is_name

_CONTEXT = 4
"""Tokens compared on each side."""
_LONGEST = 12
"""Tokens of a replacement; longer ones are no pattern."""
_START, _END = "<line start>", "<line end>"


@dataclass(frozen=True, slots=True)
class _Pattern:
    """`old` between `left` (nearest first) and `right` becomes `new`."""

    old: tuple[str, ...]
    new: tuple[str, ...]
    left: tuple[str, ...]
    right: tuple[str, ...]

    @property
    def is_specific(self) -> bool:
        """Whether a match says anything: a name of some length, and more than two tokens."""
        words = [t for t in (*self.old, *self.left, *self.right) if is_name(t)]
        real = [t for t in (*self.old, *self.left, *self.right) if t not in (_START, _END)]
        return any(len(word) > 2 for word in words) and len(real) >= 2


def repeats(moment: Moment, change: Change) -> Iterator[Proposal]:
    """Places where an edit that was made at least twice applies again."""
    yield from _call_repeats(moment, change)
    whole = {h for h, (_, made) in change.calls.items() if made.kind != "replace"}
    groups: dict[tuple[tuple[str, ...], tuple[str, ...]], list[Hunk]] = defaultdict(list)
    for hunk in moment.limit.each(change.hunks):
        if hunk not in whole and hunk.old != hunk.new and len(hunk.old) + len(hunk.new) <= _LONGEST:
            groups[hunk.old, hunk.new].append(hunk)
    for hunks in groups.values():
        if len(hunks) >= 2 and not _is_scoped(hunks, moment, change):
            yield from _matches(hunks, moment)


def _is_scoped(hunks: Sequence[Hunk], moment: Moment, change: Change) -> bool:
    """Whether it is a name of one function or class, which `rename` follows better."""
    first = hunks[0]
    if moment.language != "python" or len(first.old) != 1 or not is_name(first.old[0]):
        return False
    for hunk in hunks:
        was = change.names.at(hunk.start, hunk.end)
        if was is None:
            continue
        scope = change.names.symbol(was).scope
        if scope is not None and scope.kind != "module":
            return True
        if scope is None and was.role == "use" and was.name not in BUILTINS:
            return True  # its definition was renamed before
    return False


def _matches(hunks: Sequence[Hunk], moment: Moment) -> Iterator[Proposal]:
    tokens = moment.tokens
    spots = [_spot(moment, hunk) for hunk in hunks]
    pattern = _common_pattern(hunks[0], spots, tokens)
    if not pattern.is_specific:
        return
    found = list(_places(pattern, moment))
    low, high = min(s[0] for s in spots), max(s[0] for s in spots)
    skipped = sum(1 for at in found if low < at < high)
    confidence = _confidence(len(hunks), skipped, pattern)
    for at in moment.limit.each(found):
        if not reaches(moment, tokens[min(at, len(tokens) - 1)].start, pattern.new):
            continue
        if "f" in pattern.new and not _formats(tokens, at + len(pattern.old)):
            continue
        last = at + len(pattern.old)
        start = tokens[at].start if pattern.old else _gap(tokens, at)
        end = tokens[last - 1].end if pattern.old else start
        new = moment.text[hunks[0].new_start : hunks[0].new_end]
        if not pattern.old or not pattern.new:
            start, end, new = _with_blanks(moment.text, hunks[0], start, end, new)
        shown = " ".join(pattern.new) or "nothing"
        reason = f"{' '.join(pattern.old) or 'insert'} → {shown}, as in {len(hunks)} places"
        yield Proposal(start, end, new, "repeat", confidence, reason)


def reaches(moment: Moment, offset: int, new: Sequence[str]) -> bool:
    """Whether the names in a new text mean something there: no local of another function."""
    if moment.language != "python":
        return True
    scope = None
    for before, word, after in zip(("", *new), new, (*new[1:], ""), strict=False):
        if not is_name(word) or keyword.iskeyword(word) or before == "." or after == "=":
            continue
        scope = scope or moment.names.scope_at(offset)
        if word in BUILTINS or resolve(scope, word) is not None:
            continue
        if word in moment.names.local_names:
            return False
    return True


def _confidence(count: int, skipped: int, pattern: _Pattern) -> float:
    """Grows with the evidence; places that were passed over speak against it."""
    context = len(pattern.left) + len(pattern.right)
    base = 0.9 if count > 2 else 0.85 if context >= 3 else 0.75 if context >= 2 else 0.6
    return base - 0.3 * min(2, skipped)


_Spot = tuple[int, int, int, int]
"""Token numbers [first, last) of a hunk's new side, and the lines of its two ends."""


def _spot(moment: Moment, hunk: Hunk) -> _Spot:
    tokens = moment.tokens
    first = bisect_left(tokens, hunk.new_start, key=lambda t: t.start)
    last = first + len(hunk.new)
    if first < last:
        return first, last, tokens[first].line, tokens[last - 1].line
    line = moment.line_of(hunk.new_start)
    return first, last, line, line


def _common_pattern(hunk: Hunk, spots: Sequence[_Spot], tokens: Sequence[Token]) -> _Pattern:
    if (called := _called(hunk, spots, tokens)) is not None:
        return called
    lefts = [_context(tokens, first - 1, -1, line) for first, _, line, _ in spots]
    rights = [_context(tokens, last, +1, line) for _, last, _, line in spots]
    return _Pattern(hunk.old, hunk.new, _shared(lefts), _shared(rights))


def _called(hunk: Hunk, spots: Sequence[_Spot], tokens: Sequence[Token]) -> _Pattern | None:
    """The pattern for `thing.name(` with another name: arguments do not matter."""
    if len(hunk.old) != 1 or len(hunk.new) != 1 or not is_name(hunk.old[0] + hunk.new[0]):
        return None
    lefts = {tuple(_context(tokens, first - 1, -1, line)[:2]) for first, _, line, _ in spots}
    rights = {tuple(_context(tokens, last, +1, line)[:1]) for _, last, _, line in spots}
    left = next(iter(lefts))
    if len(lefts) > 1 or rights != {("(",)} or left[:1] != (".",) or not is_name(left[-1]):
        return None
    return _Pattern(hunk.old, hunk.new, left, ("(",))


def _context(tokens: Sequence[Token], at: int, step: int, line: int) -> list[str]:
    """Up to `_CONTEXT` tokens of the line from `at` on, nearest first."""
    found: list[str] = []
    while len(found) < _CONTEXT:
        if not 0 <= at < len(tokens) or tokens[at].line != line:
            return [*found, _START if step < 0 else _END]
        token = tokens[at]
        found.append(f"<{token.kind}>" if token.kind in ("string", "comment") else token.text)
        at += step
    return found


def _shared(contexts: Sequence[list[str]]) -> tuple[str, ...]:
    shared: list[str] = []
    for column in zip(*contexts, strict=False):
        if len(set(column)) > 1:
            break
        shared.append(column[0])
    return tuple(shared)


def _places(pattern: _Pattern, moment: Moment) -> Iterator[int]:
    """Token numbers at which the old tokens stand in the pattern's surroundings."""
    tokens, size = moment.tokens, len(pattern.old)
    at_start = pattern.left[:1] == (_START,)
    for at in moment.limit.each(_starts(pattern, moment)):
        if at + size > len(tokens) or not size and at == len(tokens):
            continue
        if tuple(t.text for t in tokens[at : at + size]) != pattern.old:
            continue
        line = tokens[at].line if size or at_start or at == 0 else tokens[at - 1].line
        end_line = tokens[at + size - 1].line if size else line
        left = _context(tokens, at - 1, -1, line)[: len(pattern.left)]
        right = _context(tokens, at + size, +1, end_line)[: len(pattern.right)]
        if tuple(left) == pattern.left and tuple(right) == pattern.right:
            yield at


def _starts(pattern: _Pattern, moment: Moment) -> Sequence[int]:
    """Numbers of the tokens where the pattern may begin: those of its rarest end, if it has one."""
    if pattern.old:
        return moment.places.get(pattern.old[0], ())
    if pattern.right and pattern.right[0] in moment.places:
        return moment.places[pattern.right[0]]
    if pattern.left and pattern.left[0] in moment.places:
        return [number + 1 for number in moment.places[pattern.left[0]]]
    return range(len(moment.tokens))


def _formats(tokens: Sequence[Token], at: int) -> bool:
    """Whether `f` before the token would be a name, or the prefix of a string with fields."""
    return at >= len(tokens) or tokens[at].kind != "string" or "{" in tokens[at].text


def _gap(tokens: Sequence[Token], at: int) -> int:
    """Where a token would be put in before token `at`."""
    return tokens[at].start if at < len(tokens) else tokens[-1].end


def _with_blanks(text: str, hunk: Hunk, start: int, end: int, new: str) -> tuple[int, int, str]:
    """An insertion brings the blanks that the first one had; a deletion takes them along."""
    if hunk.new:
        return start, end, new + " " * _blanks_at(text, hunk.new_end)
    count = _blanks_at(text, end)
    line_start = text.rfind("\n", 0, start) + 1
    return start, end + (0 if text[line_start:start].strip() else count), new


def _blanks_at(text: str, offset: int) -> int:
    """How many blanks stand there."""
    end = offset
    while text.startswith(" ", end):
        end += 1
    return end - offset


def _call_repeats(moment: Moment, change: Change) -> Iterator[Proposal]:
    for made, openings in change.call_changes.items():
        if len(openings) < 2:
            continue
        low, high = min(openings), max(openings)
        edits = []
        callees = moment.limit.each(moment.places.get(made.name, ()))
        for call in calls_at(callees, moment.tokens):
            edit = argument_edit(made, call, moment.tokens, moment.text)
            if edit is None or call.opening in openings:
                continue
            if reaches(moment, edit.start, made.new):
                edits.append((call.opening, edit))
        skipped = sum(1 for opening, _ in edits if low < opening < high)
        confidence = (0.9 if len(openings) > 2 else 0.85) - 0.3 * min(2, skipped)
        for _, edit in edits:
            reason = f"change the call of {made.name} as in {len(openings)} other places"
            yield Proposal(edit.start, edit.end, edit.new, "repeat", confidence, reason)
