"""Mixture of experts with a gated shared expert (Qwen2-MoE … Qwen3.5-MoE)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clover_engine.model.config import CloverConfig
from clover_engine.model.layers import MLP


class Router(nn.Module):
    def __init__(self, experts: int, hidden: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(experts, hidden))


class Experts(nn.Module):
    """Fused expert weights: gate_up_proj [E, 2I, H], down_proj [E, H, I].

    `model.experts` has what takes this module's place when they are quantised or wait in host
    memory.
    """

    def __init__(self, experts: int, hidden: int, intermediate: int) -> None:
        super().__init__()
        self.gate_up_proj = nn.Parameter(torch.empty(experts, 2 * intermediate, hidden))
        self.down_proj = nn.Parameter(torch.empty(experts, hidden, intermediate))
        nn.init.normal_(self.gate_up_proj, std=0.02)
        nn.init.normal_(self.down_proj, std=0.02)

    def order(self, chosen: list[int]) -> list[int]:
        """In which order to ask for these experts."""
        return chosen

    def forward(self, x: Tensor, expert: int) -> Tensor:
        """down(silu(gate(x)) · up(x)) of one expert, [rows, hidden] → [rows, hidden]."""
        gate, up = F.linear(x, self.gate_up_proj[expert]).chunk(2, dim=-1)
        return F.linear(F.silu(gate) * up, self.down_proj[expert])


class SparseMoE(nn.Module):
    """softmax in float32 → top k → renormalise; + σ(shared_expert_gate) · shared expert."""

    def __init__(self, config: CloverConfig) -> None:
        super().__init__()
        hidden = config.hidden_size
        self.top_k = config.num_experts_per_tok
        self.normalise = config.norm_topk_prob
        self.gate = Router(config.num_experts, hidden)
        self.experts = Experts(config.num_experts, hidden, config.moe_intermediate_size)
        self.has_shared = config.shared_expert_intermediate_size > 0
        if self.has_shared:
            self.shared_expert = MLP(hidden, config.shared_expert_intermediate_size)
            self.shared_expert_gate = nn.Linear(hidden, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        flat = x.reshape(-1, x.shape[-1])  # [rows, hidden]
        out = self._routed(flat)
        if self.has_shared:
            out = out + torch.sigmoid(self.shared_expert_gate(flat)) * self.shared_expert(flat)
        return out.reshape(x.shape)

    def _routed(self, x: Tensor) -> Tensor:
        wide = torch.float64 if x.dtype == torch.float64 else torch.float32
        probs = F.softmax(F.linear(x, self.gate.weight), dim=-1, dtype=wide)  # [rows, E]
        weights, chosen = probs.topk(self.top_k, dim=-1)  # [rows, k]
        if self.normalise:
            weights = weights / weights.sum(dim=-1, keepdim=True)
        # By slot, so that the sum does not depend on the order in which experts are at hand.
        slots = x.new_zeros(*chosen.shape, x.shape[-1])  # [rows, k, hidden]
        for expert in self.experts.order(torch.unique(chosen).tolist()):
            row, slot = torch.where(chosen == expert)
            slots[row, slot] = self.experts(x[row], expert).to(x.dtype)
        return (slots * weights.to(x.dtype)[..., None]).sum(dim=1)
