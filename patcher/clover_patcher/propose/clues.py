"""What a failure says about the slip in its own words, for the templates.

The kinds and messages of exceptions decide which templates are asked first: a `KeyError` asks for
look-ups that may miss, "has no attribute 'uper'" for a name that is spelt like one that exists.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

from clover_patcher.locate.evidence import Evidence

_RAISED = re.compile(
    r"^(?:E +)?((?:[A-Za-z_][\w.]*\.)?(?:\w*(?:Error|Exception|Warning)|StopIteration))"
    r"(?:: ?(.*))?$",
    re.MULTILINE,
)
_UNKNOWN: dict[str, re.Pattern[str]] = {
    "name": re.compile(r"name '(?P<name>\w+)' is not defined"),
    "attribute": re.compile(
        r"(?:module |type object )?'(?P<owner>[\w.]+)'(?: object)? has no attribute '(?P<name>\w+)'"
    ),
    "keyword": re.compile(r"unexpected keyword argument '(?P<name>\w+)'"),
    "import": re.compile(r"cannot import name '(?P<name>\w+)' from '(?P<owner>[\w.]+)'"),
    "module": re.compile(r"No module named '(?P<name>[\w.]+)'"),
}
_KEY = re.compile(r"'([^'\n]+)'")
_MEANT = re.compile(r"[^\n]{0,200}?[Dd]id you mean:? '(?:self\.)?(\w+)'")
_ASKED = re.compile(r"raises\w*\(\s*\(?([\w.]+)")
_ERROR = re.compile(r"[A-Z]\w*")
_MOST_TEXT = 20_000
_MOST_FAILURES = 50
_MOST_QUOTES, _QUOTE = 150, (5, 2_000)
"""So many texts of tests are kept, of so many characters."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """A name that the failure says does not exist."""

    what: str
    """"name", "attribute", "keyword", "import", "module" or "key"."""
    name: str
    owner: str = ""
    """The type or module that lacks it."""
    meant: tuple[str, ...] = ()
    """Names that Python itself suggests."""


@dataclass(frozen=True, slots=True)
class Clues:
    """Immutable; `Clues()` is a failure that says nothing."""

    kinds: frozenset[str] = frozenset()
    """Names of the exceptions, without their modules."""
    text: str = ""
    """All messages, one after another."""
    unknown: Mapping[str, Unknown] = field(default_factory=dict)
    asked: tuple[str, ...] = ()
    """Exceptions that the failing tests ask for."""
    python: tuple[int, int] | None = None
    """The version of an older Python that runs the program, None where it is not older."""
    quotes: tuple[str, ...] = ()
    """Texts that the failing tests' files have."""

    def says(self, pattern: str) -> bool:
        """Whether a message has the pattern in it."""
        return _found(pattern, self.text)


@lru_cache(256)
def _found(pattern: str, text: str) -> bool:
    """Asked for every node of every line, with few patterns and one text."""
    return re.search(pattern, text) is not None


def clues_in(evidence: Evidence, python: tuple[int, int] | None = None) -> Clues:
    """What the failures, the check's output and the failing tests' files say."""
    failures = (*evidence.pasted, *evidence.baseline.failures)[:_MOST_FAILURES]
    messages = [f"{one.kind}: {one.message}" for one in failures]
    tests = dict.fromkeys(one.nodeid.partition("::")[0] for one in failures)
    output = evidence.baseline.output[-_MOST_TEXT:]
    clues = clues_of(messages, output, asked=tuple(_asked(evidence, tests)), python=python)
    return replace(clues, quotes=tuple(_quotes(evidence, [one.nodeid for one in failures])))


def clues_of(
    messages: Iterable[str],
    output: str = "",
    *,
    asked: tuple[str, ...] = (),
    python: tuple[int, int] | None = None,
) -> Clues:
    """What messages like `KeyError: 'a'` say, and lines like that in an output."""
    all_messages = "\n".join(messages)[:_MOST_TEXT]
    everything = f"{all_messages}\n{output}"
    said = dict.fromkeys(
        (m[1].rsplit(".", 1)[-1], m[2] or "") for m in _RAISED.finditer(everything)
    )
    text = "\n".join([all_messages, *(message for _, message in said)])
    kinds = frozenset(kind for kind, _ in said)
    return Clues(kinds, text, _unknown(said, everything), asked, python)


def _unknown(said: Iterable[tuple[str, str]], everything: str) -> dict[str, Unknown]:
    found: dict[str, Unknown] = {}
    for kind, message in said:
        if kind == "KeyError" and (match := _KEY.fullmatch(message.strip())):
            found.setdefault(match[1], Unknown("key", match[1]))
    for what, pattern in _UNKNOWN.items():
        for match in pattern.finditer(everything):
            owner = match["owner"] if "owner" in pattern.groupindex else ""
            meant = _MEANT.match(everything, match.end())
            known = found.get(match["name"])
            if known is None or not known.meant:
                more = (meant[1],) if meant else ()
                found[match["name"]] = Unknown(what, match["name"], owner, more)
    return found


def _asked(evidence: Evidence, tests: Iterable[str]) -> Iterable[str]:
    """Names of the exceptions that the tests' files expect, in order."""
    found: dict[str, None] = {}
    for path in tests:
        try:
            text = evidence.read(path).decode("utf-8", "replace") if path.endswith(".py") else ""
        except OSError:
            continue
        for match in _ASKED.finditer(text):
            name = match[1].rsplit(".", 1)[-1]
            if _ERROR.fullmatch(name):
                found.setdefault(name)
    return found


def _quotes(evidence: Evidence, tests: Iterable[str]) -> Iterable[str]:
    """Texts of the failing tests' files, those of the tests themselves first."""
    names: dict[str, set[str]] = defaultdict(set)
    for nodeid in tests:
        path, _, rest = nodeid.partition("::")
        names[path].add(rest.partition("[")[0].rpartition("::")[2])
    near: dict[str, None] = {}
    far: dict[str, None] = {}
    for path, wanted in names.items():
        try:
            tree = ast.parse(evidence.read(path) if path.endswith(".py") else b"")
        except (OSError, SyntaxError, ValueError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name in wanted:
                near |= dict.fromkeys(_texts(node))
        far |= dict.fromkeys(_texts(tree))
    return list(near | far)[:_MOST_QUOTES]


def _texts(tree: ast.AST) -> Iterable[str]:
    for node in ast.walk(tree):
        value = node.value if isinstance(node, ast.Constant) else None
        if isinstance(value, str) and _QUOTE[0] <= len(value) <= _QUOTE[1]:
            yield value


ENCODED = r"bytes|codec can't|must be encoded"
"""What a failure says that bytes or text would do where the other stands."""
_NONE = "NoneType|\\bNone\\b"
_CALLED_FOR: dict[str, tuple[str, str, float]] = {
    # kind of edit: kinds of exceptions, pattern of messages, how much likelier it is then
    "lookup": (
        "KeyError IndexError StopIteration ZeroDivisionError",
        r"not in (?:list|deque)|not found|empty|not in tuple|x not in|not enough values",
        40.0,
    ),
    "none": ("", "NoneType", 40.0),
    "guard": ("KeyError IndexError StopIteration ZeroDivisionError", "NoneType|empty", 4.0),
    "presence": ("", "NoneType", 15.0),
    "interpolate": ("", r"\{[A-Za-z_]\w*[^{}\s]*\}", 10.0),
    "fallback": ("", _NONE, 3.0),
    "text": (
        "",
        r"to unpack|can only concatenate|expected str|must be str|unsupported operand|"
        r"invalid literal|could not convert|arguments converted|arguments for format",
        15.0,
    ),
    "await": ("", r"never awaited|coroutine|async_generator|__aenter__|__aiter__", 30.0),
    "encoding": ("UnicodeDecodeError UnicodeEncodeError", ENCODED, 20.0),
    "exception": ("", r"DID NOT RAISE|not raised", 3.0),
    "result": ("", _NONE, 10.0),
    "copy": ("", r"changed size during|mutated during", 15.0),
    "key": ("", "not supported between", 10.0),
    "super": ("AttributeError", "__init__", 8.0),
}

_VERDICTS = frozenset({"AssertionError"})
_ASKED_FOR = 4.0
_LEFT_OUT = 0.02
"""A line that raised is seldom one too many, and without it the check may well pass."""


def lift(kind: str, clues: Clues) -> float:
    """How much likelier than usual a repair of this kind is, given what the failure says."""
    crashed = bool(clues.kinds - _VERDICTS)
    if kind == "delete" and crashed:
        return _LEFT_OUT
    if kind == "exception" and crashed and clues.asked:
        return _ASKED_FOR
    exceptions, messages, factor = _CALLED_FOR.get(kind, ("", "", 1.0))
    called = clues.kinds.intersection(exceptions.split()) or (messages and clues.says(messages))
    return factor if called else 1.0
