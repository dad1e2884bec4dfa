"""A real llama-server with a real small model, as `make setup-llamacpp` made them."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[2] / ".llamacpp"
START_S = 120.0
MISSING = "no llama-server: make setup-llamacpp builds one (some minutes)"


def is_there() -> bool:
    return (FOLDER / ".ready").is_file()


class LlamaServerProcess:
    """One server on a free port of this machine, in a process group of its own."""

    def __init__(self, log: Path, arguments: Sequence[str] = (), wait: bool = True) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._log = log
        command = [str(FOLDER / "llama-server"), "--model", str(FOLDER / "model.gguf")]
        command += ["--host", "127.0.0.1", "--port", str(self.port), "--threads", "1"]
        command += ["--ctx-size", "1024", "--parallel", "2", "--alias", "smollm2", *arguments]
        with log.open("w") as output:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                start_new_session=True,
            )  # fmt: skip
        if wait:
            self.wait()

    def wait(self) -> None:
        """Until the model is loaded."""
        end = time.monotonic() + START_S
        while self.status() != 200:
            assert self.process.poll() is None, self._log.read_text()[-2000:]
            assert time.monotonic() < end, "llama-server does not come up"
            time.sleep(0.05)

    def status(self) -> int:
        """The status of /health; 0 where nobody listens."""
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=10) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            error.close()
            return error.code
        except OSError:
            return 0

    def slots(self) -> list[dict[str, Any]]:
        with urllib.request.urlopen(f"{self.url}/slots", timeout=10) as answer:
            found: list[dict[str, Any]] = json.load(answer)
        return found

    def close(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGTERM)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait(10)
