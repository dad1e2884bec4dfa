"""GGUF's quantised blocks as numbers: scales, minima, codes (numpy; torch-free).

Layouts: ggml-quants.c of llama.cpp. A weight is scale · (code - zero) or scale · code - minimum;
scales and minima are products of few bits, which float32 holds exactly.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from clover_engine.checkpoint.ggufread import RawTensor

Array = NDArray[Any]
GROUPED = ("Q4_0", "Q4_1", "Q4_K", "Q5_0", "Q6_K", "Q8_0")
"""Kinds that `cpu/grouped_pack.py` can pack."""
PLAIN = ("F32", "F16", "BF16")
_BLOCK = 256


def halves(data: Array) -> Array:
    """float32 of float16's bytes [..., 2·n]."""
    found: Array = np.ascontiguousarray(data).view(np.float16).astype(np.float32)
    return found


def six_bit_scales(packed: Array) -> tuple[Array, Array]:
    """Scales and minima [..., 8] (uint8) of Q4_K's 12 bytes [..., 12]."""
    low, middle, high = packed[..., :4], packed[..., 4:8], packed[..., 8:]
    scales = np.concatenate([low & 63, (high & 15) | (low >> 6) << 4], axis=-1)
    minima = np.concatenate([middle & 63, (high >> 4) | (middle >> 6) << 4], axis=-1)
    return scales, minima


def scales_of(kind: str, data: Array) -> tuple[Array, Array | None]:
    """Scales, and minima where the kind has them, float32 [rows, groups] of rows' bytes.

    A group has 32 columns; Q6_K's have 16.
    """
    rows = data.shape[0]
    if kind in ("Q4_0", "Q5_0", "Q8_0"):
        size = {"Q4_0": 18, "Q5_0": 22, "Q8_0": 34}[kind]
        return halves(data.reshape(rows, -1, size)[..., :2])[..., 0], None
    if kind == "Q4_1":
        both = halves(data.reshape(rows, -1, 20)[..., :4])
        return both[..., 0], -both[..., 1]
    if kind == "Q6_K":
        blocks = data.reshape(rows, -1, 210)
        fine = blocks[..., 192:208].view(np.int8).astype(np.float32)
        return (fine * halves(blocks[..., 208:])).reshape(rows, -1), None
    blocks = data.reshape(rows, -1, 144)
    d = halves(blocks[..., :4])
    scales, minima = six_bit_scales(blocks[..., 4:16])
    return (
        (scales.astype(np.float32) * d[..., :1]).reshape(rows, -1),
        (minima.astype(np.float32) * d[..., 1:]).reshape(rows, -1),
    )


def _codes(kind: str, data: Array) -> Array:
    """Signed codes, int8 [rows, columns], of which `scales_of` gives the scales."""
    rows = data.shape[0]
    if kind == "Q8_0":
        eight: Array = data.reshape(rows, -1, 34)[..., 2:].view(np.int8)
        return eight.reshape(rows, -1)
    if kind == "Q6_K":
        blocks = data.reshape(rows, -1, 210)
        low = blocks[..., :128].reshape(rows, -1, 2, 2, 32)
        high = blocks[..., 128:192].reshape(rows, -1, 2, 1, 32)
        parts = [low & 15, low >> 4]  # quarters 0 and 1, then 2 and 3, of either half
        four = np.concatenate(parts, axis=3)
        shifts = np.array([0, 2, 4, 6], np.uint8)[:, None]
        codes = four | ((high >> shifts) & 3) << 4
        six: Array = codes.reshape(rows, -1).astype(np.int8) - np.int8(32)
        return six
    if kind == "Q4_K":
        pairs = data.reshape(rows, -1, 144)[..., 16:].reshape(rows, -1, 4, 1, 32)
        both = np.concatenate([pairs & 15, pairs >> 4], axis=3)
        return both.reshape(rows, -1).astype(np.int8)
    at = {"Q4_0": 2, "Q4_1": 4, "Q5_0": 6}[kind]
    blocks = data.reshape(rows, -1, at + 16)
    codes = np.concatenate([blocks[..., at:] & 15, blocks[..., at:] >> 4], axis=-1)
    if kind == "Q5_0":
        bits = np.unpackbits(blocks[..., 2:6], axis=-1, bitorder="little")
        codes = codes | bits << 4
    zero = {"Q4_0": 8, "Q4_1": 0, "Q5_0": 16}[kind]
    rest: Array = codes.reshape(rows, -1).astype(np.int8) - np.int8(zero)
    return rest


def values_of(tensor: RawTensor, rows: Array | None = None) -> Array:
    """float32 [rows, columns] of a tensor, or of the rows that are asked for.

    Raises ValueError for a kind that is neither in `GROUPED` nor in `PLAIN`.
    """
    data = tensor.data if rows is None else tensor.data[rows]
    kind = tensor.kind
    if kind == "F32":
        return data.copy().view(np.float32)
    if kind == "F16":
        return halves(data)
    if kind == "BF16":
        wide = np.ascontiguousarray(data).view(np.uint16).astype(np.uint32) << 16
        return wide.view(np.float32)
    if kind not in GROUPED:
        raise ValueError(f"quantisation {kind} is not supported")
    codes = _codes(kind, np.ascontiguousarray(data)).astype(np.float32)
    scales, minima = scales_of(kind, np.ascontiguousarray(data))
    groups = codes.reshape(*scales.shape, -1)
    groups *= scales[..., None]
    if minima is not None:
        groups -= minima[..., None]
    return groups.reshape(codes.shape)
