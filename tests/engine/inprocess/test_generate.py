"""`clover_engine.load(folder).generate(…)`: templates, thinking, streaming, the decoders' law."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_chat import SPECIALS, TEMPLATE, make_model, teach, write_checkpoint, write_tokenizer

import clover_engine
from clover_engine.api import CancelToken
from clover_engine.errors import CheckpointError, RequestError
from clover_engine.generation import GenerateRequest, Message, Piece, TextEngine
from clover_engine.inprocess.conversation import InProcessEngine
from clover_engine.loading import LoadedModel
from clover_engine.text.chat import ChatTemplate, stop_tokens
from clover_engine.text.tokenizer import Tokenizer

pytestmark = pytest.mark.usefixtures("one_thread")
END = SPECIALS.index("<|im_end|>")
SAID = "<think>\nhmm, ünd\n</think>\n\nYes:\n  it is é.<|im_end|>"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("tiny") / "tiny-chat")


@pytest.fixture(scope="module")
def model(folder: Path) -> LoadedModel:
    return clover_engine.load(folder)


@pytest.fixture(scope="module")
def taught(folder: Path) -> LoadedModel:
    """Answers "what is it?" with `SAID`."""
    tok = Tokenizer.load(folder)
    template = ChatTemplate.load(folder, tok)
    assert template is not None
    prompt = template.encode((Message("user", "what is it?"),), True).tokens
    thought, answer = SAID.removeprefix("<think>\n").removesuffix("<|im_end|>").split("</think>")
    said = [*tok.encode(thought), tok.required("</think>"), *tok.encode(answer), END]
    network = make_model(tok.vocab_size, seed=3)
    teach(network, [*prompt, *said])
    return LoadedModel(InProcessEngine(network, tok, folder))


@pytest.mark.parametrize("mode", ["ar", "speculative"])
def test_thinking_and_answer_come_apart(taught: LoadedModel, mode: str) -> None:
    result = taught.generate("what is it?", thinking=True, mode=mode)
    assert result.thinking == "hmm, ünd"
    assert result.text == "Yes:\n  it is é."
    assert result.finish_reason == "eom"


def test_a_stream_is_the_result_in_pieces(taught: LoadedModel) -> None:
    whole = taught.generate("what is it?")
    pieces = list(taught.stream("what is it?"))
    assert len(pieces) > 3
    assert "\ufffd" not in "".join(p.text for p in pieces), "a character was torn"
    assert "".join(p.text for p in pieces if p.kind == "thinking") == whole.thinking
    assert "".join(p.text for p in pieces if p.kind == "answer") == whole.text


@pytest.mark.parametrize(("stop", "text"), [("it", "Yes:\n  "), ("s:\n", "Ye"), ("hmm", None)])
def test_stop_strings_end_the_answer_only(taught: LoadedModel, stop: str, text: str | None) -> None:
    pieces: list[Piece] = []
    request = GenerateRequest((Message("user", "what is it?"),), stop=(stop,))
    result = taught.engine.generate(request, None, pieces.append)
    assert result.thinking == "hmm, ünd"
    assert result.text == (text if text is not None else "Yes:\n  it is é.")
    assert result.finish_reason == ("stop" if text is not None else "eom")
    assert "".join(p.text for p in pieces if p.kind == "answer") == result.text


@pytest.mark.parametrize("thinking", [True, False])
def test_templates_render_as_transformers_does(folder: Path, thinking: bool) -> None:
    from transformers import PreTrainedTokenizerFast

    theirs = PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "tokenizer.json"),
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
    )
    theirs.chat_template = TEMPLATE
    turns = [
        Message("system", "Be brief.\n"),
        Message("user", "  what is it? äöü 漢\t"),
        Message("assistant", "<think>\nno idea\n</think>\n\nA cat."),
        Message("user", "def f(a, b): return a"),
    ]
    tok = Tokenizer.load(folder)
    ours = ChatTemplate.load(folder, tok)
    assert ours is not None
    dicts = [{"role": m.role, "content": m.content} for m in turns]
    options = {"add_generation_prompt": True, "enable_thinking": thinking}
    text = theirs.apply_chat_template(dicts, tokenize=False, **options)
    assert ours.render(turns, thinking) == text
    expected = theirs(text, add_special_tokens=False)["input_ids"]
    conversation = ours.encode(turns, thinking)
    assert conversation.tokens == expected
    assert conversation.opening == ("thinking" if thinking else "answer")


@given(
    st.lists(
        st.lists(st.sampled_from([*SPECIALS, "a", " ", "\n", "é", "\U000f0000"])).map("".join),
        min_size=1,
        max_size=3,
    )
)
@settings(max_examples=60, deadline=None)
def test_what_a_user_types_is_never_a_special_token(folder: Path, contents: list[str]) -> None:
    tok = Tokenizer.load(folder)
    template = ChatTemplate.load(folder, tok)
    assert template is not None
    turns = [Message("user", content) for content in contents]
    tokens = template.encode(turns, thinking=True).tokens
    assert tokens.count(END) == len(turns)
    assert tokens.count(SPECIALS.index("<|im_start|>")) == len(turns) + 1
    assert tokens.count(SPECIALS.index("<mask>")) == 0
    assert tok.decode(tokens) == template.render(turns, thinking=True)


@given(st.integers(0, 10_000), st.integers(1, 8), st.sampled_from([2, 5, 16]), st.booleans())
@settings(max_examples=12, deadline=None)
def test_speculative_is_autoregressive(
    folder: Path, seed: int, turns: int, block: int, thinking: bool
) -> None:
    tok = Tokenizer.load(folder)
    engine = InProcessEngine(make_model(tok.vocab_size, seed), tok, folder)
    messages = tuple(
        Message("user" if i % 2 == 0 else "assistant", f"what {i} is {seed}") for i in range(turns)
    )
    results = [
        engine.generate(
            GenerateRequest(messages, 24, thinking=thinking, mode=mode, block_size=block)
        )
        for mode in ("ar", "speculative")
    ]
    assert results[0].text == results[1].text
    assert results[0].thinking == results[1].thinking
    assert results[0].finish_reason == results[1].finish_reason


@pytest.mark.parametrize("mode", ["speculative", "threshold"])
def test_a_base_model_without_a_mask_converses_token_by_token(folder: Path, mode: str) -> None:
    tok = Tokenizer.load(folder)
    base = make_model(tok.vocab_size, seed=4)
    base.config = base.config.with_(mask_token_id=None)
    model = LoadedModel(InProcessEngine(base, tok, folder))
    plain = model.generate("what", max_new_tokens=20, mode="ar")
    assert model.generate("what", max_new_tokens=20, mode=mode).text == plain.text


def test_the_next_turn_reuses_the_conversation(folder: Path) -> None:
    with clover_engine.load(folder) as model:
        first = model.generate("what is it? " * 20, max_new_tokens=4)
        again = model.generate("what is it? " * 20, max_new_tokens=4)
    assert first.stats.cached_tokens == 0
    assert again.stats.prefill_tokens == 0
    assert first.text == again.text and first.thinking == again.thinking


@pytest.mark.parametrize("mode", ["ar", "speculative", "threshold"])
def test_length_and_samples(model: LoadedModel, mode: str) -> None:
    options = {"max_new_tokens": 9, "mode": mode, "temperature": 0.8, "thinking": False}
    one, two = (model.generate("what", seed=5, **options) for _ in range(2))
    assert one.text == two.text
    assert one.stats.tokens <= 9
    assert len({model.generate("what", seed=s, **options).text for s in range(6)}) > 1


def test_the_answer_ends_where_the_context_does(tmp_path: Path) -> None:
    small = clover_engine.load(write_checkpoint(tmp_path / "small", context=48))
    result = small.generate("what", max_new_tokens=24576)
    assert result.finish_reason in ("length", "eom")
    with pytest.raises(RequestError, match="shorten"):
        small.generate("what is it? " * 60)


def test_cancel_and_deadline(model: LoadedModel) -> None:
    cancel = CancelToken()
    seen: list[Piece] = []

    def stop(piece: Piece) -> None:
        seen.append(piece)
        cancel.cancel()

    request = GenerateRequest((Message("user", "what"),), 400, thinking=False, mode="ar")
    result = model.engine.generate(request, cancel, stop)
    assert result.finish_reason == "cancelled"
    assert len(result.text) < 40
    late = model.generate("what", max_new_tokens=400, mode="ar", deadline_s=0.05)
    assert late.finish_reason in ("deadline", "eom", "length")


def test_leaving_a_stream_stops_the_work(model: LoadedModel) -> None:
    stream = model.stream("what", max_new_tokens=450, thinking=False, mode="ar")
    next(stream)
    stream.close()
    assert not [t for t in threading.enumerate() if t.name == "clover-stream"]


def test_errors_of_a_stream_reach_the_caller(model: LoadedModel) -> None:
    with pytest.raises(RequestError, match="max_new_tokens"):
        next(model.stream("what", max_new_tokens=0))


@pytest.mark.parametrize(
    ("messages", "options", "said"),
    [
        ([], {}, "at least one"),
        ([{"role": "user"}], {}, "content"),
        ([{"role": "robot", "content": "x"}], {}, "role"),
        ([{"role": "tool", "content": "x"}], {}, "no tools here"),
        ("x", {"mode": "magic"}, "mode"),
        ("x", {"temperature": -1.0}, "temperature"),
        ("x", {"max_tokens": 3}, "max_new_tokens"),
    ],
)
def test_bad_requests(
    model: LoadedModel, messages: object, options: dict[str, object], said: str
) -> None:
    with pytest.raises(RequestError, match=said):
        model.generate(messages, **options)  # type: ignore[arg-type]


def test_a_model_without_a_template_says_so(tmp_path: Path) -> None:
    from clover_engine.checkpoint.weights import save_model

    vocab = write_tokenizer(tmp_path / "bare", template=None)
    save_model(make_model(vocab), tmp_path / "bare", __import__("torch").float32)
    with pytest.raises(RequestError, match="no chat template"):
        clover_engine.load(tmp_path / "bare").generate("what")


def test_broken_templates_and_folders(tmp_path: Path, folder: Path) -> None:
    tok = Tokenizer.load(folder)
    with pytest.raises(CheckpointError, match="no valid Jinja"):
        ChatTemplate("{% for %}", tok, {})
    escape = ChatTemplate("{{ ''.__class__.__mro__[1].__subclasses__() }}", tok, {})
    with pytest.raises(RequestError, match="unsafe"):
        escape.render((Message("user", "x"),), True)
    with pytest.raises(CheckpointError, match="config.json"):
        clover_engine.load(tmp_path)


def test_what_ends_a_turn(tmp_path: Path, folder: Path) -> None:
    tok = Tokenizer.load(folder)
    assert END in stop_tokens(folder, tok)
    other = tmp_path / "other"
    other.mkdir()
    (other / "generation_config.json").write_text('{"eos_token_id": [7, 99999]}', "utf-8")
    assert 7 in stop_tokens(other, tok) and 99999 not in stop_tokens(other, tok)


def test_devices_and_precisions(folder: Path) -> None:
    for options, said in (({"device": "hpu"}, "cannot be used"), ({"dtype": "int8"}, "bfloat16")):
        with pytest.raises(CheckpointError, match=said):
            clover_engine.load(folder, **options)  # type: ignore[arg-type]
    half = clover_engine.load(folder, dtype="bfloat16")
    assert half.generate("what", max_new_tokens=4).stats.tokens <= 4


def test_the_engine_offers_everything(model: LoadedModel) -> None:
    assert isinstance(model.engine, TextEngine)
    health = model.health()
    assert health.ready and health.model == "tiny-chat" and health.parameters > 1000


def test_importing_the_package_needs_no_torch() -> None:
    code = "import sys, clover_engine; clover_engine.load; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
