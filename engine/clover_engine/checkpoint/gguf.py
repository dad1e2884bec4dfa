"""A Llama-shaped GGUF file as a base checkpoint: configuration, tensors, tokenizer.

What llama.cpp keeps in one file is given under Hugging Face names, quantised tensors as float32
with the very values that llama.cpp computes with. Needs the package `gguf` (extra `smollm2`).
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from clover_engine.errors import CheckpointError

if TYPE_CHECKING:
    from gguf import GGUFReader

_TOP = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_BYTE_LEVEL: dict[str, Any] = {
    "type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True,
}  # fmt: skip
_SPLITS: dict[str, list[dict[str, Any]]] = {
    "gpt-2": [_BYTE_LEVEL],
    "smollm": [{"type": "Digits", "individual_digits": True}, _BYTE_LEVEL],
}
"""How a vocabulary of this `tokenizer.ggml.pre` cuts text before merging."""
_CONTROL, _USER_DEFINED = 3, 4
"""`tokenizer.ggml.token_type` of tokens that ordinary text never becomes."""


@dataclass(frozen=True, slots=True)
class GGUFFile:
    """An opened file; make one with `open_gguf`."""

    path: Path
    reader: GGUFReader

    def config(self) -> dict[str, Any]:
        """What Hugging Face's `config.json` of the same model says. Raises `CheckpointError`."""
        kind = self._field("general.architecture")
        if kind != "llama":
            raise self._unusable(f"it is of architecture {kind!r}, supported is 'llama'")
        if (scaling := self._field("llama.rope.scaling.type", "none")) != "none":
            raise self._unusable(f"RoPE scaling {scaling!r} is not supported")
        heads = int(self._field("llama.attention.head_count"))
        hidden = int(self._field("llama.embedding_length"))
        dim = int(self._field("llama.attention.key_length", hidden // heads))
        names = {tensor.name for tensor in self.reader.tensors}
        return {
            "model_type": "llama",
            "vocab_size": len(self._list("tokenizer.ggml.tokens")),
            "hidden_size": hidden,
            "intermediate_size": int(self._field("llama.feed_forward_length")),
            "num_hidden_layers": int(self._field("llama.block_count")),
            "num_attention_heads": heads,
            "num_key_value_heads": int(self._field("llama.attention.head_count_kv", heads)),
            "head_dim": dim,
            "rope_theta": float(self._field("llama.rope.freq_base", 10_000.0)),
            "partial_rotary_factor": int(self._field("llama.rope.dimension_count", dim)) / dim,
            "rms_norm_eps": float(self._field("llama.attention.layer_norm_rms_epsilon")),
            "max_position_embeddings": int(self._field("llama.context_length")),
            "tie_word_embeddings": "output.weight" not in names,
        }

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Every tensor under its Hugging Face name, float32. Raises `CheckpointError`."""
        from gguf import dequantize

        config = self.config()
        heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
        for tensor in self.reader.tensors:
            name, part = self._name(tensor.name)
            try:
                # copied: float tensors are a read-only view of the file
                values = torch.tensor(dequantize(tensor.data, tensor.tensor_type)).float()
            except NotImplementedError as error:
                kind = tensor.tensor_type.name
                raise self._unusable(f"quantisation {kind} is not supported") from error
            yield name, _unpermuted(values, heads[part]) if part in heads else values

    def tokenizer(self) -> dict[str, Any]:
        """The vocabulary as `tokenizer.json`. Raises `CheckpointError`."""
        kind, pre = self._field("tokenizer.ggml.model"), self._field("tokenizer.ggml.pre", "gpt-2")
        if kind != "gpt2" or pre not in _SPLITS:
            raise self._unusable(f"its tokenizer {kind!r} with pre-tokenizer {pre!r} is unknown")
        tokens = self._list("tokenizer.ggml.tokens")
        types = self._list("tokenizer.ggml.token_type")
        special = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
        added = [
            {"id": i, "content": token, "special": type_ == _CONTROL, **special}
            for i, (token, type_) in enumerate(zip(tokens, types, strict=True))
            if type_ in (_CONTROL, _USER_DEFINED)
        ]
        return {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": added,
            "normalizer": None,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": _SPLITS[pre]},
            "post_processor": None,
            "decoder": _BYTE_LEVEL,
            "model": {
                "type": "BPE",
                "dropout": None,
                "unk_token": None,
                "continuing_subword_prefix": None,
                "end_of_word_suffix": None,
                "fuse_unk": False,
                "byte_fallback": False,
                "vocab": {token: i for i, token in enumerate(tokens)},
                "merges": [merge.split(" ") for merge in self._list("tokenizer.ggml.merges")],
            },
        }

    def companions(self) -> dict[str, str]:
        """Other files of a checkpoint folder, by name: the chat template and its tokens."""
        tokens = self._list("tokenizer.ggml.tokens")
        ends = {}
        for name, key in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding")):
            index = self._field(f"tokenizer.ggml.{key}_token_id", None)
            if index is not None:
                ends[f"{name}_token"] = tokens[index]
        files = {"tokenizer_config.json": json.dumps(ends, indent=1) + "\n"}
        if template := self._field("tokenizer.chat_template", ""):
            files["chat_template.jinja"] = str(template)
        return files

    def _name(self, raw: str) -> tuple[str, str]:
        """The Hugging Face name of a tensor, and the layer's part that it belongs to."""
        if raw in _TOP:
            return _TOP[raw], ""
        pieces = raw.split(".")
        if len(pieces) == 4 and pieces[0] == "blk" and pieces[2] in _LAYER:
            return f"model.layers.{pieces[1]}.{_LAYER[pieces[2]]}.{pieces[3]}", pieces[2]
        raise self._unusable(f"its tensor {raw!r} has no place in a Llama-shaped model")

    def _field(self, name: str, *default: Any) -> Any:
        field = self.reader.get_field(name)
        if field is not None:
            return field.contents()
        if default:
            return default[0]
        raise self._unusable(f"{name} is missing")

    def _list(self, name: str) -> list[Any]:
        found = self._field(name)
        if not isinstance(found, list):
            raise self._unusable(f"{name} is no list")
        return found

    def _unusable(self, reason: str) -> CheckpointError:
        return CheckpointError(f"cannot use {self.path}: {reason}; use another GGUF file")


def open_gguf(path: Path) -> GGUFFile:
    """Opens a GGUF file. Raises `CheckpointError` for anything that is none, or truncated."""
    try:
        from gguf import GGUFReader
    except ImportError as error:
        command = shlex.join([sys.executable, "-m", "pip", "install", "gguf"])
        raise CheckpointError(f"reading {path} needs the package gguf; run: {command}") from error
    try:
        return GGUFFile(path, GGUFReader(path))
    except (OSError, ValueError, LookupError, TypeError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise CheckpointError(
            f"{path} is no complete GGUF file ({reason}); fetch it again"
        ) from error


def _unpermuted(rows: Tensor, heads: int) -> Tensor:
    """Undoes llama.cpp's order of q and k rows [heads·D, …]: pairs (2i, 2i+1) → (i, i + D/2)."""
    pairs = rows.reshape(heads, -1, 2, *rows.shape[1:])  # [heads, D/2, 2, …]
    return pairs.transpose(1, 2).reshape(rows.shape)
