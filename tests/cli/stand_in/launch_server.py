"""Stands in for `sglang.launch_server`: takes its arguments, answers its /health, and misbehaves.

CLOVER_STAND_IN is a JSON object: `starting` (answers 503 so many times first), `crash_after`
(seconds after its first good answer), `mute_after` (likewise; it accepts connections then and says
nothing), `exit` (code, at once), `deaf` (ignores SIGTERM, its child too), `lives` (how many of its
lives misbehave; the next ones are well). `folder` gets `pids` and `arguments`, a line a life.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

SLEEPER = "import signal, sys, time\nif '{}': signal.signal(15, signal.SIG_IGN)\ntime.sleep(300)"


class Handler(BaseHTTPRequestHandler):
    left = 0
    crash_after: float | None = None
    mute_after: float | None = None
    first: float | None = None

    def do_GET(self) -> None:
        if Handler.left > 0:
            Handler.left -= 1
            self.send_error(503)
            return
        now = time.monotonic()
        if Handler.first is None:
            Handler.first = now
            if Handler.crash_after is not None:
                threading.Timer(Handler.crash_after, os._exit, [9]).start()
        if Handler.mute_after is not None and now > Handler.first + Handler.mute_after:
            time.sleep(60)
        self.send_response(200 if self.path == "/health" else 404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None: ...


def main() -> None:
    plan = json.loads(os.environ.get("CLOVER_STAND_IN", "{}"))
    parser = argparse.ArgumentParser()
    parser.add_argument("--host")
    parser.add_argument("--port", type=int)
    given, _ = parser.parse_known_args()
    folder = Path(plan["folder"])
    child = subprocess.Popen(
        [sys.executable, "-c", SLEEPER.format("x" if plan.get("deaf") else "")],
    )
    with (folder / "pids").open("a") as file:
        print(os.getpid(), child.pid, file=file)
    with (folder / "arguments").open("a") as file:
        print(json.dumps(sys.argv[1:]), file=file)
    lives = len((folder / "pids").read_text().splitlines())
    if lives > plan.get("lives", 10**9):
        plan = {}
    print("stand-in starts", flush=True)
    if "exit" in plan:
        print("stand-in cannot load the model", file=sys.stderr, flush=True)
        sys.exit(plan["exit"])
    if plan.get("deaf"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Handler.left = plan.get("starting", 0)
    Handler.crash_after, Handler.mute_after = plan.get("crash_after"), plan.get("mute_after")
    server = ThreadingHTTPServer((given.host, given.port), Handler)
    server.daemon_threads = True
    server.serve_forever()


if __name__ == "__main__":
    main()
