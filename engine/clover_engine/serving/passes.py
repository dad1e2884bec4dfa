"""One forward pass over some of a scheduled batch's requests, each with its own number of rows.

The scheduler lends every request the slots of one block after its committed text. A pass writes
its keys and values there; what is not committed is overwritten or given back.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from clover_engine.serving.rows import Rows, using


@dataclass(frozen=True, slots=True)
class Part:
    """A request (its index in the batch) and the ids of its rows; -1 is a mask without an id."""

    index: int
    ids: tuple[int, ...]


def run(
    model_runner: Any, batch: Any, parts: Sequence[Part], kind: Literal["block", "clean"]
) -> tuple[Tensor, ...]:
    """Runs the rows of `parts`; each part's logits [rows, vocab], in order."""
    rows = Rows(kind, tuple(len(part.ids) for part in parts))
    with using(rows):
        out = model_runner.forward(select(model_runner, batch, parts), pp_proxy_tensors=None)
    return rows.split(out.logits_output.full_logits)


def select(model_runner: Any, batch: Any, parts: Sequence[Part]) -> Any:
    """A `ForwardBatch` of `parts` alone, made from the scheduler's, which stays as it is."""
    device = batch.input_ids.device
    counts = torch.tensor([len(part.ids) for part in parts])
    chosen = [part.index for part in parts]
    prefixes = [batch.extend_prefix_lens_cpu[i] for i in chosen]
    lengths = torch.tensor(prefixes) + counts
    slots = batch.out_cache_loc.view(batch.batch_size, -1)
    places = [torch.arange(p, p + len(part.ids)) for p, part in zip(prefixes, parts, strict=True)]
    new = copy.copy(batch)
    new.batch_size = len(parts)
    new.input_ids = torch.tensor([i for part in parts for i in part.ids], device=device)
    new.req_pool_indices = batch.req_pool_indices[chosen]
    new.req_pool_indices_cpu = None
    new.seq_lens_cpu, new.seq_lens = lengths, lengths.to(device)
    new.seq_lens_sum = int(lengths.sum())
    new.out_cache_loc = torch.cat([slots[part.index, : len(part.ids)] for part in parts])
    new.positions = torch.cat(places).to(batch.positions)
    new.extend_num_tokens = int(counts.sum())
    new.extend_seq_lens_cpu = counts.tolist()
    new.extend_prefix_lens_cpu = prefixes
    new.extend_seq_lens = counts.to(batch.extend_seq_lens)
    new.extend_prefix_lens = batch.extend_prefix_lens[chosen]
    new.extend_start_loc = (counts.cumsum(0) - counts).to(batch.extend_start_loc)
    new.orig_seq_lens = None if batch.orig_seq_lens is None else batch.orig_seq_lens[chosen]
    new.rids = None if batch.rids is None else [batch.rids[i] for i in chosen]
    new.lora_ids = None if batch.lora_ids is None else [batch.lora_ids[i] for i in chosen]
    new.global_num_token_non_padded_cpu = new.extend_num_tokens
    if batch.global_num_token_non_padded is not None:
        count = torch.tensor(new.extend_num_tokens)
        new.global_num_token_non_padded = count.to(batch.global_num_token_non_padded)
    translator = model_runner.kv_index_translator
    translator.own_plan(new).bind(new, translator, cols=None)
    return new
