"""What the twenty QuixBugs development programs should do, on generated inputs.

Written from the descriptions at the end of the buggy programs, by other algorithms than theirs.
Every generated input keeps the stated preconditions, and leaves out what the described algorithm
cannot do in any version (equal distances between nodes that cannot be compared, a word longer
than the column behind a space). Where several answers are right, all of them are accepted.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

Args = tuple[Any, ...]
Generate = Callable[[Random], Args]
Agrees = Callable[[Args, Any], bool]


@dataclass(frozen=True, slots=True)
class Reference:
    """Inputs for one program, and whether an answer is right."""

    generate: Generate
    agrees: Agrees
    """Gets arguments made anew from the same seed, not those that the program may have changed."""


class Node:
    """A node of a list or graph, with the attributes that the programs read."""

    def __init__(self, value: Any = None, successor: Node | None = None) -> None:
        self.value = value
        self.successor = successor
        self.successors: list[Node] = []
        self.predecessors: list[Node] = []
        self.incoming_nodes: list[Node] = []
        self.outgoing_nodes: list[Node] = []


def equals(expected: Callable[..., Any], shape: Callable[[Any], Any] = lambda x: x) -> Agrees:
    """Agreement with one right answer."""
    return lambda args, answer: bool(shape(answer) == expected(*args))


# --- numbers and sequences --------------------------------------------------------------------


def ints(rng: Random, most: int = 10, low: int = -20, high: int = 20) -> list[int]:
    return [rng.randint(low, high) for _ in range(rng.randint(0, most))]


def unique_ints(rng: Random, most: int = 10) -> list[int]:
    return rng.sample(range(-30, 60), rng.randint(0, most))


def one_bits(n: int) -> int:
    return bin(n).count("1")


def small_ints(rng: Random) -> Args:
    k = rng.randint(1, 12)
    return ints(rng, 12, 0, k - 1), k + rng.choice((0, 0, 1, 3))


def almost_sorted(rng: Random) -> Args:
    """Unique elements, none more than k places from where it belongs."""
    values = sorted(unique_ints(rng, 12))
    k = rng.randint(0, 4)
    # A stable sort by "place plus at most k" moves nothing by more than k.
    order = sorted(range(len(values)), key=lambda i: i + rng.uniform(0, k))
    arr = [values[i] for i in order]
    moved = max((abs(at - values.index(x)) for at, x in enumerate(arr)), default=0)
    return arr, max(moved, rng.choice((moved, k)))


def longest_increasing(arr: Sequence[int]) -> int:
    best: list[int] = []
    for i, x in enumerate(arr):
        best.append(1 + max((best[j] for j in range(i) if arr[j] < x), default=0))
    return max(best, default=0)


def best_sum(arr: Sequence[int]) -> int:
    n = len(arr)
    return max(sum(arr[i:j]) for i in range(n + 1) for j in range(i, n + 1))


def text(rng: Random, letters: str, most: int) -> str:
    return "".join(rng.choice(letters) for _ in range(rng.randint(0, most)))


def longest_common(s: str, t: str) -> int:
    pieces = {s[i:j] for i in range(len(s)) for j in range(i, len(s) + 1)}
    return max((len(piece) for piece in pieces if piece in t), default=0)


def nested(rng: Random, depth: int = 0) -> list[Any]:
    def item() -> Any:
        if depth < 4 and rng.random() < 0.4:
            return nested(rng, depth + 1)
        return rng.choice((rng.randint(0, 9), "text", None, (1, 2), 0.5))

    return [item() for _ in range(rng.randint(0, 4))]


def leaves(arr: list[Any]) -> list[Any]:
    return [leaf for x in arr for leaf in (leaves(x) if isinstance(x, list) else [x])]


def palindrome(rng: Random) -> Args:
    half = [rng.choice((rng.randint(0, 9), 9)) for _ in range(rng.randint(1, 4))]
    half[0] = half[0] or 1
    return (half + half[::-1][rng.randint(0, 1) :],)


def next_palindrome(digits: list[int]) -> list[int]:
    number = int("".join(map(str, digits)))
    while str(number := number + 1) != str(number)[::-1]:
        pass
    return [int(c) for c in str(number)]


def change(rng: Random) -> Args:
    coins = rng.sample(range(1, 12), rng.randint(0 if rng.random() < 0.3 else 1, 4))
    return coins, rng.randint(-3, 25)


def count_change(coins: list[int], total: int) -> int:
    ways = [1] + [0] * max(total, 0)
    for coin in coins:
        for amount in range(coin, total + 1):
            ways[amount] += ways[amount - coin]
    return ways[total] if total >= 0 else 0


def subsets(answer: Any) -> tuple[int, set[frozenset[Any]]]:
    return len(answer), {frozenset(subset) for subset in answer}


def all_subsets(arr: list[Any]) -> tuple[int, set[frozenset[Any]]]:
    groups = itertools.chain(*(itertools.combinations(arr, n) for n in range(len(arr) + 1)))
    found = {frozenset(group) for group in groups}
    return len(found), found


# --- towers, calculators, text ----------------------------------------------------------------


def towers(rng: Random) -> Args:
    start, end = rng.sample((1, 2, 3), 2)
    return rng.randint(0, 6), start, end


def solves(args: Args, steps: Any) -> bool:
    """Whether the moves are allowed, bring the tower over, and are as few as possible."""
    height, start, end = args
    pegs: dict[int, list[int]] = {1: [], 2: [], 3: []}
    pegs[start] = list(range(height, 0, -1))
    for source, target in steps:
        if not pegs[source] or (pegs[target] and pegs[target][-1] < pegs[source][-1]):
            return False
        pegs[target].append(pegs[source].pop())
    return len(pegs[end]) == height and bool(len(steps) == 2**height - 1)


def expression(rng: Random) -> Args:
    """A valid expression without a division by zero."""
    while True:
        tokens = _expression(rng, 4)
        try:
            evaluate(tokens)
        except (ZeroDivisionError, OverflowError):
            continue
        return (tokens,)


def _expression(rng: Random, depth: int) -> list[Any]:
    if depth == 0 or rng.random() < 0.3:
        return [float(rng.randint(-9, 9))]
    left, right = _expression(rng, depth - 1), _expression(rng, depth - 1)
    return [*left, *right, rng.choice("+-*/")]


def evaluate(tokens: list[Any]) -> float:
    return _operand(list(tokens))


def _operand(rest: list[Any]) -> float:
    """Takes the last operand off the end."""
    token = rest.pop()
    if isinstance(token, float):
        return token
    right, left = _operand(rest), _operand(rest)
    if token == "/":
        return left / right
    return left + right if token == "+" else left - right if token == "-" else left * right


def paragraph(rng: Random) -> Args:
    cols = rng.randint(3, 12)
    if rng.random() < 0.2:
        return text(rng, "abc", 40), cols
    words = ["x" * rng.randint(1, cols - 1) for _ in range(rng.randint(0, 12))]
    return " ".join(words), cols


def wraps(args: Args, lines: Any) -> bool:
    """Nothing lost, no line too long, no word broken that had a space to break at."""
    whole, cols = args
    if not isinstance(lines, list) or "".join(lines) != whole:
        return False
    for line, following in itertools.pairwise(lines):
        broken = line[-1:] not in ("", " ") and following[:1] not in ("", " ")
        if broken and " " in (line + following[:1])[: cols + 1].lstrip(" "):
            return False
    return all(len(line) <= cols for line in lines)


# --- lists and graphs -------------------------------------------------------------------------


def linked_list(rng: Random) -> Args:
    nodes = [Node(i) for i in range(rng.randint(1, 9))]
    for node, following in itertools.pairwise(nodes):
        node.successor = following
    if rng.random() < 0.5:
        nodes[-1].successor = rng.choice(nodes)
    return (nodes[0],)


def cyclic(head: Node) -> bool:
    seen: set[int] = set()
    node: Node | None = head
    while node is not None and id(node) not in seen:
        seen.add(id(node))
        node = node.successor
    return node is not None


def weighted_graph(rng: Random) -> Args:
    """A connected undirected graph; weights differ, so that there is one minimal tree."""
    count = rng.randint(2, 7)
    edges = [(rng.randrange(node), node) for node in range(1, count)]
    others = [pair for pair in itertools.combinations(range(count), 2) if pair not in edges]
    edges += rng.sample(others, rng.randint(0, len(others)))
    edges = [edge if rng.random() < 0.5 else edge[::-1] for edge in edges]
    rng.shuffle(edges)
    return (dict(zip(edges, rng.sample(range(1, 100), len(edges)), strict=True)),)


def minimal_tree(weights: dict[tuple[int, int], int]) -> set[tuple[int, int]]:
    """By growing one tree, not by joining several."""
    nodes = {node for edge in weights for node in edge}
    reached, tree = {min(nodes)}, set()
    while reached != nodes:
        leaving = [edge for edge in weights if len(reached & set(edge)) == 1]
        cheapest = min(leaving, key=weights.__getitem__)
        tree.add(cheapest)
        reached |= set(cheapest)
    return tree


def acyclic_graph(rng: Random) -> Args:
    nodes = [Node(i) for i in range(rng.randint(1, 7))]
    for first, second in itertools.combinations(nodes, 2):
        if rng.random() < 0.35:
            first.outgoing_nodes.append(second)
            second.incoming_nodes.append(first)
    return (rng.sample(nodes, len(nodes)),)


def is_ordering(args: Args, answer: Any) -> bool:
    values = [node.value for node in answer]
    if sorted(values) != sorted(node.value for node in args[0]):
        return False
    place = {value: at for at, value in enumerate(values)}
    return all(place[n.value] < place[m.value] for n in args[0] for m in n.outgoing_nodes)


def roads(rng: Random) -> Args:
    """Nodes of a directed graph; long random lengths, so that no two distances are equal."""
    while True:
        nodes = [Node(i) for i in range(rng.randint(2, 6))]
        lengths = {}
        for first, second in itertools.permutations(nodes, 2):
            if rng.random() < 0.45:
                first.successors.append(second)
                lengths[first, second] = rng.randint(1, 10**9)
        start = rng.choice(nodes)
        if _settles_in_order(lengths, start):
            return lengths, start, rng.choice(nodes)


def _settles_in_order(lengths: dict[tuple[Node, Node], int], start: Node) -> bool:
    """Whether a heap whose entries are replaced in place still gives the nearest node first.

    The program replaces entries without sifting them, which no version of it gets right always.
    """
    heap: list[tuple[float, int]] = [(0, start.value)]
    done: dict[int, float] = {}
    while heap:
        distance, here = heapq.heappop(heap)
        if distance < max(done.values(), default=0):
            return False
        done[here] = distance
        for (first, second), length in lengths.items():
            if first.value == here and second.value not in done:
                places = [i for i, (_, value) in enumerate(heap) if value == second.value]
                if places:
                    known = heap[places[0]][0]
                    heap[places[0]] = min(known, distance + length), second.value
                else:
                    heapq.heappush(heap, (distance + length, second.value))
    return True


def shortest(lengths: dict[tuple[Node, Node], int], start: Node, goal: Node) -> float:
    """By relaxing all edges again and again."""
    distance: dict[Node, float] = {start: 0}
    for _ in range(len(lengths) + 1):
        for (first, second), length in lengths.items():
            through = distance.get(first, float("inf")) + length
            distance[second] = min(distance.get(second, float("inf")), through)
    return distance.get(goal, float("inf"))


def signed_graph(rng: Random) -> Args:
    """Lengths may be negative, cycles are not: each length is a potential's rise plus some."""
    n = rng.randint(1, 6)
    potential = [rng.randint(0, 9) for _ in range(n)]
    lengths = {
        (i, j): potential[j] - potential[i] + rng.randint(0, 9)
        for i, j in itertools.permutations(range(n), 2)
        if rng.random() < 0.5
    }
    return n, lengths


def right_lengths(args: Args, answer: Any) -> bool:
    n, lengths = args
    return all(answer[i, j] == _distance(n, lengths, i, j) for i in range(n) for j in range(n))


def _distance(n: int, lengths: dict[tuple[int, int], int], start: int, goal: int) -> float:
    distance = [float("inf")] * n
    distance[start] = 0
    for _ in range(n):
        for (i, j), length in lengths.items():
            distance[j] = min(distance[j], distance[i] + length)
    return distance[goal]


REFERENCES: dict[str, Reference] = {
    "bitcount": Reference(lambda r: (r.getrandbits(r.randint(1, 64)),), equals(one_bits)),
    "bucketsort": Reference(small_ints, equals(lambda arr, k: sorted(arr))),
    "detect_cycle": Reference(linked_list, equals(cyclic, bool)),
    "flatten": Reference(lambda r: (nested(r),), equals(leaves, list)),
    "hanoi": Reference(towers, solves),
    "kheapsort": Reference(almost_sorted, equals(lambda arr, k: sorted(arr), list)),
    "lcs_length": Reference(
        lambda r: (text(r, "abc", 9), text(r, "abc", 9)), equals(longest_common)
    ),
    "lis": Reference(lambda r: (unique_ints(r),), equals(longest_increasing)),
    "max_sublist_sum": Reference(lambda r: (ints(r),), equals(best_sum)),
    "mergesort": Reference(lambda r: (ints(r),), equals(sorted)),
    "minimum_spanning_tree": Reference(weighted_graph, equals(minimal_tree)),
    "next_palindrome": Reference(palindrome, equals(next_palindrome)),
    "possible_change": Reference(change, equals(count_change)),
    "powerset": Reference(lambda r: (unique_ints(r, 6),), equals(all_subsets, subsets)),
    "quicksort": Reference(lambda r: (ints(r, 12, 0, 9),), equals(sorted)),
    "rpn_eval": Reference(expression, equals(evaluate)),
    "shortest_path_length": Reference(roads, equals(shortest)),
    "shortest_path_lengths": Reference(signed_graph, right_lengths),
    "topological_ordering": Reference(acyclic_graph, is_ordering),
    "wrap": Reference(paragraph, wraps),
}
