"""Edits in words over the real protocol: streamed, answered, applied, and offered as actions."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from lsprotocol import types

TEXT = "import os\r\n\r\n\r\ndef first(items):\r\n    return items[0]\r\n\r\n\r\nprint(os.name)\r\n"
NEW = "def first(items):\n    return items[0] if items else None"
ANSWER = f"```python\n{NEW}\n```"
AFTER = TEXT.replace("items[0]", "items[0] if items else None")


@pytest.fixture
def talking(benches: Any, worker: Any) -> Any:
    """`talking(answers, …)` starts a server whose model gives these answers."""

    def start(answers: list[str], roots: list[Path] | None = None, **more: Any) -> Any:
        client = benches.abilities("utf-16")
        client.workspace.workspace_edit.resource_operations = ["create"]
        return benches(client, roots=roots or (), worker=worker(answers=answers, **more))

    return start


def span(first: int, last: int) -> dict[str, Any]:
    return {
        "start": {"line": first, "character": 0},
        "end": {"line": last, "character": 0},
    }


def asked(uri: str, **more: Any) -> dict[str, Any]:
    return {"uri": uri, "range": span(3, 5), "instruction": "None for no items", **more}


def got(answer: Any, name: str) -> Any:
    return answer[name] if isinstance(answer, dict) else getattr(answer, name)


def test_the_new_lines_come_back_and_nothing_is_applied(talking: Any) -> None:
    bench = talking([ANSWER])
    uri = bench.editor.open("untitled:a.py", TEXT)
    answer = bench.command("clover.editSelection", asked(uri))
    assert (got(answer, "applied"), got(answer, "kind")) == (False, "edit")
    assert got(answer, "text") == NEW
    (edit,) = got(answer, "edits")
    assert got(edit, "newText") == NEW.replace("\n", "\r\n")
    assert bench.asked == []


def test_apply_changes_the_selected_lines_in_their_own_line_ends(talking: Any) -> None:
    bench = talking([ANSWER])
    uri = bench.editor.open("untitled:a.py", TEXT)
    answer = bench.command("clover.editSelection", asked(uri, apply=True))
    assert got(answer, "applied") is True
    (params,) = bench.asked
    assert bench.after(params.edit, uri) == AFTER


def test_imports_are_an_edit_of_their_own_where_they_are_wanted(talking: Any) -> None:
    code = "import math\n\n\ndef first(items):\n    return math.floor(items[0])"
    bench = talking([f"```python\n{code}\n```"])
    uri = bench.editor.open("untitled:a.py", TEXT)
    answer = bench.command("clover.editSelection", asked(uri))
    assert got(answer, "notes") == ["the new lines need `import math`"]
    bench.command("clover.editSelection", asked(uri, apply=True, imports=True))
    after = bench.after(bench.asked[0].edit, uri)
    assert after == TEXT.replace("import os\r\n", "import os\r\nimport math\r\n").replace(
        "items[0]", "math.floor(items[0])"
    )


def test_the_preview_streams_to_a_client_with_a_token(talking: Any) -> None:
    bench = talking([ANSWER], step_s=0.01)
    shown: list[Any] = []
    came = threading.Event()

    @bench.editor.client.feature("clover/editPreview")
    def preview(params: Any) -> None:
        shown.append((got(params, "token"), got(params, "text")))
        came.set()

    uri = bench.editor.open("untitled:a.py", TEXT)
    future = bench.start_command("clover.editSelection", asked(uri, token="t1"))
    assert came.wait(30)
    assert not future.done(), "it came while the model still wrote"
    assert got(future.result(30), "text") == NEW
    assert {token for token, _ in shown} == {"t1"}
    assert all(NEW.startswith(text.rstrip("`\n")) for _, text in shown)


def test_follow_ups_and_another_attempt(talking: Any) -> None:
    bench = talking([ANSWER])
    uri = bench.editor.open("untitled:a.py", TEXT)
    turns = [{"instruction": "None for no items", "text": NEW}]
    more = asked(uri, followUps=turns, attempt=2, instruction="shorter")
    assert got(bench.command("clover.editSelection", more), "text") == NEW


def test_presets_are_code_actions_where_a_coder_model_is(
    talking: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bench = talking(
        ['```python\ndef first(items):\n    """The first."""\n    return items[0]\n```']
    )
    uri = bench.editor.open("untitled:a.py", TEXT)
    selected = types.Range(types.Position(3, 0), types.Position(5, 0))
    actions = {a.title: a for a in bench.actions(uri, span=selected)}
    assert {"Write a docstring", "Explain this", "Write tests for this"} <= set(actions)
    done = bench.resolve(actions["Write a docstring"])
    assert '"""The first."""' in bench.after(done.edit, uri)
    assert actions["Explain this"].command.command == "clover.editSelection"


def test_explain_is_told_and_tests_are_a_new_file(
    talking: Any, make_repo: Any, temporary_root: Path
) -> None:
    root = make_repo({"shop/cart.py": TEXT, "tests/test_it.py": ""})
    bench = talking(["It gives the first."], [root])
    uri = bench.editor.open((root / "shop/cart.py").as_uri(), TEXT)
    said = bench.command("clover.editSelection", asked(uri, preset="explain", instruction=""))
    assert (got(said, "kind"), got(said, "explanation")) == ("say", "It gives the first.")
    bench = talking(["```python\nfrom shop.cart import first\n```"], [root])
    uri = bench.editor.open((root / "shop/cart.py").as_uri(), TEXT)
    made = bench.command("clover.editSelection", asked(uri, preset="tests", apply=True))
    assert got(made, "uri") == (root / "tests/test_cart.py").as_uri()
    create, change = bench.asked[0].edit.document_changes
    assert create.uri == got(made, "uri")
    assert change.edits[0].new_text == "from shop.cart import first\n"


def test_a_commit_message(talking: Any, make_repo: Any) -> None:
    root = make_repo({"a.py": "x = 1\n"})
    bench = talking(["fix: set x"], [root])
    assert "nothing is staged" in got(bench.command("clover.commitMessage"), "reason")
    (root / "a.py").write_text("x = 2\n")
    make_repo.git(root, "add", "-A")
    assert got(bench.command("clover.commitMessage"), "message") == "fix: set x"


def test_withheld_documents_and_models_that_fill_holes(
    talking: Any, benches: Any, worker: Any, make_repo: Any
) -> None:
    root = make_repo({".gitignore": "private.py\n", "private.py": TEXT})
    bench = talking([ANSWER], [root])
    uri = bench.editor.open((root / "private.py").as_uri(), TEXT)
    assert "no model may read this" in got(
        bench.command("clover.editSelection", asked(uri)), "reason"
    )
    bench = benches(benches.abilities("utf-16"), worker=worker())
    uri = bench.editor.open("untitled:a.py", TEXT)
    reason = got(bench.command("clover.editSelection", asked(uri)), "reason")
    assert "clover-code model get coder-1.5b" in reason


@pytest.mark.parametrize("argument", [{"instruction": "x"}, {"uri": "untitled:a", "preset": "x"}])
def test_arguments_that_do_not_fit(talking: Any, argument: dict[str, Any]) -> None:
    bench = talking([ANSWER])
    with pytest.raises(Exception, match="clover.editSelection"):
        bench.command("clover.editSelection", argument)
