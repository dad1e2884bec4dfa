"""Local statistics of suggestions: counts and times, never code, never sent anywhere.

One file of JSON lines a month in the state folder (`XDG_STATE_HOME`, else `~/.local/state`).
Every event is one `write` of one line in append mode, so that several servers can write at once
and a crash loses one line at most; lines that cannot be read are skipped.
"""

from __future__ import annotations

import json
import logging
import os
import re
import statistics
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

log = logging.getLogger(__name__)

EventKind = Literal["shown", "accepted", "partial"]
KEEP_MONTHS = 13
_PREFIX = "suggestions-"
_OWN_NAME = re.compile(rf"{_PREFIX}[0-9]{{4}}-[0-9]{{2}}\.jsonl")


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a suggestion. `chars` are UTF-16 units, as clients count."""

    kind: EventKind
    id: str
    """The same for all events of one suggestion."""
    language: str
    origin: str
    chars: int
    """Of the suggestion; for `partial`, of what was accepted so far."""
    ms: float = 0.0
    """From the request to the answer."""
    time: float = 0.0
    """Seconds since the epoch."""


def state_folder() -> Path:
    """Where the files are."""
    chosen = os.environ.get("CLOVER_STATE_DIR")
    if chosen:
        return Path(chosen)
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or str(Path.home() / "AppData" / "Local")
    else:
        base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(base) / "clover-code"


class Recorder:
    """Appends events. A folder that cannot be written is reported in the log once."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or state_folder()
        self._is_broken = False

    def record(self, event: Event) -> None:
        """Any thread; takes well under a millisecond."""
        if self._is_broken:
            return
        now = time.time()
        line = json.dumps({**asdict(event), "time": round(now, 3)}, separators=(",", ":")) + "\n"
        month = time.strftime("%Y-%m", time.localtime(now))
        path = self._folder / f"{_PREFIX}{month}.jsonl"
        try:
            if not path.exists():
                self._folder.mkdir(parents=True, exist_ok=True)
                _forget_old(self._folder)
            with open(path, "ab", buffering=0) as file:
                file.write(line.encode())
        except OSError as error:
            self._is_broken = True
            log.warning("no statistics: cannot write %s: %s", path, error)


def _forget_old(folder: Path) -> None:
    ours = [path for path in folder.glob(f"{_PREFIX}*.jsonl") if _OWN_NAME.fullmatch(path.name)]
    for path in sorted(ours)[: -(KEEP_MONTHS - 1)]:
        path.unlink(missing_ok=True)


def read_events(folder: Path | None = None, days: float | None = None) -> Iterator[Event]:
    """The events of the last `days`, oldest first; unreadable lines are skipped."""
    since = 0.0 if days is None else time.time() - days * 86400
    for path in sorted((folder or state_folder()).glob(f"{_PREFIX}*.jsonl")):
        for line in path.read_bytes().splitlines():
            event = _parse(line)
            if event is not None and event.time >= since:
                yield event


def _parse(line: bytes) -> Event | None:
    try:
        event = Event(**json.loads(line))
        numbers = float(event.chars) + float(event.ms) + float(event.time)
    except (ValueError, TypeError):
        return None
    return event if numbers >= 0 and event.kind in ("shown", "accepted", "partial") else None


@dataclass(frozen=True, slots=True)
class Summary:
    """Counts over some suggestions; `rate` is the share of the shown that were accepted, whole
    or in part, and None where nothing was shown."""

    shown: int
    accepted: int
    partially_accepted: int
    rate: float | None
    accepted_chars: int
    latency_ms_p50: float | None
    latency_ms_p95: float | None


def summarise(events: Iterable[Event]) -> Summary:
    shown: dict[str, Event] = {}
    accepted: dict[str, int] = {}
    partial: dict[str, int] = {}
    for event in events:
        if event.kind == "shown":
            shown[event.id] = event
        elif event.kind == "accepted":
            accepted[event.id] = event.chars
        else:
            partial[event.id] = max(partial.get(event.id, 0), event.chars)
    only_partly = {id: chars for id, chars in partial.items() if id not in accepted}
    times = [event.ms for event in shown.values()]
    taken = len(accepted) + len(only_partly)
    return Summary(
        shown=len(shown),
        accepted=len(accepted),
        partially_accepted=len(only_partly),
        rate=round(taken / len(shown), 4) if shown else None,
        accepted_chars=sum(accepted.values()) + sum(only_partly.values()),
        latency_ms_p50=round(statistics.median(times), 1) if times else None,
        latency_ms_p95=round(percentile(times, 0.95), 1) if times else None,
    )


def percentile(values: list[float], share: float) -> float:
    """The smallest value that at least `share` of the values do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -(-int(share * 1000) * len(ordered) // 1000) - 1))]


def report(folder: Path | None = None, days: float | None = None) -> dict[str, Any]:
    """What `clover-code stats --json` prints."""
    events = list(read_events(folder, days))
    groups: dict[str, dict[str, Any]] = {}
    for name in ("language", "origin"):
        keys = sorted({str(getattr(event, name)) for event in events})
        groups[name] = {
            key: asdict(summarise(e for e in events if getattr(e, name) == key)) for key in keys
        }
    return {
        "folder": str(folder or state_folder()),
        "days": days,
        "all": asdict(summarise(events)),
        "by_language": groups["language"],
        "by_origin": groups["origin"],
    }
