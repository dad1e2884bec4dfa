"""A cache that forgets what was not used for longest."""

import time
from collections import OrderedDict


class Cache:
    def __init__(self, size, clock=time.monotonic):
        self.size = size
        self.clock = clock
        self._entries = OrderedDict()

    def get(self, key):
        if key not in self._entries:
            return None
        value, _ = self._entries[key]
        self._entries.move_to_end(key)
        return value

    def put(self, key, value):
        self._entries[key] = (value, self.clock())
        self._entries.move_to_end(key)
        if len(self._entries) > self.size:
            self._entries.popitem(last=False)

    def clear(self):
        self._entries = OrderedDict()

    def __len__(self):
        return len(self._entries)


def cached(function):
    results = {}

    def wrapper(*args):
        if args in results:
            return results[args]
        value = function(*args)
        results[args] = value
        return value

    return wrapper
