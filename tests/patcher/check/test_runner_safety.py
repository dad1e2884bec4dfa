"""Checks and candidates that hang, crash, flood, fork, or reach for what is not theirs."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
import venv
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from clover_patcher.check.command import Check
from clover_patcher.check.prepared import View
from clover_patcher.check.runner import ProgramRunner
from clover_patcher.types import Edit, Outcome

PROGRAM = "def value():\n    return 1\n"
TESTS = "import program\n\n\ndef test_value():\n    assert program.value() == 2\n"
Start = Callable[..., ProgramRunner]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Writes files into a tree and starts a runner there; all are closed at the end."""
    tmp = tmp_path / "tmp"
    tmp.mkdir()
    runners: list[ProgramRunner] = []

    def begin(
        files: dict[str, str],
        arguments: str = "-m pytest -q",
        python: str = sys.executable,
        **more: object,
    ) -> ProgramRunner:
        tree = tmp_path / "tree"
        _write(tree, files)
        check = Check.parse(f"{python} {arguments}", tree)
        runners.append(ProgramRunner(check, tree, tmp=tmp, **more))  # type: ignore[arg-type]
        return runners[-1]

    yield begin
    for runner in runners:
        runner.close()


def _write(tree: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(textwrap.dedent(text))


def _body(runner: ProgramRunner, code: str) -> Edit:
    """Replaces the body of `value`."""
    data = (runner.worktree / "program.py").read_bytes()
    at = data.index(b"    return 1")
    return Edit(
        "program.py", at, len(data), textwrap.indent(textwrap.dedent(code), "    ").encode()
    )


def _kinds(outcome: Outcome) -> dict[str, str]:
    return {failure.nodeid: failure.kind for failure in outcome.failures}


def _processes(marker: str) -> list[str]:
    found = []
    for pid in os.listdir("/proc"):
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if marker.encode() in command:
            found.append(pid)
    return found


def _gone(marker: str) -> bool:
    """Whether all processes with the marker end within a moment."""
    end = time.monotonic() + 3
    while _processes(marker) and time.monotonic() < end:
        time.sleep(0.05)
    return not _processes(marker)


# --- checks -----------------------------------------------------------------------------------


def test_a_hanging_test_is_named_and_the_others_run(start: Start) -> None:
    files = {
        "program.py": "def spin(n):\n    while n:\n        n -= 2\n    return n\n",
        "test_a.py": """\
            import program

            def test_before():
                assert program.spin(2) == 0

            def test_hang():
                assert program.spin(3) == 0

            def test_after():
                assert program.spin(4) == 0
            """,
    }
    runner = start(files, timeout_s=3.0)
    outcome = runner.baseline()
    assert (outcome.status, outcome.passed) == ("timeout", 2)
    assert _kinds(outcome) == {"test_a.py::test_hang": "timeout"}
    assert outcome.failures[0].frames[-1].function == "spin"
    assert runner.baseline().signature == outcome.signature
    found = {c.nodeid: c for c in runner.trace()}
    assert {("program.py", 2), ("program.py", 3)} <= found["test_a.py::test_hang"].lines
    assert ("program.py", 4) not in found["test_a.py::test_hang"].lines
    assert ("program.py", 4) in found["test_a.py::test_after"].lines
    edit = Edit("program.py", 22, 23, b"n > 0")
    assert runner.run([edit]).status == "failed", "spin(3) is -1 then"


def test_many_hanging_tests_do_not_take_for_ever(start: Start) -> None:
    tests = """\
        import pytest

        @pytest.mark.parametrize("n", range(30))
        def test_hang(n):
            while True:
                pass
        """
    runner = start({"test_a.py": tests}, timeout_s=0.5)
    outcome = runner.baseline()
    assert (outcome.status, len(outcome.failures)) == ("timeout", 3)
    assert runner.baseline().signature == outcome.signature


def test_a_hang_outside_python_code(start: Start) -> None:
    """A signal handler cannot run while a library call goes on for ever."""
    tests = """\
        import re

        def test_hang():
            re.match("(a|aa)+$", "a" * 60 + "b")

        def test_after():
            pass
        """
    outcome = start({"test_a.py": tests}, timeout_s=2.0).baseline()
    assert _kinds(outcome) == {"test_a.py::test_hang": "timeout"}
    assert outcome.passed == 1


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("os._exit(0)", "exit 0"),
        ("os._exit(3)", "exit 3"),
        ("ctypes.string_at(0)", "SIGSEGV"),
        ("os.abort()", "SIGABRT"),
        ("os.kill(os.getpid(), 9)", "SIGKILL"),
    ],
)
def test_a_crashing_test_is_named_and_the_others_run(start: Start, code: str, kind: str) -> None:
    tests = f"""\
        import ctypes, os

        def test_before():
            pass

        def test_crash():
            {code}

        def test_after():
            pass
        """
    runner = start({"test_a.py": tests})
    outcome = runner.baseline()
    assert _kinds(outcome) == {"test_a.py::test_crash": kind}
    assert (outcome.status, outcome.passed) == ("failed", 2)
    assert runner.run([]).status == "failed"
    assert not list(runner.worktree.glob("core*"))


# --- candidates -------------------------------------------------------------------------------


def test_harmful_candidates_fail_and_leave_no_trace(start: Start) -> None:
    runner = start({"program.py": PROGRAM, "test_program.py": TESTS})
    runner.baseline()
    node = "test_program.py::test_value"
    run = lambda code: _kinds(runner.run([_body(runner, code)]))  # noqa: E731
    assert run("while True: pass") == {node: "timeout"}
    assert run("import time; time.sleep(60)") == {node: "timeout"}
    assert run("import os; os._exit(0)") == {node: "exit 0"}
    assert run("import ctypes; ctypes.string_at(0)") == {node: "SIGSEGV"}
    assert run("import sys; sys.exit(0)") == {node: "SystemExit"}
    assert run("raise KeyboardInterrupt") != {}
    assert run("return input()") == {node: "EOFError"}
    assert run("return value()") == {node: "RecursionError"}
    assert run("x = []\nwhile True: x.append(bytearray(1 << 28))") in (
        {node: "MemoryError"},
        {node: "timeout"},
    )
    assert run("return 2") == {}
    assert (runner.worktree / "program.py").read_text() == PROGRAM


def test_a_hang_while_importing(start: Start) -> None:
    runner = start({"program.py": PROGRAM, "test_program.py": TESTS})
    runner.baseline()
    started = time.monotonic()
    outcome = runner.run([Edit("program.py", 0, 0, b"while True: pass\n")])
    assert (outcome.status, list(_kinds(outcome).values())) == ("timeout", ["timeout"])
    assert time.monotonic() - started < 10 * runner.limit_s + 2


def test_limits_follow_the_baseline(start: Start) -> None:
    runner = start({"program.py": PROGRAM, "test_program.py": TESTS})
    runner.baseline()
    assert 1.5 <= runner.limit_s <= 10
    assert 0.5 <= runner.cpu_limit_s <= runner.limit_s
    slow = start({"program.py": PROGRAM, "test_program.py": TESTS}, timeout_s=7.0)
    assert slow.limit_s == 7.0


def test_output_floods_are_cut(start: Start) -> None:
    runner = start({"program.py": PROGRAM, "test_program.py": TESTS})
    runner.baseline()
    flood = "import os\nwhile True: os.write(1, b'x' * 1000000)"
    outcome = runner.run([_body(runner, flood)])
    assert outcome.status != "passed"
    assert len(outcome.output) <= 16 << 10
    flood = "for _ in range(20000): print('some text')\nreturn 3"
    outcome = runner.run([_body(runner, flood)])
    assert _kinds(outcome) == {"test_program.py::test_value": "AssertionError"}


def test_fork_bombs_are_stopped(start: Start) -> None:
    runner = start({"program.py": PROGRAM, "test_program.py": TESTS})
    runner.baseline()
    code = """\
        import os, time
        while True:
            try:
                os.fork()
            except OSError:
                time.sleep(0.01)
        """
    outcome = runner.run([_body(runner, code)])
    assert outcome.status != "passed"
    children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children")
    assert len(children.read_text().split()) < 20
    assert runner.run([_body(runner, "return 2")]).status == "passed"


def test_daemons_end_with_the_run(start: Start) -> None:
    runner = start({"program.py": PROGRAM, "test_program.py": TESTS})
    runner.baseline()
    marker = f"clover-daemon-{os.getpid()}"
    code = f"""\
        import subprocess, sys
        loop = "import time; time.sleep(60)"
        for _ in range(2):
            subprocess.Popen([sys.executable, "-c", loop, "{marker}"], start_new_session=True)
        return 2
        """
    assert runner.run([_body(runner, code)]).status == "passed"
    assert _gone(marker)


def test_processes_end_with_the_runner(start: Start) -> None:
    runner = start({"program.py": PROGRAM, "test_program.py": TESTS})
    runner.baseline()
    marker = str(runner.worktree)
    assert _processes(marker)
    runner.close()
    assert _gone(marker)


def test_processes_end_when_their_user_is_killed(tmp_path: Path) -> None:
    """Nobody is left to close anything: the server and what it runs notice by themselves."""
    marker = str(tmp_path / "tree")
    _write(Path(marker), {"test_a.py": "import time\n\n\ndef test_a():\n    time.sleep(60)\n"})
    program = f"""\
        from pathlib import Path
        from clover_patcher.check.command import Check
        from clover_patcher.check.runner import ProgramRunner

        tree = Path({marker!r})
        check = Check.parse({f"{sys.executable} -m pytest"!r}, tree)
        ProgramRunner(check, tree, timeout_s=50.0, tmp=tree.parent).baseline()
        """
    code = textwrap.dedent(program)
    with subprocess.Popen([sys.executable, "-c", code]) as process:
        end = time.monotonic() + 60
        while len(_processes(marker)) < 3 and time.monotonic() < end:  # it, a server, a run
            time.sleep(0.05)
        assert len(_processes(marker)) >= 3
        process.kill()
    assert _gone(marker)


def test_tests_may_write_files_and_use_temporary_folders(start: Start) -> None:
    tests = """\
        import program

        def test_value(tmp_path, monkeypatch, capsys):
            (tmp_path / "x").write_text("y")
            monkeypatch.chdir(tmp_path)
            print("hello")
            assert capsys.readouterr().out == "hello\\n"
            open("z", "w").close()
            assert program.value() == 2
        """
    runner = start({"program.py": PROGRAM, "test_program.py": tests})
    runner.baseline()
    assert runner.run([_body(runner, "return 3")]).status == "failed"
    assert runner.run([_body(runner, "return 2")]).status == "passed"
    assert not (runner.worktree / "z").exists()


def test_no_network_but_loopback(start: Start) -> None:
    tests = """\
        import socket, threading

        def test_loopback():
            server = socket.create_server(("127.0.0.1", 0))
            with socket.create_connection(server.getsockname(), 2):
                pass

        def test_outside():
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
                sock.connect(("192.0.2.1", 9))
        """
    runner = start({"test_net.py": tests})
    if not runner.isolated:
        assert runner.isolation_problem
        pytest.skip(f"this kernel does not isolate: {runner.isolation_problem}")
    assert _kinds(runner.baseline()) == {"test_net.py::test_outside": "OSError"}
    shared = start({}, view=View(network=True))
    assert not shared.isolated
    assert "asked" in shared.isolation_problem


def test_a_lost_server_is_replaced(start: Start) -> None:
    runner = start({"program.py": PROGRAM, "test_program.py": TESTS})
    runner.baseline()
    code = "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\nreturn 3"
    assert runner.run([_body(runner, code)]).status != "passed"
    assert runner.run([_body(runner, "return 2")]).status == "passed"
    assert (runner.worktree / "program.py").read_text() == PROGRAM


# --- imports ----------------------------------------------------------------------------------

_FINDER = """\
import importlib.util, sys

MAPPING = {{"package": {path!r}}}


class Finder:
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name not in MAPPING:
            return None
        init = MAPPING[name] + "/__init__.py"
        return importlib.util.spec_from_file_location(
            name, init, submodule_search_locations=[MAPPING[name]]
        )


def install():
    sys.meta_path.append(Finder)
"""


def _environment(folder: Path, lines: list[str], files: dict[str, str]) -> str:
    """A virtual environment that also sees the packages of the running one."""
    venv.create(folder, symlinks=True, with_pip=False)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "a.pth").write_text("\n".join([str(Path(pytest.__file__).parent.parent), *lines]))
    for name, text in files.items():
        (packages / name).write_text(text)
    return str(folder / "bin" / "python")


@pytest.mark.parametrize("style", ["path", "finder"])
def test_editable_installs_of_the_original_do_not_win(
    start: Start, tmp_path: Path, style: str
) -> None:
    files = {
        "src/package/__init__.py": "",
        "src/package/code.py": "def value():\n    return 1\n",
        "tests/test_it.py": """\
            import subprocess, sys
            from package import code
            from package import _generated

            def test_value():
                assert code.value() == 2

            def test_process():
                command = [sys.executable, "-c", "from package import code; print(code.value())"]
                assert subprocess.run(command, capture_output=True, text=True).stdout == "2\\n"

            def test_generated():
                assert _generated.VERSION == "1"
            """,
    }
    original = tmp_path / "original"
    _write(original, files)
    (original / "src" / "package" / "_generated.py").write_text("VERSION = '1'\n")
    source = str(original / "src")
    if style == "path":
        python = _environment(original / "venv", [source], {})
    else:
        finder = _FINDER.format(path=source + "/package")
        lines = ["import _editable_finder; _editable_finder.install()"]
        python = _environment(original / "venv", lines, {"_editable_finder.py": finder})
    runner = start(files, "-m pytest -q tests", python, original_root=original)
    outcome = runner.baseline()
    assert set(_kinds(outcome)) == {
        "tests/test_it.py::test_value",
        "tests/test_it.py::test_process",
    }
    assert runner.imported_outside == ()
    data = (runner.worktree / "src/package/code.py").read_bytes()
    at = data.index(b"1")
    edit = Edit("src/package/code.py", at, at + 1, b"2")
    assert runner.run([edit]).status == "passed"


def test_imports_from_the_original_are_reported(start: Start, tmp_path: Path) -> None:
    original = tmp_path / "original"
    files = {
        "program.py": PROGRAM,
        "test_program.py": f"""\
            import importlib.util, sys

            path = {str(original / "program.py")!r}
            spec = importlib.util.spec_from_file_location("program", path)
            program = sys.modules["program"] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(program)

            def test_value():
                assert program.value() == 2
            """,
    }
    _write(original, files)
    runner = start(files, original_root=original)
    runner.baseline()
    assert runner.imported_outside == ("program",)


def test_where_children_cannot_be_waited_for_without_reaping_them(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`os.waitid` is missing on macOS before Python 3.13."""
    (tmp_path / "site/sitecustomize.py").parent.mkdir()
    (tmp_path / "site/sitecustomize.py").write_text("import os\n\ndel os.waitid\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    marker = f"600.{os.getpid()}"
    spawn = f"import subprocess; subprocess.Popen(['sleep', '{marker}'])"
    runner = start({"program.py": PROGRAM, "test_program.py": TESTS}, timeout_s=2.0)
    assert runner.baseline().status == "failed"
    assert runner.run([_body(runner, "return 2")]).status == "passed"
    assert runner.run([_body(runner, "while True: pass")]).status == "timeout"
    assert runner.run([_body(runner, f"{spawn}\nreturn 2")]).status == "passed"
    assert _gone(marker)
    assert runner.run([_body(runner, "import os; os._exit(3)")]).status != "passed"
    assert runner.run([_body(runner, "return 3")]).status == "failed"
