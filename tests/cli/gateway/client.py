"""A real gateway process and a plain HTTP client of it."""

from __future__ import annotations

import http.client
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

WAIT_S = 60.0


class Gateway:
    """`clover-code gateway` on a free port, with the scripted model behind the real protocol."""

    def __init__(self, folder: Path, *arguments: str, **fake: Any) -> None:
        worker = [sys.executable, "-P", "-m", "clover_engine.worker", "--fake", json.dumps(fake)]
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "clover_code", "gateway", "--port", "0", *arguments],
            stderr=subprocess.PIPE,
            cwd=folder,
            env={
                **os.environ,
                "CLOVER_WORKER": shlex.join(worker),
                "CLOVER_CACHE_DIR": str(folder.parent / "cache"),
            },
        )
        assert self.process.stderr is not None
        self.said = self.process.stderr.readline().decode()
        found = re.search(r"http://\S+:(\d+)/v1", self.said)
        assert found, self.said + self.process.stderr.read().decode()
        self.port = int(found[1])

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT_S)

    def ask(
        self, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, str]:
        """GET without a body, else POST; the status and the answer's text."""
        data = json.dumps(body).encode() if isinstance(body, dict | list) else body
        connection = self.connect()
        method = "GET" if body is None else "POST"
        connection.request(method, path, data, dict(headers or {}))
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer.status, text

    def post(self, path: str, body: Any, **headers: str) -> Any:
        """The answer's JSON; asserts that there is one."""
        status, text = self.ask(path, body, {"Content-Type": "application/json", **headers})
        assert status == 200, text
        return json.loads(text)

    def stream(self, path: str, body: Any) -> list[Any]:
        """The events' objects; asserts that the stream ends as it should."""
        status, text = self.ask(path, body)
        assert status == 200, text
        lines = [line for line in text.split("\n") if line]
        events = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
        assert events[-1] == "[DONE]"
        return [json.loads(event) for event in events[:-1]]

    def warm(self) -> None:
        """Waits until the model has had the gateway's own first question."""
        while self.ask("/health")[0] != 200:
            assert self.process.poll() is None

    def close(self) -> tuple[int, str]:
        """Ends it as Ctrl-C does; the exit code and the rest of what it said."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        try:
            _, said = self.process.communicate(timeout=WAIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        return self.process.returncode, said.decode()
