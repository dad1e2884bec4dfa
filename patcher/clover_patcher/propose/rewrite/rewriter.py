"""The proposer that asks a conversing model for whole functions, in samples and rounds.

First one greedy answer about the most suspicious functions. An answer whose candidate fails is
given its new failure back, at most twice; between such rounds come samples with a temperature and
other suspects. Answers that say the same as an earlier one are not tried again. Whatever an
answer proposes is validated as every other candidate is: the check decides.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import accumulate

from clover_engine.api import CancelToken
from clover_engine.errors import EngineError, RequestCancelled, Unsupported
from clover_engine.generation import Converses, GenerateRequest, Message
from clover_patcher.locate.evidence import Evidence
from clover_patcher.propose.rewrite.answers import read_answer
from clover_patcher.propose.rewrite.edits import edits_between, text_of
from clover_patcher.propose.rewrite.prompt import Shown, first_prompt, next_prompt, suspects
from clover_patcher.propose.rewrite.splice import splice
from clover_patcher.types import Candidate, Edit, Origin, Outcome, Validation

NAME = "rewrite"
Conversation = list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Options:
    """How much a model is asked for."""

    answers: int = 16
    """Answers of one run, rounds included."""
    rounds: int = 2
    """How often one answer gets its failure back."""
    functions: int = 3
    """Suspect functions in the first prompt, at most."""
    characters: int = 5_000
    """Their text in all; the first one may be longer."""
    temperature: float = 0.8
    top_p: float = 0.95
    patience_s: float = 20.0
    """How long an answer's validation is waited for, before another sample is asked for."""
    most_tokens: int = 1_536


@dataclass(slots=True)
class _Attempt:
    """One answer: what was asked, what came back, and how its candidate did."""

    conversation: Conversation
    shown: tuple[Shown, ...]
    round: int
    answer: str = ""
    refused: tuple[str, ...] = ()
    candidate: Candidate | None = None
    outcome: Outcome | None = None
    followed: bool = False
    done: threading.Event = field(default_factory=threading.Event)


class Rewriter:
    """A `Proposer` over any engine that converses. One run each; `propose` is called once."""

    name = NAME
    is_slow = True

    def __init__(
        self,
        engine: Converses,
        cancel: CancelToken | None = None,
        options: Options | None = None,
        withheld: Callable[[str], bool] | None = None,
    ) -> None:
        """`withheld` says of which paths the engine must see nothing."""
        self._engine = engine
        self._cancel = cancel or CancelToken()
        self._options = options or Options()
        self._withheld = withheld or (lambda _: False)
        self._attempts: list[_Attempt] = []
        self._known: set[tuple[tuple[str, str], ...]] = set()
        self._notes: list[str] = []
        self._content: dict[str, bytes] = {}
        """The bytes of the files that answers were applied to."""
        self._model = ""
        self._ended = False
        self.tokens = 0

    @property
    def is_awaited(self) -> bool:
        return not (self._ended or any(attempt.done.is_set() for attempt in self._attempts))

    @property
    def answered(self) -> bool:
        """Whether the model has given any answer."""
        return bool(self._attempts)

    @property
    def notes(self) -> Sequence[str]:
        return self._notes

    def learn(self, validation: Validation) -> None:
        for attempt in self._attempts:
            if attempt.candidate is validation.candidate:
                attempt.outcome = validation.outcome
                attempt.done.set()

    def propose(self, evidence: Evidence) -> Iterator[list[Candidate]]:
        """One candidate for each usable answer; empty batches for the others."""
        try:
            yield from self._answers(evidence)
        finally:
            self._ended = True

    def _answers(self, evidence: Evidence) -> Iterator[list[Candidate]]:
        sources = evidence.sources
        self._content = {path: sources[path] for path in sources if not self._withheld(path)}
        read = {path: text_of(path, data) for path, data in self._content.items()}
        texts = {path: text for path, text in read.items() if text is not None}
        found = suspects(evidence, texts)
        if not found:
            return
        for number in range(self._options.answers):
            if self._over(evidence) or any(_passed(a.outcome) for a in self._attempts):
                return
            attempt = self._next(evidence, found, number)
            try:
                attempt.answer = self._ask(attempt, evidence, seed=number)
            except (RequestCancelled, Unsupported):
                return
            except EngineError as exc:
                self._notes.append(f"the model was not asked for whole functions: {exc}")
                return
            attempt.candidate = self._candidate(attempt, evidence, texts)
            self._attempts.append(attempt)
            if attempt.candidate is None:
                attempt.done.set()
                yield []
            else:
                yield [attempt.candidate]
                self._wait(attempt, evidence)

    def _over(self, evidence: Evidence) -> bool:
        return self._cancel.cancelled or time.monotonic() >= evidence.deadline

    def _wait(self, attempt: _Attempt, evidence: Evidence) -> None:
        end = min(evidence.deadline, time.monotonic() + self._options.patience_s)
        while time.monotonic() < end and not self._cancel.cancelled:
            if attempt.done.wait(0.05):
                return

    def _next(self, evidence: Evidence, shown: Sequence[Shown], number: int) -> _Attempt:
        """A further round of the most promising failed answer, or a new conversation."""
        open_ = [a for a in self._attempts if not a.followed and a.round < self._options.rounds]
        failed = [a for a in open_ if a.done.is_set() and (a.outcome is not None or a.refused)]
        if failed and number % 3 != 2:  # every third answer is a fresh sample whatever came
            best = min(failed, key=lambda a: (_failures(a.outcome), -a.round))
            best.followed = True
            asked = next_prompt(best.conversation, best.answer, best.outcome, best.refused)
            return _Attempt(asked, best.shown, best.round + 1)
        fresh = sum(a.round == 0 for a in self._attempts)
        shown = _selection(shown, fresh, self._options.functions)
        shown = _within(shown, self._options.characters)
        return _Attempt(first_prompt(evidence, shown, self._withheld), tuple(shown), 0)

    def _ask(self, attempt: _Attempt, evidence: Evidence, seed: int) -> str:
        options = self._options
        greedy = not self._attempts or attempt.round > 0
        size = sum(len(one.code) for one in attempt.shown)
        request = GenerateRequest(
            tuple(Message(role, text) for role, text in attempt.conversation),  # type: ignore[arg-type]
            max_new_tokens=min(options.most_tokens, 256 + size // 2),
            thinking=False,
            temperature=0.0 if greedy else options.temperature,
            top_p=1.0 if greedy else options.top_p,
            seed=seed,
            deadline_s=max(0.1, evidence.deadline - time.monotonic()),
        )
        result = self._engine.generate(request, self._cancel)
        self.tokens += result.stats.tokens
        self._model = result.model
        return result.text

    def _candidate(
        self, attempt: _Attempt, evidence: Evidence, texts: Mapping[str, str]
    ) -> Candidate | None:
        """What the answer changes, if that is something new."""
        asked = [(one.path, one.qualname) for one in attempt.shown]
        answer = read_answer(attempt.answer)
        named = {block.path for block in answer.blocks}
        named |= {replacement.path for replacement in answer.replacements}
        spliced = splice(answer, {**texts, **self._others(named, evidence, texts)}, asked)
        attempt.refused = spliced.complaints
        if not spliced.texts:
            attempt.refused = attempt.refused or ("the answer changes nothing",)
            return None
        key = tuple(sorted(spliced.texts.items()))
        if key in self._known:
            attempt.refused = ("this was tried already, and failed",)
            return None
        self._known.add(key)
        before = {path: self._content[path] for path in spliced.texts}
        try:
            edits = [
                edit
                for path, text in spliced.texts.items()
                for edit in edits_between(path, before[path], text)
            ]
        except UnicodeEncodeError as exc:
            attempt.refused = (f"the file's encoding has no {exc.object[exc.start]!r}",)
            return None
        return _as_candidate(tuple(edits), before, self._model)

    def _others(
        self, named: set[str], evidence: Evidence, texts: Mapping[str, str]
    ) -> dict[str, str]:
        """Files that are no suspects and that the answer names: they may be changed as well."""
        for path in evidence.permission.free - self._content.keys():
            is_named = any(path == name or name.endswith("/" + path) for name in named)
            if is_named and not self._withheld(path):
                with suppress(OSError, KeyError):  # a run may be writing it: then the next time
                    self._content[path] = evidence.read(path)
        others = {path: self._content[path] for path in self._content.keys() - texts.keys()}
        read = {path: text_of(path, data) for path, data in others.items()}
        return {path: text for path, text in read.items() if text is not None}


def _selection(shown: Sequence[Shown], number: int, most: int) -> list[Shown]:
    """Which suspects the n-th conversation is about: the first ones, the first, the next ones …"""
    if number == 0 or len(shown) == 1:
        return list(shown[:most])
    if number % 2:
        return [shown[(number // 2) % len(shown)]]
    start = (number // 2 * most) % len(shown)
    return list(shown[start : start + most])


def _within(shown: Sequence[Shown], most: int) -> list[Shown]:
    """The first ones that are together no longer than that, at least one."""
    sizes = accumulate(len(one.code) for one in shown)
    return [
        one for n, (one, size) in enumerate(zip(shown, sizes, strict=True)) if not n or size <= most
    ]


def _passed(outcome: Outcome | None) -> bool:
    return outcome is not None and outcome.status == "passed"


def _failures(outcome: Outcome | None) -> float:
    return float("inf") if outcome is None else float(len(outcome.failures))


def _as_candidate(edits: tuple[Edit, ...], files: Mapping[str, bytes], model: str) -> Candidate:
    first = edits[0]
    line = files[first.path].count(b"\n", 0, first.start) + 1
    shown = next((e.new for e in edits if e.new.strip()), b"").decode("utf-8", "replace")
    origin = Origin("model", model)
    return Candidate(edits, line, kind=NAME, text=shown, proposer=NAME, origin=origin)
