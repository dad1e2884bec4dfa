"""Which of the patches that `bench/fix/fix.py quixbugs` found are merely plausible.

    python -m bench.fix.plausible --dir QuixBugs result.json [--inputs 300] [--update]

A patch that passes the program's own tests is run on generated inputs as well and compared with
what the program's description asks for (`quixbugs_reference.py`). One wrong answer, exception or
hang makes it merely plausible. `--update` writes the verdicts into the result file (`correct`).
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

from bench.fix.quixbugs_reference import REFERENCES

_ANSWER_S = 2.0
_PROGRAM_S = 300.0


def main(argv: Sequence[str] | None = None) -> int:
    """Prints a verdict for every patch; 2 where something that must be supplied is missing."""
    if argv is None and sys.argv[1:2] == ["--judge"]:
        return _judge(sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))
    args = _parser().parse_args(argv)
    try:
        return check_results(args)
    except (OSError, ValueError) as exc:
        print(f"bench/fix/plausible.py: {exc}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--dir", type=Path, default=Path("QuixBugs"), help="clone of QuixBugs")
    parser.add_argument("--inputs", type=int, default=300, help="generated inputs per program")
    parser.add_argument("--update", action="store_true", help="write verdicts into the files")
    parser.add_argument("results", type=Path, nargs="+", help="from bench/fix/fix.py --json")
    return parser


def check_results(args: argparse.Namespace) -> int:
    for path in args.results:
        report = json.loads(path.read_text())
        for result in report["results"]:
            if result["fixed"]:
                verdict = judge_patch(args.dir, result["program"], result["patch"], args.inputs)
                result["correct"] = not verdict
                print(f"{result['program']:24} {verdict or 'correct'}", flush=True)
        fixed = [result for result in report["results"] if result["fixed"]]
        wrong = [result["program"] for result in fixed if not result["correct"]]
        names = f": {', '.join(wrong)}" if wrong else ""
        print(f"{path}: {len(fixed)} patches, {len(wrong)} merely plausible{names}\n")
        if args.update:
            path.write_text(json.dumps(report, indent=1) + "\n")
    return 0


def judge_patch(quixbugs: Path, program: str, patch: str, inputs: int) -> str:
    """What is wrong with the patched program, "" if nothing was found."""
    with tempfile.TemporaryDirectory(prefix="bench-plausible-") as folder:
        source = Path(folder) / "python_programs" / f"{program}.py"
        source.parent.mkdir()
        shutil.copyfile(quixbugs / "python_programs" / source.name, source)
        subprocess.run(["git", "apply"], cwd=folder, input=patch.encode(), check=True)
        return judge(program, source, inputs)


def judge(program: str, source: Path, inputs: int) -> str:
    """The same for a file, in a process of its own."""
    command = [
        sys.executable,
        "-m",
        "bench.fix.plausible",
        "--judge",
        program,
        str(source),
        str(inputs),
    ]
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=_PROGRAM_S)
    except subprocess.TimeoutExpired:
        return f"does not answer within {_PROGRAM_S:.0f} s"
    return run.stdout.strip() or run.stderr.strip()[-200:]


def _judge(program: str, source: Path, inputs: int) -> int:
    """Runs in the process of its own; prints the first wrong answer."""
    reference = REFERENCES[program]
    function = _load(program, source)
    signal.signal(signal.SIGALRM, _give_up)
    for seed in range(inputs):
        given, fresh = (reference.generate(Random(seed)) for _ in range(2))
        shown = repr(fresh)[:120]
        signal.setitimer(signal.ITIMER_REAL, _ANSWER_S)
        try:
            answer = function(*given)
            right = reference.agrees(_same_objects(program, given, fresh), answer)
        except Exception as exc:
            print(f"{type(exc).__name__} for {shown}")
            return 0
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        if not right:
            print(f"wrong for {shown}")
            return 0
    return 0


def _same_objects(program: str, given: Any, fresh: Any) -> Any:
    """Nodes are compared by identity and not changed by the programs."""
    return given if program in ("detect_cycle", "shortest_path_length") else fresh


def _give_up(signum: int, frame: FrameType | None) -> None:
    raise TimeoutError(f"no answer within {_ANSWER_S:.0f} s")


def _load(program: str, source: Path) -> Any:
    spec = importlib.util.spec_from_file_location(program, source)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, program)


if __name__ == "__main__":
    sys.exit(main())
