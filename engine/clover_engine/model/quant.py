"""Group-wise weight-only quantisation: 8 and 4 bits, packed for safetensors.

A weight [..., out, in] is cut along `in` into groups that share a scale. 8 bits are symmetric:
w ≈ q · s with q in -127..127. 4 bits are unsigned with a zero point, w ≈ (q - z) · s, two in a
byte, the even column in the low half; symmetric ones have z = 8 throughout and store no zeros.

In a checkpoint `NAME.weight` becomes `NAME.qweight`, `NAME.scales` and, with zero points,
`NAME.zeros` (an expert stack `NAME` has no `.weight` to replace), and config.json says how::

    "quantization": {"bits": 4, "group_size": 128, "symmetric": false, "embeddings": true}
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from clover_engine.errors import CheckpointError

PARTS = ("qweight", "scales", "zeros")
_TINY = 1e-30
"""Smallest scale: groups of zeros have it, and nothing is divided by zero."""
_PROJECTION = re.compile(
    r"\.(?:[qkvo]_proj|gate_proj|up_proj|down_proj|in_proj_qkv|in_proj_z|out_proj)\.weight$"
    r"|\.experts\.(?:gate_up_proj|down_proj)$"
)
_EMBEDDING = re.compile(r"^(?:model\.embed_tokens|lm_head)\.weight$")


@dataclass(frozen=True, slots=True)
class Quantization:
    """How a checkpoint's matrices are quantised. Raises CheckpointError for what we cannot do."""

    bits: int = 8
    group_size: int = 0
    """Columns that share a scale; 0 = the whole row."""
    symmetric: bool = True
    embeddings: bool = True
    """The token embedding and the head too, always in 8 bits a row."""

    def __post_init__(self) -> None:
        plain = isinstance(self.bits, int) and isinstance(self.group_size, int)
        if not plain or self.bits not in (4, 8):
            raise CheckpointError(f"{self.bits!r} bits are not supported; use 4 or 8")
        if self.group_size < 0 or self.group_size % 2:
            raise CheckpointError(f"group size {self.group_size}; use an even one, or 0 for rows")
        if self.bits == 8 and not self.symmetric:
            raise CheckpointError("zero points are for 4 bits; use symmetric 8 bits")

    @classmethod
    def load(cls, directory: Path) -> Quantization | None:
        """What the checkpoint's readable config.json says; None for a plain checkpoint."""
        try:
            data = json.loads((directory / "config.json").read_text(encoding="utf-8"))
            found = data.get("quantization")
            return None if found is None else cls(**found)
        except (ValueError, TypeError, AttributeError, OSError) as error:
            raise CheckpointError(
                f"{directory / 'config.json'}: quantization cannot be read ({error}); "
                "use a checkpoint made by clover_engine.checkpoint.quantize"
            ) from error

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def of(self, name: str) -> Quantization | None:
        """How the tensor `name` is quantised; None if it stays as it is."""
        if _EMBEDDING.search(name):
            return EMBEDDING if self.embeddings else None
        return self if _PROJECTION.search(name) else None


EMBEDDING = Quantization(8)
"""Embeddings are read row by row and decide every token: one scale a row, 8 bits."""


@dataclass(frozen=True, slots=True)
class Quantized:
    """A quantised weight of shape [..., out, `columns`].

    `qweight` is int8 [..., out, groups·size] or uint8 [..., out, groups·size/2], `scales`
    [..., out, groups] float32 (8 bits) or bfloat16 (4 bits), `zeros` uint8 like `scales`.
    """

    bits: int
    columns: int
    qweight: Tensor
    scales: Tensor
    zeros: Tensor | None = None

    @property
    def shape(self) -> torch.Size:
        """Of the weight that this stands for."""
        return torch.Size((*self.qweight.shape[:-1], self.columns))

    @property
    def group_size(self) -> int:
        return self.qweight.shape[-1] * (1 if self.bits == 8 else 2) // self.scales.shape[-1]

    @property
    def nbytes(self) -> int:
        return sum(t.nbytes for t in (self.qweight, self.scales, self.zeros) if t is not None)

    def __getitem__(self, index: int) -> Quantized:
        """One matrix of a stack."""
        zeros = None if self.zeros is None else self.zeros[index]
        return Quantized(self.bits, self.columns, self.qweight[index], self.scales[index], zeros)

    def to(self, device: torch.device | str) -> Quantized:
        """A copy on `device`."""
        zeros = None if self.zeros is None else self.zeros.to(device, copy=True)
        parts = (self.qweight.to(device, copy=True), self.scales.to(device, copy=True), zeros)
        return Quantized(self.bits, self.columns, *parts)

    def codes(self) -> Tensor:
        """Integers [..., out, groups·size]: int8, or uint8 in 0..15."""
        if self.bits == 8:
            return self.qweight
        pairs = torch.stack([self.qweight & 15, self.qweight >> 4], dim=-1)
        return pairs.flatten(-2)

    def dequantize(self, dtype: torch.dtype = torch.float32) -> Tensor:
        """The weight [..., out, columns]."""
        codes = self.codes().to(torch.float32)
        codes = codes.view(*codes.shape[:-1], -1, self.group_size)
        if self.bits == 4:
            codes -= 8.0 if self.zeros is None else self.zeros[..., None]
        codes *= self.scales[..., None]
        return codes.flatten(-2)[..., : self.columns].to(dtype)

    def tensors(self, name: str) -> dict[str, Tensor]:
        """What a checkpoint holds of the weight `name`."""
        parts = (self.qweight, self.scales, self.zeros)
        stem = name.removesuffix(".weight")
        return {f"{stem}.{p}": t for p, t in zip(PARTS, parts, strict=True) if t is not None}


def quantize(weight: Tensor, how: Quantization) -> Quantized:
    """Quantises [..., out, in]. No weight moves by more than half its group's scale (one scale
    where zero points are used). Raises ValueError for NaN and infinity."""
    if weight.ndim > 2:  # a matrix at a time in float32
        return _stack([quantize(matrix, how) for matrix in weight])
    if not torch.isfinite(weight).all():
        raise ValueError("a weight is not finite")
    columns = weight.shape[-1]
    size = how.group_size or columns + columns % 2 * (how.bits == 4)
    padded = F.pad(weight.to(torch.float32), (0, -columns % size))
    groups = padded.view(*weight.shape[:-1], -1, size)  # [..., out, groups, size]
    if how.bits == 8:
        scales = (groups.abs().amax(-1) / 127).clamp_min(_TINY)
        codes = (groups / scales[..., None]).round_().clamp_(-127, 127)
        return Quantized(8, columns, codes.to(torch.int8).flatten(-2), scales)
    zeros: Tensor | None = None
    if how.symmetric:
        scales = _upwards(groups.abs().amax(-1) / 7)
        offset = torch.full_like(groups[..., :1], 8.0)
    else:
        low, high = groups.amin(-1).clamp_max(0), groups.amax(-1).clamp_min(0)
        scales = _upwards(high / 15 - low / 15)
        zeros = (-low / scales.float()).round_().to(torch.uint8)
        offset = zeros[..., None].to(torch.float32)
    codes = ((groups / scales.float()[..., None]).round_() + offset).clamp_(0, 15)
    flat = codes.to(torch.uint8).flatten(-2)
    return Quantized(4, columns, flat[..., ::2] | flat[..., 1::2] << 4, scales, zeros)


def _stack(matrices: list[Quantized]) -> Quantized:
    zeros = [m.zeros for m in matrices if m.zeros is not None]
    return Quantized(
        matrices[0].bits,
        matrices[0].columns,
        torch.stack([m.qweight for m in matrices]),
        torch.stack([m.scales for m in matrices]),
        torch.stack(zeros) if zeros else None,
    )


def _upwards(scales: Tensor) -> Tensor:
    """bfloat16, never smaller than given, so that the greatest weight of a group still fits."""
    scales = scales.clamp_min(_TINY)
    near = scales.to(torch.bfloat16)
    return torch.where(near < scales, (scales * (1 + 2**-7)).to(torch.bfloat16), near)


def merged(
    tensors: Iterable[tuple[str, Tensor]], shapes: Mapping[str, torch.Size], how: Quantization
) -> Iterator[tuple[str, Tensor | Quantized]]:
    """A quantised checkpoint's tensors, each weight's parts put together again.

    `shapes` are the model's. Raises CheckpointError where parts are missing or do not fit.
    """
    waiting: dict[str, dict[str, Tensor]] = {}
    for raw, value in tensors:
        stem, _, part = raw.rpartition(".")
        name = f"{stem}.weight" if f"{stem}.weight" in shapes else stem
        own = how.of(name) if part in PARTS and name in shapes else None
        if own is None:
            yield raw, value
            continue
        parts = waiting.setdefault(name, {})
        parts[part] = value
        if len(parts) == (2 if own.symmetric else 3):
            yield name, _assemble(name, waiting.pop(name), own, shapes[name])
    for name, parts in waiting.items():
        lacking = next(part for part in PARTS if part not in parts)
        stem = name.removesuffix(".weight")
        raise CheckpointError(f"tensor '{stem}.{lacking}' is missing; fetch the checkpoint again")


def _assemble(
    name: str, parts: Mapping[str, Tensor], how: Quantization, shape: torch.Size
) -> Quantized:
    columns = shape[-1]
    size = how.group_size or columns + columns % 2 * (how.bits == 4)
    groups = -(-columns // size)
    width = groups * size // (1 if how.bits == 8 else 2)
    types = (torch.int8, torch.float32) if how.bits == 8 else (torch.uint8, torch.bfloat16)
    wanted = {"qweight": (types[0], width), "scales": (types[1], groups)}
    if not how.symmetric:
        wanted["zeros"] = (torch.uint8, groups)
    for part, (dtype, last) in wanted.items():
        found = parts[part]
        if found.dtype != dtype or found.shape != (*shape[:-1], last):
            raise CheckpointError(
                f"'{part}' of tensor {name!r} is {found.dtype} {list(found.shape)}, config.json "
                f"says {dtype} {[*shape[:-1], last]}; the checkpoint and its config do not belong "
                "together, fetch both again"
            )
    return Quantized(how.bits, columns, parts["qweight"], parts["scales"], parts.get("zeros"))
