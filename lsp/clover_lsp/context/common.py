"""How much two texts have in common, fast for long ones."""

from __future__ import annotations

from collections.abc import Callable


def common_start(first: str, second: str, most: int | None = None) -> int:
    """How many characters both texts begin with, `most` at the most."""
    limit = min(len(first), len(second)) if most is None else most
    return _largest(lambda n: first[:n] == second[:n], limit)


def common_end(first: str, second: str, most: int | None = None) -> int:
    """How many characters both texts end with, `most` at the most."""
    limit = min(len(first), len(second)) if most is None else most
    return _largest(lambda n: n == 0 or first[-n:] == second[-n:], limit)


def _largest(holds: Callable[[int], bool], most: int) -> int:
    """The largest n up to `most` for which `holds` does; it does for all smaller ones."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if holds(middle):
            low = middle
        else:
            high = middle - 1
    return low
