"""A server's address as the user wrote it, checked before anything is sent there."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from urllib.parse import urlsplit

from clover_engine.errors import RequestError


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server listens; make one with :meth:`parse`."""

    url: str
    """Scheme, host, port and path, without a slash at the end."""
    host: str
    is_loopback: bool
    """The server is on this machine: text sent there does not leave it, and no proxy applies."""

    @classmethod
    def parse(cls, text: str) -> Address:
        """Reads ``http://host:port`` or ``https://…``; a path in front of the server's is kept.

        Raises RequestError that says what is wrong with it.
        """
        try:
            parts = urlsplit(text.strip())
            port, host = parts.port, parts.hostname or ""
        except ValueError as error:
            raise _wrong(f"{error}") from error
        if parts.username or parts.password:
            raise _wrong("it contains a user or password; set the API key instead")
        if parts.scheme not in ("http", "https"):
            raise _wrong("it must begin with http:// or https://")
        if not host or any(ord(c) <= 32 for c in text.strip()):
            raise _wrong("it names no host")
        if parts.query or parts.fragment:
            raise _wrong("it must end with the port or a path")
        name = f"[{host}]" if ":" in host else host
        netloc = name if port is None else f"{name}:{port}"
        url = f"{parts.scheme}://{netloc}{parts.path.rstrip('/')}"
        return cls(url, host, _is_loopback(host))


def _wrong(reason: str) -> RequestError:
    return RequestError(
        f"the server's URL cannot be used: {reason}; write it like http://127.0.0.1:30000"
    )


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False
