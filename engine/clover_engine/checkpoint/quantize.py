"""Makes an 8- or 4-bit checkpoint from a Clover or base-family checkpoint.

    python -m clover_engine.checkpoint.quantize SRC DST [--bits 4] [--group-size 128] [--symmetric]

The projections and experts of every layer are quantised, and, unless `--keep-embeddings`, the
token embedding and the head (in 8 bits a row). All else keeps its values and its dtype. A layer
and a shard at a time are in memory, whatever the model's size. `load_model` and the engine read
the result like any checkpoint.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from clover_engine.checkpoint.convert import COMPANIONS, TOKENIZER
from clover_engine.checkpoint.filling import empty_model
from clover_engine.checkpoint.weights import ShardWriter, checked
from clover_engine.errors import CheckpointError
from clover_engine.model.config import CloverConfig
from clover_engine.model.quant import Quantization
from clover_engine.model.quant import quantize as quantized


@dataclass(slots=True)
class Written:
    """What was done so far."""

    tensors: int = 0
    total: int = 0
    source_bytes: int = 0
    bytes: int = 0


def quantize(
    source: Path,
    target: Path,
    how: Quantization,
    *,
    shard_bytes: int = 1024 * 1024 * 1024,
    progress: Callable[[Written], None] = lambda _: None,
) -> Written:
    """Writes `source` quantised into `target`; `progress` is called after every tensor.

    Raises `CheckpointError` when the source cannot be used or is quantised already, a weight is
    not finite, or `target` has a checkpoint.
    """
    config = CloverConfig.load(source)
    if Quantization.load(source) is not None:
        raise CheckpointError(f"{source} is quantised already; use the checkpoint it was made from")
    if (target / "config.json").exists():
        raise CheckpointError(f"{target} has a checkpoint already; use an empty directory")
    shapes = {name: tensor.shape for name, tensor in empty_model(config).state_dict().items()}
    writer, written = ShardWriter(target, shard_bytes), Written(total=len(shapes))
    for name, tensor in checked(source, config, shapes):
        own = how.of(name)
        parts = {name: tensor}
        if own is not None:
            try:
                parts = quantized(tensor, own).tensors(name)
            except ValueError as error:
                raise CheckpointError(
                    f"tensor {name!r}: {error}; use a checkpoint whose training did not diverge"
                ) from error
        for part, value in parts.items():
            writer.add(part, value)
            written.bytes += value.nbytes
        written.tensors += 1
        written.source_bytes += tensor.nbytes
        progress(written)
    for name in (TOKENIZER, *COMPANIONS):
        if (source / name).is_file():
            shutil.copyfile(source / name, target / name)
    writer.finish(config, how)
    return written


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m clover_engine.checkpoint.quantize",
        description="Make an 8- or 4-bit checkpoint.",
    )
    parser.add_argument("source", type=Path, metavar="SRC", help="directory of a checkpoint")
    parser.add_argument("target", type=Path, metavar="DST", help="new directory")
    parser.add_argument("--bits", type=int, choices=(4, 8), default=8)
    parser.add_argument(
        "--group-size",
        type=int,
        metavar="N",
        help="columns that share a scale; 0 = a whole row (default: 0 for 8 bits, 128 for 4)",
    )
    parser.add_argument(
        "--symmetric", action="store_true", help="4 bits without zero points (8 bits have none)"
    )
    parser.add_argument(
        "--keep-embeddings",
        action="store_true",
        help="leave the embedding and the head as they are",
    )
    given = parser.parse_args(arguments)
    group_size = given.group_size
    if group_size is None:
        group_size = 0 if given.bits == 8 else 128
    symmetric = given.symmetric or given.bits == 8
    try:
        how = Quantization(given.bits, group_size, symmetric, not given.keep_embeddings)
        written = quantize(given.source, given.target, how, progress=_show)
    except CheckpointError as error:
        print(f"quantize: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"quantize: cannot write {given.target}: {error}", file=sys.stderr)
        return 2
    before, after = written.source_bytes / 1e6, written.bytes / 1e6
    print(f"{given.target}: {after:.1f} MB, {given.bits} bits, from {before:.1f} MB")
    return 0


def _show(written: Written) -> None:
    """A line that is written over, for someone who watches."""
    if sys.stderr.isatty():
        end = "\n" if written.tensors == written.total else ""
        done = f"{written.tensors} of {written.total} tensors, {written.bytes / 1e6:.0f} MB"
        print(f"\rquantize: {done}", end=end, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
