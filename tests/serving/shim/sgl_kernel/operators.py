"""The operators `torch.ops.sgl_kernel.*` that hybrid Qwen3.5 models call on a CPU.

Names and arguments are those of SGLang 0.5.23's `srt/models/qwen3_5.py` and
`srt/layers/attention/linear/`. Norms and gates are computed in float32, as there.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from sgl_kernel.mamba import gated_delta_rule


@torch.library.custom_op("sgl_kernel::fused_gdn_gating_cpu", mutates_args=())
def gdn_gating(A_log: Tensor, a: Tensor, b: Tensor, dt_bias: Tensor) -> tuple[Tensor, Tensor]:
    """a, b [tokens, heads] → g = -e^A · softplus(a + dt_bias) and β = σ(b), [1, tokens, heads]."""
    step = F.softplus(a.float() + dt_bias.float())
    return (-A_log.float().exp() * step)[None], b.float().sigmoid()[None]


@torch.library.custom_op(
    "sgl_kernel::fused_sigmoid_gating_delta_rule_update_cpu", mutates_args=("initial_state_source",)
)
def sigmoid_gating_delta_rule_update(
    A_log: Tensor,
    dt_bias: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    a: Tensor,
    b: Tensor,
    initial_state_source: Tensor,
    initial_state_indices: Tensor,
    cu_seqlens: Tensor,
    use_qk_l2norm_in_kernel: bool,
    softplus_beta: float,
    softplus_threshold: float,
) -> Tensor:
    """Gates and delta rule of one token a sequence: `mamba`'s shapes; a, b [tokens, heads]."""
    assert use_qk_l2norm_in_kernel and (softplus_beta, softplus_threshold) == (1.0, 20.0)
    g, beta = gdn_gating(A_log, a, b, dt_bias)
    return gated_delta_rule(
        q, k, v, g, beta, initial_state_source, initial_state_indices, cu_seqlens
    )


@torch.library.custom_op(
    "sgl_kernel::fused_qkvzba_split_reshape_cat_contiguous_cpu", mutates_args=()
)
def split_qkvzba(
    qkvz: Tensor, ba: Tensor, k_heads: int, v_heads: int, k_dim: int, v_dim: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """[q | k | v | z] and [b | a] → qkv [tokens, ·], z [tokens, v_heads, v_dim], b and a."""
    value = v_heads * v_dim
    qkv, z = torch.split(qkvz, [2 * k_heads * k_dim + value, value], dim=-1)
    b, a = torch.split(ba, v_heads, dim=-1)
    return qkv.clone(), z.reshape(-1, v_heads, v_dim).clone(), b.clone(), a.clone()


@torch.library.custom_op("sgl_kernel::fused_rmsnorm_gated_cpu", mutates_args=())
def rmsnorm_gated(x: Tensor, weight: Tensor, z: Tensor, eps: float) -> Tensor:
    """norm(x) · w · silu(z) over the last dimension."""
    out = _normalise(x, eps) * weight.float() * F.silu(z.float())
    return out.to(x.dtype)


@torch.library.custom_op("sgl_kernel::fused_qk_gemma_rmsnorm_cpu", mutates_args=())
def qk_rmsnorm(
    q: Tensor, k: Tensor, q_weight: Tensor, k_weight: Tensor, eps: float, head_dim: int
) -> tuple[Tensor, Tensor]:
    """norm(x) · (1 + w) of each head: q and k [tokens, heads · head_dim] → [heads, head_dim]."""
    return _offset_norm(q, q_weight, eps, head_dim), _offset_norm(k, k_weight, eps, head_dim)


@torch.library.custom_op("sgl_kernel::fused_qk_gemma_rmsnorm_with_gate_cpu", mutates_args=())
def qk_rmsnorm_with_gate(
    q_gate: Tensor,
    k: Tensor,
    q_weight: Tensor,
    k_weight: Tensor,
    eps: float,
    head_dim: int,
    num_heads: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """The same where q comes as [q | gate] of each head; the gate is left as it is."""
    q, gate = q_gate.reshape(-1, num_heads, 2 * head_dim).chunk(2, dim=-1)
    normed_q, normed_k = qk_rmsnorm(q, k, q_weight, k_weight, eps, head_dim)
    return normed_q, normed_k, gate.reshape(-1, head_dim).clone()


@torch.library.custom_op("sgl_kernel::fused_sigmoid_mul_cpu", mutates_args=("x",))
def sigmoid_mul(x: Tensor, gate: Tensor) -> None:
    """x ← x · σ(gate), in place."""
    x.mul_(gate.reshape(x.shape).float().sigmoid().to(x.dtype))


def _normalise(x: Tensor, eps: float) -> Tensor:
    x = x.float()
    return x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + eps)


def _offset_norm(x: Tensor, weight: Tensor, eps: float, head_dim: int) -> Tensor:
    return (_normalise(x.reshape(-1, head_dim), eps) * (1 + weight.float())).to(x.dtype)
