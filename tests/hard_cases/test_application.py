"""Cases 10 to 13, 26 to 28: the patch lands in its place, whole, and on what was validated."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from clover_patcher.edits import FileChange, write_changes
from clover_patcher.errors import TreeChanged

from .cases import case
from .harness import (
    BROKEN,
    FIXED,
    HALF,
    HALF_TESTS,
    PROGRAM,
    RETURN,
    TESTS,
    Canary,
    Hooked,
    Repairs,
    prefers,
    tree,
)

TWIN = "def {}(a, b):\n    # the same\n    return a - b\n\n\n"
TWINS = TWIN.format("first") + TWIN.format("add") + TWIN.format("last")
TWIN_TESTS = (
    "from program import add, first, last\n\n"
    "assert first(2, 3) == last(2, 3) == -1\nassert add(2, 3) == 5\nassert add('a', 'b') == 'ab'\n"
)


def second_twin(new: str) -> str:
    head, middle, tail = TWINS.split("a - b", 2)
    return f"{head}a - b{middle}{new}{tail}"


@case(10)
def test_of_equal_lines_the_faulty_one_changes(make_repo, repairs: Repairs) -> None:
    root = make_repo({"program.py": TWINS, "check.py": TWIN_TESTS})
    result = repairs.fixed(root, {"program.py": second_twin("a + b")})
    assert result.line == 8
    make_repo.git(root, "checkout", "-q", ".")
    make_repo.write(root, {"../fix.patch": result.patch})
    make_repo.git(root, "apply", "../fix.patch")
    assert (root / "program.py").read_text() == second_twin("a + b")


@case(10)
def test_of_two_equal_calls_on_a_line_one_changes(make_repo, repairs: Repairs) -> None:
    """A search for the text would find the first, or both."""
    before = "def f(a, b):\n    return (a - b, a - b, a - b)\n"
    tests = (
        "from program import f\n\nassert f(2, 3) == (-1, 5, -1)\nassert f(0, 1) == (-1, 1, -1)\n"
    )
    root = make_repo({"program.py": before, "check.py": tests})
    after = before.replace("a - b, a - b, a", "a - b, a + b, a")
    repairs.fixed(root, {"program.py": after})


@case(11)
def test_a_new_line_goes_to_its_place_among_equal_neighbours(make_repo, repairs: Repairs) -> None:
    """Before and after the place stand the same lines as in two other functions."""
    one = "def {}(n):\n    n += n\n    n += 1\n    return n\n\n\n"
    before = one.format("before") + HALF + "\n\n" + one.format("after")
    root = make_repo({"program.py": before, "check.py": HALF_TESTS})
    after = before.replace(HALF, HALF + RETURN)
    result = repairs.fixed(root, {"program.py": after}, engine=prefers("return n"))
    assert b"@@ -6,6 +6,7 @@\n" in result.patch
    make_repo.git(root, "checkout", "-q", ".")
    make_repo.write(root, {"../fix.patch": result.patch})
    make_repo.git(root, "apply", "../fix.patch")
    assert (root / "program.py").read_text() == after


@case(12)
def test_an_insertion_does_not_go_to_the_end(make_repo, repairs: Repairs) -> None:
    before = HALF + "\n\nEND = 1\n"
    root = make_repo({"program.py": before, "empty.py": "", "check.py": HALF_TESTS})
    after = HALF + RETURN + "\n\nEND = 1\n"
    repairs.fixed(root, {"program.py": after}, engine=prefers("return n"))


@case(13)
def test_after_a_failure_nothing_of_the_patch_stays(tmp_path: Path) -> None:
    """The second of three files cannot be written: the first gets its bytes back."""
    names = ("a.py", "b.py", "c.py")
    for name in names:
        (tmp_path / name).write_text(f"{name} old\n")
    (tmp_path / "b.py").write_text("the user's own\n")
    before = tree(tmp_path)
    patch = [FileChange(n, f"{n} old\n".encode(), f"{n} new\n".encode()) for n in names]
    with pytest.raises(TreeChanged, match=r"b\.py changed meanwhile"):
        write_changes(tmp_path, patch)
    assert tree(tmp_path) == before
    (tmp_path / "b.py").write_text("b.py old\n")
    write_changes(tmp_path, patch)
    assert [(tmp_path / name).read_text() for name in names] == [f"{name} new\n" for name in names]


@case(13)
def test_the_next_run_starts_from_what_is_there_then(make_repo, repairs: Repairs) -> None:
    """A run that came too late, and one more on the base that the user made meanwhile."""
    root = make_repo(BROKEN)
    mine = "# by the user\n" + PROGRAM
    late = repairs.run(
        root, hooked=Hooked(confirm=lambda: make_repo.write(root, {"program.py": mine}))
    )
    assert (late.status, late.exit_code, late.applied) == ("tree_changed", 4, False)
    assert (root / "program.py").read_text() == mine
    repairs.fixed(root, {"program.py": "# by the user\n" + FIXED})


@case(26)
def test_no_hook_rewrites_what_was_validated(
    make_repo, repairs: Repairs, tmp_path: Path, canary: Canary
) -> None:
    root = make_repo(BROKEN)
    canary.hooks(root / ".git/hooks", "pre-commit", "commit-msg", "post-commit", "pre-applypatch")
    make_repo.git(root, "config", "core.hooksPath", str(root / ".git/hooks"))
    repairs.fixed(root, {"program.py": FIXED})
    assert not canary.ran


@case(27)
@pytest.mark.parametrize("stage", ["baseline", "localise", "found", "confirm", "apply"])
def test_what_the_user_types_meanwhile_is_never_overwritten(
    make_repo, repairs: Repairs, stage: str
) -> None:
    root = make_repo(BROKEN)
    typed = PROGRAM.replace("a - b", "a * b  # thinking")
    hooked = Hooked(**{stage: lambda: make_repo.write(root, {"program.py": typed})})
    result = repairs.run(root, hooked=hooked)
    assert (result.status, result.applied) == ("tree_changed", False)
    assert (root / "program.py").read_text() == typed
    assert result.error is not None and "program.py changed meanwhile" in result.error


@case(27)
def test_a_file_of_the_same_size_and_time_is_seen_to_differ(make_repo, repairs: Repairs) -> None:
    """Editors that keep times, and coarse clocks: the content decides."""
    root = make_repo(BROKEN)
    typed, file = PROGRAM.replace("-", "*"), root / "program.py"
    info = file.stat()

    def type_it() -> None:
        file.write_text(typed)
        os.utime(file, ns=(info.st_atime_ns, info.st_mtime_ns))

    result = repairs.run(root, hooked=Hooked(apply=type_it))
    assert (result.status, result.applied) == ("tree_changed", False)
    assert file.read_text() == typed


@case(27)
def test_a_file_that_goes_away_meanwhile_stays_away(make_repo, repairs: Repairs) -> None:
    root = make_repo(BROKEN)
    result = repairs.run(root, hooked=Hooked(apply=(root / "program.py").unlink))
    assert (result.status, result.applied) == ("tree_changed", False)
    assert sorted(tree(root)) == ["check.py"]


@case(27)
def test_of_two_runs_at_once_none_loses_the_others_work(make_repo, repairs: Repairs) -> None:
    """The second has copied the tree before the first one writes to another file of it."""
    other = {"other.py": PROGRAM, "check_other.py": TESTS.replace("program", "other")}
    root = make_repo({**BROKEN, **other})
    inner = []

    def other_run() -> None:
        inner.append(repairs.run(root, "python check_other.py", paths=("other.py",)))

    result = repairs.run(root, paths=("program.py",), hooked=Hooked(search=other_run))
    assert [run.status for run in inner] == ["fixed"]
    assert (result.status, result.applied) == ("fixed", True)
    assert (root / "other.py").read_text() == FIXED
    assert (root / "program.py").read_text() == FIXED


@case(28)
def test_work_in_progress_stays_as_it_is(make_repo, repairs: Repairs) -> None:
    """Staged, unstaged, untracked, deleted, half staged, and in the stash."""
    root = make_repo({**BROKEN, "a.py": "1\n", "b.py": "1\n", "gone.py": "1\n"})
    make_repo.write(root, {"a.py": "stashed\n", "program.py": "stashed\n"})
    make_repo.git(root, "stash", "push", "-q", "-m", "for later")
    make_repo.write(root, {"a.py": "staged\n", "program.py": "# staged\n" + PROGRAM})
    make_repo.git(root, "add", "a.py", "program.py")
    mine = "# staged, then more\n" + PROGRAM
    make_repo.write(root, {"a.py": "more\n", "program.py": mine, "new.py": "new\n"})
    (root / "gone.py").unlink()
    before = repairs.status(root)
    repairs.fixed(root, {"program.py": "# staged, then more\n" + FIXED})
    assert repairs.status(root) == before
    assert make_repo.git(root, "show", ":program.py") == "# staged\n" + PROGRAM
    assert make_repo.git(root, "stash", "list").count("for later") == 1
    assert make_repo.git(root, "show", "stash@{0}:program.py") == "stashed\n"
