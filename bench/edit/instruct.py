"""Edits by instruction: how many of forty pass their check, and how long they take.

    python -m bench.edit.instruct coder-0.5b coder-1.5b

The programs and instructions beside are our own. A check runs in a process of its own; an edit
"outside" is one that changed a line that was not selected.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.edit.instructions import CASES, RAISES, Case

from clover_engine.worker.local import LocalEngine
from clover_patcher.errors import PatcherError
from clover_patcher.instruct.edit import edit
from clover_patcher.instruct.request import Edited, Instruction
from clover_patcher.locate.functions import functions

PROGRAMS = Path(__file__).parent / "programs"


@dataclass
class Row:
    model: str
    number: int
    words: str
    verdict: str
    """"passed", "wrong" (the check fails) or "none" (no usable answer)."""
    seconds: float = 0.0
    tokens: int = 0
    asked: int = 0
    outside: bool = False
    new: str = ""
    why: str = ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="+", help="names that CLOVER_CHECKPOINT takes")
    parser.add_argument("--only", type=int, nargs="*", help="numbers of cases, from 1")
    parser.add_argument("--out", type=Path, help="write every row there (JSON lines)")
    args = parser.parse_args()
    rows = []
    for model in args.models:
        with LocalEngine(model) as engine:
            engine.health(start=True)
            for number, case in enumerate(CASES, 1):
                if not args.only or number in args.only:
                    rows.append(row := tried(engine, model, number, case))
                    print(f"{model} {number:2} {row.verdict:6} {row.seconds:6.1f} s  {row.words}")
                    if row.why:
                        print(f"      {row.why}")
                    sys.stdout.flush()
    if args.out:
        args.out.write_text("".join(json.dumps(asdict(row)) + "\n" for row in rows))
    for model in args.models:
        print(summary([row for row in rows if row.model == model]))
    return 0


def tried(engine: LocalEngine, model: str, number: int, case: Case) -> Row:
    text = (PROGRAMS / f"{case.program}.py").read_text()
    first, last = span(text, case.select)
    request = Instruction(f"{case.program}.py", text, first, last, case.words)
    began = time.monotonic()
    try:
        done = edit(engine, request)
    except PatcherError as exc:
        seconds = time.monotonic() - began
        return Row(model, number, case.words, "none", seconds, asked=3, why=str(exc))
    problem = failure(done, case)
    return Row(
        model,
        number,
        case.words,
        "wrong" if problem else "passed",
        done.seconds,
        done.tokens,
        done.asked,
        touched_others(request, done),
        done.text,
        problem,
    )


def span(text: str, select: str | tuple[str, str]) -> tuple[int, int]:
    """First and last line of what a case selects."""
    if isinstance(select, tuple):
        lines = text.split("\n")
        first = next(i for i, line in enumerate(lines, 1) if select[0] in line)
        return first, next(i for i, line in enumerate(lines, 1) if i >= first and select[1] in line)
    code = text.encode()
    found = next(f for f in functions("python", code) if f.qualname == select)
    return code.count(b"\n", 0, found.outer_start) + 1, code.count(b"\n", 0, found.outer_end) + 1


def touched_others(request: Instruction, done: Edited) -> bool:
    lines, new = request.lines, done.text.split("\n") if done.text else []
    return done.after.split("\n") != [*lines[: request.first - 1], *new, *lines[request.last :]]


def failure(done: Edited, case: Case) -> str:
    """The last line that the check complains with; empty where it passes."""
    names = f"source = {done.after!r}\nnew = {done.text!r}\n"
    code = f"{done.after}\n{RAISES}\n{names}\n{case.check}\n"
    try:
        ran = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=20
        )
    except subprocess.TimeoutExpired:
        return "the check hangs"
    return "" if ran.returncode == 0 else (ran.stderr.strip().split("\n") or ["?"])[-1]


def summary(rows: list[Row]) -> str:
    passed = sum(row.verdict == "passed" for row in rows)
    first = sum(row.verdict == "passed" and row.asked == 1 for row in rows)
    seconds = statistics.median(row.seconds for row in rows)
    outside = sum(row.outside for row in rows)
    return (
        f"{rows[0].model}: {passed} of {len(rows)} pass ({first} with the first answer), "
        f"median {seconds:.1f} s, {outside} edits outside the selection"
    )


if __name__ == "__main__":
    raise SystemExit(main())
