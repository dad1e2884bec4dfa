"""Engines that cannot do all of what a repair may ask: it goes on with the rest."""

from __future__ import annotations

from typing import Any

import pytest

from clover_engine.errors import Unsupported
from clover_engine.testing.fakes import FakeEngine
from clover_patcher.fix import FixRequest, fix


class Modest(FakeEngine):
    cannot: tuple[str, ...] = ()

    def score(self, request: Any, cancel: Any = None) -> Any:
        if "score" in self.cannot:
            raise Unsupported("this server has no scores; use another one")
        return super().score(request, cancel)

    def cloze(self, request: Any, cancel: Any = None) -> Any:
        raise Unsupported("this server fills no clozes; use another one")


@pytest.mark.parametrize("cannot", [(), ("score",)])
def test_a_repair_goes_on_without(make_repo: Any, cannot: tuple[str, ...]) -> None:
    root, card = make_repo.project("off_by_one")
    engine = Modest()
    engine.cannot = cannot
    result = fix(FixRequest(root=root, check=card["check"]), engine)
    assert (result.status, result.exit_code) == ("fixed", 0)
    scored = any(hasattr(request, "candidates") for request in engine.requests)
    assert scored is not bool(cannot)
    if result.engine.calls > 1:  # the repair may be found before the second question
        assert any("use another one" in note for note in result.notes)
