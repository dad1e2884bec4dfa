"""Layers that compute with quantised weights, on the fastest kernel the CPU has for them.

*8 bits, one scale a row*: an integer product (VNNI where there is one), FBGEMM's or oneDNN's. The
activations are quantised too, each row by its own greatest value, so a row's result does not
depend on the rows beside it: verifying a draft gives what decoding it one by one gives.
*4 bits in groups of 32 to 256*: torch's own packed product in bfloat16.
*Everything else*: dequantised, then multiplied. Medians are in docs/benchmarks.md.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clover_engine.model.quant import Quantized

Product = Callable[[Tensor], Tensor]
"""x [rows, in] → [rows, out] in x's dtype."""


def product(weight: Quantized, device: torch.device | str = "cpu") -> Product:
    """The fastest way here to multiply by `weight` [out, in]; it owns what it needs of it."""
    on_cpu = torch.device(device).type == "cpu"
    if on_cpu and weight.bits == 8 and weight.scales.shape[-1] == 1:
        integer = _integer_product()
        if integer is not None:
            return integer(weight)
    fits = weight.columns % weight.group_size == 0 and weight.qweight.shape[0] % 16 == 0
    if on_cpu and weight.bits == 4 and fits and weight.group_size in (32, 64, 128, 256):
        return PackedFourBits(weight)
    return Dequantized(weight, device)


class IntegerProduct(ABC):
    """8-bit weights by 8-bit activations (7 where the CPU's products would saturate)."""

    def __init__(self, weight: Quantized) -> None:
        self.levels, self.zero = (127, 128) if _wide_products() else (63, 64)
        codes = weight.qweight[:, : weight.columns].contiguous()
        self.nbytes = codes.nbytes + weight.scales.nbytes
        self.pack(codes, weight.scales[:, 0].contiguous())

    def __call__(self, x: Tensor) -> Tensor:
        rows = x.to(torch.float32)
        peak = rows.abs().amax(-1, keepdim=True).clamp_min_(1e-30)  # [rows, 1]
        return self.multiply(rows / peak).mul_(peak).to(x.dtype)

    @abstractmethod
    def pack(self, codes: Tensor, scales: Tensor) -> None:
        """Keeps int8 codes [out, in] and float32 scales [out] as the library wants them."""

    @abstractmethod
    def multiply(self, x: Tensor) -> Tensor:
        """x [rows, in], within -1..1, quantised to ±levels around `zero` → float32 [rows, out]."""


class Fbgemm(IntegerProduct):
    """Quantises inside the product: the fastest, while torch has it (deprecated since 2.13)."""

    def pack(self, codes: Tensor, scales: Tensor) -> None:
        make: Any = torch._make_per_channel_quantized_tensor
        zeros = torch.zeros(len(scales), dtype=torch.int64)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="torch.quantize_per_tensor")
            tensor = make(codes, scales.to(torch.float64), zeros, 0)
            self._packed = torch.ops.quantized.linear_prepack(tensor)

    def multiply(self, x: Tensor) -> Tensor:
        out: Tensor = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32(
            x, 1.0 / self.levels, self.zero, self._packed
        )
        return out


class OneDnn(IntegerProduct):
    """The same with one more pass over the activations and one over the result.

    The library only sums: its kernels for few and for many rows apply scales in different orders,
    and a row's result must not depend on how many rows there are.
    """

    def pack(self, codes: Tensor, scales: Tensor) -> None:
        self._scales = scales / self.levels
        self._ones = torch.ones_like(scales)
        self._zeros = torch.zeros(len(scales), dtype=torch.int32)
        self._packed = torch.ops.onednn.qlinear_prepack(codes, [16, codes.shape[1]])

    def multiply(self, x: Tensor) -> Tensor:
        codes = (x * self.levels).add_(self.zero).round_().to(torch.uint8)
        out: Tensor = torch.ops.onednn.qlinear_pointwise(
            codes, 1.0, self.zero, self._packed, self._ones, self._zeros,
            None, 1.0, 0, torch.float32, "none", [], "",
        )  # fmt: skip
        return out.mul_(self._scales)


class PackedFourBits:
    """torch's 4-bit product: weights stay packed, activations are bfloat16."""

    def __init__(self, weight: Quantized) -> None:
        pack = torch.ops.aten._convert_weight_to_int4pack_for_cpu
        self._packed = pack(weight.codes().to(torch.int32), 2)
        scales = weight.scales.float()
        shift = torch.zeros_like(scales)
        if weight.zeros is not None:
            shift = (8 - weight.zeros.float()) * scales
        both = torch.stack([scales, shift], dim=-1).transpose(0, 1)  # [groups, out, 2]
        self._scales = both.to(torch.bfloat16).contiguous()
        self._size = weight.group_size
        self.nbytes = self._packed.nbytes + self._scales.nbytes

    def __call__(self, x: Tensor) -> Tensor:
        out: Tensor = torch.ops.aten._weight_int4pack_mm_for_cpu(
            x.to(torch.bfloat16).contiguous(), self._packed, self._size, self._scales
        )
        return out.to(x.dtype)


class Dequantized:
    """Any weight on any device."""

    def __init__(self, weight: Quantized, device: torch.device | str) -> None:
        self._weight = weight.to(device)
        self.nbytes = self._weight.nbytes

    def __call__(self, x: Tensor) -> Tensor:
        return F.linear(x, self._weight.dequantize(x.dtype))


class QuantLinear(nn.Module):
    """A linear layer for inference, made from a quantised weight [out, in]."""

    bias: nn.Parameter | None

    def __init__(
        self, weight: Quantized, device: torch.device | str = "cpu", tied: bool = False
    ) -> None:
        """`tied`: the weight is an embedding's too, and counted there."""
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self.packed_weights = 0 if tied else weight.shape.numel()
        self.product = product(weight, device)
        self.register_parameter("bias", None)

    def forward(self, x: Tensor) -> Tensor:
        out = self.product(x.reshape(-1, self.in_features))
        if self.bias is not None:
            out = out + self.bias
        return out.view(*x.shape[:-1], self.out_features)


class QuantEmbedding(nn.Module):
    """A token embedding in 8 bits; `forward` dequantises the rows that are asked for."""

    def __init__(self, weight: Quantized, dtype: torch.dtype) -> None:
        super().__init__()
        own = weight.to("cpu")
        self.register_buffer("codes", own.qweight, persistent=False)
        self.register_buffer("scales", own.scales, persistent=False)
        self.dtype = dtype
        self.packed_weights = weight.shape.numel()

    def forward(self, ids: Tensor) -> Tensor:
        codes, scales = F.embedding(ids, self.codes), F.embedding(ids, self.scales)  # type: ignore[arg-type]
        return (codes * scales).to(self.dtype)


def _wide_products() -> bool:
    """Whether the CPU sums products of 8 bits without saturating (VNNI)."""
    probe = getattr(torch.cpu, "_is_vnni_supported", None)
    return bool(probe is not None and probe())


@cache
def _integer_product() -> type[IntegerProduct] | None:
    """The first library that multiplies rightly on this machine."""
    weight = Quantized(8, 64, torch.full((16, 64), 127, dtype=torch.int8), torch.ones(16, 1))
    for kind in (Fbgemm, OneDnn):
        try:
            out = kind(weight)(torch.ones(2, 64))
        except (RuntimeError, AttributeError):
            continue
        if torch.allclose(out, torch.full((2, 16), 127.0 * 64), rtol=1e-3):
            return kind
    return None
