"""Small models with layers of both kinds, as configurations, also drawn for property tests."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from clover_engine.model import CloverConfig

VOCABULARY = 37


def hybrid(layers: str, **changes: Any) -> CloverConfig:
    """A small model; `layers` has a letter a layer, g for GDN and a for attention."""
    kinds = {"g": "linear_attention", "a": "full_attention"}
    values: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "hidden_size": 12,
        "layer_types": tuple(kinds[letter] for letter in layers),
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "output_gate": True,
        "qk_norm": True,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 4,
        "linear_value_head_dim": 6,
        "mask_embedding": True,
    }
    return CloverConfig(**(values | changes))


def layer_parts(draw: st.DrawFn) -> dict[str, Any]:
    """What a configuration says of its layers besides their widths and experts."""
    flag, small = st.booleans(), st.integers(1, 2)
    key_heads = draw(small)
    return {
        "partial_rotary_factor": draw(st.sampled_from([0.5, 1.0])),
        "attention_bias": draw(flag),
        "output_bias": draw(flag),
        "output_gate": draw(flag),
        "qk_norm": draw(flag),
        "norm_unit_offset": draw(flag),
        "tie_word_embeddings": draw(flag),
        "linear_num_key_heads": key_heads,
        "linear_num_value_heads": key_heads * draw(small),
        "linear_key_head_dim": draw(st.integers(2, 5)),
        "linear_value_head_dim": draw(st.integers(2, 5)),
        "linear_conv_kernel_dim": draw(st.integers(2, 5)),
    }
