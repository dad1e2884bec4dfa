"""The network side of `http.py`: an event loop on a thread of its own, and one HTTP client in it.

Every method returns a `Future` at once; cancelling it closes the connection it used. Exceptions
in the futures are those of `clover_engine.errors`.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

from clover_engine.clients.address import Address
from clover_engine.clients.faults import lost, malformed, no_connection, refusal
from clover_engine.errors import EngineUnavailable

if TYPE_CHECKING:
    import httpx2

KEEP_ALIVE_S = 4.0
"""Servers close idle connections after 5 s; one that is about to be closed must not be used."""
_REASON_BYTES = 16 * 1024
_CLOSE_S = 2.0
_END_S = 0.25

T = TypeVar("T")


class Link:
    """Connections to one server. Close it: its thread lives until then."""

    def __init__(
        self, address: Address, api_key: str, ca_file: str, connect_s: float, max_idle: int
    ) -> None:
        """Raises EngineUnavailable where `ca_file` cannot be used."""
        self.address = address
        self._connect_s = connect_s
        self._client = self._new_client(api_key, ca_file, max_idle)
        self._lock = threading.Lock()
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="clover-http", daemon=True)
        self._thread.start()

    def fetch(self, method: str, path: str, content: bytes, max_bytes: int) -> Future[bytes]:
        """The whole body of the answer."""
        return self.submit(self._fetch(method, path, content, max_bytes))

    def stream(self, path: str, content: bytes, max_event: int) -> Stream:
        """A request whose answer is a stream of events; nothing is sent yet."""
        return Stream(self, path, content, max_event)

    def close(self) -> None:
        """Ends everything in flight; its futures are cancelled."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_CLOSE_S)

    def _new_client(self, api_key: str, ca_file: str, max_idle: int) -> httpx2.AsyncClient:
        import httpx2

        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        if api_key:
            headers["Authorization"] = f"Bearer {api_key}"
        verify: ssl.SSLContext | bool = True
        if ca_file:
            try:
                verify = ssl.create_default_context(cafile=ca_file)
            except OSError as error:  # ssl.SSLError is one
                raise EngineUnavailable(
                    f"cannot use the CA file {ca_file}: {error.strerror or error}; "
                    "set it to a file of PEM certificates"
                ) from error
        return httpx2.AsyncClient(
            headers=headers,
            verify=verify,
            timeout=httpx2.Timeout(None, connect=self._connect_s),
            limits=httpx2.Limits(max_keepalive_connections=max_idle, keepalive_expiry=KEEP_ALIVE_S),
            trust_env=not self.address.is_loopback,  # proxies
            follow_redirects=False,
        )

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            self._loop.run_until_complete(self._end())
        finally:
            self._loop.close()

    async def _end(self) -> None:
        """Cancels what still runs and closes every connection. (The library's own tasks end with
        ours; it does not expect others to cancel them.)"""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._client.aclose()
        await self._loop.shutdown_asyncgens()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Runs `work` in the loop; the future of a closed link is cancelled."""
        with self._lock:
            if self._closed:
                work.close()
                done: Future[T] = Future()
                done.cancel()
                return done
            return asyncio.run_coroutine_threadsafe(self._tracked(work), self._loop)

    async def _tracked(self, work: Coroutine[Any, Any, T]) -> T:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            return await work
        finally:
            self._tasks.discard(task)

    async def _fetch(self, method: str, path: str, content: bytes, max_bytes: int) -> bytes:
        response = await self.send(method, path, content)
        body = bytearray()
        try:
            with self.faults():
                async for chunk in response.aiter_bytes():
                    body += chunk
                    if len(body) > max_bytes:
                        raise malformed(self.address, f"{path} sends over {max_bytes} bytes")
        finally:
            await response.aclose()
        return bytes(body)

    async def send(self, method: str, path: str, content: bytes) -> httpx2.Response:
        """The answer with its body unread. Raises where its status is an error."""
        request = self._client.build_request(method, self.address.url + path, content=content)
        with self.faults():
            response = await self._client.send(request, stream=True)
        if response.status_code < 300:
            return response
        reason = b""
        try:
            with contextlib.suppress(Exception):  # the status says enough
                async for chunk in response.aiter_bytes():
                    reason += chunk
                    if len(reason) > _REASON_BYTES:
                        break
        finally:
            await response.aclose()
        status, headers = response.status_code, response.headers
        raise refusal(self.address, path, status, headers, reason[:_REASON_BYTES])

    @contextlib.contextmanager
    def faults(self) -> Iterator[None]:
        """Turns the library's exceptions into ours."""
        import httpx2

        try:
            yield
        except httpx2.SSEError as error:
            raise malformed(self.address, f"unusable event stream ({error})") from error
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.ProxyError) as error:
            raise no_connection(self.address, error, self._connect_s) from error
        except httpx2.DecodingError as error:
            raise malformed(self.address, "its answer cannot be decompressed") from error
        except (httpx2.HTTPError, httpx2.StreamError) as error:
            raise lost(self.address, error) from error


class Stream:
    """The events that answer one POST. Every stream must be closed."""

    def __init__(self, link: Link, path: str, content: bytes, max_event: int) -> None:
        self._link, self._path, self._content = link, path, content
        self._max_event = max_event
        self._response: httpx2.Response | None = None
        self._events: AsyncIterator[httpx2.ServerSentEvent] | None = None

    def open(self) -> Future[None]:
        """Sends the request; done when the answer has begun."""
        return self._link.submit(self._open())

    def next(self) -> Future[str | None]:
        """The next event's data; None at the end. One at a time."""
        return self._link.submit(self._next())

    def close(self, is_finished: bool = False) -> None:
        """Closes the connection, unless the answer was read to its end; does not wait.

        `is_finished`: no event is to come. The end itself is waited for a moment, in the
        background, since only then the connection can be used again.
        """
        self._link.submit(self._close(is_finished))

    async def _open(self) -> None:
        import httpx2

        self._response = await self._link.send("POST", self._path, self._content)
        self._events = aiter(httpx2.EventSource(self._response, self._max_event))

    async def _next(self) -> str | None:
        assert self._events is not None, "open the stream first"
        with self._link.faults():
            async for event in self._events:
                return event.data
        return None

    async def _close(self, is_finished: bool) -> None:
        if self._response is None or self._events is None:
            return
        if is_finished:
            with contextlib.suppress(Exception):  # it was worth a try
                async with asyncio.timeout(_END_S):
                    await anext(self._events, None)
        await self._response.aclose()
