"""Polishing must not harm what is right: real code, taken out and proposed, comes back unharmed.

The code is this project's own. A model that writes on after the right text is the usual case, so
bodies are proposed together with the lines that follow them.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from clover_lsp.context.types import Place
from clover_lsp.suggest.polish import polish
from clover_lsp.suggest.shape import Plan, plan
from clover_lsp.suggest.text import indent_of, is_blank
from clover_lsp.suggest.types import Draft

ROOT = Path(__file__).parents[3]
SOURCES = {
    "python": ("lsp/clover_lsp/**/*.py", re.compile(r"\s*(?:def|for|if|while|with)\b.*:$")),
    "typescript": ("editors/vscode/src/**/*.ts", re.compile(r".*\{$")),
    "lua": ("editors/nvim/**/*.lua", re.compile(r".*(?:\bfunction\b.*\)|\bthen|\bdo)$")),
}
KEPT = 0.98
"""Share that must survive: now and then a line is the same as the one below it."""


def documents(language: str) -> list[list[str]]:
    paths = sorted(ROOT.glob(SOURCES[language][0]))
    texts = [path.read_text("utf-8") for path in paths if "node_modules" not in path.parts]
    return [text.split("\n") for text in texts]


def proposed(language: str, before: str, draft: str, after: str) -> str | None:
    """The document once the suggestion is accepted; None where nothing is asked or shown."""
    place = Place("file:///a", language, before, after)
    request = plan(place, heal=False, invoked=True)
    if not isinstance(request, Plan):
        return None
    found = polish(Draft(draft, 0.5, "model"), place, request)
    return None if found is None else before + found.text + after[found.replace_after :]


def rests(lines: list[str], rng: random.Random) -> Iterator[tuple[str, str, str]]:
    for i in rng.sample(range(1, len(lines) - 1), min(8, len(lines) - 2)):
        line = lines[i].rstrip()
        if len(line.strip()) < 4:
            continue
        indent = len(indent_of(line))
        cut = rng.choice((indent, rng.randrange(indent, len(line) - 1)))
        if line[cut : cut + 1].strip():
            above, below = "\n".join(lines[:i]) + "\n", "\n" + "\n".join(lines[i + 1 :])
            yield above + line[:cut], line[cut:], below


def bodies(lines: list[str], opener: re.Pattern[str]) -> Iterator[tuple[str, str, str]]:
    for i, line in enumerate(lines[:-1]):
        outer, end = len(indent_of(line)), i + 1
        while end < len(lines) and (is_blank(lines[end]) or len(indent_of(lines[end])) > outer):
            end += 1
        while end > i + 1 and is_blank(lines[end - 1]):
            end -= 1
        if opener.match(line) and 0 < end - i - 1 <= 12:
            yield (
                "\n".join(lines[: i + 1]),
                "\n" + "\n".join(lines[i + 1 : end]),
                "\n" + "\n".join(lines[end:]),
            )


@pytest.mark.parametrize("language", SOURCES)
def test_the_rest_of_a_line_comes_back(language: str) -> None:
    rng = random.Random(1)
    cases = [case for lines in documents(language) for case in rests(lines, rng)]
    assert len(cases) > 40
    kept = sum(proposed(language, *case) == "".join(case) for case in cases)
    assert kept >= KEPT * len(cases)


@pytest.mark.parametrize("language", SOURCES)
def test_a_body_comes_back_without_what_follows_it(language: str) -> None:
    cases = [c for lines in documents(language) for c in bodies(lines, SOURCES[language][1])][:400]
    assert len(cases) > 40
    kept = 0
    for before, body, after in cases:
        written_on = body + "\n".join(after.split("\n")[:10])
        kept += proposed(language, before, written_on, after) == before + body + after
    assert kept >= KEPT * len(cases)
