"""The real Qwen2.5-Coder-0.5B, where `make setup-coder` put it; tiny stand-ins are elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from clover_engine.api import InfillRequest, ScoreRequest, Snippet
from clover_engine.checkpoint.catalog import OFFERED
from clover_engine.cpu.grouped_step import GroupedStep
from clover_engine.generation import Question
from clover_engine.inprocess.conversation import InProcessEngine
from clover_engine.loading import LoadedModel, load

FILE = OFFERED["coder-0.5b"].path
pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.skipif(
        not FILE.is_file(), reason="Qwen2.5-Coder-0.5B is not here; run: make setup-coder"
    ),
]
FUNCTION = '''\
def load_settings(path, defaults=None):
    """Reads settings from a file of key = value lines."""
    settings = dict(defaults or {})
    with open(path) as file:
        for line in file:
            name, _, value = line.partition("=")
            settings[name.strip()] = value.strip()
    return settings
'''

LOSS = 1.6876
"""Nats a token of FUNCTION with the weights in float32 and activations that are not rounded."""
BEST = [
    4352, 1769, 3932, 982, 1638, 982, 982, 262, 3190, 5879, 5003, 5003, 504, 264, 1034, 323,
    279, 19083, 897, 13530, 382, 262, 421, 284, 5613, 741, 82, 476, 35248, 262, 448, 1787, 5581,
    11, 438, 1034, 510, 286, 369, 1555, 304, 1034, 510, 310, 1376, 11, 897, 897, 284, 1555,
    17181, 78286, 340, 310, 421, 10934, 60, 26556, 284, 897, 17181, 741, 262, 470, 5003, 271,
    13874,
]  # fmt: skip
"""The most probable token after each of FUNCTION's, likewise."""


@pytest.fixture(scope="module")
def model() -> Iterator[LoadedModel]:
    with load("coder-0.5b", threads=1) as found:
        assert isinstance(found.engine, InProcessEngine)
        assert isinstance(found.engine.model.fused, GroupedStep)
        yield found


def test_its_vocabulary_is_the_models(model: LoadedModel) -> None:
    """Ids that Qwen's own tokenizer gives."""
    assert isinstance(model.engine, InProcessEngine)
    tok = model.engine.tok
    assert tok.encode("Hello, world!") == [9707, 11, 1879, 0]
    assert tok.encode("def f(x):\n    return x") == [750, 282, 2075, 982, 262, 470, 856]
    assert tok.special("<|fim_prefix|>") == 151659
    text = "äöü 12345\r\n\t  if x:\n\n\n        e\u0301"
    assert tok.decode(tok.encode(text)) == text


def test_holes_are_filled_with_what_stands_after_them(model: LoadedModel) -> None:
    request = InfillRequest(
        "def fib(n):\n    if n < 2:\n        return n\n    re", "\n\nprint(fib(10))\n",
        max_tokens=24, stop=("\n",), mode="speculative",
    )  # fmt: skip
    [found] = model.infill(request).choices
    assert found.text.replace(" ", "") in ("turnfib(n-1)+fib(n-2)", "turnfib(n-2)+fib(n-1)")
    healed = InfillRequest(
        "def fib(n):\n    if n < 2:\n        return n\n    ", "\n\nprint(fib(10))\n",
        must_start_with="re", max_tokens=24, stop=("\n",), mode="speculative",
        snippets=(Snippet("LIMIT = 3\n", "limits.py"),),
    )  # fmt: skip
    [found] = model.infill(healed).choices
    assert found.text.startswith("return fib(")


def test_a_single_line_is_made_without_the_lines_below(model: LoadedModel) -> None:
    """The rest of the line itself is read."""
    prefix = "def save_settings(path, settings):\n    with open(path, "

    def asked(suffix: str, **how: Any) -> tuple[str, int]:
        done = model.infill(InfillRequest(prefix, suffix, max_tokens=6, mode="ar", **how))
        return done.choices[0].text, done.stats.prefill_tokens + done.stats.cached_tokens

    rest, below = ") as file:\n", "        json.dump(settings, file)\n\nx = 1\n"
    alone = asked(rest, stop=("\n",))
    assert asked(rest + below, stop=("\n",)) == alone
    assert asked(rest + below)[1] > alone[1], "several lines see what stands below"


def test_a_keystroke_reads_only_what_changed(model: LoadedModel) -> None:
    first = InfillRequest(FUNCTION + "\n\ndef save_settings(", "\n", max_tokens=4)
    cold = model.infill(first).stats
    typed = InfillRequest(FUNCTION + "\n\ndef save_settings(pa", "\n", max_tokens=4)
    warm = model.infill(typed).stats
    assert cold.prefill_tokens > 60 and warm.prefill_tokens < 12


def test_scores_prefer_what_is_right(model: LoadedModel) -> None:
    request = ScoreRequest("def add(a, b):\n    return ", "\n", ("a + b", "a - b", "b @ None"))
    scores = model.score(request).logprobs
    assert scores[0] is not None and scores == tuple(sorted(scores, key=lambda s: -(s or 0)))


def test_conversations_and_decisions(model: LoadedModel) -> None:
    answer = model.generate(
        "Reply with the single word: yes", max_new_tokens=8, thinking=False, stop="."
    )
    assert "yes" in answer.text.lower()
    pieces = list(model.stream("Count: one, two,", max_new_tokens=12))
    assert pieces
    question = Question("Which language is this code?", ("Python", "Cobol"))
    decision = model.decide(FUNCTION, [question, question]).decisions
    assert len(decision) == 2 and all(sum(d.probabilities) == pytest.approx(1) for d in decision)


def test_a_rewrite_is_copied_where_it_can_be(model: LoadedModel) -> None:
    """Drafts from the conversation: the text of decoding one by one, in far fewer passes."""
    question = "Rename the variable `settings` to `found`, change nothing else:\n" + FUNCTION
    options = {"max_new_tokens": 48, "thinking": False}
    plain = model.generate(question, mode="ar", **options)
    drafted = model.generate(question, mode="speculative", **options)
    assert drafted.text == plain.text
    assert drafted.stats.forward_passes < 0.6 * plain.stats.forward_passes


@torch.inference_mode()
def test_rounded_activations_cost_next_to_nothing(model: LoadedModel) -> None:
    assert isinstance(model.engine, InProcessEngine)
    network, tok = model.engine.model, model.engine.tok
    ids = torch.tensor([tok.encode(FUNCTION)])
    logits = network.head(network(ids)[0])[0]
    assert float(F.cross_entropy(logits[:-1], ids[0, 1:])) == pytest.approx(LOSS, abs=0.02)
    same = sum(a == b for a, b in zip(logits.argmax(-1).tolist(), BEST, strict=True))
    assert same >= len(BEST) - 3


@torch.inference_mode()
def test_rows_alone_and_together(model: LoadedModel) -> None:
    """To the bit, at the real sizes."""
    assert isinstance(model.engine, InProcessEngine)
    network, tok = model.engine.model, model.engine.tok
    from clover_engine.model import Cache

    ids = torch.tensor([tok.encode(FUNCTION)[:24]])
    alone, together = Cache(network.config), Cache(network.config)
    rows = torch.cat([network(ids[:, i : i + 1], cache=alone)[0] for i in range(24)], dim=1)
    assert torch.equal(rows, network(ids, cache=together)[0])
