"""Fixtures that several rooms' tests share: git repositories made from texts or broken projects."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import hypothesis
import pytest

hypothesis.settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("any machine")

FIXTURES = Path(__file__).parent / "fixtures"
LONG = ("tests/serving/", "tests/llamacpp/", "tests/editors/test_vscode")
LONG_SUBJECTS = (
    "sglang-clover",
    "sglang-sdar",
    "sglang-autoregressive",
    "llamacpp",
    "openai-llama-server",
)
"""Lanes that start real servers and editors: `make test-long`. All else is `make test`."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        where = item.path.relative_to(FIXTURES.parents[1]).as_posix()
        if where.startswith(LONG) or any(f"[{name}" in item.name for name in LONG_SUBJECTS):
            item.add_marker(pytest.mark.long)


def write_files(root: Path, files: Mapping[str, str | bytes]) -> None:
    """Text is written as UTF-8 as it is."""
    for path, content in files.items():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content.encode() if isinstance(content, str) else content)


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """``write({"a.py": "text"})`` makes a folder with these files and returns it."""

    def make(files: Mapping[str, str | bytes], name: str = "tree") -> Path:
        root = tmp_path / name
        root.mkdir(parents=True, exist_ok=True)
        write_files(root, files)
        return root

    return make


@pytest.fixture
def own_python(monkeypatch: pytest.MonkeyPatch, temporary_root: Path) -> Iterator[None]:
    """`python` and the tools beside it are those that run the tests; no run leaves anything."""
    monkeypatch.setenv("PATH", os.path.dirname(sys.executable), prepend=os.pathsep)
    yield
    assert list(temporary_root.iterdir()) == []


class RepoMaker:
    """Makes committed git repositories below a temporary folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, files: Mapping[str, str | bytes], name: str = "repo") -> Path:
        """A repository with these files in one commit; text is written as UTF-8 as it is."""
        root = self.folder / name
        root.mkdir(parents=True)
        self.git(root, "init", "-q")
        self.write(root, files)
        return self.commit(root)

    def project(self, name: str) -> tuple[Path, dict[str, Any]]:
        """A broken project of `tests/fixtures` as a repository, and what its card says."""
        root = self.folder / name
        shutil.copytree(FIXTURES / name, root, ignore=shutil.ignore_patterns("__pycache__"))
        card: dict[str, Any] = json.loads((root / "fixture.json").read_text("utf-8"))
        (root / "fixture.json").unlink()
        self.git(root, "init", "-q")
        return self.commit(root), card

    def write(self, root: Path, files: Mapping[str, str | bytes]) -> None:
        write_files(root, files)

    def commit(self, root: Path) -> Path:
        self.git(root, "add", "-A")
        self.git(root, "commit", "-q", "--allow-empty", "-m", "Start")
        return root

    def git(self, root: Path, *args: str) -> str:
        done = subprocess.run(
            ["git", *args], cwd=root, check=True, capture_output=True, encoding="utf-8"
        )
        return done.stdout


@pytest.fixture
def make_repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RepoMaker:
    """A maker of repositories, with git cut off from the machine's own configuration."""
    home = tmp_path / "git-home"
    home.mkdir()
    config = home / "gitconfig"
    config.write_text(
        "[user]\n\tname = Test\n\temail = test@localhost\n[core]\n\tautocrlf = false\n"
    )
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    for name in ("GIT_DIR", "GIT_INDEX_FILE", "GIT_WORK_TREE"):
        monkeypatch.delenv(name, raising=False)
    return RepoMaker(tmp_path)


@pytest.fixture
def temporary_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temporary folder of the test's own, so that leftovers can be counted."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", None)
    return folder
