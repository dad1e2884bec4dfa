"""A GGUF file, opened to be run: the network, its vocabulary, its chat template."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

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


def open_model(path: Path, threads: int = 1, *, packed: bool = True) -> Opened:
    """The weights stay as they are in the file where they can (`cpu/grouped_step.py`), unless not
    `packed`; else they become float32. Raises CheckpointError for a file that cannot be used."""
    if (reason := missing(path)) is not None:
        raise CheckpointError(reason)
    file = open_gguf(path)
    config = CloverConfig.from_hf(file.config())
    tokenizer = Tokenizer.made_of(file.tokenizer(), path)
    settings = file.settings()
    template = ChatTemplate.made_of(settings.get("chat_template"), settings, tokenizer)
    stops = end_tokens(tokenizer, settings.get("eos_token", ""))
    model = _packed(file, config, threads) if packed else None
    return Opened(model or _dense(file, config), tokenizer, template, stops)


def _packed(file: GGUFFile, config: CloverConfig, threads: int) -> Clover | None:
    """None where the file or this installation is not made for it."""
    if importlib.util.find_spec("numba") is None:
        return None
    from clover_engine.cpu.grouped_step import GroupedStep, fits

    tensors = file.content.tensors
    if not fits(config, tensors):
        return None
    model = empty_model(config)
    shapes = {name: tensor.shape for name, tensor in model.state_dict().items()}
    for _ in fitting(file.shapes(), file.path, config, shapes):
        pass  # raises for what lacks or does not fit
    model.fused = step = GroupedStep(model, tensors, threads)
    step.warm()
    file.content.release()  # the weights have been packed
    model.model.norm.weight = nn.Parameter(torch.ones(config.hidden_size))  # says: on the CPU
    return model.eval().requires_grad_(False)


def _dense(file: GGUFFile, config: CloverConfig) -> Clover:
    model = empty_model(config)
    shapes = {name: tensor.shape for name, tensor in model.state_dict().items()}
    filling = Filling(model, torch.float32)
    for name, tensor in fitting(file.tensors(), file.path, config, shapes):
        filling.add(name, tensor)
    filling.finish()
    return model.eval().requires_grad_(False)
