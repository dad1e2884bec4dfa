"""A patch is written as a whole or not at all, whenever the process dies and whoever interferes."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.patcher.killing import finishes

from clover_patcher.deliver import apply
from clover_patcher.deliver.apply import Recovered, recover, write_recorded
from clover_patcher.deliver.journal import Entry, Journal
from clover_patcher.edits import FileChange
from clover_patcher.errors import TreeChanged, UsageError

OLD = {"a.py": b"a = 1\n" * 40, "deep/b.py": b"b = 1\r\n", "linked.py": b"long old content\n"}
NEW = {"a.py": b"a = 2\n", "deep/b.py": b"b = 2\r\n" * 30, "linked.py": b"new\n"}
CHANGES = [FileChange(path, OLD[path], NEW[path]) for path in OLD]


@pytest.fixture(autouse=True)
def fast_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill loses nothing that was written: only a power cut needs the disk to be waited for."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)


class Place:
    """A working tree with three files, one of which has a second name, and its journal."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.tree = folder, folder / "tree"
        (self.tree / "deep").mkdir(parents=True)
        for path, data in OLD.items():
            (self.tree / path).write_bytes(data)
        os.link(self.tree / "linked.py", self.tree / "other name.py")
        (folder / "git").mkdir()
        self.journal = Journal(folder / "git")

    def write(self) -> Entry:
        with self.journal.locked():
            return write_recorded(self.journal, Entry.make(self.tree, "a fix"), CHANGES)

    def recover(self) -> list[Recovered]:
        return recover(self.journal)

    @property
    def state(self) -> str:
        """ "old", "new", or the files that are neither together."""
        found = {path: (self.tree / path).read_bytes() for path in OLD}
        assert (self.tree / "linked.py").samefile(self.tree / "other name.py")
        return "old" if found == OLD else "new" if found == NEW else repr(found)

    def require_clean(self) -> None:
        """Nothing of ours is left but finished records."""
        names = {str(p.relative_to(self.tree)) for p in self.tree.rglob("*") if p.is_file()}
        assert names == {*OLD, "other name.py"}
        left = {p.name for p in self.journal.folder.iterdir()}
        assert left <= {"lock", "new", "pending", "done", "conflicts"}
        assert not [*self.journal.folder.glob("new/*"), *self.journal.folder.glob("pending/*")]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture(scope="module")
def mixing(tmp_path_factory: pytest.TempPathFactory) -> int:
    """The last step whose loss leaves some files old and some new."""
    folder = tmp_path_factory.mktemp("mixing")
    found = 0
    for step in count(1):
        place = Place(folder / str(step))
        if finishes(place.write, step, place.folder):
            assert found
            return found
        if place.state not in ("old", "new"):
            found = step
    raise AssertionError


def test_all_files_are_written_and_recorded(place: Place) -> None:
    (place.tree / "a.py").chmod(0o751)
    entry = place.write()
    assert place.state == "new"
    assert stat.S_IMODE((place.tree / "a.py").stat().st_mode) == 0o751
    assert place.journal.entries("done") == [entry]
    assert place.journal.changes(entry, "done") == CHANGES
    place.require_clean()


def test_extended_attributes_survive(place: Place) -> None:
    try:
        os.setxattr(place.tree / "a.py", "user.note", b"keep")
    except OSError:
        pytest.skip("the file system has no extended attributes")
    place.write()
    assert os.getxattr(place.tree / "a.py", "user.note") == b"keep"


def test_a_kill_before_any_step_leaves_all_or_nothing(tmp_path: Path) -> None:
    outcomes = []
    for step in count(1):
        place = Place(tmp_path / str(step))
        finished = finishes(place.write, step, place.folder)
        mixed = place.state not in ("old", "new")
        said = place.recover()
        assert place.state in ("old", "new"), step
        place.require_clean()
        assert not (mixed and not said), "a mixture was put right in silence"
        assert [e.title for e in place.journal.entries("done")] == ["a fix"] * (
            place.state == "new"
        )
        outcomes.append(place.state)
        if finished:
            break
    assert outcomes == sorted(outcomes, reverse=True), "old, and from some step on new"
    assert outcomes.count("old") > 20 and outcomes.count("new") >= 2


def test_a_kill_while_recovering_is_recovered_from(tmp_path: Path, mixing: int) -> None:
    """The mixture in which every file but the last has arrived, killed again at every step."""
    for step in count(1):
        place = Place(tmp_path / str(step))
        assert not finishes(place.write, mixing, place.folder)
        finished = finishes(place.recover, step, place.folder)
        place.recover()
        assert place.state == "old"
        place.require_clean()
        if finished:
            break
    assert step > 10


@pytest.fixture
def halfway(place: Place, mixing: int) -> Place:
    """A place where only some files are new."""
    assert not finishes(place.write, mixing, place.folder)
    assert place.state not in ("old", "new")
    return place


def test_edits_of_the_user_in_between_are_kept(halfway: Place) -> None:
    (halfway.tree / "deep/b.py").write_bytes(b"mine")
    (found,) = halfway.recover()
    assert (halfway.tree / "deep/b.py").read_bytes() == b"mine"
    assert (halfway.tree / "a.py").read_bytes() == OLD["a.py"]
    assert not found.written
    assert "deep/b.py changed since: your version stays" in found.message
    (kept,) = (halfway.journal.folder / "conflicts").iterdir()
    assert str(kept) in found.message
    number = list(OLD).index("deep/b.py")
    assert (kept / f"{number}.before").read_bytes() == OLD["deep/b.py"]
    assert (kept / f"{number}.after").read_bytes() == NEW["deep/b.py"]
    assert halfway.recover() == []


def test_cleaning_up_leaves_what_a_pending_record_needs(tmp_path: Path) -> None:
    """Else a file that was never replaced would look as if it had been."""
    for step in count(1):
        place = Place(tmp_path / str(step))
        assert not finishes(place.write, step, place.folder)
        if place.state == "old" and place.journal.entries("pending"):
            break
    with place.journal.locked():
        place.journal.clean()
    for path in OLD:
        (place.tree / path).write_bytes(b"mine")
    (found,) = place.recover()
    assert not found.written
    assert {(place.tree / path).read_bytes() for path in OLD} == {b"mine"}
    place.require_clean()


def test_an_edit_on_top_of_the_finished_patch_is_no_conflict(tmp_path: Path) -> None:
    """Killed after the last file, before the record was finished; then the user went on."""
    change = FileChange("a.py", b"1", b"2")
    for step in count(1):
        tree = tmp_path / str(step)
        (tree / "git").mkdir(parents=True)
        (tree / "a.py").write_bytes(b"1")
        journal = Journal(tree / "git")

        def work(journal: Journal = journal, tree: Path = tree) -> None:
            with journal.locked():
                write_recorded(journal, Entry.make(tree, "x"), [change])

        finished = finishes(work, step, tree)
        if (tree / "a.py").read_bytes() == b"2" and journal.entries("pending"):
            break
        assert not finished
    (tree / "a.py").write_bytes(b"2 and more")
    (found,) = recover(journal)
    assert found.written
    assert (tree / "a.py").read_bytes() == b"2 and more"
    assert len(journal.entries("done")) == 1


@given(
    before=st.binary(max_size=12),
    after=st.binary(max_size=12),
    first=st.integers(0, 12),
    second=st.integers(0, 12),
)
def test_every_cut_off_overwriting_is_recognised(
    before: bytes, after: bytes, first: int, second: int
) -> None:
    torn = after[:first] + before[min(first, len(after)) :]
    back = before[:second] + torn[min(second, len(before)) :]
    change = FileChange("f", before, after)
    assert apply._is_torn(torn, change)
    assert apply._is_torn(back, change)


def test_other_bytes_are_not_taken_for_a_cut_off_overwriting() -> None:
    change = FileChange("f", b"x = 1\n", b"x = 2 + 2\n")
    for data in (b"x = 3\n", b"x = 2 + 2\n# more\n", b"", b"x = 1\n + 2\n# a\n"):
        assert not apply._is_torn(data, change)


def test_a_half_overwritten_file_is_put_back(halfway: Place) -> None:
    before, after = OLD["linked.py"], NEW["linked.py"]
    with (halfway.tree / "linked.py").open("r+b") as file:
        file.write(after[:2])
    assert (halfway.tree / "linked.py").read_bytes() == after[:2] + before[2:]
    halfway.recover()
    assert halfway.state == "old"


def test_a_changed_file_stops_everything(place: Place) -> None:
    (place.tree / "deep/b.py").write_bytes(b"the user was here")
    with pytest.raises(TreeChanged, match=r"deep/b\.py changed meanwhile"):
        place.write()
    assert (place.tree / "a.py").read_bytes() == OLD["a.py"]
    place.require_clean()


def test_a_change_in_the_middle_takes_back_what_is_ours(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = apply._put

    def interfering(file: object, target: Path, data: bytes) -> None:
        put(file, target, data)  # type: ignore[arg-type]
        (place.tree / "deep/b.py").write_bytes(b"the user was here")

    monkeypatch.setattr(apply, "_put", interfering)
    with pytest.raises(TreeChanged, match=r"deep/b\.py changed meanwhile"):
        place.write()
    assert (place.tree / "a.py").read_bytes() == OLD["a.py"]
    assert (place.tree / "deep/b.py").read_bytes() == b"the user was here"
    place.require_clean()


def test_a_failure_in_the_middle_takes_everything_back(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = apply._put

    def failing(file: object, target: Path, data: bytes) -> None:
        if target.name == "linked.py":
            raise OSError(28, "No space left on device", str(target))
        put(file, target, data)  # type: ignore[arg-type]

    monkeypatch.setattr(apply, "_put", failing)
    with pytest.raises(TreeChanged, match="No space left"):
        place.write()
    assert place.state == "old"
    place.require_clean()


def test_what_belongs_to_a_record_is_done_or_nothing_is(place: Place) -> None:
    def refuse(entry: Entry) -> None:
        assert place.state == "new"
        raise UsageError("no")

    with pytest.raises(UsageError), place.journal.locked():
        write_recorded(place.journal, Entry.make(place.tree, "x"), CHANGES, refuse)
    assert place.state == "old"
    place.require_clean()


def test_content_waits_outside_of_the_tree(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    put, seen = apply._put, []

    def watching(file: object, target: Path, data: bytes) -> None:
        seen.append(sorted(p.name for p in place.tree.rglob("*") if p.is_file()))
        put(file, target, data)  # type: ignore[arg-type]

    monkeypatch.setattr(apply, "_put", watching)
    place.write()
    assert seen == [["a.py", "b.py", "linked.py", "other name.py"]] * 3


def test_recovering_waits_for_nobody(halfway: Place) -> None:
    with Journal(halfway.folder / "git").locked():
        assert halfway.recover() == []
    assert len(halfway.recover()) == 1


def test_a_link_in_place_of_a_file_is_left_alone(halfway: Place) -> None:
    (halfway.tree / "a.py").unlink()
    (halfway.tree / "a.py").symlink_to("deep/b.py")
    (found,) = halfway.recover()
    assert "a.py changed since" in found.message
    assert (halfway.tree / "a.py").is_symlink()
    assert (halfway.tree / "deep/b.py").read_bytes() == OLD["deep/b.py"]


def refuse_moves(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where quotas or encryption keep files apart that are on one device."""
    real = os.replace

    def replace(source: Path | str, target: Path | str) -> None:
        if Path(source).parent == place.journal.folder:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        real(source, target)

    monkeypatch.setattr(os, "replace", replace)


def test_files_that_cannot_be_moved_into_the_tree_are_prepared_there(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_moves(place, monkeypatch)
    (place.tree / "a.py").chmod(0o751)
    place.write()
    assert place.state == "new"
    assert stat.S_IMODE((place.tree / "a.py").stat().st_mode) == 0o751
    place.require_clean()


def test_a_kill_is_survived_there_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    states = set()
    for step in count(1):
        place = Place(tmp_path / str(step))
        with monkeypatch.context() as patch:
            refuse_moves(place, patch)
            ended = finishes(place.write, step, place.folder)
            place.recover()
        assert place.state in ("old", "new"), step
        states.add(place.state)
        with place.journal.locked():
            place.journal.clean()
        place.require_clean()
        if ended:
            break
    assert states == {"old", "new"}


BOUND = """
import sys
from pathlib import Path
from clover_patcher.deliver.apply import write_recorded
from clover_patcher.deliver.journal import Entry, Journal
from clover_patcher.edits import FileChange
tree, changes = Path(sys.argv[1]), [FileChange("src/a.py", b"old", b"new")]
journal = Journal(tree / ".git")
assert (tree / "src").stat().st_dev == (tree / ".git").stat().st_dev
with journal.locked():
    entry = write_recorded(journal, Entry.make(tree, "a fix"), changes)
print(entry.files[0].staged)
"""


def test_a_folder_that_is_mounted_from_the_same_device(tmp_path: Path) -> None:
    for name in ("elsewhere", "tree/src", "tree/.git"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "elsewhere/a.py").write_text("old")
    command = f'mount --bind elsewhere tree/src && exec {sys.executable} -c "$0" "$PWD/tree"'
    apart = ["unshare", "--user", "--map-root-user", "--mount"]
    if subprocess.run([*apart, "true"], capture_output=True).returncode:
        pytest.skip("no user namespaces here")
    done = subprocess.run(
        [*apart, "sh", "-c", command, BOUND], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(tmp_path / "tree/src/.clover-"))
    assert (tmp_path / "elsewhere/a.py").read_text() == "new"
    assert os.listdir(tmp_path / "elsewhere") == ["a.py"]
