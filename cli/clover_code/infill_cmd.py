"""`clover-code infill`: fills the hole at one place of one file and prints the text."""

from __future__ import annotations

import argparse
import json
import sys
import time
import typing
from typing import TYPE_CHECKING, Any

from clover_code.engine_option import (
    ENGINES,
    ENVIRONMENT,
    add_engine_arguments,
    opened,
    withheld_from_servers,
)
from clover_code.places import CursorText, cut, parse_place, read_text
from clover_engine.api import InfillRequest, Mode, to_json
from clover_engine.gate import is_shown

if TYPE_CHECKING:
    from clover_engine.api import InfillResult

_SAMPLING_TEMPERATURE = 0.8

EXAMPLES = (
    """\
examples:
  clover-code infill shop/cart.py:12:5
  clover-code infill --json --multi-line shop/cart.py:12:5
  git show HEAD:shop/cart.py | clover-code infill -:12:5

LINE and COL start at 1; COL counts characters, and one past the last is the end of the line.

exit codes:
  0  a text was generated (it may be empty)
  1  the model failed on this request
  2  the file, the place or the model's files cannot be used (the message says what to do)

"""
    + ENVIRONMENT
)


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the subcommand `infill`."""
    parser = subparsers.add_parser(
        "infill",
        help="fill the hole at one place of a file",
        description="Generates the text that belongs between what stands before and after a place.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("place", metavar="FILE:LINE:COL", help='"-" as FILE reads standard input')
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--max-tokens", type=int, default=64, metavar="N")
    parser.add_argument("--multi-line", action="store_true", help="go on after the end of the line")
    parser.add_argument(
        "--mode",
        choices=typing.get_args(Mode),
        default=InfillRequest.__dataclass_fields__["mode"].default,
        help="how tokens are decoded (default: %(default)s)",
    )
    parser.add_argument(
        "--temperature",
        type=float,
        metavar="T",
        help=f"0 takes the likeliest text (default: 0, or {_SAMPLING_TEMPERATURE} with --n)",
    )
    parser.add_argument("--seed", type=int, default=0, help="same seed, same text")
    parser.add_argument("--n", type=int, default=1, help="number of samples, the surest first")
    parser.add_argument("--deadline", type=float, metavar="SECONDS", help="take what there is then")
    add_engine_arguments(parser, ENGINES[:-1])
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Runs the subcommand and returns its exit code."""
    place = parse_place(args.place)
    hole = cut(read_text(place), place)
    temperature = args.temperature
    if temperature is None:
        temperature = _SAMPLING_TEMPERATURE if args.n > 1 else 0.0
    request = InfillRequest(
        prefix=hole.prefix,
        suffix=hole.suffix,
        max_tokens=args.max_tokens,
        mode=args.mode,
        temperature=temperature,
        seed=args.seed,
        n=args.n,
        stop=() if args.multi_line else ("\n",),
        deadline_s=args.deadline,
    )
    begun = time.monotonic()
    with opened(args, withheld_from_servers(place.path)) as engine:
        assert engine is not None  # "none" is no choice here
        result = engine.infill(request)
    found = describe(result, hole, time.monotonic() - begun)
    if args.json:
        print(json.dumps(found))
    else:
        _print(found)
    return 0


def describe(result: InfillResult, hole: CursorText, seconds: float) -> dict[str, Any]:
    """What `--json` prints; the surest choice comes first and stands at the top."""
    choices = [
        {
            "text": choice.text.replace("\n", hole.newline),
            "confidence": round(choice.confidence, 4),
            "shown": is_shown(choice, result.model),
            "finish_reason": choice.finish_reason,
        }
        for choice in sorted(result.choices, key=lambda c: -c.confidence)
    ]
    return {
        **choices[0],
        "seconds": round(seconds, 3),
        "statistics": to_json(result.stats),
        "choices": choices,
    }


def _print(data: dict[str, Any]) -> None:
    for choice in data["choices"]:
        print(choice["text"])
        doubt = "" if choice["shown"] else " (too unsure: an editor would not show it)"
        if not choice["text"].strip():
            doubt = " (nothing to insert)"
        print(f"confidence {choice['confidence']:.2f}{doubt}", file=sys.stderr)
