"""`fix` beyond Python: the real compilers and interpreters, a scripted model."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from clover_engine.testing.fakes import FakeEngine, FakeTalker
from clover_patcher.fix import FixRequest, FixResult, fix


@dataclass(frozen=True)
class Project:
    """A broken program, its check, and the function that a model answers with."""

    program: str
    check: str
    path: str
    test: str
    files: dict[str, str] = field(repr=False)
    answer: str = field(repr=False)


JAVASCRIPT = Project(
    "node",
    "node test.js",
    "src/price.js",
    "test.js",
    {
        "src/price.js": (
            "const rate = 100;\n\n"
            "function price(text) {\n  // like '3 EUR'\n"
            "  const amount = text.split(' ')[0];\n  return parseInt(amount) * rate;\n}\n\n"
            "module.exports = { price };\n"
        ),
        "src/other.js": "function unused() {\n  return 1;\n}\n",
        "test.js": (
            "const assert = require('assert');\nconst { price } = require('./src/price');\n"
            "assert.strictEqual(price('3.25 EUR'), 325);\n"
        ),
    },
    "function price(text) {\n  // like '3 EUR'\n  const amount = text.split(' ')[0];\n"
    "  return Math.round(parseFloat(amount) * rate);\n}",
)
C = Project(
    "cc",
    "cc -Wall -o sum sum.c test_sum.c && ./sum",
    "sum.c",
    "test_sum.c",
    {
        "sum.c": "int sum(const int *at, int n) {\n    int all = 0;\n"
        "    for (int i = 1; i < n; i++) all += at[i];\n    return all;\n}\n",
        "test_sum.c": "#include <stdio.h>\nint sum(const int *, int);\nint main(void) {\n"
        '    int v[] = {1, 2, 3};\n    if (sum(v, 3) != 6) { printf("sum: %d\\n", sum(v, 3));'
        " return 1; }\n    return 0;\n}\n",
    },
    "int sum(const int *at, int n) {\n    int all = 0;\n"
    "    for (int i = 0; i < n; i++) all += at[i];\n    return all;\n}",
)
RUST = Project(
    "rustc",
    "rustc --test -o check limit.rs && ./check",
    "limit.rs",
    "",
    {
        "limit.rs": "pub fn limit(value: i32, most: i32) -> i32 {\n"
        "    if value > most { value } else { most }\n}\n\n"
        "#[test]\nfn it_limits() {\n    assert_eq!(limit(7, 5), 5);\n"
        "    assert_eq!(limit(3, 5), 3);\n}\n"
    },
    "pub fn limit(value: i32, most: i32) -> i32 {\n    if value > most { most } else { value }\n}",
)
JAVA = Project(
    "javac",
    "javac Words.java WordsTest.java && java WordsTest",
    "Words.java",
    "WordsTest.java",
    {
        "Words.java": "public class Words {\n    static int count(String text) {\n"
        '        return text.split(" ").length;\n    }\n}\n',
        "WordsTest.java": "public class WordsTest {\n    public static void main(String[] a) {\n"
        '        if (Words.count("a  b") != 2) throw new AssertionError(Words.count("a  b"));\n'
        "    }\n}\n",
    },
    'static int count(String text) {\n        return text.trim().split("\\\\s+").length;\n    }',
)
PROJECTS = [JAVASCRIPT, C, RUST, JAVA]


def repair(root: Path, project: Project, engine: FakeEngine | None) -> FixResult:
    return fix(FixRequest(root=root, check=project.check, budget_s=240.0), engine)


def languages() -> list[Any]:
    missing = "there is no {} on this machine"
    return [
        pytest.param(
            project,
            id=project.program,
            marks=pytest.mark.skipif(
                shutil.which(project.program) is None, reason=missing.format(project.program)
            ),
        )
        for project in PROJECTS
    ]


@pytest.mark.parametrize("project", languages())
def test_a_function_is_rewritten(project: Project, make_repo: Any) -> None:
    root = Path(make_repo(project.files))
    engine = FakeTalker(answers=(f"```\n{project.answer}\n```",))
    result = repair(root, project, engine)
    assert result.status == "fixed", result.error
    assert [change.path for change in result.changes] == [project.path]
    asked = engine.conversations[0].messages[-1].content
    assert f"`{project.path}::" in asked and project.files[project.path].split("\n")[1] in asked
    if project.test:
        assert (root / project.test).read_text() == project.files[project.test]
        assert project.files[project.test].splitlines()[-2] in asked


@pytest.mark.parametrize("project", languages()[:1])
def test_the_test_is_frozen_and_unused_functions_come_last(
    project: Project, make_repo: Any
) -> None:
    weak = "test.js\n<<<<<<< SEARCH\nassert.strictEqual(price('3.25 EUR'), 325);\n=======\n>>>>>>>"
    engine = FakeTalker(answers=(weak, f"```js\n{project.answer}\n```"))
    root = Path(make_repo(project.files))
    assert repair(root, project, engine).status == "fixed"
    assert (root / "test.js").read_text() == project.files["test.js"]
    asked = engine.conversations[0].messages[-1].content
    assert asked.index("price.js::price") < asked.find("other.js::unused") % 10**9


@pytest.mark.parametrize("project", languages()[:1])
def test_without_a_model_that_writes_code_the_next_step_is_named(
    project: Project, make_repo: Any
) -> None:
    result = repair(Path(make_repo(project.files)), project, None)
    assert result.status == "none_found"
    assert result.error and "clover-code model get coder-1.5b" in result.error
