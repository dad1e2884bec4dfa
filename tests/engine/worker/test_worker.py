"""The embedded engine's client against real worker processes that run the fake model."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from clover_engine.api import (
    CancelToken,
    ClozeRequest,
    Engine,
    InfillRequest,
    ScoreRequest,
    Snippet,
)
from clover_engine.errors import (
    CheckpointError,
    EngineCrashed,
    EngineError,
    EngineUnavailable,
    RequestCancelled,
    RequestError,
)
from clover_engine.generation import GenerateRequest, Message, Piece
from clover_engine.worker.local import LocalEngine

MakeEngine = Callable[..., LocalEngine]
LONG = "word " * 2000


def fake_command(**options: Any) -> list[str]:
    return [sys.executable, "-P", "-m", "clover_engine.worker", "--fake", json.dumps(options)]


@pytest.fixture
def make() -> Iterator[MakeEngine]:
    engines: list[LocalEngine] = []

    def build(start_timeout_s: float = 60, hang_grace_s: float = 30, **options: Any) -> LocalEngine:
        engine = LocalEngine(
            command=fake_command(**options),
            start_timeout_s=start_timeout_s,
            hang_grace_s=hang_grace_s,
        )
        engines.append(engine)
        return engine

    yield build
    for engine in engines:
        engine.close()


def wait_until(condition: Callable[[], bool], seconds: float = 10.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.01)
    return condition()


def is_running(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_answers_every_kind_of_request(make: MakeEngine) -> None:
    engine = make(infills=["return a + b"], scores={"a": -0.25})
    assert isinstance(engine, Engine)
    assert not engine.health().ready
    result = engine.infill(InfillRequest("def f(a, b):\n    ", snippets=(Snippet("x", "y.py"),)))
    assert result.choices[0].text == "return a + b"
    assert result.choices[0].finish_reason == "eom"
    assert result.stats.forward_passes > 0
    scored = engine.score(ScoreRequest("x = ", "\n", ("a", "bb")))
    assert scored.logprobs[0] == -0.25
    assert scored.logprobs[1] is not None
    fills = engine.cloze(ClozeRequest("x = ", "a + b", "\n")).fills
    assert {fill.text for fill in fills} == {" + b", "a b", "a +"}
    health = engine.health()
    assert health.ready and health.model == "fake" and health.restarts == 0


def test_any_text_crosses_the_boundary(make: MakeEngine) -> None:
    text = "é 漢字 \U0001f40d \ud800 \x00\r\n\u2028 {}"
    engine = make(scores={text: -1.5})
    assert engine.score(ScoreRequest(text, text, (text,))).logprobs == (-1.5,)


def test_large_requests_do_not_block(make: MakeEngine) -> None:
    engine = make()
    assert engine.infill(InfillRequest("x" * 5_000_000, "y" * 100)).choices[0].text == "pass"


def test_a_crash_costs_one_request(make: MakeEngine) -> None:
    engine = make(infills=["ok"])
    assert engine.infill(InfillRequest("")).choices[0].text == "ok"
    with pytest.raises(EngineCrashed, match="SIGKILL"):
        engine.infill(InfillRequest("@@crash@@"))
    assert not engine.health().ready
    assert engine.infill(InfillRequest("")).choices[0].text == "ok"
    assert engine.health().restarts == 1


def test_kill_during_a_request_then_recovery(make: MakeEngine) -> None:
    engine = make(infills=[LONG], step_s=0.01)
    assert engine.health(start=True).ready
    pid = engine.health().pid
    assert pid is not None
    threading.Timer(0.1, os.kill, (pid, signal.SIGKILL)).start()
    with pytest.raises(EngineCrashed):
        engine.infill(InfillRequest("", max_tokens=2000))
    assert engine.infill(InfillRequest("", max_tokens=2)).choices[0].finish_reason == "length"


def test_kill_between_requests_goes_unnoticed(make: MakeEngine) -> None:
    engine = make()
    engine.infill(InfillRequest(""))
    pid = engine.health().pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    assert wait_until(lambda: engine.health().pid is None)
    assert engine.infill(InfillRequest("")).choices[0].text == "pass"


def test_repeated_crashes_back_off(make: MakeEngine) -> None:
    engine = make()
    for _ in range(2):
        with pytest.raises(EngineCrashed):
            engine.infill(InfillRequest("@@crash@@"))
    with pytest.raises(EngineUnavailable, match="2 times in a row; next try in"):
        engine.infill(InfillRequest(""))
    engine._process.ended -= 60  # type: ignore[union-attr]  # time passes
    assert engine.infill(InfillRequest("")).choices[0].text == "pass"


def test_cancel_returns_within_a_step_with_what_there_is(make: MakeEngine) -> None:
    engine = make(infills=[LONG], step_s=0.05)
    engine.health(start=True)
    cancel = CancelToken()
    cancelled_at: list[float] = []

    def stop() -> None:
        cancelled_at.append(time.monotonic())
        cancel.cancel()

    threading.Timer(0.3, stop).start()
    result = engine.infill(InfillRequest("", max_tokens=1000), cancel)
    assert time.monotonic() - cancelled_at[0] < 0.5
    assert result.choices[0].finish_reason == "cancelled"
    assert result.choices[0].text.startswith("word word")


def test_cancel_in_the_queue_and_before_the_start(make: MakeEngine) -> None:
    engine = make(infills=[LONG], step_s=0.01)
    engine.health(start=True)
    first = CancelToken()
    thread = threading.Thread(target=engine.infill, args=(InfillRequest("", max_tokens=900), first))
    thread.start()
    time.sleep(0.1)
    second = CancelToken()
    threading.Timer(0.1, second.cancel).start()
    begun = time.monotonic()
    with pytest.raises(RequestCancelled):
        engine.score(ScoreRequest("", "", ("a",)), second)
    assert time.monotonic() - begun < 2
    first.cancel()
    thread.join(10)
    assert not thread.is_alive()
    with pytest.raises(RequestCancelled):
        engine.infill(InfillRequest(""), first)


def test_cancel_while_loading(make: MakeEngine) -> None:
    engine = make(load_s=30)
    cancel = CancelToken()
    threading.Timer(0.1, cancel.cancel).start()
    begun = time.monotonic()
    with pytest.raises(RequestCancelled):
        engine.infill(InfillRequest(""), cancel)
    assert time.monotonic() - begun < 5
    assert engine.health().detail == "the model is loading"


def test_deadline_is_kept(make: MakeEngine) -> None:
    engine = make(infills=[LONG], step_s=0.02)
    engine.health(start=True)
    begun = time.monotonic()
    result = engine.infill(InfillRequest("", max_tokens=1000, deadline_s=0.2))
    assert time.monotonic() - begun < 2
    assert result.choices[0].finish_reason == "deadline"
    assert result.choices[0].text.startswith("word")
    scored = engine.score(ScoreRequest("", "", tuple("abcdefgh" * 8), deadline_s=0.2))
    assert scored.logprobs[0] is not None and scored.logprobs[-1] is None


def test_deadline_counts_loading(make: MakeEngine) -> None:
    engine = make(load_s=30)
    begun = time.monotonic()
    result = engine.infill(InfillRequest("", deadline_s=0.2))
    assert result.choices[0].finish_reason == "deadline"
    assert engine.score(ScoreRequest("", "", ("a", "b"), deadline_s=0)).logprobs == (None, None)
    assert engine.cloze(ClozeRequest("", "a", "", deadline_s=0)).fills == ()
    assert time.monotonic() - begun < 5


def test_hang_after_deadline_is_ended(make: MakeEngine) -> None:
    engine = make(hang_grace_s=0.3)
    engine.health(start=True)
    with pytest.raises(EngineCrashed, match="did not stop"):
        engine.infill(InfillRequest("@@hang@@", deadline_s=0.1))
    assert engine.infill(InfillRequest("")).choices[0].text == "pass"


def test_slow_start_is_given_up(make: MakeEngine) -> None:
    engine = make(start_timeout_s=0.3, load_s=60)
    with pytest.raises(EngineUnavailable, match="did not load within"):
        engine.infill(InfillRequest(""))
    assert engine.health().pid is None
    with pytest.raises(EngineUnavailable, match="did not load within"):
        engine.infill(InfillRequest(""))  # remembered: nothing starts during the pause
    assert engine.health().restarts == 0


def test_rubbish_on_standard_output_is_harmless(make: MakeEngine) -> None:
    engine = make(infills=["ok"])
    assert engine.infill(InfillRequest("@@noise@@")).choices[0].text == "ok"
    assert engine.infill(InfillRequest("")).choices[0].text == "ok"


def test_model_errors_reach_the_caller(make: MakeEngine) -> None:
    engine = make()
    with pytest.raises(EngineError, match="RuntimeError: the fake was told to raise"):
        engine.infill(InfillRequest("@@raise@@"))
    assert engine.infill(InfillRequest("")).choices[0].text == "pass"
    assert engine.health().restarts == 0


def test_what_is_no_request_starts_nothing(make: MakeEngine) -> None:
    engine = make()
    with pytest.raises(RequestError):
        engine.infill(InfillRequest("", max_tokens=0))
    assert engine.health().pid is None


def test_two_threads_share_a_worker(make: MakeEngine) -> None:
    engine = make(step_s=0.001)
    wrong: list[object] = []

    def work(name: str) -> None:
        for i in range(20):
            candidates = tuple(f"{name}{i}_{k}" for k in range(3))
            one = engine.score(ScoreRequest("", "", candidates))
            if one.tokens != (2, 2, 2) or len(one.logprobs) != 3:
                wrong.append(one)
            fills = engine.cloze(ClozeRequest("", f"{name} {i}", "")).fills
            if {fill.text for fill in fills} != {name, f" {i}"}:
                wrong.append(fills)

    threads = [threading.Thread(target=work, args=(name,)) for name in ("alpha", "beta", "gamma")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not wrong
    assert engine.health().restarts == 0


def test_a_crash_fails_all_requests_in_flight(make: MakeEngine) -> None:
    engine = make(infills=[LONG], step_s=0.01)
    engine.health(start=True)
    caught: list[EngineError] = []

    def work() -> None:
        try:
            engine.infill(InfillRequest("", max_tokens=1500))
        except EngineError as error:
            caught.append(error)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    time.sleep(0.2)
    os.kill(engine.health().pid or 0, signal.SIGKILL)
    for thread in threads:
        thread.join(10)
    assert [type(error) for error in caught] == [EngineCrashed] * 3
    assert engine.infill(InfillRequest("", max_tokens=1)).choices[0].text == "word"


def test_close_ends_worker_and_requests(make: MakeEngine) -> None:
    engine = make(infills=[LONG], step_s=0.01)
    engine.health(start=True)
    pid = engine.health().pid or 0
    threading.Timer(0.1, engine.close).start()
    with pytest.raises(EngineUnavailable, match="closed"):
        engine.infill(InfillRequest("", max_tokens=1500))
    assert wait_until(lambda: not is_running(pid))
    with pytest.raises(EngineUnavailable, match="closed"):
        engine.infill(InfillRequest(""))
    assert engine.health().detail == "the engine is closed"
    engine.close()


def test_dropped_engine_ends_its_worker() -> None:
    engine = LocalEngine(command=fake_command())
    pid = engine.health(start=True).pid or 0
    assert is_running(pid)
    del engine
    assert wait_until(lambda: not is_running(pid))


ORPHAN = """
import json, os, sys, time
from clover_engine.api import InfillRequest
from clover_engine.generation import GenerateRequest, Message, Piece
from clover_engine.worker.local import LocalEngine
engine = LocalEngine(command=json.loads(sys.argv[1]))
print(engine.health(start=True).pid, flush=True)
if sys.argv[2] == "fork" and os.fork() == 0:
    time.sleep(20)   # keeps the worker's standard input open
if sys.argv[2] == "exit":
    sys.exit()
engine.infill(InfillRequest("@@hang@@"))
"""


@pytest.mark.parametrize("how", ["exit", "kill", "fork"])
def test_no_orphans(how: str) -> None:
    command = [sys.executable, "-c", ORPHAN, json.dumps(fake_command()), how]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        if how != "exit":
            assert is_running(pid)
            time.sleep(0.2)
            parent.kill()
        parent.wait(20)
        gone = wait_until(lambda: not is_running(pid), 15)
        if how == "fork":
            os.killpg(parent.pid, signal.SIGKILL)
        assert gone


def test_broken_checkpoint_is_reported(make: MakeEngine) -> None:
    engine = make(broken="model.safetensors is truncated; download it again")
    with pytest.raises(CheckpointError, match="truncated"):
        engine.infill(InfillRequest(""))
    with pytest.raises(CheckpointError, match="truncated"):
        engine.infill(InfillRequest(""))
    health = engine.health()
    assert not health.ready and "truncated" in health.detail and health.restarts == 0


def test_unstartable_commands_are_unavailable() -> None:
    with pytest.raises(EngineUnavailable, match="cannot start /nonexistent/python"):
        LocalEngine(command=["/nonexistent/python"]).infill(InfillRequest(""))
    dies = [sys.executable, "-c", "import sys; sys.exit('no such luck')"]
    told = pytest.raises(EngineUnavailable, match=r"exit code 1.*no such luck")
    with LocalEngine(command=dies) as engine, told:
        engine.infill(InfillRequest(""))


def test_missing_torch_names_the_command(tmp_path: Any) -> None:
    (tmp_path / "torch.py").write_text("raise ModuleNotFoundError('no torch', name='torch')")
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    run = subprocess.run(
        [sys.executable, "-m", "clover_engine.worker", "--checkpoint", str(tmp_path)],
        input=b"",
        env=env,
        capture_output=True,
        timeout=60,
    )
    frame = json.loads(run.stdout)
    assert frame["op"] == "failed" and frame["error"] == "EngineUnavailable"
    assert "torch is not installed; run: " in frame["message"]
    assert "pip install" in frame["message"]


def test_the_protocol_survives_bad_frames() -> None:
    lines = [
        b"\xff\xfe\n",
        b"[]\n",
        b'{"id": 1, "op": "dance"}\n',
        b'{"id": 2, "op": "infill", "request": {"max_tokens": 3}}\n',
        b'{"id": 3, "op": "infill", "request": {"prefix": 5}}\n',
        b'{"id": 4, "op": "infill", "request": {"prefix": "", "unknown": 1}}\n',
    ]
    frames: list[dict[str, Any]] = []
    pipe = subprocess.PIPE
    with subprocess.Popen(fake_command(), stdin=pipe, stdout=pipe, stderr=pipe) as worker:
        assert worker.stdin is not None and worker.stdout is not None
        worker.stdin.write(b"".join(lines))
        worker.stdin.flush()
        while not frames or frames[-1].get("id") != 4:
            frames.append(json.loads(worker.stdout.readline()))
        worker.stdin.close()
        assert worker.wait(10) == 0
    by_id = {frame["id"]: frame for frame in frames if frame.get("id")}
    assert sum(frame.get("op") == "ready" for frame in frames) == 1
    assert [by_id[i].get("error") for i in (1, 2, 3)] == ["RequestError"] * 3
    assert by_id[4]["result"]["choices"][0]["text"] == "pass"


def test_an_answer_streams_while_it_is_written(make: MakeEngine) -> None:
    engine, cancel = make(answers=[LONG], step_s=0.005), CancelToken()
    came: list[str] = []

    def tell(piece: Piece) -> None:
        came.append(piece.text)
        if len(came) == 5:
            cancel.cancel()

    result = engine.generate(GenerateRequest((Message("user", "go on"),)), cancel, tell)
    assert result.finish_reason == "cancelled", "the pieces came before the answer was whole"
    assert "".join(came) == result.text
    assert LONG.startswith(result.text)
