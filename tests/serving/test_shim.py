"""The test-only stand-in for SGLang's CPU kernels, against `transformers`' reference functions."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.serving.harness import SHIM
from torch import Tensor

reference = pytest.importorskip("transformers.models.qwen3_5_moe.modeling_qwen3_5_moe")
pytestmark = pytest.mark.usefixtures("one_thread")

SLOTS, CHANNELS, WIDTH = 6, 5, 4
K_HEADS, V_HEADS, K_DIM, V_DIM = 2, 4, 3, 5
EPS = 1e-6


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def mamba() -> Iterator[ModuleType]:
    """`sgl_kernel.mamba` of the shim; importing it registers `torch.ops.sgl_kernel`."""
    sys.path.insert(0, str(SHIM))
    yield importlib.import_module("sgl_kernel.mamba")
    sys.path.remove(str(SHIM))
    for name in [n for n in sys.modules if n.partition(".")[0] == "sgl_kernel"]:
        del sys.modules[name]


class Batch:
    """Sequences of these lengths end to end, each with a slot of its own; 0 is a padded one."""

    def __init__(self, lengths: list[int], seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)
        slots = torch.randperm(SLOTS, generator=self.generator)[: len(lengths)].tolist()
        self.slots = [slot if length else -1 for slot, length in zip(slots, lengths, strict=True)]
        self.bounds = [0, *torch.tensor(lengths).cumsum(0).tolist()]
        self.tokens = self.bounds[-1]

    def random(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self.generator)

    def spans(self) -> Iterator[tuple[int, slice]]:
        for slot, start, end in zip(self.slots, self.bounds, self.bounds[1:], strict=False):
            if slot >= 0:
                yield slot, slice(start, end)


batches = st.builds(
    Batch, st.lists(st.integers(0, 9), min_size=1, max_size=4), st.integers(0, 2**31)
).filter(lambda batch: batch.tokens > 0)
few = settings(max_examples=25, deadline=None)


def close(ours: Tensor, theirs: Tensor) -> None:
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)


@few
@given(batch=batches, fresh=st.booleans())
def test_convolution_advances_only_its_sequences(
    mamba: ModuleType, batch: Batch, fresh: bool
) -> None:
    x, weight = batch.random(CHANNELS, batch.tokens), batch.random(CHANNELS, WIDTH)
    pool = batch.random(SLOTS, CHANNELS, WIDTH - 1)
    expected, states = torch.zeros_like(x), pool.clone()
    for slot, span in batch.spans():
        if fresh:
            states[slot] = 0
        state = states[slot][None]
        expected[:, span] = reference.causal_conv1d_update(
            x[None, :, span], state, weight, None, "silu"
        )[0]
        states[slot] = state[0]
    out = mamba.causal_conv1d_fn_cpu(
        x,
        weight,
        None,
        activation="silu",
        conv_states=pool,
        has_initial_state=torch.full((len(batch.slots),), not fresh),
        cache_indices=torch.tensor(batch.slots),
        query_start_loc=torch.tensor(batch.bounds),
        seq_lens_cpu=[],
    )
    close(out, expected)
    close(pool, states)


@few
@given(batch=batches)
def test_one_token_of_convolution_continues_the_sequence(mamba: ModuleType, batch: Batch) -> None:
    x, weight = batch.random(len(batch.slots), CHANNELS), batch.random(CHANNELS, WIDTH)
    bias, pool = batch.random(CHANNELS), batch.random(SLOTS, CHANNELS, WIDTH - 1)
    expected, states = torch.zeros_like(x), pool.clone()
    for row, slot in enumerate(batch.slots):
        if slot >= 0:
            state = states[slot][None]
            new = reference.causal_conv1d_update(x[row, :, None][None], state, weight, bias, "silu")
            expected[row], states[slot] = new[0, :, 0], state[0]
    out = mamba.causal_conv1d_update_cpu(
        x, pool, weight, bias, "silu", conv_state_indices=torch.tensor(batch.slots)
    )
    padded = torch.tensor([slot < 0 for slot in batch.slots])
    close(out[~padded], expected[~padded])
    close(pool, states)


@few
@given(batch=batches)
def test_delta_rule_advances_only_its_sequences(mamba: ModuleType, batch: Batch) -> None:
    q, k = (batch.random(1, batch.tokens, K_HEADS, K_DIM) for _ in "qk")
    v = batch.random(1, batch.tokens, V_HEADS, V_DIM)
    g = -batch.random(1, batch.tokens, V_HEADS).abs()
    beta = batch.random(1, batch.tokens, V_HEADS).sigmoid()
    pool = batch.random(SLOTS, V_HEADS, V_DIM, K_DIM)
    expected, states = torch.zeros_like(v), pool.clone()
    for slot, span in batch.spans():
        out, state = reference.torch_recurrent_gated_delta_rule(
            *(part[:, span] for part in (q, k, v, g, beta)),
            initial_state=states[slot][None].transpose(2, 3),
            output_final_state=True,
            use_qk_l2norm_in_kernel=True,
        )
        expected[:, span], states[slot] = out, state[0].transpose(1, 2)
    out, *_ = mamba.chunk_gated_delta_rule_cpu(
        q=q,
        k=k,
        v=v,
        g=g,
        beta=beta,
        initial_state=pool,
        initial_state_indices=torch.tensor(batch.slots),
        cu_seqlens=torch.tensor(batch.bounds),
        head_first=False,
        use_qk_l2norm_in_kernel=True,
    )
    close(out, expected)
    close(pool, states)


def test_decoding_gates_and_applies_the_same_rule(mamba: ModuleType) -> None:
    batch = Batch([1, 1, 1], 0)
    a, b = (batch.random(batch.tokens, V_HEADS) for _ in "ab")
    A_log, dt_bias = batch.random(V_HEADS), batch.random(V_HEADS)
    q, k = (batch.random(1, batch.tokens, K_HEADS, K_DIM) for _ in "qk")
    v, pool = batch.random(1, 3, V_HEADS, V_DIM), batch.random(SLOTS, V_HEADS, V_DIM, K_DIM)
    g, beta = torch.ops.sgl_kernel.fused_gdn_gating_cpu(A_log, a, b, dt_bias)
    close(beta[0], b.sigmoid())
    close(g[0], -A_log.exp() * torch.nn.functional.softplus(a + dt_bias))
    slots, bounds, copy = torch.tensor(batch.slots), torch.tensor(batch.bounds), pool.clone()
    out = torch.ops.sgl_kernel.fused_sigmoid_gating_delta_rule_update_cpu(
        A_log=A_log,
        dt_bias=dt_bias,
        q=q,
        k=k,
        v=v,
        a=a,
        b=b,
        initial_state_source=pool,
        initial_state_indices=slots,
        cu_seqlens=bounds,
        use_qk_l2norm_in_kernel=True,
        softplus_beta=1.0,
        softplus_threshold=20.0,
    )
    close(out, mamba.gated_delta_rule(q, k, v, g, beta, copy, slots, bounds))
    assert torch.equal(pool, copy)


def test_norms_equal_the_reference_modules(mamba: ModuleType) -> None:
    batch, operators, heads, size = Batch([7], 1), torch.ops.sgl_kernel, 3, 8
    gated, plain = reference.Qwen3_5MoeRMSNormGated(size), reference.Qwen3_5MoeRMSNorm(size)
    with torch.no_grad():
        gated.weight.copy_(batch.random(size))
        plain.weight.copy_(batch.random(size))
        x, z = batch.random(7, size), batch.random(7, size)
        close(operators.fused_rmsnorm_gated_cpu(x, gated.weight, z, EPS), gated(x, z))
        q_gate, k = batch.random(7, heads * 2 * size), batch.random(7, size)
        weight, other = plain.weight, batch.random(size)
        q, normed_k, gate = operators.fused_qk_gemma_rmsnorm_with_gate_cpu(
            q_gate, k, weight, other, EPS, size, heads
        )
        split = q_gate.view(7, heads, 2, size)
        close(q.view(7, heads, size), plain(split[:, :, 0]))
        close(gate.view(7, heads, size), split[:, :, 1])
        plain.weight.copy_(other)
        close(normed_k, plain(k))


def test_split_and_output_gate(mamba: ModuleType) -> None:
    operators = torch.ops.sgl_kernel
    qk, value = 2 * K_HEADS * K_DIM, V_HEADS * V_DIM
    qkvz, ba = torch.randn(3, qk + 2 * value), torch.randn(3, 2 * V_HEADS)
    qkv, z, b, a = operators.fused_qkvzba_split_reshape_cat_contiguous_cpu(
        qkvz, ba, K_HEADS, V_HEADS, K_DIM, V_DIM
    )
    assert torch.equal(torch.cat([qkv, z.reshape(3, value)], dim=1), qkvz)
    assert torch.equal(torch.cat([b, a], dim=1), ba)
    x, gate = torch.randn(3, 8), torch.randn(3, 2, 4)
    expected = x * gate.reshape(3, 8).sigmoid()
    operators.fused_sigmoid_mul_cpu(x, gate)
    close(x, expected)


SCRIPT = """
import sys
import inert_triton
sys.meta_path.insert(0, inert_triton.Finder())
import torch, triton, triton.language as tl
from triton.runtime.jit import JITFunction

@triton.jit
def no_such_kernel(x, BLOCK: tl.constexpr):
    return x

@triton.autotune(configs=[triton.Config({}, num_warps=4)], key=["n"])
@triton.jit(do_not_specialize=["n"])
def _fused_gate_sigmoid_mul_add_kernel(n):
    return n

assert isinstance(JITFunction, type) and triton.cdiv(9, 4) == 3
assert [triton.next_power_of_2(n) for n in (1, 5, 64)] == [1, 8, 64]
h, w, s, out = torch.randn(3, 8), torch.randn(8), torch.randn(3, 8), torch.randn(3, 8)
expected = (h @ w).sigmoid()[:, None] * s + out
_fused_gate_sigmoid_mul_add_kernel[(3,)](
    h, w, s, out, hidden_dim=8, DO_ADD=True, USE_PDL=False, GATE_ONLY=False, num_warps=4
)
torch.testing.assert_close(out, expected)
import sgl_kernel
for use in (lambda: no_such_kernel[(1,)](3, 1), lambda: sgl_kernel.flash_attention(1)):
    try:
        use()
    except NotImplementedError as error:
        print(error)
"""


def test_kernels_are_launched_by_name_or_say_what_is_missing() -> None:
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={"PYTHONPATH": str(SHIM), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.stdout.splitlines() == [
        "triton kernel no_such_kernel has no stand-in; write one in shim/kernels.py",
        "sgl_kernel.flash_attention has no stand-in; write one beside this file",
    ], run.stderr
