"""An existing Hugging Face checkpoint of the base family becomes a Clover checkpoint.

    python -m clover_engine.checkpoint.convert SRC DST [--mask-token ID]
        [--adapter-rank R | --adapter FILE]

SRC is a folder, or a GGUF file of a Llama-shaped model. Clean rows stay as they are, bit for bit:
every tensor keeps its values and its dtype (a GGUF file's become float32). The parameters of block
rows are added at neutral initial values, so that training starts from the base's own behaviour. A
layer and a shard at a time are in memory, whatever the model's size.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from clover_engine.checkpoint.filling import neutral_parameters
from clover_engine.checkpoint.gguf import GGUFFile, open_gguf
from clover_engine.checkpoint.names import is_new
from clover_engine.checkpoint.weights import ShardWriter, checked, fitting
from clover_engine.errors import CheckpointError
from clover_engine.model.clover import Clover
from clover_engine.model.config import CloverConfig

TOKENIZER = "tokenizer.json"
_MASK = "model.mask_embedding"
COMPANIONS = ("tokenizer_config.json", "generation_config.json", "chat_template.jinja", "LICENSE")
"""Copied where the source has them; the engine reads only the tokenizer."""


class _Folder:
    """A Hugging Face checkpoint."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = CloverConfig.load(path)
        if not (path / TOKENIZER).is_file():
            raise CheckpointError(f"{path / TOKENIZER} is missing; fetch the complete checkpoint")

    def tensors(
        self, config: CloverConfig, shapes: Mapping[str, torch.Size]
    ) -> Iterator[tuple[str, Tensor]]:
        return checked(self.path, config, shapes)

    def copy_companions(self, target: Path) -> None:
        for name in (TOKENIZER, *COMPANIONS):
            if (self.path / name).is_file():
                shutil.copyfile(self.path / name, target / name)


class _GGUF:
    """A GGUF file."""

    def __init__(self, path: Path) -> None:
        self.file: GGUFFile = open_gguf(path)
        self.config = CloverConfig.from_hf(self.file.config())
        self.tokenizer = self.file.tokenizer()

    def tensors(
        self, config: CloverConfig, shapes: Mapping[str, torch.Size]
    ) -> Iterator[tuple[str, Tensor]]:
        return fitting(self.file.tensors(), self.file.path, config, shapes)

    def copy_companions(self, target: Path) -> None:
        text = json.dumps(self.tokenizer, ensure_ascii=False)
        (target / TOKENIZER).write_text(text, encoding="utf-8")
        for name, content in self.file.companions().items():
            (target / name).write_text(content, encoding="utf-8")


def convert(
    source: Path,
    target: Path,
    *,
    mask_token: int | None = None,
    adapter_rank: int = 0,
    adapter: Path | None = None,
    shard_bytes: int = 1024 * 1024 * 1024,
) -> None:
    """Writes a Clover checkpoint made from `source`, a folder or a GGUF file, into `target`.

    `mask_token` is the id that stands for [MASK] where the vocabulary has one; without it the mask
    gets an embedding of its own, the mean of all tokens'. `adapter_rank` above 0 gives masked rows
    a low-rank adapter that adds nothing yet, and lets them predict the token after their own place,
    as the base's rows do; `adapter` is the file of a trained one (`train.adapter`). Raises
    `CheckpointError` when the source cannot be used, is a Clover checkpoint already, or `target`
    has a checkpoint.
    """
    trained = {} if adapter is None else _trained(adapter)
    if trained:
        adapter_rank = trained["adapter.layers.0.mlp_up_proj.down"].shape[0]
    base = _GGUF(source) if source.suffix == ".gguf" else _Folder(source)
    config = base.config.with_(
        mask_token_id=mask_token,
        mask_embedding=mask_token is None,
        adapter_rank=adapter_rank,
        block_shift=int(adapter_rank > 0),
    )
    if (target / "config.json").exists():
        raise CheckpointError(f"{target} has a checkpoint already; use an empty directory")
    with torch.device("meta"):
        shapes = {name: tensor.shape for name, tensor in Clover(config).state_dict().items()}
    writer = ShardWriter(target, shard_bytes)
    for name, tensor in base.tensors(config, shapes):
        if is_new(name):
            raise CheckpointError(f"{source} is a Clover checkpoint already; use it as it is")
        writer.add(name, tensor)
        if name == "model.embed_tokens.weight" and config.mask_embedding:
            mean = tensor.to(torch.float64).mean(dim=0)
            writer.add(_MASK, trained.get(_MASK, mean.to(torch.float32)))
    for name, tensor in neutral_parameters(config).items():
        if name != _MASK:
            writer.add(name, _fitted(trained.get(name, tensor.clone()), tensor, adapter))
    base.copy_companions(target)
    writer.finish(config)


def _trained(path: Path) -> dict[str, Tensor]:
    """What `train.adapter` saved."""
    try:
        found = load_file(path)
    except (SafetensorError, OSError) as error:
        raise CheckpointError(
            f"{path} cannot be read ({error}); use what train.adapter saved"
        ) from error
    if _MASK not in found or "adapter.layers.0.mlp_up_proj.down" not in found:
        raise CheckpointError(f"{path} is no adapter; use what train.adapter saved")
    return found


def _fitted(tensor: Tensor, like: Tensor, adapter: Path | None) -> Tensor:
    if tensor.shape != like.shape:
        raise CheckpointError(f"{adapter} is for another model; train one for this model")
    return tensor


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m clover_engine.checkpoint.convert",
        description="Make a Clover checkpoint from a Hugging Face checkpoint of the base family.",
    )
    parser.add_argument(
        "source", type=Path, metavar="SRC", help="directory or GGUF file of the base checkpoint"
    )
    parser.add_argument("target", type=Path, metavar="DST", help="new directory")
    parser.add_argument(
        "--mask-token",
        type=int,
        metavar="ID",
        help="token that stands for [MASK] (default: an embedding of its own)",
    )
    adapters = parser.add_mutually_exclusive_group()
    adapters.add_argument(
        "--adapter-rank",
        type=int,
        default=0,
        metavar="R",
        help="give masked rows an adapter of this rank, to be trained by train.adapter",
    )
    adapters.add_argument(
        "--adapter", type=Path, metavar="FILE", help="give masked rows this trained adapter"
    )
    given = parser.parse_args(arguments)
    try:
        convert(
            given.source,
            given.target,
            mask_token=given.mask_token,
            adapter_rank=given.adapter_rank,
            adapter=given.adapter,
        )
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
