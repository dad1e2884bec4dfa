"""A llama-server without a model: its HTTP, scripted texts, and the ways in which servers fail.

Every field of `Script` can be changed while it runs. `requests` has (path, body) of each request,
`gone` the paths of those whose client went away before their end.
"""

from __future__ import annotations

import contextlib
import json
import re
import select
import socket
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_FORCED = re.compile(r'root ::= ("(?:[^"\\]|\\.)*") any')
_PIECE = re.compile(r"\s*\w+|\s*[^\w\s]|\s+")


@dataclass
class Script:
    text: str = "answer"
    logprob: float = -0.01
    others: dict[str, float] = field(default_factory=dict)
    """Further tokens listed in the place of each."""
    step_s: float = 0.0
    fault: str = ""
    """loading, refuse (500), hang, garbage, endless, break: what happens to every request but
    those for health, which follow it only where it is loading, refuse or hang."""
    has_infill: bool = True
    has_grammars: bool = True
    """The text begins as a grammar says (others than that are not looked at)."""
    context: int = 4096
    drops: int = 0
    """So many requests for text find the connection closed."""
    key: str = ""
    props: dict[str, Any] = field(default_factory=dict)
    stop_type: str = "eos"
    prompt: str = "<prompt>"
    """What the chat template makes of any chat."""
    tokens_of: dict[str, int] = field(default_factory=dict)
    """How many tokens /tokenize finds in a text (default: one a piece)."""


class FakeLlamaServer:
    """Listens on a free port of this machine; a context manager."""

    def __init__(self, port: int = 0, **script: Any) -> None:
        self.script = Script(**script)
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.gone: list[str] = []
        self.sent = 0
        """Events of streams, all together."""
        self.released = threading.Event()
        owner = self

        class Handler(_Handler):
            server_of = owner

        self._http = _Listener(("127.0.0.1", port), Handler)
        self.port = self._http.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def bodies(self, path: str) -> list[dict[str, Any]]:
        return [body for asked, body in list(self.requests) if asked.partition("?")[0] == path]

    def close(self) -> None:
        self.released.set()
        self._http.shutdown()
        self._http.server_close()
        self._http.hang_up()
        self._thread.join(10)

    def __enter__(self) -> FakeLlamaServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Listener(ThreadingHTTPServer):
    """Knows its connections: a server that ends takes them with it."""

    daemon_threads = True

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._open: list[socket.socket] = []

    def get_request(self) -> tuple[socket.socket, Any]:
        accepted = super().get_request()
        self._open.append(accepted[0])
        return accepted

    def hang_up(self) -> None:
        for connection in self._open:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, *_: Any) -> None:
        """Clients go away; tests print nothing."""


class _Handler(BaseHTTPRequestHandler):
    server_of: FakeLlamaServer
    protocol_version = "HTTP/1.1"

    @property
    def script(self) -> Script:
        return self.server_of.script

    def log_message(self, *_: object) -> None:
        """Tests print nothing."""

    def do_GET(self) -> None:
        self._answer({})

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        self._answer(json.loads(self.rfile.read(length) or b"{}"))

    def _answer(self, body: dict[str, Any]) -> None:
        self.server_of.requests.append((self.path, body))
        path = self.path.partition("?")[0]
        try:
            if not self._fails(path):
                self._serve(path, body)
        except OSError:
            self.server_of.gone.append(path)
            self.close_connection = True

    def _fails(self, path: str) -> bool:
        fault = self.script.fault
        if fault == "hang":
            self.server_of.released.wait(60)
            self.close_connection = True
        elif fault == "loading":
            self._error(503, "Loading model")
        elif fault == "refuse":
            self._error(500, "something broke")
        elif self.script.key and path != "/health" and not self._has_key():
            self._error(401, "Invalid API Key")
        elif fault == "garbage" and path in ("/infill", "/completion"):
            self._send(200, b"data: {]\n\n", "text/event-stream")
        else:
            return False
        return True

    def _has_key(self) -> bool:
        return self.headers.get("Authorization") == f"Bearer {self.script.key}"

    def _serve(self, path: str, body: dict[str, Any]) -> None:
        script = self.script
        if path == "/health":
            self._json(200, {"status": "ok"})
        elif path == "/props":
            known = {"model_path": "models/tiny-q8.gguf", "a_newer_field": [1]}
            known["default_generation_settings"] = {"n_ctx": script.context}
            self._json(200, known | script.props)
        elif path == "/tokenize":
            count = script.tokens_of.get(body["content"], len(_PIECE.findall(body["content"])))
            self._json(200, {"tokens": list(range(count))})
        elif path == "/apply-template":
            self._json(200, {"prompt": script.prompt})
        elif path == "/infill" and not script.has_infill:
            self._error(501, "Infill is not supported by this model: prefix token is missing.")
        elif path in ("/infill", "/completion") and script.drops:
            script.drops -= 1
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True
        elif path in ("/infill", "/completion"):
            self._generate(path, body)
        else:
            self._error(404, "File Not Found")

    def _generate(self, path: str, body: dict[str, Any]) -> None:
        texts = [body.get("prompt", ""), body.get("input_prefix", ""), body.get("input_suffix", "")]
        count = sum(len(text) for text in texts)
        if count > self.script.context:
            return self._error(
                400,
                f"request ({count} tokens) exceeds the available context size "
                f"({self.script.context} tokens), try increasing it",
            )
        text = self.script.text
        forced = _FORCED.match(body.get("grammar", "")) if self.script.has_grammars else None
        if forced is not None and not text.startswith(begun := json.loads(forced[1])):
            text = begun + text
        if not body.get("stream"):
            return self._json(200, self._event(_PIECE.findall(text)) | self._end())
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for piece in _PIECE.findall(text):
            self._wait()
            self._chunk(self._event([piece]))
        if self.script.fault == "break":
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True
            return None
        while self.script.fault == "endless":
            self._wait()
            self._chunk(self._event([" more"]))
        self._chunk(self._event([]) | self._end())
        self.wfile.write(b"0\r\n\r\n")
        return None

    def _wait(self) -> None:
        """The time that one token takes; raises where the client is gone."""
        end = time.monotonic() + self.script.step_s
        while True:
            left = end - time.monotonic()
            if select.select([self.connection], [], [], max(0.0, left))[0]:
                if not self.connection.recv(1, socket.MSG_PEEK):
                    raise ConnectionResetError
                time.sleep(max(0.0, left))
            if time.monotonic() >= end:
                return

    def _event(self, pieces: list[str]) -> dict[str, Any]:
        others = [{"token": t, "logprob": p} for t, p in self.script.others.items()]
        probabilities = [
            {"token": piece, "logprob": self.script.logprob, "top_logprobs": others}
            for piece in pieces
        ]
        event = {"content": "".join(pieces), "stop": False, "a_newer_field": {"x": 1}}
        return event | {"completion_probabilities": probabilities}

    def _end(self) -> dict[str, Any]:
        timings = {"prompt_n": 5, "cache_n": 7, "predicted_n": 3, "prompt_ms": 1.5}
        return {"stop": True, "stop_type": self.script.stop_type, "timings": timings}

    def _chunk(self, event: dict[str, Any]) -> None:
        data = f"data: {json.dumps(event)}\n\n".encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()
        self.server_of.sent += 1

    def _error(self, code: int, message: str) -> None:
        self._json(code, {"error": {"code": code, "message": message, "type": "some_error"}})

    def _json(self, code: int, value: Any) -> None:
        self._send(code, json.dumps(value).encode(), "application/json")

    def _send(self, code: int, data: bytes, kind: str) -> None:
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
