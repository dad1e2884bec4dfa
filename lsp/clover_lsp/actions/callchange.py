"""How one call's arguments changed, and the same change of another call."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from clover_lsp.actions.calls import Call, call_around, call_at, texts
from clover_lsp.actions.diff import Hunk
from clover_lsp.actions.tokens import Token, is_name
from clover_lsp.context.types import Edit

Argument = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CallChange:
    """One argument added, removed or replaced. `index` counts from 0."""

    name: str
    receiver: str
    """What stands before the name and its dot: a name, or a sign; "" for a plain name."""
    kind: Literal["add", "remove", "replace"]
    index: int
    at_end: bool
    """The argument is the last one."""
    old: Argument
    new: Argument
    count: int
    """How many arguments there were before; -1 where that does not matter."""

    @property
    def keyword(self) -> str:
        """The name of an added or removed keyword argument."""
        argument = self.new or self.old
        return argument[0] if len(argument) > 2 and argument[1] == "=" else ""

    @property
    def general(self) -> CallChange:
        """The same change of calls with any number of arguments, for a new keyword argument."""
        if self.kind != "add" or not self.keyword or not self.at_end:
            return self
        return replace(self, index=-1, count=-1)


def changed_call(
    hunk: Hunk, before: Sequence[Token], after: Sequence[Token]
) -> tuple[Call, CallChange] | None:
    """The call that a hunk changed one argument of, as it is now."""
    now = _around(after, hunk.new_start, hunk.new_end)
    was = _around(before, hunk.start, hunk.end)
    if now is None or was is None or now.name != was.name or now.defines or was.defines:
        return None
    change = _compare(was, before, now, after)
    return (now, change) if change is not None else None


def argument_edit(
    change: CallChange, call: Call, tokens: Sequence[Token], text: str
) -> Edit | None:
    """The edit that changes another call alike; None where it does not apply there."""
    arguments = [texts(tokens, span) for span in call.arguments]
    if call.defines or call.name != change.name or receiver(tokens, call) != change.receiver:
        return None
    if any(a[0] in ("*", "**", "...") for a in arguments if a):
        return None
    if change.kind == "add":
        return _addition(change, call, arguments, tokens, text)
    index = len(arguments) - 1 if change.at_end and change.kind == "remove" else change.index
    if change.keyword:
        index = next((i for i, a in enumerate(arguments) if a == change.old), -1)
    if not 0 <= index < len(arguments) or arguments[index] != change.old:
        return None
    if change.kind == "remove":
        return removal(call, index, tokens) if len(arguments) == change.count else None
    first, last = call.arguments[index]
    return Edit(tokens[first].start, tokens[last - 1].end, _join(change.new))


def insertion(call: Call, index: int, new: str, tokens: Sequence[Token], text: str) -> Edit:
    """Puts an argument before argument `index`, laid out as its neighbours are."""
    if not call.arguments:
        at = tokens[call.opening].end
        return Edit(at, at, new)
    if index < len(call.arguments):
        first = call.arguments[index][0]
        glue = text[tokens[first - 1].end : tokens[first].start] if index else ""
        at = tokens[first].start
        return Edit(at, at, f"{new},{glue or ' '}")
    first, last = call.arguments[-1]
    glue = text[tokens[first - 1].end : tokens[first].start]
    at = tokens[last - 1].end
    return Edit(at, at, f",{glue or ' '}{new}")


def removal(call: Call, index: int, tokens: Sequence[Token]) -> Edit:
    """Takes argument `index` out, with one comma."""
    first, last = call.arguments[index]
    if index:
        return Edit(tokens[call.arguments[index - 1][1] - 1].end, tokens[last - 1].end, "")
    if len(call.arguments) > 1:
        return Edit(tokens[first].start, tokens[call.arguments[1][0]].start, "")
    return Edit(tokens[call.opening].end, tokens[call.closing].start, "")


def calls_at(callees: Iterable[int], tokens: Sequence[Token]) -> Iterator[Call]:
    """The calls whose last name is one of these tokens, in order."""
    for number in callees:
        if number + 1 < len(tokens) and tokens[number + 1].text == "(":
            call = call_at(tokens, number + 1)
            if call is not None and not call.defines:
                yield call


def receiver(tokens: Sequence[Token], call: Call) -> str:
    """The token before a method's dot, its kind for a literal; "" where there is no dot."""
    if not is_method(tokens, call):
        return ""
    token = tokens[call.callee - 2] if call.callee > 1 else None
    if token is None:
        return "."
    return token.text if token.kind in ("name", "sign") else f"<{token.kind}>"


def is_method(tokens: Sequence[Token], call: Call) -> bool:
    return call.callee > 0 and tokens[call.callee - 1].text == "."


def _around(tokens: Sequence[Token], start: int, end: int) -> Call | None:
    """The innermost call that has all of [start, end) in its argument list."""
    number = bisect_left(tokens, start, key=lambda t: t.start)
    call = call_around(tokens, number)
    return call if call is not None and end <= tokens[call.closing].start else None


def _compare(
    was: Call, before: Sequence[Token], now: Call, after: Sequence[Token]
) -> CallChange | None:
    old = [texts(before, span) for span in was.arguments]
    new = [texts(after, span) for span in now.arguments]
    index = next(
        (i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b),
        min(len(old), len(new)),
    )
    base = (now.name, receiver(after, now))
    if len(new) == len(old) + 1 and new[:index] + new[index + 1 :] == old:
        at_end = index == len(old)
        return CallChange(*base, "add", index, at_end, (), new[index], len(old))
    if len(new) + 1 == len(old) and old[:index] + old[index + 1 :] == new:
        at_end = index == len(new)
        return CallChange(*base, "remove", index, at_end, old[index], (), len(old))
    if len(new) == len(old) and index < len(old) and old[index + 1 :] == new[index + 1 :]:
        at_end = index == len(old) - 1
        return CallChange(*base, "replace", index, at_end, old[index], new[index], len(old))
    return None


def _addition(
    change: CallChange,
    call: Call,
    arguments: list[Argument],
    tokens: Sequence[Token],
    text: str,
) -> Edit | None:
    if change.new in arguments or change.count not in (-1, len(arguments)):
        return None
    if change.keyword and any(a[:2] == (change.keyword, "=") for a in arguments):
        return None
    index = len(arguments) if change.index < 0 else change.index
    return insertion(call, index, _join(change.new), tokens, text)


def _join(argument: Argument) -> str:
    """Tokens as text, with the usual blanks."""
    out = ""
    for token in argument:
        words = out and is_name(out[-1]) and (is_name(token[0]) or token[0].isdigit())
        after_comma = out.endswith((",", ":")) and token != ")"
        operator = token in ("+", "-", "*", "/", "==", "<", ">") and out and out[-1] not in "([,="
        spaced = out and out.endswith((" +", " -", " *", " /", " ==", " <", " >"))
        out += (" " if words or after_comma or operator or spaced else "") + token
    return out
