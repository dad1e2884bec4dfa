"""What tools print, as they print it (flake8 7.3, pylint 4.0, basedpyright 1.36, bandit 1.9)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from clover_patcher.check.lint_output import Finding, Format, read_findings
from clover_patcher.check.tool_fixes import Replacement, tool_candidate
from clover_patcher.edits import apply_edits

PYRIGHT = {
    "version": "1.1.407",
    "generalDiagnostics": [
        {
            "file": "/r/pkg/a.py",
            "severity": "error",
            "message": 'Type "str" is not assignable to "int"\n  "str" is not "int"',
            "range": {"start": {"line": 7, "character": 4}, "end": {"line": 7, "character": 9}},
            "rule": "reportReturnType",
        },
        {
            "file": "/r/pkg/a.py",
            "severity": "information",
            "message": "only a remark",
            "range": {"start": {"line": 0, "character": 0}, "end": {"line": 0, "character": 1}},
        },
    ],
}
PYLINT = [
    {
        "type": "error",
        "module": "pkg.a",
        "obj": "f",
        "line": 8,
        "column": 15,
        "path": "pkg/a.py",
        "symbol": "undefined-variable",
        "message": "Undefined variable 'undefined'",
        "message-id": "E0602",
    }
]
BANDIT = {
    "errors": [],
    "metrics": {"_totals": {"loc": 6}},
    "results": [
        {
            "code": "6     x = 1\n7     assert x\n",
            "col_offset": 4,
            "filename": "pkg/a.py",
            "issue_severity": "LOW",
            "issue_text": "Use of assert detected.",
            "line_number": 7,
            "line_range": [7],
            "test_id": "B101",
            "test_name": "assert_used",
        }
    ],
}


@pytest.mark.parametrize(
    ("form", "output", "found"),
    [
        (
            "flake8",
            "pkg/a.py:2:1: F401 'os' imported but unused\n1     F401 'os' imported\n",
            Finding("pkg/a.py", 2, 1, "F401", "'os' imported but unused"),
        ),
        (
            "mypy",
            'a:b.py:3:5: error: Bad [odd] thing  [return-value]\na.py:3: note: See "x"\n',
            Finding("a:b.py", 3, 5, "return-value", "Bad [odd] thing"),
        ),
        ("mypy", "a.py:3: error: No code here\n", Finding("a.py", 3, None, "", "No code here")),
        (
            "pyright",
            json.dumps(PYRIGHT),
            Finding(
                *("/r/pkg/a.py", 8, 5, "reportReturnType"),
                'Type "str" is not assignable to "int" "str" is not "int"',
            ),
        ),
        (
            "pylint",
            json.dumps(PYLINT),
            Finding("pkg/a.py", 8, 15, "undefined-variable", "Undefined variable 'undefined'"),
        ),
        ("any", json.dumps(BANDIT), Finding("pkg/a.py", 7, 4, "B101", "Use of assert detected.")),
        (
            "any",
            '{"path": "x.py", "line": 1, "code": "A1", "message": "m"}\n'
            '{"path": "x.py", "line": 2, "code": "A2", "message": "m", "severity": "info"}\n',
            Finding("x.py", 1, None, "A1", "m"),
        ),
    ],
)
def test_one_finding(form: Format, output: str, found: Finding) -> None:
    assert read_findings(output, form) == [found]


@pytest.mark.parametrize("output", ["", "all good", "{", '{"a": 1}', "[1, 2]", '[{"x": 1}]', "3"])
def test_output_of_no_known_form(output: str) -> None:
    assert read_findings(output, "any") is None
    assert read_findings(output, "pyright") is None


@pytest.mark.parametrize("output", ["[]", '{"results": []}', '{"runs": [{"results": []}]}'])
def test_nothing_found(output: str) -> None:
    assert read_findings(output, "any") == []


def sarif(*results: dict[str, Any], **run: Any) -> str:
    rules = [{"id": "R0"}, {"id": "R1"}]
    tool = {"driver": {"name": "x", "rules": rules}}
    return json.dumps({"version": "2.1.0", "runs": [{"tool": tool, "results": results, **run}]})


def result(uri: str = "a.py", line: int = 3, **more: Any) -> dict[str, Any]:
    place = {"artifactLocation": {"uri": uri}, "region": {"startLine": line, "startColumn": 2}}
    where = [{"physicalLocation": place}]
    return {"ruleId": "R9", "message": {"text": "said"}, "locations": where, **more}


def test_sarif_places_and_rules() -> None:
    based = result("pkg/a%20b.py")
    based["locations"][0]["physicalLocation"]["artifactLocation"]["uriBaseId"] = "SRC"
    listed = result()
    listed["locations"][0]["physicalLocation"]["artifactLocation"] = {"index": 0}
    numbered = result("file:///r/x%C3%A9.py", ruleIndex=1)
    del numbered["ruleId"]
    output = sarif(
        based,
        listed,
        numbered,
        originalUriBaseIds={"SRC": {"uri": "file:///r/src/"}},
        artifacts=[{"location": {"uri": "listed.py"}}],
    )
    assert read_findings(output, "any") == [
        Finding("/r/src/pkg/a b.py", 3, 2, "R9", "said"),
        Finding("listed.py", 3, 2, "R9", "said"),
        Finding("/r/xé.py", 3, 2, "R1", "said"),
    ]


@pytest.mark.parametrize(
    "more",
    [
        {"level": "note"},
        {"kind": "pass"},
        {"baselineState": "absent"},
        {"suppressions": [{"kind": "inSource"}]},
    ],
)
def test_sarif_results_that_are_no_problems_now(more: dict[str, Any]) -> None:
    assert read_findings(sarif(result(**more)), "any") == []
    assert read_findings(sarif(result()), "any") != []


def test_sarif_fixes() -> None:
    region = {"startLine": 3, "startColumn": 1, "endLine": 4, "endColumn": 1}
    replacement = {"deletedRegion": region, "insertedContent": {"text": "x\n"}}
    change = {"artifactLocation": {"uri": "a.py"}, "replacements": [replacement]}
    (found,) = read_findings(sarif(result(fixes=[{"artifactChanges": [change]}])), "any") or []
    assert found.fix == (Replacement((3, 1), (4, 1), "x\n"),)


# --- the tools' own repairs -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "parts", "after"),
    [
        (b"a\nb\nc", [((2, 1), (3, 1), "")], b"a\nc"),
        ("é = 'ü' == x\n".encode(), [((1, 5), (1, 8), "1")], "é = 1 == x\n".encode()),
        (b"\xef\xbb\xbfa = 1\r\nb\r\n", [((1, 1), (1, 2), "z")], b"\xef\xbb\xbfz = 1\r\nb\r\n"),
        (b"a\r\nb\r\nc\r\n", [((3, 1), (4, 1), ""), ((1, 1), (2, 1), "")], b"b\r\n"),
        (b"a", [((1, 2), (1, 2), "\n")], b"a\n"),
    ],
)
def test_replacements_become_one_edit(data: bytes, parts: list[Any], after: bytes) -> None:
    found = tool_candidate("a.py", data, 1, [Replacement(*part) for part in parts])
    assert found is not None
    assert apply_edits(data, found.edits) == after


@pytest.mark.parametrize(
    "parts",
    [
        [((9, 1), (9, 2), "")],
        [((1, 1), (1, 9), "")],
        [((1, 3), (1, 1), "")],
        [((1, 1), (1, 3), "x"), ((1, 2), (1, 3), "y")],
        [],
    ],
)
def test_replacements_that_do_not_fit_are_no_candidate(parts: list[Any]) -> None:
    assert tool_candidate("a.py", b"abc\n", 1, [Replacement(*part) for part in parts]) is None
