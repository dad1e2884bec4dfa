"""How sessions begin and end, and what is answered to messages that are wrong."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from lsprotocol import types

from clover_lsp.connection.processes import _is_alive_on_windows, is_alive
from clover_lsp.connection.transport import FrameError, parse, read_frame

CLIENT, FUZZ = sys.modules["lsp_client"], sys.modules["lsp_fuzz"]


def frames(data: bytes) -> list[bytes]:
    stream, found = io.BytesIO(data), []
    while (body := read_frame(stream)) is not None:
        found.append(body)
    return found


@pytest.mark.parametrize(
    "header",
    [
        b"Content-Length: 2\r\n\r\n",
        b"content-length:2\r\n\r\n",
        b"Content-Type: x\r\nContent-Length: 2\r\n\r\n",
        b"Content-Length: 2\n\n",
        b"\r\nnoise from a shell\r\n\r\nContent-Length: 2\r\n\r\n",
    ],
)
def test_headers(header: bytes) -> None:
    assert frames(header + b"{}" + header + b"[]") == [b"{}", b"[]"]


def test_a_torn_message_ends_the_stream() -> None:
    assert frames(b"Content-Length: 20\r\n\r\n{}") == []
    assert frames(b"Content-Length: 999999999999\r\n\r\n{}") == []


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[" * 100_000])
def test_no_json(body: bytes) -> None:
    with pytest.raises(FrameError):
        parse(body)


def test_processes() -> None:
    assert is_alive(os.getpid()) and not is_alive(-1) and not is_alive(0)
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    assert not is_alive(gone.pid)


@pytest.fixture
def raw(tmp_path: Path) -> Any:
    server = FUZZ.RawServer("utf-16", tmp_path)
    yield server
    server.process.kill()
    server.process.wait()
    server.process.stdin.close()
    server.process.stdout.close()


def error_code(server: Any, method: str, params: Any) -> int:
    return int(server.ask(method, params)["error"]["code"])


def test_wrong_messages_are_answered(raw: Any) -> None:
    assert error_code(raw, "initialize", {}) == -32600
    assert error_code(raw, "no/such/method", {}) == -32601
    assert error_code(raw, "textDocument/inlineCompletion", {"position": 7}) == -32602
    assert error_code(raw, "workspace/executeCommand", {"command": "no.such"}) == -32602
    for junk in FUZZ.JUNK:
        raw.raw(junk)
    assert raw.text("untitled:nobody") is None
    raw.close()


def test_nothing_before_initialize(servers: Any) -> None:
    editor = servers(say_hello=False)
    error = editor.send("clover/status", None).exception(CLIENT.WAIT_S)
    assert error is not None and error.code == -32002
    editor.hello()
    assert editor.stop() == 0


@pytest.mark.parametrize("transport", ["stdio", "tcp"])
def test_shutdown_while_the_model_works(servers: Any, transport: str) -> None:
    """41, pygls#433: shutdown must not wait for what is running."""
    editor = servers(transport, settings={"completion": {"debounceMs": 0}})
    editor.script.set(default="a b c d e f g h i j k l m n o p", step_s=5.0)
    uri = editor.open("untitled:a.py", "x = ")
    pending = editor.ask(uri)
    editor.script.wait_for("begin")
    worker = children(editor.pid)
    assert worker
    assert editor.stop() == 0
    assert pending.exception(CLIENT.WAIT_S) is not None
    CLIENT.until(lambda: not any(is_alive(pid) for pid in worker))


def children(pid: int) -> list[int]:
    listed = Path(f"/proc/{pid}/task/{pid}/children")
    if not listed.exists():
        pytest.skip("needs /proc")
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [int(p) for task in tasks for p in (task / "children").read_text().split()]


def test_after_shutdown_only_exit(servers: Any) -> None:
    editor = servers()
    editor.run(editor.client.shutdown_async(None))
    error = editor.send("clover/status", None).exception(CLIENT.WAIT_S)
    assert error is not None and error.code == -32600
    editor.notify(types.EXIT, None)
    assert editor.wait() == 0


def test_exit_without_shutdown_is_1(servers: Any) -> None:
    editor = servers()
    editor.notify(types.EXIT, None)
    assert editor.wait() == 1


@pytest.mark.parametrize("transport", ["stdio", "tcp"])
def test_39_41_a_client_that_goes_away_is_no_error(servers: Any, transport: str) -> None:
    """copilot.lua#620: exit code 1 disabled the server for good."""
    editor = servers(transport)
    editor.open("untitled:a.py", "x = ")
    CLIENT.until(lambda: children(editor.pid))
    workers = children(editor.pid)
    editor.run(CLIENT.later(editor.client.protocol.writer.close))
    assert editor.wait() == 0
    CLIENT.until(lambda: not any(is_alive(pid) for pid in workers))


def test_41_the_server_of_a_killed_client_ends(tmp_path: Path) -> None:
    """The client dies, but another process still holds its end of the pipe."""
    answers = tmp_path / "answers"
    code = (
        "import subprocess, sys, time\n"
        "server = subprocess.Popen([sys.executable, '-m', 'clover_code', 'lsp'],"
        " stdin=0, stdout=open(sys.argv[1], 'wb'))\n"
        "print(server.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    reading, writing = os.pipe()
    client = subprocess.Popen(
        [sys.executable, "-c", code, str(answers)],
        stdin=reading,
        stdout=subprocess.PIPE,
        env=CLIENT.environment(tmp_path, None),
    )
    assert client.stdout is not None
    server = int(client.stdout.readline())
    hello = {"processId": client.pid, "rootUri": None, "capabilities": {}}
    message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
    body = json.dumps(message).encode()
    os.write(writing, b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
    try:
        CLIENT.until(lambda: b"capabilities" in answers.read_bytes())
        assert is_alive(server)
    finally:
        client.send_signal(signal.SIGKILL)
        client.wait()
        client.stdout.close()
    CLIENT.until(lambda: not is_alive(server))
    os.close(writing)
    os.close(reading)


class Windows:
    """As much of the Windows API as one question takes."""

    def __init__(self, code: int | None, error: int = 87) -> None:
        self.code, self.error, self.closed = code, error, 0

    def OpenProcess(self, access: int, inherit: bool, process: int) -> int:
        assert (access, inherit) == (0x1000, False)
        return 0 if self.code is None else 77

    def GetLastError(self) -> int:
        return self.error

    def GetExitCodeProcess(self, handle: Any, code: Any) -> int:
        code._obj.value = self.code
        return 1

    def CloseHandle(self, handle: Any) -> None:
        self.closed += 1


@pytest.mark.parametrize(
    "windows,alive",
    [(Windows(259), True), (Windows(0), False), (Windows(None), False), (Windows(None, 5), True)],
)
def test_on_windows_a_process_is_asked_after_without_a_signal(
    windows: Windows, alive: bool
) -> None:
    """Running, ended, gone, and another user's."""
    assert _is_alive_on_windows(4321, windows) is alive
    assert windows.closed == (windows.code is not None)
