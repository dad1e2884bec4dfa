"""Texts before and after polishing, as files: `golden/*.toml` (see duplication.toml)."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from clover_engine.line_ends import to_lf
from clover_lsp.context.types import Place
from clover_lsp.suggest.polish import polish
from clover_lsp.suggest.reuse import Shown
from clover_lsp.suggest.scene import at_popup
from clover_lsp.suggest.shape import Plan, Skip, plan
from clover_lsp.suggest.types import Draft, Popup, Suggestion

CASES = [
    case | {"file": path.stem}
    for path in sorted((Path(__file__).parent / "golden").glob("*.toml"))
    for case in tomllib.loads(path.read_text("utf-8"))["case"]
]
KEYS = {
    "file", "name", "complaint", "anchor", "language", "uri", "text", "text_shown", "draft",
    "origin", "complete", "heal", "eol", "popup", "popup_before", "popup_after", "deleted",
    "typed", "skipped",
}  # fmt: skip


def named(case: dict[str, Any]) -> str:
    return f"{case['file']}-{case.get('complaint', '')}-{case['name']}"


def split(case: dict[str, Any]) -> tuple[str, str, str, str]:
    """(before the cursor, expected text, text that it replaces, after)."""
    before, _, rest = case["text"].partition("├")
    expected, _, rest = rest.partition("┤")
    replaced, mark, after = rest.partition("╣")
    return (before, expected, replaced, after) if mark else (before, expected, "", rest)


def place_of(case: dict[str, Any], before: str, after: str) -> Place:
    if case.get("eol") == "crlf":
        before, after = before.replace("\n", "\r\n"), after.replace("\n", "\r\n")
    return Place(case.get("uri", "file:///a"), case["language"], before, after)


def drawn(suggestion: Suggestion | None, place: Place) -> str:
    """The document with the suggestion in it, in the notation of the files."""
    before, after = place.prefix, place.suffix
    if suggestion is None:
        return to_lf(f"{before}├┤{after}")
    size = suggestion.replace_before
    assert size == 0 or suggestion.text.startswith(before[-size:])
    replaced, rest = after[: suggestion.replace_after], after[suggestion.replace_after :]
    mark = "╣" if suggestion.replace_after else ""
    return to_lf(f"{before}├{suggestion.text[size:]}┤{replaced}{mark}{rest}")


@pytest.mark.parametrize("case", CASES, ids=named)
def test_golden(case: dict[str, Any]) -> None:
    assert set(case) <= KEYS
    before, _, replaced, after = split(case)
    place = place_of(case, before, replaced + after)
    popup = None
    if "popup" in case:
        popup = Popup(case["popup"], case["popup_before"], case.get("popup_after", 0))
    shown_at = place
    if "typed" in case:
        earlier = case.get("text_shown", case["text"].removesuffix("├"))
        if "text_shown" in case:
            shown_at = place_of(case, *earlier.split("┊"))
        else:
            shown_at = place_of(case, before.removesuffix(case["typed"]), after)
    asked = plan(at_popup(shown_at, popup), heal=case.get("heal", False))
    if "skipped" in case:
        assert isinstance(asked, Skip) and case["skipped"] in asked.reason
        return
    assert isinstance(asked, Plan)
    assert "\r" not in asked.prefix + asked.suffix
    text = case["draft"].replace("@HIGH@", "\ud83d")
    draft = Draft(text, 0.9, case.get("origin", "model"), case.get("complete", True))
    found = polish(draft, shown_at, asked, popup, case.get("deleted", ()))
    if "typed" in case:
        found = typed_through(found, shown_at, place)
    expected = to_lf(place.prefix) + case["text"][len(before) :].replace("\r\n", "\n")
    assert drawn(found, place) == to_lf(expected)


def typed_through(shown: Suggestion | None, then: Place, now: Place) -> Suggestion | None:
    assert shown is not None
    store = Shown()
    (first,) = store.put(then, [shown], now=0.0)
    left = store.get(now, now=1.0)
    assert all(item.identity == first.identity for item in left)
    return left[0].suggestion if left else None


TEXT_COMPLAINTS = {*range(1, 25), 30}


def test_every_complaint_about_text_has_two_cases() -> None:
    counts = {n: sum(case.get("complaint") == n for case in CASES) for n in TEXT_COMPLAINTS}
    assert not {n for n, count in counts.items() if count < 2}
    assert all(("anchor" in case) == ("complaint" in case) for case in CASES)
