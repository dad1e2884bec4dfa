"""Failures that quote a withheld file: real tracebacks of real programs."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.engine.privacy.talker import Talker

from clover_engine.api import InfillRequest, Snippet, to_json
from clover_engine.generation import (
    DecisionRequest,
    GenerateRequest,
    Message,
    Question,
    TextEngine,
)
from clover_engine.privacy.quotes import hide_quotes
from clover_engine.privacy.unquoting import unquoting
from clover_engine.privacy.withheld import Withheld
from clover_engine.testing.fakes import FakeEngine

CANARY = "canary that must not fly"
FILES = {
    ".cloverignore": "private/\nlocal_*.py\n",
    "private/__init__.py": "",
    "private/plan.py": (
        f"def discount(price):\n    note = '{CANARY}'\n    return price / (len(note) - 24)\n"
    ),
    "local_settings.py": f'HOST = "{CANARY}"\nLIMIT = unknown_name_of_ours\n',
    ".env": f"GREETING={CANARY}\n",
    "shop.py": (
        "from private.plan import discount\n\n\ndef total(price):\n    return discount(price)\n"
    ),
}


@pytest.fixture
def root(write: Callable[..., Path], cache: Path) -> Path:
    made: Path = write(FILES)
    (made / ".git").mkdir()
    return made


def run(folder: Path, code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False
    )
    return done.stdout + done.stderr


def hidden(text: str, root: Path) -> str:
    withheld = Withheld((root,))
    safe = hide_quotes(text, root, lambda path: bool(withheld.of_path(root / path)))
    assert len(safe) == len(text)
    return safe


@pytest.mark.parametrize("where", ["tree", "copy"])
def test_a_traceback_through_a_withheld_file(root: Path, tmp_path: Path, where: str) -> None:
    folder = root
    if where == "copy":
        folder = Path(shutil.copytree(root, tmp_path / "clover-fix-x1"))
    text = run(folder, "import shop; shop.total(3)")
    assert "len(note) - 24" in text, "the proof that there is something to hide"
    safe = hidden(text, root)
    assert "len(note)" not in safe and "ZeroDivisionError" in safe
    assert "return discount(price)" in safe, "lines of other files stay"


def test_values_of_a_withheld_file_in_a_message(root: Path) -> None:
    text = run(root, "import private.plan as p; assert p.discount.__code__.co_consts[1] == 'x', "
                     "f'private/plan.py says {p.discount.__code__.co_consts[1]}'")  # fmt: skip
    assert CANARY in text and CANARY not in hidden(text, root)
    said = f"settings from .env: GREETING={CANARY}\nloaded {CANARY}"
    assert CANARY not in hidden(said, root)
    text = run(root, "import local_settings")
    assert "unknown_name_of_ours" in text and "LIMIT = unknown" not in hidden(text, root)


def test_messages_that_name_no_withheld_file_stay(root: Path) -> None:
    text = run(root, "import shop; shop.totl(3)") + "\nshop.py:4: x ../x.py /etc/passwd a.b.c " * 3
    assert hidden(text, root) == text


def test_a_conversation_about_a_repair_quotes_no_withheld_file(root: Path) -> None:
    withheld = Withheld((root,))
    failure = run(root, "import shop; shop.total(3)")
    code = "```python\ndef mine(price):\n    return price / (len(note) - 24)\n```\n"
    content = f"It fails:\n{failure}\n{code}It printed:\n```text\n{failure}\n```\n{failure}"
    talker = Talker()
    engine = unquoting(talker, root, lambda path: bool(withheld.of_path(root / path)))
    assert isinstance(engine, TextEngine)
    engine.generate(GenerateRequest((Message("user", content),)))
    engine.decide(DecisionRequest(content, (Question(content, ("a", "b")),)))
    engine.infill(InfillRequest("x", snippets=(Snippet(content),)))
    for request in talker.requests:
        sent = json.dumps(to_json(request))
        shown = sent.count("len(note) - 24")
        assert shown == sent.count("def mine"), "only the repair's own code stays as it is"
        assert CANARY not in sent and "ZeroDivisionError" in sent
    assert not isinstance(unquoting(FakeEngine(), root, lambda _: True), TextEngine)
