"""Folders of ours are removed when nobody uses them; nothing else ever is."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.patcher.killing import finishes

from clover_patcher.deliver.recovery import tidy
from clover_patcher.errors import UsageError
from clover_patcher.repository import owned, places
from clover_patcher.repository.leftovers import leftovers
from clover_patcher.repository.owned import OWNER, claim, release, sweep

HOUR_AGO = time.time() - 3600


def age(folder: Path) -> Path:
    """As if everything had been there for an hour."""
    for path in [*folder.rglob("*"), folder]:
        os.utime(path, (HOUR_AGO, HOUR_AGO), follow_symlinks=False)
    return folder


def abandoned(place: Path, root: Path) -> Path:
    """What a killed run leaves: a folder of ours with files in it, that nobody has locked."""
    claimed = claim(place, root)
    (claimed.folder / "0/tree").mkdir(parents=True)
    (claimed.folder / "0/tree/a.py").write_text("x = 1\n")
    (claimed.folder / "names").write_text("a.py\0")
    os.close(claimed.lock)
    return claimed.folder


def own(folder: Path, name: str) -> Path:
    """A folder of the user's with work in it."""
    target = folder / name
    (target / "src").mkdir(parents=True)
    (target / "src/work.py").write_text("days of work\n")
    return target


def test_what_a_killed_run_left_is_removed(make_repo, temporary_root: Path) -> None:
    root = make_repo({"a.py": ""})
    folder = abandoned(temporary_root, root)
    (folder / "0/tree").chmod(0o500)
    assert leftovers(root)
    assert tidy(root) == []
    assert not folder.exists() and not leftovers(root)


def test_what_is_in_use_stays(make_repo, temporary_root: Path) -> None:
    root = make_repo({"a.py": ""})
    claimed = claim(temporary_root, root)
    age(claimed.folder)
    command = "import sys; from pathlib import Path; from clover_patcher.repository.owned import "
    subprocess.run(
        [sys.executable, "-c", f"{command}sweep\nsweep(Path(sys.argv[1]))", str(root)], check=True
    )
    assert claimed.folder.exists()
    release(claimed)
    assert list(temporary_root.iterdir()) == []


def called_alike(place: Path, root: Path) -> Path:
    return own(place, "clover-fix-undo-branch")


def called_the_same(place: Path, root: Path) -> Path:
    return own(place, "clover-fix-0123abcd")


def without_a_lock_of_an_older_version(place: Path, root: Path) -> Path:
    folder = own(place, "clover-fix-mine")
    (folder / "lock").touch()
    (folder / OWNER).write_text(json.dumps({"root": str(root), "pid": 1}))
    return folder


def copied(place: Path, root: Path) -> Path:
    """Ours once; the user has made a copy of it, with work of theirs."""
    ours = abandoned(place, root)
    target = place / "clover-fix-89abcdef"
    shutil.copytree(ours, target)
    owned._remove(ours)
    (target / "0/tree/notes.txt").write_text("by hand\n")
    return target


def renamed(place: Path, root: Path) -> Path:
    return abandoned(place, root).rename(place / "clover-fix-89abcdef")


def changed(place: Path, root: Path, **said: object) -> Path:
    folder = abandoned(place, root)
    owner = json.loads((folder / OWNER).read_text()) | said
    (folder / OWNER).write_text(json.dumps(owner))
    return folder


def of_another_machine(place: Path, root: Path) -> Path:
    return changed(place, root, machine="another one 0123")


def of_another_user(place: Path, root: Path) -> Path:
    return changed(place, root, uid=os.getuid() + 1)


def owner_is_a_link(place: Path, root: Path) -> Path:
    folder = abandoned(place, root)
    (folder / OWNER).rename(place / "kept.json")
    (folder / OWNER).symlink_to(place / "kept.json")
    return folder


def owner_has_another_name(place: Path, root: Path) -> Path:
    folder = abandoned(place, root)
    os.link(folder / OWNER, place / "kept.json")
    return folder


def owner_is_no_object(place: Path, root: Path) -> Path:
    folder = abandoned(place, root)
    (folder / OWNER).write_text("[1, 2]")
    return folder


def owner_is_a_pipe(place: Path, root: Path) -> Path:
    folder = abandoned(place, root)
    (folder / OWNER).unlink()
    os.mkfifo(folder / OWNER)
    return folder


def owner_is_empty(place: Path, root: Path) -> Path:
    folder = own(place, "clover-fix-0123abcd")
    (folder / OWNER).touch()
    return folder


def a_link(place: Path, root: Path) -> Path:
    (place / "clover-fix-89abcdef").symlink_to(own(place, "elsewhere"))
    return place / "clover-fix-89abcdef"


def a_link_to_ours(place: Path, root: Path) -> Path:
    ours = abandoned(place, root)
    target = ours.rename(place / "moved")
    (place / ours.name).symlink_to(target)
    return place / ours.name


KINDS = [
    *(called_alike, called_the_same, without_a_lock_of_an_older_version, copied, renamed),
    *(of_another_machine, of_another_user, owner_is_a_link, owner_has_another_name),
    *(owner_is_no_object, owner_is_a_pipe, owner_is_empty, a_link, a_link_to_ours),
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_what_is_not_surely_ours_stays(
    make_repo, temporary_root: Path, kind: Callable[[Path, Path], Path]
) -> None:
    root = make_repo({"a.py": ""})
    folder = kind(temporary_root, root)
    age(temporary_root)

    def content() -> list[Path]:
        return sorted(temporary_root.rglob("*"))

    before = content()
    assert folder in before
    assert tidy(root) == []
    sweep(root)
    assert content() == before


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give folders away")
def test_what_another_user_made_stays(make_repo, temporary_root: Path) -> None:
    root = make_repo({"a.py": ""})
    folder = age(abandoned(temporary_root, root))
    os.chown(folder, 12345, 12345)
    sweep(root)
    assert (folder / "0/tree/a.py").exists()


@pytest.mark.parametrize("name", ["clover-fix-undo-branch", "clover-fix-0123abcd"])
def test_the_home_folder_is_never_looked_at(
    make_repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Whatever is there, by whatever name, even by our own hand."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    for variable in ("TMPDIR", "TEMP", "TMP"):
        monkeypatch.delenv(variable, raising=False)
    root = make_repo({"a.py": ""}, "home/project")
    folders = [own(home, name), own(root.parent, f"{name}-beside"), abandoned(home, root)]
    age(home)
    assert home not in places.places(root)
    monkeypatch.setenv("TMPDIR", str(home))
    assert home not in places.places(root)
    command = [sys.executable, "-m", "clover_code.main", "undo", "--list"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True)
    assert "unexpected" not in done.stderr
    sweep(root)
    assert all(folder.is_dir() for folder in folders)
    assert (folders[0] / "src/work.py").exists()


def test_links_in_our_own_folder_are_not_followed(make_repo, temporary_root: Path) -> None:
    """A check may have made them, to whatever the user has."""
    root = make_repo({"a.py": ""})
    precious = own(temporary_root, "precious")
    precious.chmod(0o750)
    folder = abandoned(temporary_root, root)
    (folder / "link").symlink_to(precious)
    (folder / "0/link").symlink_to(precious)
    (folder / "0/tree/work.py").symlink_to(precious / "src/work.py")
    os.link(precious / "src/work.py", folder / "0/tree/second name.py")
    (precious / "src/work.py").chmod(0o440)
    (folder / "0/tree").chmod(0o500)
    sweep(root)
    assert not folder.exists()
    assert (precious / "src/work.py").read_text() == "days of work\n"
    assert (precious / "src/work.py").stat().st_mode & 0o777 == 0o440
    assert precious.stat().st_mode & 0o777 == 0o750


def test_a_kill_at_any_step_leaves_nothing_for_good(make_repo, temporary_root: Path) -> None:
    """Of making a folder, and of removing it."""
    root = make_repo({"a.py": ""})

    def work() -> None:
        claimed = claim(temporary_root, root)
        (claimed.folder / "0/tree").mkdir(parents=True)
        (claimed.folder / "0/tree/a.py").write_text("x = 1\n")
        (claimed.folder / "names").write_text("a.py\0")
        release(claimed)

    step = 1
    while not finishes(work, step, temporary_root):
        step += 1
        for folder in temporary_root.iterdir():
            if os.listdir(folder) in ([], [OWNER]):
                age(folder)  # a run that is just starting looks like this
        sweep(root)
        assert list(temporary_root.iterdir()) == [], step
    assert step > 8


@pytest.mark.parametrize("with_owner", [True, False])
def test_a_folder_that_is_just_being_made_is_left_alone(
    make_repo, temporary_root: Path, with_owner: bool
) -> None:
    root = make_repo({"a.py": ""})
    folder = temporary_root / "clover-fix-0123abcd"
    folder.mkdir()
    if with_owner:
        (folder / OWNER).touch()
    sweep(root)
    assert folder.exists()
    age(folder)
    sweep(root)
    assert not folder.exists()


def test_a_place_where_files_cannot_be_locked(
    make_repo, temporary_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(descriptor: int) -> bool:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(owned, "try_lock", refuse)
    with pytest.raises(UsageError, match=r"No locks available\): set TMPDIR to another folder"):
        claim(temporary_root, make_repo({"a.py": ""}))
    assert list(temporary_root.iterdir()) == []
