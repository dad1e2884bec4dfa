"""pygls's protocol with the behaviour that a server under load needs.

Differences: every malformed request is answered; requests that are cancelled later in the same
backlog never start; a handler's synchronous part (its snapshot) runs before the next message is
looked at, an awaitable that it returns runs afterwards; documents are ours (`documents.py`);
methods that `lsprotocol` does not know get their `params` as plain JSON values.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from typing import Any

from cattrs import Converter
from lsprotocol import types
from pygls.exceptions import JsonRpcException, JsonRpcInvalidParams
from pygls.protocol import LanguageServerProtocol, default_converter, lsp_method
from pygls.protocol.json_rpc import (
    JsonRPCNotification,
    JsonRPCRequestMessage,
    JsonRPCResponseMessage,
)

log = logging.getLogger(__name__)

UINTEGER_MAX = 2**31 - 1
_Handler = Generator[Any, Any, None]
PARSE_ERROR = types.ErrorCodes.ParseError
INVALID_REQUEST = types.ErrorCodes.InvalidRequest
INVALID_PARAMS = types.ErrorCodes.InvalidParams
NOT_INITIALIZED = types.ErrorCodes.ServerNotInitialized
CANCELLED = types.LSPErrorCodes.RequestCancelled


def make_converter() -> Converter:
    """pygls's converter, but positions outside of the protocol's numbers are moved inside: clients
    send the largest number they have for "the end of the line"."""
    converter: Converter = default_converter()  # type: ignore[no-untyped-call]
    converter.register_structure_hook(types.Position, _position)
    return converter


def _position(raw: Any, _: object) -> types.Position:
    return types.Position(_uinteger(raw["line"]), _uinteger(raw["character"]))


def _uinteger(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        raise ValueError(f"not a number of lines or characters: {value!r}")
    return int(min(max(value, 0), UINTEGER_MAX))


class CloverProtocol(LanguageServerProtocol):
    """See the module. `receive` takes messages as parsed JSON, in the order of arrival."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.client_capabilities = types.ClientCapabilities()
        self.initialized = False
        self.exit_code: int | None = None
        """Set by `exit`: 0 after `shutdown`, else 1."""

    def receive(self, messages: Sequence[object]) -> None:
        """Handles a backlog of messages; never raises."""
        cancelled = {_cancelled_id(message) for message in messages} - {None}
        for message in messages:
            try:
                self._receive(message, cancelled)
            except Exception:
                log.exception("cannot handle a message")

    def refuse(self, number: object, code: int, reason: str) -> None:
        """Answers a request (or, with None, something that is none) with an error."""
        error = types.ResponseError(code=code, message=reason)
        known = number if isinstance(number, int | str) else None
        self._send_data(types.ResponseErrorMessage(id=known, error=error))

    def _receive(self, message: object, cancelled: set[int | str | None]) -> None:
        if not isinstance(message, dict):
            self.refuse(None, INVALID_REQUEST, "a message is one JSON object")
            return
        number, method = message.get("id"), message.get("method")
        if message.get("jsonrpc") != self.VERSION:
            self._refuse_request(message, INVALID_REQUEST, 'every message has "jsonrpc": "2.0"')
        elif method is None and number is not None:
            self._receive_response(message)
        elif not isinstance(method, str):
            self._refuse_request(message, INVALID_REQUEST, "a message names its method")
        elif "id" in message and not _is_id(number):
            self.refuse(None, INVALID_REQUEST, "an id is a number or a string")
        elif number is not None and _is_notification(method):
            self.refuse(number, INVALID_REQUEST, f"{method} is a notification: send it without id")
        elif not self._is_allowed(method):
            self._refuse_early(message)
        elif number is not None and number in cancelled:
            self.refuse(number, CANCELLED, "cancelled before it began")
        else:
            self._dispatch(message)

    def _is_allowed(self, method: str) -> bool:
        if self._shutdown:
            return method == types.EXIT
        if self.initialized:
            return method != types.INITIALIZE
        return method in (types.INITIALIZE, types.EXIT)

    def _refuse_early(self, message: dict[str, Any]) -> None:
        if self._shutdown:
            self._refuse_request(message, INVALID_REQUEST, "the server is shutting down")
        elif self.initialized:
            self._refuse_request(message, INVALID_REQUEST, "the server is initialized already")
        else:
            self._refuse_request(message, NOT_INITIALIZED, "send `initialize` first")

    def _refuse_request(self, message: dict[str, Any], code: int, reason: str) -> None:
        if "id" in message:
            self.refuse(message["id"], code, reason)
        else:
            log.warning("ignored %s: %s", str(message.get("method"))[:100], reason)

    def _dispatch(self, message: dict[str, Any]) -> None:
        try:
            built = self.structure_message(message)
        except JsonRpcException:
            method = str(message["method"])[:100]
            self._refuse_request(message, INVALID_PARAMS, f"the params of {method} are malformed")
            return
        if message["method"] == types.INITIALIZE:
            self.initialized = True
        self.handle_message(built)

    def _receive_response(self, message: dict[str, Any]) -> None:
        try:
            self.handle_message(self.structure_message(message))
        except Exception as error:
            future = self._request_futures.pop(message["id"], None)
            if future is not None and not future.done():
                future.set_exception(error)

    def structure_message(self, data: dict[str, Any]) -> Any:
        """The typed message; raises `JsonRpcException` where it does not fit its method."""
        method, number = data.get("method"), data.get("id")
        if method is None:
            kind = types.ResponseErrorMessage if "error" in data else None
            kind = kind or self._result_types.pop(number, None)  # type: ignore[arg-type]
            if kind is None:
                return JsonRPCResponseMessage(number, self.VERSION, data.get("result"))  # type: ignore[arg-type]
        else:
            kind = self.get_message_type(method)
            params = data.get("params")
            if kind is None and "id" in data:
                return JsonRPCRequestMessage(data["id"], method, self.VERSION, params)
            if kind is None:
                return JsonRPCNotification(method, self.VERSION, params)
        try:
            return self._converter.structure(data, kind)
        except Exception as error:  # cattrs raises groups of whatever its hooks raise
            raise JsonRpcInvalidParams() from error

    def _execute_handler(
        self,
        msg_id: int | str,
        handler: Callable[..., Any],
        callback: Callable[[Future[Any]], None],
        args: tuple[Any, ...] | None = None,
        kwargs: dict[str, Any] | None = None,
    ) -> None:
        if inspect.isgeneratorfunction(handler):
            super()._execute_handler(msg_id, handler, callback, args, kwargs)
            return
        future: Any = Future()
        try:
            result = handler(*(args or ()), **(kwargs or {}))
        except Exception as error:
            future.add_done_callback(callback)
            future.set_exception(error)
            return
        if inspect.isawaitable(result):
            future = asyncio.ensure_future(result)
            self._request_futures[msg_id] = future
            future.add_done_callback(lambda done: self._forget(msg_id, done))
            future.add_done_callback(callback)
        else:
            future.add_done_callback(callback)
            future.set_result(result)

    def _send_handler_result(self, future: Future[Any], *, msg_id: int | str) -> None:
        self._request_futures.pop(msg_id, None)
        if future.cancelled():
            self.refuse(msg_id, CANCELLED, "cancelled")
        elif (error := future.exception()) is None:
            self._send_response(msg_id, future.result())
        elif isinstance(error, JsonRpcException):
            log.info("request refused: %s", error)
            self._send_response(msg_id, error=error.to_response_error())
        else:
            log.error("a request failed", exc_info=error)
            reason = f"{type(error).__name__}: {error}; see the server's log"
            self.refuse(msg_id, types.ErrorCodes.InternalError, reason)

    def _check_handler_result(self, future: Future[Any]) -> None:
        if future.cancelled() or (error := future.exception()) is None:
            return
        if isinstance(error, JsonRpcException):
            log.warning("notification ignored: %s", error)
        else:
            log.error("a notification failed", exc_info=error)

    async def settle(self, timeout_s: float) -> None:
        """Lets requests that `shutdown` cancelled be answered."""
        futures: list[Any] = list(self._request_futures.values())
        open_: set[asyncio.Future[Any]] = {f for f in futures if isinstance(f, asyncio.Future)}
        if open_:
            await asyncio.wait(open_, timeout=timeout_s)

    def _forget(self, msg_id: int | str, future: Any) -> None:
        """Nothing else removes what notifications and generators started."""
        if self._request_futures.get(msg_id) is future:
            del self._request_futures[msg_id]

    def _handle_response(
        self, msg_id: Any, result: Any | None = None, error: types.ResponseError | None = None
    ) -> None:
        future = self._request_futures.get(msg_id)
        if future is not None and future.done():
            # Our own request was given up meanwhile (pygls raises InvalidStateError here).
            del self._request_futures[msg_id]
            self._result_types.pop(msg_id, None)
            return
        super()._handle_response(msg_id, result, error)

    @lsp_method(types.EXIT)
    def lsp_exit(self, *args: Any) -> _Handler:
        """Asks the session to end; the session closes streams and the process."""
        self.exit_code = 0 if self._shutdown else 1
        yield from ()

    @lsp_method(types.SHUTDOWN)
    def lsp_shutdown(self, *args: Any) -> _Handler:
        """Cancels everything else in flight; `exit` follows."""
        self._shutdown = True
        for number, future in list(self._request_futures.items()):
            if number != self.msg_id:
                future.cancel()
        yield from ()

    def _to_feature(self, name: str, params: Any) -> _Handler:
        handler = self.fm.features.get(name)
        if handler is not None:
            yield handler, (params,), None

    @lsp_method(types.TEXT_DOCUMENT_DID_OPEN)
    def lsp_text_document__did_open(self, params: types.DidOpenTextDocumentParams) -> _Handler:
        yield from self._to_feature(types.TEXT_DOCUMENT_DID_OPEN, params)

    @lsp_method(types.TEXT_DOCUMENT_DID_CHANGE)
    def lsp_text_document__did_change(self, params: types.DidChangeTextDocumentParams) -> _Handler:
        yield from self._to_feature(types.TEXT_DOCUMENT_DID_CHANGE, params)

    @lsp_method(types.TEXT_DOCUMENT_DID_CLOSE)
    def lsp_text_document__did_close(self, params: types.DidCloseTextDocumentParams) -> _Handler:
        yield from self._to_feature(types.TEXT_DOCUMENT_DID_CLOSE, params)

    @lsp_method(types.NOTEBOOK_DOCUMENT_DID_OPEN)
    def lsp_notebook_document__did_open(
        self, params: types.DidOpenNotebookDocumentParams
    ) -> _Handler:
        yield from self._to_feature(types.NOTEBOOK_DOCUMENT_DID_OPEN, params)

    @lsp_method(types.NOTEBOOK_DOCUMENT_DID_CHANGE)
    def lsp_notebook_document__did_change(
        self, params: types.DidChangeNotebookDocumentParams
    ) -> _Handler:
        yield from self._to_feature(types.NOTEBOOK_DOCUMENT_DID_CHANGE, params)

    @lsp_method(types.NOTEBOOK_DOCUMENT_DID_CLOSE)
    def lsp_notebook_document__did_close(
        self, params: types.DidCloseNotebookDocumentParams
    ) -> _Handler:
        yield from self._to_feature(types.NOTEBOOK_DOCUMENT_DID_CLOSE, params)

    @lsp_method(types.WORKSPACE_DID_CHANGE_WORKSPACE_FOLDERS)
    def lsp_workspace__did_change_workspace_folders(
        self, params: types.DidChangeWorkspaceFoldersParams
    ) -> _Handler:
        yield from self._to_feature(types.WORKSPACE_DID_CHANGE_WORKSPACE_FOLDERS, params)


def _is_id(value: object) -> bool:
    return isinstance(value, int | str) and not isinstance(value, bool)


def _is_notification(method: str) -> bool:
    known = types.METHOD_TO_TYPES.get(method)
    return known is not None and known[1] is None


def _cancelled_id(message: object) -> int | str | None:
    if not isinstance(message, dict) or message.get("method") != types.CANCEL_REQUEST:
        return None
    params = message.get("params")
    number = params.get("id") if isinstance(params, dict) else None
    return number if isinstance(number, int | str) else None
