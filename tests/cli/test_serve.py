"""`clover-code serve`, as a process, over a stand-in that is installed as SGLang 0.5.23."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from clover_code.main import build_parser
from clover_engine.capacity.plan import GB
from clover_engine.errors import CheckpointError, EngineUnavailable, RequestError
from clover_engine.serving import launch
from clover_engine.serving.launch import LaunchOptions, check_memory, prepare, write_settings
from clover_engine.serving.supervisor import Events, RestartLimits, Supervisor
from clover_engine.worker.local import DEFAULT_CHECKPOINT

STAND_IN = Path(__file__).parent / "stand_in" / "launch_server.py"
CARDS = {"none": "", "h200": "143771\n", "two": "143771\n143771\n", "small": "1024\n"}


def distribution(folder: Path, name: str, version: str, entry_points: str = "") -> None:
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "entry_points.txt").write_text(entry_points)


@dataclass
class Started:
    """A `clover-code serve` and what it wrote so far."""

    process: subprocess.Popen[bytes]
    folder: Path

    @property
    def out(self) -> str:
        return (self.folder / "out").read_text()

    @property
    def err(self) -> str:
        return (self.folder / "err").read_text()

    def until_ready(self, times: int = 1, seconds: float = 20.0) -> None:
        def ready() -> bool:
            assert self.process.poll() is None, self.err
            return self.out.count("or for other programs") == times

        wait_for(ready, seconds)

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self, seconds: float = 40) -> int:
        return self.process.wait(seconds)


@dataclass
class Machine:
    """A computer with GPUs (a program called nvidia-smi) and SGLang (the stand-in)."""

    folder: Path
    monkeypatch: pytest.MonkeyPatch
    port: int = 0
    started: list[Started] = field(default_factory=list)

    def cards(self, memory: str) -> None:
        program = self.folder / "bin" / "nvidia-smi"
        program.write_text(f"#!/bin/sh\nprintf '{CARDS[memory]}'\n")
        program.chmod(0o755)

    def behave(self, **plan: Any) -> None:
        plan["folder"] = str(self.folder)
        self.monkeypatch.setenv("CLOVER_STAND_IN", json.dumps(plan))

    def start(self, *arguments: str) -> Started:
        command = [sys.executable, "-m", "clover_code", "serve", "--port", str(self.port)]
        if "--model" not in arguments:
            command += ["--model", str(DEFAULT_CHECKPOINT)]
        folder = self.folder / f"run-{len(self.started)}"
        folder.mkdir()
        with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
            process = subprocess.Popen([*command, *arguments], stdout=out, stderr=err)
        self.started.append(Started(process, folder))
        return self.started[-1]

    def lives(self) -> list[tuple[int, int]]:
        """(server, child of the server) of each start."""
        lines = (self.folder / "pids").read_text().splitlines()
        return [(int(a), int(b)) for a, b in (line.split() for line in lines)]

    def arguments(self) -> list[str]:
        lines = (self.folder / "arguments").read_text().splitlines()
        found: list[str] = json.loads(lines[-1])
        return found


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def members(group: int) -> list[int]:
    """Running processes of a process group."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, owner = path.read_text().rpartition(")")[2].split()[:3]
            if int(owner) == group and state not in "ZX":
                found.append(int(path.parent.name))
    return found


def children(pid: int) -> list[int]:
    return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def wait_for(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    site, bin_folder = tmp_path / "site", tmp_path / "bin"
    (site / "sglang").mkdir(parents=True)
    bin_folder.mkdir()
    (site / "sglang" / "__init__.py").touch()
    shutil.copy(STAND_IN, site / "sglang")
    plugin = "[sglang.srt.plugins]\nclover = clover_engine.serving.plugin:register\n"
    distribution(site, "sglang", "0.5.23", plugin)
    monkeypatch.setenv("PYTHONPATH", str(site))
    monkeypatch.setenv("PATH", f"{bin_folder}:{os.environ['PATH']}")
    for name in ("CLOVER_SGLANG_PYTHON", "CLOVER_CHECKPOINT"):
        monkeypatch.delenv(name, raising=False)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    made = Machine(tmp_path, monkeypatch, port)
    made.cards("h200")
    made.behave()
    yield made
    for run in made.started:
        run.process.terminate()
        run.end()
    left = [pid for life in made.lives() for pid in life] if (tmp_path / "pids").exists() else []
    assert not [pid for pid in left if running(pid)]


def test_starts_says_what_to_set_and_ends(machine: Machine) -> None:
    machine.behave(starting=2)
    run = machine.start()
    run.until_ready()
    server, child = machine.lives()[0]
    assert running(server) and running(child)
    run.send(signal.SIGTERM)
    assert run.end() == 0
    assert run.out.startswith(f"ready after {run.out.split()[2]} s: http://127.0.0.1:")
    assert f'"clover.sglang.url": "http://127.0.0.1:{machine.port}"' in run.out
    assert "sglang | stand-in starts" in run.err and run.err.endswith("clover-code: stopped\n")
    assert not running(server) and not running(child)
    arguments = machine.arguments()
    assert arguments[arguments.index("--dllm-algorithm") + 1] == "Clover"
    assert int(arguments[arguments.index("--max-running-requests") + 1]) > 1


def test_ctrl_c_ends_a_server_that_ignores_it(machine: Machine) -> None:
    machine.behave(deaf=True)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # tests in a background job
    try:
        run = machine.start()
    finally:
        signal.signal(signal.SIGINT, before)
    run.until_ready()
    run.send(signal.SIGINT)
    time.sleep(1.5)  # a busy machine may take the second for the first
    assert run.process.poll() is None and running(machine.lives()[0][0])
    run.send(signal.SIGINT)  # the second one does not wait
    assert run.end(12) == 0


def test_stops_while_the_server_is_starting(machine: Machine) -> None:
    machine.behave(starting=10**6)
    run = machine.start()
    wait_for(lambda: (machine.folder / "pids").exists())
    run.send(signal.SIGTERM)
    assert run.end() == 0


def test_a_server_under_nohup_outlives_the_terminal(machine: Machine) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        run = machine.start()
    finally:
        signal.signal(signal.SIGHUP, before)
    run.until_ready()
    run.send(signal.SIGHUP)
    time.sleep(0.6)
    assert run.process.poll() is None and running(machine.lives()[0][0])
    run.send(signal.SIGTERM)
    assert run.end() == 0


def test_a_crash_after_it_was_up_is_mended(machine: Machine) -> None:
    machine.behave(crash_after=0.2, lives=1)
    run = machine.start("--log", str(machine.folder / "server.log"))
    run.until_ready()
    wait_for(lambda: len(machine.lives()) == 2)
    assert not running(machine.lives()[0][1])  # nothing of the first life holds the GPU
    run.until_ready(2)
    run.send(signal.SIGTERM)
    assert run.end() == 0
    assert "the server ended (exit code 9); starting it again in 1 s" in run.err
    assert "stand-in starts" not in run.err
    assert (machine.folder / "server.log").read_text().count("stand-in starts") == 2


def test_a_server_that_never_comes_up_is_not_started_again(machine: Machine) -> None:
    machine.behave(exit=3)
    run = machine.start()
    assert run.end() == 1 and len(machine.lives()) == 1
    assert "exit code 3" in run.err and "  stand-in cannot load the model" in run.err


def test_restarts_are_limited(machine: Machine) -> None:
    machine.behave(crash_after=0.2)
    run = machine.start("--restarts", "1")
    assert run.end() == 1 and len(machine.lives()) == 2
    assert "2 times in a row" in run.err


def test_the_ready_timeout_holds(machine: Machine) -> None:
    machine.behave(starting=10**6)
    run = machine.start("--ready-timeout", "1")
    assert run.end() == 1 and "did not answer within 1 s" in run.err


def test_the_key_stays_off_the_command_line(machine: Machine) -> None:
    key = machine.folder / "key.txt"
    key.write_text("s3cret\n")
    run = machine.start("--api-key-file", str(key), "--mode", "threshold", "--block-size", "8")
    run.until_ready()
    arguments = machine.arguments()
    config = Path(arguments[arguments.index("--config") + 1])
    assert json.loads(config.read_text()) == {"api-key": "s3cret"}
    assert config.stat().st_mode & 0o777 == 0o600 and config.parent.stat().st_mode & 0o077 == 0
    chosen = Path(arguments[arguments.index("--dllm-algorithm-config") + 1])
    assert json.loads(chosen.read_text()) == {"mode": "threshold", "block_size": 8}
    run.send(signal.SIGTERM)
    assert run.end() == 0
    assert "s3cret" not in run.out + run.err and "clover.sglang.apiKey" in run.out
    assert not config.exists()


def test_a_port_in_use_is_named(machine: Machine) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", machine.port))
        taken.listen()
        run = machine.start()
        assert run.end() == 2 and run.err.count("\n") == 1
    assert f"port {machine.port}" in run.err and "--port" in run.err
    assert not (machine.folder / "pids").exists()


def test_dry_run_prints_a_command_for_a_shell(machine: Machine) -> None:
    machine.cards("two")
    run = machine.start("--tp", "2", "--dry-run", "--", "--mem-fraction-static", "0.9")
    assert run.end() == 0 and run.err == ""
    assert "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION=0" in run.out
    assert "-m sglang.launch_server" in run.out and "--tp-size 2" in run.out
    assert run.out.strip().endswith("--mem-fraction-static 0.9")
    assert not (machine.folder / "pids").exists()


@pytest.mark.parametrize(
    ("cards", "arguments", "message"),
    [
        ("none", (), "-- --device NAME"),
        ("h200", ("--tp", "2"), "there are 1"),
        ("h200", ("--host", "0.0.0.0"), "--api-key-file"),
        ("h200", ("--python", "/nonexistent"), "--python"),
        ("h200", ("--model", "/nonexistent"), "config.json is missing"),
        ("h200", ("--api-key-file", "/nonexistent"), "give a file with the key"),
        ("h200", ("--log", "/nonexistent/log"), "--log"),
    ],
)
def test_bad_input_is_one_line(
    machine: Machine, cards: str, arguments: tuple[str, ...], message: str
) -> None:
    machine.cards(cards)
    run = machine.start(*arguments)
    assert run.end() == 2
    assert run.err.count("\n") == 1 and message in run.err, run.err


def options(model: Path = DEFAULT_CHECKPOINT, **changes: Any) -> LaunchOptions:
    return LaunchOptions(model=model, python=sys.executable, **changes)


def test_missing_or_other_sglang_names_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def version(number: str | None, plugin: str = "") -> None:
        site = tmp_path / f"site-{number}"
        site.mkdir()
        if number is not None:
            distribution(site, "sglang", number, plugin)
        monkeypatch.setenv("PYTHONPATH", str(site))

    version(None)
    with pytest.raises(EngineUnavailable, match=r"not installed .* -m pip install .*serving"):
        launch.check_sglang(sys.executable, clover=False)
    version("0.6.0")
    with pytest.raises(EngineUnavailable, match=r"0\.6\.0 .* written for 0\.5\.23"):
        launch.check_sglang(sys.executable, clover=False)


def stock(folder: Path, architecture: str, **config: Any) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"architectures": [architecture], **config}))
    return folder


def test_stock_models(machine: Machine, tmp_path: Path) -> None:
    """Their own algorithm or none; a model that the planner does not know starts all the same."""
    sdar = stock(tmp_path / "sdar", "SDARForCausalLM", model_type="sdar")
    found = prepare(options(sdar), cards=[80 * GB])
    assert found.plan is None
    at = found.command.index("--dllm-algorithm")
    assert found.command[at + 1] == "LowConfidence"
    assert found.command[found.command.index("--max-running-requests") + 1] == "8"
    with pytest.raises(RequestError, match="leave out --mode"):
        prepare(options(sdar, algorithm={"mode": "ar", "block_size": 4}), cards=[80 * GB])
    other = stock(tmp_path / "other", "FuyuForCausalLM", model_type="fuyu")
    assert "--dllm-algorithm" not in prepare(options(other), cards=[80 * GB]).command
    with pytest.raises(RequestError, match="leave out --block-size"):
        prepare(options(other, algorithm={"block_size": 4}), cards=[80 * GB])
    with pytest.raises(CheckpointError, match="names no architecture"):
        (other / "config.json").write_text("{}")
        prepare(options(other), cards=[80 * GB])


def test_memory_is_checked_before_anything_starts(tmp_path: Path) -> None:
    from clover_engine.capacity.plan import GEOMETRIES

    data = GEOMETRIES["clover-35b-a3b"][0] | {"architectures": ["CloverForBlockDiffusion"]}
    big = tmp_path / "big"
    big.mkdir()
    (big / "config.json").write_text(json.dumps(data))
    h200 = 143771 * 2**20
    found = check_memory(options(big), [h200], "Clover")
    assert found is not None and found.sequences(32768) > 40
    with pytest.raises(EngineUnavailable, match=r"69\.3 GB of weights.*doctor --plan"):
        check_memory(options(big), [80 * GB], "Clover")
    assert check_memory(options(big, tp=2), [80 * GB, 80 * GB], "Clover") is not None
    with pytest.raises(EngineUnavailable, match="needs 4 GPUs, there are 2"):
        check_memory(options(big, tp=2, dp=2), [80 * GB, 80 * GB], "Clover")


def test_the_users_arguments_win(machine: Machine) -> None:
    extra = ("--context-length", "256", "--dllm-algorithm=LowConfidence", "--device", "cpu")
    command = prepare(options(extra=extra)).command
    assert command.count("--context-length") == 1 and "--dllm-algorithm" not in command
    assert command[-len(extra) :] == extra


def test_the_manifest_of_the_documentation_starts_this_command() -> None:
    text = (Path(__file__).parents[2] / "docs" / "serving.md").read_text("utf-8")
    (block,) = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    found = {document["kind"]: document for document in yaml.safe_load_all(block)}
    pod = found["Deployment"]["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    program, *arguments = container["command"]
    given = build_parser("serve").parse_args(arguments)
    assert program == "clover-code" and given.host == "0.0.0.0"
    mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert {str(given.model.parent), str(given.api_key_file.parent)} <= mounts
    assert container["ports"][0]["containerPort"] == given.port
    assert {v["name"] for v in pod["spec"]["volumes"]} == {
        mount["name"] for mount in container["volumeMounts"]
    }
    for kind in ("Service", "PodDisruptionBudget"):
        selector = found[kind]["spec"]["selector"]
        assert selector.get("matchLabels", selector) == pod["metadata"]["labels"]


def test_settings_files_only_where_needed(tmp_path: Path) -> None:
    assert write_settings(tmp_path, {}, "") == [] and not [*tmp_path.iterdir()]


def test_a_server_that_falls_silent_is_started_again(machine: Machine) -> None:
    machine.behave(mute_after=0.5, lives=1)
    ready: list[float] = []
    notes: list[str] = []
    command = [sys.executable, "-m", "sglang.launch_server", "--host", "127.0.0.1"]
    supervisor = Supervisor(
        [*command, "--port", str(machine.port)],
        {},
        ("127.0.0.1", machine.port),
        Events(lambda _: None, lambda _: None, ready.append, notes.append),
        RestartLimits(silent_s=2.0, probe_every_s=0.1, probe_timeout_s=2.0, pause_s=0.1),
    )
    results: list[bool] = []
    thread = threading.Thread(target=lambda: results.append(supervisor.run()))
    thread.start()
    try:
        wait_for(lambda: len(ready) == 2, 60)
    finally:
        supervisor.stop()
        thread.join(60)
    assert results == [True] and "no answer for 2 s" in notes[0]


def test_a_real_sglang(machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tiny Clover on the real server, on this CPU: it comes up, answers, and all of it ends."""
    from tests.serving import clover, harness

    from clover_engine.api import InfillRequest
    from clover_engine.clients.sglang import SGLangEngine

    if harness.missing():
        pytest.skip(harness.missing())
    folder = clover.checkpoint(tmp_path / "clover", clover.DENSE)
    template = clover.serve(folder, tmp_path / "unused.log")
    for name, value in template._full_environment().items():
        monkeypatch.setenv(name, value)
    python = str(harness.SGLANG / "bin" / "python")
    run = machine.start("--model", str(folder), "--python", python, "--", *harness.ARGUMENTS)
    run.until_ready(seconds=300)
    with SGLangEngine(f"http://127.0.0.1:{machine.port}") as engine:
        found = engine.infill(InfillRequest("def add(a, b):\n    return ", max_tokens=8))
    assert found.stats.tokens > 0
    (server,) = children(run.process.pid)
    everyone = members(server)
    assert len(everyone) >= 3  # the server, its scheduler, its detokenizer
    run.send(signal.SIGTERM)
    assert run.end(60) == 0
    assert not members(server)
