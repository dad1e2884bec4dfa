"""The gated delta rule in chunks (Yang et al. 2024, "Gated Delta Networks", 2412.06464).

Per head, with decay g_t ≤ 0 and write strength β_t::

    S_t = e^{g_t} S_{t-1} + k_t ⊗ β_t (v_t - (e^{g_t} S_{t-1})ᵀ k_t)        o_t = S_tᵀ q_t

Inside a chunk the writes solve a unit lower-triangular system; between chunks only the state
is carried on.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    state: Tensor | None,
    chunk: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Runs the rule over all rows.

    Shapes: q, k [N, H, T, K] (already normalised, q scaled), v [N, H, T, V], g, beta [N, H, T],
    state [N, H, K, V] or None for zeros. All in float32 or float64. Returns outputs
    [N, H, T, V], the final state, and the states at the chunks' starts [N, H, ceil(T/chunk), K, V].
    """
    n, h, rows, key_dim = k.shape
    pad = -rows % chunk
    if pad:  # β = 0 and g = 0 leave the state alone
        q, k, v = (F.pad(x, (0, 0, 0, pad)) for x in (q, k, v))
        g, beta = F.pad(g, (0, pad)), F.pad(beta, (0, pad))
    count = (rows + pad) // chunk
    q, k, v = (x.reshape(n, h, count, chunk, x.shape[-1]) for x in (q, k, v))
    g, beta = g.reshape(n, h, count, chunk).cumsum(-1), beta.reshape(n, h, count, chunk, 1)

    lower = torch.ones(chunk, chunk, dtype=torch.bool, device=k.device).tril()
    gaps = (g[..., :, None] - g[..., None, :]).masked_fill(~lower, 0.0)
    decay = gaps.exp().masked_fill(~lower, 0.0)  # [N, H, c, i, j]
    kt = k.transpose(-1, -2)
    system = (beta * (k @ kt) * decay).tril(-1)
    right = torch.cat([beta * v, beta * g.exp()[..., None] * k], dim=-1)
    solved = torch.linalg.solve_triangular(system, right, upper=False, unitriangular=True)
    writes, reads = solved[..., : v.shape[-1]], solved[..., v.shape[-1] :]

    total = g[..., -1:]  # [N, H, c, 1]
    carried = (k * (total - g).exp()[..., None]).transpose(-1, -2)  # [N, H, c, K, chunk]
    keep = total.exp()[..., None]  # [N, H, c, 1, 1]
    if state is None:
        state = k.new_zeros(n, h, key_dim, v.shape[-1])
    starts, fresh = [], []
    for c in range(count):
        starts.append(state)
        new = writes[:, :, c] - reads[:, :, c] @ state
        fresh.append(new)
        state = keep[:, :, c] * state + carried[:, :, c] @ new
    at_starts = torch.stack(starts, dim=2)
    out = (q * g.exp()[..., None]) @ at_starts + ((q @ kt) * decay) @ torch.stack(fresh, dim=2)
    return out.reshape(n, h, rows + pad, -1)[:, :, :rows], state, at_starts
