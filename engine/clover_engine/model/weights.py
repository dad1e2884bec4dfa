"""Checkpoints on disk: safetensors, one file or shards with an index, Hugging Face names."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from clover_engine.errors import CheckpointError
from clover_engine.model.clover import Clover
from clover_engine.model.config import CloverConfig

_IGNORED = re.compile(r"^(model\.visual\.|visual\.|mtp\.|model\.mtp\.)|rotary_emb\.inv_freq$")
_NEW = re.compile(r"\.history\.|\.conv1d\.right$|\.mask_embedding$")
_EXPERT = re.compile(r"^(.*\.mlp\.experts)\.(\d+)\.(gate|up|down)_proj\.weight$")


def load_model(
    directory: Path, dtype: torch.dtype = torch.float32, config: CloverConfig | None = None
) -> Clover:
    """Loads a Clover checkpoint, or a base-family one with the new parameters at neutral values.

    Raises `CheckpointError` for anything missing, truncated, corrupt or of the wrong shape.
    """
    config = config or CloverConfig.load(directory)
    model = Clover(config).to(dtype)
    own = model.state_dict()
    if config.tie_word_embeddings:
        own.pop("lm_head.weight")
    tensors = dict(_rename(dict(_read(directory)), config))
    missing = [n for n in own if n not in tensors and not _NEW.search(n)]
    if missing:
        raise CheckpointError(
            f"{directory} lacks {len(missing)} tensors, first {missing[0]!r}; fetch it again"
        )
    with torch.no_grad():
        for name, target in own.items():
            if name in tensors:
                _fill(name, target, tensors[name])
    return model.eval()


def _fill(name: str, target: Tensor, value: Tensor) -> None:
    if target.shape != value.shape:
        raise CheckpointError(
            f"tensor {name!r} is {list(value.shape)}, config.json says {list(target.shape)}; "
            "the checkpoint and its config do not belong together"
        )
    target.copy_(value)


def _read(directory: Path) -> Iterator[tuple[str, Tensor]]:
    for path in _files(directory):
        try:
            with safe_open(str(path), framework="pt") as file:
                for name in file.keys():  # noqa: SIM118 - not a mapping
                    yield name, file.get_tensor(name)
        except (SafetensorError, OSError, ValueError) as error:
            raise CheckpointError(
                f"{path} is truncated or corrupt ({error}); fetch the checkpoint again"
            ) from error


def _files(directory: Path) -> list[Path]:
    index = directory / "model.safetensors.index.json"
    if index.is_file():
        try:
            names = sorted(set(json.loads(index.read_text())["weight_map"].values()))
        except (ValueError, KeyError, AttributeError) as error:
            raise CheckpointError(f"{index} cannot be read; fetch the checkpoint again") from error
    else:
        names = ["model.safetensors"]
    paths = [directory / str(name) for name in names]
    for path in paths:
        if not path.is_file():
            raise CheckpointError(
                f"{path} is missing; set CLOVER_CHECKPOINT to a complete checkpoint directory"
            )
    return paths


def _rename(tensors: dict[str, Tensor], config: CloverConfig) -> Iterator[tuple[str, Tensor]]:
    """Hugging Face names of all supported families → ours."""
    experts: dict[str, dict[str, dict[int, Tensor]]] = {}
    for raw, value in tensors.items():
        name = raw.replace("model.language_model.", "model.").replace("language_model.", "")
        if _IGNORED.search(name):
            continue
        match = _EXPERT.match(name)
        if match:
            experts.setdefault(match[1], {}).setdefault(match[3], {})[int(match[2])] = value
        elif name.endswith(("in_proj_qkvz.weight", "in_proj_ba.weight")):
            yield from _unfuse(name, value, config)
        else:
            yield name, value
    for prefix, kinds in experts.items():
        stacked = {kind: torch.stack([t[i] for i in sorted(t)]) for kind, t in kinds.items()}
        if {"gate", "up"} <= stacked.keys():
            yield f"{prefix}.gate_up_proj", torch.cat([stacked["gate"], stacked["up"]], dim=1)
        if "down" in stacked:
            yield f"{prefix}.down_proj", stacked["down"]


def _unfuse(name: str, value: Tensor, config: CloverConfig) -> Iterator[tuple[str, Tensor]]:
    """Qwen3-Next groups [q k v z] and [b a] per key head; split them into separate projections."""
    prefix = name.rsplit(".", 2)[0]
    heads = config.linear_num_key_heads
    per_key = config.linear_num_value_heads // heads
    rows = value.view(heads, -1, value.shape[-1])
    if name.endswith("in_proj_ba.weight"):
        b, a = torch.split(rows, [per_key, per_key], dim=1)
        yield f"{prefix}.in_proj_b.weight", b.flatten(0, 1)
        yield f"{prefix}.in_proj_a.weight", a.flatten(0, 1)
        return
    k, v = config.linear_key_head_dim, config.linear_value_head_dim * per_key
    q, key, val, z = torch.split(rows, [k, k, v, v], dim=1)
    yield f"{prefix}.in_proj_qkv.weight", torch.cat([p.flatten(0, 1) for p in (q, key, val)])
    yield f"{prefix}.in_proj_z.weight", z.flatten(0, 1)


def save_model(
    model: Clover,
    directory: Path,
    dtype: torch.dtype | None = None,
    shard_bytes: int = 16 * 1024 * 1024,
) -> None:
    """Writes config.json and safetensors in shards of at most `shard_bytes` (single tensors may
    be larger). An existing checkpoint is replaced file by file, index last."""
    directory.mkdir(parents=True, exist_ok=True)
    tensors = {n: t.detach().contiguous().cpu() for n, t in model.state_dict().items()}
    if model.config.tie_word_embeddings:
        tensors.pop("lm_head.weight")
    if dtype is not None:
        tensors = {n: t.to(dtype) for n, t in tensors.items()}
    shards: list[dict[str, Tensor]] = [{}]
    used = 0
    for name, tensor in tensors.items():
        size = tensor.element_size() * tensor.nelement()
        if used and used + size > shard_bytes:
            shards.append({})
            used = 0
        shards[-1][name] = tensor
        used += size
    _write_shards(shards, directory)
    text = json.dumps(model.config.to_json(), indent=1)
    (directory / "config.json").write_text(text + "\n", encoding="utf-8")


def _write_shards(shards: list[dict[str, Tensor]], directory: Path) -> None:
    index = directory / "model.safetensors.index.json"
    if len(shards) == 1:
        save_file(shards[0], str(directory / "model.safetensors"), metadata={"format": "pt"})
        index.unlink(missing_ok=True)
        return
    where: dict[str, str] = {}
    for i, shard in enumerate(shards, 1):
        name = f"model-{i:05d}-of-{len(shards):05d}.safetensors"
        save_file(shard, str(directory / name), metadata={"format": "pt"})
        where |= dict.fromkeys(shard, name)
    index.write_text(json.dumps({"metadata": {}, "weight_map": where}, indent=1) + "\n")
    (directory / "model.safetensors").unlink(missing_ok=True)
