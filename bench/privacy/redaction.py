"""How much ordinary code the redaction of secrets touches, and what it costs.

    python -m bench.privacy.redaction            # the standard library and the installed packages
    python -m bench.privacy.redaction --show 20  # with lines that were touched

Prints the share of lines with a secret found in them (nearly all of them false alarms), the
processor time of a first look, and that of a keystroke in a document of 2 MB.
"""

from __future__ import annotations

import argparse
import random
import sysconfig
import time
from collections.abc import Sequence
from pathlib import Path

from clover_engine.privacy.secrets import redact, redact_parts

KEYSTROKES = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--files", type=int, default=2500, help="of each place, drawn by chance")
    parser.add_argument("--show", type=int, default=0, metavar="N", help="print N touched lines")
    arguments = parser.parse_args()
    library = Path(sysconfig.get_paths()["stdlib"])
    packages = Path(sysconfig.get_paths()["purelib"])
    places = {
        "standard library": [p for p in library.rglob("*.py") if "site-packages" not in p.parts],
        "site-packages": list(packages.rglob("*.py")),
    }
    for name, paths in places.items():
        measure(name, paths, arguments.files, arguments.show)
    typing([path for paths in places.values() for path in sorted(paths)])


def measure(name: str, paths: Sequence[Path], count: int, shown: int) -> None:
    """Prints the share of touched lines, with and without lines of bare base64."""
    chosen = random.Random(1).sample(sorted(paths), min(count, len(paths)))
    lines = chars = 0
    touched: list[str] = []
    seconds = 0.0
    for path in chosen:
        text = path.read_text("utf-8", "replace")
        begun = time.process_time()
        safe = redact(text)
        seconds += time.process_time() - begun
        pairs = list(zip(text.split("\n"), safe.split("\n"), strict=True))
        lines, chars = lines + len(pairs), chars + len(text)
        touched += [before.strip() for before, after in pairs if before != after]
    data = sum(" " not in line and len(line) > 55 for line in touched)
    print(
        f"{name}: {len(chosen)} files, {lines} lines, {len(touched)} touched "
        f"({1e5 * len(touched) / lines:.1f} in 100,000), {data} of them bare base64; "
        f"{1e9 * seconds / chars:.0f} ms of processor time for 1 MB"
    )
    for line in random.Random(2).sample(touched, min(shown, len(touched))):
        print("   ", line[:150])


def typing(paths: Sequence[Path]) -> None:
    """Prints the cost of keystrokes in the middle of 2 MB of code."""
    text, drawn = "", random.Random(3)
    while len(text) < 2_000_000:
        text += drawn.choice(paths).read_text("utf-8", "replace")
    text = text[:2_000_000]
    middle = text.find("\n", len(text) // 2)
    begun = time.process_time()
    redact(text)
    first = time.process_time() - begun
    times = []
    for step in range(KEYSTROKES):
        prefix = text[:middle] + "\npassword = 'Zx81Lq0Pw7RtUv3Wx5Yz7"[: step + 2]
        begun = time.process_time()
        redact_parts(prefix, text[middle:])
        times.append(time.process_time() - begun)
    typical = 1e3 * sorted(times)[KEYSTROKES // 2]
    print(f"2 MB: first look {1e3 * first:.0f} ms, a keystroke {typical:.1f} ms in the median")


if __name__ == "__main__":
    main()
