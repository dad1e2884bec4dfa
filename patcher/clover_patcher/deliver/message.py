"""The commit message of a fix, in the Conventional Commits form, with trailers."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from clover_patcher.request import Explanation

SUBJECT_WIDTH, WIDTH = 72, 72
TRAILER = "Clover-Fix"
"""The trailer with the record's id, by which undo finds a fix's commit."""


class Summary(Protocol):
    """What a patch is about: a line for the record, and a commit message."""

    @property
    def title(self) -> str: ...

    def message(self, fix_id: str) -> str:
        """The commit message, with the trailer by which undo finds the commit."""


@dataclass(frozen=True, slots=True)
class RequestSummary:
    """A patch that somebody asked for in words."""

    words: str
    """The request as the user wrote it."""
    validation: str
    """How the patch was validated, in a sentence without its full stop; empty where it was not."""
    check: str
    """The check that passes with it; empty where none was run."""
    proposer: str
    """Who wrote it, as `Origin.words` says it."""

    @property
    def title(self) -> str:
        """The request in one line of at most `SUBJECT_WIDTH` characters."""
        return _shortened(_plain(self.words).rstrip("."), SUBJECT_WIDTH)

    def message(self, fix_id: str) -> str:
        whole = _plain(self.words)
        said = [f"{whole}."] if len(whole.rstrip(".")) > SUBJECT_WIDTH else []
        said += [f"{self.validation}."] if self.validation else []
        body = "".join(f"{_wrapped(text)}\n\n" for text in said)
        trailers = [f"Validated-by: {_plain(self.check)}"] if self.check else []
        trailers += _trailers(self.proposer, fix_id)
        return f"{self.title}\n\n{body}" + "\n".join(trailers) + "\n"


@dataclass(frozen=True, slots=True)
class FixSummary:
    """What a fix is about, in words for people; every text may be of any length."""

    failing: tuple[str, ...]
    """Names of the failing tests; empty where the check is not made of tests."""
    check: str
    """The check as the user typed it."""
    failure: str
    """What failed, in a sentence without its full stop."""
    place: str
    """FILE:LINE."""
    change: str
    """What was changed, in a sentence without its full stop."""
    validation: str
    """How the patch was validated, in a sentence without its full stop."""
    proposer: str
    """Who proposed the patch, as `Origin.words` says it."""

    @classmethod
    def of(cls, why: Explanation, check: str, place: str, proposer: str) -> FixSummary:
        """The summary of an explanation."""
        return cls(why.tests, check, why.failure, place, why.change, why.validation, proposer)

    @property
    def title(self) -> str:
        """What the fix achieves, in one line of at most `SUBJECT_WIDTH` characters with `fix: `."""
        room = SUBJECT_WIDTH - len("fix: ")
        path = self.place.rpartition(":")[0]
        for text in (f"{self._achieved} in {path}", self._achieved):
            if len(text) <= room:
                return text
        return _shortened(self._achieved, room)

    def message(self, fix_id: str) -> str:
        return commit_message(self, fix_id)

    @property
    def _achieved(self) -> str:
        if len(self.failing) == 1:
            return f"make {_plain(self.failing[0]).rpartition('::')[2]} pass"
        if self.failing:
            return f"make {len(self.failing)} failing tests pass"
        return f"make `{_plain(self.check)}` pass"


def tool() -> str:
    """This program's name and version, as trailers and machine-readable output give them."""
    try:
        return f"clover-code {version('clover-code')}"
    except PackageNotFoundError:  # a source tree on the path
        return "clover-code"


def commit_message(summary: FixSummary, fix_id: str) -> str:
    """The message: what failed, what was changed, how it was validated, and trailers."""
    paragraphs = [f"{summary.failure}.", f"{summary.change}.", f"{summary.validation}."]
    body = "\n\n".join(_wrapped(text) for text in paragraphs)
    trailers = [f"Validated-by: {_plain(summary.check)}", *_trailers(summary.proposer, fix_id)]
    return f"fix: {summary.title}\n\n{body}\n\n" + "\n".join(trailers) + "\n"


def _trailers(proposer: str, fix_id: str) -> list[str]:
    return [f"Assisted-by: {tool()} ({_plain(proposer)})", f"{TRAILER}: {fix_id}"]


def _wrapped(text: str) -> str:
    return textwrap.fill(_plain(text), WIDTH, break_long_words=False, break_on_hyphens=False)


def _plain(text: str) -> str:
    """One line without control characters: test names can hold anything."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def _shortened(text: str, room: int) -> str:
    return text if len(text) <= room else text[: room - 1].rstrip() + "…"
