"""Kills `clover-code fix` at random moments and looks at what is left, before and after.

    python tests/e2e/kill_moments.py [--moments 200] [--seed N]

Half of the moments are spread evenly over a whole run, half over its end, where files are written
and committed; every other run commits. After each kill the next command starts
(`clover-code undo --list`), and then: the tree is as it was or fully patched (and committed, or
not, as a whole), and no worktree, no temporary folder, no lock, no half-written record is left.
Prints a table of the stage that was reached and the state of the tree, and fails with exit code 1
if a moment left anything else.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

FIXTURE = Path(__file__).parents[1] / "fixtures" / "script_check"
CHECK, FAULTY = "python run_checks.py", "engine/valve.py"
COMMAND = [sys.executable, "-m", "clover_code.main"]
FIX = [*COMMAND, "fix", "--engine", "none", "--ci", "--jobs", "1", "--check", CHECK]
END = 0.12
"""Share of a run from the line "apply" to the end of the process, and some more."""
_SETTLE_S = 10.0


@dataclass(frozen=True)
class Moment:
    """When to kill, in seconds after the start, or after the line that says "apply"."""

    delay_s: float
    from_apply: bool
    commit: bool


@dataclass(frozen=True)
class KillResult:
    """What a kill left. `stage` is the last one that the run told of; `wrong` is empty if all
    is well after the next start."""

    moment: Moment
    stage: str
    state: str
    wrong: tuple[str, ...]


class Project:
    """A broken project in a repository of its own, with a temporary folder that can be counted."""

    def __init__(self, folder: Path) -> None:
        self.root, self.temporary = folder / "repo", folder / "tmp"
        self.temporary.mkdir(parents=True)
        ignored = shutil.ignore_patterns("__pycache__", "fixture.json")
        shutil.copytree(FIXTURE, self.root, ignore=ignored)
        (folder / "gitconfig").write_text(
            "[user]\n\tname = Test\n\temail = test@localhost\n[gc]\n\tauto = 0\n"
        )
        path = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")} | {
            "GIT_CONFIG_GLOBAL": str(folder / "gitconfig"),
            "GIT_CONFIG_NOSYSTEM": "1",
            "TMPDIR": str(self.temporary),
            "PATH": path,
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        self.git("init", "-q")
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "Start")
        self.start = self.git("rev-parse", "HEAD")
        self.old = self.content()
        started = time.monotonic()
        self.run(FIX).check_returncode()
        self.whole_run_s = time.monotonic() - started
        self.new = self.content()
        self.reset()

    def git(self, *args: str) -> str:
        done = self.run(["git", *args])
        done.check_returncode()
        return done.stdout.decode()

    def run(self, command: list[str]) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(command, cwd=self.root, env=self.env, capture_output=True)

    def content(self) -> bytes:
        return (self.root / FAULTY).read_bytes()

    def reset(self) -> None:
        self.git("reset", "-q", "--hard", self.start.strip())
        shutil.rmtree(self.root / ".git/clover", ignore_errors=True)

    def kill_at(self, moment: Moment) -> KillResult:
        """Runs, kills, starts the next command, and says what each left; then resets."""
        stage = self._killed(moment)
        state = {self.old: "old", self.new: "new"}.get(self.content(), "neither")
        wrong = [] if state != "neither" else ["the file was neither old nor new"]
        self._await_children()
        after = self.run([*COMMAND, "undo", "--list"])
        if after.returncode:
            wrong.append(f"the next command failed: {after.stderr.decode()}")
        wrong += self._wrong(moment)
        self.reset()
        return KillResult(moment, stage, state, tuple(wrong))

    def _killed(self, moment: Moment) -> str:
        """Kills a run, and returns the last stage that it told of."""
        command = [*FIX, *(["--commit"] if moment.commit else [])]
        with tempfile.TemporaryFile() as told:
            run = subprocess.Popen(
                command,
                cwd=self.root,
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=told,
            )
            if moment.from_apply:
                while run.poll() is None and b": apply:" not in _read(told.fileno()):
                    time.sleep(0.001)
            try:
                run.wait(moment.delay_s)
            except subprocess.TimeoutExpired:
                run.kill()
            if run.wait() != -9:
                return "(ended before)"
            lines = _read(told.fileno()).decode().splitlines()
        return _stage(lines)

    def _await_children(self) -> None:
        """A git that the killed process had started goes on by itself: let it end."""
        end = time.monotonic() + _SETTLE_S
        while self._locks() and time.monotonic() < end:
            time.sleep(0.02)

    def _locks(self) -> list[str]:
        """Git's lock files; folders may come and go meanwhile."""
        walk = os.walk(self.root / ".git")
        return [f"{at}/{name}" for at, _, names in walk for name in names if name.endswith(".lock")]

    def _wrong(self, moment: Moment) -> list[str]:
        """What should not be there after the next start."""
        content = self.content()
        committed = self.git("rev-parse", "HEAD") != self.start
        status = self.git("status", "--porcelain", "--ignored")
        whole = [(self.old, False, ""), (self.new, False, f" M {FAULTY}\n")]
        if moment.commit:
            whole.append((self.new, True, ""))
        wrong = []
        if (content, committed, status) not in whole:
            wrong.append(f"the tree is in pieces: committed {committed}, status {status!r}")
        if committed and self.git("show", "--format=", "--name-only", "HEAD") != f"{FAULTY}\n":
            wrong.append("the commit holds something else")
        wrong += [f"a worktree: {line}" for line in self.git("worktree", "list").splitlines()[1:]]
        wrong += [f"a folder: {path.name}" for path in self.temporary.iterdir()]
        wrong += [f"a lock: {path}" for path in self._locks()]
        clover = self.root / ".git/clover"
        left = [*clover.glob("new/*"), *clover.glob("pending/*"), *clover.glob("staged-*")]
        wrong += [f"a record: {path}" for path in left]
        return wrong


def moments(number: int, whole_run_s: float, seed: int) -> list[Moment]:
    """Random moments: half over a whole run, half over its end; every other one commits."""
    chance = random.Random(seed)
    found = []
    for index in range(number):
        from_apply = index % 2 == 1
        span = whole_run_s * (END if from_apply else 1.05)
        found.append(Moment(chance.uniform(0, span), from_apply, index % 4 >= 2))
    return found


def _stage(lines: list[str]) -> str:
    """The stage that a run told of last; "done" once it has said how it ended."""
    last = lines[-1].split(":")[1].strip() if lines else "start"
    return "done" if last.startswith(("fixed", "note")) else last


def _read(file: int) -> bytes:
    return os.pread(file, 1 << 20, 0)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--moments", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        project = Project(Path(folder))
        print(f"{args.moments} moments, seed {args.seed}, a run takes {project.whole_run_s:.2f} s")
        found = [project.kill_at(m) for m in moments(args.moments, project.whole_run_s, args.seed)]
    counts = Counter((item.stage, item.state) for item in found)
    states = ["old", "new", "neither"]
    print("stage".ljust(16) + "".join(state.rjust(9) for state in states))
    for stage in dict.fromkeys(item.stage for item in sorted(found, key=_order)):
        print(stage.ljust(16) + "".join(f"{counts[stage, state]:9}" for state in states))
    bad = [item for item in found if item.wrong]
    for item in bad:
        print(f"{item.moment}, {item.stage}: {'; '.join(item.wrong)}")
    print(f"{len(found) - len(bad)} of {len(found)} moments left everything whole")
    return 1 if bad else 0


def _order(found: KillResult) -> tuple[bool, float]:
    return found.moment.from_apply, found.moment.delay_s


if __name__ == "__main__":
    sys.exit(main())
