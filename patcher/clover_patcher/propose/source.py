"""Where the candidates of a repair come from, best first.

Templates enumerate edits of the suspicious lines; the model scores them line by line and adds
its own fills, in a thread of its own so that candidates can be tried meanwhile. Token counts of the
repository weigh them too (`counts.py`). A candidate that the model has not scored yet is taken for
a typical one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from clover_engine.api import CancelToken, Engine
from clover_patcher.locate.counts import RepositoryCounts
from clover_patcher.locate.evidence import Evidence
from clover_patcher.locate.functions import grammar_of
from clover_patcher.propose.clues import Clues, clues_in
from clover_patcher.propose.grammar import Grammar
from clover_patcher.propose.metered import MeteredEngine
from clover_patcher.propose.pool import CandidatePool
from clover_patcher.propose.questions import AskOptions, Questions
from clover_patcher.propose.rank import DEFAULT, Weights
from clover_patcher.stopping import LinkedToken
from clover_patcher.types import Candidate, EngineUse, Location, Validation

_LINES_AHEAD = 12


@dataclass(frozen=True, slots=True)
class Options:
    """How the search is paced; the defaults suit checks of tens of milliseconds."""

    batch: int = 8
    first_wait_s: float = 1.0
    """How long the first batch waits for the engine; later ones wait `wait_s`."""
    wait_s: float = 0.25
    counts_wait_s: float = 1.5
    """How long token counts are waited for; without them candidates are less well ranked."""
    answers_per_batch: int = 2
    hedge: int = 4
    """With an engine, every so many-th candidate ignores the model: a wrong model costs little."""
    ask: AskOptions = field(default_factory=AskOptions)
    weights: Weights = DEFAULT


class Templates:
    """Proposes what templates enumerate and the engine's cloze fills, ranked by both."""

    name = "templates"
    is_slow = False
    is_awaited = False

    def __init__(
        self,
        engine: Engine | None,
        cancel: CancelToken,
        withheld: Callable[[str], bool] | None = None,
    ) -> None:
        """The arguments are those of `CandidateSource`."""
        self._engine, self._withheld = engine, withheld
        self._cancel = LinkedToken(cancel)  # its end is not that of others
        self._source: CandidateSource | None = None

    @property
    def notes(self) -> Sequence[str]:
        """What went wrong on the way, in words."""
        return self._source.notes if self._source else ()

    def propose(self, evidence: Evidence) -> Iterator[list[Candidate]]:
        """Candidates for the suspicious lines."""
        with Grammar(evidence.check.interpreter) as grammar:
            self._source = CandidateSource(
                evidence.sources,
                [at for at in evidence.locations if grammar_of(at.path) in (None, "python")],
                self._engine,
                self._cancel,
                withheld=self._withheld,
                grammar=grammar,
                counts=evidence.counts,
                clues=clues_in(evidence, grammar.feature_version()),
            )
            yield from self._source.batches(evidence.deadline)

    def learn(self, validation: Validation) -> None:
        """Does nothing: the order of templates is fixed by location, prior, model and counts."""


class CandidateSource:
    """Candidates for the suspicious lines of some files, most promising first.

    `files` maps repository-relative paths to the bytes that stand there now. Without an engine,
    and after the engine fails, candidates keep the order that templates and locations give;
    `notes` says so. `cancel` ends the search from outside, and is cancelled when it ends.
    """

    def __init__(
        self,
        files: Mapping[str, bytes],
        locations: Sequence[Location],
        engine: Engine | None,
        cancel: CancelToken | None = None,
        options: Options | None = None,
        *,
        withheld: Callable[[str], bool] | None = None,
        grammar: Grammar | None = None,
        counts: RepositoryCounts | None = None,
        clues: Clues | None = None,
    ) -> None:
        """`withheld` says of which paths the engine must see nothing; `grammar` judges syntax.
        `counts`: those of the snapshot; if they are not there yet, the first batch waits for
        them a little. `clues`: what the failure says."""
        self._options = options or Options()
        if counts is not None and not counts.wait(self._options.counts_wait_s):
            counts = None
        self.pool = CandidatePool(
            files, locations, self._options.weights, grammar, counts, clues=clues
        )
        self._cancel = cancel or CancelToken()
        if engine is not None and not isinstance(engine, MeteredEngine):
            engine = MeteredEngine(engine, self._cancel)
        self._engine = engine
        self._withheld = frozenset(
            path for path in files if withheld is not None and withheld(path)
        )

    @property
    def notes(self) -> list[str]:
        """What went wrong on the way, in words."""
        return self.pool.notes

    @property
    def use(self) -> EngineUse:
        """The engine's part so far."""
        return self._engine.use if self._engine else EngineUse()

    def batches(self, deadline: float) -> Iterator[list[Candidate]]:
        """Candidates until there are none left or `time.monotonic()` passes the deadline."""
        options = self._options
        with ThreadPoolExecutor(1, thread_name_prefix="candidates") as thread:
            questions = Questions(self.pool, self._engine, self._cancel, thread, options.ask)
            wait = options.first_wait_s
            try:
                while time.monotonic() < deadline and not self._cancel.cancelled:
                    self._open_lines(questions)
                    questions.run(options.answers_per_batch, wait, deadline)
                    batch = self._batch(questions, deadline)
                    if batch:
                        yield batch
                    elif questions.finished:
                        return
                    wait = options.wait_s if batch else options.first_wait_s
            finally:
                questions.stop()

    def _open_lines(self, questions: Questions) -> None:
        """Makes the candidates of lines that could hold something better than what is queued."""
        for _ in range(_LINES_AHEAD):
            best, bound = self.pool.best, self.pool.bound
            if bound is None or (best is not None and best >= bound):
                return
            self._open_line(questions)

    def _open_line(self, questions: Questions) -> None:
        for slots in self.pool.open_line():
            if slots.source.path not in self._withheld:
                questions.plan(slots)

    def _batch(self, questions: Questions, deadline: float) -> list[Candidate]:
        batch: list[Candidate] = []
        hedge = self._options.hedge
        while len(batch) < self._options.batch and time.monotonic() < deadline:
            best, bound = self.pool.best, self.pool.bound
            if bound is not None and (best is None or best < bound):
                self._open_line(questions)
            elif (candidate := self._take(hedged=len(batch) % hedge == hedge - 1)) is not None:
                batch.append(candidate)
            else:
                break
        return batch

    def _take(self, *, hedged: bool) -> Candidate | None:
        if hedged and self._engine is not None:
            return self.pool.take_plain() or self.pool.take()
        return self.pool.take()
