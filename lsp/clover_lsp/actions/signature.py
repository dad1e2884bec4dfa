"""A function's parameters changed: its calls in the same file. Python only."""

from __future__ import annotations

import builtins
import keyword
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass

from tree_sitter import Node

from clover_lsp.actions.callchange import insertion, is_method, removal
from clover_lsp.actions.calls import Call, call_at, texts
from clover_lsp.actions.names import Names
from clover_lsp.actions.proposals import Change, Moment, Proposal
from clover_lsp.actions.rename import is_common
from clover_lsp.actions.scopes import Scope, resolve
from clover_lsp.actions.tokens import is_name

_PLAIN = frozenset(("identifier", "typed_parameter"))
_DEFAULTED = frozenset(("default_parameter", "typed_default_parameter"))


@dataclass(frozen=True, slots=True)
class _CallSite:
    call: Call
    scope: Scope
    """Where it stands."""
    sure: float
    """How surely it calls the function in question (0..1)."""


@dataclass(frozen=True, slots=True)
class _Parameter:
    name: str
    has_default: bool
    keyword_only: bool


@dataclass(frozen=True, slots=True)
class _Signature:
    """Parameters without the receiver; `loose` where `*args` or `**kwargs` take anything."""

    parameters: tuple[_Parameter, ...]
    loose: bool

    def index(self, name: str) -> int:
        return next(i for i, p in enumerate(self.parameters) if p.name == name)


def signatures(moment: Moment, change: Change) -> Iterator[Proposal]:
    """Calls that lack a new parameter's argument, or still pass a removed one."""
    if moment.language != "python" or not change.hunks:
        return
    was = {_path(scope): scope for scope in _functions(change.names)}
    for scope in moment.limit.each(_functions(moment.names)):
        old_scope = was.get(_path(scope))
        if old_scope is None:
            continue
        old = _signature(change.names, old_scope)
        new = _signature(moment.names, scope)
        if old != new and not (old.loose or new.loose):
            yield from _calls_to_change(moment, change, scope, old, new)


def _calls_to_change(
    moment: Moment, change: Change, scope: Scope, old: _Signature, new: _Signature
) -> Iterator[Proposal]:
    added = [p for p in new.parameters if p.name not in {q.name for q in old.parameters}]
    removed = [p for p in old.parameters if p.name not in {q.name for q in new.parameters}]
    if len(added) + len(removed) != 1:
        return
    for at in _calls(moment, scope):
        if removed:
            yield from _without(moment, at, removed[0], old)
        elif not added[0].has_default and not _touched(moment, change, at.call):
            yield from _with(moment, change, at, added[0], old, new)


def _without(
    moment: Moment, at: _CallSite, gone: _Parameter, old: _Signature
) -> Iterator[Proposal]:
    call, tokens = at.call, moment.tokens
    arguments = [texts(tokens, span) for span in call.arguments]
    named = [i for i, a in enumerate(arguments) if a[:2] == (gone.name, "=")]
    index = named[0] if named else old.index(gone.name)
    positional = sum(1 for a in arguments if len(a) < 2 or a[1] != "=")
    if not named and (gone.keyword_only or positional != _positional(old) or not positional):
        return
    if index < len(arguments):
        edit = removal(call, index, tokens)
        reason = f"{gone.name} is no parameter of {call.name} any more"
        yield Proposal(edit.start, edit.end, "", "signature", 0.9 * at.sure, reason)


def _positional(signature: _Signature) -> int:
    return sum(1 for p in signature.parameters if not p.keyword_only)


def _with(
    moment: Moment,
    change: Change,
    at: _CallSite,
    added: _Parameter,
    old: _Signature,
    new: _Signature,
) -> Iterator[Proposal]:
    call, tokens = at.call, moment.tokens
    arguments = [texts(tokens, span) for span in call.arguments]
    named = {a[0] for a in arguments if len(a) > 1 and a[1] == "="}
    positional = sum(1 for a in arguments if len(a) < 2 or a[1] != "=")
    needed = {p.name for p in old.parameters[positional:] if not p.has_default}
    if added.name in named or positional > _positional(old) or not needed <= named:
        return
    value, confidence = _value(change, at, added)
    if not value:
        return
    index = new.index(added.name)
    by_name = added.keyword_only or index > positional
    argument = f"{added.name}={value}" if by_name else value
    edit = insertion(call, len(arguments) if by_name else index, argument, tokens, moment.text)
    reason = f"{call.name} needs {added.name} now"
    yield Proposal(edit.start, edit.end, edit.new, "signature", confidence * at.sure, reason)


def _value(change: Change, at: _CallSite, added: _Parameter) -> tuple[str, float]:
    """What to pass: what other calls were given since, else the same name if it is in reach."""
    given = [
        made.new[2:] if made.keyword == added.name else made.new
        for made in change.call_changes
        if made.name == at.call.name and made.kind == "add" and made.new
    ]
    for tokens in given[:1]:
        if len(set(given)) == 1 and len(tokens) == 1 and _reaches(at.scope, tokens[0]):
            return tokens[0], 0.9
    if not given and _is_variable(at.scope, added.name):
        return added.name, 0.85
    return "", 0.0


def _reaches(place: Scope, token: str) -> bool:
    if not is_name(token) or keyword.iskeyword(token) or hasattr(builtins, token):
        return True
    return resolve(place, token) is not None


def _is_variable(place: Scope, name: str) -> bool:
    scope = resolve(place, name)
    return scope is not None and name not in scope.functions and scope.kind == "function"


def _touched(moment: Moment, change: Change, call: Call) -> bool:
    """Whether the call's arguments were changed since."""
    tokens = moment.tokens
    start, end = tokens[call.opening].start, tokens[call.closing].end
    return any(
        start < h.new_start < end or (h.new_start < end and start < h.new_end) for h in change.hunks
    )


def _calls(moment: Moment, scope: Scope) -> Iterator[_CallSite]:
    """Calls of a function in the order of the text."""
    names, tokens = moment.names, moment.tokens
    called = (scope.name, scope.parent.name) if scope.parent is not None else (scope.name,)
    for node, place in moment.limit.each(names.calls_of(*called)):
        sure = 1.0 if names.callee(node, place) is scope else _by_method(names, node, scope)
        arguments = node.child_by_field_name("arguments")
        if not sure or arguments is None:
            continue
        at = names.char(arguments.start_byte)
        call = call_at(tokens, bisect_left(tokens, at, key=lambda t: t.start))
        if call is None or any(t[0] in ("*", "**") for t in _arguments(moment, call)):
            continue
        plain = scope.parent is None or scope.parent.kind != "class" or scope.name == "__init__"
        if plain or is_method(tokens, call):
            yield _CallSite(call, place, sure)


def _arguments(moment: Moment, call: Call) -> list[tuple[str, ...]]:
    return [texts(moment.tokens, span) for span in call.arguments]


def _by_method(names: Names, call: Node, scope: Scope) -> float:
    """For `thing.method(…)`: sure enough where one class only has a method of that name."""
    function = call.child_by_field_name("function")
    if scope.parent is None or scope.parent.kind != "class" or is_common(scope.name):
        return 0.0
    if function is None or function.type != "attribute":
        return 0.0
    attribute = function.child_by_field_name("attribute")
    if attribute is None or names.text(attribute) != scope.name:
        return 0.0
    named = [o for o in names.by_name[scope.name] if o.role == "bind"]
    return 0.85 if len(named) == 1 else 0.0


def _functions(names: Names) -> list[Scope]:
    return [scope for scope in names.scopes if scope.kind == "function" and scope.name]


def _path(scope: Scope) -> tuple[str, ...]:
    path: list[str] = []
    at: Scope | None = scope
    while at is not None:
        path.append(at.name)
        at = at.parent
    return tuple(path)


def _signature(names: Names, scope: Scope) -> _Signature:
    node = scope.node.child_by_field_name("parameters")
    found: list[_Parameter] = []
    loose = keyword_only = False
    for child in node.named_children if node is not None else ():
        if child.type == "keyword_separator":
            keyword_only = True
        elif child.type in _PLAIN or child.type in _DEFAULTED:
            name = child.child_by_field_name("name") or child
            while name.type != "identifier" and name.named_children:
                loose = loose or name.type in ("list_splat_pattern", "dictionary_splat_pattern")
                name = name.named_children[0]
            found.append(_Parameter(names.text(name), child.type in _DEFAULTED, keyword_only))
        elif child.type in ("list_splat_pattern", "dictionary_splat_pattern"):
            loose = True
    if scope.receiver and found and found[0].name == scope.receiver:
        del found[0]
    return _Signature(tuple(found), loose)
