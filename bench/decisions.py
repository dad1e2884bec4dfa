"""Joint against independent decisions: the same network, the same questions, both ways.

    python bench/decisions.py [--steps 1500] [--cases 300] [--json FILE]

Trains a small Clover (minutes on one core) to judge made-up tenancy cases by rules that link the
questions: whether a notice was in time decides who pays, which decides the refund. Some facts are
missing in the material, so that an answer may be open; the answers must fit each other all the
same. Then every unseen case is asked through `decide`, jointly and one question at a time.
`questions` is the share of right answers, `groups` the share of cases with all answers right,
`consistent` the share of cases whose answers agree with each other by the rules, right or wrong.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import torch
import torch.nn.functional as F

from clover_engine.conversation import InProcessEngine, decision_text
from clover_engine.generation import DecisionRequest, Question
from clover_engine.local import checkpoint_path
from clover_engine.model import Clover, CloverConfig
from clover_engine.tokenizer import Tokenizer

TOPICS = {
    "Notice in time?": ("yes", "no"),
    "Who pays the damage?": ("tenant", "owner"),
    "Deposit goes to?": ("tenant", "owner"),
    "Refund?": ("all", "part", "none"),
    "Close the case?": ("yes", "no"),
}


@dataclass(frozen=True, slots=True)
class Case:
    material: str
    questions: tuple[Question, ...]
    answers: tuple[int, ...]


FACTS = {"Notice": "early late", "Rent": "paid due", "Damage": "large small"}
MISSING = 0.35
"""Share of the facts that the material does not tell."""


def judged(in_time: bool, paid: bool, large: bool) -> dict[str, str]:
    """The rules: each answer follows from the facts and from answers before it."""
    payer = "owner" if in_time and paid else "tenant"
    keeper = "owner" if payer == "tenant" and large else "tenant"
    refund = "none" if keeper == "owner" else "all" if payer == "owner" else "part"
    return {
        "Notice in time?": "yes" if in_time else "no",
        "Who pays the damage?": payer,
        "Deposit goes to?": keeper,
        "Refund?": refund,
        "Close the case?": "yes" if refund != "part" and in_time else "no",
    }


def consistent(answers: dict[str, str]) -> bool:
    """Could some facts have led to these answers?"""
    in_time, payer = answers["Notice in time?"] == "yes", answers["Who pays the damage?"]
    keeper, refund = answers["Deposit goes to?"], answers["Refund?"]
    closed = answers["Close the case?"] == "yes"
    expected = "none" if keeper == "owner" else "all" if payer == "owner" else "part"
    possible = (payer == "tenant" or in_time) and (keeper == "tenant" or payer == "tenant")
    return possible and refund == expected and closed == (refund != "part" and in_time)


def make_case(rng: Random, count: int) -> Case:
    facts = [rng.random() < 0.5 for _ in FACTS]
    truth = judged(*facts)
    told = []
    for fact, (name, words) in zip(facts, FACTS.items(), strict=True):
        known = words.split()[not fact] if rng.random() >= MISSING else "unknown"
        told.append(f"{name} {known}.")
    rng.shuffle(told)
    material = " ".join(told)
    questions, answers = [], []
    for topic in rng.sample(list(TOPICS), count):
        options = list(TOPICS[topic])
        rng.shuffle(options)
        questions.append(Question(topic, tuple(options)))
        answers.append(options.index(truth[topic]))
    return Case(material, tuple(questions), tuple(answers))


def network(tok: Tokenizer) -> Clover:
    torch.manual_seed(1)
    kinds = ("linear_attention", "full_attention") * 2
    return Clover(
        CloverConfig(
            vocab_size=tok.vocab_size, hidden_size=128, layer_types=kinds,  # type: ignore[arg-type]
            num_attention_heads=4, num_key_value_heads=2, head_dim=32, intermediate_size=256,
            output_gate=True, qk_norm=True, linear_num_key_heads=4, linear_num_value_heads=4,
            linear_key_head_dim=32, linear_value_head_dim=32, tie_word_embeddings=True,
            max_position_embeddings=512, mask_token_id=tok.mask,
        )
    )  # fmt: skip


def train(model: Clover, tok: Tokenizer, steps: int, batch: int = 24) -> None:
    """Cross-entropy on masked answers: any number of questions, any share of masks."""
    letters = torch.tensor([tok.encode(" " + c)[0] for c in "ABC"])
    rng = Random("train")
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=steps)
    waiting: dict[tuple[int, int], list[tuple[list[int], Case]]] = defaultdict(list)
    began = time.monotonic()
    for step in range(steps):
        while True:
            case = make_case(rng, rng.choice((1, 1, 2, 3, 4, 5, 5)))
            ids = tok.encode(decision_text(case.material, case.questions) + "\nAnswers:")
            group = waiting[len(ids), len(case.questions)]
            group.append((ids, case))
            if len(group) == batch:
                break
        prompts = torch.tensor([ids for ids, _ in group])
        truth = letters[torch.tensor([case.answers for _, case in group])]  # [N, B]
        group.clear()
        masked = torch.rand(truth.shape) < 1.0 - torch.rand(len(truth), 1)
        masked |= ~masked.any(1, keepdim=True) & (torch.arange(truth.shape[1]) == 0)
        assert tok.mask is not None
        block = truth.masked_fill(masked, tok.mask)
        _, hidden = model(prompts, block[:, None])
        loss = F.cross_entropy(model.head(hidden[:, 0][masked]), truth[masked])
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 100 == 99:
            took = time.monotonic() - began
            print(f"step {step + 1}: loss {float(loss.detach()):.3f}, {took:.0f} s", flush=True)


def measure(engine: InProcessEngine, cases: list[Case]) -> dict[str, dict[str, float]]:
    rows: dict[str, dict[str, float]] = {}
    for name, joint in (("joint", True), ("independent", False)):
        right = groups = agree = asked = passes = 0
        seconds = 0.0
        for case in cases:
            result = engine.decide(DecisionRequest(case.material, case.questions, joint))
            hits = [d.option == a for d, a in zip(result.decisions, case.answers, strict=True)]
            chosen = {
                q.text: q.options[d.option]
                for q, d in zip(case.questions, result.decisions, strict=True)
            }
            right, asked, groups = right + sum(hits), asked + len(hits), groups + all(hits)
            agree += consistent(chosen)
            passes, seconds = passes + result.stats.forward_passes, seconds + result.stats.seconds
        count = len(cases)
        rows[name] = {
            "questions": right / asked, "groups": groups / count, "consistent": agree / count,
            "passes": passes / count, "ms": 1000 * seconds / count,
        }  # fmt: skip
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--cases", type=int, default=300)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    tok = Tokenizer.load(checkpoint_path())
    model = network(tok)
    train(model, tok, args.steps)
    rng = Random("unseen")
    cases = [make_case(rng, len(TOPICS)) for _ in range(args.cases)]
    with TemporaryDirectory() as folder:
        rows = measure(InProcessEngine(model.eval(), tok, Path(folder)), cases)
    print("\n| way | questions | groups | consistent | passes a case | ms a case |\n|-|-|-|-|-|-|")
    for name, row in rows.items():
        print(
            f"| {name} | {row['questions']:.1%} | {row['groups']:.1%} | {row['consistent']:.1%} "
            f"| {row['passes']:.1f} | {row['ms']:.0f} |"
        )
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
