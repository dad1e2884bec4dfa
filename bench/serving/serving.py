"""Many simulated editors typing against one SGLang server, through the real client.

    python -m bench.serving.serving --url http://127.0.0.1:30000 [--pid PID]
    python -m bench.serving.serving --start sdar --editors 64 --requests 2000
    python -m bench.serving.serving --start fake

Every editor has a client of its own, types real files again (`typist.py`), asks after the language
server's own wait, and cancels when it types on. `--start` runs a server for it: `fake` (the
shipped one, an answer a millisecond), or a tiny random `sdar` or `clover` on the real SGLang on
this CPU (`make setup-sglang`); such a server is slower than a GPU with a large model, so typing is
slowed down by `--slower`. Printed: times to the item where somebody paused for a second or more,
the share of work that was aborted, how fast cancelled calls return, the errors, what is in flight
at the end, and the server's memory over the requests.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import psutil
from bench.editor.typist import pause, stretches

from clover_engine.api import CancelToken, InfillRequest
from clover_engine.clients.sglang import SGLangEngine
from clover_engine.errors import EngineError, RequestCancelled
from clover_lsp.suggest.debounce import TRIGGERS, Rhythm, wait_s

ROOT = Path(__file__).parents[2]
DEBOUNCE_S = 0.15
PATIENCE_S = 1.0
SAMPLE_S = 2.0
SETTLE_S = 120.0


@dataclass
class Seen:
    """What all editors together saw. Times in seconds."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    outcomes: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    to_item: list[float] = field(default_factory=list)
    """From the last key, where the typist paused; `inf` where no item came before the next key."""
    useful_s: float = 0.0
    aborted_s: float = 0.0
    stopped_s: list[float] = field(default_factory=list)
    """From cancelling a call to its return."""

    @property
    def requests(self) -> int:
        return sum(self.outcomes.values())


class Editor(threading.Thread):
    """One typist with an engine of its own."""

    def __init__(self, number: int, args: argparse.Namespace, url: str, seen: Seen) -> None:
        super().__init__(daemon=True)
        self.args, self.seen = args, seen
        self.choose = Random(f"{args.seed}/{number}")
        self.engine = SGLangEngine(url, api_key=os.environ.get("CLOVER_SGLANG_API_KEY"))
        self.stop = threading.Event()
        self.intervals: deque[float] = deque(maxlen=16)
        self.waited: deque[float] = deque([0.2], maxlen=16)

    def run(self) -> None:
        with self.engine, ThreadPoolExecutor(4) as pool:
            if self.stop.wait(self.choose.uniform(0, 3 * self.args.slower)):
                return
            for place in stretches(self.choose):
                for at in range(place.start, place.end):
                    self._key(pool, place.text, at, place.end)
                    if self.stop.is_set():
                        return

    def _key(self, pool: ThreadPoolExecutor, text: str, at: int, end: int) -> None:
        """The pause after a key, with what is asked in it; the next key cancels."""
        seconds = self.args.slower * pause(self.choose, text, at)
        self.intervals.append(seconds / self.args.slower)
        wait = self.args.slower * self._wait_s(text, at)
        if seconds <= wait:
            self.stop.wait(seconds)
            return
        self.stop.wait(wait)
        cancel = CancelToken()
        prefix = text[max(0, at - self.args.context) : at]
        request = InfillRequest(
            prefix, text[end : end + 500], max_tokens=self.args.tokens, deadline_s=30.0
        )
        asked = pool.submit(self._ask, request, cancel, wait)
        self.stop.wait(seconds - wait)
        patient = seconds >= PATIENCE_S * self.args.slower
        if not asked.done():
            begun = time.monotonic()
            cancel.cancel()
            asked.add_done_callback(lambda _: self._stopped(begun))
        if patient:
            self._judge(asked)

    def _wait_s(self, text: str, at: int) -> float:
        line = text[text.rfind("\n", 0, at) + 1 : at]
        immediate = not line.strip() or line.rstrip(" ")[-1] in TRIGGERS
        rhythm = Rhythm(tuple(self.intervals), statistics.median(self.waited), 0.3)
        return min(DEBOUNCE_S, wait_s(rhythm, immediate))

    def _ask(self, request: InfillRequest, cancel: CancelToken, waited_s: float) -> float | None:
        """Seconds from the key to the item; None where there was none."""
        begun = time.monotonic()
        error = ""
        try:
            reason = str(self.engine.infill(request, cancel).choices[0].finish_reason)
        except RequestCancelled:
            reason = "cancelled"
        except EngineError as failed:
            reason, error = "error", f"{type(failed).__name__}: {failed}"
        seconds = time.monotonic() - begun
        ended = reason in ("eom", "stop", "length")
        with self.seen.lock:
            self.seen.outcomes["item" if ended else reason] += 1
            if error:
                self.seen.errors[error] += 1
            if ended:
                self.seen.useful_s += seconds
            else:
                self.seen.aborted_s += seconds
        if not ended:
            return None
        self.waited.append(seconds / self.args.slower)
        return seconds + waited_s

    def _stopped(self, begun: float) -> None:
        with self.seen.lock:
            self.seen.stopped_s.append(time.monotonic() - begun)

    def _judge(self, asked: Future[float | None]) -> None:
        found = asked.result() if asked.done() else None
        with self.seen.lock:
            self.seen.to_item.append(float("inf") if found is None else found)


class Memory(threading.Thread):
    """Samples the resident memory of a process and all below it, against the requests so far."""

    def __init__(self, pid: int, seen: Seen) -> None:
        super().__init__(daemon=True)
        self.pid, self.seen = pid, seen
        self.samples: list[tuple[int, float]] = []
        """(requests so far, MB)"""
        self.stop = threading.Event()

    def run(self) -> None:
        while not self.stop.wait(SAMPLE_S):
            with contextlib.suppress(psutil.Error):
                self.samples.append((self.seen.requests, resident_mb(self.pid)))

    def report(self) -> dict[str, float]:
        """The first quarter is warming up; over the rest, a line is fitted."""
        last = self.samples[-1][0] if self.samples else 0
        steady = [s for s in self.samples if s[0] >= last / 4]
        if len(steady) < 3 or len({s[0] for s in steady}) < 2:
            return {}
        requests, sizes = [s[0] for s in steady], [s[1] for s in steady]
        slope, _ = statistics.linear_regression(requests, sizes)
        return {
            "at a quarter, MB": round(sizes[0], 1),
            "at the end, MB": round(sizes[-1], 1),
            "most, MB": round(max(sizes), 1),
            "slope, MB per 1,000 requests": round(1000 * slope, 2),
            "samples": len(steady),
        }


def resident_mb(pid: int) -> float:
    top = psutil.Process(pid)
    return sum(p.memory_info().rss for p in [top, *top.children(recursive=True)]) / 1e6


def in_flight(url: str) -> Any:
    """Requests that SGLang says it has (running, waiting); None for other servers, and where it
    does not answer."""
    try:
        with urllib.request.urlopen(f"{url}/v1/loads?include=core", timeout=20) as answer:
            loads = json.load(answer)["loads"]
    except (OSError, ValueError, KeyError):
        return None
    return [sum(int(load[f"num_{kind}_reqs"]) for load in loads) for kind in ("running", "waiting")]


def settled(url: str) -> tuple[Any, float]:
    """What is in flight once nothing is, or after `SETTLE_S`; and how long that took."""
    begun = time.monotonic()
    while (found := in_flight(url)) != [0, 0]:
        if time.monotonic() - begun > SETTLE_S or _has_no_loads(url):
            break
        time.sleep(0.5)
    return found, time.monotonic() - begun


def _has_no_loads(url: str) -> bool:
    """Another server than SGLang: it answers, but does not count."""
    try:
        with urllib.request.urlopen(f"{url}/v1/loads", timeout=20):
            return False
    except urllib.error.HTTPError as error:
        return error.code == 404
    except OSError:
        return False


def connections(pid: int) -> int:
    """Connections that clients still have to the server's processes."""
    top, found = psutil.Process(pid), 0
    for process in [top, *top.children(recursive=True)]:
        with contextlib.suppress(psutil.Error):
            held = process.net_connections("tcp")
            found += sum(c.status == "ESTABLISHED" and c.laddr.port == _port_of(top) for c in held)
    return found


def _port_of(process: psutil.Process) -> int:
    listening = [c for c in process.net_connections("tcp") if c.status == "LISTEN"]
    return int(listening[0].laddr.port) if listening else -1


@contextlib.contextmanager
def server(kind: str) -> Iterator[tuple[str, int]]:
    """URL and process id of a server of that kind."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if kind == "fake":
            with _fake() as found:
                yield found
            return
        sys.path.insert(0, str(ROOT))
        harness = importlib.import_module("tests.serving.harness")
        if reason := harness.missing():
            raise SystemExit(f"serving: {reason}")
        more = ("--max-running-requests", "16", "--max-total-tokens", "32768")
        if kind == "sdar":
            found = harness.Server(
                importlib.import_module("tests.serving.models").sdar(folder / "model"),
                folder / "server.log",
                modules=("sdar",),
                arguments=("--dllm-algorithm", "LowConfidence", *more),
            )
        else:
            clover = importlib.import_module("tests.serving.clover")
            checkpoint = clover.checkpoint(folder / "model", clover.DENSE)
            found = clover.serve(checkpoint, folder / "server.log", arguments=more)
        with found:
            yield found.url, found.pid
            print(f"the server is {'up' if found.alive() else 'DEAD'} at the end", file=sys.stderr)


@contextlib.contextmanager
def _fake() -> Iterator[tuple[str, int]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "clover_engine.testing.server", "--port", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(200):
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/model_info"):
                break
            time.sleep(0.05)
        yield url, process.pid
    finally:
        process.terminate()
        process.wait()


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")


def replay(args: argparse.Namespace, url: str, pid: int | None) -> dict[str, Any]:
    """All editors type until there were enough requests, or time is up."""
    seen = Seen()
    with SGLangEngine(url) as first:
        for _ in range(10):  # a busy machine may need more than one try
            if (health := first.health()).ready:
                break
        else:
            raise SystemExit(f"serving: {health.detail}")
    memory = None if pid is None else Memory(pid, seen)
    editors = [Editor(number, args, url, seen) for number in range(args.editors)]
    begun = time.monotonic()
    for thread in [*editors, *([memory] if memory else [])]:
        thread.start()
    while seen.requests < args.requests and time.monotonic() - begun < args.seconds:
        time.sleep(0.5)
    seconds = time.monotonic() - begun
    for editor in editors:
        editor.stop.set()
    ending = time.monotonic()
    for editor in editors:
        editor.join(60)
    stuck = sum(editor.is_alive() for editor in editors)
    if memory is not None:
        memory.stop.set()
        memory.join()
    ended_s = time.monotonic() - ending
    left, settled_s = settled(url)
    time.sleep(1.0)
    total = max(1e-9, seen.useful_s + seen.aborted_s)
    return {
        "model": health.model,
        "editors": args.editors,
        "slower": args.slower,
        "seconds": round(seconds, 1),
        "requests": seen.requests,
        "outcomes": dict(seen.outcomes),
        "errors": dict(seen.errors.most_common(5)),
        "to item, p50 s": round(percentile(seen.to_item, 0.5), 3),
        "to item, p95 s": round(percentile(seen.to_item, 0.95), 3),
        "pauses with an item": round(
            sum(s != float("inf") for s in seen.to_item) / max(1, len(seen.to_item)), 3
        ),
        "aborted share of time in flight": round(seen.aborted_s / total, 3),
        "cancel to return, p50 s": round(percentile(seen.stopped_s, 0.5), 3),
        "cancel to return, p95 s": round(percentile(seen.stopped_s, 0.95), 3),
        "editors that did not end": stuck,
        "editors ended after, s": round(ended_s, 2),
        "in flight at the end [running, waiting]": left,
        "server idle again after, s": round(settled_s, 2),
        "connections at the end": None if pid is None else connections(pid),
        "server memory": None if memory is None else memory.report(),
        "load": round(os.getloadavg()[0], 1),
        "cores": os.cpu_count(),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--url", help="of a running server; key in CLOVER_SGLANG_API_KEY")
    which.add_argument("--start", choices=("fake", "sdar", "clover"))
    parser.add_argument("--pid", type=int, help="of the running server, to watch its memory")
    parser.add_argument("--editors", type=int, default=64)
    parser.add_argument("--requests", type=int, default=2000, help="to stop after")
    parser.add_argument("--seconds", type=float, default=600, help="to stop after at the latest")
    parser.add_argument("--slower", type=float, default=1.0, help="factor on all typing times")
    parser.add_argument("--tokens", type=int, default=16, help="of an item, at most")
    parser.add_argument("--context", type=int, default=1200, help="characters before the cursor")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # ends the server as well
    with contextlib.ExitStack() as stack:
        if args.url:
            url, pid = args.url.rstrip("/"), args.pid
        else:
            url, pid = stack.enter_context(server(args.start))
        found = replay(args, url, pid)
    if args.json:
        print(json.dumps(found))
    else:
        for name, value in found.items():
            print(f"{name:42} {value}")
    left = found["in flight at the end [running, waiting]"]
    return 1 if found["editors that did not end"] or left not in (None, [0, 0]) else 0


if __name__ == "__main__":
    sys.exit(main())
