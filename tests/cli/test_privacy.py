"""What commands send to a model server: recorded bodies, with words in them that must not be."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from clover_engine.testing.answers import FakeModel
from clover_engine.testing.server import FakeServer

Command = Callable[..., Any]
FAKE = Path(__file__).parents[1] / "llamacpp" / "fake_server.py"

CANARY = "canary_that_must_not_fly"
SECRET = "glpat-" + "aB3dE5gH7jK9mN1pQ2rS"
PASSWORD = "qT7xV2mK9wLp"
BROKEN = (
    f'"""{CANARY}"""\n'
    f"service_token = '{SECRET}'\n"
    f'DATABASE = "host=db password={PASSWORD} user=app"\n\n\n'
    "def total(prices, discount):\n"
    "    result = 0\n"
    "    for price in prices:\n"
    "        result += price\n"
    "    return result + discount\n"
)
TEST = (
    "from shop.private.prices import total\n\n\n"
    "def test_total():\n    assert total([3, 4], 2) == 5\n"
)
PROJECT = {
    "shop/__init__.py": "",
    "shop/private/__init__.py": "",
    "shop/private/prices.py": BROKEN,
    "test_prices.py": TEST,
}


class Recorder:
    """A server of either kind, and all that it was sent."""

    def __init__(self, kind: str, fake: Any) -> None:
        self.kind, self.fake, self.url = kind, fake, fake.url

    @property
    def arguments(self) -> list[str]:
        return ["--engine", self.kind, "--engine-url", self.url]

    @property
    def sent(self) -> str:
        """Every body, as JSON, one a line."""
        bodies = (
            [seen.body for seen in self.fake.seen]
            if self.kind == "sglang"
            else [body for _, body in self.fake.requests]
        )
        return "\n".join(json.dumps(body) for body in bodies)

    @property
    def questions(self) -> int:
        """How many requests had text of a program in them."""
        return sum("total" in line or "return" in line for line in self.sent.splitlines())


@pytest.fixture(params=["sglang", "llamacpp"])
def server(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorder]:
    for name in ("SGLANG", "LLAMACPP"):
        monkeypatch.delenv(f"CLOVER_{name}_URL", raising=False)
    if request.param == "sglang":
        with FakeServer(FakeModel(["return result - discount"])) as made:
            yield Recorder("sglang", made)
        return
    known = sys.modules.get("fake_llama_server")
    if known is None:
        spec = importlib.util.spec_from_file_location("fake_llama_server", FAKE)
        assert spec is not None and spec.loader is not None
        known = sys.modules["fake_llama_server"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(known)
    with known.FakeLlamaServer(text="return result - discount") as made:
        yield Recorder("llamacpp", made)


@pytest.fixture
def project(make_repo: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """``project({".gitignore": "…"})`` makes the broken shop and goes there."""

    def make(more: dict[str, str] | None = None) -> Path:
        root = make_repo(PROJECT)
        for name, text in (more or {}).items():
            (root / name).write_text(text)
        monkeypatch.chdir(root)
        monkeypatch.setenv("XDG_CONFIG_HOME", str(root.parent / "config"))
        return root

    return make


def fix(command: Command, server: Recorder) -> Any:
    check = f"{sys.executable} -m pytest -q -p no:cacheprovider test_prices.py"
    return command(
        "fix", "--json", "--dry-run", "--budget", "60", "--jobs", "1", "--check", check,
        *server.arguments,
    )  # fmt: skip


def test_fix_sends_the_file_that_it_repairs_without_its_secrets(
    command: Command, fake_model: Callable[..., None], server: Recorder, project: Any
) -> None:
    project()
    ran = fix(command, server)
    assert ran.code == 0, ran.err
    if server.kind == "sglang":  # llama.cpp has no scores of a given text: nothing is asked of it
        assert server.questions and CANARY in server.sent, "the proof that this test can fail"
    assert SECRET not in server.sent and PASSWORD not in server.sent


@pytest.mark.parametrize(
    ("server", "name", "rule"),
    [
        ("sglang", ".cloverignore", "shop/private/\n"),
        ("llamacpp", ".cloverignore", "shop/private/\n"),
        ("sglang", "shop/.gitignore", "/private/*.py\n"),
        ("sglang", ".git/info/exclude", "prices.py\n"),
    ],
    indirect=["server"],
)
def test_fix_sends_nothing_of_an_ignored_file(
    command: Command, fake_model: Callable[..., None], server: Recorder, project: Any,
    name: str, rule: str,
) -> None:  # fmt: skip
    """The file is tracked, so that git itself would not ignore it any more."""
    project({name: rule})
    ran = fix(command, server)
    assert ran.code == 0, ran.err
    for word in (CANARY, SECRET, PASSWORD, "discount"):
        assert word not in server.sent


@pytest.mark.parametrize("server", ["sglang"], indirect=True)
def test_fix_in_a_linked_folder_and_by_the_users_own_excludes(
    command: Command, fake_model: Callable[..., None], server: Recorder, project: Any,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    root = project()
    own = tmp_path / "excludes"
    own.write_text("prices.py\n")
    config = tmp_path / "git-home" / "gitconfig"
    config.write_text(f"{config.read_text()}[core]\n\texcludesFile = {own}\n")
    link = tmp_path / "link"
    link.symlink_to(root)
    monkeypatch.chdir(link)
    ran = fix(command, server)
    assert ran.code == 0, ran.err
    assert CANARY not in server.sent and "discount" not in server.sent


def test_infill_sends_no_secret_even_where_the_cursor_is_in_one(
    command: Command, server: Recorder, project: Any
) -> None:
    project()
    for place in ("10:5", "2:20", "2:30", "3:40", "3:42", "3:44", "1:1"):
        ran = command(
            "infill", "--json", "--multi-line", *server.arguments,
            f"shop/private/prices.py:{place}",
        )  # fmt: skip
        assert ran.code == 0, ran.err
    assert CANARY in server.sent
    for secret in (SECRET, PASSWORD):
        assert secret not in server.sent and secret[-8:] not in server.sent


@pytest.mark.parametrize("name", ["ignored", "secret", "linked"])
def test_infill_asks_no_server_about_a_withheld_file(
    command: Command, fake_model: Callable[..., None], server: Recorder, project: Any, name: str
) -> None:
    fake_model(infills=["from_embedded"])
    root = project({".cloverignore": "private/\n"})
    (root / ".env").write_text("HOST=1\n")
    (root / "link.py").symlink_to(root / "shop" / "private" / "prices.py")
    file = {"ignored": "shop/private/prices.py", "secret": ".env", "linked": "link.py"}[name]
    ran = command("infill", "--json", *server.arguments, f"{file}:1:1")
    assert (ran.code, ran.json["text"]) == (0, "from_embedded")
    assert "no server is sent it" in ran.err and not server.questions
    assert CANARY not in server.sent and "HOST" not in server.sent


@pytest.mark.parametrize("server", ["sglang"], indirect=True)
def test_words_send_what_they_are_about_without_secrets(
    command: Command, fake_model: Callable[..., None], server: Recorder, project: Any
) -> None:
    fake_model(answers=["from the embedded model"])
    project()
    ran = command("edit", "shop/private/prices.py:1-4", "--preset", "explain", *server.arguments)
    assert ran.code == 0, ran.err
    assert CANARY in server.sent, "the proof that this test can fail"
    assert SECRET not in server.sent and PASSWORD not in server.sent
    command("do", "total subtracts the discount", "--steps", "1", *server.arguments)
    assert "def total" in server.sent
    assert SECRET not in server.sent and PASSWORD not in server.sent


@pytest.mark.parametrize("server", ["sglang"], indirect=True)
def test_words_send_nothing_of_a_withheld_file(
    command: Command,
    fake_model: Callable[..., None],
    server: Recorder,
    project: Any,
    make_repo: Any,
) -> None:
    fake_model(answers=["from the embedded model"])
    root = project({".cloverignore": "private/\n"})
    place = "shop/private/prices.py:1-4"
    ran = command("edit", place, "--preset", "explain", *server.arguments)
    assert (ran.code, ran.out) == (0, "from the embedded model\n")
    command("do", "READ shop/private/prices.py", "--steps", "1", *server.arguments)
    (root / "shop/private/prices.py").write_text(f"# {CANARY} changed\n")
    (root / "other.py").write_text("x = 1\n")
    make_repo.git(root, "add", "-A")
    command("message", *server.arguments)
    assert "other.py" in server.sent, "the proof that this test can fail"
    assert CANARY not in server.sent and SECRET not in server.sent
