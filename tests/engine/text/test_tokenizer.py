"""The tokenizer: lossless, no special token from text, cuts at the right places; packing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clover_engine.errors import CheckpointError

np = pytest.importorskip("numpy")
pytest.importorskip("tokenizers")

from clover_engine.text.tokenizer import SPECIAL_TOKENS, Tokenizer  # noqa: E402
from clover_engine.train import tokenizer as training  # noqa: E402

NANO = Tokenizer.load(training.DEFAULT_TOKENIZER)
SPECIALS = range(len(SPECIAL_TOKENS))
TEXTS = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"])),
    st.lists(
        st.sampled_from(
            [*SPECIAL_TOKENS, "\r", "\n", "\r\n", "\t", " ", "    ", "_", "__", "x", "Ab", "0", "#"]
            + ["é", "日本", "🙂", "\u2028", "\x85", "\xa0", "\x00", "\x0c", "(", '"""', "\ufeff"]
        )
    ).map("".join),
)


def pieces(text: str) -> list[str]:
    """What the pre-tokenizer cuts ``text`` into, in GPT-2's stand-ins for bytes."""
    return [piece for piece, _ in training.untrained().pre_tokenizer.pre_tokenize_str(text)]


@settings(max_examples=400, deadline=None)
@given(TEXTS)
def test_every_text_round_trips_and_gives_no_special_token(text: str) -> None:
    ids = NANO.encode(text)
    assert NANO.decode(ids) == text
    assert NANO.decode_bytes(ids) == text.encode()
    assert all(len(SPECIAL_TOKENS) <= index < NANO.vocab_size for index in ids)


def test_vocabulary() -> None:
    assert NANO.vocab_size == 4096
    assert [NANO.special(name) for name in SPECIAL_TOKENS] == list(SPECIALS)
    named = (NANO.pad, NANO.mask, NANO.eom, NANO.doc, NANO.pre, NANO.suf, NANO.mid)
    assert (*named, NANO.bug, NANO.snip) == tuple(range(9))
    single = {NANO.piece(index) for index in range(16, 4096)}
    assert {bytes([value]) for value in range(256)} <= single
    assert len(single) == 4080


def test_names_of_special_tokens_are_text() -> None:
    text = "".join(SPECIAL_TOKENS)
    assert not set(NANO.encode(text)) & set(SPECIALS)
    assert NANO.decode([1]) == "<mask>"


def test_a_cut_character_decodes_to_a_replacement() -> None:
    ids = NANO.encode("🙂")
    assert len(ids) > 1
    assert NANO.decode(ids[:-1]) == "\ufffd"
    assert NANO.decode_bytes(ids[:-1]) == "🙂".encode()[: len(NANO.decode_bytes(ids[:-1]))]


def test_batch_equals_single() -> None:
    texts = ["def f():\n    return 1\n", "", "<mask>", "x" * 500]
    assert NANO.encode_batch(texts) == [NANO.encode(text) for text in texts]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\n\n    b", ["a", "ĊĊĠĠĠĠ", "b"]),
        ("a\r\n\r\n\tb", ["a", "čĊčĊĉ", "b"]),
        ("a\n  \n  b", ["a", "ĊĠĠ", "ĊĠĠ", "b"]),
        ("return foo_bar", ["return", "Ġfoo", "_bar"]),
        ("x = __init__", ["x", "Ġ=", "Ġ__init", "__"]),
        ("getHTTPResponse", ["getHTTPResponse"]),
        ("x12", ["x", "1", "2"]),
        ("f()): # -", ["f", "())", ":", "Ġ#", "Ġ-"]),
        ("a  # b", ["a", "ĠĠ", "#", "Ġb"]),
        ("_ = 1", ["_", "Ġ=", "Ġ", "1"]),
    ],
)
def test_cuts(text: str, expected: list[str]) -> None:
    assert pieces(text) == expected


def test_training_is_repeatable_and_fills_the_vocabulary(tmp_path: Path) -> None:
    texts = [f"def name_{i}(value):\n    return value + {i}\n" for i in range(200)]
    first, second = training.train(texts, 290), training.train(texts, 290)
    assert first.to_str() == second.to_str()
    first.save(str(tmp_path / "tokenizer.json"))
    loaded = Tokenizer.load(tmp_path)
    assert loaded.vocab_size == 290 and loaded.mask == 1
    assert loaded.decode(loaded.encode("ünïcode\r\n")) == "ünïcode\r\n"


def test_another_models_file_loads(tmp_path: Path) -> None:
    spec = json.loads(training.DEFAULT_TOKENIZER.read_text())
    names = {"<mask>": "<|mask|>", "<doc>": "<|endoftext|>"}
    for entry in spec["added_tokens"]:
        entry["content"] = names.get(entry["content"], entry["content"])
    vocabulary = spec["model"]["vocab"]
    spec["model"]["vocab"] = {names.get(token, token): i for token, i in vocabulary.items()}
    (tmp_path / "tokenizer.json").write_text(json.dumps(spec))
    other = Tokenizer.load(tmp_path)
    assert other.mask is None and other.doc is None and other.pad == 0
    assert other.special("<|mask|>") == 1
    assert not set(other.encode("<|endoftext|>")) & set(SPECIALS)


def test_unusable_files_say_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="point the checkpoint path at"):
        Tokenizer.load(tmp_path)
    file = tmp_path / "tokenizer.json"
    whole = training.DEFAULT_TOKENIZER.read_bytes()
    unigram = b'{"pre_tokenizer": null, "decoder": null, "model": {"type": "Unigram", "vocab": []}}'
    for content in (b"", b"{}", b"[]", b"\xff\xfe", whole[: len(whole) // 2], unigram):
        file.write_bytes(content)
        with pytest.raises(CheckpointError, match="fetch or train the checkpoint again") as caught:
            Tokenizer.load(file)
        assert "\n" not in str(caught.value)


def test_pack(tmp_path: Path) -> None:
    texts = {"train": ["x = 1\n", "def f():\n    pass\n", "é\n"], "val": ["y = 2\n"]}
    for split, documents in texts.items():
        lines = (json.dumps({"package": "p", "path": "a", "text": t}) for t in documents)
        (tmp_path / f"docs-{split}.jsonl").write_text("\n".join(lines) + "\n")
    assert training.main(["pack", "--docs", str(tmp_path), "--out", str(tmp_path / "out")]) == 0
    for split, documents in texts.items():
        tokens = np.fromfile(tmp_path / "out" / f"{split}.bin", dtype="<u2")
        starts = np.load(tmp_path / "out" / f"{split}.idx.npy")
        assert starts.dtype == np.int64 and (tokens[starts] == NANO.doc).all()
        ends = [*starts[1:], len(tokens)]
        cut = [NANO.decode(tokens[a + 1 : b]) for a, b in zip(starts, ends, strict=True)]
        assert cut == documents


def test_packing_leaves_out_what_does_not_fit() -> None:
    tokens, starts, characters = training.pack(NANO, ["x" * 40, "y\n", "z" * 40], room=4)
    assert list(starts) == [0] and characters == 2 and len(tokens) == 3
