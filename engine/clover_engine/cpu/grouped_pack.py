"""GGUF's quantised matrices in the layout of `grouped_kernels.py`, without loss.

The kinds are named by the bits of their codes: 4 (Q4_0, Q4_1, Q4_K: a scale and a minimum for 32
columns), 5 (Q5_0), 6 (Q6_K: a scale for 16 columns), 8 (Q8_0). A matrix is packed a panel of eight
rows at a time, straight out of the mapped file.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from clover_engine.checkpoint.blocks import GROUPED, scales_of
from clover_engine.checkpoint.ggufread import RawTensor
from clover_engine.cpu.grouped_kernels import CODE_BYTES, GROUP, PANEL, SCALES
from clover_engine.cpu.kernels import Array, compiled

BITS: Mapping[str, int] = {"Q4_0": 4, "Q4_1": 4, "Q4_K": 4, "Q5_0": 5, "Q6_K": 6, "Q8_0": 8}
_NUMBER = {kind: number for number, kind in enumerate(GROUPED)}
_Q4_0, _Q4_1, _Q4_K, _Q5_0, _Q6_K, _Q8_0 = range(6)
_SLAB = 2048
"""Rows whose scales are computed at once."""


@dataclass(frozen=True, slots=True)
class Grouped:
    """A packed matrix [rows, columns]; `rows` may be less than its panels hold."""

    kind: int
    rows: int
    columns: int
    codes: Array
    """uint8 [bytes], panel after panel."""
    scales: Array
    """float32 [numbers], likewise."""

    @property
    def panels(self) -> int:
        return -(-self.rows // PANEL)

    @property
    def nbytes(self) -> int:
        return int(self.codes.nbytes + self.scales.nbytes)


def can_pack(tensor: RawTensor) -> bool:
    """Whether this is a matrix of a kind that has a layout here."""
    return tensor.kind in BITS and len(tensor.shape) == 2


def pack_grouped(tensor: RawTensor, threads: int = 1) -> Grouped:
    """Raises ValueError for a tensor that `can_pack` refuses."""
    if not can_pack(tensor):
        raise ValueError(f"{tensor.name} is of kind {tensor.kind}, which cannot be packed")
    rows, columns = tensor.shape
    kind, panels, groups = BITS[tensor.kind], -(-rows // PANEL), columns // GROUP
    codes = np.zeros(panels * groups * CODE_BYTES[kind], np.uint8)
    scales = np.zeros((panels, groups, SCALES[kind] // PANEL, PANEL), np.float32)
    number = _NUMBER[tensor.kind]

    def slab(first: int) -> None:
        last = min(rows, first + _SLAB)
        _pack(number, tensor.data, first, last, columns, codes)
        _place_scales(tensor, first, last, scales)

    starts = range(0, rows, _SLAB)
    if threads > 1 and len(starts) > 1:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(slab, starts))
    else:
        for first in starts:
            slab(first)
    return Grouped(kind, rows, columns, codes, scales.reshape(-1))


def _place_scales(tensor: RawTensor, first: int, last: int, out: Array) -> None:
    """Writes those of rows first..last-1 into out [panels, groups, ·, PANEL]."""
    found, minima = scales_of(tensor.kind, np.ascontiguousarray(tensor.data[first:last]))
    if tensor.kind == "Q4_0":
        minima = 8 * found
    groups = out.shape[1]
    both = found.reshape(last - first, groups, -1)  # two of a group for Q6_K
    if minima is not None:
        both = np.stack([found, -minima], axis=-1)
    padded = np.zeros((-(last - first) % PANEL, *both.shape[1:]), np.float32)
    panels = np.concatenate([both, padded]).reshape(-1, PANEL, *both.shape[1:])
    out[first // PANEL : first // PANEL + len(panels)] = panels.transpose(0, 2, 3, 1)


@compiled
def _read_row(number: int, row: Array, columns: int, out: Array) -> None:
    """Unsigned codes [columns] of a row's bytes."""
    if number == _Q8_0:
        for g in range(columns // 32):
            for i in range(32):
                out[32 * g + i] = row[34 * g + 2 + i] ^ 128
    elif number == _Q4_K:
        for block in range(columns // 256):
            at = 144 * block + 16
            for pair in range(4):
                for i in range(32):
                    both = row[at + 32 * pair + i]
                    out[256 * block + 64 * pair + i] = both & 15
                    out[256 * block + 64 * pair + 32 + i] = both >> 4
    elif number == _Q6_K:
        for block in range(columns // 256):
            for half in range(2):
                low, high = 210 * block + 64 * half, 210 * block + 128 + 32 * half
                to = 256 * block + 128 * half
                for i in range(32):
                    above = row[high + i]
                    a, b = row[low + i], row[low + 32 + i]
                    out[to + i] = (a & 15) | ((above & 3) << 4)
                    out[to + 32 + i] = (b & 15) | (((above >> 2) & 3) << 4)
                    out[to + 64 + i] = (a >> 4) | (((above >> 4) & 3) << 4)
                    out[to + 96 + i] = (b >> 4) | ((above >> 6) << 4)
    else:
        head = 6 if number == _Q5_0 else 4 if number == _Q4_1 else 2
        for g in range(columns // 32):
            at = (head + 16) * g
            for i in range(16):
                both = row[at + head + i]
                low, high = both & 15, both >> 4
                if number == _Q5_0:
                    low |= ((row[at + 2 + i // 8] >> (i % 8)) & 1) << 4
                    high |= ((row[at + 4 + i // 8] >> (i % 8)) & 1) << 4
                out[32 * g + i] = low
                out[32 * g + 16 + i] = high


@compiled
def _pack(number: int, data: Array, first: int, last: int, columns: int, out: Array) -> None:
    """Codes of rows first..last-1 of data [rows, bytes]; `first` begins a panel."""
    bits = 8 if number == _Q8_0 else 6 if number == _Q6_K else 5 if number == _Q5_0 else 4
    size = 256 if bits == 8 else 192 if bits == 6 else 160 if bits == 5 else 128
    groups = columns // 32
    row = np.empty(columns, np.uint8)
    for r in range(first, last):
        _read_row(number, data[r], columns, row)
        base, lane = (r // 8) * groups * size, 4 * (r % 8)
        for g in range(groups):
            at = base + g * size + lane
            for j in range(8):
                for i in range(4):
                    code = row[32 * g + 4 * j + i]
                    if bits == 8:
                        out[at + 32 * j + i] = code
                        continue
                    out[at + 32 * (j % 4) + i] |= (code & 15) << (4 * (j // 4))
                    if bits == 5:
                        out[at + 128 + i] |= (code >> 4) << j
                    elif bits == 6:
                        out[at + 128 + 32 * (j // 4) + i] |= (code >> 4) << (2 * (j % 4))
