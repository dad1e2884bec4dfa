"""Is the failure in a copy the failure of the tree? What is missing there is brought in.

The check is never run in the user's tree, so that the question is answered from what the run in
the copy says: paths that it misses and that the tree has, modules that are not found and that the
tree has, refused connections to the machine's own services. Whatever is found is copied (or let
through), and the check runs again. What cannot be brought in ends the run with a sentence.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from clover_patcher.check.fork import relay
from clover_patcher.check.forkserver import AROUND
from clover_patcher.check.prepared import View
from clover_patcher.check.runners import Runner
from clover_patcher.errors import CannotPass
from clover_patcher.repository.snapshot import below
from clover_patcher.repository.workspace import Workspace
from clover_patcher.types import Outcome, TestFailure

_QUOTED = re.compile(r"""['"`‘“]([^'"`\n’”]{1,400})['"`’”]""")
_BARE = re.compile(r"(?<![\w.])((?:~|\.{1,2})?/?[\w.@+-]+(?:/[\w.@+ -]*[\w.@+-])*)(?=[:,;)\]\s]|$)")
_MISSING = re.compile(
    r"no such file|not found|cannot (?:open|find|access|stat)|can't open|does not exist|"
    r"doesn't exist|is missing|no module named|not a directory|unable to (?:open|find|locate)|"
    r"could not (?:open|find|read|load)|failed to (?:open|load|read)|no rule to make|importerror|"
    r"not installed|permission denied|notfound|missing",
    re.IGNORECASE,
)
_KINDS = frozenset(
    {"FileNotFoundError", "NotADirectoryError", "ModuleNotFoundError", "ImportError"}
    | {"PackageNotFoundError", "PermissionError", "exit 126", "exit 127"}
)
_MODULE = re.compile(r"No module named '?([\w.]+)'?")
_REFUSED = re.compile(
    r"connection ?refused|errno 111|ECONNREFUSED|could not connect|can't connect|"
    r"connect call failed|cannot assign requested address|connection error|failed to connect",
    re.IGNORECASE,
)
_OFFLINE = re.compile(
    r"(?i:network is unreachable|name or service not known|nodename nor servname|name resolution|"
    r"could not resolve host|no route to host)|\b(?:gaierror|ENOTFOUND|EAI_AGAIN|ENETUNREACH)\b"
)
_SOCKET = re.compile(r"AF_UNIX path too long|File name too long", re.IGNORECASE)
_LONGEST_LINE = 500
_HINDERED = re.compile(r"Device or resource busy|Read-only file system")
_READ_ONLY = re.compile(r"Read-only file system: '([^'\n]+)'")


class Fidelity:
    """Compares what a run in a copy says with the tree that the copy was made from.

    `view` is what the runs see; it changes where something is let through.
    """

    def __init__(self, workspace: Workspace, cwd: str, view: View) -> None:
        self._workspace = workspace
        self._root = workspace.repository.root
        self._cwd = cwd
        self._brought: set[str] = set()
        self._refused: list[str] = []
        self._not_seen: set[str] = set()
        self.view = view
        self.notes: list[str] = []

    def mend(self, outcome: Outcome, runner: Runner) -> bool:
        """Brings in what the failure misses; whether there was anything, to run again.

        Raises `CannotPass` where the copy is at fault and nothing can be done.
        """
        if outcome.status == "passed":
            return False
        self._not_seen = set(runner.not_seen)
        found = self._missing(outcome, runner.worktree)
        if self._brought:  # one file was not enough
            found = {self._top(name) for name in found}
        missing = sorted(found - self._brought)
        left_out = self._not_seen - self._brought - {AROUND}
        if not missing and left_out and _looks_incomplete(outcome):
            missing = sorted(left_out)
        self._brought.update(missing)
        brought = [name for name in missing if self._bring(name)]
        self.view = replace(self.view, left_out=self._workspace.left_out)
        if brought:
            self.notes.append(f"also copied, since the check needs it: {', '.join(brought[:5])}")
            return True
        if self._let_through(outcome, runner):
            return True
        if complaint := self._complaint(outcome, runner):
            raise CannotPass(complaint, outcome)
        return False

    # --- what is missing -------------------------------------------------------------------

    def _missing(self, outcome: Outcome, tree: Path) -> set[str]:
        """Paths that the failure names, that the tree has and the copy has not."""
        found: set[str] = set()
        for text in _texts(outcome):
            if not _MISSING.search(text):
                continue
            for word in _words(text):
                name = self._lacking(word, tree)
                if name is not None:
                    found.add(name)
            for module in _MODULE.findall(text):
                found |= set(self._modules(module, tree))
        found = {name for name in found if not self._seen(name)}
        return found | self._hindered(outcome, tree)

    def _hindered(self, outcome: Outcome, tree: Path) -> set[str]:
        """Paths that runs see but cannot remove or change as a whole, since they are mounted."""
        texts = [text for text in _texts(outcome) if _HINDERED.search(text)]
        words = {word for text in texts for word in _words(text)}
        names = {self._name(word, tree) for word in words}
        return {top for top in self.view.left_out if any(below(name, top) for name in names)}

    def _seen(self, name: str) -> bool:
        """Whether runs see this path though it was not copied."""
        if name.startswith("../"):
            return AROUND not in self._not_seen
        shown = [top for top in self.view.left_out if top not in self._not_seen]
        return any(below(name, top) for top in shown)

    def _top(self, name: str) -> str:
        """The path that was left out as a whole, for one inside of it."""
        return next((top for top in self._not_seen if below(name, top)), name)

    def _lacking(self, word: str, tree: Path) -> str | None:
        """The path as a name below the repository, or beside it, where only the tree has it."""
        for start in dict.fromkeys((tree / self._cwd, tree)):
            full = os.path.normpath(start / os.path.expanduser(word))
            relative = os.path.relpath(full, tree)
            if relative.startswith("../../") or relative in (".", ".."):
                continue
            if os.path.lexists(self._root / relative) and not os.path.lexists(full):
                if relative.startswith("../"):
                    relative = "/".join(relative.split("/")[:2])
                    if self._root == Path(os.path.normpath(self._root / relative)):
                        continue
                return relative
        return None

    def _modules(self, module: str, tree: Path) -> Iterator[str]:
        """Files of the tree that would be this module."""
        path = module.replace(".", "/")
        for start in dict.fromkeys((self._cwd, "", "src", "lib")):
            base = self._root / start / path
            for place in (base, *base.parent.glob(f"{base.name}.*")):
                name = os.path.relpath(place, self._root)
                if os.path.lexists(place) and not os.path.lexists(tree / name):
                    yield name

    def _bring(self, name: str) -> bool:
        if self._workspace.bring([name]):
            return True
        self._refused.append(name)
        return False

    # --- the network -----------------------------------------------------------------------

    def _let_through(self, outcome: Outcome, runner: Runner) -> bool:
        """Lets runs reach the machine's own services, where one was refused."""
        if self.view.loopback or not runner.isolated or not relay.ports():
            return False
        if not any(_REFUSED.search(text) for text in _texts(outcome)):
            return False
        self.view = replace(self.view, loopback=True)
        self.notes.append(
            "the check reaches the services on this machine's loopback device, and no others"
        )
        return True

    # --- what to say -----------------------------------------------------------------------

    def _complaint(self, outcome: Outcome, runner: Runner) -> str:
        """Why the failure is the copy's and not the tree's; "" where nothing says so."""
        for failure in outcome.failures:
            text = f"{failure.kind}: {failure.message}"
            what = failure.nodeid or "the check"
            said = f"{what} fails in the copy with {shortened(text)}"
            about_texts = failure.kind == "AssertionError"  # its words are the program's own
            if runner.isolated and not about_texts and _OFFLINE.search(text):
                return f"{said}; checks are cut off from the network; --network keeps it"
            if match := _READ_ONLY.search(text):
                name = self._name(match[1], runner.worktree)
                return (
                    f"{said}; {name} is not copied but shown read-only; --include {name} copies it"
                )
            if _SOCKET.search(text) and str(runner.worktree.parent.parent) in text:
                return f"{said}; the copies are in a longer path: set TMPDIR to a short folder"
        unnamed = not any(failure.nodeid for failure in outcome.failures)
        lines = [line for line in outcome.output.splitlines() if _OFFLINE.search(line)]
        if lines and unnamed and runner.isolated:
            return (
                f"the check fails in the copy: {shortened(lines[0])}; checks are cut off from the "
                "network; --network keeps it"
            )
        if self._refused and _looks_incomplete(outcome):
            name, failure = self._refused[0], outcome.failures[0]
            return (
                f"{failure.nodeid or 'the check'} fails in the copy with "
                f"{shortened(f'{failure.kind}: {failure.message}')}; {name} is not copied, since "
                f"it is large; --include {name} copies it"
            )
        return self._far_away(outcome, runner)

    def _far_away(self, outcome: Outcome, runner: Runner) -> str:
        """About paths further up than beside the repository."""
        tree = runner.worktree
        for text in _texts(outcome):
            for word in _words(text) if _MISSING.search(text) else ():
                full = os.path.normpath(tree / self._cwd / word)
                relative = os.path.relpath(full, tree)
                there = Path(os.path.normpath(self._root / relative))
                if relative.startswith("../..") and there.exists() and not os.path.exists(full):
                    return (
                        f"the check fails in the copy: it reads {there} by a path relative to the "
                        "repository, which leads elsewhere from a copy; name it by its full path"
                    )
        return ""

    def _name(self, path: str, tree: Path) -> str:
        full = Path(os.path.normpath(tree / self._cwd / path))
        return full.relative_to(tree).as_posix() if full.is_relative_to(tree) else path


def shortened(text: str, size: int = 200) -> str:
    """A failure's words in one line."""
    line = " ".join(text.split())
    return line if len(line) <= size else f"{line[: size - 1]}…"


def _texts(outcome: Outcome) -> Iterator[str]:
    for failure in outcome.failures:
        yield f"{failure.kind}: {failure.message}"
    if not all(failure.nodeid for failure in outcome.failures):
        yield from (line[:_LONGEST_LINE] for line in outcome.output.splitlines())


def _words(text: str) -> set[str]:
    return {*_QUOTED.findall(text), *_BARE.findall(text)}


def _looks_incomplete(outcome: Outcome) -> bool:
    return any(_suspicious(failure) for failure in outcome.failures) or (
        not all(failure.nodeid for failure in outcome.failures)
        and any(_MISSING.search(line) for line in outcome.output.splitlines())
    )


def _suspicious(failure: TestFailure) -> bool:
    return failure.kind in _KINDS or _MISSING.search(failure.message) is not None
