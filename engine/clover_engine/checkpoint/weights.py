"""Checkpoints on disk: safetensors, one file or shards with an index, Hugging Face names."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from clover_engine.checkpoint.filling import Filling, Weight, empty_model
from clover_engine.checkpoint.names import groups, is_new, rename
from clover_engine.errors import CheckpointError
from clover_engine.model.clover import Clover
from clover_engine.model.config import CloverConfig
from clover_engine.model.qlinear import QuantLinear
from clover_engine.model.quant import Quantization, Quantized, merged
from clover_engine.model.quant import quantize as quantized

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
AnyWeight = TypeVar("AnyWeight", bound=Weight)


def load_model(
    directory: Path,
    dtype: torch.dtype = torch.float32,
    config: CloverConfig | None = None,
    *,
    quantize: Quantization | None = None,
    device: torch.device | str = "cpu",
    expert_budget_bytes: int | None = None,
) -> Clover:
    """Loads a Clover checkpoint, or a base-family one with the new parameters at neutral values.

    A quantised checkpoint stays quantised; `quantize` quantises while loading, or otherwise than
    the checkpoint is. `expert_budget_bytes` leaves a mixture's experts in host memory and allows
    so many bytes of them on `device` at once (`clover_engine.model.experts`). A layer at a time is
    in memory twice, whatever the model's size. Raises `CheckpointError` for anything missing,
    truncated, corrupt or of the wrong shape.
    """
    config = config or CloverConfig.load(directory)
    stored = Quantization.load(directory)
    model = empty_model(config)
    shapes = {name: tensor.shape for name, tensor in model.state_dict().items()}
    fill = Filling(model, dtype, device, expert_budget_bytes)
    tensors = _read(directory, config)
    if stored is None:
        for name, value in fitting(tensors, directory, config, shapes):
            fill.add(name, _as(name, value, quantize))
    else:
        for name, weight in fitting(merged(tensors, shapes, stored), directory, config, shapes):
            fill.add(name, weight if quantize is None else _as(name, weight, quantize))
    fill.finish()
    return model.eval()


def _as(name: str, weight: Weight, how: Quantization | None) -> Weight:
    """`weight` quantised as `how` wants it for that name."""
    wanted = None if how is None else how.of(name)
    if wanted is None:
        return weight
    plain = weight.dequantize() if isinstance(weight, Quantized) else weight
    try:
        return quantized(plain, wanted)
    except ValueError as error:
        raise CheckpointError(f"tensor {name!r}: {error}; fetch the checkpoint again") from error


def checked(
    directory: Path, config: CloverConfig, shapes: Mapping[str, torch.Size]
) -> Iterator[tuple[str, Tensor]]:
    """The tensors of a checkpoint under our names, a layer at a time in memory.

    `shapes` says what the model needs. Raises `CheckpointError` for a tensor too many, of another
    shape, or, at the end, missing: new parameters may be missing, but only all of them.
    """
    return fitting(_read(directory, config), directory, config, shapes)


def fitting(
    tensors: Iterable[tuple[str, AnyWeight]],
    source: Path,
    config: CloverConfig,
    shapes: Mapping[str, torch.Size],
) -> Iterator[tuple[str, AnyWeight]]:
    """`tensors` of `source` as `checked` gives them."""
    tied = {"lm_head.weight"} if config.tie_word_embeddings else set()
    seen: set[str] = set()
    for name, value in tensors:
        if name in tied:
            continue
        if name not in shapes:
            raise CheckpointError(
                f"{source} has a tensor {name!r} that this architecture does not use; "
                "use a checkpoint of a supported model, not quantised"
            )
        if shapes[name] != value.shape:
            raise CheckpointError(
                f"tensor {name!r} is {list(value.shape)}, config.json says {list(shapes[name])}; "
                "the checkpoint and its config do not belong together, fetch both again"
            )
        seen.add(name)
        yield name, value
    missing = [name for name in shapes if name not in seen and name not in tied]
    if not any(is_new(name) for name in seen):
        missing = [name for name in missing if not is_new(name)]
    if missing:
        raise CheckpointError(
            f"{source} lacks {len(missing)} tensors, first {missing[0]!r}; fetch it again"
        )


def _read(directory: Path, config: CloverConfig) -> Iterator[tuple[str, Tensor]]:
    """All tensors under our names, whether the model wants them or not."""
    where: dict[str, Any] = {}  # raw name → its open file
    with ExitStack() as stack:
        path = directory
        try:
            for path in _files(directory):
                file = stack.enter_context(safe_open(str(path), framework="pt"))
                where |= dict.fromkeys(file.keys(), file)
            path = directory
            for names in groups(where):
                group = {name: where[name].get_tensor(name) for name in names}
                yield from rename(group, config)
        except (SafetensorError, OSError, ValueError) as error:
            reason = " ".join(str(error).split())
            raise CheckpointError(
                f"{path} is truncated or corrupt ({reason}); fetch the checkpoint again"
            ) from error


def _files(directory: Path) -> list[Path]:
    index = directory / INDEX
    if index.is_file():
        try:
            weight_map = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
            names = sorted({str(name) for name in weight_map.values()})
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise CheckpointError(f"{index} cannot be read; fetch the checkpoint again") from error
    else:
        names = [SINGLE]
    paths = [directory / name for name in names]
    for path in paths:
        if not path.is_file():
            raise CheckpointError(
                f"{path} is missing; set CLOVER_CHECKPOINT to a complete checkpoint directory"
            )
    return paths


def save_model(
    model: Clover,
    directory: Path,
    dtype: torch.dtype | None = None,
    shard_bytes: int = 16 * 1024 * 1024,
) -> None:
    """Writes config.json and safetensors in shards of at most `shard_bytes` (single tensors may
    be larger). An existing checkpoint is replaced file by file, index last.

    Raises ValueError for a quantised model: `train.quantize` makes such checkpoints from files.
    """
    if any(isinstance(module, QuantLinear) for module in model.modules()):
        raise ValueError("a quantised model cannot be saved; quantise its checkpoint instead")
    writer = ShardWriter(directory, shard_bytes)
    for name, tensor in model.state_dict().items():
        if name != "lm_head.weight" or not model.config.tie_word_embeddings:
            writer.add(name, tensor if dtype is None else tensor.to(dtype))
    writer.finish(model.config)


class ShardWriter:
    """Writes a checkpoint tensor by tensor; nothing has its final name before `finish`."""

    def __init__(self, directory: Path, shard_bytes: int) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory, self.shard_bytes = directory, shard_bytes
        self._shard: dict[str, Tensor] = {}
        self._used = 0
        self._written: list[tuple[Path, list[str]]] = []

    def add(self, name: str, tensor: Tensor) -> None:
        size = tensor.element_size() * tensor.nelement()
        if self._shard and self._used + size > self.shard_bytes:
            self._flush()
        whole = tensor.detach().contiguous().cpu()
        if whole.untyped_storage().nbytes() > size:  # safetensors refuses shared memory
            whole = whole.clone()
        self._shard[name] = whole
        self._used += size

    def finish(self, config: CloverConfig, how: Quantization | None = None) -> None:
        """Names the shards, then writes the index and config.json; `how` they are quantised."""
        self._flush()
        index, single, total = self.directory / INDEX, self.directory / SINGLE, len(self._written)
        if total == 1:
            self._written[0][0].replace(single)
            index.unlink(missing_ok=True)
        else:
            where: dict[str, str] = {}
            for i, (path, names) in enumerate(self._written, 1):
                final = f"model-{i:05d}-of-{total:05d}.safetensors"
                path.replace(self.directory / final)
                where |= dict.fromkeys(names, final)
            _write_json(index, {"metadata": {}, "weight_map": where})
            single.unlink(missing_ok=True)
        data = config.to_json()
        if how is not None:
            data["quantization"] = how.to_json()
        _write_json(self.directory / "config.json", data)

    def _flush(self) -> None:
        path = self.directory / f"model-{len(self._written) + 1:05d}.partial"
        save_file(self._shard, str(path), metadata={"format": "pt"})
        self._written.append((path, list(self._shard)))
        self._shard, self._used = {}, 0


def _write_json(path: Path, data: dict[str, Any]) -> None:
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    partial.replace(path)
