"""SARIF 2.1.0: the structure that its schema requires, and fixes that give the new file."""

from __future__ import annotations

import base64
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clover_code.fix_sarif import as_sarif, error_as_sarif

from .results import AFTER, BEFORE, fixed, unfixed

KNOWN = {
    "log": ({"version", "runs"}, {"$schema"}),
    "run": (
        {"tool"},
        {"results", "invocations", "artifacts", "originalUriBaseIds", "columnKind"},
    ),
    "driver": ({"name"}, {"version", "rules"}),
    "result": (
        {"message"},
        {"ruleId", "ruleIndex", "level", "locations", "relatedLocations", "fixes"},
    ),
    "location": (set(), {"id", "message", "physicalLocation"}),
    "physicalLocation": ({"artifactLocation"}, {"region"}),
    "artifactLocation": (set(), {"uri", "uriBaseId"}),
    "region": (
        set(),
        {"startLine", "startColumn", "endLine", "endColumn", "byteOffset", "byteLength"},
    ),
    "fix": ({"artifactChanges"}, {"description", "properties"}),
    "artifactChange": ({"artifactLocation", "replacements"}, set()),
    "replacement": ({"deletedRegion"}, {"insertedContent"}),
    "artifactContent": (set(), {"text", "binary"}),
    "artifact": (set(), {"location", "length", "hashes"}),
    "invocation": ({"executionSuccessful"}, {"exitCode", "toolExecutionNotifications"}),
    "notification": ({"message"}, {"level"}),
    "message": (set(), {"text"}),
    "reportingDescriptor": ({"id"}, {"name", "shortDescription", "defaultConfiguration"}),
}
"""What the schema requires of each object, and which of its other properties we use: all objects
of the schema are closed."""


def require(kind: str, said: dict[str, Any]) -> dict[str, Any]:
    required, optional = KNOWN[kind]
    assert required <= set(said) <= required | optional, (kind, set(said))
    return said


def require_valid(log: dict[str, Any]) -> dict[str, Any]:
    """Checks a log against the schema's requirements; returns its run."""
    require("log", log)
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    require("run", run)
    assert set(run["tool"]) == {"driver"}
    driver = require("driver", run["tool"]["driver"])
    for rule in driver["rules"]:
        require("reportingDescriptor", rule)
    for said in run["invocations"]:
        require("invocation", said)
        for note in said.get("toolExecutionNotifications", []):
            require("message", require("notification", note)["message"])
            assert note["level"] in ("none", "note", "warning", "error")
    for artifact in run.get("artifacts", []):
        require_place(require("artifact", artifact)["location"])
    for result in run["results"]:
        require_result(result, driver["rules"])
    return run


def require_result(result: dict[str, Any], rules: list[dict[str, Any]]) -> None:
    require("message", require("result", result)["message"])
    assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
    for location in (*result.get("locations", []), *result.get("relatedLocations", [])):
        physical = require("location", location)["physicalLocation"]
        require_place(require("physicalLocation", physical)["artifactLocation"])
        require_region(physical["region"])
    for fix in result.get("fixes", []):
        require("message", require("fix", fix)["description"])
        assert fix["artifactChanges"]
        for change in fix["artifactChanges"]:
            require_place(require("artifactChange", change)["artifactLocation"])
            assert change["replacements"]
            for replacement in change["replacements"]:
                require_region(require("replacement", replacement)["deletedRegion"])
                require("artifactContent", replacement["insertedContent"])


def require_place(place: dict[str, Any]) -> None:
    require("artifactLocation", place)
    assert place["uri"].isascii() and " " not in place["uri"]


def require_region(region: dict[str, Any]) -> None:
    require("region", region)
    assert all(isinstance(value, int) for value in region.values())
    assert all(region[key] >= 1 for key in region if not key.startswith("byte"))
    assert all(region[key] >= 0 for key in region if key.startswith("byte"))


def replacement_of(run: dict[str, Any]) -> dict[str, Any]:
    (result,) = run["results"]
    (change,) = result["fixes"][0]["artifactChanges"]
    (replacement,) = change["replacements"]
    found: dict[str, Any] = replacement
    return found


def applied(before: bytes, replacement: dict[str, Any]) -> bytes:
    """The file after the fix, by its bytes."""
    region = replacement["deletedRegion"]
    start, end = region["byteOffset"], region["byteOffset"] + region["byteLength"]
    return (
        before[:start] + base64.b64decode(replacement["insertedContent"]["binary"]) + before[end:]
    )


def applied_as_text(before: str, replacement: dict[str, Any]) -> str:
    """The file after the fix, by lines and columns."""
    region, starts = replacement["deletedRegion"], [0]
    starts += [at + 1 for at, char in enumerate(before) if char == "\n"]
    start = starts[region["startLine"] - 1] + region["startColumn"] - 1
    end = starts[region["endLine"] - 1] + region["endColumn"] - 1
    return before[:start] + str(replacement["insertedContent"]["text"]) + before[end:]


def test_a_fix() -> None:
    run = require_valid(as_sarif(fixed(), "pytest -q"))
    (result,) = run["results"]
    assert result["message"]["text"].startswith("The check `pytest -q` fails. Failing before:")
    place = result["locations"][0]["physicalLocation"]
    assert unquote(place["artifactLocation"]["uri"]) == "pkg/größe 1.py"
    assert run["originalUriBaseIds"] == {"SRCROOT": {"uri": "file:///repo%20with%20space/"}}
    assert place["region"] == {
        "startLine": 3,
        "startColumn": 15,
        "endLine": 3,
        "endColumn": 15,
        "byteOffset": BEFORE.encode().index(b"<") + 1,
        "byteLength": 0,
    }
    assert [at["physicalLocation"]["region"]["startLine"] for at in result["relatedLocations"]] == [
        3,
        9,
    ]
    assert applied(BEFORE.encode(), replacement_of(run)) == AFTER.encode()
    assert run["artifacts"][0]["length"] == len(BEFORE.encode())


TEXT = st.text(st.sampled_from("aä漢\n\r<\u2028🙂"), max_size=20)


@given(before=TEXT, after=TEXT)
def test_the_replacement_gives_the_new_file_in_bytes_and_in_text(before: str, after: str) -> None:
    if before != after:
        run = require_valid(as_sarif(fixed(before.encode(), after.encode()), "x"))
        replacement = replacement_of(run)
        assert applied(before.encode(), replacement) == after.encode()
        assert applied_as_text(before, replacement) == after


@pytest.mark.parametrize(
    "before,after",
    [
        (b"x = '\xe9' < 1\n", b"x = '\xe9' <= 1\n"),
        (b"\xff\xfea\x00", b"\xff\xfeb\x00"),
        (b"x = 1\n", b"x = '\xe9'\n"),
    ],
)
def test_files_that_are_not_utf8_have_bytes_only(before: bytes, after: bytes) -> None:
    run = require_valid(as_sarif(fixed(before, after), "x"))
    replacement = replacement_of(run)
    assert applied(before, replacement) == after
    assert "text" not in replacement["insertedContent"]
    assert replacement["deletedRegion"]["startLine"] == 1


def test_a_byte_order_mark_is_no_column() -> None:
    before, after = b"\xef\xbb\xbfx = 1\n", b"\xef\xbb\xbfx = 2\n"
    replacement = replacement_of(require_valid(as_sarif(fixed(before, after), "x")))
    assert replacement["deletedRegion"]["startColumn"] == 5
    assert applied(before, replacement) == after


def test_no_patch_is_a_result_without_fixes() -> None:
    run = require_valid(as_sarif(unfixed(), "pytest"))
    (result,) = run["results"]
    assert result["message"]["text"] == "The check `pytest` fails, and no patch was found."
    assert "fixes" not in result
    (note,) = run["invocations"][0]["toolExecutionNotifications"]
    assert note["message"]["text"] == "no candidate makes the check pass"
    assert run["invocations"][0]["exitCode"] == 1


def test_a_check_that_passes_is_no_result() -> None:
    run = require_valid(as_sarif(unfixed(status="not_reproducible", exit_code=3), "pytest"))
    assert run["results"] == []


def test_a_run_that_could_not_take_place() -> None:
    run = require_valid(error_as_sarif("install it", 2))
    assert run["results"] == []
    assert run["invocations"][0]["executionSuccessful"] is False
