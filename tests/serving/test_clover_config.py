"""A Clover configuration as SGLang sees it, in SGLang's own Python. No server."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

from tests.serving.clover import DENSE, MOE, SHAPE
from tests.serving.harness import ENVIRONMENT, SGLANG, SHIM

from clover_engine.model import CloverConfig

READ = """
import json, sys
from clover_engine.errors import CheckpointError
from clover_engine.serving.hf_config import CloverServingConfig

def read(given, problem):
    CloverServingConfig.plugin_problem = problem
    try:
        config = CloverServingConfig(**given)
    except CheckpointError as error:
        return str(error)
    return [config.layers_block_type, config.full_attention_interval, config.num_experts,
            config.for_layers().model_type, config.model_type, config.clover.to_json()]

print(json.dumps([read(given, problem) for given, problem in json.load(sys.stdin)]))
"""


def read(given: list[tuple[dict[str, Any], str]]) -> list[Any]:
    command = [str(SGLANG / "bin" / "python"), "-W", "ignore", "-c", READ]
    environment = {**os.environ, **ENVIRONMENT, "PYTHONPATH": str(SHIM)}
    done = subprocess.run(
        command, input=json.dumps(given), capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    found: list[Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_what_sglang_can_serve_is_described_to_it_and_the_rest_is_refused(sglang: None) -> None:
    dense = CloverConfig(**SHAPE, **DENSE).to_json()
    moe = CloverConfig(**SHAPE, **MOE).to_json()
    bad: list[tuple[dict[str, Any], str]] = [
        ({"output_gate": False}, "no output gate"),
        ({"qk_norm": False}, "no q/k norm"),
        ({"attention_bias": True}, "attention biases"),
        ({"layer_types": ["full_attention"] * 4}, "no linear-attention layer"),
        ({"layer_types": ["linear_attention"] * 4}, "no full-attention layer"),
        ({"quantization": {"bits": 4}}, "quantised for the embedded engine"),
        ({"vocab_size": "many"}, "vocab_size"),
    ]
    asked = [(dense, ""), (moe, ""), *((dense | change, "") for change, _ in bad)]
    first, second, *refused, last = read([*asked, (dense, "sglang 0.6 moved things")])
    kinds = ["linear_attention", "linear_attention", "attention", "linear_attention"]
    assert first == [kinds, 3, 0, "qwen3_5_text", "clover", json.loads(json.dumps(dense))]
    assert second[1:4] == [4, 8, "qwen3_5_moe_text"]
    for line, (_, words) in zip(refused, bad, strict=True):
        assert words in line and "\n" not in line
    assert last == "sglang 0.6 moved things"
