"""Slips of real programs and what the failure says about them: reached, and early."""

from __future__ import annotations

import ast
import textwrap
import time
from dataclasses import replace

import pytest
from tests.patcher.samples import result

from clover_patcher.propose.clues import Clues, clues_of
from clover_patcher.propose.source import CandidateSource
from clover_patcher.types import Candidate, Location


def ranked(text: str, clues: Clues, line: int) -> list[Candidate]:
    source = CandidateSource(
        {"a.py": text.encode()}, [Location("a.py", line, 1.0)], None, clues=clues
    )
    return [c for batch in source.batches(time.monotonic() + 60) for c in batch]


def rank(broken: str, fixed: str, said: str = "", python: tuple[int, int] | None = None) -> int:
    """Place of the repair among the candidates of the line that is marked by `#!`."""
    broken, fixed = textwrap.dedent(broken).strip("\n") + "\n", textwrap.dedent(fixed)
    line = next(n for n, text in enumerate(broken.splitlines(), 1) if text.endswith("#!"))
    goal = ast.dump(ast.parse(fixed))
    made = ranked(broken, clues_of([said] if said else [], python=python), line)
    for place, candidate in enumerate(made, 1):
        if ast.dump(ast.parse(result(broken.encode(), candidate))) == goal:
            return place
    raise AssertionError(f"not among {len(made)} candidates")


def early(line: str, fixed: str, said: str = "", head: str = "", within: int = 20) -> None:
    """The same for one line of a function."""
    frame = f"{head}def work(data, key, other=None):\n    value = data\n    {{}}\n"
    assert rank(frame.format(line + "  #!"), frame.format(fixed), said) <= within


@pytest.mark.parametrize(
    ("broken", "fixed", "said"),
    [
        ("return lenn(data)", "return len(data)", "NameError: name 'lenn' is not defined"),
        ("return valeu", "return value", "NameError: name 'valeu' is not defined"),
        ("return true", "return True", "NameError: name 'true' is not defined"),
        (
            "return value.uper()",
            "return value.upper()",
            "AttributeError: 'str' object has no attribute 'uper'",
        ),
        (
            "return math.sqr(key)",
            "return math.sqrt(key)",
            "AttributeError: module 'math' has no attribute 'sqr'. Did you mean: 'sqrt'?",
        ),
        (
            "return work(data, key, othr=1)",
            "return work(data, key, other=1)",
            "TypeError: work() got an unexpected keyword argument 'othr'",
        ),
        ("return data['nmae'], 'name'", "return data['name'], 'name'", "KeyError: 'nmae'"),
    ],
)
def test_a_name_that_does_not_exist_becomes_one_that_does(
    broken: str, fixed: str, said: str
) -> None:
    early(broken, fixed, said, within=3)


def test_python_suggests_what_looks_less_alike() -> None:
    said = "NameError: name 'vlen' is not defined. Did you mean: 'value'?"
    early("return vlen", "return value", said, within=1)


@pytest.mark.parametrize(
    ("line", "fixed"),
    [
        ("from os.path import jion  #!", "from os.path import join"),
        ("import jsno  #!", "import json"),
    ],
)
def test_imports_are_corrected(line: str, fixed: str) -> None:
    said = {
        "from": "ImportError: cannot import name 'jion' from 'os.path' (/usr/lib/posixpath.py)",
        "import": "ModuleNotFoundError: No module named 'jsno'",
    }[line.split()[0]]
    assert rank(line, fixed, said) <= 3


@pytest.mark.parametrize(
    ("name", "line"), [("Path", "from pathlib import Path"), ("json", "import json")]
)
def test_a_missing_import_is_put_below_the_docstring(name: str, line: str) -> None:
    broken = f'"""Text."""\nfrom __future__ import annotations\nimport os\n\nprint({name}, os)  #!'
    fixed = broken.replace("import os\n", f"{line}\nimport os\n")
    assert rank(broken, fixed, f"NameError: name '{name}' is not defined") <= 3


def test_an_attribute_without_self() -> None:
    broken = """
        class Cart:
            def __init__(self):
                self.items = []

            def count(self):
                return len(items)  #!
    """
    said = "NameError: name 'items' is not defined"
    assert rank(broken, broken.replace("len(items)", "len(self.items)"), said) == 1


def test_a_definition_is_named_as_it_is_looked_for() -> None:
    broken = "def totl(items):  #!\n    return sum(items)\n"
    said = "ImportError: cannot import name 'total' from 'shop' (/x/shop.py)"
    assert rank(broken, broken.replace("totl", "total"), said) <= 3


@pytest.mark.parametrize(
    ("broken", "fixed"),
    [
        ('value.lstrip("set ")', 'value.removeprefix("set ")'),
        ('value.rstrip(".py")', 'value.removesuffix(".py")'),
        ('value.lstrip("./")', 'value[len("./"):]'),
        ('value.rstrip("ing")', 'value[:-len("ing")] if value.endswith("ing") else value'),
        ("value.lstrip(prefix)", "value.removeprefix(prefix)"),
        ('value.strip("--")', 'value.removeprefix("--").removesuffix("--")'),
    ],
)
def test_a_prefix_is_no_set_of_letters(broken: str, fixed: str) -> None:
    early(f"return {broken}", f"return {fixed}")


def test_an_older_python_cuts_by_length() -> None:
    broken = 'def f(text):\n    return text.lstrip("set ")  #!\n'
    fixed = broken.replace('lstrip("set ")', '{}("set ")')
    cut = 'def f(text):\n    return text[len("set "):] if text.startswith("set ") else text\n'
    assert rank(broken, cut, python=(3, 8)) <= 3
    with pytest.raises(AssertionError, match="not among"):
        rank(broken, fixed.format("removeprefix"), python=(3, 8))


def test_strip_of_blanks_and_quotes_is_right_as_it_is() -> None:
    text = 'def f(text):\n    return text.strip("\'\\" ")\n'
    assert not any(c.kind == "affix" for c in ranked(text, Clues(), 2))


@pytest.mark.parametrize(
    ("broken", "fixed", "said"),
    [
        # look-ups that miss
        ("return data[key]", "return data.get(key)", "KeyError: 'b'"),
        ("return data[key]", "return data.get(key, 0)", "KeyError: 'b'"),
        ("data[key] += 1", "data[key] = data.get(key, 0) + 1", "KeyError: 'b'"),
        ("data[key].append(1)", "data.setdefault(key, []).append(1)", "KeyError: 'b'"),
        ("return data.pop(key)", "return data.pop(key, None)", "KeyError: 'b'"),
        ("del data[key]", "data.pop(key, None)", "KeyError: 'b'"),
        ("data.remove(key)", "data.discard(key)", "KeyError: 3"),
        ("return data[0]", "return data[0] if data else None", "IndexError: list index out of"),
        ("return next(data)", "return next(data, None)", "StopIteration"),
        ("return next(x for x in data)", "return next((x for x in data), None)", "StopIteration"),
        ("return max(data)", "return max(data, default=0)", "ValueError: max() arg is empty"),
        ("return data.index(key)", "return data.find(key)", "ValueError: substring not found"),
        (
            "return data.index(key)",
            "return data.index(key) if key in data else -1",
            "ValueError: 3 is not in list",
        ),
        ("return value / key", "return value / key if key else 0", "ZeroDivisionError: division"),
        # None
        (
            "return data.name",
            "return data.name if data else None",
            "AttributeError: 'NoneType' object has no attribute 'name'",
        ),
        (
            "for x in other: print(x)",
            "for x in (other or []): print(x)",
            "TypeError: 'NoneType' object is not iterable",
        ),
        # texts
        ("return ', '.join(data)", "return ', '.join(map(str, data))", "TypeError: expected str"),
        ("return 'a' + key", "return 'a' + str(key)", 'TypeError: can only concatenate str (not "'),
        ("a, b = key.split('=')", "a, b = key.split('=', 1)", "ValueError: too many values to un"),
        ("return value", "return value.strip()", "AssertionError: assert 'a ' == 'a'"),
        ("return value", "return value.lower()", "AssertionError: assert 'A' == 'a'"),
        # encodings
        (
            "return open(key)",
            "return open(key, encoding='utf-8')",
            "UnicodeDecodeError: 'ascii' co",
        ),
        ("return key.read_text()", "return key.read_text(encoding='utf-8')", "UnicodeDecodeError"),
        (
            "return open(key)",
            "return open(key, 'rb')",
            "TypeError: a bytes-like object is required",
        ),
        ("return key", "return key.encode()", "TypeError: a bytes-like object is required"),
        ("return work(key)", "return work(key.encode())", "TypeError: Strings must be encoded"),
        # copies and order
        (
            "for x in data: data.remove(x)",
            "for x in list(data): data.remove(x)",
            "RuntimeError: Set changed size during iteration",
        ),
        (
            "for x in data.keys(): del data[x]",
            "for x in list(data.keys()): del data[x]",
            "RuntimeError: dictionary changed size during iteration",
        ),
        (
            "return sorted(data)",
            "return sorted(data, key=str)",
            "TypeError: '<' not supported between",
        ),
    ],
)
def test_what_the_failure_speaks_of_comes_first(broken: str, fixed: str, said: str) -> None:
    early(broken, fixed, said)


@pytest.mark.parametrize(
    ("broken", "fixed"),
    [
        ("return [[0] * key] * other", "return [[0] * key for _ in range(other)]"),
        ("return other or 3", "return other if other is not None else 3"),
        ("if not other: return 1", "if other is None: return 1"),
        ("return key is 'a'", "return key == 'a'"),
        ("return getattr(data, key)", "return getattr(data, key, None)"),
        ("return sorted(data)", "return sorted(data, key=len)"),
        ("return sorted(data)", "return sorted(data, reverse=True)"),
        ("value = other", "value = other or ''"),
        ("value = data", "value = list(data)"),
    ],
)
def test_slips_that_need_no_hint(broken: str, fixed: str) -> None:
    early(broken, fixed, within=80)


@pytest.mark.parametrize(
    ("said", "guard"),
    [
        ("IndexError: list index out of range", "if not data:\n        return []"),
        ("KeyError: 'a'", "if key not in data:\n        return None"),
        ("TypeError: 'NoneType' object is not subscriptable", "if data is None:\n        return 0"),
    ],
)
def test_nothing_is_done_for_what_is_not_there(said: str, guard: str) -> None:
    early("return data[key]", f"{guard}\n    return data[key]", said, within=40)


def test_a_default_that_is_shared_by_all_calls() -> None:
    broken = (
        'def add(item, found=[]):  #!\n    """Text."""\n    found.append(item)\n    return found'
    )
    fixed = (
        "def add(item, found=None):\n    '''Text.'''\n    if found is None:\n        found = []\n"
        "    found.append(item)\n    return found"
    )
    assert rank(broken, fixed) <= 20


@pytest.mark.parametrize(
    ("broken", "fixed", "said"),
    [
        ("return fetch(url)", "return await fetch(url)", "coroutine 'fetch' was never awaited"),
        ("return fetch(url).text", "return (await fetch(url)).text", "'coroutine' object has no"),
        ("for x in url: print(x)", "async for x in url: print(x)", "'async_generator' object is"),
    ],
)
def test_what_is_waited_for(broken: str, fixed: str, said: str) -> None:
    frame = "async def get(url):\n    {}\n"
    said = f"RuntimeWarning: {said}"
    assert rank(frame.format(broken + "  #!"), frame.format(fixed), said) <= 5
    with pytest.raises(AssertionError, match="not among"):  # not where nothing can wait
        rank(frame[6:].format(broken + "  #!"), f"async {frame[6:]}".format(fixed), said)


@pytest.mark.parametrize("wanted", ["KeyError", "(ValueError, KeyError)"])
def test_the_exception_that_was_raised_is_caught(wanted: str) -> None:
    broken = """
        def f(d):
            try:
                return d["a"]
            except ValueError:  #!
                return None
    """
    assert rank(broken, broken.replace("ValueError", wanted), "KeyError: 'a'") <= 5


def test_the_exception_that_the_tests_ask_for_is_raised() -> None:
    broken = "def f(x):\n    raise KeyError(x)  #!\n"
    clues = Clues(frozenset({"KeyError"}), "'x'", asked=("OverflowError",))
    first = next(c for c in ranked(broken, clues, 2) if c.kind == "exception")
    assert first.text.startswith("raise OverflowError(x)")


def test_a_result_that_is_not_given_back() -> None:
    said = "AssertionError: assert None == 3"
    broken = "def f(a):\n    b = a + 1\n    b += 2  #!\n"
    assert rank(broken, broken + "    return b\n", said) <= 5
    broken = "def f(a):\n    work(a)  #!\n"
    assert rank(broken, broken.replace("work", "return work"), said) <= 5


CLASS = """
    class Child(Base):
        def __init__(self, name, size=1):
            self.name = name  #!
"""


@pytest.mark.parametrize("call", ["super().__init__()", "super().__init__(name)"])
def test_the_base_class_is_made_too(call: str) -> None:
    fixed = CLASS.replace("self.name = name", f"{call}\n            self.name = name")
    said = "AttributeError: 'Child' object has no attribute 'parts'"
    assert rank(CLASS, fixed, said) <= 10


@pytest.mark.parametrize(
    ("old", "new"),
    [("def f(x)", "def f(self, x)"), ("    def f(x)", "    @staticmethod\n            def f(x)")],
)
def test_a_method_without_self(old: str, new: str) -> None:
    broken = """
        class A:
            def f(x):  #!
                return x
    """
    said = "TypeError: A.f() takes 1 positional argument but 2 were given"
    assert rank(broken, broken.replace(old, new), said) <= 3


def test_one_value_is_formatted_as_it_is() -> None:
    said = "TypeError: not all arguments converted during string formatting"
    early('return "key %s" % key', 'return "key %s" % (key,)', said, within=3)


def test_a_text_with_names_in_braces_gets_its_f() -> None:
    said = "AssertionError: assert 'no {key} in data' == 'no 3 in data'"
    early('return "no {key} in data"', 'return f"no {key} in data"', said, within=3)
    broken = (
        'def f(a, b):\n    return (\n        "one {a} "\n        "two "  #!\n        "{b}"\n    )\n'
    )
    fixed = (
        'def f(a, b):\n    return (\n        f"one {a} "\n        "two "\n        f"{b}"\n    )\n'
    )
    assert rank(broken, fixed, said) <= 3


def test_a_lambda_of_a_loop_keeps_the_loops_variable() -> None:
    broken = (
        "def f(names):\n    made = []\n    for n in names:\n"
        "        made.append(lambda t: t == n)  #!\n    return made\n"
    )
    assert rank(broken, broken.replace("lambda t:", "lambda t, n=n:").replace("  #!", "")) <= 12
    alone = "def f(names):\n    return [lambda: n for n in names]  #!\n"
    assert rank(alone, alone.replace("lambda:", "lambda n=n:").replace("  #!", "")) <= 12


def test_what_is_searched_may_be_none() -> None:
    said = "TypeError: argument of type 'NoneType' is not iterable"
    early("if 'a' in data.text: return key", "if data.text and 'a' in data.text: return key", said)


def test_the_exception_that_came_out_is_met() -> None:
    said = "OverflowError: timestamp out of range"
    early(
        "result = data.read(key)",
        "try:\n        result = data.read(key)\n    except OverflowError:\n        result = None",
        said,
        within=60,
    )


def test_a_text_becomes_what_the_test_has() -> None:
    broken = b'def f(text):\n    return "Use \'brew upgrade" in text\n'
    quotes = ("Error: nothing", "Error: This is all. Use `brew upgrade` instead")
    clues = replace(clues_of(["AssertionError"]), quotes=quotes)
    first = ranked(broken.decode(), clues, 2)[0]
    assert (
        result(broken, first).decode().splitlines()[1] == '    return "Use `brew upgrade" in text'
    )
    has_it = replace(clues, quotes=(*quotes, "Use 'brew upgrade"))
    assert not any(c.kind == "quoted" for c in ranked(broken.decode(), has_it, 2))


@pytest.mark.parametrize(
    ("said", "fixed"),
    [
        ("AssertionError: assert 'git' == ['git']", "return [value]"),
        ("AssertionError: assert '3' == 3", "return int(value)"),
        ("AssertionError: assert 3 == '3'", "return str(value)"),
        ("AssertionError: assert [1, 2] == (1, 2)", "return tuple(value)"),
    ],
)
def test_a_value_gets_the_type_that_it_is_compared_with(said: str, fixed: str) -> None:
    early("return value", fixed, said, within=3)
