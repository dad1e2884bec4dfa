"""Convolution and delta rule over a pool of states, in plain torch from their equations.

Names and arguments are those that SGLang 0.5.23 calls in
`srt/layers/attention/linear/gdn_backend.py` and `kernels/gdn_triton.py`. Sequences of a batch are
laid end to end; `cu_seqlens` (also called `query_start_loc`) has their bounds. Every sequence
owns one slot of a pool, and its state there is advanced in place. A slot of -1 is padding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

PADDING = -1


def causal_conv1d_fn_cpu(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    *,
    activation: str | None,
    conv_states: Tensor,
    has_initial_state: Tensor,
    cache_indices: Tensor,
    query_start_loc: Tensor,
    seq_lens_cpu: Sequence[int],
) -> Tensor:
    """Depthwise causal convolution: x [channels, tokens] → same.

    `weight` [channels, width]; `conv_states` [slots, channels, width - 1] holds the last inputs
    of each sequence, which count as zeros where `has_initial_state` [sequences] is false.
    """
    out = torch.zeros_like(x)
    for sequence, (slot, start, end) in enumerate(_spans(cache_indices, query_start_loc)):
        tail = conv_states[slot]
        if not has_initial_state[sequence]:
            tail = torch.zeros_like(tail)
        out[:, start:end], conv_states[slot] = _convolve(tail, x[:, start:end], weight, bias)
    return _activate(out, activation)


def causal_conv1d_update_cpu(
    x: Tensor,
    conv_states: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    activation: str | None,
    *,
    conv_state_indices: Tensor,
) -> Tensor:
    """One further token for each sequence: x [sequences, channels] → same."""
    out = torch.zeros_like(x)
    for sequence, slot in enumerate(conv_state_indices.tolist()):
        if slot == PADDING:
            continue
        new, conv_states[slot] = _convolve(conv_states[slot], x[sequence, :, None], weight, bias)
        out[sequence] = new[:, 0]
    return _activate(out, activation)


def chunk_gated_delta_rule_cpu(
    *,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    initial_state: Tensor,
    initial_state_indices: Tensor,
    cu_seqlens: Tensor,
    head_first: bool,
    use_qk_l2norm_in_kernel: bool,
) -> tuple[Tensor, None, None]:
    """The gated delta rule: v [1, tokens, value heads, V] → same.

    q and k are [1, tokens, key heads, K]; g (the logarithm of the decay) and beta are
    [1, tokens, value heads]; `initial_state` is the pool [slots, value heads, V, K]. The second
    and third results, final states and states between chunks, are for other devices.
    """
    assert not head_first and use_qk_l2norm_in_kernel
    return (
        gated_delta_rule(q, k, v, g, beta, initial_state, initial_state_indices, cu_seqlens),
        None,
        None,
    )


def gated_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    states: Tensor,
    slots: Tensor,
    cu_seqlens: Tensor,
) -> Tensor:
    """S_t = e^{g_t} S_{t-1} + β_t (v_t - e^{g_t} S_{t-1} k_t) ⊗ k_t and o_t = S_t q_t, per head.

    q and k are brought to unit length, and q is divided by √K. Shapes: see above.
    """
    repeat = v.shape[2] // k.shape[2]
    q, k = (_unit(x[0].float()).repeat_interleave(repeat, dim=1) for x in (q, k))
    q = q * q.shape[-1] ** -0.5
    out = torch.zeros_like(v)
    for slot, start, end in _spans(slots, cu_seqlens):
        state = states[slot].float()  # [heads, V, K]
        for t in range(start, end):
            state = state * g[0, t].float().exp()[:, None, None]
            error = v[0, t].float() - torch.einsum("hvk,hk->hv", state, k[t])
            write = error * beta[0, t].float()[:, None]
            state = state + torch.einsum("hv,hk->hvk", write, k[t])
            out[0, t] = torch.einsum("hvk,hk->hv", state, q[t]).to(out.dtype)
        states[slot] = state.to(states.dtype)
    return out


def _spans(slots: Tensor, bounds: Tensor) -> Iterator[tuple[int, int, int]]:
    """Slot, first token and end of every sequence that is no padding."""
    edges = bounds.tolist()
    for slot, start, end in zip(slots.tolist(), edges, edges[1:], strict=False):
        if slot != PADDING:
            yield slot, start, end


def _convolve(
    tail: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None
) -> tuple[Tensor, Tensor]:
    """tail [channels, width - 1] and x [channels, tokens] → outputs and the new tail."""
    inputs = torch.cat([tail.to(x.dtype), x], dim=1)
    out = F.conv1d(inputs[None], weight[:, None], bias, groups=weight.shape[0])[0]
    return out, inputs[:, inputs.shape[1] - tail.shape[1] :].to(tail.dtype)


def _activate(x: Tensor, activation: str | None) -> Tensor:
    assert activation in (None, "silu", "swish"), activation
    return x if activation is None else F.silu(x)


def _unit(x: Tensor) -> Tensor:
    return x * torch.rsqrt((x * x).sum(dim=-1, keepdim=True) + 1e-6)
