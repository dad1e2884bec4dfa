"""Reads what linters and type checkers print: their own JSON or text, SARIF, or JSON of any kind.

A reader takes the standard output and returns findings, or None where the output is not of its
form. Lines and columns are 1-based; paths are as the tool gives them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

from clover_engine.privacy.uris import to_path
from clover_patcher.check.tool_fixes import Replacement

Format = Literal["ruff", "mypy", "flake8", "pyright", "pylint", "any"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One diagnostic as a tool gives it."""

    path: str
    line: int
    column: int | None
    code: str
    message: str
    fix: tuple[Replacement, ...] = ()
    """What the tool would change in this file; empty where it does not say."""


Reader = Callable[[str], list[Finding] | None]

_MYPY = re.compile(
    r"(?P<path>.+?):(?P<line>\d+):(?:(?P<column>\d+):)?(?:\d+:\d+:)? "
    r"(?P<severity>error|warning|note): (?P<message>.*?)(?:  \[(?P<code>[a-z0-9-]+)\])?"
)
_FLAKE8 = re.compile(
    r"(?P<path>.+?):(?P<line>\d+):(?P<column>\d+): (?P<code>[A-Z]+[0-9]+) (?P<message>.*)"
)
_HIDDEN = frozenset({"note", "none", "information", "info", "hint"})
"""Severities that do not make a check fail."""


def read_findings(output: str, form: Format) -> list[Finding] | None:
    """What a tool found; None where its output is not of this form."""
    return _READERS[form](output)


def _lines(pattern: re.Pattern[str], output: str) -> list[Finding]:
    found = []
    for line in output.splitlines():
        match = pattern.fullmatch(line)
        if match is None:
            continue
        parts: dict[str, str | None] = {"severity": "error", **match.groupdict()}
        if parts["severity"] == "error":
            column = int(parts["column"] or 0) or None
            said, code = parts["message"] or "", parts["code"] or ""
            found.append(Finding(parts["path"] or "", int(parts["line"] or 0), column, code, said))
    return found


def _read_mypy(output: str) -> list[Finding] | None:
    return _lines(_MYPY, output)


def _read_flake8(output: str) -> list[Finding] | None:
    return _lines(_FLAKE8, output)


def _read_pyright(output: str) -> list[Finding] | None:
    data = _json(output)
    if not isinstance(data, dict) or not isinstance(data.get("generalDiagnostics"), list):
        return None
    found = []
    for said in data["generalDiagnostics"]:
        if said.get("severity") in _HIDDEN:
            continue
        start = said.get("range", {}).get("start", {"line": 0, "character": 0})
        at = (start["line"] + 1, start["character"] + 1)
        message = " ".join(said["message"].split())
        found.append(Finding(said["file"], *at, said.get("rule") or "", message))
    return found


def _read_any(output: str) -> list[Finding] | None:
    """SARIF, a list of JSON objects somewhere in a document, or one JSON object a line."""
    data = _json(output)
    if data is None:
        entries = [_json(line) for line in output.splitlines() if line.strip()]
        if not entries or not all(isinstance(entry, dict) for entry in entries):
            return None
        return _objects(entries)
    if isinstance(data, dict) and isinstance(data.get("runs"), list):
        return [found for run in data["runs"] for found in _sarif_run(run)]
    if isinstance(data, list):
        return _objects(data)
    if not isinstance(data, dict) or _object(data) is not None:
        return _objects([data])
    lists = [value for value in data.values() if isinstance(value, list)]
    found = [_objects(value) for value in lists]
    return max((f for f in found if f is not None), key=len, default=None)


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


# --- JSON of tools that nobody described to us ----------------------------------------------------

_PATH = ("filename", "path", "file", "file_path", "filePath", "fileName", "location.path")
_LINE = (
    *("line", "row", "line_number", "lineNumber", "start_line", "startLine", "location.row"),
    *("location.line", "start.line", "location.lines.begin", "location.positions.begin.line"),
    *("position.line", "range.start.line", "location.start.line", "location.start.row"),
)
_COLUMN = ("column", "col", "column_number", "col_offset", "location.column", "start.col")
_CODE = (
    *("code", "rule", "symbol", "rule_id", "ruleId", "check_name", "check_id", "test_id", "name"),
    *("message-id", "messageId", "code.name"),
)
_MESSAGE = ("message", "text", "description", "issue_text", "msg", "extra.message", "message.text")
_SEVERITY = ("severity", "level")


def _objects(entries: Iterable[Any]) -> list[Finding] | None:
    """Findings of objects that have a path and a line; None where none has both."""
    found, strange = [], False
    for entry in entries:
        finding = _object(entry) if isinstance(entry, dict) else None
        if finding is None:
            strange = True
        elif str(_first(entry, _SEVERITY, str) or "").lower() not in _HIDDEN:
            found.append(finding)
    return None if strange and not found else found


def _object(entry: Mapping[str, Any]) -> Finding | None:
    path, line = _first(entry, _PATH, str), _first(entry, _LINE, int)
    if path is None or line is None:
        return None
    code, message = _code(entry), _first(entry, _MESSAGE, str) or ""
    column, said = _first(entry, _COLUMN, int), " ".join(message.split())
    return Finding(path, line, column, code, said, _fix(entry))


def _code(entry: Mapping[str, Any]) -> str:
    """The rule: a single word, since some tools call an excerpt of the program "code"."""
    words = (_first(entry, (name,), str) for name in _CODE)
    return next((word for word in words if word and len(word.split()) == 1), "")


def _fix(entry: Mapping[str, Any]) -> tuple[Replacement, ...]:
    """The edits of ruff's JSON."""
    edits = _first(entry, ("fix.edits",), list) or ()
    try:
        return tuple(
            Replacement(_place(edit["location"]), _place(edit["end_location"]), edit["content"])
            for edit in edits
        )
    except (KeyError, TypeError):
        return ()


def _place(where: Mapping[str, int]) -> tuple[int, int]:
    return where["row"], where["column"]


def _first(entry: Mapping[str, Any], names: Iterable[str], kind: type) -> Any:
    """The first of the dotted names that has a value of this type."""
    for name in names:
        value: Any = entry
        for part in name.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        if isinstance(value, kind) and not isinstance(value, bool):
            return value
    return None


# --- SARIF ----------------------------------------------------------------------------------------


def _sarif_run(run: Mapping[str, Any]) -> Iterator[Finding]:
    """A run's results that are problems now: not absent, not suppressed, not mere notes."""
    for result in run.get("results") or ():
        if result.get("kind", "fail") not in ("fail", "open", "review"):
            continue
        if result.get("level") in _HIDDEN or result.get("baselineState") == "absent":
            continue
        if result.get("suppressions"):
            continue
        place = _first_of(result.get("locations")).get("physicalLocation") or {}
        region = place.get("region") or {}
        message = " ".join(str((result.get("message") or {}).get("text", "")).split())
        column = region.get("startColumn")
        yield Finding(
            _sarif_path(run, place.get("artifactLocation") or {}),
            int(region.get("startLine") or 1),
            column,
            _sarif_rule(run, result),
            message,
            _sarif_fix(result),
        )


def _sarif_rule(run: Mapping[str, Any], result: Mapping[str, Any]) -> str:
    rule = result.get("ruleId") or (result.get("rule") or {}).get("id")
    if rule is None and isinstance(index := result.get("ruleIndex"), int) and index >= 0:
        rules = ((run.get("tool") or {}).get("driver") or {}).get("rules") or ()
        rule = rules[index].get("id") if index < len(rules) else None
    return str(rule or "")


def _sarif_fix(result: Mapping[str, Any]) -> tuple[Replacement, ...]:
    """The first fix, where it changes a single file."""
    changed: list[Any] = _first_of(result.get("fixes")).get("artifactChanges") or []
    if len(changed) != 1:
        return ()
    found = []
    for replacement in changed[0].get("replacements") or ():
        region = replacement.get("deletedRegion") or {}
        start = (int(region.get("startLine", 0)), int(region.get("startColumn", 1)))
        if "endColumn" not in region:
            return ()
        end = (int(region.get("endLine", start[0])), int(region["endColumn"]))
        text = (replacement.get("insertedContent") or {}).get("text", "")
        found.append(Replacement(start, end, text))
    return tuple(found)


def _sarif_path(run: Mapping[str, Any], place: Mapping[str, Any]) -> str:
    """A location's file, with its base folder where the log gives one."""
    if "uri" not in place and isinstance(index := place.get("index"), int) and index >= 0:
        artifacts = run.get("artifacts") or ()
        place = artifacts[index].get("location") or {} if index < len(artifacts) else {}
    uri, base = str(place.get("uri") or ""), place.get("uriBaseId")
    parts = urlsplit(uri)
    if parts.scheme in ("", "file") and not uri.startswith("/") and base:
        known = (run.get("originalUriBaseIds") or {}).get(base) or {}
        if not parts.scheme:
            uri = str(known.get("uri") or "") + uri
            parts = urlsplit(uri)
    if not parts.scheme:
        return unquote(parts.path)
    path = to_path(uri) if parts.scheme == "file" else None
    return uri if path is None else str(path)


def _first_of(entries: Any) -> Mapping[str, Any]:
    return entries[0] if isinstance(entries, list) and entries else {}


_READERS: Mapping[Format, Reader] = {
    "ruff": _read_any,
    "mypy": _read_mypy,
    "flake8": _read_flake8,
    "pyright": _read_pyright,
    "pylint": _read_any,
    "any": _read_any,
}
