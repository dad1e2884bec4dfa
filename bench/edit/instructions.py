# ruff: noqa: E501
"""Forty instructions about the programs beside, each with the lines selected and a check.

`select` names a function, method or class (all of it is selected), or two texts: from the first
line that has the one to the next that has the other. The check runs in the edited module's names,
`source` being the edited file and `new` the new lines.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Case:
    program: str
    select: str | tuple[str, str]
    words: str
    check: str


RAISES = """
def raises(kind, call, *args):
    try:
        call(*args)
    except kind:
        return True
    return False
"""
"""What checks may use."""

CASES = (
    Case("cart", "Cart.total", "use sum() with a generator expression",
         "c = Cart('a', [Item('x', 2.0, 3), Item('y', 1.0)]); assert c.total() == 7.0; assert 'sum(' in new"),
    Case("cart", "Cart.total", "add a parameter discount, a percentage that defaults to 0 and is taken off the total",
         "c = Cart('a', [Item('x', 2.0, 5)]); assert c.total() == 10; assert abs(c.total(discount=10) - 9) < 1e-9"),
    Case("cart", "Cart.is_empty", "simplify",
         "assert Cart('a').is_empty() is True; assert Cart('a', [Item('x', 1.0)]).is_empty() is False; assert 'else' not in new"),
    Case("cart", "Cart.remove", "raise KeyError if there is no item with that name",
         "c = Cart('a', [Item('x', 1.0)]); c.remove('x'); assert not c.items; assert raises(KeyError, c.remove, 'x')"),
    Case("cart", "receipt", "use an f-string and show the price with two decimals",
         "assert receipt(Cart('a', [Item('x', 1.5)])) == 'x: 1.50'"),
    Case("cart", "Item", "add a field weight, a float that defaults to 0.0",
         "assert Item('x', 1.0).weight == 0.0; assert Item('x', 1.0, 2).quantity == 2; assert Item('x', 1.0, weight=2.5).weight == 2.5"),
    Case("config", "load", "use a with statement to open the file",
         "import tempfile; f = tempfile.NamedTemporaryFile('w', delete=False); f.write('port = 1\\n'); f.close();"
         "assert load(f.name)['port'] == '1'; assert 'with open' in new and 'close()' not in new"),
    Case("config", "parse_line", "raise ConfigError with the line in its message if the line has no equals sign",
         "assert parse_line('a = b') == ('a', 'b'); assert parse_line('# x') is None; assert raises(ConfigError, parse_line, 'abc')"),
    Case("config", "get_int", "add a parameter default, None if not given, that is returned if the key is missing",
         "assert get_int({'a': '3'}, 'a') == 3; assert get_int({}, 'a', 5) == 5; assert get_int({}, 'a') is None"),
    Case("config", "get_bool", "ignore the case of the value and also accept 'on'",
         "assert get_bool({'a': 'ON'}, 'a'); assert get_bool({'a': 'Yes'}, 'a'); assert not get_bool({'a': 'no'}, 'a')"),
    Case("config", "from_environment", "rewrite it as a dict comprehension",
         "os.environ['QX_PORT'] = '7'; assert from_environment('QX_') == {'port': '7'}; assert 'found' not in new"),
    Case("text", "truncate", "end a text that was cut with '...', which counts towards the length",
         "assert truncate('abc', 3) == 'abc'; assert truncate('abcdefgh', 6) == 'abc...'"),
    Case("text", "word_count", "use dict.get instead of the if statement",
         "assert word_count('a b a') == {'a': 2, 'b': 1}; assert '.get(' in new and 'else' not in new"),
    Case("text", "count_vowels", "count upper case vowels too",
         "assert count_vowels('AbE e') == 3; assert count_vowels('xyz') == 0"),
    Case("text", "is_palindrome", "ignore case and blanks",
         "assert is_palindrome('Never odd or even'); assert not is_palindrome('ab')"),
    Case("text", "slugify", "return 'untitled' if nothing is left of the title",
         "assert slugify('!!') == 'untitled'; assert slugify('A b') == 'a-b'"),
    Case("text", "wrap", "rename the parameter width to columns",
         "assert wrap('aa bb cc', columns=5) == ['aa bb', 'cc']; assert 'width' not in new"),
    Case("bank", "Account.withdraw", "raise InsufficientFunds if there is less than amount",
         "a = Account('x', 10); assert raises(InsufficientFunds, a.withdraw, 11); assert a.balance == 10 and not a.history; a.withdraw(4); assert a.balance == 6"),
    Case("bank", "Account.deposit", "raise ValueError if the amount is not positive",
         "a = Account('x'); assert raises(ValueError, a.deposit, 0); assert raises(ValueError, a.deposit, -1); a.deposit(3); assert a.balance == 3"),
    Case("bank", "Bank.find", "return None if there is no such account",
         "assert Bank().find('x') is None; b = Bank(); a = b.open('x'); assert b.find('x') is a"),
    Case("bank", "Bank.richest", "use max() with a key, and return None for an empty bank",
         "b = Bank(); assert b.richest() is None; b.open('x'); b.open('y').deposit(3); assert b.richest().owner == 'y'; assert 'max(' in new"),
    Case("bank", "Account.__repr__", "use an f-string",
         "assert repr(Account('x', 5)) == 'Account(x, 5)'; assert '%' not in new"),
    Case("bank", "Bank.transfer", "rename the local variables a and b to payer and payee",
         "b = Bank(); b.open('x').deposit(5); b.open('y'); b.transfer('x', 'y', 2); assert b.find('y').balance == 2; assert 'payer.withdraw' in new and 'payee.deposit' in new"),
    Case("temperature", "Station.average", "return None if there are no readings",
         "assert Station('a').average() is None; assert Station('a', [1.0, 2.0]).average() == 1.5"),
    Case("temperature", "Station.highest", "use max()",
         "assert Station('a', [1.0, 3.0, 2.0]).highest() == 3.0; assert 'max(' in new and 'for' not in new"),
    Case("temperature", "Station.frost_days", "use the constant FREEZING instead of 0.0",
         "assert Station('a', [-1.0, 3.0]).frost_days() == 1; assert 'FREEZING' in new and '0.0' not in new"),
    Case("temperature", "parse_reading", "skip blanks around both parts and accept a decimal comma",
         "assert parse_reading(' Oslo ; 1,5') == ('Oslo', 1.5); assert parse_reading('a;2.5') == ('a', 2.5)"),
    Case("temperature", "to_fahrenheit", "add type annotations and a docstring",
         "assert to_fahrenheit(100) == 212; assert to_fahrenheit.__doc__; assert to_fahrenheit.__annotations__.get('return') is float"),
    Case("temperature", "Station.to_dict", "add the key count with the number of readings",
         "assert Station('a', [1.0]).to_dict() == {'name': 'a', 'readings': [1.0], 'count': 1}"),
    Case("cache", "Cache.get", "add a parameter default that is returned instead of None for an unknown key; it is None if not given",
         "c = Cache(2); assert c.get('x') is None; assert c.get('x', 5) == 5; c.put('x', 1); assert c.get('x', 5) == 1"),
    Case("cache", "Cache.clear", "use the clear method of the OrderedDict",
         "c = Cache(2); c.put('a', 1); e = c._entries; c.clear(); assert len(c) == 0 and c._entries is e"),
    Case("cache", "cached", "use functools.wraps for the wrapper and import what that needs inside the function",
         "f = cached(len); assert f('ab') == 2; assert f.__name__ == 'len'"),
    Case("tasks", "TaskList.finish", "return True if a task was found, else False",
         "t = TaskList(); t.add('a'); assert t.finish('a') is True; assert t.tasks[0].done; assert t.finish('b') is False"),
    Case("tasks", "TaskList.open_tasks", "rewrite it as a list comprehension",
         "t = TaskList(); t.add('a'); t.add('b').done = True; assert [x.title for x in t.open_tasks()] == ['a']; assert 'append' not in new"),
    Case("tasks", "TaskList.by_priority", "sort the highest priority first",
         "t = TaskList(); t.add('a', 1); t.add('b', 2); assert [x.title for x in t.by_priority()] == ['b', 'a']"),
    Case("tasks", "TaskList.summary", "use an f-string",
         "t = TaskList(); t.add('a').done = True; t.add('b'); assert t.summary() == '1 of 2 done'; assert 'str(' not in new"),
    Case("tasks", "TaskList.save", "write the JSON with an indent of 2 and the encoding utf-8",
         "import tempfile; n = tempfile.mktemp(); t = TaskList(); t.add('a'); t.save(n); assert '\\n  {' in open(n).read(); assert 'utf-8' in new.lower() or 'utf8' in new.lower()"),
    Case("geometry", "Circle.area", "use math.pi",
         "assert abs(Circle(Point(0, 0), 1).area() - math.pi) < 1e-12"),
    Case("geometry", "Point", "add a method __eq__ that compares both coordinates",
         "assert Point(1, 2) == Point(1, 2); assert not Point(1, 2) == Point(1, 3); assert Point(3, 4).distance(Point(0, 0)) == 5; assert Point(0, 0).moved(1, 2).y == 2"),
    Case("geometry", "perimeter", "close the polygon: count the way from the last point back to the first too",
         "assert perimeter([Point(0, 0), Point(3, 0), Point(3, 4)]) == 12"),
)  # fmt: skip
