"""Secrets in code that a model has written anew: a server saw them as stars, and answers stars."""

from __future__ import annotations

import re

from clover_engine.privacy.secrets import MARK, redact

_STARS = re.compile(rf"""["'`=:@]\s*{re.escape(MARK)}{{6,}}""")
"""Stars where a secret may have stood, not those of a comment."""


def revealed(before: str, after: str) -> str | None:
    """The text `after` with the secrets of `before` in place of their stars.

    None where stars would be left over: they must not be written over a secret.
    """
    hidden = redact(before)
    if hidden != before:
        pairs = zip(hidden.split("\n"), before.split("\n"), strict=True)
        for seen, line in pairs:
            if seen != line:
                after = after.replace(seen.strip(), line.strip())
    known = set(_STARS.findall(before))
    return None if any(stars not in known for stars in _STARS.findall(after)) else after
