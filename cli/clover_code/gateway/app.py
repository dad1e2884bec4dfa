"""The routes. Every request is worked on in a thread, and ends when its client leaves."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from clover_code.gateway import answers, asked
from clover_code.gateway.answers import Head
from clover_code.gateway.fill import Filler
from clover_code.gateway.guard import Guard
from clover_engine.api import CancelToken
from clover_engine.errors import EngineError, RequestCancelled, RequestError
from clover_engine.generation import GenerateRequest, GenerateResult, Piece

log = logging.getLogger(__name__)
T = TypeVar("T")

MOST_BYTES = 8 << 20
"""Longest body that is read."""
BEAT_S = 5.0
"""A stream without news says so after so long."""
_LEFT = 499

Handler = Callable[["Gateway", Request], Awaitable[Response]]


def make_app(filler: Filler, guard: Callable[[ASGIApp], Guard]) -> ASGIApp:
    """The application that a server runs."""
    gateway = Gateway(filler)
    routes = [
        Route(path, functools.partial(_answer, gateway, handler), methods=[method])
        for paths, handler, method in _ROUTES
        for path in paths
    ]
    app = Starlette(routes=routes, exception_handlers={404: _missing, 405: _missing})
    guarded = guard(app)
    if not guarded.origins:
        return guarded
    return CORSMiddleware(guarded, list(guarded.origins), ["GET", "POST"], ["*"])


class Gateway:
    """What each route does."""

    def __init__(self, filler: Filler) -> None:
        self.filler = filler

    def _model(self) -> str:
        """The name of the model that answers, for clients that show it; may ask a server."""
        engine = self.filler.engine
        health = engine.health() if engine is not None else None
        return (health.model or health.name if health else "") or "clover"

    async def health(self, request: Request) -> Response:
        """Ready, or 503 while the model loads, as llama.cpp has it."""
        engine = self.filler.engine
        health = await asyncio.to_thread(engine.health) if engine is not None else None
        status = self.filler.room.status()
        found: dict[str, Any] = {"index": status.state, "files": status.files}
        if health is None or health.ready:
            return JSONResponse({"status": "ok", "model": health.model if health else "", **found})
        detail = health.detail or "the model is loading"
        return JSONResponse(answers.failure(503, detail, "unavailable_error") | found, 503)

    async def models(self, request: Request) -> Response:
        return JSONResponse(answers.models([await asyncio.to_thread(self._model)]))

    async def completions(self, request: Request) -> Response:
        body = await _body(request)
        wanted = asked.completion(body)

        def work(cancel: CancelToken) -> answers.Object:
            head = Head("cmpl", self._model())
            if isinstance(wanted, asked.Hole):
                return answers.filled_completion(head, self.filler.fill(wanted, cancel))
            return answers.completion(head, self.filler.go_on(wanted, cancel))

        if body.get("stream"):
            return _stream(_whole(work))
        return JSONResponse(await _until_left(request, work))

    async def infill(self, request: Request) -> Response:
        body = await _body(request)
        hole = asked.infill(body)
        fields = asked.field(body, "response_fields", list, None)

        def work(cancel: CancelToken) -> Any:
            return answers.as_infill(self.filler.fill(hole, cancel), fields, hole.n)

        if body.get("stream"):
            return _stream(_whole(work))
        return JSONResponse(await _until_left(request, work))

    async def chat(self, request: Request) -> Response:
        body = await _body(request)
        wanted = asked.chat(body)
        head = Head("chatcmpl", await asyncio.to_thread(self._model))
        if wanted.max_new_tokens == 0:  # clients warm a cache that way
            empty = GenerateResult("", "", "length")
            return JSONResponse(answers.chat(head, empty))
        if body.get("stream"):
            return _stream(self._talk(head, wanted))

        def work(cancel: CancelToken) -> answers.Object:
            return answers.chat(head, self.filler.converse(wanted, cancel))

        return JSONResponse(await _until_left(request, work))

    async def _talk(self, head: Head, wanted: GenerateRequest) -> AsyncIterator[answers.Object]:
        """A conversation's objects, as the model writes."""
        loop, cancel = asyncio.get_running_loop(), CancelToken()
        pieces: asyncio.Queue[Piece | None] = asyncio.Queue()

        def on_piece(piece: Piece) -> None:
            loop.call_soon_threadsafe(pieces.put_nowait, piece)

        work = asyncio.ensure_future(
            asyncio.to_thread(self.filler.converse, wanted, cancel, on_piece)
        )
        work.add_done_callback(lambda _: pieces.put_nowait(None))
        try:
            yield answers.chat_delta(head, None)
            while (piece := await pieces.get()) is not None:
                yield answers.chat_delta(head, piece)
            for last in answers.chat_end(head, await work):
                yield last
        finally:
            cancel.cancel()


_ROUTES: tuple[tuple[tuple[str, ...], Handler, str], ...] = (
    (("/health", "/v1/health"), Gateway.health, "GET"),
    (("/models", "/v1/models"), Gateway.models, "GET"),
    (("/completions", "/v1/completions"), Gateway.completions, "POST"),
    (("/chat/completions", "/v1/chat/completions"), Gateway.chat, "POST"),
    (("/infill",), Gateway.infill, "POST"),
)


async def _answer(gateway: Gateway, handler: Handler, request: Request) -> Response:
    """Errors in words, as JSON."""
    try:
        return await handler(gateway, request)
    except (ClientDisconnect, RequestCancelled):
        return Response(status_code=_LEFT)
    except EngineError as error:
        status = answers.status_of(error)
        return JSONResponse(answers.failure(status, str(error)), status)
    except _TooLong:
        message = f"the body is longer than {MOST_BYTES >> 20} MB: send less text around the hole"
        return JSONResponse(answers.failure(413, message), 413)
    except Exception:
        log.exception("a request failed")
        return JSONResponse(answers.failure(500, "unexpected: see the gateway's log"), 500)


class _TooLong(Exception):
    """The body is longer than what is read."""


async def _body(request: Request) -> Mapping[str, Any]:
    """The body's JSON object. Raises `RequestError` for anything else."""
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > MOST_BYTES:
            raise _TooLong
    try:
        body = json.loads(data)
    except (ValueError, RecursionError):
        raise RequestError("the body is no JSON") from None
    if not isinstance(body, dict):
        raise RequestError("the body is no JSON object")
    return body


async def _until_left(request: Request, work: Callable[[CancelToken], T]) -> T:
    """The work's result; cancelled when the client leaves, as plug-ins do at every keystroke."""
    cancel = CancelToken()
    working = asyncio.ensure_future(asyncio.to_thread(work, cancel))
    leaving = asyncio.ensure_future(_left(request))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            cancel.cancel()
        return await working
    finally:
        cancel.cancel()
        leaving.cancel()


async def _left(request: Request) -> None:
    """Returns when the client has closed the connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _stream(objects: AsyncIterator[answers.Object]) -> Response:
    return StreamingResponse(
        _events(objects), media_type="text/event-stream", headers={"Cache-Control": "no-cache"}
    )


async def _events(objects: AsyncIterator[answers.Object]) -> AsyncIterator[str]:
    """Events of a stream; an error is one of them, since the status was sent already."""
    waiting: asyncio.Future[answers.Object] | None = None
    try:
        while True:
            waiting = asyncio.ensure_future(anext(objects))
            while not (await asyncio.wait((waiting,), timeout=BEAT_S))[0]:
                yield answers.BEAT
            try:
                yield answers.event(waiting.result())
            except StopAsyncIteration:
                break
            except EngineError as error:
                yield answers.event(answers.failure(answers.status_of(error), str(error)))
                return
            except Exception:
                log.exception("a request failed")
                yield answers.event(answers.failure(500, "unexpected: see the gateway's log"))
                return
        yield answers.DONE
    finally:  # the client may have left
        if waiting is not None and not waiting.done():
            waiting.cancel()
            with contextlib.suppress(asyncio.CancelledError, StopAsyncIteration, EngineError):
                await waiting


async def _whole(work: Callable[[CancelToken], answers.Object]) -> AsyncIterator[answers.Object]:
    """A stream of the one object that the work makes."""
    cancel = CancelToken()
    try:
        yield await asyncio.to_thread(work, cancel)
    finally:
        cancel.cancel()


async def _missing(request: Request, error: Exception) -> Response:
    status = getattr(error, "status_code", 404)
    paths = ", ".join(paths[-1] for paths, _, _ in _ROUTES)
    message = f"{request.method} {request.url.path} is not served here; these are: {paths}"
    return JSONResponse(answers.failure(status, message), status)
