"""A shopping cart."""

from dataclasses import dataclass, field


@dataclass
class Item:
    name: str
    price: float
    quantity: int = 1


@dataclass
class Cart:
    owner: str
    items: list[Item] = field(default_factory=list)

    def add(self, item):
        for known in self.items:
            if known.name == item.name:
                known.quantity += item.quantity
                return
        self.items.append(item)

    def remove(self, name):
        for item in self.items:
            if item.name == name:
                self.items.remove(item)
                break

    def total(self):
        total = 0
        for item in self.items:
            total += item.price * item.quantity
        return total

    def is_empty(self):
        if len(self.items) == 0:
            return True
        else:
            return False


def receipt(cart):
    lines = []
    for item in cart.items:
        lines.append(item.name + ": " + str(item.price))
    return "\n".join(lines)
