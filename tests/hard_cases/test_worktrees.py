"""Cases 29 to 39: the copies that are tried show what the user has, and stay out of the way."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from importlib.util import MAGIC_NUMBER
from pathlib import Path

import git.cmd
import pytest

from .cases import case
from .harness import BROKEN, FIXED, PROGRAM, TESTS, Canary, Hooked, Repairs, git_state, tree

ALLOW = ("-c", "protocol.file.allow=always")


def with_submodule(make_repo, library: dict[str, str], files: dict[str, str]) -> Path:
    """A repository with `library` as the submodule `lib`."""
    origin = make_repo(library, "library")
    root: Path = make_repo(files)
    make_repo.git(root, *ALLOW, "submodule", "add", "-q", str(origin), "lib")
    return make_repo.commit(root)


@case(29)
def test_the_check_sees_files_of_submodules(make_repo, repairs: Repairs) -> None:
    tests = "from lib.values import FIVE\n" + TESTS.replace("== 5", "== FIVE")
    root = with_submodule(make_repo, {"values.py": "FIVE = 5\n"}, {**BROKEN, "check.py": tests})
    repairs.fixed(root, {"program.py": FIXED})
    assert repairs.status(root) == " M program.py\0"
    assert repairs.status(root / "lib") == ""


@case(29)
def test_a_fault_inside_a_submodule_is_patched_there(make_repo, repairs: Repairs) -> None:
    """The superproject's index goes on naming the commit that it named."""
    tests = TESTS.replace("program", "lib.program")
    root = with_submodule(make_repo, {"program.py": PROGRAM}, {"check.py": tests, "a.py": ""})
    commit = make_repo.git(root, "ls-files", "--stage", "lib")
    repairs.fixed(root, {"lib/program.py": FIXED})
    assert repairs.status(root) == " M lib\0"
    assert repairs.status(root / "lib") == " M program.py\0"
    assert make_repo.git(root, "ls-files", "--stage", "lib") == commit


@case(29)
def test_a_submodule_can_be_the_place_to_start(make_repo, repairs: Repairs) -> None:
    root = with_submodule(make_repo, {k: str(v) for k, v in BROKEN.items()}, {"a.py": "X = 1\n"})
    before = tree(root)
    repairs.fixed(root / "lib", {"program.py": FIXED}, common_dir=root / ".git/modules/lib")
    before["lib/program.py"] = (*before["lib/program.py"][:2], FIXED.encode())
    assert tree(root) == before


@case(30)
def test_no_copy_is_made_inside(
    make_repo, repairs: Repairs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even where the temporary folder is in the repository; nothing can be added by accident."""
    root = make_repo({**BROKEN, "tmp/keep.txt": ""})
    for name in ("TMPDIR", "TEMP", "TMP"):
        monkeypatch.setenv(name, str(root / "tmp"))
    monkeypatch.setattr("tempfile.tempdir", None)
    seen: list[str] = []

    def look() -> None:
        seen.append(make_repo.git(root, "worktree", "list", "--porcelain"))
        seen.append(repairs.status(root))
        assert [path.name for path in (root / "tmp").iterdir()] == ["keep.txt"]

    repairs.fixed(root, {"program.py": FIXED}, hooked=Hooked(search=look))
    assert seen[0].count("worktree ") == 1
    assert seen[1] == ""
    assert [path.name for path in (root / "tmp").iterdir()] == ["keep.txt"]
    make_repo.git(root, "add", "-A")
    assert make_repo.git(root, "ls-files", "--stage").count("160000") == 0


@case(31)
@pytest.mark.parametrize("mode", ["--cone", "--no-cone"])
def test_a_sparse_checkout_stays_sparse(make_repo, repairs: Repairs, mode: str) -> None:
    tests = TESTS.replace("from program", "from pkg.program")
    root = make_repo({"pkg/program.py": PROGRAM, "check.py": tests, "docs/big.txt": "big\n"})
    patterns = ["pkg"] if mode == "--cone" else ["/pkg/", "/check.py"]
    make_repo.git(root, "sparse-checkout", "set", mode, *patterns)
    repairs.fixed(root, {"pkg/program.py": FIXED})
    assert sorted(p.name for p in root.iterdir()) == [".git", "check.py", "pkg"]
    assert make_repo.git(root, "ls-files", "-t", "docs") == "S docs/big.txt\n"
    assert repairs.status(root) == " M pkg/program.py\0"


POINTER = (
    "version https://git-lfs.github.com/spec/v1\n"
    "oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\n"
    "size 12345\n"
)


def lfs(make_repo, root: Path, canary: Canary) -> None:
    for name in ("clean", "smudge", "process"):
        make_repo.git(root, "config", f"filter.lfs.{name}", str(canary.program))
    make_repo.git(root, "config", "filter.lfs.required", "true")


@case(32)
def test_no_large_file_is_fetched(make_repo, repairs: Repairs, canary: Canary) -> None:
    tests = TESTS + "assert 'git-lfs' in open('model.bin').read()\n"
    files = {**BROKEN, "check.py": tests, "model.bin": POINTER}
    root = make_repo({**files, ".gitattributes": "*.bin filter=lfs diff=lfs merge=lfs -text\n"})
    lfs(make_repo, root, canary)
    repairs.fixed(root, {"program.py": FIXED})
    assert not canary.ran


@case(32)
def test_a_pointer_is_not_taken_for_a_broken_program(
    make_repo, repairs: Repairs, canary: Canary
) -> None:
    tests = "import table\n" + TESTS
    files = {**BROKEN, "check.py": tests, "table.py": POINTER}
    root = make_repo({**files, ".gitattributes": "table.py filter=lfs -text\n"})
    lfs(make_repo, root, canary)
    result = repairs.unchanged(root)
    assert result.status == "none_found"
    assert result.candidates_tried == 0
    assert not canary.ran


@case(33)
def test_the_check_sees_ignored_files(make_repo, repairs: Repairs) -> None:
    tests = (
        "import os.path, sys\nimport _version\n\nsys.path.insert(0, 'vendor')\nimport dep\n"
        "assert open('.env').read() == 'KEY=1\\n'\nassert os.path.exists('generated/data.txt')\n"
    )
    ignore = ".env\n_version.py\nvendor/\ngenerated/\n"
    root = make_repo({**BROKEN, "check.py": tests + TESTS, ".gitignore": ignore})
    extra = {".env": "KEY=1\n", "_version.py": "", "vendor/dep.py": "", "generated/data.txt": "x"}
    make_repo.write(root, extra)
    repairs.fixed(root, {"program.py": FIXED})


@case(33)
def test_ignored_files_are_not_patched(make_repo, repairs: Repairs) -> None:
    root = make_repo({"check.py": TESTS, "other.py": "X = 1\n", ".gitignore": "program.py\n"})
    make_repo.write(root, {"program.py": PROGRAM})
    assert repairs.unchanged(root).status == "none_found"


@case(34)
def test_an_editable_install_shows_the_copy(make_repo, repairs: Repairs, tmp_path: Path) -> None:
    """The environment points into the repository; the check runs from another folder of it."""
    tests = TESTS.replace("from program", "from package.program")
    root = make_repo({"src/package/program.py": PROGRAM, "checks/check.py": tests})
    venv.create(tmp_path / "env", symlinks=True, with_pip=False)
    (packages,) = (tmp_path / "env").glob("lib/python*/site-packages")
    (packages / "editable.pth").write_text(f"{root / 'src'}\n")
    command = f"{tmp_path / 'env/bin/python'} checks/check.py"
    repairs.fixed(root, {"src/package/program.py": FIXED}, check=command)


@case(34)
def test_a_program_that_the_check_starts_sees_the_copy(
    make_repo, repairs: Repairs, tmp_path: Path
) -> None:
    inner = "from program import add; raise SystemExit(add(2, 3) != 5 or add('a', 'b') != 'ab')"
    tests = (
        f"import subprocess, sys\n\nassert not subprocess.call([sys.executable, '-c', {inner!r}])\n"
    )
    root = make_repo({"src/program.py": PROGRAM, "check.py": tests})
    venv.create(tmp_path / "env", symlinks=True, with_pip=False)
    (packages,) = (tmp_path / "env").glob("lib/python*/site-packages")
    (packages / "editable.pth").write_text(f"{root / 'src'}\n")
    command = f"{tmp_path / 'env/bin/python'} check.py"
    repairs.fixed(root, {"src/program.py": FIXED}, check=command, paths=("src",))


def compiled(source: Path, text: str, flags: int) -> bytes:
    """A `.pyc` of `text`: flags 1 is never compared with its source, 0 by time and size."""
    import marshal

    code = marshal.dumps(compile(text, str(source), "exec"))
    info = source.stat()
    stamp = b"\0" * 8
    if flags == 0:
        stamp = int(info.st_mtime).to_bytes(4, "little") + info.st_size.to_bytes(4, "little")
    return MAGIC_NUMBER + flags.to_bytes(4, "little") + stamp + code


@case(35)
@pytest.mark.parametrize("flags", [0, 1])
def test_compiled_files_of_the_tree_are_not_believed(
    make_repo, repairs: Repairs, flags: int
) -> None:
    """They lie about: of the same size and time as the source, and not ignored."""
    root = make_repo(BROKEN)
    name = f"__pycache__/program.{sys.implementation.cache_tag}.pyc"
    data = compiled(root / "program.py", "def add(a, b):\n    return None\n", flags)
    make_repo.write(root, {name: data})
    repairs.fixed(root, {"program.py": FIXED})
    assert (root / name).read_bytes() == data


@case(35)
def test_after_the_fix_python_runs_it(make_repo, repairs: Repairs) -> None:
    """The user's own compiled file has the size and the second of the patched source."""
    root = make_repo(BROKEN)
    command = [sys.executable, "check.py"]
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}

    def passes() -> bool:
        done = subprocess.run(command, cwd=root, env=env, stderr=subprocess.DEVNULL)
        return done.returncode == 0

    def now() -> None:
        """Just before the patch is written, in what will be the same second."""
        (root / "program.py").touch()
        assert not passes()

    (root / ".gitignore").write_text("__pycache__\n")
    result = repairs.run(root, hooked=Hooked(apply=now))
    assert (result.status, (root / "program.py").read_text()) == ("fixed", FIXED)
    assert len(FIXED) == len(PROGRAM)
    assert passes()


@case(37)
@pytest.mark.parametrize("how", ["config", "attributes"])
def test_converted_line_ends_stay_as_they_are_on_disk(
    make_repo, repairs: Repairs, how: str
) -> None:
    """In git's store the lines end with LF; on disk they do not, and git sees one line change."""
    crlf = {name: str(text).replace("\n", "\r\n") for name, text in BROKEN.items()}
    attributes = {".gitattributes": "*.py text eol=crlf\n"} if how == "attributes" else {}
    root = make_repo({**BROKEN, **attributes})
    if how == "config":
        make_repo.git(root, "config", "core.autocrlf", "true")
    for name in crlf:
        (root / name).unlink()
    make_repo.git(root, "checkout", "-q", ".")
    assert (root / "program.py").read_bytes() == crlf["program.py"].encode()
    repairs.fixed(root, {"program.py": FIXED.replace("\n", "\r\n")})
    assert make_repo.git(root, "diff", "--numstat") == "1\t1\tprogram.py\n"


@case(37)
def test_what_a_filter_has_put_on_disk_is_patched_as_it_is(
    make_repo, repairs: Repairs, tmp_path: Path
) -> None:
    """`clean` would store other text; the file on disk is the one that the check runs."""
    root = make_repo({**BROKEN, ".gitattributes": "program.py filter=upper ident\n"})
    make_repo.git(root, "config", "filter.upper.clean", "tr a-z A-Z")
    make_repo.git(root, "config", "filter.upper.smudge", "tr A-Z a-z")
    mine = PROGRAM + "# $Id$\n"
    make_repo.write(root, {"program.py": mine})
    repairs.fixed(root, {"program.py": mine.replace("a - b", "a + b")})


@case(38)
def test_many_files_cost_no_more_commands_than_few(
    make_repo, repairs: Repairs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two thousand files in two hundred folders: all stay as they are, git is asked as often."""
    many = {f"pkg{n % 200}/module{n}.py": f"VALUE = {n}\n" for n in range(2000)}
    commands: list[str] = []
    start = git.cmd.safer_popen

    def counting(command: list[str], *args: object, **more: object) -> object:
        commands.append(" ".join(command))
        return start(command, *args, **more)

    monkeypatch.setattr("git.cmd.safer_popen", counting)
    counts = []
    for name, files in (("small", {}), ("large", many)):
        root = make_repo({**BROKEN, **files}, name)
        commands.clear()
        repairs.fixed(root, {"program.py": FIXED})
        counts.append(len(commands))
    assert 0 < counts[1] == counts[0]


@case(39)
def test_a_worktree_with_relative_paths(make_repo, repairs: Repairs, tmp_path: Path) -> None:
    """Both of git's pointers, to and fro, are relative; git has been able to write them so since
    2.48 and to read them for ever."""
    main = make_repo(BROKEN, "main")
    make_repo.git(main, "worktree", "add", "-q", "--detach", "../linked")
    linked, record = tmp_path / "linked", main / ".git/worktrees/linked"
    (linked / ".git").write_text("gitdir: ../main/.git/worktrees/linked\n")
    (record / "gitdir").write_text("../../../../linked/.git\n")
    repairs.fixed(linked, {"program.py": FIXED}, common_dir=main / ".git")
    assert repairs.status(linked) == " M program.py\0"
    assert repairs.status(main) == ""
    assert (record / "gitdir").read_text() == "../../../../linked/.git\n"


@case(39)
def test_an_extension_that_this_git_does_not_know_is_a_clear_refusal(
    make_repo, repairs: Repairs
) -> None:
    from clover_patcher.errors import UsageError

    root = make_repo(BROKEN)
    make_repo.git(root, "config", "core.repositoryFormatVersion", "1")
    make_repo.git(root, "config", "extensions.fromTheFuture", "true")
    before, state = tree(root), git_state(root / ".git")
    with pytest.raises(UsageError, match=r"unknown repository extension"):
        repairs.run(root)
    assert (tree(root), git_state(root / ".git")) == (before, state)
