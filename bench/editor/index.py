"""What indexing costs: cold, warm, one file, and what completions notice of it.

    python -m bench.editor.index [--files N] [--keep FOLDER]

A tree of at least 3,000 Python files (the standard library and installed packages) is copied to a
temporary folder and indexed by a real `Room` with its indexing process. While that runs, a thread
calls `gather` at the pace of typing. Every wall time has the CPU time of both processes beside it:
on a busy machine only that is comparable.

`delay` is how much longer a `gather` took than the median of the same calls on the idle room. It
holds whatever else the machine does, so `interference` stands beside it: the CPU time that other
threads of the server's process used during the call, which is all that can have held the
interpreter's lock.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sysconfig
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from clover_lsp.context.room import Room, RoomOptions
from clover_lsp.context.types import Place

HEAVY = frozenset({"torch", "sympy", "transformers", "sglang"})
"""Packages left out: they would make the tree larger than typical, not more varied."""
PAUSE_S = 0.03
IDLE_S = 20.0
"""How long the idle room is measured: about as many calls as while indexing."""
PLACES = ("lib/asyncio/tasks.py", "lib/json/decoder.py", "lib/subprocess.py")


def sources() -> Iterator[tuple[Path, str]]:
    """(file, name in the tree) of the standard library, then of installed packages."""
    library = Path(sysconfig.get_paths()["stdlib"])
    for path in sorted(library.rglob("*.py")):
        if "site-packages" not in path.parts:
            yield path, f"lib/{path.relative_to(library).as_posix()}"
    packages = Path(sysconfig.get_paths()["purelib"])
    for folder in sorted(p for p in packages.iterdir() if p.is_dir() and p.name not in HEAVY):
        for path in sorted(folder.rglob("*.py")):
            yield path, f"pkg/{path.relative_to(packages).as_posix()}"


def make_tree(root: Path, files: int) -> tuple[int, int]:
    """Copies sources; returns how many files and bytes."""
    count = size = 0
    for path, name in sources():
        if count == files:
            break
        target = root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
        count, size = count + 1, size + path.stat().st_size
    return count, size


class Typist(threading.Thread):
    """Calls `gather` as someone who types does, and remembers how long each call took."""

    def __init__(self, room: Room, root: Path) -> None:
        super().__init__(daemon=True)
        self.room, self.stop = room, threading.Event()
        self.times_ms: list[float] = []
        self.interference_ms: list[float] = []
        self.texts = [(root / name).as_uri() for name in PLACES]
        self.bodies = [(root / name).read_text("utf-8") for name in PLACES]

    def run(self) -> None:
        at = 0
        while not self.stop.wait(PAUSE_S):
            uri, text = self.texts[at % len(PLACES)], self.bodies[at % len(PLACES)]
            cut = len(text) // 2 + at % 200
            place = Place(uri, "python", text[:cut], text[cut:])
            begun, cpu, own = time.perf_counter(), time.process_time(), time.thread_time()
            self.room.gather(place, 512)
            own, cpu = time.thread_time() - own, time.process_time() - cpu
            self.times_ms.append((time.perf_counter() - begun) * 1e3)
            self.interference_ms.append(max(0.0, cpu - own) * 1e3)
            at += 1

    def finish(self) -> Typist:
        self.stop.set()
        self.join()
        self.times_ms.sort()
        self.interference_ms.sort()
        return self


class Meter:
    """Wall and CPU time of this process and its indexing process since it was made."""

    def __init__(self) -> None:
        self.begun, self.cpu = time.perf_counter(), self._cpu()

    def _cpu(self) -> float:
        own = psutil.Process()
        return sum(sum(p.cpu_times()[:2]) for p in (own, *own.children()))

    def __str__(self) -> str:
        return f"{time.perf_counter() - self.begun:.2f} s wall, {self._cpu() - self.cpu:.2f} s CPU"


def memory() -> str:
    """Resident memory of the server's process and of the indexing process."""
    own = psutil.Process()
    parts = {"server": own.memory_info().rss}
    for child in own.children():
        parts["indexing process"] = child.memory_info().rss
    total = sum(parts.values())
    named = ", ".join(f"{name} {size / 2**20:.0f}" for name, size in parts.items())
    return f"{total / 2**20:.0f} MiB ({named})"


def describe(typist: Typist, base: float) -> str:
    """Median, 99th percentile and maximum, the delay behind the idle median, the interference."""
    times, other = typist.times_ms, typist.interference_ms
    at = int(0.99 * len(times))
    return (
        f"{len(times)} calls, median {statistics.median(times):.1f} ms, p99 {times[at]:.1f}, max "
        f"{times[-1]:.1f}; delay p99 {max(0.0, times[at] - base):.1f}, max "
        f"{max(0.0, times[-1] - base):.1f} ms; interference p99 {other[at]:.2f}, max "
        f"{other[-1]:.2f} ms"
    )


def idle_times(room: Room, root: Path) -> Typist:
    """How long `gather` takes while nothing else happens in this process."""
    typist = Typist(room, root)
    typist.start()
    time.sleep(IDLE_S)
    return typist.finish()


def start(root: Path, cache: Path) -> Room:
    room = Room(RoomOptions(cache_dir=cache, git_diff=False))
    room.start()
    room.set_roots([str(root)])
    return room


def measure_cold(root: Path, cache: Path) -> None:
    room = start(root, cache)
    meter, typist = Meter(), Typist(room, root)
    typist.start()
    room.wait(900)
    cold, used = str(meter), memory()
    during = typist.finish()
    idle = idle_times(room, root)
    base = statistics.median(idle.times_ms)
    print(f"cold index: {cold}; {room.status().files} files; memory {used}")
    print(f"gather, idle room: {describe(idle, base)}")
    print(f"gather, while indexing: {describe(during, base)}")
    room.close()


def measure_warm(root: Path, cache: Path) -> None:
    meter = Meter()
    room = start(root, cache)
    while not room.status().files:
        time.sleep(0.001)
    usable = str(meter)
    room.wait(900)
    print(f"warm start: usable after {usable}; checked for changes after {meter}")
    print(f"memory: {memory()}")
    base = statistics.median(idle_times(room, root).times_ms)
    measure_updates(room, root, base)
    idle = psutil.Process()
    before = sum(idle.cpu_times()[:2])
    time.sleep(10)
    print(f"idle CPU: {(sum(idle.cpu_times()[:2]) - before) * 10:.2f} % of one core")
    room.close()


def measure_updates(room: Room, root: Path, base: float) -> None:
    """One changed file, from being told of it until searches see it."""
    path = root / PLACES[0]
    text = path.read_text("utf-8")
    waits, spent = [], []
    typist = Typist(room, root)
    typist.start()
    for n in range(100):
        path.write_text(f"{text}\ndef added_{n}():\n    pass\n", "utf-8")
        cpu, begun = Meter(), time.perf_counter()
        room.files_changed([str(path)])
        room.wait(60)
        waits.append((time.perf_counter() - begun) * 1e3)
        spent.append((cpu._cpu() - cpu.cpu) * 1e3)
    print(
        f"one-file update ({len(text) // 1000} kB): median {statistics.median(waits):.1f} ms wall, "
        f"max {max(waits):.1f}; {statistics.median(spent):.0f} ms CPU, calls of gather included"
    )
    during = typist.finish()
    print(f"gather, while updating: {describe(during, base)}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures the index of a large tree.")
    parser.add_argument("--files", type=int, default=3100)
    parser.add_argument("--keep", metavar="FOLDER", help="make the tree and the index here")
    args = parser.parse_args()
    print(f"load average before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(args.keep or temporary)
        count, size = make_tree(folder / "tree", args.files)
        print(f"tree: {count} files, {size / 1e6:.1f} MB")
        measure_cold(folder / "tree", folder / "cache")
        measure_warm(folder / "tree", folder / "cache")


if __name__ == "__main__":
    main()
