"""Cases 14 to 23: names that need quoting, links, modes, and files that are not ours to write."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from clover_patcher.errors import UsageError

from .cases import case
from .harness import BROKEN, FIXED, PROGRAM, TESTS, Hooked, Repairs, by_path, tree

NAMES = [
    "ünï cödé/漢字 🍀.py",
    'quo"ted\\name.py',
    "tab\tand\nnewline.py",
    "-leading-dash *glob[a]?.py",
    " blanks around .py",
    ":(top)magic.py",
    "$HOME/~user/%s{0}.py",
    "nfc-\u00e9-nfd-e\u0301.py",
    os.fsdecode(b"not-utf8-\xe9.py"),
]


@case(14)
@case(15)
@pytest.mark.parametrize("name", NAMES, ids=[ascii(name) for name in NAMES])
def test_every_name_is_patched(make_repo, repairs: Repairs, name: str) -> None:
    root = make_repo({name: PROGRAM, "check.py": by_path(name)})
    result = repairs.fixed(root, {name: FIXED})
    assert repairs.status(root) == f" M {name}\0"
    make_repo.git(root, "checkout", "-q", ".")
    make_repo.write(root, {"../fix.patch": result.patch})
    make_repo.git(root, "apply", "../fix.patch")
    assert (root / name).read_text() == FIXED


ROOTS = [" x\n y ", "-dash", "$HOME", '~ünï q"\\%41', os.fsdecode(b"\xe9")]


@case(15)
@pytest.mark.parametrize("name", ROOTS, ids=[ascii(name) for name in ROOTS])
def test_the_repository_may_lie_anywhere(make_repo, repairs: Repairs, name: str) -> None:
    root = make_repo(BROKEN, name)
    repairs.fixed(root, {"program.py": FIXED})


@case(16)
def test_names_that_differ_only_in_case_are_two_files(make_repo, repairs: Repairs) -> None:
    root = make_repo({"Program.py": PROGRAM, "PROGRAM.py": "# a third\n", **BROKEN})
    if len(list(root.glob("*rogram.py"))) < 2:
        pytest.skip("this file system takes them for one file")
    repairs.fixed(root, {"program.py": FIXED})


@case(17)
def test_a_patch_makes_moves_and_removes_no_file(make_repo, repairs: Repairs) -> None:
    """Files with the names that backups and temporary files like to have stay what they are."""
    beside = ("program.py.orig", "program.py.rej", "program.py~", ".clover-1.tmp", "program.pyc")
    root = make_repo({**BROKEN, **dict.fromkeys(beside, "mine\n")})
    result = repairs.fixed(root, {"program.py": FIXED})
    make_repo.write(root, {"../fix.patch": result.patch})
    assert make_repo.git(root, "apply", "-R", "--summary", "../fix.patch") == ""
    assert make_repo.git(root, "diff", "--name-status") == "M\tprogram.py\n"


@case(18)
@pytest.mark.parametrize("absolute", [False, True])
def test_the_file_behind_a_link_is_patched(make_repo, repairs: Repairs, absolute: bool) -> None:
    root = make_repo({"src/real.py": PROGRAM, "check.py": TESTS})
    (root / "program.py").symlink_to(root / "src/real.py" if absolute else "src/real.py")
    make_repo.commit(root)
    assert repairs.fixed(root, {"src/real.py": FIXED}).path == "src/real.py"
    assert (root / "program.py").is_symlink()


@case(18)
def test_the_file_in_a_linked_folder_is_patched(make_repo, repairs: Repairs) -> None:
    root = make_repo({"src/program.py": PROGRAM, "check.py": TESTS.replace("prog", "lib.prog", 1)})
    (root / "lib").symlink_to("src")
    make_repo.commit(root)
    assert repairs.fixed(root, {"src/program.py": FIXED}).path == "src/program.py"


@case(18)
def test_naming_a_link_means_its_file(make_repo, repairs: Repairs) -> None:
    root = make_repo({"src/real.py": PROGRAM, "check.py": TESTS})
    (root / "program.py").symlink_to("src/real.py")
    make_repo.commit(root)
    repairs.fixed(root, {"src/real.py": FIXED}, paths=("program.py",))


@case(19)
def test_hard_links_stay_one_file(make_repo, repairs: Repairs, tmp_path: Path) -> None:
    root = make_repo(BROKEN)
    os.link(root / "program.py", tmp_path / "elsewhere.py")
    inode = (root / "program.py").stat().st_ino
    repairs.fixed(root, {"program.py": FIXED})
    assert (tmp_path / "elsewhere.py").read_text() == FIXED
    assert (root / "program.py").stat().st_ino == inode
    assert sorted(p.name for p in tmp_path.glob("**/.clover-*")) == []


@case(19)
def test_both_names_of_a_file_change_in_the_check_too(make_repo, repairs: Repairs) -> None:
    """The copy that is tried must be linked like the tree, or it shows something else."""
    tests = TESTS + "\nfrom twin import add\n\nassert add(2, 3) == 5\n"
    root = make_repo({"program.py": PROGRAM, "check.py": tests})
    os.link(root / "program.py", root / "twin.py")
    make_repo.commit(root)
    repairs.fixed(root, {"program.py": FIXED, "twin.py": FIXED})


@case(20)
@pytest.mark.parametrize("mode", [0o700, 0o664, 0o6755])
def test_the_mode_stays(make_repo, repairs: Repairs, mode: int) -> None:
    root = make_repo(BROKEN)
    (root / "program.py").chmod(mode)
    result = repairs.fixed(root, {"program.py": FIXED})
    assert (root / "program.py").stat().st_mode & 0o7777 == mode
    assert b"mode" not in result.patch


@case(21)
@pytest.mark.parametrize("named", [False, True])
def test_a_read_only_file_is_not_written(make_repo, repairs: Repairs, named: bool) -> None:
    root = make_repo(BROKEN)
    (root / "program.py").chmod(0o444)
    hooked, paths = Hooked(), ("program.py",) if named else ()
    with pytest.raises(UsageError, match="program.py is read-only: .*chmod u\\+w"):
        repairs.unchanged(root, hooked=hooked, paths=paths)
    assert "search" not in hooked.stages
    assert repairs.unchanged(root, dry_run=True, paths=paths).status == "fixed"


@case(21)
def test_read_only_files_beside_it_do_not_matter(make_repo, repairs: Repairs) -> None:
    root = make_repo({**BROKEN, "data.py": "X = 1\n", "folder/vendored.py": "Y = 1\n"})
    for path in ("data.py", "folder/vendored.py", "check.py"):
        (root / path).chmod(0o444)
    repairs.fixed(root, {"program.py": FIXED})


@case(22)
@pytest.mark.parametrize("path", ["../outside.py", "sub/../../outside.py", "link/outside.py"])
def test_no_path_leads_out_of_the_repository(
    make_repo, repairs: Repairs, tmp_path: Path, path: str
) -> None:
    root = make_repo({**BROKEN, "sub/a.py": ""})
    (tmp_path / "outside.py").write_text(PROGRAM)
    (root / "link").symlink_to(tmp_path)
    for name in (path, str(tmp_path / "outside.py")):
        with pytest.raises(UsageError, match="outside the repository"):
            repairs.unchanged(root, paths=(name,))
    assert (tmp_path / "outside.py").read_text() == PROGRAM


@case(22)
@pytest.mark.parametrize("kind", ["file", "folder"])
def test_a_fault_behind_a_link_out_of_the_repository_stays(
    make_repo, repairs: Repairs, tmp_path: Path, kind: str
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "program.py").write_text(PROGRAM)
    tests = TESTS if kind == "file" else TESTS.replace("from prog", "from lib.prog")
    root = make_repo({"check.py": tests, "other.py": "X = 1\n"})
    link = root / ("program.py" if kind == "file" else "lib")
    link.symlink_to(outside / "program.py" if kind == "file" else outside)
    result = repairs.unchanged(root)
    assert result.status == "none_found"
    assert (outside / "program.py").read_text() == PROGRAM


@case(23)
@pytest.mark.parametrize("kind", ["file", "folder"])
def test_a_link_that_appears_meanwhile_is_not_followed(
    make_repo, repairs: Repairs, tmp_path: Path, kind: str
) -> None:
    """What was checked is a file; when the patch is written, a link out of the tree is there."""
    root = make_repo({"src/program.py": PROGRAM, "check.py": by_path("src/program.py")})
    outside = tmp_path / "outside"
    make_repo.write(outside, {"program.py": PROGRAM})
    link, target = (root / "src", outside)
    if kind == "file":
        link, target = link / "program.py", outside / "program.py"

    def swap() -> None:
        subprocess.run(["rm", "-r", str(link)], check=True)
        link.symlink_to(target)

    result = repairs.run(root, hooked=Hooked(apply=swap))
    assert (result.status, result.applied) == ("tree_changed", False)
    assert tree(outside) == {"program.py": ("file", 0o644, PROGRAM.encode())}
    assert link.is_symlink()


@case(23)
def test_a_patch_has_no_modes_links_or_submodules(make_repo, repairs: Repairs) -> None:
    """The program's text cannot smuggle headers of its own into the diff."""
    headers = (
        "diff --git a/x b/x\nnew file mode 120000\n--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+y\n"
    )
    before = f'"""\n{headers}"""\n{PROGRAM}"""\n{headers}"""\n'
    root = make_repo({"program.py": before, "check.py": TESTS})
    result = repairs.fixed(root, {"program.py": before.replace("a - b", "a + b")})
    make_repo.git(root, "checkout", "-q", ".")
    make_repo.write(root, {"../fix.patch": result.patch})
    assert make_repo.git(root, "apply", "--summary", "../fix.patch") == ""
    assert make_repo.git(root, "apply", "--numstat", "../fix.patch") == "1\t1\tprogram.py\n"
    make_repo.git(root, "apply", "../fix.patch")
    assert repairs.status(root) == " M program.py\0"
