"""The transport against a fake server over real sockets: time, retries, limits, secrets."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

import pytest

from clover_engine.api import CancelToken
from clover_engine.clients.address import Address
from clover_engine.clients.faults import Refused
from clover_engine.clients.http import DeadlineReached, HttpLimits, HttpTransport
from clover_engine.errors import EngineCrashed, EngineUnavailable, RequestCancelled, RequestError
from clover_engine.testing.answers import FakeModel
from clover_engine.testing.faults import Fault
from clover_engine.testing.server import FakeServer

STREAM = {"text": "x", "sampling_params": {"max_new_tokens": 1000}, "rid": "a", "stream": True}
SOON_S = 3.0
"""For what should take a few milliseconds, on a busy machine."""


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer(FakeModel(["word " * 150])) as server:
        yield server


@pytest.fixture
def http(server: FakeServer) -> Iterator[HttpTransport]:
    transport = HttpTransport(server.url, limits=HttpLimits(idle_s=20, total_s=20, connect_s=20))
    yield transport
    transport.close()


def test_one_connection_for_many_requests(http: HttpTransport, server: FakeServer) -> None:
    for _ in range(3):
        assert http.json("GET", "/model_info")["model_type"] == "qwen2"
        assert len(list(http.events("/generate", STREAM))) > 150
        assert server.wait(lambda s: s.streams == 0)
        time.sleep(0.05)  # the stream's own end is read in the background
    assert server.connections == 1


def test_cancelling_closes_the_connection(http: HttpTransport, server: FakeServer) -> None:
    server.step_s = 0.02
    cancel = CancelToken()
    seen = []
    with pytest.raises(RequestCancelled):
        for event in http.events("/generate", STREAM, cancel=cancel):
            seen.append(event)
            if len(seen) == 3:
                cancel.cancel()
                begun = time.monotonic()
    assert time.monotonic() - begun < SOON_S
    assert len(seen) <= 4
    assert server.wait(lambda s: s.gone == 1 and s.streams == 0)


def test_cancelling_what_says_nothing(http: HttpTransport, server: FakeServer) -> None:
    server.faults.append(Fault("silent", path=""))
    cancel = CancelToken()

    def stop() -> None:
        server.wait(lambda s: bool(s.seen))
        cancel.cancel()

    thread = threading.Thread(target=stop)
    thread.start()
    with pytest.raises(RequestCancelled):
        http.json("GET", "/model_info", cancel=cancel)
    thread.join()
    assert http.json("GET", "/model_info")


def test_the_deadline_is_for_all_of_it(http: HttpTransport, server: FakeServer) -> None:
    server.step_s = 0.02  # every read is in time, all together are not
    begun = time.monotonic()
    with pytest.raises(DeadlineReached):
        list(http.events("/generate", STREAM, deadline_s=0.3))
    assert 0.3 <= time.monotonic() - begun < SOON_S
    assert server.wait(lambda s: s.gone == 1)


def test_a_stream_that_nobody_reads_on_is_given_up(http: HttpTransport, server: FakeServer) -> None:
    server.step_s = 0.01
    events = http.events("/generate", STREAM)
    next(events)
    events.close()
    assert server.wait(lambda s: s.gone == 1)


def test_asks_again_only_where_that_is_safe(http: HttpTransport, server: FakeServer) -> None:
    server.faults = [Fault("cut", path="/model_info")]
    assert http.json("GET", "/model_info")["model_type"] == "qwen2"
    server.faults = [Fault("cut", path="/tokenize")]
    with pytest.raises(EngineCrashed, match="broke the connection off"):
        http.json("POST", "/tokenize", {"prompt": "a"})
    server.faults = [Fault("cut", path="/tokenize")]
    assert http.json("POST", "/tokenize", {"prompt": "a"}, retry=True)["count"] == 1
    server.faults = [Fault("status", status=500, path="/model_info")]
    with pytest.raises(Refused, match="something broke"):
        http.json("GET", "/model_info")


def test_waits_for_a_server_that_starts(http: HttpTransport, server: FakeServer) -> None:
    busy = Fault("status", status=503, headers={"Retry-After": "0.1"}, path="", times=2)
    server.faults = [busy]
    assert http.json("GET", "/model_info")
    assert len(server.seen) == 3
    server.faults = [Fault("status", status=503, headers={"Retry-After": "60"}, path="")]
    with pytest.raises(Refused, match="starting or busy"):
        http.json("GET", "/model_info")
    server.faults = [busy]
    busy.times = None
    begun = time.monotonic()
    with pytest.raises(DeadlineReached):
        http.json("GET", "/model_info", deadline_s=0.05)
    assert time.monotonic() - begun < SOON_S


def test_only_so_many_at_once(server: FakeServer) -> None:
    server.step_s = 0.02
    http = HttpTransport(server.url, limits=HttpLimits(max_in_flight=2))
    cancel = CancelToken()

    def work() -> None:
        with pytest.raises(RequestCancelled):
            list(http.events("/generate", STREAM, cancel=cancel))

    threads = [threading.Thread(target=work) for _ in range(5)]
    for thread in threads:
        thread.start()
    assert server.wait(lambda s: s.streams == 2)
    time.sleep(0.1)
    assert server.streams == 2 and len(server.seen) == 2
    with pytest.raises(DeadlineReached):
        http.json("GET", "/model_info", deadline_s=0.05)  # waiting counts
    cancel.cancel()
    for thread in threads:
        thread.join(5)
    assert server.wait(lambda s: s.streams == 0)
    assert http.json("GET", "/model_info")
    http.close()


def test_reads_no_further_than_the_caller(server: FakeServer) -> None:
    """A slow reader holds a fast server back instead of filling memory."""
    server.model.on_prompt = lambda prompt, seed: "x" * 40_000_000
    http = HttpTransport(server.url, limits=HttpLimits(max_event=10**8))
    server.model.is_incremental = True
    server.model.tokens = lambda text: [text[i : i + 400_000] for i in range(0, len(text), 400_000)]  # type: ignore[method-assign]
    events = http.events("/generate", STREAM)
    next(events)
    time.sleep(0.3)
    assert server.streams == 1  # it is stuck in a write, with most of it unsent
    events.close()
    assert server.wait(lambda s: s.streams == 0)
    http.close()


def test_a_request_has_a_size(http: HttpTransport, server: FakeServer) -> None:
    with pytest.raises(RequestError, match="ask with less text"):
        http.json("POST", "/tokenize", {"prompt": "x" * 17_000_000})
    assert server.seen == []


def test_silence_over_several_requests(server: FakeServer) -> None:
    """Deadlines that are shorter than any time-out must not hide a dead server."""
    http = HttpTransport(server.url, limits=HttpLimits(silence_s=0.25))
    server.faults = [Fault("silent", times=None)]
    late = 0
    with pytest.raises(EngineUnavailable, match="has said nothing for"):
        while late < 50:
            with contextlib.suppress(DeadlineReached):
                list(http.events("/generate", STREAM, deadline_s=0.1))
            late += 1
    assert late >= 2
    server.faults.clear()
    assert list(http.events("/generate", STREAM))
    http.close()


def test_the_key_goes_out_and_nowhere_else(server: FakeServer) -> None:
    server.api_key = "sesame-1"
    right = HttpTransport(server.url, api_key="sesame-1")
    assert right.json("GET", "/model_info")
    right.close()
    wrong = HttpTransport(server.url, api_key="sesame-2")
    with pytest.raises(Refused, match=r"refuses the API key \(401\); set") as caught:
        wrong.json("GET", "/model_info")
    wrong.close()
    assert "sesame" not in str(caught.value) + repr(vars(caught.value))
    with pytest.raises(RequestError, match="copy it again"):
        HttpTransport(server.url, api_key="sesame\r\nX-Evil: 1")


def test_no_proxy_for_this_machine(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")  # nobody listens there
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    http = HttpTransport(server.url.replace("127.0.0.1", "localhost"))
    assert http.json("GET", "/model_info")
    http.close()


def test_the_environment_s_proxy_for_others(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", server.url)
    monkeypatch.setenv("no_proxy", "")
    http = HttpTransport("http://models.invalid:30000")
    with pytest.raises(Refused, match="does not exist there"):
        http.json("GET", "/model_info")
    http.close()
    assert server.seen[0].path == "http://models.invalid:30000/model_info"


def test_closing_ends_what_runs(http: HttpTransport, server: FakeServer) -> None:
    server.step_s = 0.02
    threading.Timer(0.2, http.close).start()
    with pytest.raises(EngineUnavailable, match="closed"):
        list(http.events("/generate", STREAM))
    http.close()
    with pytest.raises(EngineUnavailable, match="closed"):
        http.json("GET", "/model_info")


def test_a_forgotten_transport_ends_its_thread(server: FakeServer) -> None:
    def threads() -> int:
        return sum(thread.name == "clover-http" for thread in threading.enumerate())

    before = threads()
    http = HttpTransport(server.url)
    http.json("GET", "/model_info")
    assert threads() == before + 1
    del http
    assert threads() == before


@pytest.mark.parametrize(
    ("text", "url", "is_loopback"),
    [
        ("http://127.0.0.1:30000", "http://127.0.0.1:30000", True),
        ("http://localhost:1/v/ ", "http://localhost:1/v", True),
        ("http://[::1]:8080", "http://[::1]:8080", True),
        ("https://Models.Example/", "https://models.example", False),
        ("http://10.0.0.7:30000", "http://10.0.0.7:30000", False),
        ("http://127.0.0.1.evil.example", "http://127.0.0.1.evil.example", False),
    ],
)
def test_addresses(text: str, url: str, is_loopback: bool) -> None:
    address = Address.parse(text)
    assert (address.url, address.is_loopback) == (url, is_loopback)


@pytest.mark.parametrize(
    "text",
    ["", "localhost:30000", "ftp://host", "http://", "http://user:secret@host", "http://host:port",
     "http://host?key=1", "http://ho st", "http://host:99999"],
)  # fmt: skip
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(RequestError, match=r"write it like http://127.0.0.1:30000") as caught:
        Address.parse(text)
    assert "secret" not in str(caught.value) and "\n" not in str(caught.value)
