"""Records survive as they are, move as a whole, and are left to nobody else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from clover_patcher.deliver.apply import write_recorded
from clover_patcher.deliver.journal import Entry, FileRecord, Journal
from clover_patcher.deliver.recovery import tidy
from clover_patcher.edits import FileChange, sha256
from clover_patcher.errors import UsageError
from clover_patcher.repository.leftovers import leftovers
from clover_patcher.repository.owned import claim

ODD = "d/caf\udce9 \n 漢.py"


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "git")


def write(journal: Journal, tree: Path, path: str = "a.py") -> Entry:
    target = tree / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(b"old \xff\r")
    with journal.locked():
        entry = Entry.make(tree, "Title \udcff")
        return write_recorded(journal, entry, [FileChange(path, b"old \xff\r", b"")])


def test_a_record_comes_back_as_it_was(journal: Journal, tmp_path: Path) -> None:
    entry = write(journal, tmp_path / "tree", ODD)
    (found,) = Journal(journal.folder.parent).entries("done")
    assert found == entry
    assert journal.changes(found, "done") == [FileChange(ODD, b"old \xff\r", b"")]


def test_ids_sort_by_time(tmp_path: Path) -> None:
    made = [Entry.make(tmp_path, "x") for _ in range(3)]
    assert [e.created for e in made] == sorted(e.created for e in made)
    assert len({e.id for e in made}) == 3
    assert all(e.id[:15] == made[0].id[:15] or e.id > made[0].id for e in made)


def test_damaged_records_are_passed_over(journal: Journal, tmp_path: Path) -> None:
    entry = write(journal, tmp_path / "tree")
    for name, text in [("1", "{"), ("2", "[]"), ("3", '{"files": 1}'), ("4", "")]:
        (journal.folder / "done" / name).mkdir()
        (journal.folder / "done" / name / "entry.json").write_text(text)
    assert journal.entries("done") == [entry]


def test_only_one_process_writes(journal: Journal) -> None:
    code = (
        "import sys; from pathlib import Path; from clover_patcher.deliver.journal import Journal\n"
        "with Journal(Path(sys.argv[1])).locked():\n print('in', flush=True); sys.stdin.read()"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", code, str(journal.folder.parent)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert other.stdout is not None
    assert other.stdout.readline() == b"in\n"
    with pytest.raises(UsageError, match="another clover-code is writing"), journal.locked(0.05):
        pass
    other.kill()
    other.communicate()
    with journal.locked(5):
        pass


def test_a_git_directory_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "git").write_text("")
    journal = Journal(tmp_path / "git")
    with pytest.raises(UsageError, match="make the git directory writable"), journal.locked():
        pass


def test_leftovers_are_seen_and_tidied(make_repo, temporary_root: Path) -> None:
    root = make_repo({"a.py": "x = 1\n"})
    (root / "sub").mkdir()
    linked = root.parent / "linked"
    make_repo.git(root, "worktree", "add", "-q", str(linked))
    clover = root / ".git/clover"
    for place in (root, root / "sub", linked):
        for number in range(2):
            assert not leftovers(place)
            leftover = clover / "new/half"
            if number:
                left = claim(temporary_root, root)
                os.close(left.lock)
                leftover = left.folder
            else:
                leftover.mkdir(parents=True)
            assert leftovers(place)
            assert tidy(place) == []
            assert not leftover.exists()
        (clover / "staged-1-0").write_text("")
        assert leftovers(place)
        assert tidy(place) == []
        assert not leftovers(place)
    assert not leftovers(root.parent)


def test_a_record_that_cannot_be_settled_is_told_and_kept(
    make_repo, monkeypatch: pytest.MonkeyPatch, temporary_root: Path
) -> None:
    root = make_repo({"a.py": "x = 1\n", "b.py": "y = 1\n"})
    journal = Journal(root / ".git")

    def die(*_: object) -> None:
        raise SystemExit

    changes = [FileChange(f"{n}.py", f"{v} = 1\n".encode(), b"new\n") for n, v in ("ax", "by")]
    with monkeypatch.context() as patch:
        patch.setattr("clover_patcher.deliver.apply._take_back", die)
        patch.setattr("clover_patcher.deliver.apply.expect", _refuse_second())
        with pytest.raises(SystemExit), journal.locked():
            write_recorded(journal, Entry.make(root, "x"), changes)
    assert (root / "a.py").read_text() == "new\n"
    (root / "a.py").chmod(0o444)
    (said,) = tidy(root)
    assert "cannot be settled (a.py is read-only" in said
    assert len(journal.entries("pending")) == 1
    (root / "a.py").chmod(0o644)
    (said,) = tidy(root)
    assert "a.py, b.py is as before" in said
    assert (root / "a.py").read_text() == "x = 1\n"


def _refuse_second():  # the fourth look: two before anything, one before each file
    looks = iter([None, None, None, OSError(5, "I/O error", "b.py")])

    def expect(target: Path, change: FileChange) -> None:
        if problem := next(looks):
            raise problem

    return expect


def forge(journal: Journal, state: str, name: str, entry: Entry, *texts: bytes) -> None:
    """A record that somebody else wrote into the folder, from an archive that was unpacked say."""
    folder = journal.folder / state / name
    folder.mkdir(parents=True)
    (folder / "entry.json").write_text(json.dumps(asdict(entry)))
    for number, text in enumerate(texts):
        (folder / f"{number // 2}.{'after' if number % 2 else 'before'}").write_bytes(text)


@pytest.mark.parametrize("state", ["new", "pending", "done", "conflicts"])
def test_no_record_leads_to_the_removal_of_a_users_file(
    make_repo, temporary_root: Path, tmp_path: Path, state: str
) -> None:
    root = make_repo({"a.py": "x = 1\n"})
    journal = Journal(root / ".git")
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis.txt").write_text("ten years\n")
    good = Entry.make(root, "a fix")
    file = FileRecord("a.py", "", "", str(precious / "thesis.txt"))
    out = FileRecord("../precious/thesis.txt", "", "", None)
    up = os.path.relpath(precious, journal.folder / state)
    forge(journal, state, "1", replace(good, id="1", files=(file,)))
    forge(journal, state, good.id, replace(good, files=(file,)))
    for number in range(25):  # more than are kept
        other = Entry.make(root, "a fix")
        name = f"{other.id}{number:02d}"  # ids of one millisecond may be the same
        forge(journal, state, name, replace(other, id=up))
        forge(journal, state, f"{name}-out", replace(other, files=(out,)))
    tidy(root)
    with journal.locked():
        journal.clean()
    assert (precious / "thesis.txt").read_text() == "ten years\n"
    assert (root / "a.py").read_text() == "x = 1\n"


def test_a_record_of_another_tree_is_not_acted_upon(make_repo, temporary_root: Path) -> None:
    """Its bytes would be written over a file whose content is known."""
    root, other = make_repo({"a.py": "x = 1\n"}), make_repo({"a.py": "x = 1\n"}, "other")
    journal, entry = Journal(root / ".git"), Entry.make(other, "a fix")
    before, after = b"import os; os.abort()\n", b"x = 1\n"
    file = FileRecord("a.py", sha256(before), sha256(after), None)
    also = FileRecord("b.py", sha256(before), sha256(after), None)
    forge(journal, "pending", entry.id, replace(entry, files=(file, also)), *[before, after] * 2)
    tidy(root)
    assert (other / "a.py").read_text() == "x = 1\n"


def test_a_linked_folder_of_records_is_not_used(make_repo, tmp_path: Path) -> None:
    root = make_repo({"a.py": "x = 1\n"})
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis.txt").write_text("ten years\n")
    (root / ".git/clover").mkdir()
    (root / ".git/clover/new").symlink_to(precious)
    tidy(root)
    with pytest.raises(UsageError, match="symbolic link"), Journal(root / ".git").locked():
        pass
    assert (precious / "thesis.txt").exists()
