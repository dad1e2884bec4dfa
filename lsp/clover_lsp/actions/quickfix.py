"""Small edits that make a diagnostic go away, found without running any code of the repository.

Candidates come from the linter's own fixes, the names in reach, and the patcher's templates; the
model ranks them and vetoes. Only those are shown that are known to help: the linter, asked again
about the edited text, must not report the diagnostic any more nor anything new; an undefined name
must be gone and no other come; broken syntax must parse. For diagnostics that none of this can
judge (a type checker's), only a fix that the message itself names is offered. Python only.
"""

from __future__ import annotations

import ast
import math
import re
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice

from clover_engine.api import CancelToken, Engine, ScoreRequest
from clover_engine.errors import EngineError
from clover_lsp.actions.diff import apply_edits, minimal_edits
from clover_lsp.actions.imports import missing_imports
from clover_lsp.actions.linter import PYFLAKES, Finding, is_better, lint
from clover_lsp.actions.names import Names
from clover_lsp.actions.scopes import Occurrence
from clover_lsp.actions.tokens import tokenize
from clover_lsp.actions.typos import is_undefined_name, misspelt, undefined_at
from clover_lsp.context.types import Edit, Problem
from clover_lsp.documents.text import Lines
from clover_lsp.isolated.outside import Outside

MOST = 3
"""Fixes shown for one diagnostic."""
_TRIED = 24
"""Candidates that the linter is asked about."""
_ENUMERATED = 300
_SCORE_S = 1.5
_SCORED = 48
_REMOVES = frozenset({"delete", "drop", "move", "order", "guard", "insert", "enclose", "group"})
"""Kinds of templates that silence a diagnostic rather than repair it."""
_TYPE_CHECKERS = frozenset({"mypy", "pyright", "basedpyright", "pylance", "ty", "pyrefly"})
_HINT = re.compile(r"(?:[Dd]id you mean|[Mm]aybe|[Pp]erhaps|[Uu]se)[^\"'`“‘]{0,12}[\"'`“‘]([\w.]+)")
_QUOTED = re.compile(r"[\"'`“‘]([\w.]+)[\"'`”’]")


@dataclass(frozen=True, slots=True)
class Fix:
    """Edits in characters of the text that was asked about."""

    title: str
    edits: tuple[Edit, ...]
    from_model: bool = False
    is_sure: bool = False
    """The linter calls its own fix safe, or there is no other way."""


@dataclass(frozen=True, slots=True)
class Question:
    """A diagnostic of a text. `start` and `end` are the characters that it underlines."""

    text: str
    path: str | None
    problem: Problem
    start: int
    end: int


def quick_fixes(
    question: Question,
    engine: Engine | None = None,
    cancel: CancelToken | None = None,
    deadline_s: float = 8.0,
) -> list[Fix]:
    """Fixes that are known to help, best first; mostly one, often none. Blocks."""
    if question.text.startswith("\ufeff"):
        return [_shifted(fix) for fix in quick_fixes(_without_mark(question), engine, cancel)]
    search = _Search(question, engine, cancel or CancelToken(), time.monotonic() + deadline_s)
    return search.run()


def isolated_fixes(question: Question, outside: Outside) -> list[Fix]:
    """`quick_fixes` in a helper process: parsing a large file holds the interpreter's lock."""
    return quick_fixes(question, outside.engine, outside.cancel)


class _Search:
    def __init__(
        self, question: Question, engine: Engine | None, cancel: CancelToken, end: float
    ) -> None:
        self.question, self.text = question, question.text
        self.engine, self.cancel, self.end = engine, cancel, end

    @property
    def is_over(self) -> bool:
        return self.cancel.cancelled or time.monotonic() > self.end

    def run(self) -> list[Fix]:
        problem = self.question.problem
        if not parses(self.text):
            return self._first(self._syntax(), lambda after: parses(after))
        options, findings, finding = self._finding()
        if is_undefined_name(problem):
            return self._undefined()
        if hinted := self._hinted():
            return [hinted]
        if finding is None:
            return []
        own = self._own_fix(finding)

        def helps(after: str) -> bool:
            again = lint(after, self.question.path, options) if parses(after) else None
            return again is not None and is_better(findings, again, finding)

        fixes = self._first(own, helps)
        return fixes or self._first(islice(self._templates(), _TRIED), helps)

    def _finding(self) -> tuple[tuple[str, ...], list[Finding], Finding | None]:
        """What ruff says of the diagnostic: with the project's rules, else with its basic ones."""
        problem, path = self.question.problem, self.question.path
        for options in ((), PYFLAKES):
            findings = lint(self.text, path, options) or []
            for finding in findings:
                same = finding.code == problem.code or finding.message == problem.message
                if same and finding.line == problem.line:
                    return options, findings, finding
        return (), [], None

    def _own_fix(self, finding: Finding) -> Iterator[Fix]:
        if finding.fix:
            title = finding.fix_title or f"Fix {finding.code}"
            if not finding.fix_is_safe:
                title += " (may change what the code does)"
            yield Fix(title, finding.fix, is_sure=finding.fix_is_safe)

    def _hinted(self) -> Fix | None:
        """The fix that the message names: `"lenght"; maybe "length"?`."""
        message = self.question.problem.message
        hint = _HINT.search(message)
        first, last = self._line()
        for wrong in _QUOTED.findall(message[: hint.start()] if hint else ""):
            found = [
                first + m.start()
                for m in re.finditer(rf"\b{re.escape(wrong)}\b", self.text[first:last])
            ]
            if hint and len(found) == 1 and wrong != hint[1]:
                edit = Edit(found[0], found[0] + len(wrong), hint[1])
                if parses(apply_edits(self.text, [edit])):
                    return Fix(f"Change {wrong} to {hint[1]}", (edit,), is_sure=True)
        return None

    def _undefined(self) -> list[Fix]:
        names, problem = Names(self.text), self.question.problem
        places = undefined_at(names, self.text, problem.line, problem.message)
        inside = [p for p in places if p.start < self.question.end and self.question.start < p.end]
        places = inside or places
        if not places:
            return []
        place = places[0]
        before = Counter(o.name for o in names.undefined())

        def helps(after: str) -> bool:
            again = Counter(o.name for o in Names(after).undefined())
            return again[place.name] < before[place.name] and not again - before and parses(after)

        return self._first(self._names(names, place), helps)

    def _names(self, names: Names, place: Occurrence) -> Iterator[Fix]:
        """An import, names that look alike, an attribute of the class; no guess of the model's:
        of those, none was right in `bench/editor/quick_fixes.py`."""
        close = misspelt(names, place)
        for statement, edit in islice(missing_imports(names, self.text, place), 1):
            yield Fix(f"Add `{statement}`", (edit,), is_sure=not close)
        for word in close:
            edit = Edit(place.start, place.end, word)
            yield Fix(f"Change {place.name} to {word}", (edit,), is_sure=len(close) == 1)
        owner = place.scope.owner
        if owner is not None and any(
            names.symbol(o).scope is owner for o in names.by_name[place.name]
        ):
            new = f"{_receiver(place)}.{place.name}"
            yield Fix(f"Change {place.name} to {new}", (Edit(place.start, place.end, new),))

    def _templates(self) -> Iterator[Fix]:
        """The patcher's edits of the underlined part that the model prefers to what is there.

        Without a model none: too many edits silence a linter without repairing anything.
        """
        found = [
            (kind, edit)
            for kind, edit in self._pool_edits()
            if kind not in _REMOVES and self._touches(edit) and self._keeps(edit)
        ]
        scores = self._scores([edit for _, edit in found])
        for edit, gain in sorted(scores.items(), key=lambda pair: -pair[1]):
            if gain > 0:
                title = f"Change to `{self._new_line(edit).strip()}`"
                yield Fix(title, (edit,), from_model=True)

    def _syntax(self) -> Iterator[Fix]:
        """Lost tokens put in, the model's favourites first; others only if that is no way."""
        found = [edit for _, edit in self._pool_edits()]
        added = [edit for edit in found if edit.start == edit.end] or found
        scores = self._scores(added)
        for edit in sorted(added, key=lambda e: -scores.get(e, -math.inf)):
            title = f"Change to `{self._new_line(edit).strip()}`"
            yield Fix(title, (edit,), from_model=bool(scores))

    def _pool_edits(self) -> Iterator[tuple[str, Edit]]:
        """Every template edit of the line that parses, likeliest first."""
        data = self.text.encode("utf-8", "surrogatepass")
        # Imported late: the server must start fast.
        from clover_patcher.edits import apply_edits as apply_bytes
        from clover_patcher.propose.pool import CandidatePool
        from clover_patcher.types import Location

        location = Location("it.py", self.question.problem.line + 1, 1.0)
        pool = CandidatePool({"it.py": data}, [location])
        pool.open_line()
        for _ in range(_ENUMERATED):
            candidate = None if self.is_over else pool.take()
            if candidate is None:
                return
            after = apply_bytes(data, candidate.edits).decode("utf-8", "surrogatepass")
            edits = minimal_edits(self.text, after)
            if len(edits) == 1:
                yield candidate.kind, edits[0]

    def _scores(self, edits: list[Edit]) -> dict[Edit, float]:
        """How much likelier than the present line the model finds each new line, in nats.

        Empty without a model, and where it does not answer in time.
        """
        first, last = self._line()
        inside = [e for e in edits if first <= e.start and e.end <= last][:_SCORED]
        if self.engine is None or not inside:
            return {}
        present = self.text[first:last]
        request = ScoreRequest(
            self.text[:first],
            self.text[last:],
            (present, *(self._new_line(edit) for edit in inside)),
            present,
            max(0.1, min(_SCORE_S, self.end - time.monotonic())),
        )
        try:
            now, *scores = self.engine.score(request, self.cancel).logprobs
        except EngineError:
            return {}
        pairs = zip(inside, scores, strict=True)
        return {edit: s - now for edit, s in pairs if s is not None and now is not None}

    def _first(self, fixes: Iterable[Fix], helps: Callable[[str], bool]) -> list[Fix]:
        """The first few that help, each text once."""
        good: dict[str, Fix] = {}
        for fix in fixes:
            if len(good) == MOST or self.is_over:
                break
            after = apply_edits(self.text, fix.edits)
            if after not in good and helps(after):
                good[after] = fix
        return [] if self.cancel.cancelled else list(good.values())

    def _keeps(self, edit: Edit) -> bool:
        """Whether the code stays: models like short lines, and an empty one offends no linter."""
        gone = tokenize(self.text[edit.start : edit.end], "python")
        return len(tokenize(edit.new, "python")) >= len(gone) - 1

    def _touches(self, edit: Edit) -> bool:
        return edit.start <= self.question.end and self.question.start <= edit.end

    def _line(self) -> tuple[int, int]:
        """The diagnostic's line without its end."""
        lines = Lines(self.text, "utf-32")
        number = min(self.question.problem.line, len(lines) - 1)
        return lines.starts[number], lines.end(number)

    def _new_line(self, edit: Edit) -> str:
        first, last = self._line()
        return self.text[first : edit.start] + edit.new + self.text[edit.end : last]


def may_help(problem: Problem) -> bool:
    """Whether there is any way to know that a fix of the diagnostic helps; costs nothing."""
    judged = is_undefined_name(problem) or _HINT.search(problem.message) is not None
    typed = problem.source.lower() in _TYPE_CHECKERS
    return judged or not typed or (not problem.code and problem.severity == "error")


def parses(text: str) -> bool:
    """Whether Python could compile the text, as far as its grammar goes."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _receiver(place: Occurrence) -> str:
    scope = place.scope
    while not scope.receiver and scope.parent is not None:
        scope = scope.parent
    return scope.receiver or "self"


def _without_mark(question: Question) -> Question:
    return replace(
        question,
        text=question.text[1:],
        start=max(0, question.start - 1),
        end=max(0, question.end - 1),
    )


def _shifted(fix: Fix) -> Fix:
    edits = tuple(Edit(e.start + 1, e.end + 1, e.new) for e in fix.edits)
    return replace(fix, edits=edits)
