"""Case 40: a patch never makes the check weaker, unless the user says which test may change."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from clover_patcher.errors import UsageError

from .cases import case
from .harness import BROKEN, CHECK, FIXED, Repairs, differences, git_state, tree

WRONG = "def expected():\n    return 6 - 1\n"
RIGHT = "def expected():\n    return 6 + 1\n"
LIBRARY = "def value():\n    return 7\n"
"""A library that is right, and beside it a helper of the tests that is wrong."""

FROZEN = [
    "test_helper.py",
    "helper_test.py",
    "helper_tests.py",
    "tests/helper.py",
    "pkg/tests/deep/helper.py",
    "test/helper.py",
    "testing/helper.py",
    "conftest.py",
    "pkg/conftest.py",
    "setup.py",
    "noxfile.py",
    "sitecustomize.py",
    ".github/scripts/helper.py",
    ".gitlab/helper.py",
    ".ci/helper.py",
    ".circleci/helper.py",
    ".hidden.py",
]


def with_helper(make_repo, path: str, *others: str) -> Path:
    tests = (
        "from importlib.util import module_from_spec, spec_from_file_location\n"
        "from library import value\n\n"
        f"spec = spec_from_file_location('module', {path!r})\n"
        "module = module_from_spec(spec)\n"
        "spec.loader.exec_module(module)\n"
        "assert value() == 7\nassert module.expected() == value()\n"
    )
    helpers = dict.fromkeys((path, *others), WRONG)
    root: Path = make_repo({**helpers, "library.py": LIBRARY, "check.py": tests})
    return root


@case(40)
def test_frozen_files_stay(make_repo, repairs: Repairs) -> None:
    """The faults are in frozen files: no candidate is made, and naming them changes nothing."""
    root = with_helper(make_repo, *FROZEN)
    with pytest.raises(UsageError, match=r"\.hidden\.py: .* frozen; --allow PATTERN"):
        repairs.unchanged(root, paths=tuple(FROZEN))


@case(40)
def test_a_patch_of_the_library_is_all_that_is_tried(make_repo, repairs: Repairs) -> None:
    root = with_helper(make_repo, "tests/helper.py")
    result = repairs.unchanged(root)
    assert (result.status, result.changes) == ("none_found", ())
    assert result.candidates_tried > 0


@case(40)
@pytest.mark.parametrize(
    "path,pattern",
    [
        ("tests/helper.py", "tests/"),
        ("pkg/conftest.py", "conftest.py"),
        (".github/scripts/helper.py", ".github/**/h*.py"),
        ("test_helper.py", "/test_*.py"),
    ],
)
def test_what_is_allowed_may_change(make_repo, repairs: Repairs, path: str, pattern: str) -> None:
    root = with_helper(make_repo, path)
    repairs.fixed(root, {path: RIGHT}, paths=(path,), allow=(pattern,))


@case(40)
def test_the_program_comes_first_even_then(make_repo, repairs: Repairs) -> None:
    """Allowing tests does not mean wanting them changed where the program is wrong."""
    root = make_repo({**BROKEN, "tests/helper.py": "X = 1\n"})
    repairs.fixed(root, {"program.py": FIXED}, allow=("tests/",))


@case(40)
@pytest.mark.parametrize(
    "pattern,words", [("no/such/", "matches no source file"), ("!", "not a pattern|matches no")]
)
def test_a_pattern_without_a_file_is_refused(
    make_repo, repairs: Repairs, pattern: str, words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        repairs.unchanged(make_repo(BROKEN), allow=(pattern,))


OTHERS = {
    "tox.ini": "[pytest]\naddopts = -q\n",
    "setup.cfg": "[tool:pytest]\n",
    "pyproject.toml": "[tool.pytest.ini_options]\n",
    ".gitlab-ci.yml": "test: {script: pytest}\n",
    ".github/workflows/ci.yml": "on: push\n",
    ".gitattributes": "*.txt text\n",
    ".gitignore": "*.log\n",
    "Makefile": "test:\n\tpytest\n",
}


@case(40)
def test_settings_are_no_place_for_a_patch(make_repo, repairs: Repairs) -> None:
    root = make_repo({**BROKEN, **OTHERS})
    for name in OTHERS:
        with pytest.raises(UsageError, match="only source code is patched"):
            repairs.unchanged(root, paths=(name,))
    repairs.fixed(root, {"program.py": FIXED})


PROJECT = {
    "pytest.ini": "[pytest]\npython_files = check_*.py\n",
    "library.py": LIBRARY,
    "check_it.py": "from library import value\n\n\ndef test_value():\n    assert value() == 6\n",
}
"""Tests in files that only pytest's settings tell from a program."""


@case(40)
def test_what_pytest_collects_is_frozen_whatever_its_name(make_repo, repairs: Repairs) -> None:
    root = make_repo(PROJECT)
    repairs.fixed(
        root,
        {"library.py": LIBRARY.replace("7", "6")},
        check="python -m pytest -q -p no:cacheprovider",
    )


@case(40)
def test_doctests_do_not_freeze_their_program(make_repo, repairs: Repairs) -> None:
    before = 'def add(a, b):\n    """\n    >>> add(2, 3)\n    5\n    """\n    return a - b\n'
    root = make_repo({"pkg/__init__.py": "", "pkg/program.py": before, "other.py": "X = 1\n"})
    repairs.fixed(
        root,
        {"pkg/program.py": before.replace("a - b", "a + b")},
        check="python -m pytest -q -p no:cacheprovider --doctest-modules",
    )


@case(40)
def test_the_check_itself_stays(make_repo, repairs: Repairs) -> None:
    """The check's script holds the shortest way to make it pass."""
    tests = "from library import value\n\nassert value() == 7 - 1\n"
    root = make_repo({"library.py": LIBRARY, "check.py": tests})
    repairs.fixed(root, {"library.py": LIBRARY.replace("7", "6")})


@case(40)
def test_the_command_says_what_it_refuses_and_takes_the_option(make_repo, repairs: Repairs) -> None:
    root = with_helper(make_repo, "tests/helper.py")
    command = [sys.executable, "-m", "clover_code.main", "fix", "--engine", "none"]
    command += ["--check", CHECK, "tests/helper.py"]
    before, state = tree(root), git_state(root / ".git")
    refused = subprocess.run(command, cwd=root, capture_output=True, text=True)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr == (
        "clover-code fix: nothing to patch in tests/helper.py: tests and their configuration are "
        "frozen; --allow PATTERN lets a patch change them\n"
    )
    assert not differences(before, tree(root))
    assert not differences(state, git_state(root / ".git"))
    done = subprocess.run([*command, "--allow", "tests/"], cwd=root, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert (root / "tests/helper.py").read_text() == RIGHT
    assert repairs.status(root) == " M tests/helper.py\0"
