"""Uncommitted changes: from git's stored objects, without running anything of the repository."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from clover_engine.privacy.ignore import IgnoreRules
from clover_lsp.context.diff import MAX_BYTES, Hunk, changed, hunks

OLD = "".join(f"line_{n} = {n}\n" for n in range(20))


def test_hunks_show_the_lines_as_they_are_now() -> None:
    new = OLD.replace("line_5 = 5", "line_5 = five()").replace("line_17 = 17\n", "")
    assert hunks("a.py", OLD.encode(), new.encode()) == [
        Hunk("a.py", 4, "line_3 = 3\nline_4 = 4\nline_5 = five()\nline_6 = 6\nline_7 = 7")
    ], "a deletion has no lines to show"


def test_line_ends_do_not_count_and_odd_separators_are_no_lines() -> None:
    """Complaint 15, and U+2028 or a form feed, which are no line ends for an editor."""
    assert hunks("a.py", OLD.encode(), OLD.replace("\n", "\r\n").encode()) == []
    odd = "a = '\u2028'\n\f\nb = 1\nc = 2\n"
    (hunk,) = hunks("a.py", odd.encode(), odd.replace("c = 2", "c = 3").encode())
    assert hunk.first_line == 2 and hunk.text.endswith("c = 3\n")


def test_what_cannot_be_shown() -> None:
    assert hunks("a.py", b"\0", b"x\n") == [] and hunks("a.py", b"", b"x" * (MAX_BYTES + 1)) == []
    (hunk,) = hunks("a.py", b"a = 1\n", b"token = 'ghp_" + b"a1B2" * 9 + b"'\n")
    assert "a1B2" not in hunk.text


@pytest.mark.usefixtures("cache")
def test_no_program_of_the_repository_runs(make_repo: Callable[..., Path], tmp_path: Path) -> None:
    root = make_repo({"a.py": "a = 1\n", "secret.pem": "x\n", "same.py": "s = 1\n"})
    ran = tmp_path / "ran"
    for key in ("filter.spy.clean", "filter.spy.smudge", "diff.spy.textconv", "diff.external"):
        make_repo.git(root, "config", key, f"sh -c 'touch {ran}; cat'")  # type: ignore[attr-defined]
    make_repo.git(root, "config", "core.fsmonitor", f"touch {ran}; false")  # type: ignore[attr-defined]
    (root / ".gitattributes").write_text("* filter=spy diff=spy\n")
    (root / "a.py").write_text("a = 2\n")
    (root / "secret.pem").write_text("y\n")
    (root / "same.py").touch()
    index = (root / ".git" / "index").read_bytes()
    assert changed(root, IgnoreRules(root)) == [Hunk("a.py", 1, "a = 2\n")]
    assert not ran.exists() and (root / ".git" / "index").read_bytes() == index


@pytest.mark.usefixtures("cache")
def test_below_a_repository_without_one_and_without_commits(
    make_repo: Callable[..., Path], tmp_path: Path
) -> None:
    root = make_repo({"part/a.py": "a = 1\n", "b.py": "b = 1\n"})
    (root / "part" / "a.py").write_text("a = 2\n")
    (root / "b.py").write_text("b = 2\n")
    found = changed(root / "part", IgnoreRules(root / "part"))
    assert [h.path for h in found] == ["a.py"]
    (tmp_path / "plain").mkdir()
    assert changed(tmp_path / "plain", IgnoreRules(tmp_path / "plain")) == []
    (tmp_path / "new").mkdir()
    make_repo.git(tmp_path / "new", "init", "-q")  # type: ignore[attr-defined]
    assert changed(tmp_path / "new", IgnoreRules(tmp_path / "new")) == []
