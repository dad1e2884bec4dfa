# ruff: noqa: E501
"""Twenty small requirements on the programs beside, each with a check that the agent never sees.

Every project holds all programs as the package `kit`. `answer` is what a perfect model writes:
with it, the loop must solve every one. The check runs at the project's top.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Wish:
    words: str
    check: str
    answer: str


def code(heading: str, text: str) -> str:
    """A headed block, as the agent's format has it."""
    return f"`{heading}`\n```python\n{text.strip(chr(10))}\n```\n"


RAISES = """
def raises(kind, call, *args):
    try:
        call(*args)
    except kind:
        return True
    return False
"""

WISHES = (
    Wish(
        "Add a method count to the class Cart in kit/cart.py that returns the sum of the quantities of all items.",
        "from kit.cart import *; assert Cart('a', [Item('x', 1.0, 3), Item('y', 1.0)]).count() == 4; assert Cart('a').count() == 0",
        code("kit/cart.py::Cart.count", "def count(self):\n    return sum(item.quantity for item in self.items)"),
    ),
    Wish(
        "Cart.total in kit/cart.py should take a parameter discount, a percentage that defaults to 0.",
        "from kit.cart import *; c = Cart('a', [Item('x', 2.0, 5)]); assert c.total() == 10; assert abs(c.total(discount=10) - 9) < 1e-9",
        code("kit/cart.py::Cart.total", "def total(self, discount=0):\n    total = 0\n    for item in self.items:\n        total += item.price * item.quantity\n    return total * (1 - discount / 100)"),
    ),
    Wish(
        "Write a function average(numbers) in a new file kit/numbers.py. It returns the mean, or None for an empty list.",
        "from kit.numbers import average; assert average([1, 2, 3]) == 2; assert average([]) is None",
        code("kit/numbers.py", "def average(numbers):\n    if not numbers:\n        return None\n    return sum(numbers) / len(numbers)"),
    ),
    Wish(
        "Account.withdraw in kit/bank.py must raise InsufficientFunds when there is less money than the amount.",
        "from kit.bank import *; a = Account('x', 5); assert raises(InsufficientFunds, a.withdraw, 6); assert a.balance == 5; a.withdraw(5); assert a.balance == 0",
        code("kit/bank.py::Account.withdraw", "def withdraw(self, amount):\n    if amount > self.balance:\n        raise InsufficientFunds(amount)\n    self.balance -= amount\n    self.history.append(('withdraw', amount))"),
    ),
    Wish(
        "Add a method close(owner) to the class Bank in kit/bank.py that removes the account and returns its balance.",
        "from kit.bank import *; b = Bank(); b.open('x').deposit(7); assert b.close('x') == 7; assert 'x' not in b.accounts",
        code("kit/bank.py::Bank.close", "def close(self, owner):\n    return self.accounts.pop(owner).balance"),
    ),
    Wish(
        "load in kit/config.py should close the file also when a line cannot be parsed: use a with statement.",
        "import inspect, tempfile; from kit.config import *; f = tempfile.NamedTemporaryFile('w', delete=False); f.write('port = 1\\n'); f.close(); assert load(f.name)['port'] == '1'; assert 'with open' in inspect.getsource(load)",
        code("kit/config.py::load", "def load(path, defaults=DEFAULTS):\n    settings = dict(defaults)\n    with open(path) as f:\n        for line in f:\n            pair = parse_line(line)\n            if pair:\n                settings[pair[0]] = pair[1]\n    return settings"),
    ),
    Wish(
        "Add a function get_list(settings, key) to kit/config.py that splits the value at commas and strips the parts.",
        "from kit.config import *; assert get_list({'a': 'x, y ,z'}, 'a') == ['x', 'y', 'z']",
        code("kit/config.py::get_list", "def get_list(settings, key):\n    return [part.strip() for part in settings[key].split(',')]"),
    ),
    Wish(
        "get_bool in kit/config.py should accept 'on' too and ignore the case.",
        "from kit.config import *; assert get_bool({'a': 'ON'}, 'a') and get_bool({'a': 'True'}, 'a') and not get_bool({'a': 'off'}, 'a')",
        code("kit/config.py::get_bool", "def get_bool(settings, key):\n    value = settings[key].lower()\n    return value in ('yes', 'true', '1', 'on')"),
    ),
    Wish(
        "truncate in kit/text.py should end a text that was cut with '...'; the result must not be longer than length.",
        "from kit.text import *; assert truncate('abc', 3) == 'abc'; assert truncate('abcdefgh', 6) == 'abc...'",
        code("kit/text.py::truncate", "def truncate(text, length):\n    if len(text) <= length:\n        return text\n    return text[: length - 3] + '...'"),
    ),
    Wish(
        "Add a function title_case(text) to kit/text.py that makes the first letter of every word upper case.",
        "from kit.text import *; assert title_case('the old man') == 'The Old Man'",
        code("kit/text.py::title_case", "def title_case(text):\n    return ' '.join(word[:1].upper() + word[1:] for word in text.split(' '))"),
    ),
    Wish(
        "is_palindrome in kit/text.py should ignore case, blanks and punctuation.",
        "from kit.text import *; assert is_palindrome('A man, a plan, a canal: Panama'); assert not is_palindrome('ab')",
        code("kit/text.py::is_palindrome", "def is_palindrome(text):\n    letters = [c.lower() for c in text if c.isalnum()]\n    return letters == letters[::-1]"),
    ),
    Wish(
        "Station.average in kit/temperature.py should return None if there are no readings.",
        "from kit.temperature import *; assert Station('a').average() is None; assert Station('a', [1.0, 2.0]).average() == 1.5",
        code("kit/temperature.py::Station.average", "def average(self):\n    return mean(self.readings) if self.readings else None"),
    ),
    Wish(
        "Add a function to_celsius(fahrenheit) to kit/temperature.py, the inverse of to_fahrenheit.",
        "from kit.temperature import *; assert abs(to_celsius(212) - 100) < 1e-9; assert abs(to_celsius(32)) < 1e-9",
        code("kit/temperature.py::to_celsius", "def to_celsius(fahrenheit):\n    return (fahrenheit - 32) * 5 / 9"),
    ),
    Wish(
        "Cache.get in kit/cache.py should take a parameter default that is returned for an unknown key.",
        "from kit.cache import *; c = Cache(2); assert c.get('x', 5) == 5; assert c.get('x') is None; c.put('x', 1); assert c.get('x', default=5) == 1",
        code("kit/cache.py::Cache.get", "def get(self, key, default=None):\n    if key not in self._entries:\n        return default\n    value, _ = self._entries[key]\n    self._entries.move_to_end(key)\n    return value"),
    ),
    Wish(
        "Add a method __contains__ to the class Cache in kit/cache.py, so that `key in cache` works.",
        "from kit.cache import *; c = Cache(2); c.put('x', 1); assert 'x' in c and 'y' not in c",
        code("kit/cache.py::Cache.__contains__", "def __contains__(self, key):\n    return key in self._entries"),
    ),
    Wish(
        "Add a method remove_done to the class TaskList in kit/tasks.py that keeps only the tasks that are not done.",
        "from kit.tasks import *; t = TaskList(); t.add('a'); t.add('b'); t.finish('a'); t.remove_done(); assert [x.title for x in t.tasks] == ['b']",
        code("kit/tasks.py::TaskList.remove_done", "def remove_done(self):\n    self.tasks = [task for task in self.tasks if not task.done]"),
    ),
    Wish(
        "TaskList.finish in kit/tasks.py should raise KeyError when there is no task with that title.",
        "from kit.tasks import *; t = TaskList(); t.add('a'); t.finish('a'); assert t.tasks[0].done; assert raises(KeyError, t.finish, 'b')",
        code("kit/tasks.py::TaskList.finish", "def finish(self, title):\n    found = [task for task in self.tasks if task.title == title]\n    if not found:\n        raise KeyError(title)\n    for task in found:\n        task.done = True"),
    ),
    Wish(
        "Add a class method load(path) to TaskList in kit/tasks.py that reads what save has written and returns a TaskList.",
        "import tempfile; from kit.tasks import *; n = tempfile.mktemp(); t = TaskList(); t.add('a', 2).done = True; t.save(n); u = TaskList.load(n); assert u.tasks == t.tasks",
        code("kit/tasks.py::TaskList.load", "@classmethod\ndef load(cls, path):\n    tasks = cls()\n    with open(path) as f:\n        tasks.tasks = [Task(**item) for item in json.load(f)]\n    return tasks"),
    ),
    Wish(
        "Add a class Rectangle(width, height) with the methods area and perimeter to kit/geometry.py.",
        "from kit.geometry import *; r = Rectangle(2, 3); assert r.area() == 6 and r.perimeter() == 10",
        code("kit/geometry.py::Rectangle", "class Rectangle:\n    def __init__(self, width, height):\n        self.width = width\n        self.height = height\n\n    def area(self):\n        return self.width * self.height\n\n    def perimeter(self):\n        return 2 * (self.width + self.height)"),
    ),
    Wish(
        "Circle.area in kit/geometry.py should use math.pi, and Circle needs a method circumference.",
        "from kit.geometry import *; c = Circle(Point(0, 0), 2); assert abs(c.area() - 4 * math.pi) < 1e-9; assert abs(c.circumference() - 4 * math.pi) < 1e-9",
        code("kit/geometry.py::Circle.area", "def area(self):\n    return math.pi * self.radius**2")
        + code("kit/geometry.py::Circle.circumference", "def circumference(self):\n    return 2 * math.pi * self.radius"),
    ),
)  # fmt: skip
