"""Trains the adapter of a converted base model to draft: `python -m clover_engine.train.adapter`.

    python -m clover_engine.checkpoint.convert model.gguf DIR --adapter-rank 8
    python -m clover_engine.train.adapter --checkpoint DIR --data DOCS --out RUN --steps 500
    python -m clover_engine.checkpoint.convert model.gguf NEW --adapter RUN/adapter.safetensors

The base is frozen; what learns is the low-rank adapter of masked rows and their embedding. Blocks
of masks stand all along a text. Their targets are the distributions of the model's own clean rows,
which know the text between, since those rows are what accepts a draft (distillation; nats a row).
Resumable like `train.run`: samples depend on (seed, step) alone. `RUN/adapter.safetensors` is what
learned, in bfloat16; the log is `RUN/adapter.jsonl`. `--evaluate` prints acceptance and ends.
"""

from __future__ import annotations

import argparse
import bisect
import itertools
import json
import signal
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor

from clover_engine.checkpoint.weights import load_model
from clover_engine.errors import CheckpointError
from clover_engine.model import Cache, Clover
from clover_engine.text.tokenizer import Tokenizer

FILE = "adapter.safetensors"


@dataclass(frozen=True, slots=True)
class Plan:
    """What decides a run; lengths are tokens."""

    steps: int = 500
    length: int = 320
    """Clean rows of one step."""
    draft: int = 7
    """Masked rows of a block."""
    spacing: int = 8
    """A block begins every so many tokens."""
    lr: float = 2e-3
    warmup: int = 20
    decay: float = 0.5
    """Share of the steps over which the rate falls to zero."""
    seed: int = 1

    def rate(self, step: int) -> float:
        left = (self.steps - step) / max(1.0, self.steps * self.decay)
        return min(1.0, (step + 1) / self.warmup, max(left, 0.0))


class Texts:
    """Token windows of the texts in a `docs-*.jsonl`; every byte of the file is equally likely."""

    def __init__(self, path: Path, tokenizer: Tokenizer) -> None:
        self.path, self.tok = path, tokenizer
        with path.open("rb") as file:
            self.ends = list(itertools.accumulate(len(line) for line in file))

    def window(self, length: int, rng: Random) -> list[int]:
        """Exactly `length` tokens of one document, from the beginning of a line on."""
        while True:
            with self.path.open("rb") as file:
                i = bisect.bisect_right(self.ends, rng.randrange(self.ends[-1]))
                file.seek(self.ends[i - 1] if i else 0)
                text = str(json.loads(file.readline())["text"])
            at = text.rfind("\n", 0, rng.randrange(len(text) + 1)) + 1
            ids = self.tok.encode(text[at : at + 8 * length])[:length]
            if len(ids) == length:
                return ids


def block_rows(
    model: Clover, ids: list[int], plan: Plan, offset: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Logits of masked rows [blocks, draft, vocab], of the clean rows that judge them, and the
    tokens that stand there. `offset` shifts the first block."""
    starts = tuple(range(plan.spacing + offset, len(ids) - plan.draft - 1, plan.spacing))
    cache = Cache(model.config)
    with torch.no_grad():
        clean, _ = model(torch.tensor([ids]), cache=cache)
    masks = torch.full((1, len(starts), plan.draft), model.mask_id)
    _, hidden = model(None, masks, cache, update=False, starts=starts)
    # Row j of a block stands at start + j and predicts `block_shift` further; so does a clean row
    # that stands one place before what it predicts.
    places = torch.tensor(starts)[:, None] + torch.arange(plan.draft) + model.config.block_shift
    with torch.no_grad():
        judges = model.head(clean[0, places - 1])
    return model.head(hidden[0]), judges, torch.tensor(ids)[places]


@torch.no_grad()
def evaluate(model: Clover, texts: Texts, plan: Plan, windows: int = 12) -> dict[str, Any]:
    """On fixed windows: how often each masked row's best token is the clean rows' best (by place),
    and how many tokens in a row that makes for a draft from its second known token on."""
    agree = []
    for i in range(windows):
        ids = texts.window(plan.length, Random(f"evaluate/{i}"))
        rows, judges, _ = block_rows(model, ids, plan, 0)
        agree.append(rows.argmax(-1) == judges.argmax(-1))
    hits = torch.cat(agree).float()  # [blocks, draft]
    return {
        "blocks": len(hits),
        "agreement": [round(float(v), 3) for v in hits.mean(0)],
        "accepted": round(float(hits.cumprod(-1).sum(-1).mean()), 3),
    }


class AdapterRun:
    """One run and its folder."""

    def __init__(self, checkpoint: Path, data: Path, out: Path, plan: Plan) -> None:
        self.plan, self.out = plan, out
        self.model = load_model(checkpoint, torch.bfloat16)
        if self.model.adapter is None:
            raise CheckpointError(
                f"{checkpoint} has no adapter; convert its base again with --adapter-rank 8"
            )
        self.texts = Texts(data, Tokenizer.load(checkpoint))
        self.model.requires_grad_(False)
        self.trained = dict(self.model.adapter.named_parameters(prefix="adapter"))
        if self.model.config.mask_embedding:
            self.trained["model.mask_embedding"] = self.model.model.mask_embedding
        for parameter in self.trained.values():
            parameter.data = parameter.data.float()  # the base is bfloat16, what learns is not
            parameter.requires_grad_(True)
        self.optimizer = torch.optim.AdamW(
            self.trained.values(), lr=plan.lr, betas=(0.9, 0.98), weight_decay=0.0
        )
        self.step, self.seconds, self.stop = 0, 0.0, False
        out.mkdir(parents=True, exist_ok=True)
        self._resume()

    def train(self, save_every_s: float = 120.0) -> None:
        """Runs to the last step, or until SIGTERM/SIGINT; saves on the way and at the end."""
        for sig in (signal.SIGTERM, signal.SIGINT):
            signal.signal(sig, self._ask_stop)
        saved = last = time.monotonic()
        while self.step < self.plan.steps and not self.stop:
            loss = self._train_step()
            self.step += 1
            now = time.monotonic()
            self.seconds += now - last
            last = now
            if self.step % 10 == 0:
                self._log({"loss": round(loss, 4)})
            if now - saved > save_every_s:
                self.save()
                saved = now
        self.save()

    def _train_step(self) -> float:
        for group in self.optimizer.param_groups:
            group["lr"] = self.plan.lr * self.plan.rate(self.step)
        rng = Random(f"{self.plan.seed}/{self.step}")
        ids = self.texts.window(self.plan.length, rng)
        rows, judges, _ = block_rows(self.model, ids, self.plan, rng.randrange(self.plan.spacing))
        wanted = judges.float().softmax(-1).flatten(0, 1)
        loss = F.cross_entropy(rows.float().flatten(0, 1), wanted)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.trained.values(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return float(loss.detach())

    def save(self) -> None:
        """What learned, for `train.convert --adapter`, and the state to resume from."""
        tensors = {n: p.detach().to(torch.bfloat16).contiguous() for n, p in self.trained.items()}
        state = {
            "trained": {n: p.detach() for n, p in self.trained.items()},
            "optimizer": self.optimizer.state_dict(),
            "step": self.step,
            "seconds": self.seconds,
            "plan": asdict(self.plan),
        }
        partial = self.out / "partial"
        save_file(tensors, str(partial))
        partial.replace(self.out / FILE)
        torch.save(state, partial)
        partial.replace(self.out / "adapter-state.pt")

    def _resume(self) -> None:
        path = self.out / "adapter-state.pt"
        if not path.is_file():
            return
        state = torch.load(path, weights_only=True)
        for name, parameter in self.trained.items():
            parameter.data.copy_(state["trained"][name])
        self.optimizer.load_state_dict(state["optimizer"])
        self.step, self.seconds = state["step"], state["seconds"]

    def _log(self, entry: dict[str, Any]) -> None:
        entry = {"step": self.step, "seconds": round(self.seconds, 1), **entry}
        line = json.dumps(entry)
        with (self.out / "adapter.jsonl").open("a", encoding="utf-8") as log:
            log.write(line + "\n")
        print(line, flush=True)

    def _ask_stop(self, *_: object) -> None:
        self.stop = True


def main() -> int:
    """Command line of the training run."""
    plan = Plan()
    parser = argparse.ArgumentParser(
        prog="python -m clover_engine.train.adapter",
        description="Train the adapter of a converted base model to draft.",
    )
    parser.add_argument("--checkpoint", type=Path, required=True, help="converted, with an adapter")
    parser.add_argument("--data", type=Path, required=True, help="a docs-*.jsonl of train.corpus")
    parser.add_argument("--out", type=Path, required=True, help="run folder; resumed if it exists")
    parser.add_argument("--steps", type=int, default=plan.steps)
    parser.add_argument("--length", type=int, default=plan.length)
    parser.add_argument("--lr", type=float, default=plan.lr)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--evaluate", action="store_true", help="print acceptance, train nothing")
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    try:
        chosen = Plan(steps=args.steps, length=args.length, lr=args.lr)
        run = AdapterRun(args.checkpoint, args.data, args.out, chosen)
    except (CheckpointError, OSError) as error:
        print(f"adapter: {error}", file=sys.stderr)
        return 2
    if args.evaluate:
        print(json.dumps({"step": run.step, **evaluate(run.model, run.texts, chosen)}))
    else:
        run.train()
    return 0


if __name__ == "__main__":
    sys.exit(main())
