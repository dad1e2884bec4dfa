"""The tools. Each answers with all there is to know: hosts show no more than the result."""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import Annotated, Any

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations
from pydantic import BaseModel, Field

from clover_code import fix_output as output
from clover_code.context_output import described
from clover_code.desk import Desk
from clover_code.mcp.calls import Told, called
from clover_code.places import cut
from clover_engine.api import CancelToken, InfillRequest
from clover_engine.generation import DecisionRequest
from clover_engine.generation import Question as Asked
from clover_patcher.repository.scope import resolve_only
from clover_patcher.request import FixRequest, FixResult

MOST_S, GRACE_S = 600.0, 15.0
_KEPT = 16
"""So many patches of dry runs can be applied later."""
_OUTPUT = 6_000
"""Characters of a check's output that are told, from its end."""
_LEFT_OUT = ("suspects", "log", "patch_base64", "schema", "frozen")

INSTRUCTIONS = """\
Repairs failing checks with patches that were validated: candidates are tried in copies of the
working tree, and one counts only if the whole check passes with it from a cold start. First `fix`
(a dry run), look at the patch, then `apply` with its patch_id. `undo` takes it back, byte for byte.
`check` runs a command in a copy and reports failures. Check commands are run: give none that you
would not run yourself.
"""

READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)
RUNS = ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=False)
WRITES = ToolAnnotations(read_only_hint=False, destructive_hint=True, open_world_hint=False)

Seconds = Annotated[float, Field(gt=0, le=MOST_S)]
CheckCommand = Annotated[
    str, Field(description="the command, as in `pytest -q tests/test_x.py`, `ruff check`, `mypy`")
]
Folder = Annotated[str, Field(description="where it runs, from the root; it is run in a copy")]
FilePlace = Annotated[str, Field(description="FILE:LINE:COL from the root, both from 1")]


class Question(BaseModel):
    """A question and the answers to choose from."""

    text: str
    options: list[str] = Field(min_length=2, max_length=26)


def make_server(desk: Desk, version: str) -> MCPServer:
    """The server over one repository."""
    server = MCPServer("clover-code", version=version, instructions=INSTRUCTIONS)
    tools = _Tools(desk)
    for tool, kind in (
        (tools.fix, WRITES),
        (tools.apply, WRITES),
        (tools.undo, WRITES),
        (tools.check, RUNS),
        (tools.context, READS),
        (tools.infill, READS),
        (tools.decide, READS),
    ):
        words = " ".join((tool.__doc__ or "").split())
        server.tool(description=words, annotations=kind)(tool)
    return server


class _Tools:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._patches: OrderedDict[str, FixResult] = OrderedDict()
        self._count = 0

    async def fix(
        self,
        ctx: Context[Any, Any],
        check: CheckCommand,
        folder: Folder = ".",
        paths: Annotated[list[str], Field(description="patch only these files or folders")] = [],  # noqa: B006
        only: Annotated[list[str], Field(description="change only these FILE:LINE")] = [],  # noqa: B006
        budget_s: Seconds = 60.0,
        dry_run: Annotated[bool, Field(description="false writes the patch at once")] = True,
    ) -> dict[str, Any]:
        """Finds a patch that makes a failing check pass. A dry run returns the patch and a
        patch_id for `apply`; nothing in the working tree changes."""

        def work(cancel: CancelToken, told: Told) -> dict[str, Any]:
            where = self._desk.folder(folder)
            lines = tuple(resolve_only(self._desk.top, where, text) for text in only)
            request = FixRequest(
                where, check, tuple(paths), budget_s=budget_s, dry_run=dry_run, only=lines
            )
            result = self._desk.fix(request, told, cancel)
            found = {k: v for k, v in output.as_json(result).items() if k not in _LEFT_OUT}
            return found | {"patch_id": self._kept(result) if result.changes and dry_run else None}

        return await called(ctx, budget_s + GRACE_S, work)

    async def apply(self, ctx: Context[Any, Any], patch_id: str) -> dict[str, Any]:
        """Writes a patch that `fix` found into the working tree, if its files are still what they
        were. The answer's id is for `undo`."""

        def work(cancel: CancelToken, told: Told) -> dict[str, Any]:
            result = self._patches.get(patch_id)
            if result is None:
                known = ", ".join(self._patches) or "none"
                raise ToolError(f"there is no patch {patch_id!r}; known: {known}; call fix again")
            done = self._desk.apply(result)
            files = [change.path for change in result.changes]
            return {"applied": True, "id": done.id, "files": files, "notes": list(done.notes)}

        return await called(ctx, MOST_S, work)

    async def undo(
        self,
        ctx: Context[Any, Any],
        id: Annotated[str, Field(description="of what was applied; empty: the newest")] = "",
        dry_run: bool = False,
    ) -> dict[str, Any]:
        """Takes an applied change back, byte for byte, if nobody touched its files since."""

        def work(cancel: CancelToken, told: Told) -> dict[str, Any]:
            done = self._desk.undo(id, dry_run=dry_run)
            text, _ = output.patch_text(done.patch)
            return {"undone": not dry_run, "id": done.fix.entry.id, "patch": text}

        return await called(ctx, MOST_S, work)

    async def check(
        self,
        ctx: Context[Any, Any],
        check: CheckCommand,
        folder: Folder = ".",
        timeout_s: Seconds = 120.0,
    ) -> dict[str, Any]:
        """Runs a check once in a copy of the working tree, without the network, and tells how it
        ends: status, failures, output."""

        def work(cancel: CancelToken, told: Told) -> dict[str, Any]:
            where = self._desk.folder(folder)
            request = FixRequest(where, check, budget_s=timeout_s, check_timeout_s=timeout_s)
            outcome = self._desk.check(request, told, cancel)
            return {
                "status": outcome.status,
                "passed": outcome.passed,
                "failures": output.failures_as_json(outcome),
                "output": outcome.output[-_OUTPUT:],
                "seconds": round(outcome.seconds, 3),
            }

        return await called(ctx, timeout_s + GRACE_S, work)

    async def context(
        self,
        ctx: Context[Any, Any],
        place: FilePlace,
        budget_tokens: Annotated[int, Field(ge=0, le=32768)] = 512,
    ) -> dict[str, Any]:
        """What of the repository matters at a place: definitions, usages, what followed the same
        code elsewhere. Secrets are stars; files that hold them are withheld."""

        def work(cancel: CancelToken, told: Told) -> dict[str, Any]:
            at, text = self._desk.place(place)
            explained = self._desk.context(at, text, budget_tokens)
            found = described(explained, cut(text, at), budget_tokens)
            return {name: found[name] for name in ("withheld", "snippets", "lookups")}

        return await called(ctx, MOST_S, work)

    async def infill(
        self,
        ctx: Context[Any, Any],
        place: FilePlace,
        max_tokens: Annotated[int, Field(ge=1, le=512)] = 64,
        multi_line: bool = False,
        seconds: Seconds = 30.0,
    ) -> dict[str, Any]:
        """The text that belongs at a place of a file, by clover's own model. Nothing is written."""

        def work(cancel: CancelToken, told: Told) -> dict[str, Any]:
            at, text = self._desk.place(place)
            assert at.path is not None
            hole, began = cut(text, at), time.monotonic()
            stop = () if multi_line else ("\n",)
            request = InfillRequest(
                hole.prefix, hole.suffix, max_tokens=max_tokens, stop=stop, deadline_s=seconds
            )
            result = self._desk.infill(request, at.path, cancel)
            best = result.choices[0]
            return {
                "text": best.text,
                "confidence": round(best.confidence, 4),
                "finish_reason": best.finish_reason,
                "model": result.model,
                "seconds": round(time.monotonic() - began, 3),
            }

        return await called(ctx, seconds + GRACE_S, work)

    async def decide(
        self,
        ctx: Context[Any, Any],
        material: Annotated[str, Field(description="the text that the questions are about")],
        questions: Annotated[list[Question], Field(min_length=1, max_length=8)],
        seconds: Seconds = 60.0,
    ) -> dict[str, Any]:
        """Answers up to eight multiple-choice questions about one text, jointly, with the
        probability of every option."""

        def work(cancel: CancelToken, told: Told) -> dict[str, Any]:
            asked = tuple(Asked(each.text, tuple(each.options)) for each in questions)
            request = DecisionRequest(material, asked, deadline_s=seconds)
            decisions = self._desk.decide(request, cancel).decisions
            return {
                "answers": [
                    {
                        "question": question.text,
                        "answer": question.options[decision.option],
                        "probabilities": [round(p, 4) for p in decision.probabilities],
                    }
                    for question, decision in zip(questions, decisions, strict=True)
                ]
            }

        return await called(ctx, seconds + GRACE_S, work)

    def _kept(self, result: FixResult) -> str:
        self._count += 1
        name = f"patch-{self._count}"
        self._patches[name] = result
        if len(self._patches) > _KEPT:
            self._patches.popitem(last=False)
        return name
