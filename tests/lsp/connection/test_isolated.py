"""Helper processes: results, errors, the engine and cancellation cross the pipe."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator

import pytest

from clover_engine.api import CancelToken, ScoreRequest
from clover_engine.errors import EngineUnavailable
from clover_engine.testing.fakes import FakeEngine
from clover_engine.testing.waiting import until
from clover_lsp.actions.errors import ActionRefused
from clover_lsp.actions.next_edit import Memory
from clover_lsp.actions.proposals import Moment
from clover_lsp.actions.search import Search
from clover_lsp.isolated.client import Helper, HelperEnded

FUNCTIONS = """
import os, time
from clover_lsp.actions.errors import ActionRefused

def add(a, b, outside):
    print("a stray print")
    return a + b, os.getpid()

def refuse(outside):
    raise ActionRefused("not today")

def unfit(outside):
    return lambda: None

def score(request, outside):
    return outside.engine.score(request)

def tell(outside):
    outside.tell("heard", "words", 3)
    return outside.ask("double", 21)

def endless(outside):
    outside.tell("heard", "begun")
    while not outside.cancel.cancelled:
        time.sleep(0.001)
    return "stopped"

def deaf(outside):
    outside.tell("heard", os.getpid())
    time.sleep(600)
"""


@pytest.fixture
def functions(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> Iterator[object]:
    folder = str(tmp_path)
    with open(f"{folder}/helper_functions.py", "w") as file:
        file.write(FUNCTIONS)
    monkeypatch.setenv("PYTHONPATH", folder)
    monkeypatch.syspath_prepend(folder)
    import importlib

    yield importlib.import_module("helper_functions")


@pytest.fixture
def helper() -> Iterator[Helper]:
    made = Helper()
    yield made
    made.close()


def test_runs_functions_in_one_process_of_its_own(helper: Helper, functions: object) -> None:
    total, process = helper.run(functions.add, 1, 2)  # type: ignore[attr-defined]
    assert total == 3 and process != os.getpid()
    assert helper.run(functions.add, "a", "b") == ("ab", process)  # type: ignore[attr-defined]


def test_errors_and_values_that_cannot_be_sent(helper: Helper, functions: object) -> None:
    with pytest.raises(ActionRefused, match="not today"):
        helper.run(functions.refuse)  # type: ignore[attr-defined]
    with pytest.raises(Exception, match="pickle"):
        helper.run(functions.unfit)  # type: ignore[attr-defined]
    assert helper.run(functions.add, 1, 1)[0] == 2  # type: ignore[attr-defined]


def test_the_engine_answers_from_the_server(helper: Helper, functions: object) -> None:
    request = ScoreRequest("x = ", "\n", ("1", "22"))
    engine = FakeEngine()
    expected = engine.score(request).logprobs
    found = helper.run(functions.score, request, engine=engine)  # type: ignore[attr-defined]
    assert found.logprobs == expected

    class Down(FakeEngine):
        def score(self, request: ScoreRequest, cancel: CancelToken | None = None) -> object:  # type: ignore[override]
            raise EngineUnavailable("down")

    with pytest.raises(EngineUnavailable, match="down"):
        helper.run(functions.score, request, engine=Down())  # type: ignore[attr-defined, arg-type]


def test_tells_and_asks(helper: Helper, functions: object) -> None:
    heard: list[object] = []
    answers = {"heard": lambda *words: heard.append(words), "double": lambda n: 2 * n}
    assert helper.run(functions.tell, answers=answers) == 42  # type: ignore[attr-defined]
    assert heard == [("words", 3)]


def test_a_cancellation_arrives(helper: Helper, functions: object) -> None:
    cancel = CancelToken()
    answers = {"heard": lambda word: cancel.cancel()}
    found = helper.run(functions.endless, cancel=cancel, answers=answers)  # type: ignore[attr-defined]
    assert found == "stopped"


def test_a_helper_that_does_not_listen_is_ended(
    helper: Helper, functions: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clover_lsp.isolated.client.STOP_S", 0.1)
    cancel = CancelToken()
    with pytest.raises(HelperEnded):
        helper.run(
            functions.deaf,  # type: ignore[attr-defined]
            cancel=cancel,
            answers={"heard": lambda process: cancel.cancel()},
        )
    assert helper.run(functions.add, 2, 2)[0] == 4  # type: ignore[attr-defined]


def test_a_killed_helper_ends_the_run_and_the_next_one_starts_it_again(
    helper: Helper, functions: object
) -> None:
    with pytest.raises(HelperEnded):
        helper.run(
            functions.deaf,  # type: ignore[attr-defined]
            answers={"heard": lambda process: os.kill(process, signal.SIGKILL)},
        )
    assert helper.run(functions.add, 2, 2)[0] == 4  # type: ignore[attr-defined]


def test_closing_ends_the_process_while_it_computes(functions: object) -> None:
    helper, seen = Helper(), []
    failed: list[Exception] = []

    def run() -> None:
        try:
            helper.run(functions.deaf, answers={"heard": seen.append})  # type: ignore[attr-defined]
        except HelperEnded as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    until(lambda: seen)
    helper.close()
    thread.join(30)
    assert failed
    with pytest.raises(HelperEnded):
        helper.run(functions.add, 1, 1)  # type: ignore[attr-defined]


def test_a_new_helper_gets_the_former_texts_again(helper: Helper) -> None:
    before = "total = 1\nprint(total)\n"
    moment = Moment("amount = 1\nprint(total)\n", "python", 6, (before,))
    search = Search(helper)
    found = search.run(moment, Memory(), CancelToken())
    assert [p.new for p in found] == ["amount"]
    assert search.run(moment, Memory(), CancelToken()) == found
    process = helper._process
    assert process is not None
    process.kill()
    process.wait()
    until(lambda: helper._process is None)
    assert search.run(moment, Memory(), CancelToken()) == found


def test_idle_helpers_end(
    helper: Helper, functions: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clover_lsp.isolated.client.IDLE_S", 0.05)
    helper.run(functions.add, 1, 1)  # type: ignore[attr-defined]
    until(lambda: helper._process is None)
    assert time.monotonic() and helper.run(functions.add, 1, 1)[0] == 2  # type: ignore[attr-defined]
