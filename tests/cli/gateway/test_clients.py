"""What Zed, llama.vim, llama.vscode and minuet send, word for word, and the fields they read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.cli.gateway.client import Gateway

Start = Callable[..., Gateway]

BEFORE = "import prices\n\n\ndef total(cart):\n    return prices."
LINE = "delivery(cart)"
TIMINGS = ("prompt_n", "prompt_ms", "prompt_per_token_ms", "prompt_per_second")
TIMINGS += ("predicted_n", "predicted_ms", "predicted_per_token_ms", "predicted_per_second")

LLAMA_VIM = {
    "id_slot": 0,
    "input_prefix": "import prices\n\n\ndef total(cart):\n",
    "input_suffix": "\n\n\ndef saved(cart):\n",
    "input_extra": [
        {"text": "def delivery(cart):\n    return 5\n", "time": [1, 2], "filename": "prices.py"}
    ],
    "prompt": "    return prices.",
    "n_predict": 128,
    "stop": [],
    "n_indent": 4,
    "top_k": 40,
    "top_p": 0.90,
    "samplers": ["top_k", "top_p", "infill"],
    "stream": False,
    "cache_prompt": True,
    "t_max_prompt_ms": 500,
    "t_max_predict_ms": 250,
    "response_fields": [
        "content",
        *(f"timings/{name}" for name in TIMINGS),
        "truncated",
        "tokens_cached",
    ],
}
LLAMA_VIM_WARMS = {
    "id_slot": 0,
    "input_prefix": "",
    "input_suffix": "",
    "input_extra": LLAMA_VIM["input_extra"],
    "prompt": "",
    "n_predict": 0,
    "temperature": 0.0,
    "samplers": [],
    "stream": False,
    "cache_prompt": True,
    "t_max_prompt_ms": 1,
    "t_max_predict_ms": 1,
    "response_fields": [""],
}
LLAMA_VIM_INSTRUCTS = {
    "id_slot": 3,
    "messages": [
        {"role": "system", "content": "You are a text-editing assistant."},
        {"role": "user", "content": "INSTRUCTION: add one\nTEXT:\nx = 1\n"},
    ],
    "min_p": 0.1,
    "temperature": 0.1,
    "samplers": ["min_p", "temperature"],
    "stream": True,
    "cache_prompt": True,
}
LLAMA_VSCODE = {
    "id_slot": 0,
    "input_prefix": "import prices\n\n\ndef total(cart):\n",
    "input_suffix": "\n\n\ndef saved(cart):\n",
    "input_extra": [],
    "prompt": "    return prices.",
    "n_predict": 128,
    "n_cmpl": 2,
    "top_k": 40,
    "top_p": 0.99,
    "stream": False,
    "samplers": ["top_k", "top_p", "infill"],
    "cache_prompt": True,
    "n_indent": 4,
    "t_max_prompt_ms": 500,
    "t_max_predict_ms": 500,
}
ZED_PROMPTS = {
    "code_llama": ("<PRE> {p} <SUF>{s} <MID>", ["<PRE>", "<SUF>", "<MID>"]),
    "star_coder": (
        "<fim_prefix>{p}<fim_suffix>{s}<fim_middle>",
        ["<|endoftext|>", "<fim_prefix>", "<fim_middle>", "<fim_suffix>"],
    ),
    "deepseek_coder": (
        "<｜fim▁begin｜>{p}<｜fim▁hole｜>{s}<｜fim▁end｜>",
        ["<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"],
    ),
    "qwen": (
        "<|fim_prefix|>{p}<|fim_suffix|>{s}<|fim_middle|>",
        ["<|endoftext|>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>"],
    ),
    "codestral": ("[SUFFIX]{s}[PREFIX]{p}", ["[PREFIX]", "[SUFFIX]"]),
    "glm": (
        "<|code_prefix|>{p}<|code_suffix|>{s}<|code_middle|>",
        ["<|endoftext|>", "<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"],
    ),
}
MINUET = {
    "model": "PLACEHOLDER",
    "stream": True,
    "max_tokens": 56,
    "top_p": 0.9,
    "prompt": "# language: python\n" + BEFORE,
    "suffix": "\n\n\ndef saved(cart):\n",
}


def test_llama_vim(start: Start) -> None:
    gateway = start(infills=[LINE + "\n"])
    found = gateway.post("/infill", LLAMA_VIM)
    assert found["content"] == LINE
    assert set(found) == set(LLAMA_VIM["response_fields"])  # type: ignore[call-overload]
    assert found["truncated"] is False and found["tokens_cached"] == 0
    assert all(isinstance(found[f"timings/{name}"], int | float) for name in TIMINGS)
    assert gateway.post("/infill", LLAMA_VIM_WARMS) == {}


def test_llama_vim_instruction(start: Start) -> None:
    gateway = start(answers=["x = 2\n"])
    events = gateway.stream("/v1/chat/completions", LLAMA_VIM_INSTRUCTS)
    deltas = [event["choices"][0]["delta"] for event in events]
    assert "".join(delta.get("content", "") for delta in deltas) == "x = 2\n"
    assert events[-1]["choices"][0]["finish_reason"] == "stop"
    warms = {**LLAMA_VIM_INSTRUCTS, "n_predict": 0, "samplers": [], "stream": False}
    found = gateway.post("/v1/chat/completions", {**warms, "response_fields": [""]})
    assert found["choices"][0]["message"]["content"] == ""


def test_llama_vscode(start: Start) -> None:
    gateway = start(infills=["1", LINE, "subtotal_of(cart)"])
    gateway.warm()
    several = gateway.post("/infill", LLAMA_VSCODE)
    assert [each["content"] for each in several] == [LINE, "subtotal_of(cart)"]
    one = gateway.post("/infill", {**LLAMA_VSCODE, "n_cmpl": 1})
    assert one["content"] == "subtotal_of(cart)"
    assert one["generation_settings"]["n_ctx"] == 0 and one["tokens_cached"] == 0
    assert one["timings"]["predicted_ms"] >= 0 and one["timings"]["prompt_per_second"] == 0
    status, text = gateway.ask("/infill", {**LLAMA_VSCODE, "n_cmpl": 9})
    assert status == 400 and "n_cmpl: 1 to 4" in text


@pytest.fixture(scope="module")
def zed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("zed")
    text = LINE + "<|endoftext|> and more"
    gateway = Gateway(folder, "--min-confidence", "0", infills=[text])
    yield gateway
    gateway.close()


@pytest.mark.parametrize("family", ZED_PROMPTS)
def test_zed(zed: Gateway, family: str) -> None:
    template, stop = ZED_PROMPTS[family]
    prompt = template.replace("{p}", BEFORE).replace("{s}", "\n\n\ndef saved(cart):\n")
    body = {"model": "any", "prompt": prompt, "max_tokens": 64, "stop": [*stop, "<|endoftext|>"]}
    found = zed.post("/v1/completions", body, Authorization="Bearer of-no-matter")
    assert found["choices"][0]["text"] == LINE
    assert found["choices"][0]["finish_reason"] == "stop"
    assert found["object"] == "text_completion" and found["id"] and found["model"]
    assert isinstance(found["created"], int)
    usage = found["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


def test_minuet(start: Start) -> None:
    gateway = start(infills=[LINE])
    events = gateway.stream("/v1/completions", MINUET)
    assert "".join(event["choices"][0]["text"] for event in events) == LINE


def test_a_text_without_a_hole_is_continued(start: Start) -> None:
    gateway = start(infills=["one\ntwo\nthree"])
    body = {"prompt": "zero\n", "max_tokens": 50, "stop": "three"}
    found = gateway.post("/v1/completions", body)
    assert found["choices"][0]["text"] == "one\ntwo\n"
    assert found["choices"][0]["finish_reason"] == "stop"
    several = gateway.post("/v1/completions", {**body, "n": 3})["choices"]
    assert [choice["index"] for choice in several] == [0, 1, 2]


def test_a_conversation(start: Start) -> None:
    gateway = start(answers=["forty-two"], step_s=0.001)
    parts = [{"type": "text", "text": "6 "}, {"type": "text", "text": "* 7?"}]
    body = {"model": "x", "messages": [{"role": "user", "content": parts}]}
    found = gateway.post("/v1/chat/completions", body)
    assert found["choices"][0]["message"] == {"role": "assistant", "content": "forty-two"}
    assert gateway.post("/chat/completions", body)["choices"] == found["choices"]
    tools = {**body, "tools": [{"type": "function", "function": {"name": "read"}}]}
    status, text = gateway.ask("/v1/chat/completions", tools)
    assert status == 400 and "switch tools off" in text
