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


def print_plan(planned: Plan, as_json: bool) -> None:
    """One card: parts, caches, room, recommendation."""
    if as_json:
        print(json.dumps(_as_dict(planned)))
        return
    for line in _lines(planned):
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


def _cell(planned: Plan) -> str:
    if not planned.fits:
        needed = cards_needed(planned.model, planned.precision, planned.memory_bytes)
        return "no" if needed is None else f"{needed} cards"
    if planned.offloaded:
        return f"{planned.sequences(planned.context)} ({planned.expert_share:.0%})"
    return str(planned.sequences(planned.context))


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


def _lines(planned: Plan) -> Iterator[str]:
    precision = "as stored" if planned.precision is None else str(planned.precision)
    cards = "one card" if planned.gpus == 1 else f"{planned.gpus} cards"
    yield _headline(planned.model)
    yield f"{precision}, {cards} of {_size(planned.memory_bytes)}"
    yield "\nweights"
    for name, size in planned.weights.items():
        yield f"  {name:26}{_size(size):>10}"
    yield f"  {'together':26}{_size(sum(planned.weights.values())):>10}"
    yield "\non each card"
    yield f"  {'weights':26}{_size(planned.resident_bytes):>10}"
    yield f"  {'runtime and activations':26}{_size(planned.working_bytes):>10}  (estimate)"
    yield f"  {'left for caches':26}{_size(planned.cache_bytes):>10}"
    yield "\neach sequence"
    yield f"  {'KV cache per token':26}{_size(planned.kv_per_token):>10}"
    if planned.state_per_sequence:
        states = STATE_SLOTS * planned.state_per_sequence
        yield f"  {f'DeltaNet states ({STATE_SLOTS})':26}{_size(states):>10}"
    yield f"  {f'logits of {_rows(planned)}':26}{_size(planned.logits_per_sequence):>10}"
    yield ""
    if not planned.fits:
        yield from _does_not_fit(planned)
        return
    yield "context tokens   sequences at once"
    for context in _contexts(planned):
        yield f"{context:>14,}   {planned.sequences(context):>17}"
    yield ""
    if planned.offloaded:
        yield from _offloading(planned)
    yield recommendation(planned)


def _contexts(planned: Plan) -> list[int]:
    longest = planned.model.config.max_position_embeddings
    return [c for c in CONTEXTS if c < longest] + [min(longest, 2 * CONTEXTS[-1])]


def _does_not_fit(planned: Plan) -> Iterator[str]:
    yield f"does not fit: {_size(planned.missing_bytes)} are missing on each card"
    yield recommendation(planned)


def _offloading(planned: Plan) -> Iterator[str]:
    block = planned.block_size
    yield (
        f"{planned.expert_share:.0%} of the experts are on the card; all of them stay in host "
        f"memory ({_size(planned.host_bytes)}, pinned)"
    )
    link = _size(LINK_BYTES_PER_S)
    yield f"fetched at {link}/s (PCIe 4.0 x16) by uniform routing, both assumed:"
    for rows, what in ((1, "one token at a time"), (block, f"a block of {block} rows")):
        seconds = fetch_seconds(planned, rows)
        size = _size(planned.fetched_bytes(rows))
        yield f"  {what:26}{size:>10} a pass, {1000 * seconds:.1f} ms"
    ratio = planned.fetched_bytes(block) / planned.fetched_bytes(1)
    yield (
        f"  a block touches more experts than a token: it pays from {ratio:.1f} committed tokens a "
        "pass on"
    )


def recommendation(planned: Plan) -> str:
    """One line: what to run, or what would fit."""
    model = planned.model
    if not planned.fits:
        return "→ " + _what_would_fit(planned)
    if planned.offloaded:
        needed = cards_needed(model, planned.precision, planned.memory_bytes)
        others = f"; with {needed} such cards all experts fit" if needed else ""
        budget = int(planned.expert_share * planned.weights["experts"])
        return (
            '→ one user at a time, from Python: clover_engine.load(DIR, device="cuda", '
            f'dtype="bfloat16", expert_budget_bytes={budget}){others}'
        )
    tp = f" --tp {planned.gpus}" if planned.gpus > 1 else ""
    quantised = (
        planned.precision is not None and planned.precision.quantised and not model.quantised
    )
    first = f"with the weights at {planned.precision}: " if quantised else ""
    return (
        f"→ {first}clover-code serve --model {model.name if model.stored else 'DIR'}{tp} "
        f"--context-length {planned.context} "
        f"--max-running-requests {planned.sequences(planned.context)}"
    )


def _what_would_fit(planned: Plan) -> str:
    for lower in (8, 4):
        if lower < (16 if planned.precision is None else planned.precision.bits):
            better = plan(planned.model, Precision(lower), planned.memory_bytes, gpus=planned.gpus)
            if better.fits and not planned.model.quantised:
                return f"quantise: it fits at {lower} bits (--bits {lower})"
    needed = cards_needed(planned.model, planned.precision, planned.memory_bytes)
    if needed is not None:
        return f"use {needed} such cards (--tp {needed})"
    return "use larger cards, or a smaller model"


def _rows(planned: Plan) -> str:
    return "one row" if planned.block_size == 1 else f"{planned.block_size} rows"


def _as_dict(planned: Plan) -> dict[str, Any]:
    return {
        "model": planned.model.name,
        "bits": None if planned.precision is None else planned.precision.bits,
        "gpu_memory_bytes": planned.memory_bytes,
        "gpus": planned.gpus,
        "fits": planned.fits,
        "missing_bytes": planned.missing_bytes,
        "weights_bytes": planned.weights,
        "resident_bytes": planned.resident_bytes,
        "working_bytes": planned.working_bytes,
        "cache_bytes": planned.cache_bytes,
        "kv_bytes_per_token": planned.kv_per_token,
        "state_bytes_per_sequence": planned.state_per_sequence,
        "expert_share_on_card": planned.expert_share,
        "host_bytes": planned.host_bytes,
        "fetched_bytes_per_token": planned.fetched_bytes(1),
        "fetched_bytes_per_block": planned.fetched_bytes(planned.block_size),
        "sequences": {str(c): planned.sequences(c) for c in _contexts(planned)},
        "recommendation": recommendation(planned).removeprefix("→ "),
    }


def _size(count: float) -> str:
    for unit in ("B", "KB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.2f} GB"


def _count(number: int) -> str:
    return f"{number / 1e9:.2f}B" if number >= 1e9 else f"{number / 1e6:.1f}M"
