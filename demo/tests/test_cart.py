from shop.cart import Cart


def test_goods():
    cart = Cart()
    cart.add("tea", 2)
    cart.add("mug")
    assert cart.goods() == 2000


def test_remove():
    cart = Cart()
    cart.add("tea", 2)
    cart.remove("tea")
    assert cart.pieces == {"tea": 1}
    cart.remove("tea")
    assert cart.pieces == {}


def test_empty_cart_ships_nothing():
    assert Cart().total() == 0


def test_small_order_pays_shipping():
    cart = Cart()
    cart.add("mug")
    assert cart.total() == 1690


def test_large_order_ships_free():
    cart = Cart()
    cart.add("kettle", 2)
    assert cart.total() == 7800


def test_exactly_fifty_ships_free():
    cart = Cart()
    cart.add("kettle")
    cart.add("mug")
    assert cart.total() == 5000
