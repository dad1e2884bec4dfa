"""Runs an agent and writes down what it and its client say: ``recorder.py FILE COMMAND…``.

A client of another maker starts this instead of `clover-code acp`. The lines become one of
`recorded/` with `settled`, which takes out what differs from run to run.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping
from typing import IO, Any

Line = dict[str, Any]


def record(path: str, command: list[str]) -> int:
    """Passes both directions on until the client leaves."""
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None and process.stdout is not None
    lock = threading.Lock()

    def pump(source: IO[bytes], sink: IO[bytes], who: str) -> None:
        for line in source:
            with lock, open(path, "a", encoding="utf-8") as log:
                log.write(json.dumps({"from": who, "message": json.loads(line)}) + "\n")
            sink.write(line)
            sink.flush()
        sink.close()

    back = (process.stdout, sys.stdout.buffer, "agent")
    answers = threading.Thread(target=pump, args=back, daemon=True)
    answers.start()
    pump(sys.stdin.buffer, process.stdin, "client")
    code = process.wait()
    answers.join()
    return code


def settled(lines: Iterable[Line], names: Mapping[str, str]) -> list[Line]:
    """A recording without what differs: `names` (text → placeholder), numbers in words, ids of
    sessions, and how far a search is."""
    text = "\n".join(json.dumps(line) for line in lines if not _is_progress(line))
    session = re.search(r'"sessionId": "(\w+)"', text)
    for name, placeholder in {**names, **({session[1]: "$SESSION"} if session else {})}.items():
        text = text.replace(json.dumps(name)[1:-1], placeholder)
    text = re.sub(r"\(id [\da-f-]+\)", "(id $ID)", text)
    text = re.sub(r"\b\d+( candidates? (?:was|were))", r"N\1", text)
    text = re.sub(r"\(\d+\.\d s\)", "(N s)", text)
    text = re.sub(r'"version": "[^"]+"', '"version": "$VERSION"', text)
    return [json.loads(line) for line in text.split("\n")]


def _is_progress(line: Line) -> bool:
    update = line["message"].get("params", {}).get("update", {})
    return (
        update.get("sessionUpdate") == "tool_call_update"
        and "status" not in update
        and ("content" not in update)
    )


if __name__ == "__main__":
    sys.exit(record(sys.argv[1], sys.argv[2:]))
