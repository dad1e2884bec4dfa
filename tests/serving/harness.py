"""A real SGLang server on a CPU, for tests. `make setup-sglang` installs it into `.sglang/`.

    with Server(checkpoint, log, modules=("sdar",), arguments=("--dllm-algorithm", "X")) as server:
        answer = server.generate([5, 6, 7], 24)

The wheel is unmodified; `shim/` on its PYTHONPATH stands in for what a CPU has no wheels for.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

ROOT = Path(__file__).parents[2]
SGLANG = Path(os.environ.get("CLOVER_SGLANG", ROOT / ".sglang"))
READY = SGLANG / ".ready"
SHIM = Path(__file__).parent / "shim"

START_S = 300.0
"""Long, since busy machines import slowly; a server that dies is noticed at once."""

STOP_S = 10.0
REPLY_S = 120.0

ARGUMENTS: tuple[str, ...] = (
    *("--device", "cpu"),
    *("--dtype", "float32"),
    *("--attention-backend", "torch_native"),
    *("--max-running-requests", "4"),
    *("--max-total-tokens", "4096"),
    *("--mem-fraction-static", "0.2"),
    "--skip-server-warmup",
    "--sleep-on-idle",  # or else the scheduler keeps a core busy that the tests need
)
"""What every server gets; `arguments` come after these, and the last of two equal options wins."""

ENVIRONMENT: Mapping[str, str] = {
    "SGLANG_USE_CPU_ENGINE": "1",
    "SGLANG_CPU_OMP_THREADS_BIND": "0",  # 0: bind no thread to a core
    "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "0",  # /health answers without a forward pass
    "SGLANG_MAMBA_CONV_DTYPE": "float32",  # --dtype leaves the convolution's tails in bfloat16
    "TORCHDYNAMO_DISABLE": "1",  # nothing is compiled at start
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
}


def missing() -> str:
    """What keeps SGLang from running here, or an empty text."""
    return "" if READY.is_file() else f"{READY} is missing: run `make setup-sglang`"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass(frozen=True, slots=True)
class Answer:
    """What `/generate` says about one request."""

    ids: tuple[int, ...]
    text: str
    finish: str
    """`length`, `stop` or `abort`."""
    cached_tokens: int
    """Tokens of the prompt that came from the prefix cache."""
    raw: Mapping[str, Any] = field(repr=False)

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> Answer:
        about = data["meta_info"]
        return cls(
            tuple(data.get("output_ids") or ()),
            data.get("text", ""),
            (about.get("finish_reason") or {}).get("type", ""),
            about.get("cached_tokens", 0),
            data,
        )


class ServerFailed(Exception):
    """The server did not start, or a request was answered with an error status."""


class Server:
    """One SGLang server in a process group of its own, from `with` to the end of the block."""

    def __init__(
        self,
        checkpoint: Path,
        log: Path,
        *,
        modules: Sequence[str],
        arguments: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`modules`: the files of `sglang/srt/models` to import, without `.py`; not the other 250.

        What the server prints goes to `log`.
        """
        self.checkpoint, self.log, self.port = checkpoint, log, free_port()
        self._modules, self._arguments = modules, arguments
        self._environment = environment or {}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the server is not started"
        return self._process.pid

    def __enter__(self) -> Server:
        command = [str(SGLANG / "bin" / "python"), "-m", "sglang.launch_server"]
        command += ["--model-path", str(self.checkpoint), "--host", "127.0.0.1"]
        command += ["--port", str(self.port), *ARGUMENTS, *self._arguments]
        with self.log.open("wb") as out:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=self._full_environment(),
                start_new_session=True,
            )
        try:
            self._wait_until_healthy()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the server: politely, then its whole process group by force."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def printed(self, lines: int = 40) -> str:
        """The last lines of the log; SGLang prints lines of 20,000 characters."""
        text = self.log.read_text("utf-8", "replace")
        return "\n".join(line[:400] for line in text.splitlines()[-lines:])

    def get(self, path: str) -> Any:
        """The reply to GET as JSON, or None where it has no body."""
        return self._request("GET", path, None)

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """The reply to POST as JSON, or None where it has no body that is JSON."""
        return self._request("POST", path, body)

    def stream(self, path: str, body: Mapping[str, Any]) -> Generator[Any, None, None]:
        """The events of a streamed reply, as they come. Closing it disconnects."""
        with contextlib.closing(self._connect()) as connection:
            response = self._send(connection, "POST", path, {**body, "stream": True})
            for line in response:
                data = line.strip().removeprefix(b"data: ")
                if data == b"[DONE]":
                    return
                if data:
                    yield json.loads(data)

    def generate(
        self, ids: Sequence[int], max_new_tokens: int, *, rid: str | None = None, **sampling: Any
    ) -> Answer:
        """Greedy continuation of token ids, to the full length unless `sampling` says otherwise."""
        return Answer.read(self.post("/generate", request(ids, max_new_tokens, rid, **sampling)))

    def generate_all(
        self, prompts: Sequence[Sequence[int]], max_new_tokens: int, concurrent: int = 4
    ) -> list[Answer]:
        """`generate` for each prompt, several at a time; answers in the prompts' order."""
        with ThreadPoolExecutor(concurrent) as pool:
            return list(pool.map(lambda ids: self.generate(ids, max_new_tokens), prompts))

    def abort(self, rid: str) -> None:
        self.post("/abort_request", {"rid": rid})

    def flush(self) -> None:
        """Empties the prefix cache; waits for a moment in which nothing runs."""
        end = time.monotonic() + START_S
        while True:
            try:
                self.post("/flush_cache", {})
                return
            except ServerFailed:
                if time.monotonic() > end:
                    raise
                time.sleep(0.1)

    def _full_environment(self) -> dict[str, str]:
        folder = next((SGLANG / "lib").glob("python*")) / "site-packages/sglang/srt/models"
        wanted = {"__init__", "registry", "utils", *self._modules}
        unwanted = sorted(path.stem for path in folder.glob("*.py") if path.stem not in wanted)
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "SGLANG_"))}
        return {
            **kept,
            **ENVIRONMENT,
            "PATH": f"{SGLANG / 'bin'}:{os.environ['PATH']}",
            "PYTHONPATH": str(SHIM),
            "SGLANG_DISABLED_MODEL_ARCHS": ",".join(unwanted),
            **self._environment,
        }

    def _wait_until_healthy(self) -> None:
        end = time.monotonic() + START_S
        while self.alive() and time.monotonic() < end:
            try:
                self.get("/health")
                return
            except (OSError, ServerFailed):
                time.sleep(0.2)
        raise ServerFailed(f"SGLang did not start; it printed:\n{self.printed()}")

    def _connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=REPLY_S)

    def _send(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
    ) -> http.client.HTTPResponse:
        text = None if body is None else json.dumps(body)
        connection.request(method, path, text, {"content-type": "application/json"})
        response = connection.getresponse()
        if response.status != 200:
            raise ServerFailed(f"{path}: {response.status} {response.read(2000)!r}")
        return response

    def _request(self, method: str, path: str, body: Mapping[str, Any] | None) -> Any:
        with contextlib.closing(self._connect()) as connection:
            data = self._send(connection, method, path, body).read()
        with contextlib.suppress(ValueError):
            return json.loads(data)
        return None


def request(
    ids: Sequence[int], max_new_tokens: int, rid: str | None = None, **sampling: Any
) -> dict[str, Any]:
    """The body of a greedy `/generate` request that does not stop before its full length."""
    parameters = {"max_new_tokens": max_new_tokens, "temperature": 0, "ignore_eos": True}
    body: dict[str, Any] = {"input_ids": list(ids), "sampling_params": parameters | sampling}
    return body if rid is None else body | {"rid": rid}
