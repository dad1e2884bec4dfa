"""The agent: the model answers, its calls are carried out in a copy, it reads what they gave.

The loop is `_Run._go`. It ends when the model says so and the check, if there is one, passes; or
at a limit. What it leaves is a patch for people to look at: see `deliver`.
"""

from __future__ import annotations

import time
from contextlib import ExitStack

from clover_engine.api import CancelToken
from clover_engine.errors import RequestCancelled, Unsupported
from clover_engine.generation import Converses, GenerateRequest, GenerateResult, Message, Piece
from clover_patcher.agent.calls import read_calls
from clover_patcher.agent.checking import Checking, said_by
from clover_patcher.agent.prompt import Conversation, misunderstood, observed, opening
from clover_patcher.agent.task import (
    Call,
    CheckRun,
    Event,
    Limits,
    OnEvent,
    Outcome,
    Requirement,
    Result,
    Status,
)
from clover_patcher.agent.tools import Tools
from clover_patcher.agent.trajectory import Trajectory
from clover_patcher.deliver.journal import Journal
from clover_patcher.deliver.recovery import settle
from clover_patcher.errors import Cancelled, UsageError
from clover_patcher.instruct.request import NoConversation
from clover_patcher.repository.git import Repository
from clover_patcher.repository.locks import require_supported
from clover_patcher.repository.workspace import Workspace
from clover_patcher.request import FixRequest
from clover_patcher.stopping import stopped_by
from clover_patcher.task.task import Task
from clover_patcher.types import Outcome as CheckOutcome

_TEMPERATURE = 0.7
"""Of an answer after one that could not be used."""
_CONTEXT = 40_000
"""Characters of a conversation; then old observations are left out."""


def run(
    requirement: Requirement,
    engine: Converses,
    limits: Limits | None = None,
    cancel: CancelToken | None = None,
    on_event: OnEvent | None = None,
) -> Outcome:
    """Carries out a requirement in a copy of the tree; the user's tree stays as it is.

    Raises `UsageError` for a request that cannot be tried (`NoConversation` where the engine only
    fills holes), and the engine's errors.
    """
    require_supported()
    if not requirement.words.strip():
        raise UsageError("the requirement is empty: say what is to be done")
    repository = Repository.open(requirement.root)
    notes = settle(repository)
    cancel, limits = cancel or CancelToken(), limits or Limits()
    task = _task(requirement, limits, cancel) if requirement.check else None
    folder = Journal(repository.common_dir).folder / "agent"
    with (
        Workspace(
            repository,
            overlay=requirement.overlay,
            include=task.include if task else requirement.include,
        ) as workspace,
        ExitStack() as stack,
    ):
        checking = Checking(task, workspace, stack) if task else None
        stack.enter_context(stopped_by(cancel, checking.lanes.running if checking else []))
        tools = Tools(requirement, repository, workspace, limits, checking)
        log = Trajectory(requirement.trajectory, folder, repository.root)
        stack.callback(log.close)
        agent = _Run(requirement, engine, limits, cancel, tools, log)
        agent.on_event = on_event or agent.on_event
        outcome = agent.ended(checking, repository, tuple(notes))
        log.end(outcome)
        return outcome


def _task(requirement: Requirement, limits: Limits, cancel: CancelToken) -> Task:
    request = FixRequest(
        root=requirement.root,
        check=requirement.check,
        budget_s=limits.seconds,
        overlay=requirement.overlay,
        include=requirement.include,
        network=requirement.network,
        check_timeout_s=requirement.check_timeout_s,
        jobs=1,
    )
    return Task.of(request, cancel=cancel)


class _Run:
    """One run: what was used up, and where it stands."""

    def __init__(
        self,
        requirement: Requirement,
        engine: Converses,
        limits: Limits,
        cancel: CancelToken,
        tools: Tools,
        log: Trajectory,
    ) -> None:
        self.requirement, self.engine, self.limits = requirement, engine, limits
        self.cancel, self.tools, self.log = cancel, tools, log
        self.on_event: OnEvent = lambda event: None
        self.began = time.monotonic()
        self.steps = self.tokens = self.errors = self.in_a_row = 0
        self.model, self.failed_first = "", False

    def ended(
        self, checking: Checking | None, repository: Repository, notes: tuple[str, ...]
    ) -> Outcome:
        """Runs until the end, and says how it was."""
        try:
            failing = self._baseline(checking)
            status = self._go(failing)
            if status == "done" and checking and self.tools.has_changed:
                status = self._confirmed(checking)
        except (RequestCancelled, Cancelled):
            status = "cancelled" if self.cancel.cancelled else "budget"
        return Outcome(
            status,
            self.requirement.words,
            repository.root,
            self.tools.changes,
            summary=self.tools.summary,
            runs=tuple(self.tools.runs),
            check=checking.command if checking else "",
            steps=self.steps,
            errors=self.errors,
            tokens=self.tokens,
            seconds=round(time.monotonic() - self.began, 3),
            model=self.model,
            notes=notes,
            trajectory=self.log.path,
        )

    def _go(self, failing: str | None) -> Status:
        talk, shown = opening(self.requirement, self.tools.texts, failing)
        self.tools.show(shown)
        self.log.start(self.requirement, self.limits, talk)
        while (over := self._over()) is None:
            answer = self._ask(talk)
            calls = read_calls(answer)
            results = self._carry_out(calls)
            said = self._said(answer, results)
            self.log.observed(self.steps, results, said)
            if self._is_finished(results):
                return "done"
            talk = _shortened([*talk, ("assistant", answer), ("user", said)])
        return over

    def _over(self) -> Status | None:
        """The limit that is reached."""
        if self.cancel.cancelled:
            return "cancelled"
        if time.monotonic() - self.began >= self.limits.seconds:
            return "budget"
        if self.tokens >= self.limits.tokens:
            return "tokens"
        if self.in_a_row >= self.limits.errors:
            return "format"
        return "steps" if self.steps >= self.limits.steps else None

    def _ask(self, talk: Conversation) -> str:
        self.steps += 1
        said, limits = "", self.limits

        def tell(piece: Piece) -> None:
            nonlocal said
            said += piece.text
            self.on_event(Event("text", self.steps, said))

        left_s = max(0.1, limits.seconds - (time.monotonic() - self.began))
        request = GenerateRequest(
            tuple(Message(role, text) for role, text in talk),
            max_new_tokens=max(1, min(limits.answer_tokens, limits.tokens - self.tokens)),
            thinking=False,
            temperature=_TEMPERATURE if self.in_a_row else 0.0,
            seed=self.steps,
            deadline_s=left_s,
        )
        began = time.monotonic()
        try:
            result: GenerateResult = self.engine.generate(request, self.cancel, tell)
        except Unsupported as exc:
            raise NoConversation from exc
        self.tokens += result.stats.tokens
        self.model = result.model or self.model
        text = result.text
        self.log.answer(self.steps, text, result.stats.tokens, time.monotonic() - began)
        return text

    def _carry_out(self, calls: list[Call]) -> list[Result]:
        for call in calls:
            self.on_event(Event("call", self.steps, call=call))
        results = self.tools.answered(calls)
        for result in results:
            self.on_event(Event("result", self.steps, result.text, result.call, result))
        useful = any(r.ok or r.call.tool in ("search", "read", "check", "done") for r in results)
        self.errors += not useful
        self.in_a_row = 0 if useful else self.in_a_row + 1
        return results

    def _said(self, answer: str, results: list[Result]) -> str:
        if not results:
            return misunderstood(answer)
        return observed(results, has_check=bool(self.requirement.check))

    def _is_finished(self, results: list[Result]) -> bool:
        """The model says so; or the check, which failed at first, passes."""
        if self.tools.is_done:
            edits = (result for result in results if result.call.tool == "edit")
            self.tools.is_done = all(result.ok for result in edits)
            return self.tools.is_done
        return self.failed_first and self.tools.has_changed and self.tools.passes

    def _baseline(self, checking: Checking | None) -> str | None:
        """How the check fails before anything is changed; None where it passes."""
        if checking is None:
            return None
        outcome = checking.run(())
        self._note_run(checking, outcome)
        self.failed_first = outcome.status != "passed"
        return said_by(outcome)[-self.limits.output :] if self.failed_first else None

    def _confirmed(self, checking: Checking) -> Status:
        """The check once more, cold, in a fresh copy."""
        outcome = checking.confirm(self.tools.changes)
        self._note_run(checking, outcome)
        return "done" if outcome.status == "passed" else "failing"

    def _note_run(self, checking: Checking, outcome: CheckOutcome) -> None:
        passed = outcome.status == "passed"
        self.tools.runs.append(CheckRun(checking.command, passed, said_by(outcome)))
        words = f"`{checking.command}` {'passes' if passed else 'fails'}"
        self.on_event(Event("note", self.steps, words))


def _shortened(talk: Conversation) -> Conversation:
    """The conversation without the text of its oldest observations, where it is too long."""
    size = sum(len(text) for _, text in talk)
    kept = list(talk)
    for number, (role, text) in enumerate(talk[2:-1], 2):
        if size <= _CONTEXT:
            break
        if role == "user" and len(text) > 200:
            kept[number] = (role, f"{text[:150]}\n[… no longer shown …]")
            size -= len(text) - 170
    return kept
