"""`clover-code edit`: the lines of a file, changed as an instruction in words says."""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clover_code import fix_output as output
from clover_code.asking import add_applying_arguments, decided
from clover_code.engine_option import ENGINES, ENVIRONMENT, add_engine_arguments, conversing
from clover_code.errors import UserError
from clover_code.fix_screen import Screen
from clover_code.interrupts import interruptible
from clover_code.reporting import reported

if TYPE_CHECKING:
    from clover_engine.api import CancelToken
    from clover_patcher.edits import FileChange
    from clover_patcher.instruct.request import Edited, Instruction

PRESETS = ("docstring", "types", "tests", "explain", "simplify")

EPILOG = (
    """examples:
  clover-code edit shop/cart.py:12-20 "add a parameter discount, a percentage, default 0"
  clover-code edit shop/cart.py::Cart.total --preset docstring --apply
  clover-code edit shop/cart.py:12-20 --preset explain

The diff is printed. On a terminal you are asked what to do with it: apply it, ask for another
answer, or say in words what is still missing. Elsewhere nothing changes without --apply. Nothing
outside the lines changes, but for imports with --imports. The preset `tests` writes a new file.
`clover-code undo` takes an applied edit back.

exit codes:
  0  there is an edit: applied, or printed (an explanation was printed)
  1  the model's answers could not be used
  2  the file, the lines or the model cannot be used (the message says what to do)
  4  the file changed meanwhile; nothing was applied
  5  applied, but the commit that --commit asks for was not made
  130  interrupted

"""
    + ENVIRONMENT
)
_ASK = "apply [a], another answer [r], leave it [q], or say what to change: "


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the subcommand `edit`."""
    parser = subparsers.add_parser(
        "edit",
        help="change lines of a file as you say in words",
        description="Changes the selected lines as the instruction says, with a model that "
        "converses (clover-code model get coder-1.5b, or a server).",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "place",
        metavar="FILE:FROM-TO",
        help="lines from 1; also FILE:LINE, FILE::NAME for a function or class, FILE for all",
    )
    parser.add_argument("words", nargs="?", default="", metavar="INSTRUCTION")
    parser.add_argument("--preset", choices=PRESETS, help="an instruction that is known already")
    parser.add_argument(
        "--imports", action="store_true", help="add imports that the new lines need to the file"
    )
    parser.add_argument(
        "--deadline", type=float, metavar="SECONDS", help="give up an answer after so long"
    )
    add_engine_arguments(parser, ENGINES[:-1], what="the model that writes")
    group = parser.add_argument_group("applying")
    add_applying_arguments(group)
    group.add_argument(
        "--out", metavar="FILE", help="with --preset tests: the new file (default: by convention)"
    )
    group = parser.add_argument_group("output")
    group.add_argument("--json", action="store_true", help="print one JSON object")
    group.add_argument("--ci", action="store_true", help="plain lines, no colour, no questions")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Runs the subcommand and returns its exit code."""
    return reported("edit", lambda: _run(args), as_json=args.json)


def _run(args: argparse.Namespace) -> int:
    _require_sense(args)
    screen = Screen(sys.stderr, ci=args.ci, name="edit")
    with interruptible() as cancel:
        try:
            return _Session(args, screen, cancel).run()
        finally:
            screen.clear()


def _require_sense(args: argparse.Namespace) -> None:
    if not (args.words.strip() or args.preset):
        raise UserError("say what to change: add an instruction in quotes, or --preset NAME")
    if args.dry_run and (args.apply or args.commit):
        raise UserError("--dry-run changes nothing: leave it out, or --apply and --commit")
    if args.out and args.preset != "tests":
        raise UserError("--out is for --preset tests, which writes a new file")


class _Session:
    """One edit, and what its user says to it."""

    def __init__(self, args: argparse.Namespace, screen: Screen, cancel: CancelToken) -> None:
        from clover_patcher.instruct.files import read_text, selection, split_place
        from clover_patcher.instruct.presets import PRESETS as KNOWN
        from clover_patcher.instruct.request import Instruction

        self.args, self.screen, self.cancel = args, screen, cancel
        name, selected = split_place(args.place)
        self.file = Path(name)
        try:
            self.content = self.file.read_bytes()
        except OSError as exc:
            raise UserError(f"cannot read {name}: {exc.strerror}; give {_FORM}") from None
        self.root, self.path = _where(self.file)
        if self.root is None and (args.apply or args.commit):
            raise UserError(f"{name} is not in a git repository: run `git init` there first")
        text = read_text(self.path, self.content)
        first, last = selection(self.path, text, selected)
        request = Instruction(self.path, text, first, last, args.words)
        request = replace(request, imports=args.imports, deadline_s=args.deadline)
        if args.preset:
            request = KNOWN[args.preset].applied(request)
        request.require_lines()
        self.request = request
        self.began = time.monotonic()

    def run(self) -> int:
        """Asks the model, and the user, until one of them is done."""
        from clover_code.engine_option import withheld_from_servers
        from clover_patcher.instruct.request import Turn

        with conversing(self.args, withheld_from_servers(self.file)) as engine:
            while True:
                done = self._edit(engine)
                if self.request.kind == "say":
                    return self._say(done)
                change = self._change(done)
                said = self._shown(done, change)
                if said in ("a", "q"):
                    return self._end(done, change, apply=said == "a")
                if said == "r":
                    self.request = replace(self.request, attempt=self.request.attempt + 1)
                else:
                    turn = Turn(self.request.words, done.text)
                    turns = (*self.request.turns, turn)
                    self.request = replace(self.request, words=said, turns=turns, attempt=0)

    def _edit(self, engine: Any) -> Edited:
        from clover_patcher.instruct.edit import edit, so_far

        def show(said: str) -> None:
            last = so_far(self.request, said).rstrip().rpartition("\n")[2].strip()
            self.screen.event("engine", f"writing: {last}")

        self.screen.event("engine", "asking the model")
        done = edit(engine, self.request, self.cancel, show)
        self.screen.clear()
        return done

    def _change(self, done: Edited) -> FileChange:
        from clover_patcher.edits import FileChange
        from clover_patcher.instruct.files import change_of, inside, place_for_tests
        from clover_patcher.repository.git import Repository

        if self.request.kind == "edit":
            return change_of(self.path, self.content, done.after)
        if self.args.out:
            path = inside(self.root, Path(self.args.out)) if self.root else self.args.out
        else:
            known = Repository.open(self.root).listing().files if self.root else ()
            path = place_for_tests(self.path, frozenset(known))
        return FileChange(path, b"", done.text.encode(), created=True)

    def _shown(self, done: Edited, change: FileChange) -> str:
        """Prints the edit; what is to become of it: "a", "q", "r", or a further instruction."""
        from clover_patcher.edits import unified_diff

        args = self.args
        if not args.json:
            colour = not args.ci and output.wants_colour(sys.stdout)
            output.write_patch(unified_diff([change]), colour=colour)
            for line in (*done.explanation.split("\n"), *self._notes(done)):
                if line.strip():
                    self._tell(line)
        if self.root is None and not (args.apply or args.commit):
            return "q"
        return decided(args, self.cancel, _ASK)

    def _end(self, done: Edited, change: FileChange, *, apply: bool) -> int:
        delivered, seconds = None, time.monotonic() - self.began
        if apply:
            delivered = self._deliver(done, change)
        notes = self._notes(done)
        if self.args.json:
            output.print_json(_as_json(self.request, done, change, delivered, notes, seconds))
            return delivered.exit_code if delivered else 0
        for note in delivered.notes if delivered else ():
            self._tell(f"note: {note}")
        where = f"{change.path}:{self.request.first}" if not change.created else change.path
        work = f"{done.tokens} tokens in {seconds:.1f} s"
        if delivered is None:
            self._tell(f"would change {where} ({work}); nothing was changed, --apply does it")
        else:
            commit = f", commit {delivered.commit[:10]}" if delivered.commit else ""
            self._tell(f"changed {where} ({work}){commit}; `clover-code undo` takes it back")
        return delivered.exit_code if delivered else 0

    def _deliver(self, done: Edited, change: FileChange) -> Any:
        from clover_patcher.deliver.deliver import deliver
        from clover_patcher.deliver.message import RequestSummary
        from clover_patcher.deliver.recovery import settle
        from clover_patcher.repository.git import Repository

        assert self.root is not None  # else nothing is applied
        repository = Repository.open(self.root)
        for line in settle(repository):
            self._tell(f"note: {line}")
        summary = RequestSummary(_said(self.request), "", "", f"the model {done.model}")
        return deliver(repository, [change], summary, commit=self.args.commit)

    def _say(self, done: Edited) -> int:
        if self.args.json:
            seconds = time.monotonic() - self.began
            output.print_json(_as_json(self.request, done, None, None, [], seconds))
        else:
            print(done.explanation)
        return 0

    def _notes(self, done: Edited) -> list[str]:
        notes = [f"note: {note}" for note in done.notes]
        if done.imports and not self.request.imports:
            lines = "; ".join(done.imports)
            notes.append(f"note: the new lines need `{lines}`: --imports adds it")
        return notes

    def _tell(self, text: str) -> None:
        output.say(text, "edit")


_FORM = "FILE:FROM-TO"


def _where(file: Path) -> tuple[Path | None, str]:
    """The repository around a file, if there is one, and the file's path in it."""
    from clover_patcher.errors import UsageError
    from clover_patcher.repository.git import Repository

    full = file.resolve()
    try:
        root = Repository.open(full.parent).root
    except UsageError:
        return None, full.name
    return root, full.relative_to(root).as_posix()


def _said(request: Instruction) -> str:
    """All instructions of the edit in one line."""
    return "; ".join([*(turn.words for turn in request.turns), request.words])


def _as_json(
    request: Instruction,
    done: Edited,
    change: FileChange | None,
    delivered: Any,
    notes: list[str],
    seconds: float,
) -> dict[str, Any]:
    from clover_patcher.edits import unified_diff

    text, encoded = output.patch_text(unified_diff([change]) if change else b"")
    return {
        "schema": output.SCHEMA,
        "status": "explained" if change is None else "edited",
        "exit_code": delivered.exit_code if delivered else 0,
        "error": None,
        "notes": [*(note.removeprefix("note: ") for note in notes), *_notes_of(delivered)],
        "applied": delivered is not None,
        "fix_id": delivered.id if delivered else None,
        "commit": delivered.commit if delivered else None,
        "patch": text,
        "patch_base64": encoded,
        "file": change.path if change else request.path,
        "first": request.first,
        "last": request.last,
        "text": done.text,
        "explanation": done.explanation,
        "imports": list(done.imports),
        "model": done.model,
        "asked": done.asked,
        "tokens": done.tokens,
        "seconds": round(seconds, 3),
    }


def _notes_of(delivered: Any) -> tuple[str, ...]:
    return delivered.notes if delivered else ()
