"""The agent on twenty small requirements, each judged by a check that it does not see.

    python -m bench.edit.agent perfect coder-1.5b

`perfect` is a scripted model that writes the right answer: what it does not solve, the loop does
not allow. The agent has no check of its own here, and sees all programs as one package.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.edit.requirements import RAISES, WISHES, Wish

from clover_engine.generation import Converses
from clover_engine.testing.fakes import FakeTalker
from clover_engine.worker.local import LocalEngine
from clover_patcher.agent.delivery import deliver_outcome
from clover_patcher.agent.loop import run
from clover_patcher.agent.task import Limits, Requirement

PROGRAMS = Path(__file__).parent / "programs"
PERFECT = "perfect"


@dataclass
class Row:
    model: str
    number: int
    words: str
    status: str
    solved: bool
    steps: int
    errors: int
    tokens: int
    seconds: float
    patch: str
    why: str


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="+", help=f"{PERFECT}, or names of checkpoints")
    parser.add_argument("--only", type=int, nargs="*", help="numbers of requirements, from 1")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--out", type=Path, help="write every row there (JSON lines)")
    parser.add_argument("--keep", type=Path, help="a folder for the trajectories")
    args = parser.parse_args()
    rows: list[Row] = []
    for model in args.models:
        engine = None if model == PERFECT else LocalEngine(model)
        for number, wish in enumerate(WISHES, 1):
            if args.only and number not in args.only:
                continue
            talker: Converses = engine or FakeTalker(answers=[wish.answer + "DONE"])
            log = args.keep / f"{model}-{number}.jsonl" if args.keep else None
            rows.append(row := tried(talker, model, number, wish, Limits(steps=args.steps), log))
            mark = "solved" if row.solved else row.status
            print(
                f"{model} {number:2} {mark:9} {row.steps:2} steps {row.seconds:6.1f} s  {row.why}"
            )
            sys.stdout.flush()
        if engine:
            engine.close()
    if args.out:
        args.out.write_text("".join(json.dumps(asdict(row)) + "\n" for row in rows))
    for model in args.models:
        print(summary([row for row in rows if row.model == model]))
    return 0


def tried(
    engine: Converses, model: str, number: int, wish: Wish, limits: Limits, log: Path | None
) -> Row:
    with tempfile.TemporaryDirectory() as folder:
        root = project(Path(folder))
        outcome = run(Requirement(root, wish.words, trajectory=log), engine, limits)
        if outcome.changes:
            deliver_outcome(outcome)
        why = failure(root, wish)
    return Row(
        model,
        number,
        wish.words,
        outcome.status,
        not why,
        outcome.steps,
        outcome.errors,
        outcome.tokens,
        outcome.seconds,
        outcome.patch.decode(),
        why,
    )


def project(folder: Path) -> Path:
    """All programs as a package, in a repository with one commit."""
    (folder / "kit").mkdir()
    (folder / "kit/__init__.py").touch()
    for program in sorted(PROGRAMS.glob("*.py")):
        (folder / "kit" / program.name).write_text(program.read_text())
    (folder / ".gitignore").write_text("__pycache__/\n")
    who = ("-c", "user.name=bench", "-c", "user.email=bench@localhost")
    for words in (("init", "-q"), ("add", "-A"), (*who, "commit", "-qm", "Start")):
        subprocess.run(["git", *words], cwd=folder, check=True)
    return folder


def failure(root: Path, wish: Wish) -> str:
    """The last line that the hidden check complains with; empty where it passes."""
    try:
        ran = subprocess.run(
            [sys.executable, "-c", f"{RAISES}\n{wish.check}"],
            cwd=root,
            capture_output=True,
            text=True,
            timeout=20,
        )
    except subprocess.TimeoutExpired:
        return "the check hangs"
    return "" if ran.returncode == 0 else (ran.stderr.strip().split("\n") or ["?"])[-1]


def summary(rows: list[Row]) -> str:
    solved = sum(row.solved for row in rows)
    steps = statistics.median(row.steps for row in rows)
    seconds = statistics.median(row.seconds for row in rows)
    errors = sum(row.errors for row in rows)
    return (
        f"{rows[0].model}: {solved} of {len(rows)} solved, median {steps:g} steps, "
        f"{seconds:.1f} s, {errors} answers with nothing to carry out"
    )


if __name__ == "__main__":
    raise SystemExit(main())
