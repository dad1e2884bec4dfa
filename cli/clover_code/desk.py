"""What a door that stays open works with: one repository, one engine, one index.

Every call blocks and may come from any thread; `cancel` ends the long ones.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from clover_code.errors import UserError
from clover_code.places import Place, cut, parse_place, read_text
from clover_engine.api import CancelToken, Engine, InfillRequest, InfillResult
from clover_engine.errors import Unsupported
from clover_engine.generation import DecisionRequest, DecisionResult, TextEngine

if TYPE_CHECKING:
    from clover_engine.privacy.withheld import Withheld
    from clover_lsp.context.gather import Explained
    from clover_lsp.context.room import Room
    from clover_patcher.agent.task import Limits, OnEvent, Requirement
    from clover_patcher.agent.task import Outcome as AgentOutcome
    from clover_patcher.deliver.deliver import Delivered
    from clover_patcher.deliver.undo import Undone
    from clover_patcher.instruct.edit import OnText
    from clover_patcher.instruct.request import Edited, Instruction
    from clover_patcher.progress import Progress
    from clover_patcher.request import FixRequest, FixResult
    from clover_patcher.types import Outcome

_NO_MODEL = "there is no model (--engine none): start again with another engine"
INDEX_S = 60.0
"""Longest wait for the index of a repository that was never indexed before."""


class Models:
    """The engine as doors want it: for repairs, and for conversations. None for both: no model."""

    def __init__(self, engine: Engine | None) -> None:
        from clover_engine.choice.pair import for_repairs
        from clover_engine.choice.talking import Talking

        self.repairs = for_repairs(engine) if engine is not None else None
        self._talking = Talking(self.repairs) if self.repairs is not None else None

    @property
    def talking(self) -> TextEngine:
        """Raises `Unsupported` where there is no model."""
        if self._talking is None:
            raise Unsupported(_NO_MODEL)
        return self._talking

    def close(self) -> None:
        if self._talking is not None and self.repairs is not None:
            self._talking.close()
            self.repairs.close()


class Desk:
    """`root` is a folder in a repository; relative names start there."""

    def __init__(self, root: Path, models: Models) -> None:
        """Raises `UsageError` for a folder in no repository."""
        from clover_engine.privacy.withheld import Withheld
        from clover_patcher.repository.git import Repository

        self.root, self.models = root.resolve(), models
        self.top = Repository.open(self.root).root
        self.withheld: Withheld = Withheld((self.top,))
        self._lock = threading.Lock()
        self._room: Room | None = None

    def close(self) -> None:
        if self._room is not None:
            self._room.close()

    def folder(self, name: str) -> Path:
        """A folder below the root. Raises `UserError` for one that is not."""
        path = (self.root / name).resolve()
        if not path.is_dir() or not path.is_relative_to(self.top):
            raise UserError(f"{name} is not a folder in {self.top}")
        return path

    def hides(self, path: str) -> bool:
        """Whether models see nothing of a path below the repository's top."""
        return bool(self.withheld.of_path(self.top / path))

    def fix(self, request: FixRequest, progress: Progress | None, cancel: CancelToken) -> FixResult:
        """Repairs as `clover-code fix` does. Raises what `clover_patcher.fix.fix` does."""
        from clover_engine.privacy.unquoting import unquoting
        from clover_patcher.fix import fix

        request, engine = replace(request, withheld=self.hides), self.models.repairs
        if engine is not None:
            engine = unquoting(engine, self.top, self.hides)
        return fix(request, engine, progress, cancel)

    def check(self, request: FixRequest, progress: Progress | None, cancel: CancelToken) -> Outcome:
        """How a check ends in a copy of the tree."""
        from clover_patcher.checking import run_check

        return run_check(request, progress, cancel)

    def carry_out(
        self, requirement: Requirement, limits: Limits, on_event: OnEvent, cancel: CancelToken
    ) -> AgentOutcome:
        """Lets the agent work in a copy, as `clover-code do` does."""
        from clover_engine.privacy.unquoting import unquoting_talk
        from clover_patcher.agent.loop import run

        requirement = replace(requirement, withheld=self.hides)
        engine = unquoting_talk(self.models.talking, self.top, self.hides)
        return run(requirement, engine, limits, cancel, on_event)

    def edit(self, request: Instruction, on_text: OnText, cancel: CancelToken) -> Edited:
        """Edits lines by instruction, as `clover-code edit` does; a withheld file is refused."""
        from clover_patcher.instruct.edit import edit

        if why := self.withheld.of_path(self.top / request.path):
            raise UserError(f"{why}: no model reads it")
        return edit(self.models.talking, request, cancel, on_text)

    def message(self, cancel: CancelToken) -> str:
        """A commit message for what is staged."""
        from clover_patcher.instruct.message import suggest_message
        from clover_patcher.instruct.staged import recent_subjects, staged_diff
        from clover_patcher.repository.git import Repository

        repository = Repository.open(self.top)
        diff = staged_diff(repository, self.hides)
        return suggest_message(self.models.talking, diff, cancel, recent_subjects(repository))

    def detected_check(self) -> str:
        """A command that runs the tests below the root, or at the top; "" where none is found."""
        from clover_lsp.actions.validated import detect_check

        return detect_check(self.root) or detect_check(self.top)

    def apply(self, result: FixResult) -> Delivered:
        """Writes the patch of a dry run. Raises `TreeChanged` where a file is not what it was."""
        from clover_patcher.deliver.deliver import deliver
        from clover_patcher.deliver.message import FixSummary
        from clover_patcher.deliver.recovery import settle
        from clover_patcher.repository.git import Repository

        assert result.explanation is not None and result.origin is not None
        repository = Repository.open(self.top)
        settle(repository)
        place = f"{result.path}:{result.line}"
        summary = FixSummary.of(result.explanation, result.check, place, result.origin.words)
        return deliver(repository, result.changes, summary)

    def undo(self, wanted: str | None, *, dry_run: bool = False) -> Undone:
        """Takes the newest change of ours back, or the one that `wanted` begins."""
        from clover_patcher.deliver.undo import undo
        from clover_patcher.repository.git import Repository

        return undo(Repository.open(self.top), wanted or None, dry_run=dry_run)

    def place(self, text: str) -> tuple[Place, str]:
        """FILE:LINE:COL below the root, and the file's text."""
        place = parse_place(text)
        if place.path is None:
            raise UserError("standard input is the protocol's here: give the name of a file")
        path = (self.root / place.path).resolve()
        if not path.is_relative_to(self.top):
            raise UserError(f"{place.path} is not in {self.top}")
        place = replace(place, path=path)
        return place, read_text(place)

    def context(self, place: Place, text: str, budget: int) -> Explained:
        """What the model would read at a place."""
        from clover_lsp.context.types import Place as Sited

        assert place.path is not None
        hole, room, uri = cut(text, place), self.room(), place.path.as_uri()
        room.opened(uri, "", hole.prefix + hole.suffix, 1)
        room.wait(INDEX_S)
        return room.explain(Sited(uri, "", hole.prefix, hole.suffix), budget)

    def room(self) -> Room:
        """The repository's index, made at the first use."""
        from clover_lsp.context.room import Room

        with self._lock:
            if self._room is None:
                self._room = Room()
                self._room.start()
                self._room.set_roots([str(self.top)])
        self._room.wait(INDEX_S)
        return self._room

    def infill(self, request: InfillRequest, path: Path, cancel: CancelToken) -> InfillResult:
        """Fills a hole of a file. Raises `UserError` for one that is withheld."""
        if why := self.withheld.of_path(path):
            raise UserError(f"{why}: no text is made for it")
        if self.models.repairs is None:
            raise Unsupported(_NO_MODEL)
        return self.models.repairs.infill(request, cancel)

    def decide(self, request: DecisionRequest, cancel: CancelToken) -> DecisionResult:
        """Answers multiple-choice questions about a text, jointly."""
        return self.models.talking.decide(request, cancel)
