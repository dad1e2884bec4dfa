"""What the language server sends to a model server, recorded there."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clover_engine.testing.answers import FakeModel
from clover_engine.testing.server import FakeServer

CLIENT = sys.modules["lsp_client"]
CANARY = "canary_that_must_not_fly"
SECRET = "dop_v1_" + "0a1b2c3d4e5f6071" * 4
COMPLETION = {"debounceMs": 0, "prefetch": True, "deadlineMs": 4000}


@pytest.fixture
def backend() -> Iterator[FakeServer]:
    with FakeServer(FakeModel(["suggested_here"])) as server:
        yield server


def sent(backend: FakeServer) -> str:
    return "\n".join(json.dumps(seen.body) for seen in backend.seen)


@pytest.fixture
def editor(servers: Any, backend: FakeServer, tmp_path: Path) -> Iterator[Any]:
    root = tmp_path / "project"
    (root / "private").mkdir(parents=True)
    (root / ".git").mkdir()
    (root / ".gitignore").write_text("private/\n")
    (root / "private" / "plan.py").write_text(f"{CANARY} = 1\ndef helper_one(a, b):\n    pass\n")
    (root / ".env").write_text(f"HELPER={CANARY}\n")
    (root / "open.py").write_text("def helper_two(a):\n    pass\n")
    link = tmp_path / "link"
    link.symlink_to(root)
    made = servers(
        settings={"engine": "sglang", "sglang": {"url": backend.url}, "completion": COMPLETION},
        roots=[link],
    )
    made.root, made.real_root = link, root
    yield made
    assert made.stop() == 0


def ask(editor: Any, uri: str, text: str) -> Any:
    opened = editor.open(uri, text)
    editor.type(opened, "\nvalue = helper")
    return editor.suggest(opened)


def test_documents_that_are_withheld_reach_no_server(editor: Any, backend: FakeServer) -> None:
    editor.wait_ready()
    real, root = editor.real_root, editor.root
    text = f"{CANARY} = 'x'\nimport os"
    for uri in (
        f"file://{real}/private/plan.py", f"file://{root}/private/plan.py", f"file://{real}/.env",
        "untitled:.env", f"untitled:{real}/.env.local", "vscode-vfs://github/o/r/.env",
        f"git:{real}/.env?%7B%22ref%22%3A%22~%22%7D", f"fugitive://{real}/.git//0/.env",
        f"fugitive://{real}/.git//1a2b3c/private/plan.py", "vscode-remote://ssh-remote%2Bh/p/.env",
        f"vscode-notebook-cell:{real}/private/x.ipynb#W0s",
    ):  # fmt: skip
        assert not ask(editor, uri, text), uri
    items = ask(editor, f"file://{real}/open.py", "def helper_two(a):\n    pass\nimport os")
    assert items, "another document, with all of those open, is answered"
    assert "helper_two" in sent(backend) and CANARY not in sent(backend)
    assert "helper_one" not in sent(backend)


def test_secrets_of_open_documents_and_of_the_cursors_line(
    editor: Any, backend: FakeServer
) -> None:
    editor.wait_ready()
    other = f"def helper_three(a):\n    login('{SECRET}')\n    db_pass = 'Zx81Lq0Pw7Rt'\n"
    editor.open(f"file://{editor.real_root}/other.py", other)
    text = f"helper_three = 1\nurl = 'postgres://app:Zx81Lq0Pw7Rt@db/x'\ntoken = '{SECRET}"
    uri = editor.open(f"file://{editor.real_root}/open.py", text)
    editor.type(uri, "'\nhelper_three(")
    editor.suggest(uri)
    editor.suggest(uri, at=text.index(SECRET) + 30)
    editor.suggest(uri, at=text.index("Zx81") + 5)
    assert "helper_three" in sent(backend)
    for secret in (SECRET, SECRET[-20:], "Zx81Lq0Pw7Rt", "Lq0Pw7Rt"):
        assert secret not in sent(backend)
