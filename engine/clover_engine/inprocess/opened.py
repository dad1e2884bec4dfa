"""A GGUF file, opened to be run: the network, its vocabulary, its chat template."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from clover_engine.checkpoint.catalog import missing
from clover_engine.checkpoint.filling import Filling, empty_model
from clover_engine.checkpoint.gguf import GGUFFile, open_gguf
from clover_engine.checkpoint.weights import fitting
from clover_engine.errors import CheckpointError
from clover_engine.model.clover import Clover
from clover_engine.model.config import CloverConfig
from clover_engine.text.chat import ChatTemplate, end_tokens
from clover_engine.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Opened:
    """What `open_model` found in one file."""

    model: Clover
    tokenizer: Tokenizer
    template: ChatTemplate | None
    stops: frozenset[int]
    """Ids that end an assistant's turn."""


def is_gguf(path: Path) -> bool:
    """Whether a checkpoint is one GGUF file, by its name."""
    return path.suffix == ".gguf"


def open_model(path: Path) -> Opened:
    """Raises CheckpointError for a file that cannot be used."""
    if (reason := missing(path)) is not None:
        raise CheckpointError(reason)
    file = open_gguf(path)
    config = CloverConfig.from_hf(file.config())
    tokenizer = Tokenizer.made_of(file.tokenizer(), path)
    settings = file.settings()
    template = ChatTemplate.made_of(settings.get("chat_template"), settings, tokenizer)
    stops = end_tokens(tokenizer, settings.get("eos_token", ""))
    return Opened(_network(file, config), tokenizer, template, stops)


def _network(file: GGUFFile, config: CloverConfig) -> Clover:
    model = empty_model(config)
    shapes = {name: tensor.shape for name, tensor in model.state_dict().items()}
    filling = Filling(model, torch.float32)
    for name, tensor in fitting(file.tensors(), file.path, config, shapes):
        filling.add(name, tensor)
    filling.finish()
    return model.eval().requires_grad_(False)
