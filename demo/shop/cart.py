"""What a customer is about to buy."""

from shop.prices import FREE_SHIPPING_FROM, SHIPPING, price_of, reduced


class Cart:
    """Articles and how many of each."""

    def __init__(self, percent_off=0):
        self.percent_off = percent_off
        self.pieces = {}

    def add(self, name, count=1):
        """Puts `count` pieces of an article into the cart."""
        price_of(name)
        self.pieces[name] = self.pieces.get(name, 0) + count

    def remove(self, name):
        """Takes one piece out; the last one takes the article out."""
        self.pieces[name] -= 1
        if self.pieces[name] == 0:
            del self.pieces[name]

    def goods(self):
        """The price of all pieces, after the reduction."""
        amount = 0
        for name, count in self.pieces.items():
            amount += price_of(name) * count
        return reduced(amount, self.percent_off)

    def shipping(self):
        """Free from a certain price of the goods; an empty cart ships nothing."""
        if not self.pieces or self.goods() > FREE_SHIPPING_FROM:
            return 0
        return SHIPPING

    def total(self):
        """What the customer pays."""
        return self.goods() + self.shipping()
