"""Put on PYTHONPATH for one run of a command: each Python says at its end what it was and how it
ended, one line of JSON appended to the file that CLOVER_PROGRAMS names.

Standard library only, syntax of Python 3.8. The `sitecustomize` that this one hides is run too.
"""

from __future__ import annotations

import os
import sys
from typing import Any


def _watch(log: str, root: str) -> None:
    import atexit
    import builtins
    import json

    started = os.getpid()
    ending: dict[str, Any] = {"kind": "", "failed": False, "frames": []}
    written: list[bool] = []

    def relative(filename: str) -> str | None:
        if not filename or filename[0] == "<":
            return None
        path = os.path.realpath(filename)
        inside = path.startswith(root + os.sep) and "site-packages" not in path
        return os.path.relpath(path, root).replace(os.sep, "/") if inside else None

    def note(kind: str, failed: bool, places: list[Any]) -> None:
        frames = [[relative(f), line, name] for f, line, name in places]
        ending.update(kind=kind, failed=failed, frames=[f for f in frames if f[0]][-32:])

    def outer(frame: Any) -> list[Any]:
        places: list[Any] = []
        while frame is not None:
            places.append((frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
            frame = frame.f_back
        return places[::-1]

    plain_exit = builtins.SystemExit

    class SystemExit(plain_exit):  # type: ignore[misc, valid-type]
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            note("SystemExit", bool(args and args[0]), outer(sys._getframe(1)))

    SystemExit.__module__ = "builtins"

    def exit_(code: Any = None, /) -> Any:
        error = SystemExit(code)
        note("SystemExit", bool(code), outer(sys._getframe(1)))
        raise error

    hook = sys.excepthook

    def on_error(kind: Any, error: Any, tb: Any) -> None:
        places: list[Any] = []
        while tb is not None:
            places.append(
                (tb.tb_frame.f_code.co_filename, tb.tb_lineno, tb.tb_frame.f_code.co_name)
            )
            tb = tb.tb_next
        if isinstance(error, SyntaxError) and error.filename:
            places.append((error.filename, error.lineno or 1, "<module>"))
        note(kind.__name__, True, places)
        hook(kind, error, tb)

    def has_tests(module: Any) -> bool:
        for name, value in list(vars(module).items()):
            if name.startswith(("test", "Test")) and callable(value):
                return True
            own = getattr(value, "__module__", "") == module.__name__
            bases = getattr(value, "__mro__", ()) if own else ()
            if any((b.__module__, b.__name__) == ("unittest.case", "TestCase") for b in bases):
                return True
        return False

    def write() -> None:
        if os.getpid() != started or written:
            return
        written.append(True)
        main = sys.modules.get("__main__")
        loaded: list[str] = []
        tests: list[str] = []
        runner = "_pytest" in sys.modules or "unittest.main" in sys.modules
        for module in list(sys.modules.values()):
            path = relative(getattr(module, "__file__", None) or "")
            if path is not None:
                loaded.append(path)
                if runner and has_tests(module):
                    tests.append(path)
        said = {
            "main": relative(getattr(main, "__file__", None) or sys.argv[0]),
            "module": getattr(main, "__spec__", None) is not None,
            "loaded": loaded,
            "tests": tests,
        }
        said.update(ending)
        with open(log, "ab", 0) as file:
            file.write(json.dumps(said).encode() + b"\n")

    plain_end = os._exit

    def end(code: int) -> None:
        if os.getpid() == started:
            note("SystemExit", bool(code), outer(sys._getframe(1)))
            write()
        plain_end(code)

    builtins.SystemExit = SystemExit  # type: ignore[misc]
    sys.exit, sys.excepthook, os._exit = exit_, on_error, end  # type: ignore[assignment]
    atexit.register(write)


def _next() -> None:
    """Runs the `sitecustomize` that stands further back on the path."""
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [p for p in sys.path if os.path.abspath(p or ".") != here]
    own = sys.modules.pop("sitecustomize", None)
    try:
        import sitecustomize  # type: ignore[import-not-found]  # noqa: F401
    except ImportError:
        if own is not None:
            sys.modules["sitecustomize"] = own


try:
    _next()
    if os.environ.get("CLOVER_PROGRAMS") and os.environ.get("CLOVER_PROGRAMS_ROOT"):
        _watch(os.environ["CLOVER_PROGRAMS"], os.path.realpath(os.environ["CLOVER_PROGRAMS_ROOT"]))
except Exception:  # noqa: S110 - the user's program must run whatever happens here
    pass
