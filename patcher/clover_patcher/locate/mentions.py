"""Places in other languages than Python that a check's output, or the check itself, speaks of."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from clover_patcher.locate.functions import functions, grammar_of
from clover_patcher.repository.treecopy import OTHER_SOURCES
from clover_patcher.types import Frame, TestFailure

_ENDS = "|".join(re.escape(end) for end in sorted(OTHER_SOURCES, key=len, reverse=True))
_PLACE = re.compile(rf"(?P<path>[\w./\\@+-]+(?:{_ENDS})):(?P<line>\d+)")
_MOST = 40


def mentions(
    output: str, free: Iterable[str], checks: Iterable[str], read: Callable[[str], bytes]
) -> list[TestFailure]:
    """A failure for each place that is spoken of, nearest first.

    First FILE:LINE in the output, as compilers and stack traces have it, of files that are `free`;
    then functions of such files that the output, or one of the files `checks`, names. These are
    vague: their kind is AssertionError.
    """
    files = sorted(free)
    found = [TestFailure("", "output", "", (frame,)) for frame in _places(output, files)]
    words = set(re.findall(r"[A-Za-z_]\w{2,}", output))
    for path in checks:
        try:
            words |= set(re.findall(r"[A-Za-z_]\w{2,}", read(path).decode("utf-8", "replace")))
        except OSError:
            continue
    named = (TestFailure("", "AssertionError", "", (f,)) for f in _functions(files, read, words))
    return [*found, *named][:_MOST]


def _places(output: str, files: list[str]) -> Iterator[Frame]:
    for match in _PLACE.finditer(output):
        path = match["path"].replace("\\", "/")
        fitting = [name for name in files if name == path or path.endswith(f"/{name}")]
        fitting = fitting or [name for name in files if name.endswith(f"/{path.lstrip('./')}")]
        if len(fitting) == 1:
            yield Frame(fitting[0], int(match["line"]), "")


def _functions(files: list[str], read: Callable[[str], bytes], words: set[str]) -> Iterator[Frame]:
    for path in files:
        language = grammar_of(path)
        if language is None or language == "python":
            continue
        try:
            code = read(path)
        except OSError:
            continue
        for function in functions(language, code):
            if function.name in words and not function.is_class:
                yield Frame(path, code.count(b"\n", 0, function.start) + 1, function.name)
