"""The pytest plugin of a forked child: reports, selects tests, and is where stems wait.

Loaded by path beside `server.py`; uses only pytest's documented hooks, so that any pytest from
6 on will do. Syntax of Python 3.8.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from typing import Any

import pytest


def _no_text(*_: Any, **__: Any) -> str:
    return ""


class Plugin:
    """Registered for one run. `report` is None until a job has come (in a stem)."""

    def __init__(self, job: dict[str, Any], stem: Any, child: Any, mapper: Any) -> None:
        self.job = job
        self.stem = stem
        self.child = child
        self.mapper = mapper
        self.report: Any = None
        self.errors: dict[Any, dict[str, Any]] = {}
        self.texts = 0

    def begin(self, job: dict[str, Any]) -> None:
        """From here on this process is the run of one job."""
        self.child.reseed()
        self.job = job
        self.stem = None
        self.report = self.child.Report(job)
        sys.dont_write_bytecode = not job["write_bytecode"]

    def _wait_at(self, stage: str) -> None:
        if self.stem is not None and self.job["stage"] == stage:
            loaded, _ = self.child.paths.loaded_files(self.mapper)
            self.begin(self.stem.serve(loaded))

    # --- before the tests ---------------------------------------------------------------------

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_load_initial_conftests(self, early_config: Any) -> Generator[None, Any, None]:
        if hasattr(early_config.known_args_namespace, "cov_source"):  # pytest-cov traces as we do
            early_config.known_args_namespace.cov_source = []
        self._wait_at("conftest")
        if self.report is not None:
            self.report.switch("conftest", importing=True)
            if self.report.tracer is not None:
                self.report.tracer.start()
        outcome = yield
        if outcome.excinfo is not None and self.report is not None:
            error = outcome.excinfo[1]
            cause = getattr(error, "cause", None) or error.__cause__ or error
            said = self.child.describe(cause, cause.__traceback__)
            self.report.emit(e="error", id="", **said)

    @pytest.hookimpl(tryfirst=True)
    def pytest_cmdline_main(self, config: Any) -> None:
        if hasattr(config.option, "numprocesses"):  # pytest-xdist: tests run in this process
            config.option.numprocesses, config.option.dist, config.option.tx = None, "no", []

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self, session: Any) -> None:
        self._wait_at("collection")
        option = session.config.option
        option.maxfail = self.job["maxfail"]
        option.continue_on_collection_errors = True
        if option.tbstyle == "auto":
            option.tbstyle = "short"
        if not self.job["texts"]:
            option.tbstyle, option.no_summary = "no", True
        if self.job["select"]:
            self._narrow(session.config, self.job["select"])

    def _narrow(self, config: Any, select: list[str]) -> None:
        """Collects only the files that hold the selected tests."""
        root = str(getattr(config, "rootpath", None) or config.rootdir)
        files = [os.path.join(root, nodeid.split("::")[0]) for nodeid in select if nodeid]
        if files and all(os.path.isfile(f) for f in files):
            config.args = list(dict.fromkeys(files))
            if int(pytest.__version__.split(".")[0]) >= 7:
                config.pluginmanager.register(_OnlyThese(config.args))

    @pytest.hookimpl(hookwrapper=True)
    def pytest_make_collect_report(self, collector: Any) -> Generator[None, Any, None]:
        whole_file = isinstance(collector, pytest.File)
        if whole_file:
            self.report.switch(collector.nodeid, importing=True)
        outcome = yield
        if whole_file:
            self.report.switch("", importing=True)
        result = outcome.get_result()
        if result.outcome != "failed":
            return
        call = getattr(result, "call", None)
        said = {"kind": "CollectError", "message": str(result.longrepr), "frames": []}
        if call is not None and call.excinfo is not None:
            error = call.excinfo.value
            if isinstance(error, pytest.Collector.CollectError) and error.__cause__ is not None:
                error = error.__cause__
            said = self.child.describe(error, error.__traceback__)
        self.report.emit(e="collect", id=collector.nodeid, **said)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: Any, items: list[Any]) -> None:
        done = set(self.job["deselect"] or ())
        order: dict[str, int] | None = None
        if self.job["select"]:
            order = {nodeid: i for i, nodeid in enumerate(self.job["select"])}
        if order is None and not done:
            return
        kept: list[Any] = []
        dropped: list[Any] = []
        for item in items:
            wanted = order is None or item.nodeid in order or item.nodeid.split("::")[0] in order
            (kept if wanted and item.nodeid not in done else dropped).append(item)
        if order is not None and self.job["ordered"]:
            last = len(order)
            kept.sort(key=lambda item: order.get(item.nodeid, last))
        items[:] = kept
        if dropped:
            config.hook.pytest_deselected(items=dropped)

    # --- the tests ----------------------------------------------------------------------------

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.report.switch(str(nodeid))
        self.report.emit(e="start", id=str(nodeid))

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self.report.switch("", importing=True)

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, item: Any, call: Any) -> Generator[None, Any, None]:
        if self.texts >= self.job["texts"]:
            item.repr_failure = item._repr_failure_py = _no_text
        outcome = yield
        report = outcome.get_result()
        if call.excinfo is not None and report.failed:
            said = self.child.describe(call.excinfo.value, call.excinfo.tb)
            self.errors[report.nodeid, report.when] = said
            self.texts += 1

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.passed and report.when != "call":
            return
        said: dict[str, Any] = {}
        if report.failed:
            said = self.errors.get((report.nodeid, report.when)) or {
                "kind": "Failed",
                "message": str(report.longrepr)[:2000],
                "frames": [],
            }
        self.report.emit(
            e="phase",
            id=str(report.nodeid),
            when=report.when,
            outcome=report.outcome,
            duration=report.duration,
            **said,
        )


class _OnlyThese:
    """Spares the collection of a folder's other files."""

    def __init__(self, files: list[str]) -> None:
        self.files = frozenset(files)

    @pytest.hookimpl(tryfirst=True)
    def pytest_ignore_collect(self, collection_path: Any) -> bool | None:
        path = str(collection_path)
        if path in self.files or not path.endswith(".py") or path.endswith("__init__.py"):
            return None
        return True
