"""What can go wrong with a server, as the engine's exceptions: one line each, with what to do."""

from __future__ import annotations

import json
import re
import socket
import ssl
from collections.abc import Iterator, Mapping
from typing import Any

from clover_engine.clients.address import Address
from clover_engine.errors import EngineCrashed, EngineError, EngineUnavailable, RequestError

_STARTING = (408, 425, 429, 502, 503, 504)
_OUR_FAULT = (400, 413, 422)
_MESSAGE_CHARS = 240
_BLANK = re.compile(r"[\s\x00-\x1f\x7f-\x9f\u2028\u2029]+")


class Unreached(EngineUnavailable):
    """No connection: the server has seen nothing of the request, so asking again is safe."""


class Lost(EngineCrashed):
    """The connection broke after the request was sent."""


class Refused(EngineUnavailable):
    """The server answered with an error status."""

    def __init__(self, message: str, status: int = 0, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after_s = retry_after_s
        """Seconds after which the server wants to be asked again; None where it named none."""


def malformed(address: Address, what: str) -> EngineUnavailable:
    """The server answers, but not as it should; `what` is a clause like ``/x is not JSON``."""
    return EngineUnavailable(
        f"{address.url}: {what}; check that the URL is that of the server and its version fits"
    )


def refusal(
    address: Address, path: str, status: int, headers: Mapping[str, str], body: bytes
) -> EngineError:
    """The exception for an answer with a status of 300 or more."""
    said = server_message(body)
    where = f"{address.url}{path}"
    if status < 400:
        target = headers.get("location", "elsewhere").partition("?")[0]
        return Refused(f"{where} redirects to {one_line(target)}; set the URL to that", status)
    if status in (401, 403):
        return Refused(f"{where} refuses the API key ({status}); set the server's key", status)
    if status in _OUR_FAULT:
        return RequestError(
            f"{where} refuses the request: {said or status}; change it, or see its log"
        )
    if status in (404, 405, 501):
        advice = "check that the URL is that of the server and its version fits"
        return Refused(f"{where} does not exist there ({status}); {advice}", status)
    if status in _STARTING:
        after = _seconds(headers.get("retry-after"))
        return Refused(
            f"{where} is starting or busy ({status}): {said or 'no reason given'}; try again soon",
            status,
            after,
        )
    return Refused(f"{where} failed ({status}): {said or 'no reason given'}; see its log", status)


def server_message(body: bytes) -> str:
    """The reason in an error answer: JSON as servers send it, or the beginning of plain text."""
    text = body.decode("utf-8", "replace")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return "" if text.lstrip().startswith("<") else one_line(text)
    return event_error(found) or one_line(json.dumps(found))


def event_error(data: Any) -> str | None:
    """The reason where `data` is an error object (also inside a stream), else None."""
    if not isinstance(data, Mapping):
        return None
    error = data.get("error") or data.get("detail")
    if not error and data.get("object") == "error":
        error = data.get("message")
    if isinstance(error, Mapping):
        error = error.get("message") or json.dumps(dict(error))
    if not error:
        return None
    return one_line(error if isinstance(error, str) else json.dumps(error))


def one_line(text: str) -> str:
    """`text` without line breaks and control characters, shortened."""
    line = _BLANK.sub(" ", text).strip()
    return line if len(line) <= _MESSAGE_CHARS else line[: _MESSAGE_CHARS - 1] + "…"


def no_connection(address: Address, error: BaseException, connect_s: float) -> Unreached:
    """The exception where no connection came about because of `error` (or its causes)."""
    url = address.url
    for cause in _causes(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            reason = cause.verify_message or cause.reason or "not trusted"
            return Unreached(
                f"{url}: its certificate is not accepted ({one_line(str(reason))}); "
                "set the CA file to the one that signed it"
            )
        if isinstance(cause, ssl.SSLError):
            return Unreached(f"{url}: no TLS ({cause.reason or 'refused'}); check http or https")
        if isinstance(cause, socket.gaierror):
            return Unreached(f"{url}: no host is called {address.host}; check the URL")
        if isinstance(cause, ConnectionRefusedError):
            return Unreached(f"{url}: connection refused; start the server or check the URL")
    if any(isinstance(cause, TimeoutError) for cause in _causes(error)):
        return Unreached(f"{url}: no connection within {connect_s:g} s; check host and network")
    return Unreached(f"{url}: {one_line(str(error)) or 'no connection'}; check the URL")


def lost(address: Address, error: BaseException) -> Lost:
    """The exception where the connection broke during an answer."""
    reason = one_line(str(error)) or type(error).__name__
    return Lost(f"{address.url} broke the connection off ({reason}); ask again or see its log")


def _seconds(text: str | None) -> float | None:
    try:
        return None if text is None else max(0.0, float(text))
    except ValueError:
        return None  # a date: as good as no answer


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The exception, and everything it says that it comes from."""
    seen: set[int] = set()
    todo: list[BaseException | None] = [error]
    while todo:
        one = todo.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        todo += [one.__context__, one.__cause__]
        if isinstance(one, BaseExceptionGroup):
            todo += one.exceptions
