"""Tensor names of all supported Hugging Face families, and ours."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

import torch
from torch import Tensor

from clover_engine.errors import CheckpointError
from clover_engine.model.config import CloverConfig

_IGNORED = re.compile(r"^(model\.visual\.|visual\.|mtp\.|model\.mtp\.)|rotary_emb\.inv_freq$")
_NEW = re.compile(r"\.history\.|\.conv1d\.right$|\.mask_embedding$|^adapter\.")
_EXPERT = re.compile(r"^(.*\.mlp\.experts)\.(\d+)\.(gate|up|down)_proj\.weight$")
_LAYER = re.compile(r"^model\.layers\.\d+\.")


def is_new(name: str) -> bool:
    """Whether a base checkpoint cannot have this parameter."""
    return _NEW.search(name) is not None


def groups(raw_names: Iterable[str]) -> list[list[str]]:
    """The names of a checkpoint by layer, everything else one by one, without what we ignore.

    `rename` wants a whole group at once.
    """
    found: dict[str, list[str]] = {}
    for raw in raw_names:
        name = _plain(raw)
        if not _IGNORED.search(name):
            layer = _LAYER.match(name)
            found.setdefault(layer[0] if layer else name, []).append(raw)
    return list(found.values())


def rename(tensors: Mapping[str, Tensor], config: CloverConfig) -> Iterator[tuple[str, Tensor]]:
    """One group of a checkpoint under our names. Raises `CheckpointError`."""
    experts: dict[str, dict[str, dict[int, Tensor]]] = {}
    try:
        for raw, value in tensors.items():
            name = _plain(raw)
            match = _EXPERT.match(name)
            if match:
                experts.setdefault(match[1], {}).setdefault(match[3], {})[int(match[2])] = value
            elif name.endswith(("in_proj_qkvz.weight", "in_proj_ba.weight")):
                yield from _unfuse(name, value, config)
            else:
                yield name, value
        for prefix, kinds in experts.items():
            yield from _stack(prefix, kinds)
    except (RuntimeError, ArithmeticError) as error:
        raise CheckpointError(
            f"tensors beside {next(iter(tensors))!r} do not fit together or not to config.json; "
            "fetch the checkpoint again"
        ) from error


def _plain(raw: str) -> str:
    return raw.replace("model.language_model.", "model.").replace("language_model.", "")


def _stack(prefix: str, kinds: dict[str, dict[int, Tensor]]) -> Iterator[tuple[str, Tensor]]:
    """Experts one by one → fused."""
    for kind in ("gate", "up", "down"):
        found = sorted(kinds.get(kind, {}))
        if not found or found != list(range(len(found))):
            raise CheckpointError(
                f"{prefix} lacks a {kind}_proj of its experts; fetch the checkpoint again"
            )
    stacked = {kind: torch.stack([t[i] for i in sorted(t)]) for kind, t in kinds.items()}
    yield f"{prefix}.gate_up_proj", torch.cat([stacked["gate"], stacked["up"]], dim=1)
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
