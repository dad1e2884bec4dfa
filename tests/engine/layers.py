"""Layers of all kinds, drawn for property tests."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st


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
