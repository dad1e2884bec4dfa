"""Which files a requirement shows the model at once."""

from __future__ import annotations

from pathlib import Path

from clover_patcher.agent.prompt import likely_files, opening
from clover_patcher.agent.task import Requirement

TEXTS = {
    "shop/cart.py": "class Cart:\n    def total(self):\n        return sum(self.items)\n",
    "shop/tax.py": "RATE = 0.2\n\n\ndef tax(amount):\n    return amount * RATE\n",
    "tests/test_cart.py": "from shop.cart import Cart\n\n\ndef test_total():\n    Cart().total()\n",
    "docs/empty.md": "\n",
}


def test_a_file_that_is_named_is_shown_alone() -> None:
    assert likely_files("Cart.total in shop/cart.py needs a tax", TEXTS) == ["shop/cart.py"]


def test_else_those_whose_names_and_definitions_it_speaks_of() -> None:
    assert likely_files("the tax rate is 0.25", TEXTS)[0] == "shop/tax.py"
    assert likely_files("Cart.total must not be negative", TEXTS)[0] == "shop/cart.py"


def test_no_more_than_there_is_room_for() -> None:
    large = {"a.py": "total = 1\n" * 2_000, "b.py": "total = 2\n"}
    assert likely_files("change the total", large) == ["b.py"]


def test_the_opening_says_what_the_check_says() -> None:
    asked = Requirement(Path(), "a tax of 25 %", check="pytest -q")
    talk, shown = opening(asked, TEXTS, "test_tax fails")
    assert shown and "`pytest -q` fails now:\ntest_tax fails" in talk[1][1]
    assert "CHECK runs the check" in talk[0][1]
    talk, _ = opening(Requirement(Path(), "a tax"), TEXTS, None)
    assert "CHECK" not in talk[0][1]
