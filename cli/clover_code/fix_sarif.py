"""The result of `clover-code fix` as SARIF 2.1.0, with the patch as `fixes[]`.

Regions are given in bytes and, where the file is UTF-8, in lines and columns too (counted in
code points). Paths are relative to `SRCROOT`, the top of the working tree.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

if TYPE_CHECKING:
    from clover_patcher.edits import FileChange
    from clover_patcher.fix import FixResult

SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
_ROOT_ID, _RULE = "SRCROOT", "check-fails"
_RULES = [
    {
        "id": _RULE,
        "name": "CheckFails",
        "shortDescription": {"text": "A check that must pass fails."},
        "defaultConfiguration": {"level": "error"},
    }
]


def as_sarif(result: FixResult, check: str) -> dict[str, Any]:
    """The log of a run that took place."""
    run = _run(result.exit_code, successful=True)
    if result.root:
        run["originalUriBaseIds"] = {_ROOT_ID: {"uri": result.root.as_uri() + "/"}}
    if result.status != "not_reproducible":
        run["results"] = [_result(result, check)]
    run["artifacts"] = [_artifact(change) for change in result.changes]
    if result.error:
        run["invocations"][0]["toolExecutionNotifications"] = [
            _notification(result.error, "warning")
        ]
    return _log(run)


def error_as_sarif(message: str, exit_code: int) -> dict[str, Any]:
    """The log of a run that could not take place."""
    run = _run(exit_code, successful=False)
    run["invocations"][0]["toolExecutionNotifications"] = [_notification(message, "error")]
    return _log(run)


def _log(run: dict[str, Any]) -> dict[str, Any]:
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _run(exit_code: int, *, successful: bool) -> dict[str, Any]:
    from clover_patcher.deliver.message import tool

    name, _, version = tool().partition(" ")
    driver = {"name": name, "rules": _RULES} | ({"version": version} if version else {})
    return {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "invocations": [{"executionSuccessful": successful, "exitCode": exit_code}],
        "results": [],
    }


def _notification(message: str, level: str) -> dict[str, Any]:
    return {"message": {"text": message}, "level": level}


def _result(result: FixResult, check: str) -> dict[str, Any]:
    why = result.explanation
    if why is None:
        return {
            "ruleId": _RULE,
            "ruleIndex": 0,
            "level": "error",
            "message": {"text": f"The check `{check}` fails, and no patch was found."},
        }
    found: dict[str, Any] = {
        "ruleId": _RULE,
        "ruleIndex": 0,
        "level": "error",
        "message": {"text": f"The check `{check}` fails. {why.summary}"},
        "locations": [_location(result)],
        "relatedLocations": [
            {
                "id": number,
                "message": {"text": "; ".join(s.reasons) or "suspected"},
                "physicalLocation": {
                    "artifactLocation": _place(s.path),
                    "region": {"startLine": s.line},
                },
            }
            for number, s in enumerate(why.suspects, 1)
        ],
    }
    fix: dict[str, Any] = {
        "description": {"text": f"{why.change}. Proposed by {why.proposer}."},
        "artifactChanges": [
            {"artifactLocation": _place(change.path), "replacements": [_replacement(change)]}
            for change in result.changes
        ],
    }
    if (origin := result.origin) is not None:
        fix["properties"] = {"proposedBy": origin.proposer, "proposerName": origin.name}
        fix["properties"] |= {"rankedBy": origin.ranked_by} if origin.ranked_by else {}
    return found | {"fixes": [fix]}


def _location(result: FixResult) -> dict[str, Any]:
    change = next(c for c in result.changes if c.path == result.path)
    start, end, _ = _difference(change)
    return {
        "physicalLocation": {
            "artifactLocation": _place(change.path),
            "region": _region(change.before, start, end),
        }
    }


def _artifact(change: FileChange) -> dict[str, Any]:
    from clover_patcher.edits import sha256

    return {
        "location": _place(change.path),
        "length": len(change.before),
        "hashes": {"sha-256": sha256(change.before)},
    }


def _place(path: str) -> dict[str, str]:
    return {"uri": quote(path.encode("utf-8", "surrogateescape")), "uriBaseId": _ROOT_ID}


def _replacement(change: FileChange) -> dict[str, Any]:
    start, end, new = _difference(change)
    content = {"binary": base64.b64encode(new).decode()}
    if _decodes(change.before) and _decodes(new):
        content["text"] = new.decode()
    return {"deletedRegion": _region(change.before, start, end), "insertedContent": content}


def _difference(change: FileChange) -> tuple[int, int, bytes]:
    """Bytes [start, end) of the old content, and what stands there now; whole characters."""
    old, new = change.before, change.after
    start = _common(old, new)
    tail = _common(old[start:][::-1], new[start:][::-1])
    while start and _within_character(old, new, start):
        start -= 1
    while tail and _within_character(old, new, -tail):
        tail -= 1
    return start, len(old) - tail, new[start : len(new) - tail]


def _common(first: bytes, second: bytes) -> int:
    limit = min(len(first), len(second))
    return next((i for i in range(limit) if first[i] != second[i]), limit)


def _within_character(old: bytes, new: bytes, at: int) -> bool:
    """Whether a cut before that byte would divide a UTF-8 character of either side."""
    return any(text[at:][:1] and text[at] & 0xC0 == 0x80 for text in (old, new))


def _region(data: bytes, start: int, end: int) -> dict[str, int]:
    region = {"byteOffset": start, "byteLength": end - start}
    if not _decodes(data):
        return {"startLine": data.count(b"\n", 0, start) + 1} | region
    (line, column), (last, after) = (_line_and_column(data, at) for at in (start, end))
    text = {"startLine": line, "startColumn": column, "endLine": last, "endColumn": after}
    return text | region


def _line_and_column(data: bytes, at: int) -> tuple[int, int]:
    """Both from 1; a byte order mark is no column."""
    before = data[:at].decode("utf-8").removeprefix("\ufeff")
    line = before.count("\n") + 1
    return line, len(before) - (before.rfind("\n") + 1) + 1


def _decodes(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
