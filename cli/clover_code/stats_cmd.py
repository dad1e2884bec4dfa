"""`clover-code stats`: how many suggestions were shown and accepted on this machine."""

from __future__ import annotations

import argparse
import json
import math
from typing import Any

EXAMPLES = """\
examples:
  clover-code stats
  clover-code stats --days 7
  clover-code stats --json

The counts are kept in files on this machine, hold no code, and are never sent anywhere. The
setting `clover.statistics` switches them off; removing the folder forgets them.

exit codes:
  0  printed (also where nothing was counted yet)
  2  the files cannot be read
"""

COLUMNS = ("shown", "accepted", "in part", "rate", "characters", "ms p50", "ms p95")


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the subcommand `stats`."""
    parser = subparsers.add_parser(
        "stats",
        help="suggestions shown and accepted in your editor",
        description="Prints local statistics of the language server's suggestions.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--days", type=_days, metavar="N", help="only the last N days")
    parser.set_defaults(run=run)


def _days(text: str) -> float:
    days = float(text)
    if not (math.isfinite(days) and days > 0):
        raise argparse.ArgumentTypeError("a number of days above 0")
    return days


def run(args: argparse.Namespace) -> int:
    """Runs the subcommand and returns its exit code."""
    from clover_code.errors import UserError
    from clover_lsp.stats import report, state_folder

    try:
        found = report(days=args.days)
    except OSError as error:
        raise UserError(
            f"cannot read {error.filename}: {error.strerror}; remove or repair {state_folder()}"
        ) from None
    if args.json:
        print(json.dumps(found))
    else:
        _print(found)
    return 0


def _print(data: dict[str, Any]) -> None:
    if not data["all"]["shown"]:
        when = "" if data["days"] is None else f" in the last {data['days']:g} days"
        print(f"nothing was suggested{when}; counts are kept in {data['folder']}")
        return
    rows = [("all", data["all"])]
    rows += [(f"  {name}", row) for name, row in data["by_language"].items()]
    rows += [(f"  from {name}", row) for name, row in data["by_origin"].items()]
    width = max(len(name) for name, _ in rows)
    print(" " * width, *(f"{column:>10}" for column in COLUMNS))
    for name, row in rows:
        print(f"{name:{width}}", *(f"{cell:>10}" for cell in _cells(row)))


def _cells(row: dict[str, Any]) -> list[str]:
    rate = "-" if row["rate"] is None else f"{100 * row['rate']:.1f} %"
    times = [row["latency_ms_p50"], row["latency_ms_p95"]]
    counts = [row["shown"], row["accepted"], row["partially_accepted"]]
    shown_times = ["-" if value is None else f"{value:.0f}" for value in times]
    return [*map(str, counts), rate, str(row["accepted_chars"]), *shown_times]
