"""Which files of a root are indexed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from clover_engine.privacy.ignore import IgnoreRules
from clover_lsp.context.walk import folders, walk


@pytest.mark.usefixtures("cache")
def test_walk_leaves_out_what_is_ignored_secret_or_vendored(
    write: Callable[..., Path], tmp_path: Path
) -> None:
    root = write(
        {
            "a.py": "", "b/c.ts": "", "b/data.csv": "", ".env": "", "node_modules/x/i.js": "",
            "lib/jquery.min.js": "", "poetry.lock": "", "logs/a.py": "", ".gitignore": "logs/\n",
            ".ssh/config": "", ".github/x.yml": "",
        }
    )  # fmt: skip
    (root / "link.py").symlink_to(root / ".env")
    (root / "loop").symlink_to(root)
    rules = IgnoreRules(root)
    assert {f.path for f in walk(rules)} == {"a.py", "b/c.ts", ".gitignore", ".github/x.yml"}
    assert set(folders(rules)) == {"", "b", "lib", ".github"}
