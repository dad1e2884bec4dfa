"""Edits keep every byte outside of them, diffs apply with git, writes are all or nothing."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clover_patcher import edits
from clover_patcher.edits import FileChange, apply_edits, changes, unified_diff, write_changes
from clover_patcher.errors import TreeChanged, UsageError
from clover_patcher.types import Edit


def test_edits_refer_to_the_original_bytes() -> None:
    data = b"one two three"
    done = apply_edits(data, [Edit("f", 8, 13, b"3"), Edit("f", 0, 3, b"1"), Edit("f", 7, 7, b"!")])
    assert done == b"1 two! 3"


@pytest.mark.parametrize("start,end", [(0, 99), (3, 2), (-1, 1)])
def test_a_range_outside_is_refused(start: int, end: int) -> None:
    with pytest.raises(ValueError):
        apply_edits(b"abc", [Edit("f", start, end, b"")])


def test_overlapping_edits_are_refused() -> None:
    with pytest.raises(ValueError):
        apply_edits(b"abcdef", [Edit("f", 0, 3, b"x"), Edit("f", 2, 4, b"y")])


def test_changes_leaves_out_files_that_stay_the_same() -> None:
    files = {"a": b"1\n", "b": b"2\n"}
    found = changes(files, [Edit("a", 0, 1, b"1"), Edit("b", 0, 1, b"3")])
    assert found == [FileChange("b", b"2\n", b"3\n")]


def git_apply(tmp_path: Path, change: FileChange) -> bytes:
    """What git makes of our patch on the old bytes."""
    target = tmp_path / change.path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(change.before)
    subprocess.run(
        ["git", "apply", "--whitespace=nowarn", "-p1", "-"],
        cwd=tmp_path,
        input=unified_diff([change]),
        check=True,
    )
    return target.read_bytes()


LINE = st.binary(max_size=4).map(lambda raw: raw.replace(b"\n", b"n").replace(b"\0", b"0"))
TEXT = st.tuples(st.lists(LINE, max_size=30), st.sampled_from([b"\n", b"\r\n"]), st.booleans()).map(
    lambda t: t[1].join(t[0]) + (t[1] if t[2] else b"")
)


@settings(max_examples=60, deadline=None)
@given(before=TEXT.filter(len), after=TEXT.filter(len))
def test_git_applies_the_diff_to_the_byte(
    tmp_path_factory: pytest.TempPathFactory, before: bytes, after: bytes
) -> None:
    folder = tmp_path_factory.mktemp("apply")
    if before != after:
        assert git_apply(folder, FileChange("f.py", before, after)) == after


@pytest.mark.parametrize(
    "path",
    ["plain.py", "with space.py", "ümläut/漢字.py", 'quo"te.py', "back\\slash.py", "t\tab.py"],
)
def test_git_reads_every_path(tmp_path: Path, path: str) -> None:
    assert git_apply(tmp_path, FileChange(path, b"a\nb\n", b"a\nc\n")) == b"a\nc\n"


@pytest.mark.parametrize(
    "before,after",
    [
        (b"a\r\nb\r\n", b"a\r\nc\r\n"),
        (b"a\nb", b"a\nc"),
        (b"a\nb", b"a\nb\n"),
        (b"\xef\xbb\xbfa\nb\n", b"\xef\xbb\xbfa\nc\n"),
        (b"caf\xe9\n", b"caf\xe8\n"),
        ("a\u2028b\n".encode(), "a\u2028c\n".encode()),
        (b"a\x0cb\x0b\x1c\n", b"a\x0cc\x0b\x1c\n"),
    ],
)
def test_line_ends_and_encodings_survive_the_diff(
    tmp_path: Path, before: bytes, after: bytes
) -> None:
    assert git_apply(tmp_path, FileChange("f.py", before, after)) == after


def test_the_diff_is_minimal_and_splits_hunks() -> None:
    before = b"".join(b"line %d\n" % n for n in range(1, 41))
    after = before.replace(b"line 5\n", b"five\n").replace(b"line 30\n", b"")
    text = unified_diff([FileChange("f.py", before, after)]).decode()
    assert text.startswith("diff --git a/f.py b/f.py\n--- a/f.py\n+++ b/f.py\n@@ -2,7 +2,7 @@\n")
    assert text.count("@@ -") == 2
    assert [
        line for line in text.splitlines() if line[0] in "+-" and line[1:3] not in ("--", "++")
    ] == [
        "-line 5",
        "+five",
        "-line 30",
    ]


def test_a_missing_final_newline_is_marked() -> None:
    text = unified_diff([FileChange("f.py", b"a", b"b")])
    assert text.count(b"\\ No newline at end of file\n") == 2


def test_writing_keeps_the_mode(tmp_path: Path) -> None:
    target = tmp_path / "f.py"
    target.write_bytes(b"old")
    target.chmod(0o751)
    write_changes(tmp_path, [FileChange("f.py", b"old", b"new")])
    assert target.read_bytes() == b"new"
    assert stat.S_IMODE(target.stat().st_mode) == 0o751
    assert sorted(p.name for p in tmp_path.iterdir()) == ["f.py"]


def test_writing_keeps_hard_links_together(tmp_path: Path) -> None:
    (tmp_path / "f.py").write_bytes(b"old text")
    os.link(tmp_path / "f.py", tmp_path / "g.py")
    write_changes(tmp_path, [FileChange("f.py", b"old text", b"new")])
    assert (tmp_path / "g.py").read_bytes() == b"new"
    assert (tmp_path / "g.py").samefile(tmp_path / "f.py")


def test_a_changed_file_is_left_alone_and_so_are_the_others(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_bytes(b"a")
    (tmp_path / "b.py").write_bytes(b"user was here")
    with pytest.raises(TreeChanged, match=r"b\.py changed meanwhile"):
        write_changes(tmp_path, [FileChange("a.py", b"a", b"x"), FileChange("b.py", b"b", b"y")])
    assert (tmp_path / "a.py").read_bytes() == b"a"
    assert (tmp_path / "b.py").read_bytes() == b"user was here"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.py", "b.py"]


def test_a_failure_in_the_middle_takes_everything_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_bytes(name.encode())
    overwrite = edits.overwrite

    def failing(target: Path, data: bytes) -> None:
        if target.name == "b.py" and data == b"y":
            raise OSError(28, "No space left on device", str(target))
        overwrite(target, data)

    monkeypatch.setattr(edits, "overwrite", failing)
    with pytest.raises(TreeChanged, match="No space left"):
        write_changes(
            tmp_path, [FileChange("a.py", b"a.py", b"x"), FileChange("b.py", b"b.py", b"y")]
        )
    assert (tmp_path / "a.py").read_bytes() == b"a.py"
    assert (tmp_path / "b.py").read_bytes() == b"b.py"


@pytest.mark.parametrize(
    "path",
    [
        "../f.py",
        "/etc/passwd",
        "",
        ".git/config",
        ".gitignore",
        "sub/.GIT/x",
        "sub/.gitmodules",
        ".gitlab-ci.yml",
        "a\0b",
    ],
)
def test_paths_that_a_patch_must_not_touch(tmp_path: Path, path: str) -> None:
    with pytest.raises(UsageError):
        write_changes(tmp_path, [FileChange(path, b"", b"x")])


def test_links_are_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real/f.py").write_bytes(b"a")
    (tmp_path / "folder").symlink_to("real")
    (tmp_path / "f.py").symlink_to("real/f.py")
    for path in ("f.py", "folder/f.py"):
        with pytest.raises(UsageError, match="symbolic link"):
            write_changes(tmp_path, [FileChange(path, b"a", b"b")])
    assert (tmp_path / "f.py").is_symlink()


def test_read_only_files_and_folders_are_refused(tmp_path: Path) -> None:
    (tmp_path / "f.py").write_bytes(b"a")
    (tmp_path / "f.py").chmod(0o444)
    (tmp_path / "d").mkdir()
    with pytest.raises(UsageError, match="chmod"):
        write_changes(tmp_path, [FileChange("f.py", b"a", b"b")])
    with pytest.raises(UsageError, match="regular file"):
        write_changes(tmp_path, [FileChange("d", b"a", b"b")])
    with pytest.raises(TreeChanged, match="gone"):
        write_changes(tmp_path, [FileChange("nothing.py", b"a", b"b")])
