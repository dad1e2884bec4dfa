"""Plausible bugs: turn a correct line of Python into a wrong one (the repair task's data).

Works on a line's lexical tokens with plain rules, so that it is fast enough to run inside the
data loader: operators, constants, names, arguments, subscripts, wrappers, negations.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Sequence
from random import Random

_TOKEN = re.compile(
    r"""(?:[rbuf]{0,2}(?:"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'))"""
    r"""|[A-Za-z_]\w*|\d+\.?\d*|\*\*=|//=|>>=|<<=|->|:=|==|!=|<=|>=|\*\*|//|<<|>>|[-+*/%&|^@]="""
    r"""|\s+|.""",
    re.DOTALL,
)
_NAME = re.compile(r"[A-Za-z_]\w*$")
_SWAPS: tuple[tuple[str, ...], ...] = (
    ("<", "<=", ">", ">=", "==", "!="),
    ("+", "-", "*", "/", "//", "%"),
    ("&", "|", "^"),
    ("+=", "-=", "*=", "="),
    ("and", "or"),
    ("True", "False", "None"),
    ("min", "max"),
    ("any", "all"),
    ("append", "extend", "add", "insert", "remove"),
    ("return", "yield"),
    ("break", "continue"),
    ("if", "while"),
)
_SWAP = {word: group for group in _SWAPS for word in group}

Mutation = Callable[[list[str], Random, Sequence[str]], list[str] | None]


def mutate(line: str, names: Sequence[str], rng: Random) -> str | None:
    """A wrong variant of `line` (no newline in it), or None where no rule fits.

    `names` are identifiers seen nearby. One mutation mostly, two sometimes.
    """
    tokens = _TOKEN.findall(line)
    for _ in range(2 if rng.random() < 0.15 else 1):
        order = rng.choices(_RULES, weights=_WEIGHTS, k=6)
        for rule in order:
            changed = rule(list(tokens), rng, names)
            if changed is not None:
                tokens = changed
                break
        else:
            return None
    result = "".join(tokens)
    return result if result != line and result.strip() else None


def _places(tokens: list[str], test: Callable[[str], bool]) -> list[int]:
    return [i for i, t in enumerate(tokens) if test(t)]


def _is_name(token: str) -> bool:
    return bool(_NAME.match(token)) and not keyword.iskeyword(token)


def _pick(rng: Random, places: list[int]) -> int | None:
    return rng.choice(places) if places else None


def _operator(tokens: list[str], rng: Random, names: Sequence[str]) -> list[str] | None:
    i = _pick(rng, _places(tokens, _SWAP.__contains__))
    if i is None:
        return None
    tokens[i] = rng.choice([t for t in _SWAP[tokens[i]] if t != tokens[i]])
    return tokens


def _number(tokens: list[str], rng: Random, names: Sequence[str]) -> list[str] | None:
    i = _pick(rng, _places(tokens, str.isdigit))
    if i is None:
        return None
    value = int(tokens[i])
    tokens[i] = str(rng.choice([v for v in (0, 1, 2, value + 1, abs(value - 1)) if v != value]))
    return tokens


def _name(tokens: list[str], rng: Random, names: Sequence[str]) -> list[str] | None:
    i = _pick(rng, _places(tokens, _is_name))
    others = [n for n in names if i is not None and n != tokens[i]]
    if i is None or not others:
        return None
    tokens[i] = rng.choice(others)
    return tokens


def _add_term(tokens: list[str], rng: Random, names: Sequence[str]) -> list[str] | None:
    i = _pick(rng, _places(tokens, lambda t: _is_name(t) or t in ")]"))
    if i is None:
        return None
    tokens.insert(i + 1, rng.choice([" + 1", " - 1", "[0]", "[1:]", "[:-1]", "()", "[-1]"]))
    return tokens


def _drop_tail(tokens: list[str], rng: Random, names: Sequence[str]) -> list[str] | None:
    """Removes `+ 1`, `.attr`, `and x`, `[i]`, `, arg` style tails."""
    text = "".join(tokens)
    spans = [m.span() for m in _TAIL.finditer(text)]
    if not spans:
        return None
    a, b = rng.choice(spans)
    return _TOKEN.findall(text[:a] + text[b:])


_TAIL = re.compile(
    r" (?:\+|-|\*|/|//|%|and|or|if|in|not in|is|==|<|>) (?:not )?[\w.]+(?:\([^()]*\)|\[[^\[\]]*\])?"
    r"|\.[A-Za-z_]\w*(?:\([^()]*\))?|\[[^\[\]]*\]|, ?[\w.]+(?=[,)\]])|\([^()]*\)(?=[:)\].,]|$)"
)


def _negation(tokens: list[str], rng: Random, names: Sequence[str]) -> list[str] | None:
    nots = _places(tokens, lambda t: t == "not")
    if nots and rng.random() < 0.7:
        i = rng.choice(nots)
        del tokens[i : i + 2]
        return tokens
    at = _pick(rng, _places(tokens, lambda t: t in ("if", "while", "and", "or", "return", "in")))
    if at is None:
        return None
    tokens[at] = "not in" if tokens[at] == "in" else tokens[at] + " not"
    return tokens


def _wrap(tokens: list[str], rng: Random, names: Sequence[str]) -> list[str] | None:
    """x → f(x), or f(x) → x."""
    text = "".join(tokens)
    calls = list(re.finditer(r"\b[A-Za-z_][\w.]*\(([^()]+)\)", text))
    if calls and rng.random() < 0.6:
        m = rng.choice(calls)
        return _TOKEN.findall(text[: m.start()] + m[1] + text[m.end() :])
    i = _pick(rng, _places(tokens, _is_name))
    if i is None:
        return None
    outer = rng.choice(["len", "list", "str", "set", "sorted", "int", *names[:4]])
    tokens[i] = f"{outer}({tokens[i]})"
    return tokens


def _swap_pair(tokens: list[str], rng: Random, names: Sequence[str]) -> list[str] | None:
    """Swaps two names of the line (operands, arguments)."""
    places = _places(tokens, _is_name)
    if len({tokens[i] for i in places}) < 2:
        return None
    i, j = rng.sample(places, 2)
    if tokens[i] == tokens[j]:
        return None
    tokens[i], tokens[j] = tokens[j], tokens[i]
    return tokens


def _string(tokens: list[str], rng: Random, names: Sequence[str]) -> list[str] | None:
    i = _pick(rng, _places(tokens, lambda t: t[-1:] in "\"'" and len(t) > 2))
    if i is None:
        return None
    tokens[i] = rng.choice(['""', "None", tokens[i][:-2] + tokens[i][-1]])
    return tokens


_TABLE: tuple[tuple[Mutation, float], ...] = (
    (_operator, 3.0),
    (_name, 3.0),
    (_drop_tail, 2.5),
    (_number, 1.5),
    (_add_term, 1.5),
    (_wrap, 1.0),
    (_negation, 1.0),
    (_swap_pair, 1.0),
    (_string, 0.3),
)
_RULES = [rule for rule, _ in _TABLE]
_WEIGHTS = [weight for _, weight in _TABLE]
