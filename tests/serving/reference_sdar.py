"""SDAR with the LowConfidence algorithm in plain torch, written from their definitions.

Qwen3's layers where a row sees its own block and all earlier ones. A block starts as what the
prompt leaves of it and masks. Each step runs the block; masks whose most probable token is surer
than the threshold take it, or else the surest one does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from tests.serving.models import SDAR, SDAR_BLOCK, SDAR_MASK
from torch import Tensor

HEADS, KEYS, WIDTH = (SDAR[n] for n in ("num_attention_heads", "num_key_value_heads", "head_dim"))
EPS, THETA, LAYERS = (SDAR[n] for n in ("rms_norm_eps", "rope_theta", "num_hidden_layers"))


class Reference:
    def __init__(self, checkpoint: Path) -> None:
        self._weights: Mapping[str, Tensor] = load_file(checkpoint / "model.safetensors")
        self.steps = 0
        """Denoising steps of all calls so far."""

    @torch.no_grad()
    def generate(
        self, prompt: Sequence[int], max_new_tokens: int, threshold: float = 0.95
    ) -> tuple[int, ...]:
        """The tokens that follow the prompt."""
        ids, end = list(prompt), len(prompt) + max_new_tokens
        while len(ids) < end:
            start = len(ids) // SDAR_BLOCK * SDAR_BLOCK
            block = torch.full((SDAR_BLOCK,), SDAR_MASK)
            block[: len(ids) - start] = torch.tensor(ids[start:], dtype=torch.long)
            ids = ids[:start] + self._denoise(ids[:start], block, threshold)
        return tuple(ids[len(prompt) : end])

    def _denoise(self, before: list[int], block: Tensor, threshold: float) -> list[int]:
        while (masked := block == SDAR_MASK).any():
            self.steps += 1
            logits = self._logits(torch.cat([torch.tensor(before, dtype=torch.long), block]))
            confidence, tokens = logits.softmax(dim=-1).max(dim=-1)
            confidence = confidence.masked_fill(~masked, -1)
            taken = confidence > threshold
            if not taken.any():
                taken[confidence.argmax()] = True
            block = torch.where(taken, tokens, block)
        return block.tolist()

    def _logits(self, ids: Tensor) -> Tensor:
        """ids [rows] → logits of the last block [block, vocabulary]."""
        position = torch.arange(len(ids))
        block = position // SDAR_BLOCK
        visible = block[:, None] >= block[None]
        x = self._weights["model.embed_tokens.weight"][ids]
        for layer in range(LAYERS):
            at = f"model.layers.{layer}."
            normed = self._norm(x, f"{at}input_layernorm")
            x = x + self._attention(normed, f"{at}self_attn.", position, visible)
            x = x + self._mlp(self._norm(x, f"{at}post_attention_layernorm"), f"{at}mlp.")
        return self._norm(x[-SDAR_BLOCK:], "model.norm") @ self._weights["lm_head.weight"].T

    def _attention(self, x: Tensor, at: str, position: Tensor, visible: Tensor) -> Tensor:
        rows = len(x)
        q = self._rotate(self._norm(self._linear(x, f"{at}q_proj", HEADS), f"{at}q_norm"), position)
        k = self._rotate(self._norm(self._linear(x, f"{at}k_proj", KEYS), f"{at}k_norm"), position)
        v = self._linear(x, f"{at}v_proj", KEYS)
        k, v = (part.repeat_interleave(HEADS // KEYS, dim=1) for part in (k, v))
        scores = torch.einsum("qhd,khd->hqk", q, k) * WIDTH**-0.5
        shares = scores.masked_fill(~visible, -torch.inf).softmax(dim=-1)
        out = torch.einsum("hqk,khd->qhd", shares, v).reshape(rows, -1)
        return out @ self._weights[f"{at}o_proj.weight"].T

    def _linear(self, x: Tensor, name: str, heads: int) -> Tensor:
        return (x @ self._weights[f"{name}.weight"].T).view(len(x), heads, WIDTH)

    def _mlp(self, x: Tensor, at: str) -> Tensor:
        gate, up, down = (self._weights[f"{at}{n}_proj.weight"] for n in ("gate", "up", "down"))
        return (F.silu(x @ gate.T) * (x @ up.T)) @ down.T

    def _norm(self, x: Tensor, name: str) -> Tensor:
        scale = torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + EPS)
        return x * scale * self._weights[f"{name}.weight"]

    def _rotate(self, x: Tensor, position: Tensor) -> Tensor:
        """Rotates pairs (i, i + WIDTH / 2) of x [rows, heads, WIDTH] by its row's position."""
        speed = THETA ** -(torch.arange(0, WIDTH, 2) / WIDTH)
        angle = (position[:, None] * speed)[:, None]
        first, second = x.chunk(2, dim=-1)
        cos, sin = angle.cos(), angle.sin()
        return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
