"""Runs a linter or type checker in a worktree: its diagnostics are the failures.

A candidate passes where the diagnostics in question are gone and no other one has come, anywhere.
Lines move with an edit, so that diagnostics are compared by rule, file and message, and counted.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from clover_patcher.check.command import Check
from clover_patcher.check.forkserver import Job, Reply, ServerLost
from clover_patcher.check.lint_output import Finding, read_findings
from clover_patcher.check.lints import SCRATCH, Linter
from clover_patcher.check.prepared import Prepared, View
from clover_patcher.check.runs import last_line, tail
from clover_patcher.check.tool_fixes import Replacement, tool_candidate
from clover_patcher.errors import UsageError
from clover_patcher.types import (
    Candidate,
    Diagnostic,
    Edit,
    Frame,
    Origin,
    Outcome,
    Program,
    Status,
    TestCoverage,
    TestFailure,
)

_FIRST_S = 300.0
"""A cold type checker may read a whole environment first."""
_SHORTEST_S, _LONGEST_S = 5.0, 60.0
_FACTOR = 3.0
_MOST_BYTES = 64 << 20
Key = tuple[str, str, str]


class LintRunner(Prepared):
    """A linter and a worktree to run it in; a `Runner`.

    `only` narrows the failures to the diagnostics of some lines (and rules, where `code` is set):
    the others may stay. Raises `UsageError` where the tool itself fails or reports none of them.
    """

    def __init__(
        self,
        check: Check,
        worktree: Path,
        *,
        timeout_s: float | None = None,
        tmp: Path,
        original_root: Path | None = None,
        cwd: str = "",
        view: View | None = None,
        only: Sequence[Diagnostic] = (),
    ) -> None:
        assert check.linter is not None, "not a linter's command"
        self.linter: Linter = check.linter
        self.only = tuple(only)
        self.targets: tuple[Diagnostic, ...] = ()
        """What the baseline reports and a candidate must remove; empty before the baseline."""
        folder = Path(tempfile.mkdtemp(prefix="", dir=tmp))
        argv = tuple(word.replace(SCRATCH, str(folder)) for word in self.linter.argv)
        self._fixes: list[tuple[Diagnostic, tuple[Replacement, ...]]] = []
        self._before: Counter[Key] = Counter()
        self._codes: frozenset[int] = frozenset({0})
        self._seconds = 0.0
        super().__init__(
            replace(check, argv=argv),
            worktree,
            tmp=folder,
            timeout_s=timeout_s,
            original_root=original_root,
            cwd=cwd,
            view=view,
        )
        self.check = check

    @property
    def failing(self) -> tuple[str, ...]:
        """The diagnostics in question, as `FILE:LINE:RULE`."""
        return tuple(_name(said) for said in self.targets)

    @property
    def limit_s(self) -> float:
        """Wall time that a candidate's run may take."""
        return self.timeout_s or min(max(_FACTOR * self._seconds, _SHORTEST_S), _LONGEST_S)

    def baseline(self) -> Outcome:
        """What the tool says about the worktree as it is."""
        started = time.monotonic()
        reply, findings = self._report(self.timeout_s or _FIRST_S)
        found = None if findings is None else [self._diagnostic(one) for one in findings]
        self._seconds = time.monotonic() - started
        said = tail(self._output) or tail(self._complaints)
        code = reply.code if reply.code is not None else -1
        if not found and (reply.timeout or reply.code is None or code >= self.linter.broken):
            why = "it does not end" if reply.timeout else _complaint(said) or f"exit {code}"
            raise UsageError(f"{self.linter.name} cannot run: {why}; correct the check")
        pairs = [(said, one.fix) for said, one in zip(found or (), findings or (), strict=True)]
        self._fixes = [(said, fix) for said, fix in pairs if self._wanted(said)]
        self.targets = tuple(said for said, _ in self._fixes)
        self._before = Counter(_key(said) for said in found or ())
        self._codes = frozenset({0, 1, code})
        if self.only and found and not self.targets:
            raise UsageError(
                f"{self.linter.name} says nothing about the lines named; it says "
                f"{_name(found[0])} ({found[0].message}) and {len(found) - 1} more"
            )
        if found is None and code:  # not the form that was asked for: only the exit code counts
            self._codes = frozenset({0})
            silent = TestFailure("", f"exit {code}", last_line(said))
            return Outcome("failed", self._seconds, (silent,), 0, said)
        return self._outcome(self.targets, said)

    def look(self) -> Outcome:
        """The same: a tool needs no preparation."""
        return self.baseline()

    def prepare(self) -> None:
        """Does nothing: see `look`."""

    def run(self, edits: Sequence[Edit], *, only_failing: bool = True) -> Outcome:
        """Runs the tool with the edits in place, and restores the original bytes.

        Raises as `Editor.edited` does.
        """
        with self._editor.edited(edits):
            reply, findings = self._report(self.limit_s)
        found = None if findings is None else [self._diagnostic(one) for one in findings]
        said = tail(self._output)
        if reply.timeout:
            return self._ended("timeout", "timeout", f"still running after {reply.seconds:.1f} s")
        silent = found is None and bool(self.targets)
        broken = not found and (reply.code or 0) >= self.linter.broken
        if silent or broken or reply.code not in self._codes:
            ending = f"exit {reply.code}" if reply.code is not None else f"signal {reply.signal}"
            return self._ended("error", ending, last_line(said))
        return self._outcome(self._remaining(found or ()), said)

    def proposals(self) -> list[Candidate]:
        """The tool's own repair, where it has one for all that is in question, in one file."""
        paths = {said.path for said in self.targets}
        if len(paths) != 1 or not all(fix for _, fix in self._fixes):
            return []
        (path,) = paths
        try:
            data = (self.worktree / path).read_bytes()
        except OSError:
            return []
        replacements = [part for _, fix in self._fixes for part in fix]
        found = tool_candidate(path, data, self.targets[0].line, replacements)
        if found is None:
            return []
        return [replace(found, origin=Origin("tool", self.linter.name))]

    def trace(self) -> list[TestCoverage]:
        """Nothing: a linter does not run the program."""
        return []

    def programs(self) -> list[Program]:
        """None: a linter does not run the program."""
        return []

    def confirm(self, first: LintRunner) -> Outcome:
        """The tool on the worktree as it is, measured by the baseline that `first` ran."""
        self.adopt(first)
        return self.run([])

    def adopt(self, other: LintRunner) -> None:
        """Takes over what another runner of the same check learned from its baseline."""
        self.targets, self._before = other.targets, other._before
        self._codes, self._seconds = other._codes, other._seconds

    # --- what the diagnostics mean --------------------------------------------------------------

    def _wanted(self, diagnostic: Diagnostic) -> bool:
        return not self.only or any(
            (one.path, one.line) == (diagnostic.path, diagnostic.line)
            and one.code in ("", diagnostic.code)
            for one in self.only
        )

    def _remaining(self, diagnostics: Sequence[Diagnostic]) -> list[Diagnostic]:
        """Diagnostics that have come, and those in question that have stayed."""
        now = Counter(_key(diagnostic) for diagnostic in diagnostics)
        allowed = self._before - Counter(_key(diagnostic) for diagnostic in self.targets)
        too_many = now - allowed
        left = []
        for diagnostic in diagnostics:
            if too_many[_key(diagnostic)]:
                too_many[_key(diagnostic)] -= 1
                left.append(diagnostic)
        return left

    def _outcome(self, diagnostics: Sequence[Diagnostic], output: str) -> Outcome:
        failures = tuple(
            TestFailure(
                _name(one), one.code or "error", one.message, (Frame(one.path, one.line, ""),)
            )
            for one in diagnostics
        )
        return Outcome("failed" if diagnostics else "passed", self._seconds, failures, 0, output)

    def _ended(self, status: Status, kind: str, message: str) -> Outcome:
        return Outcome(status, self._seconds, (TestFailure("", kind, message),))

    # --- processes --------------------------------------------------------------------------------

    @property
    def _output(self) -> Path:
        return self._tmp / "stdout"

    @property
    def _complaints(self) -> Path:
        return self._tmp / "stderr"

    def _report(self, limit_s: float) -> tuple[Reply, list[Finding] | None]:
        """Runs the tool; its findings, or None where its output cannot be read."""
        reply = self._ask(Job(output=str(self._complaints), stdout=str(self._output), wall=limit_s))
        text = ""
        with suppress(OSError), self._output.open("rb") as file:
            text = file.read(_MOST_BYTES).decode("utf-8", "replace")
        return reply, read_findings(text, self.linter.form)

    def _ask(self, job: Job) -> Reply:
        for _ in range(2):
            self._require_going()
            try:
                return self._server.run(job)
            except ServerLost:
                self._replace_server()
        return Reply(signal=9)

    def _diagnostic(self, finding: Finding) -> Diagnostic:
        message = finding.message.replace(f"{self.worktree}{os.sep}", "")
        path = self._relative(finding.path)
        return Diagnostic(
            path, finding.line, message, finding.code, self.linter.name, finding.column
        )

    def _relative(self, path: str) -> str:
        """Relative to the worktree where it is inside, else as the tool says it."""
        full = os.path.normpath(self._options.folder / path)
        for root in (self.worktree, self._original):
            if root is not None and full.startswith(f"{root}{os.sep}"):
                return os.path.relpath(full, root).replace(os.sep, "/")
        return full


def _complaint(output: str) -> str:
    """The line that names the error, else the last one."""
    lines = [line.strip() for line in output.splitlines()]
    return next((line for line in lines if "error:" in line.lower()), last_line(output))


def _key(diagnostic: Diagnostic) -> Key:
    return diagnostic.code, diagnostic.path, diagnostic.message


def _name(diagnostic: Diagnostic) -> str:
    return ":".join(filter(None, (diagnostic.path, str(diagnostic.line), diagnostic.code)))
