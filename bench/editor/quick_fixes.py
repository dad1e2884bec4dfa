"""Quick fixes of undefined names and lost tokens: how many are right.

    python -m bench.editor.quick_fixes [--cases N] [--engine none|local]

Breaks one place of a standard-library file: a name misspelt (two letters exchanged, one lost, one
doubled), a name replaced by one that is bound nowhere (*foreign*; only a model can know), a
closing bracket or colon lost. *Right* is the first fix that gives back the original file.
"""

from __future__ import annotations

import argparse
import ast
import random
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from clover_engine.api import Engine
from clover_lsp.actions.diff import apply_edits
from clover_lsp.actions.quickfix import Question, parses, quick_fixes
from clover_lsp.context.types import Problem

Broken = tuple[str, int, int, str]
"""Text, the characters that the diagnostic underlines, its message."""
FOREIGN = "xyzzy_value"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--cases", type=int, default=60)
    parser.add_argument("--engine", choices=("none", "local"), default="none")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    if args.engine == "none":
        run(args.cases, args.seed, None)
        return
    from clover_engine.worker.local import LocalEngine

    with LocalEngine() as engine:
        engine.health(start=True)
        run(args.cases, args.seed, engine)


def run(cases: int, seed: int, engine: Engine | None) -> None:
    files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    texts = [p.read_text("utf-8") for p in files if 4_000 <= p.stat().st_size <= 40_000]
    print(f"{'kind':12}{'cases':>6}{'right':>7}{'wrong':>7}{'none':>6}{'precision':>11}"
          f"{'recall':>8}{'ms p50':>8}")  # fmt: skip
    kinds: dict[str, Callable[[str, random.Random], Broken | None]]
    kinds = {"misspelt": misspelt, "foreign": foreign, "lost token": lost_token}
    for kind, make in kinds.items():
        pick = random.Random(seed)
        right = wrong = made = 0
        times: list[float] = []
        for text in pick.choices(texts, k=4 * cases):
            broken = make(text, pick) if made < cases else None
            if broken is None:
                continue
            made += 1
            started = time.perf_counter()
            found = ask(broken, engine)
            times.append(1000 * (time.perf_counter() - started))
            right += found == text
            wrong += found not in (None, text)
        shown = right + wrong
        print(f"{kind:12}{made:6}{right:7}{wrong:7}{made - shown:6}"
              f"{right / shown if shown else 0:11.1%}{right / made:8.1%}"
              f"{median(times):8.0f}")  # fmt: skip


def ask(broken: Broken, engine: Engine | None) -> str | None:
    """The text after the first fix."""
    text, start, end, message = broken
    problem = Problem(text.count("\n", 0, start), message, "error", "Pylance")
    fixes = quick_fixes(Question(text, None, problem, start, end), engine)
    return apply_edits(text, fixes[0].edits) if fixes else None


def misspelt(text: str, pick: random.Random) -> Broken | None:
    found = local_use(text, pick, 5)
    if found is None:
        return None
    start, name = found
    at = pick.randrange(1, len(name) - 1)
    new = pick.choice((
        name[:at] + name[at + 1] + name[at] + name[at + 2 :],
        name[:at] + name[at + 1 :],
        name[:at] + name[at] + name[at:],
    ))  # fmt: skip
    return replaced(text, start, name, new)


def foreign(text: str, pick: random.Random) -> Broken | None:
    found = local_use(text, pick, 1)
    return replaced(text, found[0], found[1], FOREIGN) if found else None


def lost_token(text: str, pick: random.Random) -> Broken | None:
    places = [i for i, c in enumerate(text) if c in ")]:" and i + 1 < len(text)]
    for at in pick.sample(places, min(20, len(places))):
        broken = text[:at] + text[at + 1 :]
        try:
            ast.parse(broken)
        except SyntaxError as error:
            starts = [0, *(i + 1 for i, c in enumerate(broken) if c == "\n")]
            start = starts[min(error.lineno or 1, len(starts)) - 1]
            return broken, start, start + 1, str(error.msg)
    return None


def local_use(text: str, pick: random.Random, shortest: int) -> tuple[int, str] | None:
    """A use of a variable in the function that binds it."""
    starts = [0]
    for line in text.split("\n"):
        starts.append(starts[-1] + len(line) + 1)
    found = []
    for function in ast.walk(ast.parse(text)):
        if not isinstance(function, ast.FunctionDef):
            continue
        bound = {a.arg for a in function.args.args}
        bound |= {n.id for n in ast.walk(function) if is_name(n, ast.Store)}
        found += [
            (starts[n.lineno - 1] + n.col_offset, n.id)
            for n in ast.walk(function)
            if isinstance(n, ast.Name) and is_name(n, ast.Load) and n.id in bound
        ]
    fit = [(s, n) for s, n in found if len(n) >= shortest and text[s : s + len(n)] == n]
    return pick.choice(fit) if fit else None


def is_name(node: ast.AST, context: type[ast.expr_context]) -> bool:
    return isinstance(node, ast.Name) and isinstance(node.ctx, context)


def replaced(text: str, start: int, old: str, new: str) -> Broken | None:
    broken = text[:start] + new + text[start + len(old) :]
    if not parses(broken) or new in text:
        return None
    return broken, start, start + len(new), f'"{new}" is not defined'


if __name__ == "__main__":
    main()
