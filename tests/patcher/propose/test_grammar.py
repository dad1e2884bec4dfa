"""The syntax of candidates is judged by the Python that runs the check."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from clover_patcher.propose.grammar import Grammar
from clover_patcher.propose.source import CandidateSource
from clover_patcher.propose.syntax import Source, load_source
from clover_patcher.propose.validity import Checker
from clover_patcher.types import Location

NEWER_FILE = """def label(items, limit):
    text = f"{", ".join(f"{item["name"]}" for item in items)}"
    if len(items) > limit:
        return text[:limit]
    return text
"""


def source_of(content: bytes) -> Source:
    source = load_source("a.py", content)
    assert source is not None
    return source


def python(version: str) -> str:
    """A real interpreter of that version, or the test is skipped."""
    places = sorted(Path("/root/.pyenv/versions").glob(f"{version}.*/bin/python"))
    for name in [*map(str, places), f"python{version}"]:
        try:
            code = "import sys; print('%d.%d' % sys.version_info[:2])"
            said = subprocess.run([name, "-c", code], capture_output=True, text=True, check=False)
        except OSError:
            continue
        if said.stdout.strip() == version:
            return name
    pytest.skip(f"there is no Python {version} here")


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="our own Python knows this syntax")
@pytest.mark.parametrize("version", ["3.12", "3.13"])
def test_a_file_in_newer_syntax_gets_candidates(version: str) -> None:
    files, places = {"a.py": NEWER_FILE.encode()}, [Location("a.py", 3, 1.0)]
    alone = CandidateSource(files, places, None)
    texts = {c.text.strip() for batch in alone.batches(float("inf")) for c in batch}
    assert "if len(items) >= limit:" not in texts
    with Grammar(python(version)) as grammar:
        source = CandidateSource(files, places, None, grammar=grammar)
        texts = {c.text.strip() for batch in source.batches(float("inf")) for c in batch}
    assert "if len(items) >= limit:" in texts
    assert len(texts) > 10


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="our own Python knows this syntax")
def test_an_edit_of_a_newer_statement_is_judged_by_the_newer_python() -> None:
    start = NEWER_FILE.index('item["name"]')
    with Grammar(python("3.12")) as grammar:
        source = source_of(NEWER_FILE.encode())
        checker = Checker(source, grammar)
        statement = next(one for one in source.statements if one.first_line == 2)
        assert not checker.broken
        good = checker.meaning(statement, start, start + 12, 'item["kind"]')
        assert good is not None
        assert checker.meaning(statement, start, start + 12, 'item["kind"') is None
        assert checker.meaning(statement, start, start + 12, 'item["name"]') is None


def test_a_file_that_nobody_can_parse_is_broken() -> None:
    with Grammar(python("3.12")) as grammar:
        assert Checker(source_of(b"def f(:\n    return 1\n"), grammar).broken


def test_an_older_python_is_not_given_newer_syntax() -> None:
    text = "def f(x):\n    return x\n"
    at = text.index("return x")
    new = "return (y := x)"
    with Grammar(python("3.8")) as grammar:
        assert grammar.feature_version() == (3, 8)
        checker = Checker(source_of(text.encode()), grammar)
        assert checker.meaning(None, at, at + 8, new) is not None
        match = "match x:\n        case _: return x"
        assert checker.meaning(None, at, at + 8, match) is None
    assert Checker(source_of(text.encode())).meaning(None, at, at + 8, match) is not None


@pytest.mark.parametrize("interpreter", [None, "/nowhere/python", "/bin/true", sys.executable])
def test_where_nobody_can_be_asked_our_own_python_judges(interpreter: str | None) -> None:
    with Grammar(interpreter) as grammar:
        assert grammar.version is None
        assert not grammar.newer
        assert not Checker(source_of(b"x = 1\n"), grammar).broken
