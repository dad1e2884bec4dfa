"""Products of int8 activations with weights of 4 to 8 bits in small groups (compiled by numba).

Weights lie in panels of `PANEL` rows of the matrix. A panel's group of 32 columns is eight *quads*;
quad j is a vector of 32 bytes, four consecutive columns (4j to 4j + 3) of each of the eight rows.
Codes are unsigned and at most 8 bits: two quads' low 4 bits share a byte (quads j and j + 4), what
is above 4 bits follows in vectors of its own. A quad times four broadcast activations is one
multiply of bytes and one addition, in 16 bits; sums are widened before they can overflow. A group's
sum becomes float32 once, so there is no other rounding than that of the activations.

`grouped_pack.py` writes this layout and documents the kinds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import binding, ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from clover_engine.cpu.kernels import Array, compiled

PANEL = 8
GROUP = 32
HALF = 16
"""Columns that share a scale in kind 6."""
KINDS = (4, 5, 6, 8)
CODE_BYTES = {4: 128, 5: 160, 6: 192, 8: 256}
"""Of a panel's group."""
SCALES = {4: 16, 5: 8, 6: 16, 8: 8}
"""float32 numbers of a panel's group: 4 has scales and then negated minima, 6 the scales of either
half."""
ZERO = {4: 0, 5: 16, 6: 32, 8: 128}
"""The code that stands for 0; of kind 4 the minimum says that."""
MOST_ROWS = 4
"""Rows of a tile of activations."""
TILE_BYTES = 192
"""Of a tile's group: codes [8 quads][4 rows][4 columns], then float32 [4 rows] each: steps; 16
times the sums of codes, in steps; the same of the first half of the columns, and of the second."""
STEPS_AT, SUMS_AT, HALVES_AT = 128, 144, 160

_BYTES = ir.VectorType(ir.IntType(8), 32)
_SHORTS = ir.VectorType(ir.IntType(16), 16)
_INTS = ir.VectorType(ir.IntType(32), 8)
_FLOATS = ir.VectorType(ir.FloatType(), 8)
_INT, _INDEX, _FLOAT = ir.IntType(32), ir.IntType(64), ir.FloatType()


def _has_avx2() -> bool:
    import numba

    features = numba.config.CPU_FEATURES
    if features is None:
        return bool(binding.get_host_cpu_features().get("avx2", False))
    return "+avx2" in str(features).split(",")


_AVX2 = _has_avx2()


class _Code:
    """Writes LLVM's instructions of one tile."""

    def __init__(self, builder: Any) -> None:
        self.b = builder

    def call(self, name: str, result: Any, *values: Any) -> Any:
        kind = ir.FunctionType(result, [value.type for value in values])
        return self.b.call(cgutils.get_or_insert_function(self.b.module, kind, name), values)

    def vector(self, base: Any, at: int, kind: Any) -> Any:
        place = self.b.gep(base, [ir.Constant(_INDEX, at)])
        return self.b.load(self.b.bitcast(place, kind.as_pointer()), align=1)

    def scalar(self, base: Any, at: int, kind: Any) -> Any:
        place = self.b.gep(base, [ir.Constant(_INDEX, at)])
        return self.b.load(self.b.bitcast(place, kind.as_pointer()), align=1)

    def splat(self, value: Any, kind: Any) -> Any:
        one = self.b.insert_element(ir.Constant(kind, ir.Undefined), value, ir.Constant(_INT, 0))
        lanes = ir.Constant(ir.VectorType(_INT, kind.count), [0] * kind.count)
        return self.b.shuffle_vector(one, ir.Constant(kind, ir.Undefined), lanes)

    def masked(self, value: Any, mask: int) -> Any:
        return self.b.and_(value, ir.Constant(_BYTES, [mask] * 32))

    def shifted(self, value: Any, left: int) -> Any:
        """Bytes shifted to the left, or to the right where `left` is negative."""
        if left == 0:
            return value
        by = ir.Constant(_BYTES, [abs(left)] * 32)
        return self.b.shl(value, by) if left > 0 else self.b.lshr(value, by)

    def parts(self, value: Any, first: int) -> Any:
        """Every second lane, from `first` on."""
        half = value.type.count // 2
        lanes = ir.Constant(ir.VectorType(_INT, half), [first + 2 * i for i in range(half)])
        return self.b.shuffle_vector(value, ir.Constant(value.type, ir.Undefined), lanes)

    def pairs_of_bytes(self, codes: Any, x: Any) -> Any:
        """Σ of two neighbours' products, unsigned codes by signed x, 16 bits each."""
        if _AVX2:
            return self.call("llvm.x86.avx2.pmadd.ub.sw", _SHORTS, codes, x)
        products = [
            self.b.mul(
                self.b.zext(self.parts(codes, i), _SHORTS), self.b.sext(self.parts(x, i), _SHORTS)
            )
            for i in (0, 1)
        ]
        return self.b.add(*products)

    def pairs_of_shorts(self, value: Any) -> Any:
        """Σ of two neighbours, 32 bits each."""
        if _AVX2:
            ones = ir.Constant(_SHORTS, [1] * 16)
            return self.call("llvm.x86.avx2.pmadd.wd", _INTS, value, ones)
        return self.b.add(*(self.b.sext(self.parts(value, i), _INTS) for i in (0, 1)))

    def floats(self, value: float) -> Any:
        return ir.Constant(_FLOATS, [value] * 8)

    def fma(self, x: Any, y: Any, z: Any) -> Any:
        return self.call("llvm.fma.v8f32", _FLOATS, x, y, z)


Planes = list[Callable[[], list[Any]]]


def _quads(code: _Code, base: Any, kind: int) -> list[Callable[[], list[Any]]]:
    """For each of the eight quads, what gives its codes: [codes], or for 8 bits [low, high]."""
    raw: dict[int, Any] = {}

    def load(v: int) -> Any:
        if v not in raw:
            raw[v] = code.vector(base, 32 * v, _BYTES)
        return raw[v]

    def nibble(j: int) -> Any:
        both = load(j % 4)
        return code.masked(both if j < 4 else code.shifted(both, -4), 15)

    def quad(j: int) -> list[Any]:
        if kind == 8:
            whole = load(j)
            return [code.masked(whole, 15), code.masked(code.shifted(whole, -4), 15)]
        low = nibble(j)
        if kind == 4:
            return [low]
        if kind == 5:
            above = code.masked(code.shifted(load(4), 4 - j), 16)
        else:
            above = code.masked(code.shifted(load(4 + j // 4), 4 - 2 * (j % 4)), 48)
        return [code.b.or_(low, above)]

    return [lambda j=j: quad(j) for j in range(8)]  # type: ignore[misc]


_BATCH = {4: 8, 5: 4, 6: 2, 8: 8}
"""So many quads can be added up in 16 bits: 2 · (greatest code) · 127 each."""


def _sums(code: _Code, base: Any, kind: int, x: Any, rows: int) -> list[list[Any]]:
    """Σ codes · x of a panel's group, as ints, for each row of the tile x; two for kind 6."""
    quads = _quads(code, base, kind)
    totals: list[list[Any]] = [[None] * (2 if kind == 6 else 1) for _ in range(rows)]
    for first in range(0, 8, _BATCH[kind]):
        sums: list[list[Any]] = [[None, None] for _ in range(rows)]
        for j in range(first, first + _BATCH[kind]):
            planes = quads[j]()
            for r in range(rows):
                four = code.scalar(x, 16 * j + 4 * r, _INT)
                value = code.b.bitcast(code.splat(four, _INTS), _BYTES)
                for p, plane in enumerate(planes):
                    more = code.pairs_of_bytes(plane, value)
                    old = sums[r][p]
                    sums[r][p] = more if old is None else code.b.add(old, more)
        part = first // 4 if kind == 6 else 0
        for r, (low, high) in enumerate(sums):
            total = code.pairs_of_shorts(low)
            if high is not None:
                four = ir.Constant(_INTS, [4] * 8)
                total = code.b.add(total, code.b.shl(code.pairs_of_shorts(high), four))
            old = totals[r][part]
            totals[r][part] = total if old is None else code.b.add(old, total)
    return totals


def _tile(kind: int, rows: int) -> Any:
    """out[r, :PANEL] += a panel times the first `rows` rows of a tile of x; see `grouped_product`.

    Everything that a group needs lies at constant offsets of three addresses, which leaves the
    CPU's registers to the sums.
    """

    @intrinsic  # type: ignore[untyped-decorator, unused-ignore]
    def tile(
        typing: Any, codes: Any, w_at: Any, scales: Any, s_at: Any, x: Any, x_at: Any, groups: Any,
        out: Any, out_at: Any,
    ) -> Any:  # fmt: skip
        size = types.intp
        signature = types.void(codes, size, scales, size, x, size, size, out, size)

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            def data(i: int) -> Any:
                return context.make_array(signature.args[i])(context, builder, args[i]).data

            code = _Code(builder)
            shape = context.make_array(signature.args[7])(context, builder, args[7]).shape
            stride = builder.extract_value(shape, 1)
            outs = []
            for r in range(rows):
                offset = builder.mul(stride, ir.Constant(_INDEX, r))
                place = builder.gep(data(7), [builder.add(args[8], offset)])
                outs.append(builder.bitcast(place, _FLOATS.as_pointer()))
            weights = builder.gep(data(0), [args[1]])
            factors = builder.gep(data(2), [args[3]])
            xs = builder.gep(data(4), [args[5]])
            before = [builder.load(place, align=4) for place in outs]
            entry = builder.block
            loop, done = builder.append_basic_block("group"), builder.append_basic_block("done")
            builder.branch(loop)
            builder.position_at_end(loop)
            g = builder.phi(_INDEX)
            g.add_incoming(ir.Constant(_INDEX, 0), entry)
            held = [builder.phi(_FLOATS) for _ in range(rows)]
            for phi, value in zip(held, before, strict=True):
                phi.add_incoming(value, entry)

            def at(base: Any, items: int) -> Any:
                return builder.gep(base, [builder.mul(g, ir.Constant(_INDEX, items))])

            after = _group(
                code, kind, at(weights, CODE_BYTES[kind]), at(factors, SCALES[kind]),
                at(xs, TILE_BYTES), held,
            )  # fmt: skip
            following = builder.add(g, ir.Constant(_INDEX, 1))
            g.add_incoming(following, builder.block)
            for phi, value in zip(held, after, strict=True):
                phi.add_incoming(value, builder.block)
            builder.cbranch(builder.icmp_signed("<", following, args[6]), loop, done)
            builder.position_at_end(done)
            for value, place in zip(after, outs, strict=True):
                builder.store(value, place, align=4)
            return context.get_dummy_value()

        return signature, generate

    return tile


def _group(
    code: _Code, kind: int, weights: Any, factors: Any, x: Any, held: list[Any]
) -> list[Any]:
    """held [rows] of floats, plus a group's product."""
    rows = range(len(held))
    totals = _sums(code, weights, kind, x, len(held))
    base = code.b.bitcast(factors, ir.IntType(8).as_pointer())
    scales = [code.vector(base, 32 * i, _FLOATS) for i in range(SCALES[kind] // PANEL)]

    def each(place: int, r: int) -> Any:
        return code.splat(code.scalar(x, place + 4 * r, _FLOAT), _FLOATS)

    out = []
    for r, total, value in zip(rows, totals, held, strict=True):
        step = each(STEPS_AT, r)
        if kind == 6:
            for i, part in enumerate(total):
                minus = code.b.fmul(each(HALVES_AT + 16 * i, r), code.floats(-ZERO[6] / 16))
                found = code.fma(code.b.sitofp(part, _FLOATS), step, minus)
                value = code.fma(found, scales[i], value)
            out.append(value)
            continue
        whole = each(SUMS_AT, r)
        found = code.b.sitofp(total[0], _FLOATS)
        if kind == 4:
            value = code.fma(code.b.fmul(found, step), scales[0], value)
            out.append(code.fma(code.b.fmul(whole, code.floats(1 / 16)), scales[1], value))
            continue
        if ZERO[kind] == 16:
            minus = code.b.fneg(whole)
        else:
            minus = code.b.fmul(whole, code.floats(-ZERO[kind] / 16))
        out.append(code.fma(code.fma(found, step, minus), scales[0], value))
    return out


_tile_4_1, _tile_4_2, _tile_4_4 = _tile(4, 1), _tile(4, 2), _tile(4, 4)
_tile_5_1, _tile_5_2, _tile_5_4 = _tile(5, 1), _tile(5, 2), _tile(5, 4)
_tile_6_1, _tile_6_2, _tile_6_4 = _tile(6, 1), _tile(6, 2), _tile(6, 4)
_tile_8_1, _tile_8_2, _tile_8_4 = _tile(8, 1), _tile(8, 2), _tile(8, 4)


@compiled
def _panels_4(
    codes: Array, scales: Array, x: Array, rows: int, first: int, last: int, out: Array, column: int
) -> None:
    groups = x.shape[1]
    for p in range(first, last):
        w, s = p * groups * 128, p * groups * 16
        for row in range(0, rows, 4):
            xs, at = row // 4 * groups * 192, row * out.shape[1] + column + p * 8
            if rows - row > 2:
                _tile_4_4(codes, w, scales, s, x, xs, groups, out, at)
            elif rows - row == 2:
                _tile_4_2(codes, w, scales, s, x, xs, groups, out, at)
            else:
                _tile_4_1(codes, w, scales, s, x, xs, groups, out, at)


@compiled
def _panels_5(
    codes: Array, scales: Array, x: Array, rows: int, first: int, last: int, out: Array, column: int
) -> None:
    groups = x.shape[1]
    for p in range(first, last):
        w, s = p * groups * 160, p * groups * 8
        for row in range(0, rows, 4):
            xs, at = row // 4 * groups * 192, row * out.shape[1] + column + p * 8
            if rows - row > 2:
                _tile_5_4(codes, w, scales, s, x, xs, groups, out, at)
            elif rows - row == 2:
                _tile_5_2(codes, w, scales, s, x, xs, groups, out, at)
            else:
                _tile_5_1(codes, w, scales, s, x, xs, groups, out, at)


@compiled
def _panels_6(
    codes: Array, scales: Array, x: Array, rows: int, first: int, last: int, out: Array, column: int
) -> None:
    groups = x.shape[1]
    for p in range(first, last):
        w, s = p * groups * 192, p * groups * 16
        for row in range(0, rows, 4):
            xs, at = row // 4 * groups * 192, row * out.shape[1] + column + p * 8
            if rows - row > 2:
                _tile_6_4(codes, w, scales, s, x, xs, groups, out, at)
            elif rows - row == 2:
                _tile_6_2(codes, w, scales, s, x, xs, groups, out, at)
            else:
                _tile_6_1(codes, w, scales, s, x, xs, groups, out, at)


@compiled
def _panels_8(
    codes: Array, scales: Array, x: Array, rows: int, first: int, last: int, out: Array, column: int
) -> None:
    groups = x.shape[1]
    for p in range(first, last):
        w, s = p * groups * 256, p * groups * 8
        for row in range(0, rows, 4):
            xs, at = row // 4 * groups * 192, row * out.shape[1] + column + p * 8
            if rows - row > 2:
                _tile_8_4(codes, w, scales, s, x, xs, groups, out, at)
            elif rows - row == 2:
                _tile_8_2(codes, w, scales, s, x, xs, groups, out, at)
            else:
                _tile_8_1(codes, w, scales, s, x, xs, groups, out, at)


@compiled
def grouped_product(
    kind: int, codes: Array, scales: Array, x: Array, rows: int, first: int, last: int, out: Array,
    column: int,
) -> None:  # fmt: skip
    """out[:rows, column + 8·p :] += x @ panel p, for the panels first..last-1.

    codes uint8 and scales float32 are `grouped_pack`'s; x uint8 [tiles, in / 32, 192] are
    `grouped_layers.quantised` activations. `out` float32 has rows up to the next multiple of 4, of
    which nothing is kept.
    """
    if kind == 4:
        _panels_4(codes, scales, x, rows, first, last, out, column)
    elif kind == 5:
        _panels_5(codes, scales, x, rows, first, last, out, column)
    elif kind == 6:
        _panels_6(codes, scales, x, rows, first, last, out, column)
    else:
        _panels_8(codes, scales, x, rows, first, last, out, column)
