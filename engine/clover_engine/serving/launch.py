"""The command that starts SGLang for a checkpoint, and what is looked at before. No torch.

SGLang lives in a Python of its own (`--python`, CLOVER_SGLANG_PYTHON, else this one), since its
torch is another build than the embedded engine's. A Clover checkpoint needs clover-code there too:
its entry point brings the model class and the algorithm `Clover`. Other models run as SGLang runs
them: token by token, or with SGLang's own algorithm for its diffusion models.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clover_engine.capacity.plan import GB, Plan, find_model, plan, sglang_working_bytes
from clover_engine.errors import CheckpointError, EngineUnavailable, RequestError
from clover_engine.serving.pinned import VERSION

ALGORITHMS = {
    "CloverForBlockDiffusion": "Clover",
    "LLaDA2MoeModelLM": "LowConfidence",
    "SDARForCausalLM": "LowConfidence",
    "SDARMoeForCausalLM": "LowConfidence",
    "DiffusionGemmaForBlockDiffusion": "Gemma4Renoise",
}
"""dLLM algorithm by architecture; others are decoded token by token."""
PLUGIN_GROUP = "sglang.srt.plugins"
_PROBE = f"""
import importlib.metadata as m, json
def version(name):
    try: return m.version(name)
    except m.PackageNotFoundError: return None
plugins = [e.value.partition(".")[0] for e in m.entry_points(group={PLUGIN_GROUP!r})]
print(json.dumps({{"sglang": version("sglang"), "plugin": "clover_engine" in plugins}}))
"""


@dataclass(frozen=True, slots=True)
class LaunchOptions:
    """What `clover-code serve` was asked for; None leaves a choice to the planner or SGLang."""

    model: Path
    python: str
    host: str = "127.0.0.1"
    port: int = 30000
    tp: int = 1
    dp: int = 1
    max_running_requests: int | None = None
    context_length: int | None = None
    algorithm: Mapping[str, Any] = field(default_factory=dict)
    """For the algorithm's configuration: mode, threshold, block_size."""
    extra: tuple[str, ...] = ()
    """Arguments for SGLang, passed on as they are; they win over ours."""


@dataclass(frozen=True, slots=True)
class Launch:
    """A command ready to start. `settings` go into files in a private folder when it starts."""

    command: tuple[str, ...]
    env: Mapping[str, str]
    algorithm: Mapping[str, Any]
    plan: Plan | None
    """None where no card was looked at."""

    def shown(self) -> str:
        """The command for a shell, with the variables that are not the caller's own."""
        return shlex.join([*(f"{k}={v}" for k, v in self.env.items()), *self.command])


def default_python() -> str:
    """CLOVER_SGLANG_PYTHON, else the Python that runs this."""
    return os.environ.get("CLOVER_SGLANG_PYTHON") or sys.executable


def prepare(options: LaunchOptions, cards: Sequence[int] | None = None) -> Launch:
    """Looks at SGLang, the model and the cards, and builds the command.

    `cards` are the bytes of each GPU (None: ask nvidia-smi). Raises `EngineUnavailable`,
    `CheckpointError` and `RequestError`.
    """
    architecture = _architecture(options.model)
    algorithm = ALGORITHMS.get(architecture)
    check_sglang(options.python, clover=algorithm == "Clover")
    _check_algorithm(options, architecture, algorithm)
    found = None
    if not _given(options.extra, "--device"):
        cards = gpu_memory() if cards is None else cards
        found = check_memory(options, cards, algorithm)
    return Launch(
        command=_command(options, algorithm, found),
        env=_environment(),
        algorithm=options.algorithm,
        plan=found,
    )


def check_sglang(python: str, *, clover: bool) -> None:
    """SGLang of the pinned version in that Python, and our plugin where it is needed. Raises
    `EngineUnavailable` with the command that helps."""
    try:
        run = subprocess.run([python, "-c", _PROBE], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EngineUnavailable(
            f"{python} does not run ({error}); give the Python that has SGLang with --python"
        ) from None
    try:
        found = json.loads(run.stdout)
    except ValueError:
        last = (run.stderr.strip().splitlines() or ["no output"])[-1]
        raise EngineUnavailable(
            f"{python} is no working Python ({last}); give the one that has SGLang with --python"
        ) from None
    install = install_command(python)
    if found["sglang"] is None:
        raise EngineUnavailable(f"SGLang is not installed for {python}; run: {install}")
    if found["sglang"] != VERSION:
        raise EngineUnavailable(
            f"SGLang {found['sglang']} is installed for {python}, this was written for "
            f"{VERSION}; run: {install}"
        )
    if clover and not found["plugin"]:
        raise EngineUnavailable(
            f"clover-code is not installed for {python}, so that its SGLang cannot load a Clover "
            f"model; run: {install}"
        )


def install_command(python: str) -> str:
    """The command that installs SGLang and clover-code. Beside the embedded engine it would replace
    torch, so that for this very Python an environment of its own is made."""
    source = Path(__file__).parents[3]
    here = (source / "pyproject.toml").is_file()
    what = ["-e", f"{source}[serving]"] if here else ["clover-code[serving]"]
    if python != sys.executable:
        return shlex.join([python, "-m", "pip", "install", *what])
    own = "sglang-env/bin/python"
    install = shlex.join([own, "-m", "pip", "install", *what])
    venv = shlex.join([python, "-m", "venv", "sglang-env"])
    return f"{venv} && {install} (then add --python {own})"


def gpu_memory() -> tuple[int, ...]:
    """Bytes of each NVIDIA GPU, as nvidia-smi reports them. Raises `EngineUnavailable`."""
    advice = (
        "SGLang needs a GPU (the embedded model and llama.cpp run without; for another "
        "accelerator add: -- --device NAME)"
    )
    program = shutil.which("nvidia-smi")
    if program is None:
        raise EngineUnavailable(f"no NVIDIA GPU: nvidia-smi was not found; {advice}")
    query = [program, "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    try:
        run = subprocess.run(query, capture_output=True, text=True, timeout=60)
        sizes = tuple(int(line) * 2**20 for line in run.stdout.split("\n") if line.strip())
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise EngineUnavailable(f"nvidia-smi does not answer ({error}); {advice}") from None
    if run.returncode or not sizes:
        said = " ".join((run.stderr or run.stdout).split()) or "no GPU listed"
        raise EngineUnavailable(f"no NVIDIA GPU ({said}); {advice}")
    return sizes


def check_memory(
    options: LaunchOptions, cards: Sequence[int], algorithm: str | None
) -> Plan | None:
    """Plans the smallest of the cards that are used; None for models that it cannot plan. Raises
    `EngineUnavailable` where the model does not fit, with what would help."""
    wanted = options.tp * options.dp
    if wanted > len(cards):
        raise EngineUnavailable(
            f"--tp {options.tp} with --dp {options.dp} needs {wanted} GPUs, "
            f"there are {len(cards)}; lower one of them"
        )
    try:
        model = find_model(options.model)
    except CheckpointError:
        if algorithm == "Clover":
            raise
        return None  # an architecture that SGLang knows and the planner does not
    memory = min(cards[:wanted])
    found = plan(
        model,
        None,
        memory,
        gpus=options.tp,
        context=options.context_length,
        working_bytes=sglang_working_bytes(memory, options.tp),
    )
    if not found.fits or found.offloaded:
        total = sum(found.weights.values())
        raise EngineUnavailable(
            f"{options.model} has {total / GB:.1f} GB of weights, too much for {options.tp} GPU of "
            f"{memory / GB:.0f} GB with a context of {found.context} tokens; see: "
            + shlex.join(
                ["clover-code", "doctor", "--plan", "--model", str(options.model)]
                + ["--gpu-memory", f"{memory // 2**20}MiB", "--tp", str(options.tp)]
            )
        )
    return found


def check_port(host: str, port: int) -> None:
    """Raises `EngineUnavailable` where nothing can listen there."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise EngineUnavailable(
            f"cannot listen on {host}, port {port}: {reason}; end what runs there, or choose "
            "another with --port"
        ) from None


def read_key(path: Path) -> str:
    """The API key that the file holds. Raises `RequestError`."""
    try:
        key = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise RequestError(f"cannot read {path}: {reason}; give a file with the key") from None
    if not key or not key.isascii() or any(c.isspace() or not c.isprintable() for c in key):
        raise RequestError(f"{path} holds no key of one word in ASCII; write one into it")
    return key


def write_settings(folder: Path, algorithm: Mapping[str, Any], api_key: str) -> list[str]:
    """Writes what must not be on a command line (the key) or cannot (the algorithm's options) into
    `folder`, and returns the arguments that name the files. JSON is YAML."""
    arguments: list[str] = []
    files: list[tuple[str, str, Mapping[str, Any]]] = []
    if api_key:
        files.append(("--config", "server.yaml", {"api-key": api_key}))
    if algorithm:
        files.append(("--dllm-algorithm-config", "algorithm.yaml", algorithm))
    for option, name, content in files:
        path = folder / name
        path.touch(mode=0o600)
        path.write_text(json.dumps(content), encoding="utf-8")
        arguments += [option, str(path)]
    return arguments


def _architecture(model: Path) -> str:
    path = model / "config.json"
    if not path.is_file():
        raise CheckpointError(
            f"no checkpoint at {model}: config.json is missing; give --model a checkpoint's folder"
        )
    try:
        found = json.loads(path.read_text(encoding="utf-8"))["architectures"][0]
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise CheckpointError(
            f"{path} names no architecture ({error}); use a complete checkpoint"
        ) from None
    return str(found)


def _check_algorithm(options: LaunchOptions, architecture: str, algorithm: str | None) -> None:
    known = {"Clover": {"mode", "block_size"}, None: set[str]()}.get(algorithm, {"block_size"})
    if wrong := set(options.algorithm) - known:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in sorted(wrong))
        raise RequestError(f"a {architecture} is not decoded that way: leave out {flags}")


def _given(extra: Sequence[str], *options: str) -> bool:
    """Whether the user gave one of the options for SGLang."""
    return any(a == o or a.startswith(f"{o}=") for a in extra for o in options)


def _command(
    options: LaunchOptions, algorithm: str | None, planned: Plan | None
) -> tuple[str, ...]:
    running = options.max_running_requests
    if running is None and planned is not None:
        running = planned.sequences(planned.context) * options.dp
    if running is None and algorithm is not None:
        running = 8  # SGLang itself takes 1 for diffusion models
    context = options.context_length or (planned.context if planned is not None else None)
    ours: list[tuple[str, Any]] = [
        ("--model-path", options.model),
        ("--host", options.host),
        ("--port", options.port),
        ("--tp-size", options.tp if options.tp > 1 else None),
        ("--dp-size", options.dp if options.dp > 1 else None),
        ("--dllm-algorithm", algorithm),
        ("--max-running-requests", running),
        ("--context-length", context),
    ]
    command = [options.python, "-m", "sglang.launch_server"]
    for name, value in ours:
        if value is not None and not _given(options.extra, name):
            command += [name, str(value)]
    return (*command, *options.extra)


def _environment() -> dict[str, str]:
    """Variables for the server; the caller's own values stand."""
    ours = {
        "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "0",  # else every probe generates a token
        "HF_HUB_OFFLINE": "1",  # nothing is downloaded at run time
    }
    return {name: value for name, value in ours.items() if name not in os.environ}
