"""Reads a pasted traceback: which lines of the repository it names, and which tests.

Understood are Python's own tracebacks (chained, in exception groups, with markers under the
source), pytest's long and short style, and those of IPython and rich; with colours, quoted (`> `,
`| `) or with a log's prefix in front of each line. Paths of another machine are matched by their
ends, and lines that have moved since by the source that the traceback shows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from clover_patcher.errors import UsageError
from clover_patcher.types import Frame, TestFailure

_ESCAPE = re.compile(r"\x1b(?:\[[0-9;:?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\))")
_PYTHON = re.compile(r'File "(?P<path>[^"\n]+)", line (?P<line>\d+)(?:, in (?P<name>.+?))?\s*$')
_IPYTHON = re.compile(r"^File (?P<path>\S.*?\.py):(?P<line>\d+)(?:, in (?P<name>[\w.<>]+).*)?$")
_RICH = re.compile(r"^[│|] (?P<path>\S.*?\.py):(?P<line>\d+) in (?P<name>[\w.<>]+)\s+[│|]$")
_SHORT = re.compile(r"^(?P<path>\S[^:\n]*\.py):(?P<line>\d+): in (?P<name>[\w.<>]+)$")
_NAMED = r"[A-Za-z_][\w.]*(?:Error|Exception|Warning|Exit|Interrupt|Iteration|Group)"
_LONG = re.compile(
    rf"^(?P<path>\S[^:\n]*\.py):(?P<line>\d+):(?: (?P<kind>{_NAMED}(?=: )|[A-Za-z_][\w.]*$)"
    r"(?:: (?P<said>.*))?)?$"
)
_FRAMES = (_PYTHON, _IPYTHON, _RICH, _SHORT, _LONG)

_START = re.compile(r"Traceback \(most recent call last\)")
_PYTEST_START = re.compile(r"^_{3,} (?P<name>.+?) _{3,}$")
_CHAIN = re.compile(
    r"During handling of the above exception|The above exception was the direct cause"
)
_ERROR = re.compile(r"^(?P<kind>[A-Za-z_][\w.]*)(?:: (?P<message>.*))?$")
_PYTEST_ERROR = re.compile(rf"^E {{3,}}(?:assert\b|(?P<kind>{_NAMED})(?:: (?P<message>.*))?$)")
_LOG_PREFIX = re.compile(r"^(?:[\s|>+]|(?:\| )+)*")
_MARKERS = re.compile(r"^[\s~^]+$")

_FAILED = re.compile(r"^(?:FAILED|ERROR) (?P<nodeid>\S+\.py(?:::.+?)?)(?: - .*)?$", re.MULTILINE)
_UNITTEST = re.compile(r"^(?:FAIL|ERROR): (?P<test>\w+) \((?P<place>[\w.]+)\)", re.MULTILINE)

_INSTALLED = re.compile(r"^.*/(?:site|dist)-packages/")
_LIBRARY = re.compile(r"(?:^|/)lib(?:64)?/python3?[0-9.]*/|^<|/importlib/_bootstrap")


@dataclass(frozen=True, slots=True)
class RawFrame:
    """A frame as the text has it; `source` is the line it shows, "" for none."""

    path: str
    line: int
    function: str
    source: str = ""


@dataclass(frozen=True, slots=True)
class Trace:
    """One exception's frames, outermost first."""

    kind: str
    message: str
    frames: tuple[RawFrame, ...]


def read_traceback(text: str) -> list[Trace]:
    """All exceptions of a text in its order: of a chain the cause comes first.

    Raises `UsageError` where there is no traceback in it.
    """
    found = [trace for trace in _traces(_cleaned(text)) if trace.frames]
    if not found:
        raise UsageError(
            'no traceback was found in the text: give it from the line "Traceback (most recent '
            'call last)" on'
        )
    return found


def located(
    traces: Sequence[Trace], files: Sequence[str], read: Callable[[str], bytes]
) -> list[TestFailure]:
    """The exceptions with their frames in the repository's `files`, as failures of the program.

    Exceptions without such a frame are left out.
    """
    find = PathFinder(files)
    found = []
    for trace in traces:
        frames = tuple(_frames(trace, find, read))
        if frames:
            found.append(TestFailure("", trace.kind or "Exception", trace.message, frames))
    return found


def named_tests(text: str) -> list[str]:
    """The command that repeats the failure, where the text names failing tests, as words."""
    plain = "\n".join(_cleaned(text))
    nodeids = list(dict.fromkeys(match["nodeid"] for match in _FAILED.finditer(plain)))
    if nodeids:
        return ["pytest", *nodeids]
    names = []
    for match in _UNITTEST.finditer(plain):
        test, place = match["test"], match["place"]
        names.append(place if place.endswith(f".{test}") else f"{place}.{test}")
    return ["python", "-m", "unittest", *dict.fromkeys(names)] if names else []


class PathFinder:
    """Finds a repository's file by the end of a path from anywhere."""

    def __init__(self, files: Iterable[str]) -> None:
        self._by_name: dict[str, list[tuple[str, ...]]] = {}
        for path in files:
            parts = tuple(path.split("/"))
            self._by_name.setdefault(parts[-1], []).append(parts)

    def __call__(self, path: str) -> str | None:
        """The file that fits best; None where none does, or several do equally."""
        plain = re.sub(r"^[A-Za-z]:", "", path.replace("\\", "/"))
        inside = _INSTALLED.sub("", plain)
        installed = inside != plain
        if not installed and _LIBRARY.search(plain):
            return None
        wanted = tuple(part for part in inside.split("/") if part not in ("", ".", "~"))
        wanted = tuple(wanted[max((i + 1 for i, p in enumerate(wanted) if p == ".."), default=0) :])
        scored = [(_common(wanted, parts), parts) for parts in self._by_name.get(wanted[-1], ())]
        best = max((score for score, _ in scored), default=0)
        fits = [parts for score, parts in scored if score == best]
        if len(fits) > 1:  # a file at the top is meant where nothing else is said
            fits = [parts for parts in fits if len(parts) == best]
        if len(fits) != 1:
            return None
        whole = best in (len(wanted), len(fits[0]))
        if best < 2 and (installed or not whole):
            return None
        return "/".join(fits[0])


def _common(first: Sequence[str], second: Sequence[str]) -> int:
    """How many parts at their ends are the same."""
    limit = min(len(first), len(second))
    return next((i for i in range(limit) if first[-1 - i] != second[-1 - i]), limit)


def _cleaned(text: str) -> list[str]:
    return [line.rstrip() for line in _ESCAPE.sub("", text.replace("\r\n", "\n")).split("\n")]


def _traces(lines: Sequence[str]) -> Iterator[Trace]:
    """Cuts the text where an exception begins or a chain goes on."""
    frames: list[RawFrame] = []
    kind = message = ""
    column = 0
    for number, line in enumerate(lines):
        match = next((m for pattern in _FRAMES if (m := _search(pattern, line))), None)
        bare = _bare(line)
        if match is not None:
            frames.append(_frame(match, lines, number))
            column = match.start() if match.re is _PYTHON else 0
            if match.re is _LONG and match["kind"]:
                said = message or match["said"] or ""
                yield Trace(kind or match["kind"], said, tuple(frames))
                frames, kind, message = [], "", ""
        elif _START.search(line) or _CHAIN.search(line) or _PYTEST_START.match(bare):
            if frames:
                yield Trace(kind, message, tuple(frames))
            frames, kind, message = [], "", ""
        elif not kind and (found := _error(bare, len(line) - len(bare), column, bool(frames))):
            kind, message = found
    if frames:
        yield Trace(kind, message, tuple(frames))


def _error(bare: str, at: int, column: int, after_frames: bool) -> tuple[str, str] | None:
    """Type and message where a line names the exception.

    It begins left of Python's frames, which begin in `column` (0: frames of another style).
    """
    if (said := _PYTEST_ERROR.match(bare)) is not None:
        return said["kind"] or "AssertionError", said["message"] or ""
    end = _ERROR.match(bare)
    if end is None or not after_frames or (column and at >= column):
        return None
    if not column and not (at == 0 and re.fullmatch(_NAMED, end["kind"])):
        return None
    return end["kind"], end["message"] or ""


def _search(pattern: re.Pattern[str], line: str) -> re.Match[str] | None:
    return pattern.search(line) if pattern is _PYTHON else pattern.match(line.strip())


def _bare(line: str) -> str:
    """The line without what quotes it or draws a group's border."""
    return _LOG_PREFIX.sub("", line)


def _frame(match: re.Match[str], lines: Sequence[str], number: int) -> RawFrame:
    parts = match.groupdict()
    return RawFrame(
        match["path"], int(match["line"]), parts.get("name") or "", _source(match, lines, number)
    )


def _source(match: re.Match[str], lines: Sequence[str], number: int) -> str:
    """The source line that a traceback shows for a frame."""
    if match.re is _LONG:  # above, after the failing statement's ">"
        for line in reversed(lines[max(0, number - 40) : number]):
            if line.startswith(">"):
                return line[1:].strip()
            if _PYTEST_START.match(line):
                break
        return ""
    after = _bare(lines[number + 1]).strip() if number + 1 < len(lines) else ""
    if not after or _MARKERS.match(after) or any(_search(p, after) for p in _FRAMES):
        return ""
    return after


def _frames(trace: Trace, find: PathFinder, read: Callable[[str], bytes]) -> Iterator[Frame]:
    for raw in trace.frames:
        path = find(raw.path)
        if path is not None:
            yield Frame(path, _line(raw, path, read), raw.function)


def _line(raw: RawFrame, path: str, read: Callable[[str], bytes]) -> int:
    """The frame's line, or where its source stands now if that is clear."""
    if not raw.source:
        return raw.line
    try:
        lines = [line.strip() for line in read(path).decode("utf-8", "replace").split("\n")]
    except OSError:
        return raw.line
    if 1 <= raw.line <= len(lines) and lines[raw.line - 1] == raw.source:
        return raw.line
    places = [number for number, line in enumerate(lines, 1) if line == raw.source]
    return min(places, key=lambda at: abs(at - raw.line)) if places else raw.line
