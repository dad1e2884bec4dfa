"""Triton kernels of SGLang that it launches on a CPU as well, in plain torch.

Names and arguments are the kernels'; pointers are the tensors themselves.
"""

from __future__ import annotations

from torch import Tensor


def _fused_gate_sigmoid_mul_add_kernel(
    hidden_states: Tensor,
    gate_weight: Tensor,
    shared_output: Tensor,
    output: Tensor,
    *,
    DO_ADD: bool,
    GATE_ONLY: bool,
    **launch: object,
) -> None:
    """output ← σ(h · w) · shared (+ output), the gate of the shared expert; rows [tokens, hidden].

    Defined in `sglang/kernels/ops/elementwise/elementwise.py`.
    """
    assert not GATE_ONLY
    gate = (hidden_states.float() @ gate_weight.float()).sigmoid()[:, None]
    result = gate * shared_output.float()
    output.copy_(result + output.float() if DO_ADD else result)
