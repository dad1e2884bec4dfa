"""What the editor would show: suggestions on held-out packages, with and without help.

    python -m bench.suggest.suggest [--holes 150] [--checkpoint DIR]

Every package is a workspace of its own, indexed as the language server does it. A hole is the rest
of a line, asked for at its start, inside a word or after a blank (as in `calibrate.py`); the file
is open without the rest of the line. The same holes are asked in four ways, side by side: the
model with the file only, with snippets of other files, look-ups only, and as the server does it.
`exact` counts the best suggestion whether it would be shown or not; `shown` is the share that
passes the gate, `right` the share of those that are exactly right.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

from bench.suggest.calibrate import Asked, asked
from bench.suggest.holes import files, holes

from clover_engine.api import CancelToken, Engine
from clover_engine.worker.local import LocalEngine, checkpoint_path
from clover_lsp.completion.compute import Ask, Computer
from clover_lsp.context.room import Room, RoomOptions
from clover_lsp.settings.settings import Settings

WAYS = ("model, file only", "model, snippets", "look-up only", "as the server does it")


class Workspace:
    """A package copied to a folder, and a room that has indexed it."""

    def __init__(self, package: str, folder: Path) -> None:
        self.root = folder / package
        for name, path in files((package,)):
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
        cache = folder / f"cache-{package}"
        self.room = Room(RoomOptions(watch=False, git_diff=False, cache_dir=cache))
        self.room.set_roots([str(self.root)])
        self.room.start()
        self.room.wait(120)

    def ask(self, case: Asked, ways: dict[str, Computer]) -> dict[str, tuple[str, float, float]]:
        """(text, confidence, ms) of the best suggestion by way; the text is "" where none is."""
        path = self.root.parent / case.place.uri
        place = replace(case.place, uri=path.as_uri())
        self.room.opened(place.uri, "python", place.prefix + place.suffix, 1)
        found = {}
        for way, computer in ways.items():
            began = time.perf_counter()
            best = computer.find(Ask(place), CancelToken()).suggestions[:1]
            took = 1000 * (time.perf_counter() - began)
            text, sure = (best[0].text, best[0].confidence) if best else ("", 0.0)
            found[way] = (text, sure, took)
        self.room.closed(place.uri)
        return found


def computers(room: Room, engine: Engine) -> dict[str, Computer]:
    base = Settings()
    every = replace(base.completion, min_confidence=0.0, deadline_ms=60_000)
    alone = replace(every, lookup=False)
    no_files = replace(base.context, budget_tokens=0)
    settings = (
        (replace(base, completion=alone, context=no_files), engine),
        (replace(base, completion=alone), engine),
        (replace(base, completion=every), None),
        (replace(base, completion=every), engine),
    )
    return {w: Computer(s, room, e) for w, (s, e) in zip(WAYS, settings, strict=True)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--holes", type=int, default=150)
    parser.add_argument("--checkpoint", type=Path, default=checkpoint_path())
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    engine = LocalEngine(args.checkpoint, args.threads)
    engine.health(start=True)
    by_package: dict[str, list[Asked]] = defaultdict(list)
    for hole in holes(args.holes):
        by_package[hole.path.partition("/")[0]].append(asked(hole))
    results: dict[str, list[tuple[bool, float, float]]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        for package, cases in by_package.items():
            workspace = Workspace(package, Path(folder))
            ways = computers(workspace.room, engine)
            for case in cases:
                for way, (text, sure, took) in workspace.ask(case, ways).items():
                    results[way].append((text.rstrip() == case.rest, sure, took))
            workspace.room.close()
    engine.close()
    least = Settings().completion.min_confidence
    print(f"{args.holes} holes of {len(by_package)} held-out packages; shown from {least} on")
    print("| | exact | shown | right of those | ms p50 | p95 |\n|-|-|-|-|-|-|")
    for way in WAYS:
        rows = results[way]
        shown = [right for right, sure, _ in rows if sure >= least]
        times = sorted(took for _, _, took in rows)
        exact = 100 * sum(right for right, _, _ in rows) / len(rows)
        right = 100 * sum(shown) / len(shown) if shown else 0.0
        print(
            f"| {way} | {exact:.1f} % | {100 * len(shown) / len(rows):.1f} % | {right:.0f} % "
            f"| {statistics.median(times):.0f} | {times[int(0.95 * len(times))]:.0f} |"
        )
    gates(results[WAYS[-1]])


def gates(rows: list[tuple[bool, float, float]]) -> None:
    """What other gates would show, of what the server finds."""
    print("\n| shown from | shown | right of those |\n|-|-|-|")
    for least in (0.2, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6):
        shown = [right for right, sure, _ in rows if sure >= least]
        right = 100 * sum(shown) / max(1, len(shown))
        print(f"| {least} | {100 * len(shown) / len(rows):.1f} % | {right:.0f} % |")


if __name__ == "__main__":
    main()
