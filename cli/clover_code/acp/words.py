"""`/edit`, `/message`, and plain words, which the agent carries out in a copy."""

from __future__ import annotations

from dataclasses import dataclass, field

from acp.schema import ToolKind

from clover_code.acp.buffers import Buffers
from clover_code.acp.editor import Editor, ToolCall
from clover_code.acp.prompts import Link, Prompt
from clover_code.desk import Desk
from clover_code.errors import UserError
from clover_patcher.agent.delivery import deliver_outcome
from clover_patcher.agent.task import WHY, Call, Event, Limits, Requirement, Result, Tool
from clover_patcher.deliver.deliver import Delivered, deliver
from clover_patcher.deliver.message import RequestSummary
from clover_patcher.instruct.edit import so_far
from clover_patcher.instruct.files import change_of, inside, read_text, selection, split_place
from clover_patcher.instruct.request import Instruction
from clover_patcher.repository.git import Repository

_FORM = "/edit FILE:FROM-TO INSTRUCTION, as in `/edit shop/cart.py:12-20 handle None`"
_KINDS: dict[Tool, ToolKind] = {
    "list": "search", "search": "search", "read": "read", "edit": "edit", "check": "execute",
    "done": "other",
}  # fmt: skip
_SHOWN = 2_000


def edit(desk: Desk, editor: Editor, prompt: Prompt) -> None:
    """Changes lines of one file as the prompt says."""
    name, selected, words = _place(desk, prompt)
    path = inside(desk.top, desk.root / name)
    buffers = Buffers(desk, editor, [desk.top / path])
    content = buffers.content(path)
    text = read_text(path, content)
    first, last = selection(path, text, selected)
    request = Instruction(path, text, first, last, words)
    request.require_lines()
    call = editor.begin(f"Edit {path}:{first}-{last}", "edit", desk.top / path, first)
    written = ""

    def show(said: str) -> None:
        nonlocal written
        line = so_far(request, said).rpartition("\n")[0].rpartition("\n")[2].strip()
        if line and line != written:
            written = line
            call.title(f"Edit {path}:{first}-{last}: {line}")

    try:
        done = desk.edit(request, show, editor.cancel)
    except Exception:
        call.end(ok=False)
        raise
    change = change_of(path, content, done.after)
    if change.after == content:
        call.end("nothing to change", ok=False)
        editor.say("The model changed nothing.")
        return
    call.title(f"Edit {path}:{first}-{last}")
    call.show(desk.top, [change], first)
    notes = [done.explanation, *done.notes, *(f"It needs `{line}`." for line in done.imports)]
    editor.say("".join(f"{note}\n\n" for note in notes if note))

    def write() -> Delivered:
        summary = RequestSummary(words, "", "", f"the model {done.model}")
        return deliver(Repository.open(desk.top), [change], summary)

    said = buffers.apply(call, [change], write, f"Change {path}:{first}-{last}")
    editor.say(said or "The edit was discarded; nothing was changed.")


def message(desk: Desk, editor: Editor, prompt: Prompt) -> None:
    """A commit message for what is staged; nothing is committed."""
    call = editor.begin("Read the staged changes", "read")
    try:
        text = desk.message(editor.cancel)
    except Exception:
        call.end(ok=False)
        raise
    call.end()
    editor.say(f"```\n{text}\n```")


def carry_out(desk: Desk, editor: Editor, prompt: Prompt, check: str) -> None:
    """Lets the agent work in a copy; what it leaves is applied if the user allows that."""
    buffers = Buffers(desk, editor, (link.path for link in prompt.links))
    requirement = Requirement(desk.root, prompt.words, check, overlay=buffers.unsaved)
    outcome = desk.carry_out(requirement, Limits(), _Steps(desk, editor).event, editor.cancel)
    if outcome.summary:
        editor.say(f"{outcome.summary}\n\n")
    if outcome.status == "cancelled":
        return
    if outcome.status != "done":
        editor.say(f"Not done: {WHY[outcome.status]}. ")
    if not outcome.changes:
        editor.say("Nothing was changed.")
        return
    names = ", ".join(change.path for change in outcome.changes)
    call = editor.begin(f"Change {names}", "edit", desk.top / outcome.changes[0].path)
    call.show(desk.top, outcome.changes)
    passes = bool(outcome.runs) and outcome.runs[-1].passed
    state = f"`{outcome.check}` {'passes' if passes else 'fails'} with it" if outcome.check else ""
    title = f"Change {names}" + (f" ({state})" if state else "")
    said = buffers.apply(call, outcome.changes, lambda: deliver_outcome(outcome), title)
    editor.say(said or "The changes were discarded; nothing was changed.")


@dataclass(slots=True)
class _Steps:
    """The agent's calls as tool calls, what it writes on the way as thoughts."""

    desk: Desk
    editor: Editor
    _open: list[tuple[Call, ToolCall]] = field(default_factory=list)
    _told: int = 0

    def event(self, event: Event) -> None:
        if event.kind == "text":
            if len(event.text) < self._told:  # a new answer
                self._told = 0
            self.editor.think(event.text[self._told :])
            self._told = len(event.text)
        elif event.kind == "call" and event.call is not None:
            self._told = 0
            if event.call.tool != "done":
                self._open.append((event.call, self._begin(event.call)))
        elif event.kind == "result" and event.result is not None:
            self._end(event.result)

    def _begin(self, call: Call) -> ToolCall:
        path = self.desk.top / call.argument.partition("::")[0]
        shown = path if call.tool in ("read", "edit") and path.is_file() else None
        return self.editor.begin(f"{call.tool} {call.argument}".strip(), _KINDS[call.tool], shown)

    def _end(self, result: Result) -> None:
        for number, (call, open_call) in enumerate(self._open):
            if call is result.call:
                del self._open[number]
                if result.changes:
                    open_call.show(self.desk.top, result.changes, result.line or None)
                    open_call.end(ok=result.ok)
                else:
                    open_call.end(result.text[:_SHOWN], ok=result.ok)
                return


def _place(desk: Desk, prompt: Prompt) -> tuple[str, str, str]:
    """The file, what is selected of it, and the instruction."""
    first, _, rest = prompt.words.partition(" ")
    name, selected = split_place(first)
    if rest and name and (desk.root / name).is_file():
        return name, selected, rest.strip()
    if len(prompt.links) == 1:
        link = prompt.links[0]
        lines = f"{link.first}-{link.last}" if link.first else ""
        return str(link.path), lines, _without_name(prompt.words, link)
    raise UserError(f"say which lines and what is to become of them: {_FORM}")


def _without_name(words: str, link: Link) -> str:
    return (
        words.replace(link.path.name, "", 1).strip()
        if words.startswith(link.path.name)
        else (words.replace(link.path.name, "it", 1))
    )
