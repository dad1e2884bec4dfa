"""What a forked child does: runs the check and says on a pipe how it went.

Loaded by path beside `server.py`; standard library and the user's pytest, syntax of Python 3.8.
Every event is one line of JSON with a key "e": start, phase, collect, error, timeout, modules,
bucket, file, exit.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import json
import os
import random
import runpy
import signal
import sys
import traceback
from types import FrameType, ModuleType
from typing import Any

_HERE = os.path.dirname(os.path.abspath(__file__))
_MAX_FRAMES = 64
_MAX_MESSAGE = 2000
_NEVER_PRELOADED = ("gevent", "eventlet", "grpc", "twisted.internet", "conftest")


def _sibling(name: str) -> Any:
    private = "_clover_" + name
    if private not in sys.modules:
        path = os.path.join(_HERE, name + ".py")
        spec = importlib.util.spec_from_file_location(private, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[private] = module
        spec.loader.exec_module(module)
    return sys.modules[private]


paths = _sibling("paths")
_state: dict[str, Any] = {}


# --- in the server ----------------------------------------------------------------------------


def prepare(config: dict[str, Any]) -> dict[str, Any]:
    """Sets up the import system and imports the test framework; says what it found."""
    mapper = paths.Mapper(config["worktree"], config["original_root"], config["cwd"])
    _state["mapper"] = mapper
    sys.dont_write_bytecode = True
    if config["kind"] in ("command", "lint"):
        paths.export(mapper)
    else:
        paths.install(mapper, [mapper.translate(p) for p in config["first"]])
    ready: dict[str, Any] = {"version": list(sys.version_info[:3]), "error": ""}
    try:
        if config["kind"] == "pytest":
            _prepare_pytest(config)
        elif config["kind"] == "python":
            import unittest.main  # noqa: F401
    except Exception as error:  # anything may happen at import; the runner words it
        ready["error"] = f"{type(error).__name__}: {error}"
    _state["known"] = set(sys.modules)
    ready["here"] = paths.loaded_files(mapper)[0]
    return ready


def _prepare_pytest(config: dict[str, Any]) -> None:
    import pytest

    args = list(config["args"])
    at = args.index("--") if "--" in args else len(args)
    config["args"] = [*args[:at], "-p", "no:randomly", *args[at:]]
    main = ModuleType("__main__")
    main.__file__ = os.path.join(os.path.dirname(pytest.__file__), "__main__.py")
    main.__spec__ = importlib.util.find_spec("pytest.__main__")
    _state["main"] = main


def preload(modules: list[str]) -> int:
    """Imports installed modules that the check will want; failures do not matter."""
    count = 0
    for name in modules:
        if name.startswith(_NEVER_PRELOADED) or name in sys.modules:
            continue
        try:
            importlib.import_module(name)
            count += 1
        except BaseException:  # noqa: B036 - a module may even call sys.exit
            sys.modules.pop(name, None)
    _state["known"] = set(sys.modules)
    return count


# --- in a child -------------------------------------------------------------------------------


def execute(config: dict[str, Any], job: dict[str, Any], stem: Any = None) -> None:
    """Does the job and ends the process; with a stem, jobs come later and in many forks."""
    runs = {"pytest": _run_pytest, "python": _run_python}
    run = runs.get(config["kind"], _run_command)
    run(config, job, stem)


def reseed() -> None:
    """Forks must not share their random numbers."""
    random.seed()
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()


class Report:
    """The child's side of the pipe."""

    def __init__(self, job: dict[str, Any]) -> None:
        self.pipe: int = job["pipe"]
        self.current = ""
        self.tracer: Any = None
        self.job = job
        if job["graceful"]:
            signal.signal(signal.SIGPROF, self._on_timeout)
        if job["trace"]:
            self.tracer = _sibling("trace").Tracer(job["trace"], _state["mapper"], self.emit)

    def emit(self, **event: Any) -> None:
        data = json.dumps(event).encode("ascii", "backslashreplace") + b"\n"
        while data:
            data = data[os.write(self.pipe, data) :]

    def switch(self, nodeid: str, importing: bool = False) -> None:
        self.current = nodeid
        if self.tracer is not None:
            self.tracer.switch(("import:" if importing else "") + nodeid)

    def _on_timeout(self, _: int, frame: FrameType | None) -> None:
        found = []
        while frame is not None:
            found.append((frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
            frame = frame.f_back
        self.emit(e="timeout", id=self.current, frames=_frames(found[::-1]))
        self.leave(124)

    def leave(self, code: int) -> None:
        """Ends this process at once, after what it printed is written."""
        if self.tracer is not None:
            self.tracer.stop()
        if self.job["modules"]:
            mapper = _state["mapper"]
            here, outside = paths.loaded_files(mapper)
            names = paths.preloadable(mapper, _state["known"])
            twins = paths.installed_twins(mapper, _state["known"])
            self.emit(e="modules", names=names, outside=outside, here=here, installed=twins)
        for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
            try:
                stream.flush()  # type: ignore[union-attr]
            except Exception:  # a test may have closed or replaced it
                continue
        self.emit(e="exit", code=code)
        os._exit(code)


def describe(error: BaseException, tb: Any) -> dict[str, Any]:
    """Type, message and the frames inside the worktree, outermost first."""
    found = []
    while tb is not None:
        code = tb.tb_frame.f_code
        found.append((code.co_filename, tb.tb_lineno, code.co_name))
        tb = tb.tb_next
    if isinstance(error, SyntaxError) and error.filename:
        found.append((error.filename, error.lineno or 1, "<module>"))
    try:
        message = str(error)
    except Exception:  # the error's own code may be what is broken
        message = ""
    return {
        "kind": type(error).__name__,
        "message": message[:_MAX_MESSAGE],
        "frames": _frames(found),
    }


def _frames(entries: list[Any]) -> list[Any]:
    kept = []
    for filename, line, name in entries:
        path = _state["mapper"].relative(filename)
        if path is not None:
            kept.append([path, line, name])
    if len(kept) > _MAX_FRAMES:
        kept = kept[: _MAX_FRAMES // 2] + kept[-_MAX_FRAMES // 2 :]
    return kept


def _run_command(config: dict[str, Any], job: dict[str, Any], stem: Any) -> None:
    for name in ("SIGPIPE", "SIGXFSZ"):
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    if job["programs"]:
        os.environ["CLOVER_PROGRAMS"] = job["programs"]
        os.environ["CLOVER_PROGRAMS_ROOT"] = config["worktree"]
        path = [os.path.join(_HERE, "hook"), os.environ.get("PYTHONPATH", "")]
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, path))
    try:
        os.execvp(config["argv"][0], config["argv"])
    except OSError as error:
        os.write(2, f"{config['argv'][0]}: {error}\n".encode())
        os._exit(127)


def _run_python(config: dict[str, Any], job: dict[str, Any], stem: Any) -> None:
    reseed()
    report = Report(job)
    sys.dont_write_bytecode = not job["write_bytecode"]
    watch_unittest(report, job)
    args = config["args"]
    report.switch("")
    if report.tracer is not None:
        report.tracer.start()
    try:
        if args[0] == "-m":
            sys.argv = args[1:]
            runpy.run_module(args[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = list(args)
            runpy.run_path(args[0], run_name="__main__")
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        if code and not isinstance(stop.code, int):
            print(stop.code, file=sys.stderr)
    except BaseException as error:  # noqa: B036 - the program's own end
        report.emit(e="error", id="", **describe(error, error.__traceback__))
        traceback.print_exc()
        code = 1
    _wait_for_threads()
    report.leave(code & 255)


def _wait_for_threads() -> None:
    """What an interpreter does at its end."""
    import atexit
    import threading

    for module, name in ((threading, "_shutdown"), (atexit, "_run_exitfuncs")):
        try:
            getattr(module, name)()
        except Exception:  # as the interpreter: report and go on
            traceback.print_exc()


def watch_unittest(report: Report, job: dict[str, Any]) -> None:
    """Makes `unittest`'s text runner say which tests ran and what failed."""
    import unittest
    from unittest.runner import TextTestResult, TextTestRunner

    select, done = set(job["select"] or ()), set(job["deselect"] or ())

    class Watched(TextTestResult):
        def startTest(self, test: Any) -> None:
            report.switch(test.id())
            report.emit(e="start", id=test.id())
            super().startTest(test)

        def stopTest(self, test: Any) -> None:
            super().stopTest(test)
            report.switch("", importing=True)

        def addSuccess(self, test: Any) -> None:
            super().addSuccess(test)
            report.emit(e="phase", id=test.id(), when="call", outcome="passed", duration=0.0)

        def addSkip(self, test: Any, reason: str) -> None:
            super().addSkip(test, reason)
            report.emit(e="phase", id=test.id(), when="call", outcome="skipped", duration=0.0)

        def addFailure(self, test: Any, err: Any) -> None:
            super().addFailure(test, err)
            self._failed(test, err)

        def addError(self, test: Any, err: Any) -> None:
            super().addError(test, err)
            self._failed(test, err)

        def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:
            super().addSubTest(test, subtest, err)
            if err is not None:
                self._failed(test, err)

        def _failed(self, test: Any, err: Any) -> None:
            said = describe(err[1], err[2])
            report.emit(
                e="phase", id=test.id(), when="call", outcome="failed", duration=0.0, **said
            )
            if job["maxfail"]:
                self.stop()

    original = unittest.TestCase.run

    def run(self: Any, result: Any = None) -> Any:
        if self.id() in done or (select and self.id() not in select):
            return result
        return original(self, result)

    TextTestRunner.resultclass = Watched  # type: ignore[assignment]
    unittest.TestCase.run = run  # type: ignore[method-assign]


def _run_pytest(config: dict[str, Any], job: dict[str, Any], stem: Any) -> None:
    import pytest

    sys.modules["__main__"] = _state["main"]
    sys.argv = ["pytest"] + config["args"]
    plugin = _sibling("pytest_plugin").Plugin(job, stem, sys.modules[__name__], _state["mapper"])
    args = list(config["args"])
    if stem is not None:
        at = args.index("--") if "--" in args else len(args)
        args[at:at] = ["--capture=no"]
    else:
        plugin.begin(job)
    code = pytest.main(args, plugins=[plugin])
    if plugin.report is None:  # a stem that never came to its stage
        os._exit(71)
    gc.disable()
    plugin.report.leave(int(code))
