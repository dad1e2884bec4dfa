"""Is a value that stands beside a name like `password` or `api_key` the secret itself?

Code is full of such names, and what is assigned to them is mostly no secret: a call, another name,
a message, a path, a placeholder. A value counts where it looks random: letters and digits (or
signs, for a password), no words, enough different characters.
"""

from __future__ import annotations

import math
import re
from collections import Counter

MIN_VALUE = 8
"""Shorter values are taken for placeholders."""
MIN_PASSWORD = 6
"""The same in quotes, beside a name that says password."""
MIN_ENTROPY = 3.0
"""Bits per character from which a value counts as random; short ones need half a bit less."""

_LONG = 10
"""Characters from which letters of both cases without words in them are no name."""

_PLACEHOLDER = re.compile(
    r"(?i)^[<{$%]|\$[{(]|\{\{|%[(s]|\{[\w.!:]*\}|example|changeme|change[_-]me|placeholder|your[_-]"
    r"|dummy|x{4,}|\*{3,}|^\.{2}|://|^\.?/|^~/|^#|\.\.\."
)
_WORDS = re.compile(r"[A-Za-z]{2,}(?:[-_./ :]?[A-Za-z]{2,})*[-_./]?\d{0,2}\Z")
_NAME = re.compile(r"[A-Za-z_][\w-]*(?:(?:\.|::|->)[A-Za-z_]\w*)+\d*\Z")
_VERSION = re.compile(r"(?i)v?\d+(?:[.:-]\d+)*\Z")
_HAS_BOTH = re.compile(r"(?=.*[A-Za-z])(?=.*\d)", re.S)
_SIGNS = re.compile(r"[^\w\s.,:;/()\[\]{}<>=\\'\"|-]")
_CALL = re.compile(r"[\w.]+[(\[]")
_VOWEL = re.compile(r"(?i)[aeiouy]")
_PARTS = re.compile(r"[a-z]+|[A-Z][a-z]*|\d+")


def is_secret(value: str, *, password: bool, quoted: bool) -> bool:
    """Whether `value` is one. `password`: the name beside it says so (and no key or token).
    `quoted`: it stands in quotes; bare text may be an expression."""
    shortest = MIN_PASSWORD if password and quoted else MIN_VALUE
    if len(value) < shortest or re.search(r"\s", value) or _PLACEHOLDER.search(value):
        return False
    if (
        (_WORDS.match(value) and not _is_noise(value))
        or _NAME.match(value)
        or _VERSION.match(value)
    ):
        return False
    if not (password and quoted) and _is_identifier(value):
        return False
    if not quoted and _CALL.match(value):
        return False
    has_sign = password and quoted and _SIGNS.search(value) and re.search(r"[A-Za-z]", value)
    if not has_sign and not _HAS_BOTH.match(value):
        return False
    return entropy(value) >= MIN_ENTROPY - (0.5 if len(value) < 12 else 0.0)


def is_random(value: str) -> bool:
    """The same for a value whose place alone says that it is a key."""
    return is_secret(value, password=False, quoted=True)


def entropy(value: str) -> float:
    """Shannon entropy of the characters, in bits per character."""
    counts = Counter(value)
    return -sum(n / len(value) * math.log2(n / len(value)) for n in counts.values())


def _is_noise(value: str) -> bool:
    """Whether a long run of letters, with a digit or two at its end, has no words in it."""
    mixed = value.lower() != value != value.upper()
    return len(value) >= _LONG and mixed and value.isalnum() and not _is_identifier(value)


def _is_identifier(value: str) -> bool:
    """Whether a value reads like a name of the program: `token_v2_hash`, `sha256Digest`."""
    if not re.fullmatch(r"[A-Za-z_]\w*", value):
        return False
    words = [part for part in _PARTS.findall(value) if len(part) >= 3 and part.isalpha()]
    return sum(map(len, words)) >= 0.75 * len(value) and all(map(_VOWEL.search, words))
