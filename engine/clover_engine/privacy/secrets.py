"""Secrets inside text: every character of one becomes `*`.

The text keeps its length and its line ends, so that offsets stay true. Replaced are

- the body of a PEM private key block;
- tokens of a known shape (AWS, GitHub, GitLab, Slack, OpenAI, Anthropic, Google, Stripe, Hugging
  Face, npm, PyPI, SendGrid, Azure storage, JSON web tokens);
- the password in `scheme://user:password@host` and the value after `Bearer` or `Basic`;
- a value that looks random, assigned to a name with password, secret, token, api key, … in it.

Only lines with a trigger word are looked at closely, so that a large file costs well under a
millisecond.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator

MARK = "*"
MIN_VALUE = 8
"""Shorter assigned values are taken for placeholders."""
MAX_KEY_LINES = 200
_MIN_ENTROPY = 3.0
"""Bits per character from which an assigned value with letters and digits counts as random."""

_SHAPES = re.compile(
    r"\b(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}\b"
    r"|\bgh[pousr]_[A-Za-z0-9]{36,}|\bgithub_pat_[A-Za-z0-9_]{40,}|\bglpat-[\w-]{20,}"
    r"|\bxox[abeprs]-[A-Za-z0-9-]{10,}|hooks\.slack\.com/services/[A-Za-z0-9/]{20,}"
    r"|\bsk-(?=[A-Za-z_-]*\d)[A-Za-z0-9_-]{20,}|\b[rs]k_(?:live|test)_[A-Za-z0-9]{16,}"
    r"|\bAIza[\w-]{35}|\bya29\.[\w-]{20,}|\bhf_[A-Za-z0-9]{30,}|\bnpm_[A-Za-z0-9]{36}"
    r"|\bpypi-[\w-]{50,}|\bSG\.[\w-]{16,}\.[\w-]{16,}|\bAccountKey=[A-Za-z0-9+/]{40,}=*"
    r"|\beyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{10,}"
)
_URL = re.compile(r"[a-z][a-z0-9+.-]*://[^\s:/@'\"`]{0,80}:(?P<value>[^\s/@'\"`]{3,120})@", re.I)
_BEARER = re.compile(r"\b(?:bearer|basic)\s+(?P<value>[A-Za-z0-9._~+/-]{16,}=*)", re.I)
_NAME = (
    r"(?:passw(?:or)?d|passphrase|passwd|pwd|secret|token|api_?-?key|access_?-?key|auth_?-?key"
    r"|private_?-?key|signing_?-?key|encryption_?-?key|credential|client_?-?key)"
)
_ASSIGNED = re.compile(
    _NAME + r"[\w-]{0,30}[\"']?\]?\s*(?::\s*[\w\[\], .|]{1,30}=|:=|=>|[:=])\s*"
    r"(?:[bru]{0,2}(?P<quote>[\"'`])(?P<quoted>[^\"'`\n]{8,400})(?:(?P=quote)|$)"
    r"|(?P<bare>[^\s\"'`,;(){}\[\]<>$]{8,400})(?=[\s,;]|$))",
    re.I,
)
_TRIGGERS_TEXT = """
akia asia abia acca ghp_ gho_ ghu_ ghs_ ghr_ github_pat_ glpat- xox hooks.slack sk- sk_live_
sk_test_ rk_live_ rk_test_ aiza ya29. hf_ npm_ pypi- sg. accountkey= eyj :// bearer basic passw
passphrase pwd secret token apikey api_key api-key access_key accesskey access-key auth_key
authkey auth-key private_key privatekey private-key signing_key signingkey encryption_key
encryptionkey credential client_key clientkey
"""
_TRIGGERS = tuple(_TRIGGERS_TEXT.split())
_KEY_BEGIN = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY( BLOCK)?-----")
_KEY_END = re.compile(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY( BLOCK)?-----")
_PLACEHOLDER = re.compile(
    r"(?i)^[<{$%]|\$\{|\{\{|%\(|example|changeme|placeholder|your[_-]|dummy|x{4,}|\*{3,}|^\.{3}"
)
_WORDS = re.compile(r"[A-Za-z]{3,}(?:[-_./ :]?[A-Za-z]{2,})*\d{0,2}\Z")
_ASCII_LOWER = {upper: upper + 32 for upper in range(65, 91)}


def redact(text: str) -> str:
    """The text with every secret replaced by as many `*`."""
    spans = sorted(_spans(text))
    if not spans:
        return text
    out: list[str] = []
    at = 0
    for start, end in spans:
        if end <= at:
            continue
        start = max(start, at)
        out += [text[at:start], re.sub(r"[^\r\n]", MARK, text[start:end])]
        at = end
    return "".join([*out, text[at:]])


def has_secret(text: str) -> bool:
    """Whether `redact` would change the text."""
    return next(iter(_spans(text)), None) is not None


def _spans(text: str) -> Iterator[tuple[int, int]]:
    """Character spans of the secrets, in no order; they may overlap."""
    if "PRIVATE KEY" in text:
        yield from _keys(text)
    lower = text.lower()
    if len(lower) != len(text):  # some capitals are shorter than their small letters
        lower = text.translate(_ASCII_LOWER)
    seen: set[int] = set()
    for trigger in _TRIGGERS:
        at = lower.find(trigger)
        while at >= 0:
            start = text.rfind("\n", 0, at) + 1
            end = text.find("\n", at)
            end = len(text) if end < 0 else end
            if start not in seen:
                seen.add(start)
                yield from _in_line(text[start:end], start)
            at = lower.find(trigger, end)


def _keys(text: str) -> Iterator[tuple[int, int]]:
    """Bodies of private keys, also of those that begin or end outside of the text."""
    at = 0
    end, begin = _KEY_END.search(text), _KEY_BEGIN.search(text)
    if end and (begin is None or end.start() < begin.start()):
        body = "".join(text[: end.start()].splitlines(keepends=True)[-MAX_KEY_LINES:])
        yield end.start() - len(body), end.start()
    while begin := _KEY_BEGIN.search(text, at):
        end = _KEY_END.search(text, begin.end())
        at = end.start() if end else len(text)
        body = text[begin.end() : at]
        lines = body.splitlines(keepends=True)
        if len(lines) > MAX_KEY_LINES:
            body = "".join(lines[:MAX_KEY_LINES])
        if re.search(r"[A-Za-z0-9+/=]{16}", body):
            yield begin.end(), begin.end() + len(body)
        at = begin.end() + len(body)


def _in_line(line: str, offset: int) -> Iterator[tuple[int, int]]:
    for match in _SHAPES.finditer(line):
        yield offset + match.start(), offset + match.end()
    for pattern in (_URL, _BEARER):
        for match in pattern.finditer(line):
            value = match["value"]
            if not _PLACEHOLDER.search(value) and (pattern is _URL or _random(value)):
                yield offset + match.start("value"), offset + match.end("value")
    for match in _ASSIGNED.finditer(line):
        group = "quoted" if match["quoted"] is not None else "bare"
        value = match[group]
        if _random(value) and (group == "quoted" or _secret_word(value)):
            yield offset + match.start(group), offset + match.end(group)


def _random(value: str) -> bool:
    """Whether a value looks like a key and not like words, a path, a format or a sentence."""
    if len(value) < MIN_VALUE or " " in value or _PLACEHOLDER.search(value):
        return False
    if _WORDS.match(value) or not re.search(r"\d", value) or not re.search(r"[A-Za-z]", value):
        return False
    return entropy(value) >= _MIN_ENTROPY - (0.5 if len(value) < 12 else 0.0)


def _secret_word(value: str) -> bool:
    """Whether an unquoted value is one word of a configuration file and no expression."""
    return re.fullmatch(r"[A-Za-z0-9+/=_!@#%^&*~-]{12,}", value) is not None and not re.search(
        r"[a-z]_[a-z]|[a-z][A-Z][a-z]+[A-Z][a-z]", value
    )


def entropy(value: str) -> float:
    """Shannon entropy of the characters, in bits per character."""
    counts = Counter(value)
    return -sum(n / len(value) * math.log2(n / len(value)) for n in counts.values())
