"""Who may ask: names this machine goes by, pages that were allowed, the right key.

A page in a browser can reach a server on this machine, also under a name of its own that it makes
point here (DNS rebinding). Browsers say which page asks (`Origin`) and which name it used
(`Host`); both are looked at before anything else.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from clover_code.gateway.answers import failure

LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, slots=True)
class Guard:
    """An ASGI application around another one."""

    inner: ASGIApp
    hosts: Sequence[str] = LOOPBACK
    """Names by which clients may call the server; none: any name (with a key)."""
    origins: Sequence[str] = ()
    """Origins of pages that may ask."""
    key: str = ""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            status, message = self._against(scope["path"], Headers(scope=scope))
            if message:
                await JSONResponse(failure(status, message), status)(scope, receive, send)
                return
        await self.inner(scope, receive, send)

    def _against(self, path: str, headers: Headers) -> tuple[int, str]:
        """The status and the reason, in words, for which a request is refused."""
        host = _name(headers.get("host", ""))
        if self.hosts and host not in self.hosts:
            return 403, f"the name {host!r} is not this server's; ask at http://127.0.0.1"
        origin = headers.get("origin")
        if origin is not None and origin not in self.origins:
            return 403, f"pages of {origin} may not ask; --allow-origin {origin} lets them"
        if self.key and path != "/health" and not self._has_key(headers):
            return 401, "a key is needed: send it as `Authorization: Bearer KEY`"
        return 200, ""

    def _has_key(self, headers: Headers) -> bool:
        bearer = headers.get("authorization", "").partition(" ")
        given = bearer[2].strip() if bearer[0].lower() == "bearer" else headers.get("x-api-key", "")
        return hmac.compare_digest(given.encode(), self.key.encode())


def _name(host: str) -> str:
    """The name in a `Host` header, without its port."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].lower()
