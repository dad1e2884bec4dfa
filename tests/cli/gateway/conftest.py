"""Gateways of a test, ended with it; a small repository."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.cli.gateway.client import Gateway

SHOP = """\
import prices


def total(cart):
    subtotal = prices.subtotal_of(cart, currency="EUR")
    return subtotal + prices.delivery(cart)


def saved(cart):
    return cart.before - cart.after
"""
PRICES = """\
def subtotal_of(cart, currency):
    return sum(item.price for item in cart)


def delivery(cart):
    return 0 if len(cart) > 3 else 5
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "shop"
    folder.mkdir()
    (folder / "shop.py").write_text(SHOP)
    (folder / "prices.py").write_text(PRICES)
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    return folder


@pytest.fixture
def start(repository: Path) -> Iterator[Callable[..., Gateway]]:
    """``start("--key", "x", infills=["y"])`` starts one in the repository."""
    running: list[Gateway] = []

    def one(*arguments: str, **fake: object) -> Gateway:
        running.append(Gateway(repository, *arguments, **fake))
        return running[-1]

    yield one
    for gateway in running:
        gateway.close()
