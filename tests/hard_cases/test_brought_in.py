"""Nothing of what a copy borrows from the user's tree can be written through it.

A check destroys all that it can reach: ignored files and folders, an environment, another
repository inside of this one, a folder beside it, links that stay inside, and the user's own tree
by its absolute path. Afterwards the tree is what it was, byte for byte, but for the repair.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from .harness import FIXED, PROGRAM, Repairs, tree

LARGE = 33 << 20

VANDAL = '''
import os, pathlib, shutil

from program import add

NAMES = """
build/out.json cache/many/0000.txt .venv/lib/site.py nested/inner.py nested/.git/config
data/small.json notes.log ../beside/shared.json program.py inside/out.json
""".split()


def destroy(place):
    for name in NAMES:
        if place.is_absolute() and name.startswith(".."):
            continue  # outside of the repository: nobody promises anything about such paths
        path = place / name
        assert path.read_bytes(), name
        try:
            with open(path, "r+b") as file:  # in place: reaches a hard link
                file.write(b"VANDAL = 1; ")
        except OSError:
            continue
        path.chmod(0o604)
        (path.parent / "intruder").write_text("x")
        os.utime(path, (1, 1))
    for name in ("cache/many/0001.txt", "build/gone.json"):
        (place / name).unlink(missing_ok=True)
    for name in ("cache/folder", ".venv/bin"):
        shutil.rmtree(place / name, ignore_errors=True)
    try:
        with open(place / "model.bin", "r+b") as file:
            file.write(b"VANDAL")
    except OSError:
        pass


source = pathlib.Path("program.py").read_bytes()
destroy(pathlib.Path())
pathlib.Path("program.py").write_bytes(source)  # the copies go on from here
if os.environ.get("ORIGINAL"):
    destroy(pathlib.Path(os.environ["ORIGINAL"]))
assert add(2, 3) == 5
assert add("a", "b") == "ab"
'''


def furnished(make_repo, tmp_path: Path) -> Path:
    """A repository with everything that is not copied as a matter of course, and a neighbour."""
    root = make_repo(
        {
            "program.py": PROGRAM,
            "check.py": VANDAL,
            ".gitignore": "/build/\n/cache/\n/.venv/\n/data/\n*.log\n/model.bin\n/inside\n",
        }
    )
    make_repo.write(
        root,
        {
            **{f"cache/many/{number:04}.txt": "x" for number in range(2_001)},
            "cache/folder/x": "x",
            ".venv/lib/site.py": "y = 1\n",
            ".venv/bin/tool": "#!/bin/sh\n",
            ".venv/pyvenv.cfg": "home = /\n",
            "build/out.json": "{}",
            "build/gone.json": "{}",
            "data/small.json": "{}",
            "notes.log": "a line\n",
            "nested/inner.py": "z = 1\n",
            "../beside/shared.json": "{}",
            "../beside/gone.json": "{}",
        },
    )
    for name in (".venv/blob", "data/blob", "model.bin"):
        with (root / name).open("wb") as file:
            file.truncate(LARGE)
    (root / "inside").symlink_to(root / "build")
    make_repo.git(root / "nested", "init", "-q")
    return root


def can_mount() -> bool:
    command = ["unshare", "-Urm", "true"] if os.getuid() else ["unshare", "-m", "true"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize("mounts", ["1", "0"])
@pytest.mark.parametrize("dry_run", [False, True])
def test_a_check_that_destroys_what_it_reaches_reaches_nothing_of_the_users(
    make_repo, repairs: Repairs, tmp_path: Path, monkeypatch, mounts: str, dry_run: bool
) -> None:
    root = furnished(make_repo, tmp_path)
    monkeypatch.setenv("CLOVER_MOUNTS", mounts)
    if mounts == "1":
        if not can_mount():
            pytest.skip("this system lets nobody mount")
        monkeypatch.setenv("ORIGINAL", str(root))
    before, beside = tree(root), tree(root.parent / "beside")
    result = repairs.run(root, dry_run=dry_run)
    assert result.status == "fixed", (result.error, result.failures)
    after = tree(root)
    kind, mode, text = after.pop("program.py")
    assert text.decode() == (PROGRAM if dry_run else FIXED)
    assert (kind, mode) == before.pop("program.py")[:2]
    assert after == before
    assert tree(root.parent / "beside") == beside
