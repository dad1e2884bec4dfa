"""An existing Hugging Face checkpoint of the base family becomes a Clover checkpoint.

    python -m clover_engine.train.convert SRC DST [--mask-token ID]

Clean rows stay as they are, bit for bit: every tensor keeps its values and its dtype. The
parameters of block rows are added at neutral initial values, so that training starts from the
base's own behaviour. A layer and a shard at a time are in memory, whatever the model's size.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor

from clover_engine.errors import CheckpointError
from clover_engine.model.clover import Clover
from clover_engine.model.config import CloverConfig
from clover_engine.model.deltanet import GatedDeltaNet
from clover_engine.model.names import is_new
from clover_engine.model.weights import ShardWriter, checked

TOKENIZER = "tokenizer.json"
COMPANIONS = ("tokenizer_config.json", "generation_config.json", "chat_template.jinja", "LICENSE")
"""Copied where the source has them; the engine reads only the tokenizer."""


def convert(
    source: Path,
    target: Path,
    *,
    mask_token: int | None = None,
    shard_bytes: int = 1024 * 1024 * 1024,
) -> None:
    """Writes a Clover checkpoint made from `source` into `target`.

    `mask_token` is the id that stands for [MASK] where the vocabulary has one; without it the mask
    gets an embedding of its own, the mean of all tokens'. Raises `CheckpointError` when the source
    cannot be used, is a Clover checkpoint already, or `target` has a checkpoint.
    """
    config = CloverConfig.load(source).with_(
        mask_token_id=mask_token, mask_embedding=mask_token is None
    )
    if not (source / TOKENIZER).is_file():
        raise CheckpointError(f"{source / TOKENIZER} is missing; fetch the complete checkpoint")
    if (target / "config.json").exists():
        raise CheckpointError(f"{target} has a checkpoint already; use an empty directory")
    with torch.device("meta"):
        shapes = {name: tensor.shape for name, tensor in Clover(config).state_dict().items()}
    writer = ShardWriter(target, shard_bytes)
    for name, tensor in checked(source, config, shapes):
        if is_new(name):
            raise CheckpointError(f"{source} is a Clover checkpoint already; use it as it is")
        writer.add(name, tensor)
        if name == "model.embed_tokens.weight" and config.mask_embedding:
            mean = tensor.to(torch.float64).mean(dim=0)
            writer.add("model.mask_embedding", mean.to(torch.float32))
    for name, tensor in _neutral(config):
        writer.add(name, tensor)
    for name in (TOKENIZER, *COMPANIONS):
        if (source / name).is_file():
            shutil.copyfile(source / name, target / name)
    writer.finish(config)


def _neutral(config: CloverConfig) -> Iterator[tuple[str, Tensor]]:
    """The parameters of block rows in every GDN layer, as a new layer has them."""
    if not config.hybrid:
        return
    layer = {n: t for n, t in GatedDeltaNet(config).state_dict(prefix=".").items() if is_new(n)}
    for i, kind in enumerate(config.layer_types):
        if kind == "linear_attention":
            for name, tensor in layer.items():
                yield f"model.layers.{i}.linear_attn{name}", tensor.clone()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m clover_engine.train.convert",
        description="Make a Clover checkpoint from a Hugging Face checkpoint of the base family.",
    )
    parser.add_argument("source", type=Path, metavar="SRC", help="directory of the base checkpoint")
    parser.add_argument("target", type=Path, metavar="DST", help="new directory")
    parser.add_argument(
        "--mask-token",
        type=int,
        metavar="ID",
        help="token that stands for [MASK] (default: an embedding of its own)",
    )
    given = parser.parse_args(arguments)
    try:
        convert(given.source, given.target, mask_token=given.mask_token)
    except CheckpointError as error:
        print(f"convert: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"convert: cannot write {given.target}: {error}", file=sys.stderr)
        return 2
    print(f"{given.target} is a Clover checkpoint; its block rows want training")
    return 0


if __name__ == "__main__":
    sys.exit(main())
