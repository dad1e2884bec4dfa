"""A Llama- or Qwen2-shaped GGUF file as a base checkpoint: configuration, tensors, tokenizer.

What llama.cpp keeps in one file is given under Hugging Face names, quantised tensors as float32
with the very values that llama.cpp computes with. Kinds beyond `blocks.py` need the package `gguf`
(extra `smollm2`).
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from clover_engine.checkpoint.blocks import GROUPED, PLAIN, values_of
from clover_engine.checkpoint.ggufread import GGUFContent, RawTensor, read_gguf
from clover_engine.errors import CheckpointError

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
    "qwen2": [
        {
            "type": "Split",
            "pattern": {
                "Regex": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
                r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
            },
            "behavior": "Isolated",
            "invert": False,
        },
        _BYTE_LEVEL | {"use_regex": False},
    ],
}
"""How a vocabulary of this `tokenizer.ggml.pre` cuts text before merging."""
_CONTROL, _USER_DEFINED, _UNUSED = 3, 4, 5
"""`tokenizer.ggml.token_type` of tokens that ordinary text never becomes."""
_ARCHITECTURES = ("llama", "qwen2")


@dataclass(frozen=True, slots=True)
class GGUFFile:
    """An opened file; make one with `open_gguf`."""

    path: Path
    content: GGUFContent

    @property
    def architecture(self) -> str:
        return str(self._field("general.architecture"))

    def config(self) -> dict[str, Any]:
        """What Hugging Face's `config.json` of the same model says. Raises `CheckpointError`."""
        kind = self.architecture
        if kind not in _ARCHITECTURES:
            known = " and ".join(map(repr, _ARCHITECTURES))
            raise self._unusable(f"it is of architecture {kind!r}, supported are {known}")
        if (scaling := self._field(f"{kind}.rope.scaling.type", "none")) != "none":
            raise self._unusable(f"RoPE scaling {scaling!r} is not supported")
        heads = int(self._field(f"{kind}.attention.head_count"))
        hidden = int(self._field(f"{kind}.embedding_length"))
        dim = int(self._field(f"{kind}.attention.key_length", hidden // max(heads, 1)))
        turned = int(self._field(f"{kind}.rope.dimension_count", dim))
        return {
            "model_type": kind,
            "vocab_size": len(self._list("tokenizer.ggml.tokens")),
            "hidden_size": hidden,
            "intermediate_size": int(self._field(f"{kind}.feed_forward_length")),
            "num_hidden_layers": int(self._field(f"{kind}.block_count")),
            "num_attention_heads": heads,
            "num_key_value_heads": int(self._field(f"{kind}.attention.head_count_kv", heads)),
            "head_dim": dim,
            "rope_theta": float(self._field(f"{kind}.rope.freq_base", 10_000.0)),
            "partial_rotary_factor": turned / max(dim, 1),
            "rms_norm_eps": float(self._field(f"{kind}.attention.layer_norm_rms_epsilon")),
            "max_position_embeddings": int(self._field(f"{kind}.context_length")),
            "tie_word_embeddings": "output.weight" not in self.content.tensors,
        }

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Every tensor under its Hugging Face name, float32. Raises `CheckpointError`."""
        config = self.config()
        heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
        if self.architecture != "llama":  # only there llama.cpp keeps rows in an order of its own
            heads = {}
        for tensor in self.content.tensors.values():
            name, part = self._name(tensor.name)
            values = self._values(tensor)
            yield name, _unpermuted(values, heads[part]) if part in heads else values

    def shapes(self) -> Iterator[tuple[str, Tensor]]:
        """Every tensor under its Hugging Face name, without values (on the meta device)."""
        for tensor in self.content.tensors.values():
            yield self._name(tensor.name)[0], torch.empty(tensor.shape, device="meta")

    def _values(self, tensor: RawTensor) -> Tensor:
        if tensor.kind in (*PLAIN, *GROUPED):
            return torch.from_numpy(values_of(tensor)).view(tensor.shape)
        try:
            from gguf import GGMLQuantizationType, dequantize
        except ImportError as error:
            command = shlex.join([sys.executable, "-m", "pip", "install", "gguf"])
            raise CheckpointError(
                f"{self.path} has weights of kind {tensor.kind}, which needs the package gguf; "
                f"run: {command}"
            ) from error
        values = dequantize(tensor.data, GGMLQuantizationType(tensor.number))
        return torch.from_numpy(values).float().view(tensor.shape)

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
            if type_ in (_CONTROL, _USER_DEFINED, _UNUSED)
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
        settings = self.settings()
        template = settings.pop("chat_template", "")
        files = {"tokenizer_config.json": json.dumps(settings, indent=1) + "\n"}
        return files | ({"chat_template.jinja": template} if template else {})

    def settings(self) -> dict[str, str]:
        """What ``tokenizer_config.json`` says: special tokens by their use, the chat template."""
        tokens = self._list("tokenizer.ggml.tokens")
        found = {}
        for name, key in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding")):
            index = self._field(f"tokenizer.ggml.{key}_token_id", None)
            if index is not None:
                found[f"{name}_token"] = str(tokens[index])
        if template := self._field("tokenizer.chat_template", ""):
            found["chat_template"] = str(template)
        return found

    def _name(self, raw: str) -> tuple[str, str]:
        """The Hugging Face name of a tensor, and the layer's part that it belongs to."""
        if raw in _TOP:
            return _TOP[raw], ""
        pieces = raw.split(".")
        if len(pieces) == 4 and pieces[0] == "blk" and pieces[2] in _LAYER:
            return f"model.layers.{pieces[1]}.{_LAYER[pieces[2]]}.{pieces[3]}", pieces[2]
        raise self._unusable(f"its tensor {raw!r} has no place in a Llama-shaped model")

    def _field(self, name: str, *default: Any) -> Any:
        if name in self.content.fields:
            return self.content.fields[name]
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
        return GGUFFile(path, read_gguf(path))
    except (OSError, ValueError) as error:
        reason = " ".join(str(getattr(error, "strerror", None) or error).split())
        raise CheckpointError(
            f"{path} is no complete GGUF file ({reason}); fetch it again"
        ) from error


def _unpermuted(rows: Tensor, heads: int) -> Tensor:
    """Undoes llama.cpp's order of q and k rows [heads·D, …]: pairs (2i, 2i+1) → (i, i + D/2)."""
    pairs = rows.reshape(heads, -1, 2, *rows.shape[1:])  # [heads, D/2, 2, …]
    return pairs.transpose(1, 2).reshape(rows.shape)
