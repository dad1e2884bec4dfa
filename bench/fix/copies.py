"""What the git directories of copies cost, beside linked worktrees.

    python bench/fix/copies.py [--refs 20000] [--loose 2000] [--files 5000] [--megabytes 200]

Makes a repository with that many packed and loose refs, files and bytes of objects that do not
compress, then makes three working trees without files in both ways, five times, and prints the
median of the wall time in milliseconds, and the bytes that one git directory takes.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from clover_patcher.repository.git import Repository
from clover_patcher.repository.gitdir import OwnGit

_TREES, _ROUNDS = 3, 5


def git(root: Path, *args: str, stdin: bytes = b"") -> bytes:
    who = ["-c", "user.name=Bench", "-c", "user.email=bench@localhost"]
    return subprocess.run(
        ["git", *who, *args], cwd=root, input=stdin, check=True, capture_output=True
    ).stdout


def make(root: Path, refs: int, loose: int, files: int, megabytes: int) -> None:
    root.mkdir()
    git(root, "init", "-q")
    for number in range(files):
        path = root / f"pkg{number % 100}/m{number}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"VALUE = {number}\n")
    for number in range(megabytes // 10):
        (root / f"blob{number}").write_bytes(os.urandom(10 << 20))
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "Start")
    head = git(root, "rev-parse", "HEAD").strip().decode()
    many = "".join(f"create refs/tags/packed{n} {head}\n" for n in range(refs))
    git(root, "update-ref", "--stdin", stdin=many.encode())
    git(root, "pack-refs", "--all")
    few = "".join(f"create refs/heads/loose{n} {head}\n" for n in range(loose))
    git(root, "update-ref", "--stdin", stdin=few.encode())


def linked(root: Path, folder: Path) -> None:
    for number in range(_TREES):
        tree = str(folder / str(number))
        git(root, "worktree", "add", "--detach", "--no-checkout", "--", tree, "HEAD")
        git(folder / str(number), "read-tree", "HEAD")


def own(root: Path, folder: Path) -> None:
    taken = OwnGit.of(Repository(root, root / ".git"))
    for number in range(_TREES):
        (folder / str(number)).mkdir()
        taken.write(folder / str(number))


def measure(root: Path, way: Callable[[Path, Path], None]) -> tuple[float, int]:
    """Median seconds, and bytes of one git directory."""
    times, size = [], 0
    for _ in range(_ROUNDS):
        with tempfile.TemporaryDirectory() as folder:
            started = time.perf_counter()
            way(root, Path(folder))
            times.append(time.perf_counter() - started)
            files = Path(folder, "0/.git").rglob("*")
            size = sum(path.stat().st_size for path in files if path.is_file())
        git(root, "worktree", "prune", "--expire=now")
    return statistics.median(times), size


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    for name, value in (("refs", 20_000), ("loose", 2_000), ("files", 5_000), ("megabytes", 200)):
        parser.add_argument(f"--{name}", type=int, default=value)
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp())
    try:
        make(folder / "repo", args.refs, args.loose, args.files, args.megabytes)
        for name, way in (("linked worktrees", linked), ("own git directories", own)):
            seconds, size = measure(folder / "repo", way)
            print(f"{name:20} {1000 * seconds:7.0f} ms for {_TREES}   {size >> 10:6} KiB each")
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
