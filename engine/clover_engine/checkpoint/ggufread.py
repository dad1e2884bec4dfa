"""The container format GGUF, read: metadata, the directory of tensors, their bytes (memory-mapped).

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, versions 2 and 3, little-endian.
The package `gguf` reads it as well, but takes half a minute for a vocabulary of 150,000 tokens.
Torch-free.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

_SCALARS = {
    0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q",
    12: "<d",
}  # fmt: skip
_STRING, _ARRAY = 8, 9
_MOST_DIMENSIONS = 4
BLOCKS: Mapping[int, tuple[str, int, int]] = {
    0: ("F32", 1, 4), 1: ("F16", 1, 2), 2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22), 7: ("Q5_1", 32, 24), 8: ("Q8_0", 32, 34), 10: ("Q2_K", 256, 84),
    11: ("Q3_K", 256, 110), 12: ("Q4_K", 256, 144), 13: ("Q5_K", 256, 176), 14: ("Q6_K", 256, 210),
    30: ("BF16", 1, 2),
}  # fmt: skip
"""Name, values and bytes of a block, by the format's number of a tensor's type."""


@dataclass(frozen=True, slots=True)
class RawTensor:
    """A tensor's bytes in the mapped file: [rows, bytes of a row]; 1 row for a vector."""

    name: str
    kind: str
    """A name in `BLOCKS`."""
    number: int
    """The format's number of that."""
    shape: tuple[int, ...]
    """As torch has it, outermost first."""
    data: NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class GGUFContent:
    """What a file holds. The tensors' arrays keep the mapping alive."""

    fields: Mapping[str, Any]
    tensors: Mapping[str, RawTensor]
    mapping: mmap.mmap

    def release(self) -> None:
        """Lets the system take back the pages that were read; they come again when needed."""
        if hasattr(mmap, "MADV_DONTNEED"):
            self.mapping.madvise(mmap.MADV_DONTNEED)


class _Cursor:
    def __init__(self, data: mmap.mmap) -> None:
        self.data, self.at = data, 0

    def scalar(self, form: str) -> Any:
        (value,) = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return value

    def string(self) -> str:
        length = self.scalar("<Q")
        begin, self.at = self.at, self.at + length
        if self.at > len(self.data):
            raise ValueError("it ends inside a string")
        return self.data[begin : self.at].decode("utf-8")

    def value(self, kind: int) -> Any:
        if kind in _SCALARS:
            return self.scalar(_SCALARS[kind])
        if kind == _STRING:
            return self.string()
        if kind != _ARRAY:
            raise ValueError(f"unknown type {kind} of a value")
        inner, count = self.scalar("<I"), self.scalar("<Q")
        if count > len(self.data):
            raise ValueError("it ends inside a list")
        if inner in _SCALARS:
            form = f"<{count}{_SCALARS[inner][1]}"
            found = struct.unpack_from(form, self.data, self.at)
            self.at += struct.calcsize(form)
            return list(found)
        if inner == _STRING:
            return self.strings(count)
        return [self.value(inner) for _ in range(count)]

    def strings(self, count: int) -> list[str]:
        """`string` so many times; a vocabulary and its merges are 300,000 of them."""
        data, at, found = self.data, self.at, []
        for _ in range(count):
            begin = at + 8
            at = begin + int.from_bytes(data[at:begin], "little")
            found.append(data[begin:at].decode("utf-8"))
        if at > len(data):
            raise ValueError("it ends inside a string")
        self.at = at
        return found


def read_gguf(path: Path) -> GGUFContent:
    """Maps the file. Raises OSError, or ValueError for what is no whole GGUF file."""
    with path.open("rb") as file:
        try:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError as error:
            raise ValueError("it is empty") from error
    try:
        return _read(data)
    except (struct.error, UnicodeDecodeError, KeyError, OverflowError, MemoryError) as error:
        raise ValueError(f"it is damaged: {error}") from error


def _read(data: mmap.mmap) -> GGUFContent:
    cursor = _Cursor(data)
    if data[:4] != b"GGUF":
        raise ValueError("it does not begin with GGUF")
    cursor.at = 4
    version = cursor.scalar("<I")
    if version not in (2, 3):
        raise ValueError(f"it has version {version} of the format, known are 2 and 3")
    tensor_count, field_count = cursor.scalar("<Q"), cursor.scalar("<Q")
    fields = {}
    for _ in range(field_count):
        name = cursor.string()
        fields[name] = cursor.value(cursor.scalar("<I"))
    directory = []
    for _ in range(tensor_count):
        name, dimensions = cursor.string(), cursor.scalar("<I")
        if dimensions > _MOST_DIMENSIONS:
            raise ValueError(f"tensor {name!r} has {dimensions} dimensions")
        shape = tuple(cursor.scalar("<Q") for _ in range(dimensions))[::-1]
        directory.append((name, shape, cursor.scalar("<I"), cursor.scalar("<Q")))
    align = int(fields.get("general.alignment", 32))
    begin = -(-cursor.at // align) * align
    tensors = {}
    for name, shape, number, offset in directory:
        tensors[name] = _tensor(data, name, shape, number, begin + offset)
    return GGUFContent(fields, tensors, data)


def _tensor(data: mmap.mmap, name: str, shape: tuple[int, ...], number: int, at: int) -> RawTensor:
    if number not in BLOCKS:
        raise ValueError(f"tensor {name!r} has type {number}, which is not known")
    kind, values, size = BLOCKS[number]
    columns = shape[-1] if shape else 1
    rows = int(np.prod(shape[:-1], dtype=np.int64)) if len(shape) > 1 else 1
    if columns % values:
        raise ValueError(f"tensor {name!r} has rows of {columns}, no multiple of {values}")
    width = columns // values * size
    if at + rows * width > len(data):
        raise ValueError(f"it ends inside tensor {name!r}")
    view = np.frombuffer(data, np.uint8, rows * width, at).reshape(rows, width)
    return RawTensor(name, kind, number, shape, view)
