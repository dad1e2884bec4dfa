"""Holes in held-out code: the same lines for every run, from packages the model never saw."""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PACKAGES = ("click", "attr", "rich", "jinja2", "_pytest")
"""Import names of held-out packages that the development environment has installed."""


@dataclass(frozen=True)
class Hole:
    path: str
    line: int
    prefix: str
    middle: str
    suffix: str


def files(packages: tuple[str, ...]) -> Iterator[tuple[str, Path]]:
    for name in packages:
        spec = importlib.util.find_spec(name)
        if spec is None or not spec.submodule_search_locations:
            raise SystemExit(f"package {name} is not installed; run 'make setup'")
        root = Path(spec.submodule_search_locations[0])
        for path in sorted(root.rglob("*.py")):
            yield f"{name}/{path.relative_to(root)}", path


def holes(count: int, packages: tuple[str, ...] = PACKAGES) -> list[Hole]:
    """`count` whole lines (after their indentation), chosen by hash over all files' lines."""
    found: list[tuple[str, Hole]] = []
    for name, path in files(packages):
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        for i, line in enumerate(lines):
            body = line.strip()
            if not 3 <= i < len(lines) - 1 or len(body) < 4 or body.startswith(("#", '"', "'")):
                continue
            indent = line[: len(line) - len(line.lstrip())]
            key = hashlib.sha256(f"{name}:{body}:{i % 7}".encode()).hexdigest()
            before, after = "".join(lines[:i]) + indent, "\n" + "".join(lines[i + 1 :])
            found.append((key, Hole(name, i + 1, before, body, after)))
    return [hole for _, hole in sorted(found, key=lambda f: f[0])[:count]]
