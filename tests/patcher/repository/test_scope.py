"""Where patches may go."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clover_patcher.errors import UsageError
from clover_patcher.repository.permission import Permission, is_frozen
from clover_patcher.repository.scope import resolve_only, resolve_paths
from clover_patcher.types import Diagnostic


@pytest.mark.parametrize(
    "path",
    [
        "test_a.py",
        "a_test.py",
        "conftest.py",
        "pkg/conftest.py",
        "tests/helper.py",
        "pkg/tests/deep/helper.py",
        "test/helper.py",
        ".github/scripts/ci.py",
        ".ci/run.py",
    ],
)
def test_tests_and_their_configuration_are_frozen(path: str) -> None:
    assert is_frozen(path)


@pytest.mark.parametrize("path", ["a.py", "pkg/contest.py", "pkg/test/client.py", "latest_a.py"])
def test_other_files_are_free(path: str) -> None:
    assert not is_frozen(path)


def test_paths_become_relative_to_the_repository(tmp_path: Path) -> None:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg/a.py").touch()
    assert resolve_paths(
        tmp_path, tmp_path / "pkg", ["a.py", ".", "..", str(tmp_path / "pkg")]
    ) == [
        "pkg/a.py",
        "pkg",
        "",
        "pkg",
    ]


@pytest.mark.parametrize(
    "path,words",
    [
        ("nothing.py", "does not exist"),
        ("../", "outside the repository"),
        ("a.txt", "not a source"),
    ],
)
def test_bad_paths_are_usage_errors(tmp_path: Path, path: str, words: str) -> None:
    root = tmp_path / "repo"
    root.mkdir()
    (root / "a.txt").touch()
    with pytest.raises(UsageError, match=words):
        resolve_paths(root, root, [path])


def select_files(*arguments: Any) -> list[str]:
    return sorted(Permission.of(*arguments).free)


def test_select_files() -> None:
    files = ["a.py", "pkg/b.py", "pkg/test_b.py", "pkgs/c.py", "run.py"]
    assert select_files(files, []) == ["a.py", "pkg/b.py", "pkgs/c.py", "run.py"]
    assert select_files(files, ["pkg"]) == ["pkg/b.py"]
    assert select_files(files, [""]) == ["a.py", "pkg/b.py", "pkgs/c.py", "run.py"]


def test_files_that_the_check_names_are_tests() -> None:
    files = ["run.py", "a.py"]
    words = ["/usr/bin/python", "./run.py::x"]
    assert select_files(files, [], words) == ["a.py"]
    assert select_files(files, ["run.py"], words) == ["run.py"]
    assert select_files(["run.py"], [], words) == ["run.py"]


def test_nothing_to_patch_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="frozen"):
        select_files(["test_a.py", "b.py"], ["test_a.py"])
    with pytest.raises(UsageError, match="no source file"):
        select_files(["b.py"], ["docs"])


def test_a_place_may_name_a_rule(tmp_path: Path) -> None:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "a:b.py").touch()
    assert resolve_only(tmp_path, tmp_path / "pkg", "a:b.py:12") == Diagnostic("pkg/a:b.py", 12, "")
    only = resolve_only(tmp_path, tmp_path, "pkg/a:b.py:12:return-value")
    assert (only.path, only.line, only.code) == ("pkg/a:b.py", 12, "return-value")


@pytest.mark.parametrize(
    ("text", "words"),
    [("pkg", "not FILE:LINE"), ("pkg:3", "is a folder"), ("x.py:3", "does not exist")],
)
def test_other_places_are_refused(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "pkg").mkdir()
    with pytest.raises(UsageError, match=words):
        resolve_only(tmp_path, tmp_path, text)


def test_names_in_the_check_are_relative_to_where_it_runs() -> None:
    files = ["pkg/run.py", "run.py", "pkg/lib.py"]
    assert select_files(files, [], ["python", "run.py"], "pkg") == ["pkg/lib.py", "run.py"]
