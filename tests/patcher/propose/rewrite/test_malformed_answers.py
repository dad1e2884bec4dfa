"""Answers as small models give them: each is used as it was meant, or refused. Never misapplied.

A corpus by combination: three programs × the ways in which answers were seen to be deformed (by
Qwen2.5-Coder 0.5B and 1.5B on repair prompts, and in the reports on other models) × headings.
What a used answer must give is stated apart: the program with its one wrong line mended, compared
as a syntax tree (Python) or without blanks (JavaScript).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from clover_patcher.propose.rewrite.answers import read_answer
from clover_patcher.propose.rewrite.splice import splice


@dataclass(frozen=True)
class Program:
    path: str
    qualname: str
    text: str
    wrong: str
    right: str
    function: str
    """The mended function as a model writes it, at the margin."""
    tag: str = "python"
    comment: str = "#"

    @property
    def mended(self) -> str:
        assert self.text.count(self.wrong) == 1
        return self.text.replace(self.wrong, self.right)


CART = Program(
    "shop/cart.py",
    "free_shipping",
    '''"""Prices."""

import os

LIMIT = 50  # from here on


def total(items):
    # one by one
    return sum(items)


def free_shipping(items):
    """Is it free?"""
    amount = total(items)

    if amount > LIMIT:  # the limit
        return True
    return False
''',
    "amount > LIMIT",
    "amount >= LIMIT",
    """def free_shipping(items):
    amount = total(items)
    if amount >= LIMIT:
        return True
    return False
""",
)
METHOD = Program(
    "pkg/core/node.py",
    "Node.depth",
    """import functools
from typing import Any


class Node:
\tdef __init__(self, parent: Any = None) -> None:
\t\tself.parent = parent

\t@property
\tdef depth(self) -> int:
\t\t# the root has depth 0
\t\tdepth, node = 1, self.parent
\t\twhile node is not None:
\t\t\tdepth, node = depth + 1, node.parent
\t\treturn depth


class Leaf(Node):
\tdef __init__(self, parent: Node, text: str) -> None:
\t\tsuper().__init__(parent)
\t\tself.text = text
""",
    "depth, node = 1, self.parent",
    "depth, node = 0, self.parent",
    """def depth(self) -> int:
    depth, node = 0, self.parent
    while node is not None:
        depth, node = depth + 1, node.parent
    return depth
""",
)
SCRIPT = Program(
    "src/clamp.js",
    "clamp",
    """'use strict';

export function clamp(value, low, high) {
  // both ends count
  if (value < low) return high;
  return value > high ? high : value;
}

export const twice = (x) => {
  return 2 * x;
};
""",
    "return high;\n",
    "return low;\n",
    """function clamp(value, low, high) {
  if (value < low) return low;
  return value > high ? high : value;
}
""",
    "javascript",
    "//",
)
PROGRAMS = {"function": CART, "method": METHOD, "script": SCRIPT}
OTHER = {"shop/other.py": "def helper(x):\n    return x\n", "lib/deep.js": "function deep() {}\n"}

Deform = Callable[[Program, str], str]
"""A program and a heading line → an answer."""


def fence(code: str, tag: str, mark: str = "```") -> str:
    return f"{mark}{tag}\n{code}{mark}\n"


def marked(p: Program, *, strip: bool = False) -> str:
    """The wrong line and the right one between SEARCH and REPLACE marks."""
    old, new = line_of(p), line_of(p).replace(p.wrong.rstrip(), p.right.rstrip())
    if strip:
        old, new = old.strip() + "\n", new.strip() + "\n"
    return f"<<<<<<< SEARCH\n{old}=======\n{new}>>>>>>> REPLACE\n"


def diff(p: Program) -> str:
    old, new = line_of(p), line_of(p).replace(p.wrong.rstrip(), p.right.rstrip())
    return f"--- a/{p.path}\n+++ b/{p.path}\n@@ -1,2 +1,2 @@\n-{old}+{new}"


def commented(p: Program) -> str:
    lines = body(p)
    return f"{p.comment} fixed\n" + "".join(
        [lines[0], lines[1].rstrip() + f"  {p.comment} x\n", *lines[2:]]
    )


ELSEWHERE = {
    "python": "class Elsewhere:\n    def run(self):\n        return 1\n",
    "javascript": "class Elsewhere {\n  run() { return 1; }\n}\n",
}


def indented(code: str, by: str) -> str:
    return "".join(by + line if line.strip() else line for line in code.splitlines(True))


def body(p: Program) -> list[str]:
    return p.function.splitlines(True)


PROSE = "The comparison is wrong. Here is the corrected function:\n\n"
AFTER = "\nWith this change, `the tests` should pass. Let me know if you need anything else!\n"

USABLE: dict[str, Deform] = {
    "plain": lambda p, h: h + fence(p.function, p.tag),
    "prose around": lambda p, h: PROSE + h + fence(p.function, p.tag) + AFTER,
    "no language": lambda p, h: h + fence(p.function, ""),
    "wrong language": lambda p, h: h + fence(p.function, "java" if p.tag == "python" else "ts"),
    "tildes": lambda p, h: h + fence(p.function, p.tag, "~~~"),
    "four ticks": lambda p, h: h + fence(p.function, p.tag, "````"),
    "no blank before": lambda p, h: "Fixed:\n" + h.strip() + "\n" + fence(p.function, p.tag),
    "thinking": lambda p, h: f"<think>Or\n```\n{p.function}```?</think>\n" + h
    + fence(p.function, p.tag),
    "end marks": lambda p, h: h + fence(p.function, p.tag) + "<|im_end|>\n<|endoftext|>",
    "crlf": lambda p, h: (h + fence(p.function, p.tag)).replace("\n", "\r\n"),
    "quoted fence": lambda p, h: h + indented(fence(p.function, p.tag), "  "),
    "extra indentation": lambda p, h: h + fence(indented(p.function, "    "), p.tag),
    "tab indentation": lambda p, h: h + fence(p.function.replace("    ", "\t"), p.tag),
    "two blanks": lambda p, h: h + fence(p.function.replace("    ", "  "), p.tag),
    "comments added": lambda p, h: h + fence(commented(p), p.tag),
    "blank lines added": lambda p, h: h + fence(p.function.replace("\n", "\n\n"), p.tag),
    "output behind": lambda p, h: h + fence(p.function, p.tag) + fence("3 passed\n", "text"),
    "shell behind": lambda p, h: h + fence(p.function, p.tag) + fence("pytest -q\n", "bash"),
    "said twice": lambda p, h: h + fence(p.function, p.tag) + "Again:\n\n" + h
    + fence(p.function, p.tag),
    "search and replace": lambda p, h: h + marked(p),
    "search and replace, fenced": lambda p, h: h + fence(marked(p), p.tag),
    "search without margin": lambda p, h: h + fence(marked(p, strip=True), ""),
    "unified diff": lambda p, h: h + fence(diff(p), "diff"),
    "whole file": lambda p, h: f"`{p.path}`:\n" + fence(p.mended, p.tag),
    "heading in a comment": lambda p, h: fence(f"{p.comment} {p.path}\n{p.function}", p.tag),
    "heading in the fence": lambda p, h: f"```{p.tag} {p.path}::{p.qualname}\n{p.function}```\n",
}  # fmt: skip

UNUSABLE: dict[str, Deform] = {
    "empty": lambda p, h: "",
    "only prose": lambda p, h: PROSE + AFTER,
    "only thinking": lambda p, h: "<think>" + fence(p.function, p.tag),
    "left out": lambda p, h: h
    + fence(body(p)[0] + f"    {p.comment} ... existing code ...\n" + body(p)[-1], p.tag),
    "cut in the middle": lambda p, h: h + f"```{p.tag}\n" + "".join(body(p)[:-2]) + "    x = (",
    "wrong search": lambda p, h: h + "<<<<<<< SEARCH\nno such\n=======\nx\n>>>>>>> REPLACE\n",
    "another program": lambda p, h: h + fence(ELSEWHERE[p.tag], p.tag),
    "tests only": lambda p, h: fence("def test_it():\n    assert True\n", "python"),
    "does not parse": lambda p, h: h + fence(p.function.replace("return", "return ) ("), p.tag),
}  # fmt: skip

HEADINGS: dict[str, Callable[[Program], str]] = {
    "path and name": lambda p: f"### `{p.path}::{p.qualname}`\n",
    "path": lambda p: f"**{p.path}**\n\n",
    "base name": lambda p: f"File: {p.path.rpartition('/')[2]}\n",
    "longer path": lambda p: f"/app/work/{p.path}::{p.qualname}\n",
    "none": lambda p: "",
}


def line_of(p: Program) -> str:
    """The whole line with the mistake."""
    at = p.text.index(p.wrong)
    start, end = p.text.rfind("\n", 0, at) + 1, p.text.index("\n", at) + 1
    return p.text[start:end]


def meaning(program: Program, text: str) -> str:
    if program.tag == "python":
        tree = ast.parse(text)
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and ast.get_docstring(node) is not None:
                node.body = node.body[1:]
        return ast.dump(tree)
    return re.sub(r"\s+|//[^\n]*", "", text)


def after(program: Program, answer: str) -> tuple[dict[str, str], tuple[str, ...]]:
    files = {program.path: program.text, **OTHER}
    done = splice(read_answer(answer), files, [(program.path, program.qualname)])
    return done.texts, done.complaints


CASES = [(p, h, d) for p in PROGRAMS for h in HEADINGS for d in USABLE]


def used(case: tuple[str, str, str]) -> bool:
    """Whether the answer was used; fails where it was misapplied."""
    program = PROGRAMS[case[0]]
    answer = USABLE[case[2]](program, HEADINGS[case[1]](program))
    texts, _ = after(program, answer)
    assert set(texts) <= {program.path}, case
    if not texts:
        return False
    assert meaning(program, texts[program.path]) == meaning(program, program.mended), case
    return True


def test_usable_answers_are_used_and_none_is_misapplied() -> None:
    unused = [case for case in CASES if not used(case)]
    assert len(CASES) >= 150
    assert len(unused) <= len(CASES) // 10, unused


@pytest.mark.parametrize("name", UNUSABLE)
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
@pytest.mark.parametrize("heading", HEADINGS.values(), ids=HEADINGS)
def test_unusable_answers_change_nothing_that_is_there(
    program: Program, heading: Callable[[Program], str], name: str
) -> None:
    texts, complaints = after(program, UNUSABLE[name](program, heading(program)))
    assert not texts and complaints, (texts, complaints)


def test_comments_blank_lines_and_docstrings_stay() -> None:
    answer = USABLE["plain"](CART, "")
    texts, _ = after(CART, answer)
    assert texts[CART.path] == CART.mended, "nothing but the wrong line changed"


def test_tabs_decorators_and_other_methods_stay() -> None:
    texts, _ = after(METHOD, USABLE["plain"](METHOD, "`pkg/core/node.py::Node.depth`\n"))
    assert texts[METHOD.path] == METHOD.mended


def test_a_name_that_two_classes_have_is_not_guessed() -> None:
    method = "    def f(self):\n        return 1\n"
    text = f"class A:\n{method}\n\nclass B:\n{method}"
    block = "```python\ndef f(self):\n    return 2\n```\n"
    done = splice(read_answer(block), {"m.py": text})
    assert not done.texts and "stands 2 times" in done.complaints[0]
    done = splice(read_answer(block), {"m.py": text}, [("m.py", "B.f")])
    assert done.texts["m.py"] == text[:-2] + "2\n"


def test_two_files_of_one_answer_change_together() -> None:
    files = {"a.py": "def f():\n    return g(1)\n", "b.py": "def g(x):\n    return x\n"}
    answer = (
        "a.py::f\n```python\ndef f():\n    return g(1, 2)\n```\n"
        "b.py::g\n```python\ndef g(x, y):\n    return x + y\n```\n"
    )
    assert splice(read_answer(answer), files).texts == {
        "a.py": "def f():\n    return g(1, 2)\n",
        "b.py": "def g(x, y):\n    return x + y\n",
    }


def test_new_functions_and_imports_come_along() -> None:
    files = {"a.py": "import os\n\n\ndef f(x):\n    return x\n"}
    half = "def half(x):\n    return math.floor(x / 2)\n"
    answer = f"```python\nimport math\n\n{half}\ndef f(x):\n    return half(x)\n```"
    (text,) = splice(read_answer(answer), files, [("a.py", "f")]).texts.values()
    assert text.startswith("import os\nimport math\n") and text.count("def half") == 1
    names: dict[str, Callable[[int], int]] = {}
    exec(text, names)
    assert names["f"](5) == 2


def test_what_stands_outside_of_functions_is_not_lost() -> None:
    """A block that has all functions of a file, but not its other statements, is not the file."""
    text = '"""About."""\n\n\ndef f(x):\n    return x\n\n\n"""Notes."""\nprint(f(1))\n'
    answer = "m.py\n```python\ndef f(x):\n    return x + 1\n```\n"
    done = splice(read_answer(answer), {"m.py": text})
    assert done.texts == {"m.py": text.replace("return x\n", "return x + 1\n")}
