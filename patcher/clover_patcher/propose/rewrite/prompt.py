"""What a conversing model reads to repair a failure: the failure, the test, the suspect functions.

The layout follows what small models answer best to: whole functions in fenced blocks headed
`path::qualname`, and nothing else asked for (measured by Aider's polyglot benchmark and
arXiv:2604.27296; see docs/log.md). The budget is in characters, nearest evidence first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate

from clover_engine.line_ends import to_lf
from clover_patcher.locate.evidence import Evidence
from clover_patcher.locate.functions import Function, functions, grammar_of
from clover_patcher.types import Outcome, TestFailure

_FROM = re.compile(r"^from\s+([\w.]+)\s+import\s+([^\n]+)", re.MULTILINE)
_SYSTEM = (
    "You repair programs. You answer with the corrected functions only: each one whole, in a"
    " fenced code block below the heading that it was shown with. Keep names, signatures and"
    " comments. Change as little as possible. Never change a test."
)
_MESSAGE, _TEST, _OUTPUT = 1_200, 2_400, 1_600
"""Characters of a failure's message, of the test, of what the check printed."""
_LONGEST = 9_000
"""Characters of a function that is still shown."""
_MOST = 24
"""So many suspect functions are looked for: more than a run asks about."""
_LONG = 3_000
"""From so many characters on a function is edited by search: a processor writes ten tokens a
second."""
_EDITS = (
    "Do not write {names} again, which is long: below its heading answer with the lines that change"
    " alone, copied exactly, and the new ones:\n"
    "```\n<<<<<<< SEARCH\nold lines\n=======\nnew lines\n>>>>>>> REPLACE\n```"
)


@dataclass(frozen=True, slots=True)
class Shown:
    """One suspect function of a file."""

    path: str
    qualname: str
    code: str
    language: str
    score: float

    @property
    def heading(self) -> str:
        return f"{self.path}::{self.qualname}" if self.qualname else self.path


def suspects(evidence: Evidence, texts: Mapping[str, str]) -> list[Shown]:
    """Suspect functions, most suspicious first; code outside functions as the whole file.

    `texts` are the files that may be changed, with line feeds only.
    """
    found: dict[tuple[str, str], Shown] = {}
    parsed: dict[str, _Functions] = {}
    for at in evidence.locations:
        if len(found) == _MOST:
            break
        text = texts.get(at.path)
        language = grammar_of(at.path, (text or "").encode().split(b"\n", 1)[0])
        if text is None or language is None:
            continue
        if at.path not in parsed:
            parsed[at.path] = _Functions.of(language, text.encode())
        code, function = parsed[at.path].code, parsed[at.path].around(at.line)
        name = function.qualname if function else ""
        if (at.path, name) in found:
            continue
        if function is None and (len(text) > _LONGEST or any(at.path == p for p, _ in found)):
            continue
        start = code.rfind(b"\n", 0, function.outer_start) + 1 if function else 0
        shown = code[start : function.outer_end].decode() if function else text
        if len(shown) <= _LONGEST:
            found[at.path, name] = Shown(at.path, name, shown, language, at.score)
    return list(found.values())


@dataclass(frozen=True, slots=True)
class _Functions:
    """A file's functions, parsed once, and where its lines start."""

    code: bytes
    inside: Sequence[Function]
    starts: Sequence[int]

    @classmethod
    def of(cls, language: str, code: bytes) -> _Functions:
        starts = [0, *accumulate(len(line) + 1 for line in code.split(b"\n"))]
        inside = [f for f in functions(language, code) if not f.is_class]
        return cls(code, inside, starts)

    def around(self, line: int) -> Function | None:
        """The outermost function around a line."""
        last = len(self.starts) - 1
        start, end = self.starts[min(line - 1, last)], self.starts[min(line, last)] - 1
        return next((f for f in self.inside if f.outer_start <= end and start < f.outer_end), None)


def first_prompt(
    evidence: Evidence, shown: Sequence[Shown], withheld: Callable[[str], bool]
) -> list[tuple[str, str]]:
    """(role, text) of the conversation that asks for a repair of these functions.

    Of files that are `withheld` nothing is shown.
    """
    parts = [
        "A check fails. Repair the program so that it passes.",
        "",
        f"Check: {evidence.check.display}",
    ]
    parts += _failures(evidence.baseline)
    for path, name, code in _tests(evidence, withheld):
        parts += [
            "",
            f"The test, `{path}{'::' if name else ''}{name}` (it stays as it is):",
            _fence(code, path),
        ]
    parts += ["", "The functions that may be wrong:"]
    for one in shown:
        parts += ["", f"`{one.heading}`", f"```{one.language}", one.code.rstrip("\n"), "```"]
    used = _signatures(evidence, shown, withheld)
    if used:
        parts += ["", "Signatures of what they use:", "```python", *used, "```"]
    parts += ["", "Answer with the corrected function or functions, each below its heading."]
    if long := [one.heading for one in shown if len(one.code) > _LONG]:
        parts.append(_EDITS.format(names=", ".join(f"`{name}`" for name in long)))
    return [("system", _SYSTEM), ("user", "\n".join(parts))]


def next_prompt(
    before: Sequence[tuple[str, str]], answer: str, outcome: Outcome | None, refused: Sequence[str]
) -> list[tuple[str, str]]:
    """The conversation with an answer that did not help, and what came of it."""
    if outcome is None:
        said = "That answer could not be used: " + "; ".join(refused) + "."
    else:
        said = "\n".join(["With this change the check still fails:", *_failures(outcome)])
    ask = f"{said}\n\nAnswer again with the corrected functions, each whole, below its heading."
    return [*before, ("assistant", answer), ("user", ask)]


def _failures(outcome: Outcome) -> list[str]:
    parts: list[str] = []
    for failure in outcome.failures[:2]:
        name = f"`{failure.nodeid}` fails" if failure.nodeid else "It fails"
        parts += ["", f"{name} with {failure.kind}:", _cut(failure.message, _MESSAGE)]
        parts += [
            f"  {frame.path}:{frame.line} in {frame.function}" for frame in failure.frames[-6:]
        ]
    is_told = any(failure.message and failure.nodeid for failure in outcome.failures)
    if not is_told and outcome.output.strip():
        parts += ["", "It printed:", "```text", _cut(outcome.output, _OUTPUT), "```"]
    return parts


def _tests(evidence: Evidence, withheld: Callable[[str], bool]) -> list[tuple[str, str, str]]:
    """The source of the first failing test."""
    for failure in evidence.baseline.failures:
        where = _test_of(failure)
        if where is None or withheld(where[0]):
            continue
        path, name = where
        try:
            text = to_lf(evidence.read(path).decode("utf-8", "replace"))
        except (OSError, KeyError):
            continue
        code = text.encode()
        for function in functions(grammar_of(path) or "python", code):
            if function.name == name and not function.is_class:
                start = code.rfind(b"\n", 0, function.outer_start) + 1
                shown = code[start : function.outer_end].decode()
                return [(path, function.qualname, _cut(shown, _TEST))]
    permission = evidence.permission
    for path in sorted(permission.checks - permission.free):  # a script: all of it
        if grammar_of(path) not in (None, "python") and not withheld(path):
            with suppress(OSError, KeyError):
                return [(path, "", _cut(evidence.read(path).decode("utf-8", "replace"), _TEST))]
    return []


def _test_of(failure: TestFailure) -> tuple[str, str] | None:
    path, _, rest = failure.nodeid.partition("::")
    if rest:
        return path, rest.rpartition("::")[2].partition("[")[0]
    for frame in failure.frames:  # unittest names, scripts: the outermost frame of ours
        return frame.path, frame.function
    return None


def _signatures(
    evidence: Evidence, shown: Sequence[Shown], withheld: Callable[[str], bool]
) -> list[str]:
    """Heads of the functions that the suspects call, from their own files and imported ones."""
    called = set(re.findall(r"(\w+)\s*\(", "\n".join(one.code for one in shown)))
    have = {(one.path, one.qualname) for one in shown}
    found: list[str] = []
    own = list(dict.fromkeys(one.path for one in shown))
    for path in [*own, *_imported(evidence, own, called)]:
        if withheld(path) or grammar_of(path) != "python":
            continue
        try:
            code = evidence.sources.get(path) or evidence.read(path)
        except (OSError, KeyError):
            continue
        for function in functions("python", code):
            if function.name in called and (path, function.qualname) not in have:
                head = code[function.start : function.body_start].decode("utf-8", "replace")
                found.append(f"{' '.join(head.split())} ...  # {path}::{function.qualname}")
    return found[:12]


def _imported(evidence: Evidence, paths: Sequence[str], called: Set[str]) -> list[str]:
    """Files of the repository from which the given ones import a name that is called."""
    modules: set[str] = set()
    for path in paths:
        text = evidence.sources.get(path, b"").decode("utf-8", "replace")
        for module, names in re.findall(
            r"^from\s+([\w.]+)\s+import\s+([^\n]+)", text, re.MULTILINE
        ):
            if called & set(re.findall(r"\w+", names)):
                modules.add(module.strip(".").replace(".", "/"))
    ends = tuple(f"/{module}{end}" for module in modules for end in (".py", "/__init__.py"))
    found = (path for path in evidence.permission.free if f"/{path}".endswith(ends))
    return sorted(path for path in found if path not in paths)[:4] if modules else []


def _fence(code: str, path: str) -> str:
    return f"```{grammar_of(path) or ''}\n{code.rstrip(chr(10))}\n```"


def _cut(text: str, limit: int) -> str:
    """The text's beginning and end, where it is too long."""
    if len(text) <= limit:
        return text
    return f"{text[: limit // 3].rstrip()}\n[…]\n{text[-2 * limit // 3 :].lstrip()}"
