"""The tokenizer that a checkpoint ships as ``tokenizer.json``.

``Tokenizer`` reads clover-nano's own file and those of other models with byte-level BPE.
Encoding never produces a special token: those are added by code, by id, so a user's file that
contains the text ``<mask>`` stays text. With clover-nano's file it is lossless for every text;
another model's file may normalise Unicode, as that model was trained.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from clover_engine.errors import CheckpointError

SPECIAL_TOKENS: tuple[str, ...] = (
    "<pad>", "<mask>", "<eom>", "<doc>", "<pre>", "<suf>", "<mid>", "<bug>", "<snip>",
    "<r9>", "<r10>", "<r11>", "<r12>", "<r13>", "<r14>", "<r15>",
)  # fmt: skip
"""The special tokens of clover-nano's vocabulary; each one's id is its place here."""


def byte_characters() -> dict[str, int]:
    """The printable stand-in that byte-level BPE uses for each byte, and that byte."""
    kept = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {chr(byte): byte for byte in kept}
    others = (byte for byte in range(256) if byte not in set(kept))
    return table | {chr(256 + place): byte for place, byte in enumerate(others)}


class Tokenizer:
    """Text to token ids and back. Make one with :meth:`load`."""

    def __init__(self, backend: Any, pieces: Sequence[bytes], specials: dict[str, int]) -> None:
        self._backend = backend
        self._pieces = pieces
        self._specials = specials
        self.vocab_size: int = len(pieces)
        self.pad = specials.get("<pad>")
        self.mask = specials.get("<mask>")
        self.eom = specials.get("<eom>")
        self.doc = specials.get("<doc>")
        self.pre = specials.get("<pre>")
        self.suf = specials.get("<suf>")
        self.mid = specials.get("<mid>")
        self.bug = specials.get("<bug>")
        self.snip = specials.get("<snip>")

    @classmethod
    def load(cls, path: Path) -> Tokenizer:
        """Reads a ``tokenizer.json``, or the one in the folder ``path``.

        Raises CheckpointError when the file is missing or unusable.
        """
        file = path / "tokenizer.json" if path.is_dir() else path
        try:
            text = file.read_text(encoding="utf-8")
        except OSError as error:
            reason = error.strerror or str(error)
            raise CheckpointError(
                f"cannot read the tokenizer {file}: {reason}; "
                "point the checkpoint path at a folder that has tokenizer.json"
            ) from error
        except UnicodeDecodeError as error:
            raise _unusable(file, "it is not UTF-8 text") from error
        try:
            spec = json.loads(text)
        except ValueError as error:
            raise _unusable(file, str(error).split("\n")[0][:120]) from error
        return cls.made_of(spec, file)

    @classmethod
    def made_of(cls, spec: Mapping[str, Any], file: Path) -> Tokenizer:
        """Of what `file` says, as ``tokenizer.json`` has it. Raises CheckpointError."""
        try:
            from tokenizers import Tokenizer as Backend
        except ImportError as error:
            raise CheckpointError(
                "the package tokenizers is not installed; pip install 'clover-code[engine]'"
            ) from error
        try:
            added = {str(t["content"]): int(t["id"]) for t in spec.get("added_tokens", ())}
            if "ByteLevel" not in json.dumps([spec.get("decoder"), spec["pre_tokenizer"]]):
                raise ValueError("it is not byte-level BPE")
            ordinary = {str(token): int(i) for token, i in dict(spec["model"]["vocab"]).items()}
            # user text must not become a special token: encode without the added-token table
            bare = {**spec, "added_tokens": [], "post_processor": None, "truncation": None}
            backend = Backend.from_str(json.dumps({**bare, "padding": None}))
        except Exception as error:  # the backend raises bare Exception
            raise _unusable(file, str(error).split("\n")[0][:120]) from error
        table = byte_characters()
        pieces = [b""] * (max((*added.values(), *ordinary.values()), default=-1) + 1)
        for token, index in (ordinary | added).items():
            special = token in added or any(c not in table for c in token)
            pieces[index] = token.encode() if special else bytes(table[c] for c in token)
        return cls(backend, pieces, added)

    def encode(self, text: str) -> list[int]:
        """Token ids of ``text``; no special token among them. Lone surrogates become ``?``."""
        if not text.isascii():
            text = text.encode("utf-8", "replace").decode("utf-8")
        return list(self._backend.encode(text, add_special_tokens=False).ids)

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """``encode`` of each text, on all the cores the library may use."""
        batch = self._backend.encode_batch_fast(list(texts), add_special_tokens=False)
        return [list(encoding.ids) for encoding in batch]

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """The exact bytes of ``ids``; a special token gives its name."""
        return b"".join(self._pieces[index] for index in ids)

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ``ids``; U+FFFD only where a character is cut or broken."""
        return self.decode_bytes(ids).decode("utf-8", errors="replace")

    @property
    def added(self) -> Mapping[str, int]:
        """The special tokens' texts and ids."""
        return self._specials

    def special(self, name: str) -> int | None:
        """The id of the special token ``name``, or None where the vocabulary has none."""
        return self._specials.get(name)

    def required(self, name: str) -> int:
        """The id of the special token ``name``. Raises CheckpointError where there is none."""
        index = self._specials.get(name)
        if index is None:
            raise CheckpointError(
                f"tokenizer.json lacks the hole-filling token {name}; "
                "use a checkpoint trained for infilling"
            )
        return index

    def piece(self, index: int) -> bytes:
        """The bytes of one token."""
        return self._pieces[index]


def _unusable(file: Path, reason: str) -> CheckpointError:
    return CheckpointError(
        f"cannot use the tokenizer {file}: {reason}; fetch or train the checkpoint again"
    )
