"""Slips of real programs, mended through the whole journey by templates alone."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from clover_patcher.fix import FixRequest, fix

PYTEST = "python -m pytest -q"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, temporary_root: Path) -> Iterator[None]:
    monkeypatch.setenv("PATH", os.path.dirname(sys.executable), prepend=os.pathsep)
    yield
    assert list(temporary_root.iterdir()) == []


def mended(make_repo, program: str, test: str, check: str = PYTEST) -> list[str]:
    """The new lines of prog.py."""
    files = {"prog.py": program, "pytest.ini": "[pytest]\npythonpath = .\n"}
    root = make_repo({**files, "test_prog.py": test} if test else files)
    result = fix(FixRequest(root=root, check=check, budget_s=240))
    assert result.status == "fixed", result.error
    lines = (root / "prog.py").read_text().splitlines()
    return [line.strip() for line in lines if line not in program.splitlines()]


def test_a_misspelt_builtin_in_a_program_that_crashes(make_repo) -> None:
    program = "items = [1, 4]\nprint('sum', sum(items))\nprint('mean', sum(items) / lenn(items))\n"
    wanted = ["print('mean', sum(items) / len(items))"]
    assert mended(make_repo, program, "", "python prog.py") == wanted


def test_a_suffix_that_was_taken_for_letters(make_repo) -> None:
    program = "def stem(name):\n    return name.rstrip('.py')\n"
    test = (
        "import pytest\nfrom prog import stem\n\n\n"
        "@pytest.mark.parametrize('name', ['a', 'happy'])\n"
        "def test_stem(name):\n    assert stem(name + '.py') == name\n"
    )
    assert mended(make_repo, program, test) == ["return name.removesuffix('.py')"]


def test_a_key_that_is_counted_for_the_first_time(make_repo) -> None:
    program = (
        "def count(words):\n    found = {}\n    for word in words:\n        found[word] += 1\n"
        "    return found\n"
    )
    test = (
        "from prog import count\n\n\ndef test_it():\n    assert count('aba') == {'a': 2, 'b': 1}\n"
    )
    assert mended(make_repo, program, test) == ["found[word] = found.get(word, 0) + 1"]


def test_an_exception_of_another_class(make_repo) -> None:
    program = (
        "def read(table, key):\n    try:\n        return table[key]\n    except ValueError:\n"
        "        return 'none'\n"
    )
    test = "from prog import read\n\n\ndef test_it():\n    assert read({}, 'a') == 'none'\n"
    (line,) = mended(make_repo, program, test)
    assert line in ("except KeyError:", "except (ValueError, KeyError):")


def test_a_base_class_that_is_not_made(make_repo) -> None:
    program = (
        "class Base:\n    def __init__(self):\n        self.parts = []\n\n\n"
        "class Child(Base):\n    def __init__(self, name):\n        self.name = name\n"
    )
    test = "from prog import Child\n\n\ndef test_it():\n    assert Child('a').parts == []\n"
    assert mended(make_repo, program, test) == ["super().__init__()"]


def test_a_coroutine_that_nobody_waits_for(make_repo) -> None:
    program = (
        "import asyncio\n\n\nasync def fetch(n):\n    await asyncio.sleep(0)\n    return n\n\n\n"
        "async def twice(n):\n    value = fetch(n)\n    return [value, value]\n"
    )
    test = (
        "import asyncio\nfrom prog import twice\n\n\n"
        "def test_it():\n    assert asyncio.run(twice(2)) == [2, 2]\n"
    )
    assert mended(make_repo, program, test) == ["value = await fetch(n)"]


def test_a_list_that_all_calls_share(make_repo) -> None:
    program = "def add(item, found=[]):\n    found.append(item)\n    return found\n"
    test = (
        "from prog import add\n\n\ndef test_first():\n    assert add(1) == [1]\n\n\n"
        "def test_second():\n    assert add(2) == [2]\n\n\n"
        "def test_given():\n    given = [1]\n    assert add(2, given) is given\n"
    )
    assert mended(make_repo, program, test) == [
        "def add(item, found=None):",
        "if found is None:",
        "found = []",
    ]


def test_an_import_that_is_missing(make_repo) -> None:
    program = "def base(path):\n    return Path(path).name\n"
    test = "from prog import base\n\n\ndef test_it():\n    assert base('/a/b') == 'b'\n"
    assert mended(make_repo, program, test) == ["from pathlib import Path"]


def test_a_test_in_the_programs_own_file_is_left_alone(make_repo) -> None:
    program = (
        "import unittest\n\n\ndef fee(total):\n    if total > 50:\n        return 0\n"
        "    return 5\n\n\n"
        "class Fees(unittest.TestCase):\n    def test_limit(self):\n"
        "        self.assertEqual(fee(50), 0)\n\n"
        "    def test_small(self):\n        self.assertEqual(fee(10), 5)\n"
    )
    assert mended(make_repo, program, "", "python -m unittest prog") == ["if total >= 50:"]


def test_a_look_up_that_misses_in_a_script_is_not_left_out(make_repo) -> None:
    program = "table = {'a': 1}\nfor name in ['a', 'b']:\n    print(name, table[name])\n"
    (line,) = mended(make_repo, program, "", "python prog.py")
    assert line.startswith("print(name, table.get(name")


def test_a_method_without_self(make_repo) -> None:
    program = (
        "class Box:\n    def __init__(self):\n        self.n = 2\n\n"
        "    def times(x):\n        return self.n * x\n"
    )
    test = "from prog import Box\n\n\ndef test_it():\n    assert Box().times(3) == 6\n"
    assert mended(make_repo, program, test) == ["def times(self, x):"]


def test_a_definition_that_the_tests_spell_otherwise(make_repo) -> None:
    program = "def totl(items):\n    return sum(items)\n"
    test = "from prog import total\n\n\ndef test_it():\n    assert total([1, 2]) == 3\n"
    assert mended(make_repo, program, test) == ["def total(items):"]
