"""The model's distribution refined by token counts, compiled: tens of microseconds a row.

The same rule as `clover_engine.statistics.mixture.refined`, for all tokens of the vocabulary at
once. Repository counts come from the sorted positions of `Grams`; the open file is small and
changes with every key, so that it is gone through each time instead of being sorted.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from clover_engine.cpu.kernels import Array, compiled

MOST_PLACES = 2048
"""Places of a context that are counted; of more, every so many-th."""


@compiled
def narrow(tokens: Array, order: Array, low: Any, high: Any, depth: int, token: int) -> Any:
    """The part [low, high) of a range whose token `depth` before the position is `token`."""
    a, b = low, high
    while a < b:
        middle = (a + b) // 2
        if tokens[order[middle] - depth] < token:
            a = middle + 1
        else:
            b = middle
    start, b = a, high
    while a < b:
        middle = (a + b) // 2
        if tokens[order[middle] - depth] <= token:
            a = middle + 1
        else:
            b = middle
    return start, a


@compiled
def refine(
    p: Array,
    context: Array,
    tokens: Array,
    order: Array,
    starts: Array,
    skip: Array,
    file: Array,
    matches: Array,
    alias: Array,
    strengths: Array,
    counts: Array,
    touched: Array,
    separator: int,
) -> None:
    """Refines p float64 [vocab] in place, after the tokens `context` int64 [k], latest last.

    tokens uint16, order uint32, starts uint32: those of `Grams`; tokens [skip[0], skip[1]) are
    left out. file uint16: the open file's tokens. matches int32 [2, len(file)], counts float64
    [vocab] (zeros), touched int32 [vocab]: scratch. alias int32 [65536]: as what a token counts;
    negative: not at all. strengths float64 [2, orders]: λ, of the repository first.
    """
    orders, depth = strengths.shape[1], len(context)
    last = context[depth - 1]
    found = 0
    for at in range(1, len(file)):
        if file[at - 1] == last and file[at] != separator:
            size = 1
            while (
                size < orders
                and size < depth
                and size < at
                and file[at - 1 - size] == context[depth - 1 - size]
            ):
                size += 1
            matches[0, found], matches[1, found] = at, size
            found += 1
    low, high = np.int64(0), np.int64(0)
    if len(order) > 0:
        low, high = np.int64(starts[last]), np.int64(starts[last + 1])
    scale = 1.0
    for k in range(1, orders + 1):
        if k > depth:
            break
        if k > 1 and low < high:
            low, high = narrow(tokens, order, low, high, k - 1, context[depth - k])
        for scope in range(2):
            n, used = 0.0, 0
            places = high - low if scope == 0 else found
            step = places // MOST_PLACES + 1
            for place in range(0, places, step):
                if scope == 0:
                    at = int(order[low + place]) + 1
                    if at >= len(tokens) or skip[0] <= at < skip[1]:
                        continue
                    token: Any = alias[tokens[at]]
                else:
                    if matches[1, place] < k:
                        continue
                    token = alias[file[matches[0, place]]]
                if token < 0:
                    continue
                if counts[token] == 0.0:
                    touched[used] = token
                    used += 1
                counts[token] += step
                n += step
            if n > 0:
                strength = strengths[scope, k - 1]
                scale *= strength / (n + strength)
                for i in range(used):
                    token = touched[i]
                    p[token] += counts[token] / ((n + strength) * scale)
                    counts[token] = 0.0
        if low >= high:
            longer = False
            for place in range(found):
                if matches[1, place] > k:
                    longer = True
                    break
            if not longer:
                break
    for token in range(len(p)):
        p[token] *= scale
