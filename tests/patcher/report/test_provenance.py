"""Who proposed a patch is said as it was, in the result and in the commit's trailer."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from clover_engine.api import (
    CancelToken,
    ClozeRequest,
    ClozeResult,
    ScoreRequest,
    ScoreResult,
)
from clover_engine.choice.engines import Engines
from clover_engine.choice.providers import Provider
from clover_engine.errors import Unsupported
from clover_engine.testing.fakes import FakeEngine
from clover_patcher.fix import FixRequest, FixResult, fix
from clover_patcher.types import Origin

PROGRAM = "def add(a, b):\n    return a - b\n"
CHECK = "from program import add\n\nassert add(2, 3) == 5\nassert add('a', 'b') == 'ab'\n"
GROUPED = "def label(n):\n    return f'{n}'\n"
GROUPED_CHECK = "from program import label\n\nassert label(1234567) == '1,234,567'\n"


class Named(FakeEngine):
    """A fake whose answers name a model."""

    model = "small-model"

    def score(self, request: ScoreRequest, cancel: CancelToken | None = None) -> ScoreResult:
        return replace(super().score(request, cancel), model=self.model)

    def cloze(self, request: ClozeRequest, cancel: CancelToken | None = None) -> ClozeResult:
        return replace(super().cloze(request, cancel), model=self.model)


class Silent(FakeEngine):
    """A server that can neither score nor fill."""

    def score(self, request: ScoreRequest, cancel: CancelToken | None = None) -> ScoreResult:
        raise Unsupported("this server does not score")

    def cloze(self, request: ClozeRequest, cancel: CancelToken | None = None) -> ClozeResult:
        raise Unsupported("this server does not fill")


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, temporary_root: Path) -> None:
    monkeypatch.setenv("PATH", os.path.dirname(sys.executable), prepend=os.pathsep)


def repaired(
    make_repo, engine: FakeEngine | None, program: str, check: str
) -> tuple[FixResult, str]:
    """The result of a committed fix, and the trailer's words."""
    root = make_repo({"program.py": program, "check.py": check})
    result = fix(FixRequest(root, "python check.py", jobs=1, commit=True), engine)
    assert (result.status, result.error) == ("fixed", None)
    body = make_repo.git(root, "log", "-1", "--format=%(trailers:key=Assisted-by,valueonly)")
    return result, body.strip().partition(" (")[2].rstrip(")")


def test_a_template_alone(make_repo) -> None:
    result, trailer = repaired(make_repo, None, PROGRAM, CHECK)
    assert result.origin == Origin()
    assert trailer == "a template"


def test_an_engine_that_can_do_nothing_gets_no_credit(make_repo) -> None:
    result, trailer = repaired(make_repo, Silent(), PROGRAM, CHECK)
    assert result.origin == Origin()
    assert trailer == "a template"


def test_a_model_that_only_scored_ranked(make_repo) -> None:
    likes_plus = Named(on_score=lambda _, text: -0.1 if "+" in text else -9.0)
    result, trailer = repaired(make_repo, likes_plus, PROGRAM, CHECK)
    assert result.origin == Origin("template", "", "small-model")
    assert trailer == "a template, ranked by the model small-model"
    assert result.engine.detail == "small-model"


def test_a_model_that_proposed(make_repo) -> None:
    """No template knows this format."""
    engine = Named(
        on_cloze=lambda request: ["return f'{n:,}'"], on_score=lambda _, text: -float(len(text))
    )
    result, trailer = repaired(make_repo, engine, GROUPED, GROUPED_CHECK)
    assert result.origin is not None
    assert (result.origin.proposer, result.origin.name) == ("model", "small-model")
    assert trailer == "the model small-model"
    assert result.explanation is not None
    assert any("proposed by the model small-model" in line for line in result.explanation.lines())


def test_the_engine_that_answered_is_named_and_not_the_configured_one(make_repo) -> None:
    """The first of two engines can neither score nor fill: the second one does it."""
    small = FakeEngine(on_score=lambda _, text: -0.1 if "+" in text else -9.0)
    engines = Engines([Provider("the-server", Silent), Provider("embedded", lambda: small)])
    try:
        result, trailer = repaired(make_repo, engines.interactive(None), PROGRAM, CHECK)
    finally:
        engines.close()
    assert result.origin == Origin("template", "", "fake")
    assert "server" not in trailer and "server" not in result.engine.detail


def test_a_tools_own_suggestion(make_repo) -> None:
    root = make_repo({"program.py": "import os\nimport sys\n\nprint(sys.argv)\n"})
    result = fix(FixRequest(root, "ruff check --isolated program.py", jobs=1))
    assert (result.status, result.origin) == ("fixed", Origin("tool", "ruff"))
