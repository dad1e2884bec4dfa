"""Tiny checkpoints that converse: a tokenizer, templates, networks of a few thousand weights."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers, trainers

from clover_engine.checkpoint.weights import save_model
from clover_engine.model import Clover, CloverConfig

SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>", "<mask>"]
TEMPLATE = """\
{%- if messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'user' %}
        {{- '<|im_start|>user\\n' + message.content|trim + '<|im_end|>\\n' }}
    {%- elif message.role == 'assistant' %}
        {%- set content = message.content %}
        {%- if '</think>' in content %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {{- '<|im_start|>assistant\\n' + content + '<|im_end|>\\n' }}
    {%- elif message.role == 'tool' %}
        {{- raise_exception('no tools here') }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- else %}
        {{- '<think>\\n' }}
    {%- endif %}
{%- endif %}"""


HOLES = ["<pad>", "<eom>", "<doc>", "<pre>", "<suf>", "<mid>", "<bug>", "<snip>"]


def write_tokenizer(
    folder: Path, template: str | None = TEMPLATE, specials: list[str] = SPECIALS
) -> int:
    """tokenizer.json and tokenizer_config.json of some 300 byte-level tokens; their number."""
    backend = Backend(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=specials,
        show_progress=False,
    )
    words = ["system user assistant", "what is it? A B C D", "def f(a, b): return a + b\n"]
    backend.train_from_iterator(words * 20, trainer)
    folder.mkdir(parents=True, exist_ok=True)
    backend.save(str(folder / "tokenizer.json"))
    settings: dict[str, object] = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}
    if template is not None:
        settings["chat_template"] = template
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), "utf-8")
    return int(backend.get_vocab_size())


def make_model(vocab: int, seed: int = 0, context: int = 512) -> Clover:
    """A hybrid network with all parts of block rows awake."""
    torch.manual_seed(seed)
    model = Clover(
        CloverConfig(
            vocab_size=vocab,
            hidden_size=32,
            layer_types=("linear_attention", "full_attention", "linear_attention"),
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=16,
            intermediate_size=48,
            output_gate=True,
            qk_norm=True,
            linear_num_key_heads=2,
            linear_num_value_heads=2,
            linear_key_head_dim=8,
            linear_value_head_dim=16,
            max_position_embeddings=context,
            mask_token_id=SPECIALS.index("<mask>"),
        )
    )
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model


def write_checkpoint(folder: Path, seed: int = 0, context: int = 512, holes: bool = False) -> Path:
    """A random checkpoint with tokenizer and template; `holes`: one that also fills holes."""
    specials = [*SPECIALS, *HOLES] if holes else SPECIALS
    model = make_model(write_tokenizer(folder, specials=specials), seed, context)
    save_model(model, folder, torch.float32)
    return folder


def teach(model: Clover, tokens: list[int], steps: int = 120) -> None:
    """Trains the network until it continues every part of `tokens` with the next one."""
    ids = torch.tensor([tokens])
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for _ in range(steps):
        hidden, _ = model(ids[:, :-1])
        loss = torch.nn.functional.cross_entropy(model.head(hidden)[0], ids[0, 1:])
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
