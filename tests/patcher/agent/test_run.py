"""The agent's loop with scripted models: real copies, real git, real checks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from clover_engine.api import CancelToken
from clover_engine.testing.fakes import FakeTalker
from clover_engine.testing.replay import replay
from clover_patcher.agent.delivery import deliver_outcome
from clover_patcher.agent.loop import run
from clover_patcher.agent.task import Event, Limits, Outcome, Requirement
from clover_patcher.deliver.undo import undo
from clover_patcher.errors import TreeChanged, UsageError
from clover_patcher.repository.git import Repository

CART = '''\
"""Carts."""

RATE = 0.5


class Cart:
    def __init__(self):
        self.items = []

    def total(self):
        return sum(self.items)


def first(items):
    return items[0]
'''
TEST = "from shop.cart import Cart\n\n\ndef test_count():\n    assert Cart().count() == 0\n"
FILES = {
    "shop/__init__.py": "",
    "shop/cart.py": CART,
    "tests/test_cart.py": TEST,
    "README.md": "A shop.\n",
    ".env": "TOKEN=x\n",
}
COUNT = "`shop/cart.py::Cart.count`\n```python\ndef count(self):\n    return len(self.items)\n```"
CHECK = "python -m pytest -q tests"


@pytest.fixture(autouse=True)
def root(make_repo, own_python, monkeypatch: pytest.MonkeyPatch) -> Path:
    path: Path = make_repo(FILES)
    monkeypatch.chdir(path)
    return path


def carried_out(root: Path, answers: list[str], words: str = "a method count", **more: Any) -> Ran:
    engine, limits = FakeTalker(answers=answers), more.pop("limits", None)
    events: list[Event] = []
    asked = Requirement(root, words, **more)
    outcome = run(asked, engine, limits, more.pop("cancel", None), events.append)
    return Ran(outcome, engine, events)


class Ran:
    def __init__(self, outcome: Outcome, engine: FakeTalker, events: list[Event]) -> None:
        self.outcome, self.engine, self.events = outcome, engine, events

    @property
    def prompts(self) -> list[str]:
        """What the model read last, before each answer."""
        return [one.messages[-1].content for one in self.engine.conversations]

    def text(self, path: str) -> str:
        return next(c.after for c in self.outcome.changes if c.path == path).decode()


def test_a_check_that_failed_and_passes_ends_the_run(root: Path) -> None:
    ran = carried_out(root, [COUNT], check=CHECK)
    assert (ran.outcome.status, ran.outcome.steps, ran.outcome.exit_code) == ("done", 1, 0)
    assert "has no attribute 'count'" in ran.prompts[0]
    assert ran.text("shop/cart.py").endswith(
        "        return sum(self.items)\n\n    def count(self):\n        return len(self.items)\n"
        "\n\ndef first(items):\n    return items[0]\n"
    )
    assert [one.passed for one in ran.outcome.runs] == [False, True, True]
    assert (root / "shop/cart.py").read_text() == CART, "the user's tree is as it was"


def test_a_failing_check_is_told_and_mended(root: Path) -> None:
    wrong = COUNT.replace("len(self.items)", "len(self.item)")
    ran = carried_out(root, [wrong, COUNT], check=CHECK)
    assert ran.outcome.status == "done" and ran.outcome.steps == 2
    assert "has no attribute 'item'" in ran.prompts[1]


def test_done_before_the_check_passes_is_refused(root: Path) -> None:
    wrong = COUNT.replace("len(self.items)", "1")
    ran = carried_out(root, [wrong + "\nDONE", COUNT + "\nDONE"], check=CHECK)
    assert ran.outcome.status == "done" and ran.outcome.steps == 2


def test_several_calls_are_answered_together(root: Path) -> None:
    ran = carried_out(root, ["READ shop/cart.py\nSEARCH def total\nLIST tests", "DONE nothing"])
    said = ran.prompts[1]
    assert "class Cart:" in said
    assert "shop/cart.py:10: def total(self):" in said
    assert "tests/test_cart.py" in said
    assert ran.outcome.summary == "nothing" and ran.outcome.changes == ()


def test_withheld_files_do_not_exist(root: Path) -> None:
    ran = carried_out(
        root, ["READ .env\nSEARCH TOKEN\nLIST", "DONE"], withheld=lambda path: path == ".env"
    )
    assert "there is no file" in ran.prompts[1] and "stands nowhere" in ran.prompts[1]
    assert all("TOKEN=x" not in prompt for prompt in ran.prompts)


def test_a_new_file_an_old_one_and_a_text(root: Path) -> None:
    answer = (
        "`shop/tax.py`\n```python\ndef tax(x):\n    return x / 5\n```\n"
        "`shop/cart.py::first`\n```python\ndef first(items):\n    return items[0] or None\n```\n"
        "`README.md`\n```\nA shop with taxes.\n```\nDONE"
    )
    ran = carried_out(root, [answer])
    assert [c.path for c in ran.outcome.changes] == ["README.md", "shop/cart.py", "shop/tax.py"]
    assert ran.text("README.md") == "A shop with taxes.\n"
    assert ran.text("shop/cart.py") == CART.replace("items[0]", "items[0] or None")
    done = deliver_outcome(ran.outcome, commit=True)
    assert (root / "shop/tax.py").read_text() == "def tax(x):\n    return x / 5\n"
    assert done.commit == Repository.open(root).head()
    undo(Repository.open(root))
    assert not (root / "shop/tax.py").exists()
    assert (root / "README.md").read_text() == "A shop.\n"


def test_search_and_replace(root: Path) -> None:
    pair = "<<<<<<< SEARCH\nRATE = 0.5\n=======\nRATE = 0.7\n>>>>>>> REPLACE"
    answer = f"`shop/cart.py`\n```\n{pair}\n```\nDONE"
    assert carried_out(root, [answer]).text("shop/cart.py") == CART.replace("0.5", "0.7")


def test_imports_and_constants_of_a_new_function_go_to_the_top(root: Path) -> None:
    answer = (
        "`shop/cart.py::rounded`\n```python\nimport math\n\n\ndef rounded(x):\n"
        "    return math.floor(x)\n```\nDONE"
    )
    text = carried_out(root, [answer]).text("shop/cart.py")
    assert text.startswith('"""Carts."""\nimport math\n')
    assert text.endswith("\n\n\ndef rounded(x):\n    return math.floor(x)\n")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("I think all is well.", "No command was found"),
        ("```python\ndef nowhere():\n    return 1\n```", "head it `path::function`"),
        ("`shop/cart.py::first`\n```python\ndef first(items):\n", "in the middle"),
        ("`shop/cart.py::first`\n```python\ndef first(items:\n```", "no whole function"),
        (
            "`shop/cart.py::first`\n```python\ndef first(items):\n    return items[0]\n```",
            "nothing",
        ),
        ("`tests/test_cart.py`\n```python\ndef test(): pass\n```", "decides whether the check"),
        ("`../x.py`\n```python\nx = 1\n```", "not a path inside the repository"),
        ("READ shop/gone.py", "there is no file shop/gone.py"),
    ],
)
def test_what_cannot_be_carried_out_is_told(root: Path, answer: str, words: str) -> None:
    ran = carried_out(root, [answer, COUNT], check=CHECK)
    assert words in ran.prompts[1]
    assert ran.outcome.status == "done"


def test_done_beside_an_edit_that_was_refused_is_not_the_end(root: Path) -> None:
    broken = "`shop/cart.py::first`\n```python\ndef first(items:\n```\nDONE"
    ran = carried_out(root, [broken, COUNT + "\nDONE"])
    assert ran.outcome.status == "done" and ran.outcome.steps == 2
    assert ran.outcome.changes


def test_errors_in_a_row_end_the_run(root: Path) -> None:
    ran = carried_out(root, ["Hm."])
    assert (ran.outcome.status, ran.outcome.errors, ran.outcome.steps) == ("format", 3, 3)
    assert ran.outcome.exit_code == 1


@pytest.mark.parametrize(
    ("limits", "status"),
    [(Limits(steps=2), "steps"), (Limits(tokens=5), "tokens"), (Limits(seconds=0.0), "budget")],
)
def test_limits(root: Path, limits: Limits, status: str) -> None:
    ran = carried_out(root, ["READ shop/cart.py"], limits=limits)
    assert ran.outcome.status == status


def test_cancelled_runs_leave_the_tree_alone(root: Path) -> None:
    cancel = CancelToken()
    engine = FakeTalker(answers=[COUNT], step_s=0.01)

    def stop(event: Event) -> None:
        cancel.cancel()

    outcome = run(Requirement(root, "a method count"), engine, None, cancel, stop)
    assert (outcome.status, outcome.exit_code) == ("cancelled", 130)
    assert (root / "shop/cart.py").read_text() == CART


def test_a_trajectory_replays(root: Path, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    first = carried_out(root, ["READ shop/cart.py", COUNT], check=CHECK, trajectory=path).outcome
    events = [json.loads(line)["event"] for line in path.read_text().splitlines()]
    assert events == ["start", "answer", "observation", "answer", "observation", "end"]
    again = run(Requirement(root, "a method count", check=CHECK), replay(path))
    assert again.patch == first.patch and again.status == "done"
    assert again.trajectory is not None and again.trajectory.parent.name == "agent"


def test_unsaved_buffers_are_what_is_changed(root: Path) -> None:
    buffer = CART.replace("RATE = 0.5", "RATE = 0.9").encode()
    ran = carried_out(root, [COUNT + "\nDONE"], overlay={"shop/cart.py": buffer})
    assert "RATE = 0.9" in ran.text("shop/cart.py")
    assert ran.outcome.changes[0].before == buffer


def test_a_file_that_changed_meanwhile_is_not_written(root: Path) -> None:
    ran = carried_out(root, [COUNT + "\nDONE"])
    (root / "shop/cart.py").write_text("mine = 1\n")
    with pytest.raises(TreeChanged):
        deliver_outcome(ran.outcome)
    assert (root / "shop/cart.py").read_text() == "mine = 1\n"


def test_an_empty_requirement(root: Path) -> None:
    with pytest.raises(UsageError, match="empty"):
        carried_out(root, ["DONE"], words=" ")


def test_a_secret_that_a_server_sees_as_stars_stays(root: Path, make_repo) -> None:
    token = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    code = f'def client(url):\n    token = "{token}"\n    return url, token\n'
    (root / "client.py").write_text(code)
    seen = code.replace(token, "*" * len(token)).replace("url, token", "token")
    ran = carried_out(root, [f"`client.py::client`\n```python\n{seen}```\nDONE"])
    assert ran.text("client.py") == code.replace("url, token", "token")
    other = seen.replace('token = "', 'secret = "')
    ran = carried_out(root, [f"`client.py::client`\n```python\n{other}```", "DONE"])
    assert "stars over a secret" in ran.prompts[1] and ran.outcome.changes == ()


METHOD = "    def count(self):\n        return len(self.items)\n"
WHOLE = CART.replace("\n\ndef first", f"\n{METHOD}\n\ndef first")


@pytest.mark.parametrize(
    "answer",
    [
        f"`shop/cart.py`\n```python\nclass Cart:\n{METHOD}```",
        f"`shop/cart.py::Cart`\n```python\nclass Cart:\n    # ... existing code\n\n{METHOD}```",
        f"```python\nclass Cart:\n{METHOD}```",
        f"`shop/cart.py`\n```python\n{WHOLE}```",
        f"I add it:\n\n```python\n# shop/cart.py\n{WHOLE}```",
        f"```python shop/cart.py\n{WHOLE}```",
        f"`shop/cart.py::Cart.count`\n```python\n{METHOD}```",
        f"```python\n{WHOLE}```",
        "```python\ndef count(self):\n    return len(self.items)\n```",
        f"```\nREAD shop/cart.py\n```\n`shop/cart.py::Cart`\n```python\nclass Cart:\n{METHOD}```",
        "### `shop/cart.py::Cart.count`\n```py\ndef count(self):\n    return len(self.items)\n```",
    ],
)
def test_a_method_as_models_write_it(root: Path, answer: str) -> None:
    ran = carried_out(root, [answer + "\nDONE"], "shop/cart.py: Cart needs a method count")
    assert ran.outcome.steps == 1, ran.prompts
    assert ran.text("shop/cart.py").split() == WHOLE.split()
