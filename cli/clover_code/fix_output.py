"""What `clover-code fix` prints at the end: a diff and a line about it, JSON, a prediction."""

from __future__ import annotations

import base64
import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from clover_patcher.edits import FileChange
    from clover_patcher.fix import FixResult
    from clover_patcher.types import Origin, Outcome

SCHEMA = 1
"""Number of the JSON object's schema; keys are added without a new number, never removed."""
JSON_KEYS = (
    *("schema", "status", "exit_code", "error", "notes", "applied", "fix_id", "commit"),
    *("patch", "patch_base64", "root", "file", "line", "files", "candidates_tried"),
    *("candidates_passing", "rank", "seconds", "engine", "provenance", "explanation"),
    *("suspects", "log", "failures", "next_steps", "alternatives", "frozen"),
)
_SHOWN, _WIDTH = 5, 160
_SEARCHED = (1, 3, 124)
"""Exit codes of runs that could be tried and had no patch."""

_BOLD, _RED, _GREEN, _CYAN, _PLAIN = b"\x1b[1m", b"\x1b[31m", b"\x1b[32m", b"\x1b[36m", b"\x1b[m"
_HEADERS = (b"diff --git", b"--- ", b"+++ ")


def as_json(result: FixResult) -> dict[str, Any]:
    """The run's JSON object."""
    from clover_engine.api import to_json
    from clover_patcher.edits import sha256, unified_diff

    text, encoded = patch_text(result.patch)
    why = result.explanation
    suspects = why.suspects if why else ()
    return {
        "schema": SCHEMA,
        "status": result.status,
        "exit_code": result.exit_code,
        "error": result.error,
        "notes": list(result.notes),
        "applied": result.applied,
        "fix_id": result.fix_id,
        "commit": result.commit,
        "patch": text,
        "patch_base64": encoded,
        "root": str(result.root) if result.root else None,
        "file": result.path,
        "line": result.line,
        "files": [
            {"path": c.path, "before_sha256": sha256(c.before), "after_sha256": sha256(c.after)}
            for c in result.changes
        ],
        "candidates_tried": result.candidates_tried,
        "candidates_passing": result.passing,
        "rank": result.rank,
        "seconds": result.seconds,
        "engine": to_json(result.engine),
        "provenance": _provenance(result.origin, why.kind if why else None),
        "explanation": why.summary if why else None,
        "suspects": [
            {"path": s.path, "line": s.line, "score": s.score, "reasons": list(s.reasons)}
            for s in suspects
        ],
        "log": str(result.log) if result.log else None,
        "failures": failures_as_json(result),
        "next_steps": next_steps(result),
        "alternatives": [
            {"path": other[0].path, "patch": unified_diff(other).decode("utf-8", "replace")}
            for other in result.alternatives
            if other
        ],
        "frozen": [{"path": path, "why": why} for path, why in result.frozen],
    }


def error_as_json(message: str, exit_code: int, seconds: float) -> dict[str, Any]:
    """The same for a run that could not take place."""
    found: dict[str, Any] = dict.fromkeys(JSON_KEYS)
    found |= {"schema": SCHEMA, "status": "error", "exit_code": exit_code, "error": message}
    found |= {"candidates_tried": 0, "candidates_passing": 0, "seconds": round(seconds, 3)}
    return found | {
        "applied": False,
        "notes": [],
        "files": [],
        "suspects": [],
        "alternatives": [],
        "frozen": [],
        "failures": [],
    }


def failures_as_json(ended: FixResult | Outcome | None) -> list[dict[str, str]]:
    """How the check fails without a patch: tests, kinds of errors, messages."""
    return [
        {"test": failure.nodeid, "kind": failure.kind, "message": failure.message}
        for failure in (ended.failures if ended else ())
    ]


def print_failures(ended: FixResult | Outcome | None) -> None:
    """What was reproduced, on standard error: the failing tests and their messages, shortened."""
    failures = ended.failures if ended else ()
    for failure in failures[:_SHOWN]:
        words = " ".join(failure.message.split())
        text = f"{failure.nodeid or 'the check'}: {failure.kind}{': ' if words else ''}{words}"
        say(f"reproduced: {text if len(text) <= _WIDTH else text[: _WIDTH - 1] + '…'}")
    if len(failures) > _SHOWN:
        say(f"reproduced: {len(failures) - _SHOWN} more failing tests")


def next_steps(result: FixResult) -> str | None:
    """What the user can do after a run that found nothing; None after others."""
    if result.status == "none_found":
        return (
            "next: name the file as PATH or the line with --only, let --allow PATTERN unfreeze "
            "files, or repair it by hand from the failures above"
        )
    if result.status == "budget":
        return (
            "next: give more time with --budget SECONDS, go on from here with --resume, or name "
            "the file as PATH or a test as the check"
        )
    if result.status == "not_reproducible" and "flaky" in (result.error or ""):
        return "next: run the check several times, and repair what makes it differ first"
    return None


def prediction(result: FixResult, instance_id: str) -> dict[str, str]:
    """One line of a SWE-bench predictions file; an empty patch where there is none.

    Raises `UnicodeDecodeError` for a patch that is not UTF-8, which the format cannot hold.
    """
    from clover_patcher.deliver.message import tool

    name = tool().replace(" ", "-")
    return {
        "instance_id": instance_id,
        "model_name_or_path": "-".join([name, *_makers(result.origin)]),
        "model_patch": result.patch.decode(),
    }


def _provenance(origin: Origin | None, kind: str | None) -> dict[str, str | None] | None:
    if origin is None:
        return None
    return {
        "proposed_by": origin.proposer,
        "name": origin.name or None,
        "ranked_by": origin.ranked_by or None,
        "kind": kind,
    }


def _makers(origin: Origin | None) -> list[str]:
    """Who made the patch, in words that can be parts of file names."""
    if origin is None:
        return []
    ranked = ["ranked-by", origin.ranked_by] if origin.ranked_by else []
    words = ["templates", *ranked] if origin.proposer == "template" else [origin.name]
    return [re.sub(r"[^\w.+-]", "_", word) for word in words]


def print_text(result: FixResult, *, diff: bool, explain: bool, colour: bool) -> None:
    """The diff on standard output, all else on standard error: notes, reasons, one last line."""
    if diff:
        write_patch(result.patch, colour=colour)
    for note in result.notes:
        say(f"note: {note}")
    if explain:
        print_reasons(result)
    work = f"{result.candidates_tried} candidates tried in {result.seconds:.1f} s"
    if result.error:
        if result.exit_code in _SEARCHED:
            print_failures(result)
            if alone := left_alone(result):
                say(alone)
        if steps := next_steps(result):
            say(steps)
        say(f"{result.error} ({work})")
    elif result.commit:
        say(f"fixed {result.path}:{result.line} ({work}), commit {result.commit[:10]}; {_UNDO}")
    elif result.applied:
        say(f"fixed {result.path}:{result.line} ({work}); {_UNDO}")
    else:
        say(f"would fix {result.path}:{result.line} ({work})")


def print_reasons(result: FixResult) -> None:
    """Why this place and why this patch, and what was left alone, on standard error."""
    for line in reasons(result):
        print(line, file=sys.stderr)


def reasons(result: FixResult) -> Iterator[str]:
    """What `--explain` says, line by line."""
    if result.explanation:
        yield from result.explanation.lines()
    if result.alternatives:
        yield f"Other patches that pass the check ({result.passing - 1}), best first:"
        for other in result.alternatives:
            yield from _short_diff(other)
    if result.frozen:
        yield "Left alone (`--allow PATTERN` lets a patch change them):"
        for path, why in result.frozen:
            yield f"  {path}: {why}"


def _short_diff(changed: Sequence[FileChange]) -> Iterator[str]:
    """The lines that go and come, with the place."""
    for change in changed:
        old, new = (text.decode("utf-8", "replace") for text in (change.before, change.after))
        pair = old.splitlines(), new.splitlines()
        for group in SequenceMatcher(None, *pair, autojunk=False).get_opcodes():
            tag, i1, i2, j1, j2 = group
            if tag != "equal":
                yield f"  {change.path}:{i1 + 1}"
                yield from (f"    -{line}" for line in pair[0][i1:i2])
                yield from (f"    +{line}" for line in pair[1][j1:j2])


def left_alone(result: FixResult) -> str:
    """Which frozen files took part in a failure that was not repaired; "" for none."""
    named = [(path, why) for path, why in result.frozen if "by its name" not in why]
    if not named:
        return ""
    shown = "; ".join(f"{path} ({why})" for path, why in named[:_SHOWN])
    more = f"; and {len(named) - _SHOWN} more" if len(named) > _SHOWN else ""
    return f"left alone: {shown}{more}; --allow {named[0][0]} lets a patch change it"


_UNDO = "`clover-code undo` takes it back"


def say(text: str, name: str = "fix") -> None:
    """One line on standard error, of the subcommand `name`."""
    print(f"clover-code {name}: {' '.join(text.split())}", file=sys.stderr)


def write_patch(patch: bytes, *, colour: bool) -> None:
    """The patch on standard output, in its own bytes."""
    sys.stdout.flush()
    sys.stdout.buffer.write(coloured(patch) if colour else patch)
    sys.stdout.buffer.flush()


def wants_colour(stream: TextIO) -> bool:
    """Whether the stream is a terminal whose user has not asked for plain text (NO_COLOR)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def coloured(patch: bytes) -> bytes:
    """The patch with git's colours, for a terminal."""
    return b"".join(_coloured(line) for line in patch.splitlines(keepends=True))


def print_json(data: dict[str, Any]) -> None:
    """One JSON object on standard output, in one line of ASCII."""
    print(json.dumps(data))


def patch_text(patch: bytes) -> tuple[str | None, str | None]:
    """The patch as text, or in Base64 where it is not UTF-8."""
    if not patch:
        return None, None
    try:
        return patch.decode(), None
    except UnicodeDecodeError:
        return None, base64.b64encode(patch).decode()


def _coloured(line: bytes) -> bytes:
    if line.startswith(_HEADERS):
        colour = _BOLD
    else:
        colour = {b"-": _RED, b"+": _GREEN, b"@": _CYAN}.get(line[:1], b"")
    if not colour:
        return line
    text = line.rstrip(b"\r\n")
    return colour + text + _PLAIN + line[len(text) :]
