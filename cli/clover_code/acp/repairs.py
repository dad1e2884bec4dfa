"""`/fix`, `/check` and `/undo`."""

from __future__ import annotations

import time

from acp.schema import PlanEntryStatus

from clover_code.acp.buffers import Buffers
from clover_code.acp.editor import Editor, ToolCall
from clover_code.acp.prompts import Prompt
from clover_code.desk import Desk
from clover_code.errors import UserError
from clover_patcher.progress import Stage
from clover_patcher.request import FixRequest, FixResult
from clover_patcher.types import Outcome

BUDGET_S = 300.0
_OUTPUT = 4_000
_EVERY_S = 0.5
"""How often the title says how far the search is."""
_STEPS = ("Reproduce the failure", "Find a patch that passes", "Confirm it from a cold start")
_STEP_OF: dict[Stage, int] = {
    "snapshot": 0, "baseline": 0, "localise": 1, "engine": 1, "search": 1, "found": 1, "confirm": 2,
}  # fmt: skip


def fix(desk: Desk, editor: Editor, prompt: Prompt, check: str) -> None:
    """Repairs, shows the patch, and applies it if the user allows that."""
    buffers = Buffers(desk, editor, (link.path for link in prompt.links))
    request = FixRequest(desk.root, check, budget_s=BUDGET_S, dry_run=True, overlay=buffers.unsaved)
    call = editor.begin(check, "execute")
    told = _Told(editor, call, check)
    try:
        result = desk.fix(request, told, editor.cancel)
    except Exception:
        call.end(ok=False)
        raise
    told.done(result.status == "fixed")
    call.end(_failures(result), ok=bool(result.failures))
    if not result.changes:
        editor.say(_why_none(result))
        return
    assert result.explanation is not None and result.path is not None
    edit = editor.begin(f"Patch {result.path}", "edit", desk.top / result.path, result.line)
    edit.show(desk.top, result.changes, result.line)
    editor.say(f"{result.explanation.summary}\n\n")
    title = f"Apply the patch to {', '.join(change.path for change in result.changes)}"
    done = buffers.apply(edit, result.changes, lambda: desk.apply(result), title)
    editor.say(done or "The patch was discarded; nothing was changed.")


def run_check(desk: Desk, editor: Editor, prompt: Prompt, check: str) -> None:
    """Runs the check in a copy with what the editor has unsaved."""
    buffers = Buffers(desk, editor, (link.path for link in prompt.links))
    call = editor.begin(check, "execute")
    request = FixRequest(desk.root, check, budget_s=BUDGET_S, overlay=buffers.unsaved)
    try:
        outcome = desk.check(request, None, editor.cancel)
    except Exception:
        call.end(ok=False)
        raise
    call.end(_output(outcome), ok=outcome.status == "passed")
    if outcome.status == "passed":
        editor.say(f"`{check}` passes ({outcome.seconds:.1f} s).")
        return
    lines = [
        f"- {failure.nodeid or 'the check'}: {failure.kind} {failure.message}".rstrip()
        for failure in outcome.failures[:5]
    ]
    editor.say("\n".join([f"`{check}` fails:", *lines, "", "`/fix` looks for a patch."]))


def undo(desk: Desk, editor: Editor, prompt: Prompt) -> None:
    """Shows what undoing does, and does it if the user allows that."""
    wanted = prompt.words or None
    planned = desk.undo(wanted, dry_run=True)
    call = editor.begin(f"Undo: {planned.fix.entry.title}", "edit")
    call.show(desk.top, planned.changes)
    if not editor.may(call, f"Undo: {planned.fix.entry.title}", "Undo", "Keep"):
        call.end(ok=False)
        editor.say("Nothing was changed.")
        return
    done = desk.undo(planned.fix.entry.id)
    call.end()
    names = ", ".join(change.path for change in done.changes)
    editor.say(f"Undone: {names} is what it was before.")


class _Told:
    """The patcher's events as a plan, and in the title of the check's tool call."""

    def __init__(self, editor: Editor, call: ToolCall, check: str) -> None:
        self._editor, self._call, self._check = editor, call, check
        self._step = -1
        self._next = 0.0

    def event(self, stage: Stage, message: str, **numbers: float) -> None:
        step = max(self._step, _STEP_OF.get(stage, self._step))
        if step != self._step:
            self._step = step
            self._plan(step)
        if "tried" in numbers:
            message = f"{numbers['tried']:.0f} candidates tried"
        now = time.monotonic()
        if now >= self._next:
            self._next = now + _EVERY_S
            self._call.title(f"{self._check} ({message})")

    def done(self, ok: bool) -> None:
        self._call.title(self._check)
        if ok:
            self._plan(len(_STEPS))

    def _plan(self, step: int) -> None:
        def status(number: int) -> PlanEntryStatus:
            return "completed" if number < step else "in_progress" if number == step else "pending"

        self._editor.plan([(text, status(number)) for number, text in enumerate(_STEPS)])


def _failures(result: FixResult) -> str:
    return "\n".join(f"{f.nodeid or 'the check'}: {f.kind}: {f.message}" for f in result.failures)


def _output(outcome: Outcome) -> str:
    return outcome.output[-_OUTPUT:] or outcome.status


def _why_none(result: FixResult) -> str:
    tried = f" ({result.candidates_tried} candidates tried in {result.seconds:.0f} s)"
    return f"No patch: {result.error}{tried}. Nothing was changed."


def require_check(desk: Desk, remembered: str, given: str) -> str:
    """The check that is meant. Raises `UserError` where there is none."""
    check = given or remembered or desk.detected_check()
    if not check:
        raise UserError("no tests were found: say which check, as in `/fix pytest -q tests`")
    return check
