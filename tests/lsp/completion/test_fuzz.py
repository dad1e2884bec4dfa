"""A state machine against the real server: after any edits, its text is the client's.

Hypothesis shrinks what it finds. `CLOVER_FUZZ_EXAMPLES` runs more; `python tests/lsp/fuzz.py
--messages 20000` runs long random sessions.
"""

from __future__ import annotations

import itertools
import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

FUZZ = sys.modules["lsp_fuzz"]
EXAMPLES = int(os.environ.get("CLOVER_FUZZ_EXAMPLES", "10"))
STEPS = 40
TEXTS = st.lists(st.sampled_from(FUZZ.PIECES), max_size=6).map("".join)
SHARES = st.floats(0, 1, width=16)


@pytest.fixture(scope="module", params=FUZZ.ENCODINGS)
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Any]:
    started = FUZZ.RawServer(request.param, tmp_path_factory.mktemp(request.param))
    yield started
    started.close()


def machine_for(server: Any) -> type[RuleBasedStateMachine]:
    """The state machine of one document on the server."""
    numbers = itertools.count()

    class Machine(RuleBasedStateMachine):
        @initialize(text=TEXTS)
        def open(self, text: str) -> None:
            self.uri, self.text, self.version = f"untitled:machine-{next(numbers)}", text, 1
            item = {"uri": self.uri, "languageId": "python", "version": 1, "text": text}
            server.notify("textDocument/didOpen", {"textDocument": item})

        def offset(self, share: float) -> int:
            """No position stands between CR and LF."""
            at = round(share * len(self.text))
            return at - 1 if at and self.text[at - 1 : at + 1] == "\r\n" else at

        @rule(start=SHARES, end=SHARES, new=TEXTS)
        def replace(self, start: float, end: float, new: str) -> None:
            first, last = sorted((self.offset(start), self.offset(end)))
            self.send(first, last, new)

        @rule(at=SHARES, new=TEXTS)
        def insert(self, at: float, new: str) -> None:
            self.send(self.offset(at), self.offset(at), new)

        def send(self, start: int, end: int, new: str) -> None:
            span = {
                "start": FUZZ.position(self.text, start, server.encoding),
                "end": FUZZ.position(self.text, end, server.encoding),
            }
            self.text = self.text[:start] + new + self.text[end:]
            self.change({"range": span, "text": new})

        @rule(new=TEXTS)
        def replace_all(self, new: str) -> None:
            self.text = new
            self.change({"text": new})

        @rule(new=TEXTS)
        def append_past_the_end(self, new: str) -> None:
            far = {"line": len(self.text) + 5, "character": 3}
            self.text += new
            self.change({"range": {"start": far, "end": far}, "text": new})

        def change(self, change: dict[str, Any]) -> None:
            self.version += 1
            document = {"uri": self.uri, "version": self.version}
            params = {"textDocument": document, "contentChanges": [change]}
            server.notify("textDocument/didChange", params)

        @rule(at=SHARES)
        def complete(self, at: float) -> None:
            place = FUZZ.position(self.text, self.offset(at), server.encoding)
            params = {"textDocument": {"uri": self.uri}, "position": place}
            context = {"context": {"triggerKind": 2}}
            server.send("textDocument/inlineCompletion", {**params, **context})

        @rule(seed=st.integers(0, 2**16))
        def break_the_rules(self, seed: int) -> None:
            FUZZ.broken(server, random.Random(seed))

        @rule()
        def check(self) -> None:
            assert server.text(self.uri) == self.text

        def teardown(self) -> None:
            if hasattr(self, "uri"):
                self.check()
                server.notify("textDocument/didClose", {"textDocument": {"uri": self.uri}})

    return Machine


def test_the_servers_text_is_the_clients(server: Any) -> None:
    checks = [HealthCheck.too_slow, HealthCheck.filter_too_much]
    chosen = settings(
        max_examples=EXAMPLES,
        stateful_step_count=STEPS,
        deadline=None,
        suppress_health_check=checks,
        database=None,
    )
    run_state_machine_as_test(machine_for(server), settings=chosen)


def test_random_sessions(tmp_path: Path) -> None:
    for encoding in FUZZ.ENCODINGS:
        folder = tmp_path / encoding
        folder.mkdir()
        FUZZ.run(300, seed=3, encoding=encoding, folder=folder)
