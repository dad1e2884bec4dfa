"""Joint and independent decisions, against a reference written apart from the decoder."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_chat import make_model, write_tokenizer

from clover_engine.api import CancelToken
from clover_engine.errors import RequestCancelled, RequestError
from clover_engine.generation import Decision, DecisionRequest, Question
from clover_engine.inprocess.conversation import InProcessEngine, decision_text
from clover_engine.model import Cache
from clover_engine.text.tokenizer import Tokenizer

pytestmark = pytest.mark.usefixtures("one_thread")
COUNTS = st.lists(st.integers(2, 4), min_size=1, max_size=8)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny") / "tiny-decider"
    write_tokenizer(folder)
    return folder


def engine(folder: Path, seed: int) -> InProcessEngine:
    tok = Tokenizer.load(folder)
    return InProcessEngine(make_model(tok.vocab_size, seed), tok, folder)


def questions(counts: list[int]) -> tuple[Question, ...]:
    options = ("a", "b", "c", "what")
    return tuple(Question(f"what {i}?", options[:n]) for i, n in enumerate(counts))


@torch.inference_mode()
def expected(decider: InProcessEngine, material: str, asked: tuple[Question, ...]) -> list[int]:
    """Masked rows of one block, read afresh over the whole prompt each time."""
    model, tok = decider.model, decider.tok
    template = decider.template
    assert template is not None
    from clover_engine.generation import Message

    said = Message("user", decision_text(material, asked))
    prompt = template.encode((said,), thinking=False).tokens
    letters = [tok.encode(letter)[0] for letter in "ABCD"]  # this tokenizer splits " A"

    def read(ids: list[int]) -> list[dict[int, float]]:
        cache = Cache(model.config)
        model(torch.tensor([prompt]), cache=cache)
        hidden = model(None, torch.tensor([[ids]]), cache)[1]
        found = []
        for row, question in zip(model.head(hidden[0, 0]), asked, strict=True):
            own = letters[: len(question.options)]
            found.append(dict(zip(own, row[own].softmax(0).tolist(), strict=True)))
        return found

    ids = [model.mask_id] * len(asked)
    sure = [0.0] * len(asked)
    while model.mask_id in ids:
        rows = read(ids)
        waiting = [i for i in range(len(ids)) if ids[i] == model.mask_id]
        i = max(waiting, key=lambda i: max(rows[i].values()))
        ids[i] = max(rows[i], key=lambda t: rows[i][t])
        sure[i] = max(rows[i].values())
    for _ in range(2 if len(ids) > 1 else 0):
        before = list(ids)
        for i in sorted(range(len(ids)), key=lambda i: sure[i]):
            row = read([*ids[:i], model.mask_id, *ids[i + 1 :]])[i]
            ids[i] = max(row, key=lambda t: row[t])
            sure[i] = max(row.values())
        if ids == before:
            break
    return [letters.index(t) for t in ids]


@given(COUNTS, st.integers(0, 10_000))
@settings(max_examples=15, deadline=None)
def test_joint_answers_are_the_references(folder: Path, counts: list[int], seed: int) -> None:
    decider, asked = engine(folder, seed), questions(counts)
    result = decider.decide(DecisionRequest(f"what {seed}", asked))
    assert [d.option for d in result.decisions] == expected(decider, f"what {seed}", asked)


@given(COUNTS, st.integers(0, 10_000), st.booleans())
@settings(max_examples=20, deadline=None)
def test_every_decision_is_a_distribution(
    folder: Path, counts: list[int], seed: int, joint: bool
) -> None:
    result = engine(folder, seed).decide(DecisionRequest("def f", questions(counts), joint))
    assert [len(d.probabilities) for d in result.decisions] == counts
    for decision in result.decisions:
        assert sum(decision.probabilities) == pytest.approx(1.0, abs=1e-5)
        assert decision.option == max(
            range(len(decision.probabilities)), key=decision.probabilities.__getitem__
        )


@given(COUNTS, st.integers(0, 10_000))
@settings(max_examples=10, deadline=None)
def test_independent_answers_do_not_see_each_other(
    folder: Path, counts: list[int], seed: int
) -> None:
    decider, asked = engine(folder, seed), questions(counts)
    together = decider.decide(DecisionRequest("what", asked, joint=False)).decisions
    alone = [decider.decide(DecisionRequest("what", (q,))).decisions[0] for q in asked]
    assert [d.option for d in together] == [d.option for d in alone]
    for one, other in zip(together, alone, strict=True):
        assert one.probabilities == pytest.approx(other.probabilities, abs=1e-4)


def test_joint_reads_the_material_once(folder: Path) -> None:
    decider, asked = engine(folder, 1), questions([2, 2, 2, 2])
    material = "what is it? " * 12
    joint = decider.decide(DecisionRequest(material, asked)).stats
    single = engine(folder, 1).decide(DecisionRequest(material, asked, joint=False)).stats
    assert joint.prefill_tokens + joint.cached_tokens < single.prefill_tokens + single.cached_tokens


def test_late_and_cancelled_decisions_are_none(folder: Path) -> None:
    decider = engine(folder, 1)
    with pytest.raises(RequestCancelled):
        decider.decide(DecisionRequest("what", questions([2]), deadline_s=0.0))
    token = CancelToken()
    token.cancel()
    with pytest.raises(RequestCancelled):
        decider.decide(DecisionRequest("what", questions([2, 3])), token)
    decision = decider.decide(DecisionRequest("what", questions([2]))).decisions[0]
    assert isinstance(decision, Decision)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ((), "1 to 8"),
        (questions([2] * 9), "1 to 8"),
        ((Question("q", ("a",)),), "2 to 26"),
        ((Question("q", ("a", "a")),), "different"),
        ((Question("q", tuple(map(str, range(27)))),), "2 to 26"),
    ],
)
def test_bad_questions(folder: Path, asked: tuple[Question, ...], said: str) -> None:
    with pytest.raises(RequestError, match=said):
        engine(folder, 1).decide(DecisionRequest("what", asked))


def test_material_that_does_not_fit(folder: Path) -> None:
    with pytest.raises(RequestError, match="shorten the material"):
        engine(folder, 1).decide(DecisionRequest("what is it? " * 400, questions([2])))
