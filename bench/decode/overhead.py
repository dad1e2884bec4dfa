"""What `clover-code fix` costs besides the model and the checks, on a repository of many files.

    python -m bench.decode.overhead [--files 10000] [--repeats 5] [--folder DIR] [--trace]

Makes a git repository with one broken line and a check that takes a moment, and repairs it without
a model, `--repeats` times. Prints medians in seconds of each phase that a user waits for besides
checks and candidates, their sum, and the same run on a repository of ten files beside it: the wall
time, and the processor time of the waiting thread, which says more on a busy machine. With
`--trace` it prints instead what tracing costs: a loop of pure Python and a run of the standard
library's `json` and `difflib`, with and without.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from clover_patcher import fix as fixing
from clover_patcher.check.command import Check
from clover_patcher.check.runner import ProgramRunner
from clover_patcher.fix import FixRequest, fix
from clover_patcher.repository.git import Repository
from clover_patcher.repository.permission import Permission
from clover_patcher.repository.workspace import Workspace
from clover_patcher.validate import lanes

BODY = "def function_{n}(x, y={n}):\n    return x * y + {n}\n\n\n"
BROKEN = "def double(x):\n    return x + 2\n"
CHECK = "from pkg.broken import double\nassert double(5) == 10\n"
PHASES: list[tuple[Any, str, str]] = [
    (Repository, "open", "find the repository"),
    (fixing, "settle", "finish what a killed run began"),
    (Workspace, "__enter__", "list and copy"),
    (lanes, "start_runner", "start the check's interpreters"),
    (Permission, "of", "choose files"),
    (Workspace, "fresh", "copy for the confirming run"),
    (Workspace, "changed", "compare before writing"),
    (fixing, "deliver", "write the patch"),
    (Workspace, "close", "remove the copies"),
]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="where the repositories are made")
    parser.add_argument("--trace", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        if args.trace:
            print_tracing(Path(folder), args.repeats)
            return 0
        tables = [
            measure(make(Path(folder) / str(count), count), args.repeats)
            for count in (args.files, 10)
        ]
    print(f"{'seconds: wall (CPU)':34}{args.files:>14} files{10:>14} files")
    for phase in tables[0]:
        print(f"{phase:34}" + "".join("{:12.3f} ({:.3f})".format(*t[phase]) for t in tables))
    return 0


def make(root: Path, count: int) -> Path:
    """A committed repository: nine of ten files are Python, of about 4 KB."""
    for number in range(count - 2):
        folder = root / "pkg" / f"part_{number % 97}" / f"sub_{number % 7}"
        folder.mkdir(parents=True, exist_ok=True)
        if number % 10:
            text = "".join(BODY.format(n=number + k) for k in range(70))
            (folder / f"module_{number}.py").write_text(text)
        else:
            (folder / f"data_{number}.txt").write_text("value\n" * 700)
    (root / "pkg").mkdir(parents=True, exist_ok=True)
    (root / "pkg" / "broken.py").write_text(BROKEN)
    (root / "check.py").write_text(CHECK)
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "Start"]):
        settings = ["-c", "user.name=bench", "-c", "user.email=bench@localhost", "-c", "gc.auto=0"]
        subprocess.run(["git", *settings, *command], cwd=root, check=True)
    return root


Seconds = tuple[float, float]
"""Wall and processor time."""


def now() -> Seconds:
    return time.perf_counter(), time.thread_time()


def measure(root: Path, repeats: int) -> dict[str, Seconds]:
    """Medians over runs; the first one, which warms the file cache, does not count."""
    runs = []
    for _ in range(repeats + 1):
        with timed() as seconds:
            began = now()
            request = FixRequest(root=root, check=f"{sys.executable} check.py")
            result = fix(request)
            ended = now()
        assert result.status == "fixed", result
        (root / "pkg" / "broken.py").write_text(BROKEN)
        walls, cpus = zip(*seconds.values(), strict=True)
        seconds["overhead: all of these"] = sum(walls), sum(cpus)
        seconds["the whole run"] = ended[0] - began[0], ended[1] - began[1]
        runs.append(seconds)
    return {phase: _medians([run[phase] for run in runs[1:]]) for phase in runs[1]}


def _medians(times: Sequence[Seconds]) -> Seconds:
    walls, cpus = zip(*times, strict=True)
    return statistics.median(walls), statistics.median(cpus)


@contextmanager
def timed() -> Iterator[dict[str, Seconds]]:
    """Adds up the time spent in each phase's function, by phase."""
    seconds: dict[str, Seconds] = {}
    originals = []

    def timing(call: Callable[..., Any], phase: str) -> Callable[..., Any]:
        def run(*args: Any, **more: Any) -> Any:
            began = now()
            try:
                return call(*args, **more)
            finally:
                wall, cpu = (end - start for end, start in zip(now(), began, strict=True))
                seconds[phase] = seconds[phase][0] + wall, seconds[phase][1] + cpu

        return run

    for owner, name, phase in PHASES:
        originals.append((owner, name, vars(owner)[name]))
        seconds[phase] = 0.0, 0.0
        bound = vars(owner)[name]
        call = timing(bound.__func__ if isinstance(bound, classmethod) else bound, phase)
        setattr(owner, name, classmethod(call) if isinstance(bound, classmethod) else call)
    try:
        yield seconds
    finally:
        for owner, name, original in originals:
            setattr(owner, name, original)


LOOP = """\
def work():
    total = 0
    for i in range(300_000):
        total += i % 7
        if total > 1_000_000:
            total = 0
    return total

def test_loop():
    assert work() >= 0
"""
LIBRARY = """\
import difflib, json

def test_library():
    text = json.dumps({str(i): list(range(i % 30)) for i in range(2000)})
    for _ in range(5):
        json.loads(text)
    difflib.SequenceMatcher(None, text[:3000], text[500:3500]).ratio()
"""


def print_tracing(folder: Path, repeats: int) -> None:
    """Seconds of one test file, traced and not: inside the repository and in a library."""
    for name, text in (("loop", LOOP), ("library", LIBRARY)):
        tree, tmp = folder / name, folder / f"{name}-tmp"
        tree.mkdir()
        tmp.mkdir()
        (tree / "test_it.py").write_text(
            textwrap.dedent(text) + "\ndef test_fail():\n    assert 0\n"
        )
        check = Check.parse(f"{sys.executable} -m pytest -q", tree)
        with ProgramRunner(check, tree, tmp=tmp) as runner:
            runner.baseline()
            plain = statistics.median(run_time(runner.baseline) for _ in range(repeats))
            traced = statistics.median(run_time(runner.trace) for _ in range(repeats))
        print(f"{name:10}{plain:8.3f} s{traced:8.3f} s traced{traced / plain:7.2f} times")
        shutil.rmtree(tree)


def run_time(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


if __name__ == "__main__":
    raise SystemExit(main())
