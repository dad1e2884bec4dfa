"""What may be read: compared with git itself, and the rules that go beyond git's."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from clover_engine.privacy.ignore import IgnoreRules
from clover_engine.privacy.names import secret_file, unfit_file

FILES = [
    "a.py", "a.log", "keep.log", "build/x.py", "src/build/y.py", "src/a.py", "src/a.tmp",
    "src/deep/b.tmp", "src/deep/keep.tmp", "docs/x.md", "docs/api/y.md", "docs/api/z.txt",
    "top/one.py", "src/top/two.py", "node/a b.py", "wild/foo-1.py", "wild/bar.py", "excluded/e.py",
]  # fmt: skip
RULES = {
    ".gitignore": "*.log\n!keep.log\nbuild/\n/top\n# comment\n\\#odd\nwild/foo-*\n",
    "src/.gitignore": "*.tmp\n",
    "src/deep/.gitignore": "!keep.tmp\n",
    "docs/.gitignore": "*\n!*/\n!*.md\n",
}


@pytest.mark.usefixtures("cache")
def test_same_verdicts_as_git(make_repo: Callable[..., Path]) -> None:
    root = make_repo({**dict.fromkeys(FILES, "x\n"), **RULES})
    (root / ".git" / "info" / "exclude").write_text("excluded/\n")
    done = subprocess.run(
        ["git", "check-ignore", "--no-index", "--stdin"],
        cwd=root, input="\n".join(FILES), capture_output=True, text=True,
    )  # fmt: skip
    by_git = set(done.stdout.split("\n")) - {""}
    assert {"a.log", "build/x.py", "src/build/y.py", "docs/api/z.txt", "excluded/e.py"} <= by_git
    rules = IgnoreRules(root)
    assert {path for path in FILES if rules.reason(path)} == by_git


@pytest.mark.usefixtures("cache")
def test_rules_above_a_root_that_is_part_of_a_repository(make_repo: Callable[..., Path]) -> None:
    root = make_repo({".gitignore": "part/made/\n*.gen\n", "part/made/a.py": "", "part/b.gen": ""})
    rules = IgnoreRules(root / "part")
    assert rules.reason("made/a.py") and rules.reason("b.gen") and not rules.reason("c.py")


@pytest.mark.usefixtures("cache")
def test_cloverignore_hides_and_brings_back(write: Callable[..., Path]) -> None:
    root = write(
        {
            ".gitignore": "gen/\nother/\n",
            ".cloverignore": "private/\n!gen/\n",
            "sub/.cloverignore": "*.txt\n",
        }
    )
    rules = IgnoreRules(root)
    assert rules.reason("private/a.py") == "private/ is ignored by .cloverignore"
    assert rules.reason("gen/a.py") == "" and rules.reason("other/a.py")
    assert rules.reason("sub/x/n.txt") and not rules.reason("n.txt")
    assert rules.reason("gen/.env"), "nothing brings a secret file back"


@pytest.mark.usefixtures("cache")
def test_user_globs_add_to_the_defaults(write: Callable[..., Path]) -> None:
    """Complaint 40: with globs of their own, users found that `.env` was predicted."""
    rules = IgnoreRules(write({"a.py": ""}), exclude=("fixtures/", "*.sql", "!.env", "["))
    assert rules.reason("tests/fixtures/a.py") and rules.reason("x/y.sql")
    assert rules.reason(".env") == ".env is a file for secrets"
    assert rules.reason("id_rsa") and not rules.reason("src/a.py")


@pytest.mark.parametrize(
    "path",
    [
        ".env", "a/.env.local", "prod.env", ".ENV", "x.pem", "server.key", "id_rsa", "id_ed25519",
        "credentials", "credentials.json", "a/.npmrc", ".netrc", ".pypirc", "kubeconfig",
        "home/.aws/config", ".kube/config", "secrets.yaml", "terraform.tfstate", "a.tfvars",
        ".git-credentials", "service-account-prod.json", "store.jks", "vault.kdbx",
    ],
)  # fmt: skip
def test_secret_files(path: str) -> None:
    assert secret_file(path)


@pytest.mark.parametrize(
    "path",
    [
        ".env.example", "environment.py", "id_rsa.pub", "keys.py", "credentials.py", "secrets.py",
        "monkey.py", "src/key.ts", "tests/test_env.py", ".envoy.yaml", "config.yml",
    ],
)  # fmt: skip
def test_ordinary_files(path: str) -> None:
    assert not secret_file(path) and not unfit_file(path)


def test_lock_and_minified_files_are_unfit() -> None:
    for path in ("package-lock.json", "Cargo.lock", "yarn.lock", "go.sum", "a/app.min.js"):
        assert unfit_file(path)
