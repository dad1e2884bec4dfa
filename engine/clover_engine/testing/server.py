"""A fake server over real sockets, with faults: SGLang's interface and OpenAI's, for tests of
everything that asks a server.

    with FakeServer(FakeModel(texts=["return a + b"])) as server:
        engine = SGLangEngine(server.url)
        server.faults.append(Fault("cut", after=2))

Or in a process of its own: ``python -m clover_engine.testing.server --port 30000``.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

from clover_engine.testing.answers import FakeModel
from clover_engine.testing.faults import IN_STREAMS, Fault, reset

_DRIP_S = 0.05


@dataclass(frozen=True)
class Seen:
    """A request that came in."""

    method: str
    path: str
    body: Any
    headers: Mapping[str, str]


class FakeServer:
    """Listens from construction to `close`, on this machine only."""

    def __init__(
        self,
        model: FakeModel | None = None,
        *,
        port: int = 0,
        step_s: float = 0.0,
        api_key: str = "",
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`step_s`: time that each token takes. `tls`: a server's context, for https."""
        self.model = model or FakeModel()
        self.step_s, self.api_key = step_s, api_key
        self.faults: list[Fault] = []
        self.seen: list[Seen] = []
        self.aborted: list[str] = []
        """Request ids that clients asked to abort."""
        self.gone = 0
        """Streams whose client left before the end."""
        self.connections = 0
        self.streams = 0
        """Open now."""
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._server = _Server(("127.0.0.1", port), _Handler)
        self._server.fake = self
        if tls is not None:
            self._server.socket = tls.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        scheme = "http" if tls is None else "https"
        self.port: int = self._server.server_address[1]
        self.url = f"{scheme}://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.daemon = True
        self._thread.start()

    def close(self) -> None:
        """Stops listening, and resets all connections, as a killed process does."""
        self._closed.set()
        self._server.shutdown()
        self._server.server_close()
        self._server.reset_all()
        self._thread.join()

    def bodies(self, path: str) -> list[Any]:
        """The bodies of all requests to `path`."""
        return [seen.body for seen in self.seen if seen.path == path]

    def wait(self, condition: Callable[[FakeServer], bool], seconds: float = 5.0) -> bool:
        """Waits until `condition` holds."""
        end = time.monotonic() + seconds
        while not condition(self) and time.monotonic() < end:
            time.sleep(0.005)
        return condition(self)

    def __enter__(self) -> FakeServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def note(self, seen: Seen) -> Fault | None:
        """Takes note of a request; the fault that it meets."""
        with self._lock:
            self.seen.append(seen)
            for fault in self.faults:
                if seen.path.startswith(fault.path) and fault.times != 0:
                    if fault.times is not None:
                        fault.times -= 1
                    return fault
        return None

    def count(self, name: Literal["gone", "connections", "streams"], by: int = 1) -> None:
        """Changes one of the numbers above."""
        with self._lock:
            setattr(self, name, getattr(self, name) + by)

    def pause(self, seconds: float) -> bool:
        """Sleeps; True where the server was closed meanwhile."""
        return self._closed.wait(seconds) if seconds else self._closed.is_set()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128
    fake: FakeServer

    def __init__(self, *args: Any) -> None:
        self._open: set[socket.socket] = set()
        super().__init__(*args)

    def process_request(self, request: Any, client_address: Any) -> None:
        self.fake.count("connections")
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that break off are what tests are about."""

    def reset_all(self) -> None:
        for connection in list(self._open):
            reset(connection)


class _Gone(Exception):
    """The client closed the connection."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, *_: Any) -> None:
        """Tests print nothing."""

    def do_GET(self) -> None:
        self._serve("GET", {})

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            body = json.loads(data) if data else {}
        except ValueError:
            self._json(400, {"error": {"message": "the body is not JSON"}})
            return
        self._serve("POST", body)

    def _serve(self, method: str, body: Any) -> None:
        fake = self.server.fake
        fault = fake.note(Seen(method, self.path, body, dict(self.headers)))
        if fake.api_key and self.headers.get("Authorization") != f"Bearer {fake.api_key}":
            self._json(401, {"error": "Unauthorized"})
        elif fault is not None and not (_is_stream(body) and fault.kind in IN_STREAMS):
            self._fail(fault)
        elif self.path == "/abort_request":
            fake.aborted.append(body["rid"])
            self._json(200, None)
        elif _is_stream(body):
            self._stream(body, fault)
        else:
            reply = fake.model.reply(method, self.path, body)
            self._json(*(reply or (404, {"detail": "Not Found"})))

    def _json(self, status: int, data: Any, headers: Mapping[str, str] | None = None) -> None:
        content = b"" if data is None else json.dumps(data).encode()
        self._head(status, "application/json", len(content), headers)
        self.wfile.write(content)

    def _head(
        self, status: int, kind: str, length: int | None, headers: Mapping[str, str] | None = None
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        if length is None:
            self.send_header("Transfer-Encoding", "chunked")
        else:
            self.send_header("Content-Length", str(length))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()

    def _fail(self, fault: Fault) -> None:
        """A fault instead of an answer."""
        if fault.kind == "status":
            self._json(fault.status, {"error": {"message": fault.message}}, fault.headers)
        elif fault.kind == "redirect":
            self._json(307, None, {"Location": "https://elsewhere.invalid/login?next=1"})
        elif fault.kind in ("silent", "stall"):
            self._hold()
        elif fault.kind == "drip":
            self._drip(b"HTTP/1.1 200 OK\r\n" + b"X-More: y\r\n" * 100_000)
        elif fault.kind in ("cut", "end"):
            reset(self.connection)
        elif fault.kind == "huge":
            self._head(200, "application/json", 10**12)
            self._pour(b" " * 2**16)
        else:
            bodies = {"garbage": b'{"text": ', "types": b"[5]", "not-utf8": b'{"a": "\xff\xfe"}'}
            content = bodies.get(fault.kind, b"<html>Sign in</html>")
            kind = "text/html" if fault.kind == "html" else "application/json"
            self._head(200, kind, len(content))
            self.wfile.write(content)

    def _hold(self) -> None:
        """Keeps the connection without a word until the client leaves."""
        self.close_connection = True
        while not self.server.fake.pause(0.01) and not self._is_gone():
            continue

    def _drip(self, content: bytes) -> None:
        self.close_connection = True
        for byte in content:
            if self.server.fake.pause(_DRIP_S) or self._is_gone():
                return
            self.wfile.write(bytes([byte]))

    def _pour(self, block: bytes) -> None:
        self.close_connection = True
        while not self.server.fake.pause(0):
            self.wfile.write(block)

    def _is_gone(self) -> bool:
        readable, _, _ = select.select([self.connection], [], [], 0)
        if not readable or isinstance(self.connection, ssl.SSLSocket):
            return False
        return not self.connection.recv(1, socket.MSG_PEEK)

    def _stream(self, body: Mapping[str, Any], fault: Fault | None) -> None:
        fake = self.server.fake
        fake.count("streams")
        try:
            self._head(200, "text/event-stream", None)
            kind = self._chat if "messages" in body else self._texts
            events = (self._completion if self.path == "/v1/completions" else kind)(body)
            for number, event in enumerate(events):
                if fault is not None and number >= fault.after:
                    self._break(fault)
                    return
                self._event(event)
            self._write(b"data: [DONE]\n\n")
            self.wfile.write(b"0\r\n\r\n")
        except (_Gone, OSError):
            fake.count("gone")
            self.close_connection = True
        finally:
            fake.count("streams", -1)

    def _break(self, fault: Fault) -> None:
        """A fault in the middle of a stream."""
        self.close_connection = True
        if fault.kind == "cut":
            reset(self.connection)
        elif fault.kind == "stall":
            self._hold()
            raise _Gone
        elif fault.kind == "drip":
            self._drip(b"9\r\n: quiet\n\n\r\n" * 100_000)
            raise _Gone
        elif fault.kind == "huge":
            self._write(b'data: {"text": "')
            self._pour(b"10000\r\n" + b"x" * 2**16 + b"\r\n")
        elif fault.kind != "end":
            broken = {
                "garbage": b'data: {"text": \n\n',
                "types": b'data: {"text": 5, "meta_info": [], "choices": 7}\n\n',
                "not-utf8": b'data: {"text": \xff\xfe\n\n',
            }
            self._write(broken[fault.kind])

    def _event(self, event: Any) -> None:
        if self._is_gone():
            raise _Gone
        self._write(b"data: " + json.dumps(event).encode() + b"\n\n")

    def _write(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def _texts(self, body: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """The events of `/generate`: one for each token, and a last one."""
        fake, model = self.server.fake, self.server.fake.model
        prompts, sampling, rids = (_listed(body[k]) for k in ("text", "sampling_params", "rid"))
        for prompt, one in zip(prompts, sampling, strict=True):
            if (error := model.too_long(prompt, one)) is not None:
                yield {"error": {"message": error, "code": 400}}
                return
        answers = [model.answer(p, s) for p, s in zip(prompts, sampling, strict=True)]
        for index, ((tokens, reason), prompt) in enumerate(zip(answers, prompts, strict=True)):
            about = {"prompt_tokens": len(model.tokens(prompt)), "cached_tokens": 0}
            for count in range(1, len(tokens) + 2):
                is_last = count == len(tokens) + 1
                if rids[index] in fake.aborted:
                    finish: Any = {"type": "abort", "message": "Aborted"}
                    yield {"text": "", "index": index, "meta_info": {"finish_reason": finish}}
                    return
                if not is_last and fake.pause(fake.step_s):
                    raise _Gone
                since = count - 1 if model.is_incremental else 0
                yield {
                    "text": "".join(tokens[since:count]),
                    "index": index,
                    "meta_info": about
                    | {
                        "finish_reason": reason if is_last else None,
                        "completion_tokens": min(count, len(tokens)),
                        "output_token_logprobs": model.output_logprobs(tokens[since:count]),
                    },
                }

    def _completion(self, body: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """The events of OpenAI's completions: what is new, and the usage at the end."""
        fake, model = self.server.fake, self.server.fake.model
        sampling = {
            "max_new_tokens": body["max_tokens"],
            "stop": body["stop"],
            "sampling_seed": body.get("seed"),
        }
        if (error := model.too_long(body["prompt"], sampling)) is not None:
            yield {"error": {"message": error, "code": 400}}
            return
        tokens, reason = model.answer(body["prompt"], sampling)
        for token in tokens:
            if fake.pause(fake.step_s):
                raise _Gone
            known = {"token_logprobs": [each[0] for each in model.output_logprobs([token])]}
            logprobs = known if body.get("logprobs") and not model.is_diffusion else None
            yield {"choices": [{"text": token, "logprobs": logprobs, "finish_reason": None}]}
        yield {"choices": [{"text": "", "finish_reason": reason["type"]}]}
        counts = {"prompt_tokens": len(model.tokens(body["prompt"]))}
        yield {"choices": [], "usage": counts | {"completion_tokens": len(tokens)}}

    def _chat(self, body: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """The events of a chat."""
        fake = self.server.fake
        deltas = list(fake.model.chat_pieces(body))
        limit = int(body.get("max_tokens") or 128)
        for delta in deltas[:limit]:
            if fake.pause(fake.step_s):
                raise _Gone
            yield {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
        reason = "stop" if len(deltas) < limit else "length"
        yield {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}
        yield {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": len(deltas)}}


def _is_stream(body: Any) -> bool:
    return isinstance(body, dict) and bool(body.get("stream"))


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def main() -> None:
    """Serves until it is ended; prints the URL."""
    parser = argparse.ArgumentParser(description="A fake SGLang server.")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--text", action="append", help="an answer; several go by seed")
    parser.add_argument("--step-s", type=float, default=0.0, help="time that a token takes")
    options = parser.parse_args()
    model = FakeModel(texts=options.text or ["pass"])
    with FakeServer(model, port=options.port, step_s=options.step_s) as server:
        print(server.url, flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            threading.Event().wait()


if __name__ == "__main__":
    main()
