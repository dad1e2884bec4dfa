"""Next edits: how many are right, how many are found, and how long one takes.

    python -m bench.editor.edit [--cases N] [--show KIND]

Real refactorings of standard-library files (`edit_cases.py`): the first edit is made, then the
next one is asked for until nothing is proposed. A proposal is right if it is part of what remains;
*precision* is right / proposed, *recall* is done / remaining, over all cases of a kind. In the
"none" kinds nothing is to be proposed. Milliseconds are for one question, median and 95 %.
"""

from __future__ import annotations

import argparse
import statistics
import sysconfig
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.editor.edit_cases import Case, Change, Module, cases

from clover_lsp.actions.next_edit import Memory, next_edits
from clover_lsp.actions.proposals import Moment, Proposal
from clover_lsp.documents.log import FORMER

_MOST_WRONG = 3


@dataclass
class Tally:
    cases: int = 0
    right: int = 0
    wrong: int = 0
    remaining: int = 0
    done: int = 0
    clean: int = 0
    """Cases in which all was found and nothing wrong was proposed."""
    milliseconds: list[float] = field(default_factory=list)


@dataclass
class State:
    """A text on its way to what it should be; `left` in the text's present offsets."""

    text: str
    left: list[Change]
    cursor: int

    def make(self, change: Change) -> None:
        start, end, new = change
        self.text = self.text[:start] + new + self.text[end:]
        shift = len(new) - (end - start)
        self.left = [
            (a + shift, b + shift, n) if a >= end and a >= start else (a, b, n)
            for a, b, n in self.left
        ]
        self.cursor = start + len(new)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--cases", type=int, default=40, help="most cases of each kind")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", default="", help="print wrong proposals of this kind")
    args = parser.parse_args()
    tallies: dict[str, Tally] = defaultdict(Tally)
    for case in cases(modules(), args.cases, args.seed):
        play(case, tallies[case.kind], bool(args.show) and case.kind.startswith(args.show))
    print_table(tallies)


def modules() -> list[Module]:
    """Files of the standard library of middling size."""
    folder = Path(sysconfig.get_path("stdlib"))
    found = []
    for path in sorted(folder.glob("*.py")):
        if 4_000 <= path.stat().st_size <= 60_000:
            found.append(Module(path.name, path.read_text("utf-8")))
    return found


def play(case: Case, tally: Tally, show: bool) -> None:
    """Makes the first edits, then takes what is proposed as long as it is right."""
    history = [case.text]
    state = State(case.text, [*case.done, *case.left], 0)
    for change in sorted(case.done, reverse=True):
        state.left.remove(change)
        state.make(change)
    if case.undone:
        history.insert(0, state.text)
        state = State(case.text, [], case.done[0][1])
    remaining, wrong, memory = len(state.left), 0, Memory()
    while wrong < _MOST_WRONG:
        started = time.perf_counter()
        moment = Moment(state.text, "python", state.cursor, tuple(history[:FORMER]))
        found = next_edits(moment, memory)
        tally.milliseconds.append(1000 * (time.perf_counter() - started))
        if not found:
            break
        parts = _parts(state, found[0])
        if not parts:
            wrong += 1
            memory.reject(state.text, found[0])
            if show:
                _print_wrong(case, state, found[0])
            continue
        tally.right += 1
        tally.done += len(parts)
        history.insert(0, state.text)
        for part in sorted(parts, reverse=True):
            state.left.remove(part)
        state.make((found[0].start, found[0].end, found[0].new))
    if show and state.left and not wrong:
        print(f"missed in {case.path}: {state.left[:2]}")
    tally.cases += 1
    tally.wrong += wrong
    tally.remaining += remaining
    tally.clean += not wrong and not state.left


def _parts(state: State, proposal: Proposal) -> list[Change]:
    """The remaining changes that the proposal makes; none if it makes another change, too."""
    inside = [c for c in state.left if proposal.start <= c[0] and c[1] <= proposal.end]
    text, at = "", proposal.start
    for start, end, new in inside:
        text += state.text[at:start] + new
        at = end
    text += state.text[at : proposal.end]
    same = "".join(text.split()) == "".join(proposal.new.split())
    return inside if same else []


def _print_wrong(case: Case, state: State, proposal: Proposal) -> None:
    line = state.text.count("\n", 0, proposal.start) + 1
    around = state.text[max(0, proposal.start - 30) : proposal.end + 30]
    print(f"{case.path}:{line}: {around!r} -> {proposal.new!r} ({proposal.reason})")


def print_table(tallies: dict[str, Tally]) -> None:
    print(f"{'kind':24}{'cases':>6}{'clean':>7}{'right':>7}{'wrong':>7}{'precision':>11}"
          f"{'recall':>8}{'ms p50':>8}{'p95':>6}")  # fmt: skip
    total = Tally()
    for kind, tally in tallies.items():
        _print_row(kind, tally)
        for name in ("cases", "right", "wrong", "remaining", "done", "clean"):
            setattr(total, name, getattr(total, name) + getattr(tally, name))
        total.milliseconds += tally.milliseconds
    _print_row("all", total)


def _print_row(kind: str, tally: Tally) -> None:
    proposed = tally.right + tally.wrong
    precision = f"{tally.right / proposed:.1%}" if proposed else "-"
    recall = f"{tally.done / tally.remaining:.1%}" if tally.remaining else "-"
    times: Sequence[float] = sorted(tally.milliseconds)
    p95 = times[int(0.95 * (len(times) - 1))]
    print(f"{kind:24}{tally.cases:6}{tally.clean:7}{tally.right:7}{tally.wrong:7}{precision:>11}"
          f"{recall:>8}{statistics.median(times):8.1f}{p95:6.0f}")  # fmt: skip


if __name__ == "__main__":
    main()
