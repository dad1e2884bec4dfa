"""Prices in cents."""

PRICES = {"tea": 450, "mug": 1100, "kettle": 3900, "spoon": 150}
FREE_SHIPPING_FROM = 5000
SHIPPING = 590


def price_of(name):
    """The price of one piece; an unknown name is an error."""
    if name not in PRICES:
        raise KeyError(f"no such article: {name}")
    return PRICES[name]


def reduced(amount, percent):
    """The amount less a percentage, rounded down to whole cents."""
    return amount * (100 - percent) // 100
