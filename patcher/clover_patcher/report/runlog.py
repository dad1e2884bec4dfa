"""The log of a run: one JSON object a line, appended as it happens, and what a later run skips.

A run begins with an event "start" whose `key` stands for the tree and the check; "candidate"
events follow, each with the verdict; "end" may be missing, since the process can die at any
moment, and so may the end of the last line. Several runs may share a file.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from clover_patcher.deliver.message import tool
from clover_patcher.errors import UsageError
from clover_patcher.repository.treecopy import Stamp
from clover_patcher.types import Candidate, Outcome, Validation

FORMAT = 1
KEPT = 20
"""So many logs are kept where no file is named."""
_OWN_NAME = re.compile(r"[0-9]{8}-[0-9]{6}-[0-9]+\.jsonl")


class Ended(Protocol):
    """The part of a result that a log tells."""

    @property
    def status(self) -> str: ...
    @property
    def exit_code(self) -> int: ...
    @property
    def candidates_tried(self) -> int: ...
    @property
    def passing(self) -> int: ...
    @property
    def seconds(self) -> float: ...
    @property
    def fix_id(self) -> str | None: ...
    @property
    def commit(self) -> str | None: ...


class RunLog:
    """An open log. Events are on their way to the disk when a method returns."""

    def __init__(self, path: Path, key: str, logs: Iterable[Path] | None = None) -> None:
        """Appends to `path`; candidates that failed in earlier runs of `logs` count as known.

        Raises `UsageError` where the file cannot be written.
        """
        self.path: Path | None = path
        self.skipped = 0
        self._trouble = ""
        self._resumes = logs is not None
        self._known = _failed_before(logs or (), key)
        try:
            self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            torn = _ends_within_a_line(self._file)
        except OSError as exc:
            raise UsageError(f"cannot write the log {path}: {exc.strerror}") from exc
        if torn:
            os.write(self._file, b"\n")
        self._key = key

    @classmethod
    def open(cls, path: Path | None, folder: Path | None, key: str, *, resume: bool) -> RunLog:
        """A log at `path`, else a new one in `folder`, else one that nobody reads.

        With `resume`, candidates are known from that file, or from all logs of the folder.
        """
        if path is not None:
            return cls(path, key, [path] if resume else None)
        if folder is not None:
            logs = sorted(folder.glob("*.jsonl"))
            return cls(_new_log(folder), key, logs if resume else None)
        log = cls(Path(os.devnull), key)
        log.path = None
        return log

    @property
    def notes(self) -> list[str]:
        """What the user should know about a resumed run, or a log that lacks something."""
        trouble = [self._trouble] if self._trouble else []
        if not self._resumes:
            return trouble
        if not self._known:
            why = "no candidate of this check has failed on this tree before"
            return [*trouble, f"nothing to resume: {why}"]
        return [*trouble, f"resumed: {self.skipped} candidates that failed before were skipped"]

    def start(self, root: Path, check: str, baseline: Outcome) -> None:
        """Says what the run is about."""
        failing = [[failure.nodeid, failure.kind] for failure in baseline.failures]
        said = {"root": str(root), "check": check, "failing": failing}
        self._write("start", format=FORMAT, tool=tool(), time=time.time(), key=self._key, **said)

    def is_new(self, candidate: Candidate) -> bool:
        """Whether the candidate is still to be tried; counts those that are not."""
        known = edit_key(candidate) in self._known
        self.skipped += known
        return not known

    def candidate(self, validation: Validation, number: int) -> None:
        """Records a verdict; `number` counts the candidates of this run."""
        candidate, outcome = validation.candidate, validation.outcome
        self._write(
            "candidate",
            number=number,
            edit=edit_key(candidate),
            path=candidate.path,
            line=candidate.line,
            kind=candidate.kind,
            text=candidate.text,
            logprob=candidate.logprob,
            priority=round(candidate.priority, 4),
            status=outcome.status,
            seconds=round(outcome.seconds, 4),
        )

    def end(self, result: Ended) -> None:
        """Says how the run ended, and closes the file."""
        self._write(
            "end",
            status=result.status,
            exit_code=result.exit_code,
            tried=result.candidates_tried,
            passing=result.passing,
            skipped=self.skipped,
            seconds=result.seconds,
            fix=result.fix_id,
            commit=result.commit,
        )
        os.close(self._file)

    def _write(self, event: str, **said: Any) -> None:
        """One system call for each line: lines of two processes never mix.

        A full disk costs the log, not the run.
        """
        try:
            os.write(self._file, json.dumps({"event": event, **said}).encode() + b"\n")
        except OSError as exc:
            self._trouble = f"the log {self.path} is incomplete: {exc.strerror}"


def _new_log(folder: Path) -> Path:
    """A path for the log of a run that names none; the oldest logs in `folder` are removed."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    ours = [path for path in folder.glob("*.jsonl") if _OWN_NAME.fullmatch(path.name)]
    for old in sorted(ours)[: 1 - KEPT]:
        old.unlink(missing_ok=True)
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    return folder / f"{stamp}-{os.getpid()}.jsonl"


def run_key(
    check: Sequence[str],
    root: Path,
    files: Iterable[str],
    stamps: Mapping[str, Stamp],
    log: Path | None = None,
) -> str:
    """Equal keys mean equal verdicts: the check's words and every file of the tree but the log.

    Python files count by content, all others by size and modification time.
    """
    digest = hashlib.sha256()
    for word in check:
        digest.update(os.fsencode(word) + b"\0")
    own = os.path.realpath(log) if log else None
    for name in files:
        path = os.path.join(root, name)
        if path != own:
            mark = stamps[name].sha256 if name in stamps else _mark(path)
            digest.update(os.fsencode(name) + b"\0" + mark.encode() + b"\0")
    return digest.hexdigest()


def _mark(path: str) -> str:
    try:
        info = os.lstat(path)
    except OSError:
        return ""
    return f"{info.st_size} {info.st_mtime_ns}"


def edit_key(candidate: Candidate) -> str:
    """Stands for a change: of each edit the file, the bytes that it replaces, and the new ones."""
    digest = hashlib.sha256()
    for edit in candidate.edits:
        place = f"{edit.path}\0{edit.start}\0{edit.end}\0".encode("utf-8", "surrogateescape")
        digest.update(place + edit.new)
    return digest.hexdigest()[:32]


def read_log(path: Path) -> Iterator[dict[str, Any]]:
    """The events of a log; lines that are torn, or not ours, are left out."""
    try:
        data = path.read_bytes()
    except OSError:
        return
    for line in data.split(b"\n"):
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict) and "event" in event:
            yield event


def _failed_before(logs: Iterable[Path], key: str) -> frozenset[str]:
    """Edits that a run with that key has seen fail."""
    found = set()
    for log in logs:
        same = False
        for event in read_log(log):
            if event["event"] == "start":
                same = event.get("key") == key
            elif event["event"] == "candidate" and same and event.get("status") != "passed":
                found.add(str(event.get("edit")))
    return frozenset(found)


def _ends_within_a_line(file: int) -> bool:
    size = os.fstat(file).st_size
    return size > 0 and os.pread(file, 1, size - 1) != b"\n"
