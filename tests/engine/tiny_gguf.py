"""A GGUF file of few random weights, written as llama.cpp's own converter writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt

from clover_engine.text.tokenizer import byte_characters

SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
WORDS = ["de", "def", "Ġre", "re", "Ġret", "urn", "ur", "Ġreturn", "ĠĠ", "ĊĠ", "ĊĠĠ", "ĠĠĠ", "ĊĠĠĠ"]
MERGES = ["d e", "de f", "r e", "Ġ re", "u r", "ur n", "Ġre t", "Ġret urn", "Ġ Ġ", "Ċ Ġ", "ĊĠ Ġ",
          "ĠĠ Ġ", "ĊĠĠ Ġ"]  # fmt: skip
HIDDEN, HEADS, KV_HEADS, DIM, WIDE, LAYERS = 64, 4, 2, 16, 96, 2
TEMPLATE = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
Array = npt.NDArray[np.float32]
Quant = gguf.GGMLQuantizationType


def vocabulary() -> list[str]:
    return [*SPECIALS, *byte_characters(), *WORDS]


def hf_weights(seed: int = 0) -> dict[str, Array]:
    """Random weights under Hugging Face's names."""
    rng = np.random.default_rng(seed)
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (len(vocabulary()), HIDDEN)}
    for i in range(LAYERS):
        layer = f"model.layers.{i}"
        for name, rows in (("q", HEADS * DIM), ("k", KV_HEADS * DIM), ("v", KV_HEADS * DIM)):
            shapes[f"{layer}.self_attn.{name}_proj.weight"] = (rows, HIDDEN)
        shapes[f"{layer}.self_attn.o_proj.weight"] = (HIDDEN, HEADS * DIM)
        shapes[f"{layer}.mlp.gate_proj.weight"] = (WIDE, HIDDEN)
        shapes[f"{layer}.mlp.up_proj.weight"] = (WIDE, HIDDEN)
        shapes[f"{layer}.mlp.down_proj.weight"] = (HIDDEN, WIDE)
        shapes[f"{layer}.input_layernorm.weight"] = (HIDDEN,)
        shapes[f"{layer}.post_attention_layernorm.weight"] = (HIDDEN,)
    shapes["model.norm.weight"] = (HIDDEN,)
    return {
        name: (rng.normal(0, 0.3, shape) + (len(shape) == 1)).astype(np.float32)
        for name, shape in shapes.items()
    }


GGUF_NAMES = {
    "model.embed_tokens": "token_embd", "model.norm": "output_norm",
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "model.layers": "blk",
}  # fmt: skip


def raw_name(name: str) -> str:
    for ours, theirs in GGUF_NAMES.items():
        name = name.replace(ours, theirs)
    return name


def _permuted(rows: Array, heads: int) -> Array:
    """The order of q and k rows that llama.cpp's RoPE wants."""
    halves = rows.reshape(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(rows.shape))


def write_gguf(path: Path, kind: Quant = Quant.F32, **changes: Any) -> dict[str, Array]:
    """Writes the file; the weights that it holds, as they are after quantisation, unpermuted.

    `changes` replace metadata (underscores for dots); None leaves a field out.
    """
    vocab = vocabulary()
    fields: dict[str, Any] = {
        "llama_context_length": 512,
        "llama_embedding_length": HIDDEN,
        "llama_block_count": LAYERS,
        "llama_feed_forward_length": WIDE,
        "llama_attention_head_count": HEADS,
        "llama_attention_head_count_kv": KV_HEADS,
        "llama_rope_dimension_count": DIM,
        "llama_rope_freq_base": 5000.0,
        "llama_attention_layer_norm_rms_epsilon": 1e-5,
        "tokenizer_ggml_model": "gpt2",
        "tokenizer_ggml_pre": "smollm",
        "tokenizer_ggml_tokens": vocab,
        "tokenizer_ggml_token_type": [3 if t in SPECIALS else 1 for t in vocab],
        "tokenizer_ggml_merges": MERGES,
        "tokenizer_ggml_bos_token_id": 1,
        "tokenizer_ggml_eos_token_id": 2,
        "tokenizer_chat_template": TEMPLATE,
    }
    architecture = str(changes.pop("architecture", "llama"))
    extra = changes.pop("extra_tensor", None)
    writer = gguf.GGUFWriter(path, architecture)
    for name, value in (fields | changes).items():
        if value is not None:
            _add(writer, _dotted(name), value)
    kept = {}
    for name, weight in hf_weights().items():
        heads = {"q_proj": HEADS, "k_proj": KV_HEADS}.get(name.split(".")[-2], 0)
        stored = _permuted(weight, heads) if heads else weight
        quantised = kind if weight.ndim == 2 else Quant.F32
        data = gguf.quantize(stored, quantised)
        writer.add_tensor(raw_name(name), data, raw_dtype=quantised)
        # A row is quantised by itself, so permuting and quantising may change places.
        kept[name] = gguf.dequantize(gguf.quantize(weight, quantised), quantised)
    if extra is not None:
        writer.add_tensor(extra, np.zeros((1, 32), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return kept


def _dotted(name: str) -> str:
    for head in ("llama_attention_", "llama_rope_scaling_", "llama_rope_", "tokenizer_ggml_",
                 "llama_", "tokenizer_"):  # fmt: skip
        if name.startswith(head):
            return head.replace("_", ".") + name.removeprefix(head)
    return name


def _add(writer: gguf.GGUFWriter, name: str, value: Any) -> None:
    add = {int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
    add.get(type(value), writer.add_array)(name, value)
