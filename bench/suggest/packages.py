"""Which installed packages figures are about, and which weights are fitted on: never the same.

Neither set is in clover-nano's training corpus. The packages for fitting share no code with those
that are measured.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
from pathlib import Path

MEASURED = ("click", "attr", "rich", "jinja2", "_pytest")
"""Of the held-out list: nothing is ever fitted on them."""
FITTED = (
    "anyio", "git", "huggingface_hub", "markdown_it", "PIL", "hypothesis", "pre_commit", "distlib",
    "execnet", "psutil",
)  # fmt: skip
_DATA_SHARE = 0.5
_DATA_LINES = 40


def sources(package: str) -> Iterator[tuple[str, str]]:
    """(name, text) of the package's code files; no tests, and no tables (`is_table`)."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(f"package {package} is not installed; run 'make setup'")
    root = Path(spec.submodule_search_locations[0])
    for path in sorted(root.rglob("*.py")):
        text = path.read_text(encoding="utf-8", errors="replace")
        if "tests" not in path.parts and not is_table(text):
            yield f"{package}/{path.relative_to(root)}", text


def is_table(text: str) -> bool:
    """Whether a file is data, probably generated: most of its lines are literals and nothing else.

    Code that nobody types tells nothing about suggestions, and its lines are easy to look up.
    """
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    return len(lines) >= _DATA_LINES and _data_lines(lines) >= _DATA_SHARE * len(lines)


def _data_lines(lines: Sequence[str]) -> int:
    """Lines that hold literals and brackets, without a name outside of quotes."""
    count = 0
    for line in lines:
        bare, quote = [], ""
        for char in line:
            if quote:
                quote = "" if char == quote else quote
            elif char in "\"'":
                quote = char
            else:
                bare.append(char)
        code = "".join(bare)
        words = [w for w in "".join(c if c.isalnum() or c == "_" else " " for c in code).split()]
        named = any(not w[0].isdigit() and w not in ("True", "False", "None") for w in words)
        literal = any(w[0].isdigit() for w in words) or any(c in "\"'" for c in line)
        count += literal and not named
    return count
