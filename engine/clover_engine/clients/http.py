"""HTTP for engines: blocking calls that end at once when cancelled, and never hang.

One event loop on a thread of its own does the input and output (httpx2, HTTP/1.1, connections
kept alive); the calling thread waits for it and looks at the `CancelToken` and the clock. A call
that is given up has its connection closed, which is how a server learns to stop.

What a caller can rely on:

- every fault is an exception of `clover_engine.errors`, one line, with the server's address, never
  with the API key; `DeadlineReached` is the one more, for the engine to turn into what it has;
- a call ends by its deadline; without one, a stream by `idle_s` without an event, other calls by
  `total_s`. Bytes that make no event count as silence;
- nothing is asked twice, but where a server cannot have seen it (no connection) or says that it is
  only starting (503 with Retry-After), and GETs;
- at most `max_in_flight` requests are open, the others wait their turn; a stream is read no
  further than its caller has taken; answers over `max_answer` bytes are refused;
- proxies of the environment apply, but never to this machine's own addresses.
"""

from __future__ import annotations

import json
import threading
import time
import weakref
from collections.abc import Callable, Generator
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass
from typing import Any, TypeVar

from clover_engine.api import CancelToken
from clover_engine.clients.address import Address
from clover_engine.clients.faults import Lost, Refused, Unreached, malformed
from clover_engine.clients.link import Link, Stream
from clover_engine.errors import EngineError, EngineUnavailable, RequestCancelled, RequestError

_POLL_S = 0.02
_ATTEMPTS = 3
_PAUSE_S = 0.1
_MAX_RETRY_AFTER_S = 5.0

T = TypeVar("T")
Events = Generator[dict[str, Any], None, None]
"""The JSON objects of a stream; close it, or exhaust it."""


class DeadlineReached(Exception):
    """The call's deadline came first. Engines catch it: it is no error of theirs."""


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """How long and how much; the defaults suit a server that answers editors."""

    connect_s: float = 5.0
    idle_s: float = 60.0
    total_s: float = 60.0
    silence_s: float = 10.0
    """After so much time in requests that ended (by their deadlines, or cancelled) before the
    server said anything, it counts as gone."""
    max_in_flight: int = 16
    max_request: int = 16 * 2**20
    max_answer: int = 64 * 2**20
    max_event: int = 4 * 2**20


class Clock:
    """One call's cancel token and the time it has left."""

    __slots__ = ("_cancel", "_end", "began")

    def __init__(self, cancel: CancelToken | None, deadline_s: float | None) -> None:
        self.began = time.monotonic()
        self._cancel = cancel
        self._end = None if deadline_s is None else self.began + deadline_s

    def check(self) -> None:
        """Raises RequestCancelled or DeadlineReached where it is time."""
        if self._cancel is not None and self._cancel.cancelled:
            raise RequestCancelled("the request was cancelled; ask again")
        if self._end is not None and time.monotonic() >= self._end:
            raise DeadlineReached

    def step(self, until: float) -> float:
        """Seconds to wait before the next `check`, at most until the moment `until`."""
        now = time.monotonic()
        end = until if self._end is None else min(until, self._end)
        return max(0.0, min(end - now, _POLL_S if self._cancel is not None else 60.0))


class HttpTransport:
    """One server. Calls may come from any thread."""

    def __init__(
        self,
        base_url: str,
        *,
        api_key: str = "",
        ca_file: str = "",
        limits: HttpLimits | None = None,
    ) -> None:
        """`api_key` goes into the header Authorization (Bearer). `ca_file`: a PEM file with the
        certificates to trust instead of the system's. Connects to nothing yet.

        Raises RequestError where the URL or the key cannot be used.
        """
        self.address = Address.parse(base_url)
        self.limits = limits or HttpLimits()
        if not api_key.isascii() or any(ord(c) < 33 for c in api_key):
            raise RequestError("the API key has characters that no header carries; copy it again")
        self._key, self._ca_file = api_key, ca_file
        self._lock = threading.Lock()
        self._turns = threading.BoundedSemaphore(self.limits.max_in_flight)
        self._link: Link | None = None
        self._closed = False
        self._silent_s = 0.0
        self._reaper: weakref.finalize[..., HttpTransport] | None = None

    def json(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        cancel: CancelToken | None = None,
        deadline_s: float | None = None,
        retry: bool = False,
    ) -> Any:
        """Sends a request and returns its JSON answer (None for an empty one).

        `retry`: ask again also where the connection broke; GET always does. Raises
        `DeadlineReached`, and `Refused` (an EngineUnavailable with a `status`) where the server
        answers with an error that is not the request's fault.
        """
        clock = Clock(cancel, deadline_s)
        content = self._encode(body)

        def once(link: Link) -> bytes:
            answer = link.fetch(method, path, content, self.limits.max_answer)
            return self._wait(answer, clock, self.limits.total_s)

        with self._turn(clock):
            data = self._attempts(once, clock, retry or method == "GET")
        self._silent_s = 0.0
        if not data:
            return None
        try:
            return json.loads(data.decode("utf-8"))
        except (ValueError, RecursionError) as error:
            raise malformed(self.address, f"{path} is not JSON") from error

    def events(
        self,
        path: str,
        body: Any,
        *,
        cancel: CancelToken | None = None,
        deadline_s: float | None = None,
    ) -> Events:
        """Posts a request and iterates over the JSON objects of its server-sent events, up to
        ``[DONE]`` or the end. Exhaust or close the iterator: until then the connection is open.

        Raises as `json` does, at the first `next` or later ones; `EngineCrashed` where the
        stream breaks.
        """
        clock = Clock(cancel, deadline_s)
        content = self._encode(body)

        def once(link: Link) -> Stream:
            stream = link.stream(path, content, self.limits.max_event)
            try:
                self._wait(stream.open(), clock, self.limits.idle_s)
            except BaseException:
                stream.close()
                raise
            return stream

        with self._turn(clock):
            stream = self._attempts(once, clock, resend=False)
            is_finished = False
            try:
                yield from self._objects(stream, path, clock)
                is_finished = True
            finally:
                stream.close(is_finished)

    def check(self, cancel: CancelToken | None, deadline_s: float | None) -> None:
        """Raises what a request would at once: cancelled, late, or closed."""
        Clock(cancel, deadline_s).check()
        if self._closed:
            raise _closed()

    def tell(self, path: str, body: Any) -> None:
        """Posts without waiting for the answer, whatever it is; for what only helps."""
        try:
            self._connected().fetch("POST", path, self._encode(body), self.limits.max_answer)
        except EngineError:
            return

    def close(self) -> None:
        """Closes all connections; calls in flight raise EngineUnavailable. Any number of times."""
        with self._lock:
            self._closed = True
            link, self._link = self._link, None
        if self._reaper is not None:
            self._reaper.detach()
        if link is not None:
            link.close()

    def _objects(
        self, stream: Stream, path: str, clock: Clock
    ) -> Generator[dict[str, Any], None, None]:
        total = 0
        while True:
            text = self._wait(stream.next(), clock, self.limits.idle_s)
            self._silent_s = 0.0
            if text is None or text.strip() == "[DONE]":
                return
            total += len(text)
            if total > self.limits.max_answer:
                raise malformed(self.address, f"{path} sends over {self.limits.max_answer} bytes")
            try:
                event = json.loads(text)
            except (ValueError, RecursionError) as error:
                raise malformed(self.address, f"{path} streams what is not JSON") from error
            if not isinstance(event, dict):
                raise malformed(self.address, f"{path} streams what is no JSON object")
            yield event

    def _encode(self, body: Any) -> bytes:
        content = b"" if body is None else json.dumps(body).encode("ascii")
        if len(content) > self.limits.max_request:
            raise RequestError(
                f"the request has {len(content)} bytes, more than {self.limits.max_request}; "
                "ask with less text"
            )
        return content

    def _turn(self, clock: Clock) -> _Turn:
        """Waits until fewer than `max_in_flight` requests are open."""
        while True:
            clock.check()
            if self._turns.acquire(timeout=clock.step(time.monotonic() + 1.0)):
                return _Turn(self._turns)

    def _connected(self) -> Link:
        with self._lock:
            if self._closed:
                raise _closed()
            if self._link is None:
                limits = self.limits
                self._link = Link(
                    self.address, self._key, self._ca_file, limits.connect_s, limits.max_in_flight
                )
                self._reaper = weakref.finalize(self, Link.close, self._link)
            return self._link

    def _attempts(self, call: Callable[[Link], T], clock: Clock, resend: bool) -> T:
        """`call`, and again where the server cannot have seen it, asks for it, or `resend`."""
        for left in reversed(range(_ATTEMPTS)):
            self._check_silence()
            try:
                return call(self._connected())
            except (Unreached, Lost, Refused) as error:
                if isinstance(error, Refused):
                    self._silent_s = 0.0
                pause = _pause_before(error, resend)
                if pause is None or not left:
                    raise
            self._sleep(pause, clock)
        raise AssertionError("the last attempt returns or raises")

    def _sleep(self, seconds: float, clock: Clock) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            clock.check()
            time.sleep(clock.step(end))

    def _wait(self, future: Future[T], clock: Clock, limit_s: float) -> T:
        """The future's result; gives up, and closes the connection, when the call is over."""
        began = time.monotonic()
        end = began + limit_s
        try:
            while True:
                clock.check()
                try:
                    return future.result(clock.step(end))
                except TimeoutError:
                    if time.monotonic() >= end:
                        raise self._silent(limit_s) from None
                except CancelledError:
                    raise _closed() from None
        except (RequestCancelled, DeadlineReached) as over:
            self._silent_s += time.monotonic() - began
            if isinstance(over, DeadlineReached):
                self._check_silence()
            raise
        finally:
            future.cancel()

    def _check_silence(self) -> None:
        """Raises where the last requests together waited too long for a first word."""
        waited = self._silent_s
        if waited >= self.limits.silence_s:
            self._silent_s = 0.0
            raise self._silent(waited)

    def _silent(self, seconds: float) -> EngineUnavailable:
        return EngineUnavailable(
            f"{self.address.url} has said nothing for {seconds:.1f} s; "
            "see whether the server is alive and the network is up"
        )


def _closed() -> EngineUnavailable:
    return EngineUnavailable("the engine is closed; open a new one")


class _Turn:
    """Gives the turn back at the end of a `with` block."""

    def __init__(self, turns: threading.BoundedSemaphore) -> None:
        self._turns = turns

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        self._turns.release()


def _pause_before(error: Unreached | Lost | Refused, resend: bool) -> float | None:
    """Seconds until the request may be sent again; None where it must not be."""
    if isinstance(error, Unreached) or (isinstance(error, Lost) and resend):
        return _PAUSE_S
    if isinstance(error, Refused) and error.status == 503:
        after = error.retry_after_s
        return after if after is not None and after <= _MAX_RETRY_AFTER_S else None
    return None
