"""A Qwen2-shaped GGUF file of few random weights, in the kinds that Q4_K_M files have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt

from clover_engine.text.tokenizer import byte_characters

Quant = gguf.GGMLQuantizationType
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|fim_prefix|>", "<|fim_middle|>",
            "<|fim_suffix|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>"]  # fmt: skip
WORDS = ["de", "def", "Ġre", "re", "Ġret", "urn", "ur", "Ġreturn", "ĠĠ", "ĊĠ", "ĊĠĠ", "ĠĠĠ", "ĊĠĠĠ"]
MERGES = ["d e", "de f", "r e", "Ġ re", "u r", "ur n", "Ġre t", "Ġret urn", "Ġ Ġ", "Ċ Ġ", "ĊĠ Ġ",
          "ĠĠ Ġ", "ĊĠĠ Ġ"]  # fmt: skip
HIDDEN, HEADS, KV_HEADS, DIM, WIDE, LAYERS = 256, 8, 2, 32, 512, 2
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
Array = npt.NDArray[Any]
KINDS = {"attn_v": Quant.Q8_0, "attn_k": Quant.Q5_0, "ffn_down": Quant.Q6_K, "ffn_up": Quant.Q4_K,
         "ffn_gate": Quant.Q4_0, "attn_output": Quant.Q4_1}  # fmt: skip
"""Of a layer's matrices; the others are Q5_0."""


def vocabulary() -> list[str]:
    found = [*SPECIALS, *byte_characters(), *WORDS]
    return found + [f"[PAD{i}]" for i in range(len(found), -(-len(found) // 8) * 8)]


def random_blocks(kind: Quant, rows: int, columns: int, seed: int, scale: float = 0.01) -> Array:
    """Bytes [rows, bytes of a row] of any quantised kind, its scales of about `scale`."""
    rng = np.random.default_rng(seed)
    values, size = gguf.GGML_QUANT_SIZES[kind]
    data = rng.integers(0, 256, (rows, columns // values, size), dtype=np.uint8)

    def halves() -> Array:
        drawn = rng.normal(0, scale, data.shape[:2]).astype(np.float16)
        return drawn[..., None].view(np.uint8)

    if kind == Quant.Q6_K:
        data[..., 208:210] = halves()
    else:
        data[..., 0:2] = halves()
        if kind in (Quant.Q4_K, Quant.Q4_1):
            data[..., 2:4] = halves()
    return np.ascontiguousarray(data.reshape(rows, -1))


_SCALES = {Quant.Q4_K: 1e-4, Quant.Q6_K: 3e-5, Quant.Q8_0: 5e-4, Quant.Q4_1: 5e-3}
"""So that weights of every kind are of about the same size."""


def write_qwen(path: Path, *, tied: bool = False, **changes: Any) -> None:
    """`changes` replace metadata (double underscores for dots); None leaves a field out."""
    vocab = vocabulary()
    types = [3 if t in SPECIALS else 5 if t.startswith("[PAD") else 1 for t in vocab]
    fields: dict[str, Any] = {
        "qwen2.context_length": 512, "qwen2.embedding_length": HIDDEN,
        "qwen2.block_count": LAYERS, "qwen2.feed_forward_length": WIDE,
        "qwen2.attention.head_count": HEADS, "qwen2.attention.head_count_kv": KV_HEADS,
        "qwen2.rope.freq_base": 10000.0, "qwen2.attention.layer_norm_rms_epsilon": 1e-6,
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "qwen2",
        "tokenizer.ggml.tokens": vocab, "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.merges": MERGES, "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": 2, "tokenizer.chat_template": TEMPLATE,
    }  # fmt: skip
    writer = gguf.GGUFWriter(path, "qwen2")
    given = {name.replace("__", "."): value for name, value in changes.items()}
    for name, value in (fields | given).items():
        add = {int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
        if value is not None:
            add.get(type(value), writer.add_array)(name, value)
    for seed, (name, shape, kind) in enumerate(_tensors(len(vocab), tied)):
        if kind is None:
            rng = np.random.default_rng(seed)
            values = rng.normal(0, 0.3, shape) + (not name.endswith("bias"))
            writer.add_tensor(name, values.astype(np.float32))
        else:
            blocks = random_blocks(kind, *shape, seed, _SCALES.get(kind, 3e-3))
            if name in ("token_embd.weight", "output.weight"):
                blocks = random_blocks(kind, *shape, seed, 0.02 if kind != Quant.Q8_0 else 2e-3)
            writer.add_tensor(name, blocks, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _tensors(vocab: int, tied: bool) -> list[tuple[str, tuple[int, ...], Quant | None]]:
    found: list[tuple[str, tuple[int, ...], Quant | None]] = [
        ("token_embd.weight", (vocab, HIDDEN), Quant.Q5_0),
        ("output_norm.weight", (HIDDEN,), None),
    ]
    if not tied:
        found.append(("output.weight", (vocab, HIDDEN), Quant.Q8_0))
    wide, narrow = HEADS * DIM, KV_HEADS * DIM
    shapes = {
        "attn_q": (wide, HIDDEN), "attn_k": (narrow, HIDDEN), "attn_v": (narrow, HIDDEN),
        "attn_output": (HIDDEN, wide), "ffn_gate": (WIDE, HIDDEN), "ffn_up": (WIDE, HIDDEN),
        "ffn_down": (HIDDEN, WIDE),
    }  # fmt: skip
    for i in range(LAYERS):
        for name, shape in shapes.items():
            found.append((f"blk.{i}.{name}.weight", shape, KINDS.get(name, Quant.Q5_0)))
            if name in ("attn_q", "attn_k", "attn_v"):
                found.append((f"blk.{i}.{name}.bias", shape[:1], None))
        found.append((f"blk.{i}.attn_norm.weight", (HIDDEN,), None))
        found.append((f"blk.{i}.ffn_norm.weight", (HIDDEN,), None))
    return found
