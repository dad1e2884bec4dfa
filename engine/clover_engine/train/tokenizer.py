"""Trains clover-nano's tokenizer and packs the corpus into token files.

    python -m clover_engine.train.tokenizer train --docs DIR --out FILE [--sample-mb 20]
    python -m clover_engine.train.tokenizer pack --docs DIR --out DIR [--tokenizer FILE]

``DIR`` is what ``clover_engine.train.corpus`` wrote. ``pack`` writes ``train.bin`` and
``val.bin`` (little-endian uint16, documents back to back, each after one ``<doc>``) and
``train.idx.npy`` and ``val.idx.npy`` (int64, where each document's ``<doc>`` stands).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
from tokenizers import Regex, decoders, models, pre_tokenizers, trainers
from tokenizers import Tokenizer as Backend

from clover_engine.text.tokenizer import SPECIAL_TOKENS, Tokenizer

VOCAB_SIZE = 4096
MAX_PACKED_BYTES = 60 * 1024 * 1024
DEFAULT_TOKENIZER = Path(__file__).parent.parent / "weights" / "nano" / "tokenizer.json"

PATTERN = "|".join(
    (
        r"(?:\r?\n)+[ \t]*",  # newlines and the indentation after them
        r" ?_*[A-Za-z]+",  # a word, with the underscores and the one space before it
        r"[0-9]",  # digits one by one
        r" ?[^\sA-Za-z0-9_]{1,3}",  # punctuation, and every other script
        r" ?_+",  # underscores that no letter follows
        r"[^\S\r\n]+|\r",  # other whitespace
    )
)
"""How text is cut before merges are looked for; no merge crosses a cut."""


def untrained() -> Backend:
    """Byte-level BPE without merges: lossless, all 256 bytes are tokens."""
    backend = Backend(models.BPE(dropout=None, fuse_unk=False, byte_fallback=False))
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PATTERN), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    backend.decoder = decoders.ByteLevel()
    return backend


def train(texts: Iterable[str], vocab_size: int = VOCAB_SIZE) -> Backend:
    """Learns the merges; the special tokens take the first ids."""
    backend = untrained()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        max_token_length=24,
        show_progress=False,
    )
    backend.train_from_iterator(texts, trainer=trainer)
    return backend


def read_documents(path: Path) -> Iterator[str]:
    """The texts of a ``docs-*.jsonl``."""
    with path.open(encoding="utf-8") as handle:
        for line in handle:
            yield str(json.loads(line)["text"])


def sample(texts: Iterable[str], limit: int) -> Iterator[str]:
    """The first texts, ``limit`` characters of them; the corpus is in hash order."""
    taken = 0
    for text in texts:
        taken += len(text)
        if taken > limit:
            return
        yield text


def pack(
    tokenizer: Tokenizer, texts: Iterable[str], room: int
) -> tuple[np.ndarray, np.ndarray, int]:
    """(tokens, document starts, characters) of whole documents, at most ``room`` tokens."""
    chunks: list[np.ndarray] = []
    starts: list[int] = []
    position = characters = 0
    source = iter(texts)
    while batch := list(islice(source, 256)):
        for text, ids in zip(batch, tokenizer.encode_batch(batch), strict=True):
            if position + len(ids) + 1 > room:
                continue
            chunks.append(np.array([tokenizer.doc, *ids], dtype="<u2"))
            starts.append(position)
            position += len(ids) + 1
            characters += len(text)
    tokens = np.concatenate(chunks) if chunks else np.zeros(0, dtype="<u2")
    return tokens, np.array(starts, dtype=np.int64), characters


def pack_corpus(docs: Path, out: Path, tokenizer: Tokenizer) -> dict[str, dict[str, float]]:
    """Writes the token files of both splits, within ``MAX_PACKED_BYTES`` together."""
    out.mkdir(parents=True, exist_ok=True)
    room = MAX_PACKED_BYTES // 2 - 65_536  # two bytes a token; the rest for the starts
    report: dict[str, dict[str, float]] = {}
    for split in ("val", "train"):
        texts = read_documents(docs / f"docs-{split}.jsonl")
        tokens, starts, characters = pack(tokenizer, texts, room)
        room -= len(tokens) + 4 * len(starts)
        tokens.tofile(out / f"{split}.bin")
        np.save(out / f"{split}.idx.npy", starts)
        report[split] = {
            "documents": len(starts),
            "tokens": len(tokens),
            "characters": characters,
            "chars_per_token": round(characters / max(1, len(tokens) - len(starts)), 4),
        }
    return report


def main(argv: Sequence[str] | None = None) -> int:
    """Trains or packs; see the module's docstring."""
    parser = argparse.ArgumentParser(description="train the tokenizer, pack the corpus")
    commands = parser.add_subparsers(dest="command", required=True)
    training = commands.add_parser("train")
    training.add_argument("--docs", type=Path, required=True)
    training.add_argument("--out", type=Path, default=DEFAULT_TOKENIZER)
    training.add_argument("--sample-mb", type=float, default=20.0)
    packing = commands.add_parser("pack")
    packing.add_argument("--docs", type=Path, required=True)
    packing.add_argument("--out", type=Path, required=True)
    packing.add_argument("--tokenizer", type=Path, default=DEFAULT_TOKENIZER)
    args = parser.parse_args(argv)
    if args.command == "train":
        texts = sample(read_documents(args.docs / "docs-train.jsonl"), int(args.sample_mb * 1e6))
        backend = train(texts)
        args.out.parent.mkdir(parents=True, exist_ok=True)
        backend.save(str(args.out), pretty=False)
        print(json.dumps({"vocab_size": backend.get_vocab_size()}))
    else:
        report = pack_corpus(args.docs, args.out, Tokenizer.load(args.tokenizer))
        print(json.dumps(report, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
