"""What `clover-code doctor --plan` prints: the planner's answer as text or JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from clover_engine.capacity.plan import (
    CARDS,
    CONTEXTS,
    GB,
    LINK_BYTES_PER_S,
    STATE_SLOTS,
    Model,
    Plan,
    cards_needed,
    fetch_seconds,
    plan,
)
from clover_engine.capacity.sizes import Precision, active_parameters, parts

BITS: tuple[Precision, ...] = (Precision(16), Precision(8), Precision(4))


def print_plan(found: Plan, as_json: bool) -> None:
    """One card: parts, caches, room, recommendation."""
    if as_json:
        print(json.dumps(_as_dict(found)))
        return
    for line in _lines(found):
        print(line)


def print_overview(model: Model, precision: Precision | None, as_json: bool) -> None:
    """Cards of several sizes and precisions side by side."""
    precisions = BITS if precision is None else (precision,)
    plans = [[plan(model, p, card) for card in CARDS] for p in precisions]
    if as_json:
        print(json.dumps({"plans": [_as_dict(p) for row in plans for p in row]}))
        return
    print(_headline(model))
    context = plans[0][0].context
    print(f"sequences of {context:,} tokens at once, by precision and card:\n")
    print(f"{'':30}", *(f"{card // GB:>9} GB" for card in CARDS))
    for row in plans:
        weights = sum(row[0].weights.values()) / 1e9
        name = f"{row[0].precision} ({weights:.1f} GB)"
        print(f"{name:30}", *(f"{_cell(p):>12}" for p in row))
    if any(p.offloaded for row in plans for p in row):
        print("\nN% = only that share of the experts is on the card, the rest in host memory")
    print("add --gpu-memory, for example --gpu-memory 24GB, for one card in detail")


def _cell(found: Plan) -> str:
    if not found.fits:
        needed = cards_needed(found.model, found.precision, found.memory_bytes)
        return "no" if needed is None else f"{needed} cards"
    if found.offloaded:
        return f"{found.sequences(found.context)} ({found.expert_share:.0%})"
    return str(found.sequences(found.context))


def _headline(model: Model) -> str:
    config = model.config
    total = sum(p.parameters for p in parts(config) if model.block_rows or p.name != "block rows")
    linear = sum(kind == "linear_attention" for kind in config.layer_types)
    layers = f"{len(config.layer_types) - linear} attention"
    layers += f" and {linear} DeltaNet layers" if linear else " layers"
    experts = ""
    if config.num_experts:
        experts = f", {config.num_experts_per_tok} of {config.num_experts} experts"
    rows = "" if model.block_rows else ", no block rows"
    return (
        f"{model.name}: {_count(total)} parameters, {_count(active_parameters(config))} in use "
        f"per token\n{layers}{experts}{rows}"
    )


def _lines(found: Plan) -> Iterator[str]:
    precision = "as stored" if found.precision is None else str(found.precision)
    cards = "one card" if found.gpus == 1 else f"{found.gpus} cards"
    yield _headline(found.model)
    yield f"{precision}, {cards} of {_size(found.memory_bytes)}"
    yield "\nweights"
    for name, size in found.weights.items():
        yield f"  {name:26}{_size(size):>10}"
    yield f"  {'together':26}{_size(sum(found.weights.values())):>10}"
    yield "\non each card"
    yield f"  {'weights':26}{_size(found.resident_bytes):>10}"
    yield f"  {'runtime and activations':26}{_size(found.working_bytes):>10}  (estimate)"
    yield f"  {'left for caches':26}{_size(found.cache_bytes):>10}"
    yield "\neach sequence"
    yield f"  {'KV cache per token':26}{_size(found.kv_per_token):>10}"
    if found.state_per_sequence:
        states = STATE_SLOTS * found.state_per_sequence
        yield f"  {f'DeltaNet states ({STATE_SLOTS})':26}{_size(states):>10}"
    yield f"  {f'logits of {_rows(found)}':26}{_size(found.logits_per_sequence):>10}"
    yield ""
    if not found.fits:
        yield from _does_not_fit(found)
        return
    yield "context tokens   sequences at once"
    for context in _contexts(found):
        yield f"{context:>14,}   {found.sequences(context):>17}"
    yield ""
    if found.offloaded:
        yield from _offloading(found)
    yield recommendation(found)


def _contexts(found: Plan) -> list[int]:
    longest = found.model.config.max_position_embeddings
    return [c for c in CONTEXTS if c < longest] + [min(longest, 2 * CONTEXTS[-1])]


def _does_not_fit(found: Plan) -> Iterator[str]:
    yield f"does not fit: {_size(found.missing_bytes)} are missing on each card"
    yield recommendation(found)


def _offloading(found: Plan) -> Iterator[str]:
    block = found.block_size
    yield (
        f"{found.expert_share:.0%} of the experts are on the card; all of them stay in host memory "
        f"({_size(found.host_bytes)}, pinned)"
    )
    link = _size(LINK_BYTES_PER_S)
    yield f"fetched at {link}/s (PCIe 4.0 x16) by uniform routing, both assumed:"
    for rows, what in ((1, "one token at a time"), (block, f"a block of {block} rows")):
        seconds = fetch_seconds(found, rows)
        size = _size(found.fetched_bytes(rows))
        yield f"  {what:26}{size:>10} a pass, {1000 * seconds:.1f} ms"
    ratio = found.fetched_bytes(block) / found.fetched_bytes(1)
    yield (
        f"  a block touches more experts than a token: it pays from {ratio:.1f} committed tokens a "
        "pass on"
    )


def recommendation(found: Plan) -> str:
    """One line: what to run, or what would fit."""
    model = found.model
    if not found.fits:
        return "→ " + _what_would_fit(found)
    if found.offloaded:
        needed = cards_needed(model, found.precision, found.memory_bytes)
        others = f"; with {needed} such cards all experts fit" if needed else ""
        budget = int(found.expert_share * found.weights["experts"])
        return (
            '→ one user at a time, from Python: clover_engine.load(DIR, device="cuda", '
            f'dtype="bfloat16", expert_budget_bytes={budget}){others}'
        )
    tp = f" --tp {found.gpus}" if found.gpus > 1 else ""
    quantised = found.precision is not None and found.precision.quantised and not model.quantised
    first = f"with the weights at {found.precision}: " if quantised else ""
    return (
        f"→ {first}clover-code serve --model {model.name if model.stored else 'DIR'}{tp} "
        f"--context-length {found.context} --max-running-requests {found.sequences(found.context)}"
    )


def _what_would_fit(found: Plan) -> str:
    for lower in (8, 4):
        if lower < (16 if found.precision is None else found.precision.bits):
            better = plan(found.model, Precision(lower), found.memory_bytes, gpus=found.gpus)
            if better.fits and not found.model.quantised:
                return f"quantise: it fits at {lower} bits (--bits {lower})"
    needed = cards_needed(found.model, found.precision, found.memory_bytes)
    if needed is not None:
        return f"use {needed} such cards (--tp {needed})"
    return "use larger cards, or a smaller model"


def _rows(found: Plan) -> str:
    return "one row" if found.block_size == 1 else f"{found.block_size} rows"


def _as_dict(found: Plan) -> dict[str, Any]:
    return {
        "model": found.model.name,
        "bits": None if found.precision is None else found.precision.bits,
        "gpu_memory_bytes": found.memory_bytes,
        "gpus": found.gpus,
        "fits": found.fits,
        "missing_bytes": found.missing_bytes,
        "weights_bytes": found.weights,
        "resident_bytes": found.resident_bytes,
        "working_bytes": found.working_bytes,
        "cache_bytes": found.cache_bytes,
        "kv_bytes_per_token": found.kv_per_token,
        "state_bytes_per_sequence": found.state_per_sequence,
        "expert_share_on_card": found.expert_share,
        "host_bytes": found.host_bytes,
        "fetched_bytes_per_token": found.fetched_bytes(1),
        "fetched_bytes_per_block": found.fetched_bytes(found.block_size),
        "sequences": {str(c): found.sequences(c) for c in _contexts(found)},
        "recommendation": recommendation(found).removeprefix("→ "),
    }


def _size(count: float) -> str:
    for unit in ("B", "KB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.2f} GB"


def _count(number: int) -> str:
    return f"{number / 1e9:.2f}B" if number >= 1e9 else f"{number / 1e6:.1f}M"
