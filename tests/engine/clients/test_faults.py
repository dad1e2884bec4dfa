"""Everything that can go wrong with a server: an exception that says so, in bounded time."""

from __future__ import annotations

import contextlib
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from clover_engine.api import InfillRequest
from clover_engine.clients.http import HttpLimits
from clover_engine.clients.sglang import SGLangEngine
from clover_engine.errors import EngineCrashed, EngineError, EngineUnavailable, RequestError
from clover_engine.generation import GenerateRequest, Message
from clover_engine.testing.answers import FakeModel
from clover_engine.testing.faults import Fault, FaultKind, reset
from clover_engine.testing.server import FakeServer

HOLE = InfillRequest("def add(a, b):\n    ", "\n")
LIMITS = HttpLimits(idle_s=0.4, total_s=0.4, connect_s=1.0, max_event=2**20, max_answer=2**20)
PATIENT = replace(LIMITS, idle_s=10.0, total_s=10.0)
"""For what is to be answered: a handshake may take its time on a busy machine."""
BOUND_S = 6.0
"""Each fault is over after `LIMITS` and the retries; this much is for a busy machine."""

STREAM_FAULTS: list[tuple[FaultKind, type[EngineError], str]] = [
    ("status", EngineUnavailable, r"failed \(500\): something broke; see its log"),
    ("redirect", EngineUnavailable, r"redirects to https://elsewhere\.invalid/login; set the URL"),
    ("silent", EngineUnavailable, r"has said nothing for 0\.4 s; see whether the server is alive"),
    ("stall", EngineUnavailable, r"has said nothing for 0\.4 s"),
    ("drip", EngineUnavailable, r"has said nothing for 0\.4 s"),
    ("cut", EngineCrashed, r"broke the connection off .*; ask again or see its log"),
    ("end", EngineCrashed, r"broke the connection off"),
    ("garbage", EngineUnavailable, r"streams what is not JSON; check that the URL"),
    ("types", EngineUnavailable, r"streams what is no (text|chat); check that the URL"),
    ("huge", EngineUnavailable, r"exceeded the 1048576 byte limit"),
    ("not-utf8", EngineUnavailable, r"streams what is not JSON"),
    ("html", EngineUnavailable, r"unusable event stream .*text/html"),
]


@pytest.fixture(scope="module")
def server() -> Iterator[FakeServer]:
    with FakeServer(FakeModel(["return a + b"])) as server:
        yield server


@pytest.fixture(scope="module")
def engine(server: FakeServer) -> Iterator[SGLangEngine]:
    with SGLangEngine(server.url, limits=LIMITS) as engine:
        engine.infill(HOLE)
        yield engine


@pytest.mark.parametrize(("kind", "error", "message"), STREAM_FAULTS)
@pytest.mark.parametrize("after", [0, 2])
def test_a_stream_breaks(
    after: int,
    kind: FaultKind,
    error: type[EngineError],
    message: str,
    engine: SGLangEngine,
    server: FakeServer,
) -> None:
    server.faults[:] = [Fault(kind, after=after)]
    begun = time.monotonic()
    with pytest.raises(error, match=message) as caught:
        engine.infill(HOLE)
    assert time.monotonic() - begun < BOUND_S
    assert "\n" not in str(caught.value) and server.url in str(caught.value)
    assert len(server.bodies("/generate")) >= 1
    # nothing was asked twice, nothing stays open, and the next request is answered
    assert engine.infill(HOLE).choices[0].text == "return a + b"
    assert server.wait(lambda s: s.streams == 0)


@pytest.mark.parametrize(
    ("kind", "message"),
    [(kind, message) for kind, _, message in STREAM_FAULTS if kind not in ("huge", "html")],
)
def test_a_conversation_breaks(
    kind: FaultKind, message: str, engine: SGLangEngine, server: FakeServer
) -> None:
    server.faults[:] = [Fault(kind, path="/v1/chat", after=2)]
    with pytest.raises(EngineError, match=message):
        engine.generate(GenerateRequest((Message("user", "x"),)))
    assert engine.generate(GenerateRequest((Message("user", "x"),))).text == "return a + b"


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("types", r"/model_info is no JSON object; check that the URL"),
        ("garbage", r"/model_info is not JSON"),
        ("not-utf8", r"/model_info is not JSON"),
        ("html", r"/model_info is not JSON"),
        ("huge", r"/model_info sends over 1048576 bytes"),
        ("drip", r"has said nothing for"),
        ("cut", r"broke the connection off"),
    ],
)
def test_something_else_listens_there(kind: FaultKind, message: str, server: FakeServer) -> None:
    server.faults[:] = [Fault(kind, path="/model_info", times=None)]
    with SGLangEngine(server.url, limits=LIMITS) as engine:
        begun = time.monotonic()
        with pytest.raises(EngineError, match=message):
            engine.infill(HOLE)
        assert time.monotonic() - begun < BOUND_S
        health = engine.health()
        assert not health.ready and "\n" not in health.detail and server.url in health.detail
        server.faults.clear()
        assert engine.health().ready
        assert engine.infill(HOLE).choices[0].text == "return a + b"


def test_a_request_that_the_server_refuses(engine: SGLangEngine, server: FakeServer) -> None:
    server.faults[:] = [Fault("status", status=400, message="no such thing")]
    with pytest.raises(RequestError, match="refuses the request: no such thing; change it, or see"):
        engine.infill(HOLE)


def test_nothing_listens() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound, but it does not listen
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        with SGLangEngine(url, limits=LIMITS) as engine:
            assert not engine.health().ready
            begun = time.monotonic()
            with pytest.raises(EngineUnavailable, match="connection refused; start the server"):
                engine.infill(HOLE)
            assert time.monotonic() - begun < BOUND_S


def test_no_such_host(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with (
        SGLangEngine("http://no-such-host.invalid:30000", limits=LIMITS) as engine,
        pytest.raises(EngineUnavailable, match=r"no host is called no-such-host\.invalid"),
    ):
        engine.infill(HOLE)


def test_a_connection_that_is_never_accepted() -> None:
    """A full queue of connections, as of a machine that hangs: no answer to the first packet."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        engine = stack.enter_context(
            SGLangEngine(f"http://127.0.0.1:{listener.getsockname()[1]}", limits=LIMITS)
        )
        begun = time.monotonic()
        with pytest.raises(EngineUnavailable):
            engine.infill(HOLE)
        assert time.monotonic() - begun < BOUND_S
        late = engine.infill(InfillRequest("x", deadline_s=0.1))
        assert late.choices[0].finish_reason == "deadline"


def test_killed_in_the_middle_and_started_again() -> None:
    command = [sys.executable, "-m", "clover_engine.testing.server", "--step-s", "0.05"]
    command += ["--text", "word " * 300]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        engine = SGLangEngine(url, limits=LIMITS)
        engine.infill(InfillRequest("x", max_tokens=1))
        threading.Timer(0.3, process.kill).start()
        with pytest.raises(EngineCrashed, match="broke the connection off"):
            engine.infill(InfillRequest("x", max_tokens=250))
    with pytest.raises(EngineUnavailable, match="connection refused"):
        engine.infill(HOLE)
    again = FakeModel(["back"], name="starcoder2-3b")  # the operator took another model
    with FakeServer(again, port=int(url.rpartition(":")[2])) as server:
        assert engine.health().ready
        result = engine.infill(HOLE)
        assert (result.choices[0].text, result.model) == ("back", "starcoder2-3b")
        assert "<fim_middle>" in server.bodies("/generate")[0]["text"]
    engine.close()


def test_connections_that_died_while_idle() -> None:
    """A server that restarts between two keystrokes costs none of them."""
    first = FakeServer(FakeModel(["one"]))
    engine = SGLangEngine(first.url, limits=LIMITS)
    assert engine.infill(HOLE).choices[0].text == "one"
    first.close()
    with FakeServer(FakeModel(["two"]), port=first.port):
        assert engine.infill(HOLE).choices[0].text == "two"
    engine.close()


def certificate(folder: Path, name: str) -> tuple[Path, ssl.SSLContext]:
    """A self-signed certificate, and a server's context with it."""
    key, cert = folder / f"{name}.key", folder / f"{name}.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-nodes", "-days", "2", "-subj", f"/CN={name}", "-keyout", str(key)]
    command += ["-addext", f"subjectAltName=IP:127.0.0.1,DNS:{name}", "-out", str(cert)]
    subprocess.run(command, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    return cert, context


def test_certificates(tmp_path: Path) -> None:
    cert, context = certificate(tmp_path, "models")
    other, _ = certificate(tmp_path, "other")
    with FakeServer(FakeModel(["sealed"]), tls=context) as server:
        with SGLangEngine(server.url, ca_file=str(cert), limits=PATIENT) as engine:
            assert engine.infill(HOLE).choices[0].text == "sealed"
        for ca_file in ("", str(other)):
            with (
                SGLangEngine(server.url, ca_file=ca_file, limits=PATIENT) as engine,
                pytest.raises(EngineUnavailable, match="certificate is not accepted .*CA file"),
            ):
                engine.infill(HOLE)
        plain = server.url.replace("https", "http")
        with SGLangEngine(plain, limits=PATIENT) as engine, pytest.raises(EngineError):
            engine.infill(HOLE)
    with (
        FakeServer() as bare,
        SGLangEngine(bare.url.replace("http", "https"), limits=PATIENT) as engine,
        pytest.raises(EngineUnavailable, match=r"no TLS .*; check http or https"),
    ):
        engine.infill(HOLE)


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_a_ca_file_that_is_none(content: str | None, tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    if content is not None:
        path.write_text(content)
    with (
        SGLangEngine("https://127.0.0.1:9", ca_file=str(path)) as engine,
        pytest.raises(EngineUnavailable, match="cannot use the CA file"),
    ):
        engine.infill(HOLE)


def test_reset_while_the_request_is_sent() -> None:
    """The server goes away under a large request."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.settimeout(5)

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    connection.recv(100)
                    reset(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        with SGLangEngine(f"http://127.0.0.1:{listener.getsockname()[1]}", limits=LIMITS) as engine:
            begun = time.monotonic()
            with pytest.raises(EngineError, match="broke the connection off"):
                engine.infill(InfillRequest("x" * 100_000))
            assert time.monotonic() - begun < BOUND_S
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
