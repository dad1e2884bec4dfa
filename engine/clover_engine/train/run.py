"""Trains a Clover from scratch: `python -m clover_engine.train.run --data DIR --out DIR`.

Resumable: every checkpoint holds weights, optimizer state and the step; samples depend only on
(seed, step), so a run that is stopped and started again sees what it would have seen. One
preset per machine: `test` (seconds), `nano` (two CPU cores), `h200` (ten minutes of one GPU).
The log is `train.jsonl` in the output folder, one object a line.
"""

from __future__ import annotations

import argparse
import json
import math
import signal
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from clover_engine.checkpoint.weights import save_model
from clover_engine.model import Clover, CloverConfig
from clover_engine.text.tokenizer import Tokenizer
from clover_engine.train.objective import Losses, add_noise, losses
from clover_engine.train.samples import Batch, Documents, Mix, Sampler, batches


@dataclass(frozen=True, slots=True)
class Preset:
    """Everything that decides a run; lengths and rows are tokens."""

    hidden: int = 256
    layers: int = 6
    mlp: int = 512
    length: int = 512
    batch: int = 8
    block_sizes: tuple[int, ...] = (8, 16, 16, 32)
    noisy_context_rows: int = 160
    steps: int = 2500
    warmup: int = 60
    decay: float = 0.3
    """Share of the steps over which the rate falls to zero (warm-up, stable, decay)."""
    muon_lr: float = 0.02
    adam_lr: float = 0.004
    ar_weight: float = 1.0
    seed: int = 1
    workers: int = 0
    history_unit: bool = True
    right_branch: bool = True
    calibration: bool = True


PRESETS = {
    "test": Preset(hidden=64, layers=3, mlp=96, length=128, batch=2, steps=20, warmup=2),
    "nano": Preset(),
    "h200": Preset(
        hidden=384, layers=6, mlp=768, length=1024, batch=96, noisy_context_rows=320,
        steps=4500, warmup=150, workers=14,
    ),
}  # fmt: skip


def nano_config(p: Preset, tok: Tokenizer) -> CloverConfig:
    """Two GDN layers, then one of full attention, repeated; heads of 64."""
    pattern = ("linear_attention", "linear_attention", "full_attention")
    heads = max(1, p.hidden // 64)
    return CloverConfig(
        vocab_size=tok.vocab_size,
        hidden_size=p.hidden,
        layer_types=tuple(pattern[i % 3] for i in range(p.layers)),  # type: ignore[misc]
        num_attention_heads=heads,
        num_key_value_heads=max(1, heads // 2),
        head_dim=64,
        intermediate_size=p.mlp,
        output_gate=True,
        qk_norm=True,
        linear_num_key_heads=heads,
        linear_num_value_heads=heads,
        linear_key_head_dim=32,
        linear_value_head_dim=64,
        max_position_embeddings=p.length,
        mask_token_id=tok.mask,
    )


def init_weights(model: Clover, layers: int) -> None:
    """Scaled normal initialisation; projections into the residual stream start smaller."""
    for name, p in model.named_parameters():
        if p.ndim == 2 and ".history." not in name and "conv1d" not in name:
            std = 0.02 if "embed" in name else p.shape[1] ** -0.5 * 0.7
            if name.endswith(("o_proj.weight", "out_proj.weight", "down_proj.weight")):
                std /= math.sqrt(2 * layers)
            torch.nn.init.normal_(p, std=std)
        if name.endswith("A_log"):
            torch.nn.init.uniform_(p, 0.02, 2.0)
            p.data.log_()
        if name.endswith("dt_bias"):
            torch.nn.init.constant_(p, -2.0)


def apply_ablation(model: Clover, p: Preset) -> None:
    """Freezes the parts that an ablation switches off at values that take them away."""
    for name, param in model.named_parameters():
        off = (
            (not p.history_unit and ".history.score" in name)
            or (not p.right_branch and name.endswith("conv1d.right"))
            or (not p.calibration and name.endswith("history.calibration"))
        )
        if off:
            param.data.fill_(-1e4 if name.endswith("history.score.bias") else 0.0)
        param.requires_grad_(not off)


def optimizers(model: Clover, p: Preset) -> list[torch.optim.Optimizer]:
    """Muon for the hidden matrices, AdamW for embeddings, convolutions, gates and norms."""
    matrices: list[Tensor] = []
    rest: list[Tensor] = []
    for name, param in model.named_parameters():
        if not param.requires_grad:
            continue
        small = param.ndim != 2 or min(param.shape) < 32 or "embed" in name or "conv1d" in name
        (rest if small or "lm_head" in name else matrices).append(param)
    return [
        torch.optim.Muon(matrices, lr=p.muon_lr, weight_decay=0.02),
        torch.optim.AdamW(rest, lr=p.adam_lr, betas=(0.9, 0.97), weight_decay=0.0),
    ]


def rate(step: int, p: Preset) -> float:
    """Warm-up, stable, linear decay: the factor on every learning rate."""
    left = (p.steps - step) / max(1.0, p.steps * p.decay)
    return min(1.0, (step + 1) / p.warmup, max(left, 0.0))


TOKENIZER_CONFIG = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "pad_token": "<pad>",
    "eos_token": "<eom>",
    "mask_token": "<mask>",
}
"""What a server needs to know of `tokenizer.json` beside itself."""


class _Stream(IterableDataset[tuple[int, Batch]]):
    """Batches from `first` on; loader workers take turns, so the order stays that of the steps."""

    def __init__(self, data: Path, p: Preset, tok: Tokenizer, first: int) -> None:
        self.data, self.p, self.tok, self.first = data, p, tok, first

    def __iter__(self) -> Iterator[tuple[int, Batch]]:
        info = torch.utils.data.get_worker_info()
        turn, turns = (info.id, info.num_workers) if info else (0, 1)
        sampler = Sampler(Documents(self.data, "train"), self.tok, self.p.length, Mix())
        yield from batches(sampler, self.p.batch, self.p.seed, self.first + turn, turns)


class Run:
    """One training run and its folder."""

    def __init__(self, data: Path, out: Path, preset: Preset, device: str) -> None:
        self.p, self.out, self.data, self.device = preset, out, data, device
        out.mkdir(parents=True, exist_ok=True)
        self.tok = Tokenizer.load(data / "tokenizer.json")
        torch.manual_seed(preset.seed)
        self.model = Clover(nano_config(preset, self.tok))
        init_weights(self.model, preset.layers)
        apply_ablation(self.model, preset)
        self.model.to(device)
        self.optimizers = optimizers(self.model, preset)
        self.step, self.seconds = 0, 0.0
        self.stop = False
        self._resume()

    def train(self, save_every_s: float = 300.0) -> None:
        """Runs to the last step, or until SIGTERM/SIGINT, saving on the way out."""
        for sig in (signal.SIGTERM, signal.SIGINT):
            signal.signal(sig, self._ask_stop)
        stream = _Stream(self.data, self.p, self.tok, self.step)
        loader = DataLoader(stream, batch_size=None, num_workers=self.p.workers)
        saved = last = time.monotonic()
        for step, batch in loader:
            if step >= self.p.steps or self.stop:
                break
            result = self._step(step, batch)
            self.step = step + 1
            now = time.monotonic()
            self.seconds += now - last
            last = now
            if step % 20 == 0:
                self._log(step, result)
            if now - saved > save_every_s:
                self._log(step, self.validate(), "val_")
                self.save()
                saved = last = time.monotonic()
        self._log(self.step, self.validate(), "val_")
        self.save()

    def _step(self, step: int, batch: Batch) -> Losses:
        for opt in self.optimizers:
            for group in opt.param_groups:
                group.setdefault("base", group["lr"])
                group["lr"] = group["base"] * rate(step, self.p)
        result = self._losses(step, batch)
        result.total.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for opt in self.optimizers:
            opt.step()
            opt.zero_grad(set_to_none=True)
        return result

    def _losses(self, step: int, batch: Batch) -> Losses:
        rows, middle = torch.from_numpy(batch.ids), batch.middle_rows
        block = self.p.block_sizes[step % len(self.p.block_sizes)]
        generator = torch.Generator().manual_seed(self.p.seed * 1_000_003 + step)
        context = self.p.noisy_context_rows // block
        noise = add_noise(rows, middle, block, context, self.model.mask_id, generator)
        moved = replace(
            noise,
            ids=noise.ids.to(self.device),
            truth=noise.truth.to(self.device),
            masked=noise.masked.to(self.device),
        )
        mixed = torch.autocast(self.device, dtype=torch.bfloat16)
        with mixed if self.p.hidden > 64 else nullcontext():
            rows, weights = rows.to(self.device), torch.from_numpy(batch.weights).to(self.device)
            pad, w = self.tok.required("<pad>"), self.p.ar_weight
            return losses(self.model, rows, weights, moved, middle, pad, w)

    @torch.no_grad()
    def validate(self, count: int = 6) -> Losses:
        """Mean losses over fixed batches of the validation split."""
        sampler = Sampler(Documents(self.data, "val"), self.tok, self.p.length, Mix())
        found = []
        for i in range(count):
            found.append(self._losses(i, sampler.batch(8, 32, Random(f"val/{i}"))))
        return Losses(
            *(torch.stack([getattr(r, n) for r in found]).mean() for n in Losses.__slots__)
        )

    def _log(self, step: int, result: Losses, prefix: str = "") -> None:
        tokens = self.step * self.p.batch * self.p.length
        entry: dict[str, Any] = {"step": step, "tokens": tokens, "seconds": round(self.seconds, 1)}
        for name in Losses.__slots__:
            entry[prefix + name] = round(float(getattr(result, name).detach()), 4)
        entry["rate"] = round(rate(step, self.p), 4)
        line = json.dumps(entry)
        with (self.out / "train.jsonl").open("a", encoding="utf-8") as log:
            log.write(line + "\n")
        print(line, flush=True)

    def _ask_stop(self, *_: object) -> None:
        self.stop = True

    def save(self) -> None:
        """Weights for use (bf16, shards ≤ 16 MiB) and the state to resume from."""
        save_model(self.model, self.out / "checkpoint", torch.bfloat16)
        (self.out / "checkpoint" / "tokenizer.json").write_bytes(
            (self.data / "tokenizer.json").read_bytes()
        )
        (self.out / "checkpoint" / "tokenizer_config.json").write_text(
            json.dumps(TOKENIZER_CONFIG, indent=1) + "\n", "utf-8"
        )
        state = {
            "model": self.model.state_dict(),
            "optimizers": [o.state_dict() for o in self.optimizers],
            "step": self.step,
            "seconds": self.seconds,
            "preset": asdict(self.p),
        }
        partial = self.out / "state.pt.partial"
        torch.save(state, partial)
        partial.replace(self.out / "state.pt")

    def _resume(self) -> None:
        path = self.out / "state.pt"
        if not path.is_file():
            return
        state = torch.load(path, map_location=self.device, weights_only=True)
        self.model.load_state_dict(state["model"])
        for opt, saved in zip(self.optimizers, state["optimizers"], strict=True):
            opt.load_state_dict(saved)
        self.step, self.seconds = state["step"], state["seconds"]


def main() -> None:
    """Command line of the training run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="packed corpus and tokenizer.json")
    parser.add_argument("--out", type=Path, required=True, help="run folder; resumed if it exists")
    parser.add_argument("--preset", choices=sorted(PRESETS), default="nano")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="override a preset field"
    )
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    overrides = {}
    for item in args.set:
        name, _, value = item.partition("=")
        overrides[name] = json.loads(value)
    preset = replace(PRESETS[args.preset], **overrides)
    Run(args.data, args.out, preset, args.device).train()


if __name__ == "__main__":
    main()
