"""Shows `clover-code fix` on a small project whose test fails; `make demo` calls this.

    python -m bench.demo.demo [--folder demo-repo] [options of clover-code fix]

Copies `demo/` into a new git repository, runs its tests (one fails), lets `clover-code fix`
repair the program (it prints the diff), and runs the tests again. Exit code 0 when they pass.
"""

from __future__ import annotations

import argparse
import os
import pty
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CHECK = "python -m pytest -q"
MARKER = ".clover-demo"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=ROOT / "demo-repo")
    args, fix_options = parser.parse_known_args()
    begun = time.monotonic()
    folder: Path = args.folder.resolve()

    say(f"A fresh git repository from demo/: {folder}")
    if not make_repository(folder):
        print(f"{folder} exists and is not an earlier demo; move it away", file=sys.stderr)
        return 2

    say(f"Its check fails: {CHECK}")
    if run(shlex.split(CHECK), folder) == 0:
        print("the check passes before the repair; demo/ is broken", file=sys.stderr)
        return 1

    command = ["clover-code", "fix", "--check", CHECK, *fix_options]
    say(f"The repair: {shlex.join(command)}")
    fixed = run(command, folder, live=not sys.stderr.isatty())
    if fixed != 0:
        print(f"clover-code fix ended with exit code {fixed}", file=sys.stderr)
        return 1

    say("The working tree has the patch: git diff --stat")
    run(["git", "--no-pager", "diff", "--stat"], folder)

    say(f"The check again: {CHECK}")
    if run(shlex.split(CHECK), folder) != 0:
        print("the check still fails", file=sys.stderr)
        return 1
    say(f"The check passes now ({time.monotonic() - begun:.0f} s in all).")
    return 0


def make_repository(folder: Path) -> bool:
    """Copies the project and commits it; False where the folder is somebody else's."""
    if folder.exists():
        if not (folder / ".git" / MARKER).exists():
            return False
        shutil.rmtree(folder)
    shutil.copytree(ROOT / "demo", folder, ignore=shutil.ignore_patterns("__pycache__", ".pytest*"))
    (folder / ".gitignore").write_text("__pycache__/\n.pytest_cache/\n")
    identity = ["-c", "user.name=Demo", "-c", "user.email=demo@localhost"]
    git = ["git", *identity]
    for step in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "A shop with one bug"]):
        subprocess.run([*git, *step], cwd=folder, check=True)
    (folder / ".git" / MARKER).touch()
    return True


def run(command: list[str], folder: Path, live: bool = False) -> int:
    """Runs with this Python's commands first on PATH, as in an activated environment.

    `live`: gives the command a terminal for its progress line, and prints each new stage of it.
    """
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    env = {**os.environ, "PATH": path}
    env.pop("PYTHONPATH", None)
    program = shutil.which(command[0], path=path)
    if program is None:
        print(f"{command[0]} is not installed; run: make setup", file=sys.stderr)
        return 127
    command = [program, *command[1:]]
    if not live:
        return subprocess.run(command, cwd=folder, env=env).returncode
    ours, theirs = pty.openpty()
    env |= {"TERM": "xterm", "COLUMNS": "100"}
    with subprocess.Popen(command, cwd=folder, env=env, stderr=theirs) as process:
        os.close(theirs)
        print_stages(ours)
    os.close(ours)
    return process.returncode


def print_stages(terminal: int) -> None:
    """Prints the first line of each stage, and whatever is not progress."""
    stage, text = "", ""
    while True:
        try:
            data = os.read(terminal, 4096)
        except OSError:  # how Linux reports that the other side is closed
            data = b""
        text += data.decode("utf-8", "replace")
        *lines, text = re.split(r"\r?\n|\r\x1b\[K", text) if data else [*text.splitlines(), ""]
        for line in filter(str.strip, lines):
            if line.split()[0] != stage:
                print(f"  {line}", flush=True)
            stage = line.split()[0]
        if not data:
            return


def say(text: str) -> None:
    print(f"\n== {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
