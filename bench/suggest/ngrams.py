"""How well token counts of file and repository predict code, and the λ that do it best.

    python -m bench.suggest.ngrams [--lines 60]          # nats a token on the measured packages
    python -m bench.suggest.ngrams --fit [--lines 60]    # λ from the packages for fitting

Every package is a repository. Lines of code are taken out of it, one at a time, and their tokens
predicted from what is left: the line's own occurrence counts nowhere. The sets of packages are
those of `packages.py`. ``--fit`` prints `ALONE` of ``clover_engine/statistics/mixture.py``.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Sequence

import numpy as np
import torch
from bench.suggest.packages import FITTED, MEASURED, sources

from clover_engine.statistics.cutter import cutter
from clover_engine.statistics.edits import FileStatistics, Region
from clover_engine.statistics.grams import ORDERS, Grams
from clover_engine.statistics.mixture import BASE, Counts

ROW = 4 * ORDERS + 1
"""A token: its base probability, then seen and hits of the repository and of the file."""


def rows(package: str, lines: int, rng: random.Random) -> list[list[float]]:
    """Counts for every token of so many lines, each taken out of the package."""
    texts = [text for _, text in sources(package)]
    cut = cutter()
    repository = Grams.of(cut.cut(text) for text in texts)
    by_file: dict[int, list[int]] = {}
    sizes = [len(text) for text in texts]
    while sum(map(len, by_file.values())) < lines:
        at = rng.choices(range(len(texts)), sizes)[0]
        by_file.setdefault(at, []).append(rng.randrange(len(texts[at])))
    found = []
    for number, places in by_file.items():
        text = texts[number]
        file = FileStatistics(text, cut, repository, text)
        for place in places:
            line = text[text.rfind("\n", 0, place) + 1 :].partition("\n")[0]
            if len(line.strip()) < 4 or line.strip().startswith(("#", '"', "'")):
                continue
            found += _line_rows(file, file.region(place, place), cut.size)
    return found


def _line_rows(file: FileStatistics, region: Region, vocabulary: int) -> list[list[float]]:
    found = []
    whole = [*region.left, *region.tokens]
    for at in range(ORDERS, len(whole)):
        context, token = whole[at - ORDERS : at], whole[at]
        repository, own = file.counts(context, token)
        own = own.less(region.counts(context, token))
        hits = sum(c.hits[0] for c in (repository, own) if c.hits)
        base = (hits + BASE) / (repository.size + own.size + BASE * vocabulary)
        found.append([base, *_padded(repository), *_padded(own)])
    return found


def _padded(counts: Counts) -> list[float]:
    seen = [*counts.seen, *[0] * ORDERS][:ORDERS]
    hits = [*counts.hits[1:], *[0] * ORDERS][:ORDERS]
    return [*map(float, seen), *map(float, hits)]


def nats(data: torch.Tensor, logs: torch.Tensor) -> torch.Tensor:
    """Mean −log p. data: float64 [tokens, ROW]; logs: log λ, [2, ORDERS], repository first."""
    p = data[:, 0]
    for k in range(ORDERS):
        for scope in (0, 1):
            seen = data[:, 1 + 2 * ORDERS * scope + k]
            hits = data[:, 1 + 2 * ORDERS * scope + ORDERS + k]
            strength = logs[scope, k].exp()
            p = torch.where(seen > 0, (hits + strength * p) / (seen + strength), p)
    return -p.clamp_min(1e-12).log().mean()


def fit(data: torch.Tensor) -> torch.Tensor:
    logs = torch.full((2, ORDERS), 1.0, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.Adam([logs], lr=0.05)
    for _ in range(400):
        optimiser.zero_grad()
        loss = nats(data, logs) + 1e-3 * (logs[:, 1:] - logs[:, :-1]).square().sum()
        loss.backward()
        optimiser.step()
    return logs.detach()


def gathered(packages: Sequence[str], lines: int, seed: int) -> dict[str, torch.Tensor]:
    rng = random.Random(seed)
    return {
        package: torch.from_numpy(np.array(rows(package, lines, rng), float))
        for package in packages
    }


def shipped() -> torch.Tensor:
    from clover_engine.statistics.mixture import ALONE

    return torch.tensor([ALONE.repository, ALONE.file], dtype=torch.float64).log()


def report(data: dict[str, torch.Tensor], logs: torch.Tensor) -> None:
    file_only = [d.clone() for d in data.values()]
    for one in file_only:
        one[:, 1 : 1 + 2 * ORDERS] = 0
    for package, one in data.items():
        print(f"{package:16} {len(one):6} tokens, {nats(one, logs):.3f} nats a token")
    whole = torch.cat(list(data.values()))
    print(f"all: {nats(whole, logs):.3f}; file only: {nats(torch.cat(file_only), logs):.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--lines", type=int, default=60, help="of each package")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--fit", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    started = time.process_time()
    data = gathered(FITTED if args.fit else MEASURED, args.lines, args.seed)
    logs = shipped()
    report(data, logs)
    if args.fit:
        logs = fit(torch.cat(list(data.values())))
        report(data, logs)
        for scope in (0, 1):
            print(f"({', '.join(f'{value:.3g}' for value in logs[scope].exp().tolist())}),")
    print(f"{time.process_time() - started:.0f} s of one core")


if __name__ == "__main__":
    main()
