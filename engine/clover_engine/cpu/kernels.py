"""Matrix products for a few rows, compiled on the user's machine by numba (LLVM; no C compiler).

A suggestion is made of passes of 1 to 32 rows. BLAS repacks a matrix of weights for every product,
which costs more than such a product itself. Here the weights are packed once, as panels of
`PANEL` columns, and a product keeps up to `TILE` rows of a panel in vector registers: written as
LLVM vectors, since no loop vectoriser finds that shape. Weights that bfloat16 holds exactly are
kept so (half the memory traffic) and widened in registers: the arithmetic is float32 in any case.

`compiled` is the decorator of all such functions; its cache on disk is keyed by the sources.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba
import numpy as np
from llvmlite import binding, ir
from numba.core import cgutils, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from clover_engine.folders import cache_folder

Array = NDArray[Any]
Function = TypeVar("Function", bound=Callable[..., Any])

_SOURCES = (
    "kernels.py", "fused_parts.py", "fused_layers.py", "grouped_kernels.py", "grouped_pack.py",
    "grouped_layers.py",
)  # fmt: skip
_FAST_MATH = {"reassoc", "contract", "arcp", "nsz"}
"""Sums may be reordered and multiply-adds joined; infinities and NaN keep their meaning."""


def code_folder() -> Path:
    """Where compiled code of these very sources is kept."""
    digest = hashlib.sha256()
    for name in _SOURCES:
        digest.update((Path(__file__).parent / name).read_bytes())
    return cache_folder() / f"kernels-{digest.hexdigest()[:16]}"


def compiled(function: Function) -> Function:
    """Compiles `function` on its first call with given types, or takes it from the cache."""
    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = before or str(code_folder())
    try:
        done: Function = numba.njit(
            function, fastmath=_FAST_MATH, nogil=True, cache=True, error_model="numpy"
        )
    finally:
        numba.config.CACHE_DIR = before
    return done


def _vector_shape() -> tuple[int, int, int]:
    """Floats in a vector, vectors in a panel's row, rows in a tile: what the registers hold."""
    features = numba.config.CPU_FEATURES
    if features is None:
        found = {name for name, has in binding.get_host_cpu_features().items() if has}
    else:
        found = {f[1:] for f in str(features).split(",") if f.startswith("+")}
    if "avx512f" in found:
        return 16, 4, 6  # 32 registers: 24 sums, 4 weights
    if "avx" in found:
        return 8, 2, 6  # 16 registers: 12 sums, 2 weights
    return 4, 4, 4 if "neon" in found else 2


LANES, VECTORS, TILE = _vector_shape()
PANEL = LANES * VECTORS


def fits_bfloat16(weight: Array) -> bool:
    """Whether every value of a float32 array is one of bfloat16's."""
    return not (np.ascontiguousarray(weight).view(np.uint32) & 0xFFFF).any()


def pack(weight: Array, narrow: bool) -> Array:
    """[out, in] float32 → [panels, in, PANEL]; as bfloat16's bits (uint16) if `narrow`."""
    out, inner = weight.shape
    padded = np.zeros((-(-out // PANEL) * PANEL, inner), np.float32)
    padded[:out] = weight
    panels = np.ascontiguousarray(padded.reshape(-1, PANEL, inner).transpose(0, 2, 1))
    return (panels.view(np.uint32) >> 16).astype(np.uint16) if narrow else panels


def _intrinsic(function: Function) -> Any:
    """numba's decorator, with a type that strict checks accept."""
    return intrinsic(function)


def _tile(rows: int) -> Any:
    """out[r, :PANEL] += Σ_k x[r, k] · w[k, :PANEL] for `rows` rows; offsets and strides in items.

    x, w and out are C-contiguous arrays of any rank; w holds float32, or bfloat16 as uint16.
    """

    @_intrinsic
    def tile(
        typing: Any, x: Any, x_at: Any, x_stride: Any, w: Any, w_at: Any, w_stride: Any,
        inner: Any, out: Any, out_at: Any, out_stride: Any,
    ) -> Any:  # fmt: skip
        size = types.intp
        signature = types.void(x, size, size, w, size, size, size, out, size, size)
        narrow = w.dtype == types.uint16

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            x, x_at, x_stride, w, w_at, w_stride, inner, out, out_at, out_stride = args
            data = {
                name: context.make_array(kind)(context, builder, value).data
                for name, kind, value in zip(
                    "xwo", (signature.args[i] for i in (0, 3, 7)), (x, w, out), strict=True
                )
            }
            index = ir.IntType(64)
            vector = ir.VectorType(ir.FloatType(), LANES)
            fma = cgutils.get_or_insert_function(
                builder.module, ir.FunctionType(vector, [vector] * 3), f"llvm.fma.v{LANES}f32"
            )

            def row_of(base: Any, at: Any, stride: Any, row: int) -> Any:
                offset = builder.add(at, builder.mul(stride, ir.Constant(index, row)))
                return builder.gep(base, [offset])

            def vectors_at(row: Any) -> list[Any]:
                places = [ir.Constant(index, v * LANES) for v in range(VECTORS)]
                return [builder.bitcast(builder.gep(row, [p]), vector.as_pointer()) for p in places]

            xs = [row_of(data["x"], x_at, x_stride, r) for r in range(rows)]
            outs = [vectors_at(row_of(data["o"], out_at, out_stride, r)) for r in range(rows)]
            before = [[builder.load(p, align=4) for p in row] for row in outs]
            entry = builder.block
            loop, done = builder.append_basic_block("inner"), builder.append_basic_block("done")
            builder.cbranch(builder.icmp_signed(">", inner, ir.Constant(index, 0)), loop, done)
            builder.position_at_end(loop)
            step = builder.phi(index)
            step.add_incoming(ir.Constant(index, 0), entry)
            sums = [[builder.phi(vector) for _ in range(VECTORS)] for _ in range(rows)]
            weights = _weights(
                builder, builder.gep(data["w"], [builder.add(w_at, builder.mul(step, w_stride))]),
                vector, narrow,
            )  # fmt: skip
            after = []
            for r in range(rows):
                value = _splat(builder, builder.load(builder.gep(xs[r], [step])), vector)
                after.append(
                    [builder.call(fma, [value, weights[v], sums[r][v]]) for v in range(VECTORS)]
                )
            following = builder.add(step, ir.Constant(index, 1))
            step.add_incoming(following, loop)
            builder.cbranch(builder.icmp_signed("<", following, inner), loop, done)
            builder.position_at_end(done)
            for r in range(rows):
                for v in range(VECTORS):
                    sums[r][v].add_incoming(before[r][v], entry)
                    sums[r][v].add_incoming(after[r][v], loop)
                    total = builder.phi(vector)
                    total.add_incoming(before[r][v], entry)
                    total.add_incoming(after[r][v], loop)
                    after[r][v] = total
            for r in range(rows):
                for v in range(VECTORS):
                    builder.store(after[r][v], outs[r][v], align=4)
            return context.get_dummy_value()

        return signature, generate

    return tile


def _weights(builder: Any, row: Any, vector: Any, narrow: bool) -> list[Any]:
    """One row of a panel as float32 vectors."""
    places = [builder.gep(row, [ir.Constant(ir.IntType(64), v * LANES)]) for v in range(VECTORS)]
    if not narrow:
        return [builder.load(builder.bitcast(p, vector.as_pointer()), align=4) for p in places]
    halves = ir.VectorType(ir.IntType(16), LANES)
    words = ir.VectorType(ir.IntType(32), LANES)
    shift = ir.Constant(words, [16] * LANES)
    loaded = [builder.load(builder.bitcast(p, halves.as_pointer()), align=2) for p in places]
    return [builder.bitcast(builder.shl(builder.zext(h, words), shift), vector) for h in loaded]


def _splat(builder: Any, value: Any, vector: Any) -> Any:
    nothing = ir.Constant(vector, ir.Undefined)
    one = builder.insert_element(nothing, value, ir.Constant(ir.IntType(32), 0))
    lanes = ir.Constant(ir.VectorType(ir.IntType(32), vector.count), [0] * vector.count)
    return builder.shuffle_vector(one, nothing, lanes)


_tile_1, _tile_2, _tile_3 = _tile(1), _tile(2), _tile(3)
_tile_4, _tile_5, _tile_6 = _tile(4), _tile(5), _tile(6)


@compiled
def panel_product(
    x: Array, x_at: int, x_stride: int, rows: int, w: Array, w_at: int, w_stride: int, inner: int,
    out: Array, out_at: int, out_stride: int,
) -> None:  # fmt: skip
    """out[rows, PANEL] += x[rows, inner] @ w[inner, PANEL], each at its offset and stride."""
    row = 0
    while row < rows:
        left = min(rows - row, TILE)
        a, o = x_at + row * x_stride, out_at + row * out_stride
        if left == 6:
            _tile_6(x, a, x_stride, w, w_at, w_stride, inner, out, o, out_stride)
        elif left == 5:
            _tile_5(x, a, x_stride, w, w_at, w_stride, inner, out, o, out_stride)
        elif left == 4:
            _tile_4(x, a, x_stride, w, w_at, w_stride, inner, out, o, out_stride)
        elif left == 3:
            _tile_3(x, a, x_stride, w, w_at, w_stride, inner, out, o, out_stride)
        elif left == 2:
            _tile_2(x, a, x_stride, w, w_at, w_stride, inner, out, o, out_stride)
        else:
            _tile_1(x, a, x_stride, w, w_at, w_stride, inner, out, o, out_stride)
        row += left


@compiled
def product(x: Array, w: Array, out: Array) -> None:
    """out [rows, panels · PANEL] += x [rows, ≥ in] @ w [panels, in, PANEL]."""
    inner = w.shape[1]
    for p in range(w.shape[0]):
        at = p * inner * PANEL
        panel_product(
            x, 0, x.shape[1], x.shape[0], w, at, PANEL, inner, out, p * PANEL, out.shape[1]
        )


@_intrinsic
def exponential(typing: Any, x: Any) -> Any:
    """e^x in float32 to 2 ulp (Cephes' polynomial), made of operations that loops vectorise."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind, word = ir.FloatType(), ir.IntType(32)

        def call(name: str, *values: Any) -> Any:
            function = ir.FunctionType(kind, [kind] * len(values))
            found = cgutils.get_or_insert_function(builder.module, function, f"llvm.{name}.f32")
            return builder.call(found, values)

        def number(value: float) -> Any:
            return ir.Constant(kind, float(np.float32(value)))

        x = call("minnum", call("maxnum", args[0], number(-87.3)), number(88.3))
        power = call("floor", call("fma", x, number(1.44269504), number(0.5)))
        x = call("fma", power, number(-0.693359375), x)
        x = call("fma", power, number(2.12194440e-4), x)
        y = number(1.9875691500e-4)
        for c in (
            1.3981999507e-3,
            8.3334519073e-3,
            4.1665795894e-2,
            1.6666665459e-1,
            0.50000001201,
        ):
            y = call("fma", y, x, number(c))
        y = builder.fadd(call("fma", y, builder.fmul(x, x), x), number(1.0))
        exponent = builder.add(builder.fptosi(power, word), ir.Constant(word, 127))
        scale = builder.bitcast(builder.shl(exponent, ir.Constant(word, 23)), kind)
        return builder.fmul(y, scale)

    return types.float32(types.float32), generate
