"""What the status item in the editor says: `didChangeStatus`, only when something changed.

The worst of what the parts of the server report wins: an error of the engine before a warning
about the index. Parts are named, so that each can take back what it said.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["Normal", "Inactive", "Warning", "Error"]
_ORDER: tuple[Kind, ...] = ("Error", "Warning", "Inactive", "Normal")


@dataclass(frozen=True, slots=True)
class Report:
    """One part's words. `command` is an LSP command that helps (title and command)."""

    kind: Kind
    message: str = ""
    command: tuple[str, str] | None = None


class Status:
    """Event loop only. `send` gets the params of `didChangeStatus`."""

    def __init__(self, send: Callable[[dict[str, Any]], None]) -> None:
        self._send = send
        self._reports: dict[str, Report] = {}
        self._busy: set[str] = set()
        self._sent: dict[str, Any] | None = None
        self._is_open = False

    def open(self) -> None:
        """From now on reports are sent: the client is initialized."""
        self._is_open = True
        self.publish()

    def report(self, part: str, report: Report) -> None:
        self._reports[part] = report
        self.publish()

    def clear(self, part: str) -> None:
        if self._reports.pop(part, None) is not None:
            self.publish()

    def busy(self, part: str, is_busy: bool) -> None:
        """Shows or takes back that the part is at work (the model loads, say)."""
        if is_busy:
            self._busy.add(part)
        else:
            self._busy.discard(part)
        self.publish()

    def params(self) -> dict[str, Any]:
        """`{busy, kind, message, command}` as the client gets it."""
        worst = min(
            self._reports.values(), key=lambda r: _ORDER.index(r.kind), default=Report("Normal")
        )
        said = [r.message for r in self._reports.values() if r.kind == worst.kind and r.message]
        params: dict[str, Any] = {
            "busy": bool(self._busy),
            "kind": worst.kind,
            "message": "; ".join(dict.fromkeys(said)),
        }
        if worst.command is not None:
            params["command"] = {"title": worst.command[0], "command": worst.command[1]}
        return params

    def publish(self) -> None:
        params = self.params()
        if self._is_open and params != self._sent:
            self._sent = params
            self._send(params)
