"""What a run prints, for people and for programs."""

from __future__ import annotations

import base64
import io
import json
from typing import Any

import pytest

from clover_code import fix_output as output
from clover_code.fix_screen import Screen
from clover_patcher.types import EngineUse, Origin, TestFailure

from .results import AFTER, BEFORE, SUSPECTS, WHY, fixed, unfixed


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_json_object() -> None:
    said = json.loads(json.dumps(output.as_json(fixed(notes=("a note",)))))
    assert set(said) == set(output.JSON_KEYS)
    assert said["schema"] == 1
    assert (said["status"], said["exit_code"], said["error"]) == ("fixed", 0, None)
    assert "+    return x <= 'ä'\n" in said["patch"]
    assert said["patch_base64"] is None
    assert said["files"][0]["path"] == "pkg/größe 1.py"
    assert len(said["files"][0]["before_sha256"]) == 64
    assert said["suspects"][1] == {"path": "b.py", "line": 9, "score": 0.5, "reasons": []}
    assert (said["rank"], said["candidates_tried"], said["candidates_passing"]) == (11, 12, 1)
    assert said["explanation"] == WHY.summary
    assert (said["applied"], said["fix_id"], said["commit"]) == (
        True,
        "20260101-000000-00000",
        None,
    )
    assert said["notes"] == ["a note"]


def test_the_json_object_of_a_run_without_a_patch() -> None:
    said = output.as_json(unfixed())
    assert set(said) == set(output.JSON_KEYS)
    assert (said["patch"], said["patch_base64"], said["files"], said["suspects"]) == (
        *(None, None),
        *([], []),
    )
    assert said["error"] == "no candidate makes the check pass"


def test_the_json_object_of_an_error_has_the_same_keys_and_types() -> None:
    said = output.error_as_json("do this", 2, 0.12345)
    good = output.as_json(fixed())
    assert set(said) == set(good)
    for key in ("notes", "files", "suspects", "candidates_tried", "seconds", "applied", "schema"):
        assert type(said[key]) in (type(good[key]), float, int)
    assert (said["status"], said["exit_code"], said["error"]) == ("error", 2, "do this")


def test_a_patch_that_is_not_utf8_is_base64() -> None:
    result = fixed(b"x = '\xe9'\n", b"x = '\xe8'\n")
    said = output.as_json(result)
    assert said["patch"] is None
    assert base64.b64decode(said["patch_base64"]) == result.patch
    with pytest.raises(UnicodeDecodeError):
        output.prediction(result, "a__b-1")


def read_predictions(text: str) -> list[dict[str, str]]:
    """What SWE-bench's harness asks of a predictions file: JSON lines with these keys as texts."""
    predictions = [json.loads(line) for line in text.splitlines()]
    for prediction in predictions:
        for key in ("instance_id", "model_name_or_path", "model_patch"):
            assert isinstance(prediction[key], str)
        assert prediction["instance_id"] and prediction["model_name_or_path"]
    return predictions


def test_a_prediction() -> None:
    lines = [json.dumps(output.prediction(r, "a__b-1")) for r in (fixed(), unfixed())]
    found, missing = read_predictions("\n".join(lines))
    assert found["instance_id"] == "a__b-1"
    assert found["model_name_or_path"].startswith("clover-code-")
    assert found["model_name_or_path"].endswith("-templates-ranked-by-clover-nano")
    assert not set(found["model_name_or_path"]) & set(" /:()")
    assert found["model_patch"].encode() == fixed().patch
    assert missing["model_patch"] == ""


@pytest.mark.parametrize(
    "origin,end",
    [
        (Origin(), "-templates"),
        (Origin("template", "", "a"), "-templates-ranked-by-a"),
        (Origin("model", "Big/Coder 7b", "Big/Coder 7b"), "-Big_Coder_7b"),
        (Origin("tool", "ruff"), "-ruff"),
    ],
)
def test_who_proposed_the_patch_is_named_and_not_the_engine_at_hand(
    origin: Origin, end: str
) -> None:
    result = fixed(origin=origin, engine=EngineUse(calls=3, detail="configured"))
    name = output.prediction(result, "x")["model_name_or_path"]
    assert name.endswith(end) and "configured" not in name
    said = output.as_json(result)["provenance"]
    assert said["proposed_by"] == origin.proposer
    assert (said["name"] or "", said["ranked_by"] or "") == (origin.name, origin.ranked_by)


def shown(capfd: pytest.CaptureFixture[str], result: Any, **more: bool) -> tuple[str, list[str]]:
    output.print_text(result, **({"diff": True, "explain": False, "colour": False} | more))
    captured = capfd.readouterr()
    return captured.out, captured.err.splitlines()


def test_people_get_the_diff_and_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    out, err = shown(capfd, fixed())
    assert out.encode() == fixed().patch
    assert err == [
        "clover-code fix: fixed pkg/größe 1.py:3 (12 candidates tried in 1.5 s); "
        "`clover-code undo` takes it back"
    ]
    assert shown(capfd, fixed(applied=False))[1][0].startswith("clover-code fix: would fix pkg")
    assert ", commit 0123456789; `" in shown(capfd, fixed(commit="0123456789abcdef"))[1][0]
    out, err = shown(capfd, unfixed(notes=("a\nnote",)))
    assert out == ""
    assert err == [
        "clover-code fix: note: a note",
        f"clover-code fix: {output.next_steps(unfixed())}",
        "clover-code fix: no candidate makes the check pass (0 candidates tried in 2.0 s)",
    ]


def test_reasons_go_to_standard_error(capfd: pytest.CaptureFixture[str]) -> None:
    out, err = shown(capfd, fixed(), explain=True)
    assert out.encode() == fixed().patch
    assert err[:-1] == list(WHY.lines())
    assert len(shown(capfd, unfixed(), explain=True)[1]) == 2


def test_an_unsuccessful_run_says_what_was_reproduced_and_what_to_do(
    capfd: pytest.CaptureFixture[str],
) -> None:
    failures = tuple(
        TestFailure(f"test_x.py::test_{number}", "AssertionError", f"assert {number}\n" + "x" * 300)
        for number in range(7)
    )
    result = unfixed(failures=failures)
    _, err = shown(capfd, result)
    start = "clover-code fix: reproduced: test_x.py::test_0: AssertionError: assert 0 xxx"
    assert err[0].startswith(start) and len(err[0]) < 200
    assert len(err) == 8
    assert err[5] == "clover-code fix: reproduced: 2 more failing tests"
    assert err[6].startswith("clover-code fix: next: ")
    said = output.as_json(result)
    assert [failure["test"] for failure in said["failures"]] == [one.nodeid for one in failures]
    assert said["failures"][3]["message"] == failures[3].message
    assert "--only" in said["next_steps"]
    assert "--budget" in str(output.next_steps(unfixed(status="budget")))
    assert output.next_steps(fixed()) is None
    assert not output.as_json(fixed())["failures"]


def test_colours_keep_every_byte() -> None:
    patch = fixed(BEFORE.replace("\n", "\r\n").encode(), AFTER.replace("\n", "\r\n").encode()).patch
    painted = output.coloured(patch)
    for code in (b"\x1b[1m", b"\x1b[31m", b"\x1b[32m", b"\x1b[36m", b"\x1b[m"):
        assert code in painted
        painted = painted.replace(code, b"")
    assert painted == patch


@pytest.mark.parametrize(
    "name,value,wanted",
    [("NO_COLOR", "1", False), ("NO_COLOR", "", True), ("TERM", "dumb", False), ("X", "", True)],
)
def test_who_gets_colours(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, wanted: bool
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv(name, value)
    assert output.wants_colour(Terminal()) is wanted
    assert output.wants_colour(io.StringIO()) is False


def tell(screen: Screen) -> None:
    screen.event("baseline", "running pytest", left_s=100.0)
    for number in range(1, 4):
        screen.event("search", f"x = \x1b[2J{number}", tried=number, passing=0, left_s=99.0)
    screen.event("found", "x = 3", tried=4, passing=1, left_s=98.0)
    screen.clear()


def test_a_terminal_has_one_live_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "60")
    terminal = Terminal()
    tell(Screen(terminal))
    assert "\n" not in terminal.getvalue()
    lines = terminal.getvalue().split("\r\x1b[K")
    assert lines == [
        "",
        "baseline   100 s left  running pytest",
        "search     1 tried  99 s left  x =  [2J1",
        "found      4 tried  1 passing  98 s left  best: x = 3",
        "",
    ]


def test_a_ci_log_has_plain_lines() -> None:
    log = Terminal()
    tell(Screen(log, ci=True))
    assert log.getvalue().splitlines() == [
        "clover-code fix: baseline: 100 s left, running pytest",
        "clover-code fix: search: 1 tried, 99 s left, x =  [2J1",
        "clover-code fix: found: 4 tried, 1 passing, 98 s left, best: x = 3",
    ]


def test_a_pipe_hears_nothing() -> None:
    pipe = io.StringIO()
    tell(Screen(pipe))
    assert pipe.getvalue() == ""
    assert SUSPECTS[0].path in WHY.place
