import pytest
from shop.prices import price_of, reduced


def test_price_of():
    assert price_of("tea") == 450


def test_unknown_article():
    with pytest.raises(KeyError):
        price_of("sofa")


def test_reduced():
    assert reduced(1000, 15) == 850
    assert reduced(999, 50) == 499
