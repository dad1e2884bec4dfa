"""Secrets inside text: every character of one becomes `*`.

The text keeps its length and its line ends, so that offsets stay true. Replaced are

- private key blocks, also those that are cut off at either end, and lines of bare base64;
- tokens of a known shape (`formats.py`);
- passwords in addresses, and what stands after `Bearer`, `Basic` or `curl -u user:`;
- values that look random (`values.py`) beside a name with password, secret, token, api key, …:
  assigned, compared, passed, in a table, in a connection string inside another string.

What is not found: a password that is an ordinary word, a secret beside a name that does not say
so and without a known shape, one that is put together from pieces.

Texts are looked at in pieces that end at an empty line, and the findings in the latest pieces are
remembered: of a large document only what changed is looked at again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from clover_engine.privacy.formats import AROUND_WORD, AT_WORD, BEFORE_WORD, WORDLESS
from clover_engine.privacy.values import is_random, is_secret

MARK = "*"
MAX_KEY_LINES = 200
PIECE_CHARS = 8192
"""A piece ends at the first empty line after so many characters, …"""
MAX_PIECE_CHARS = 65_536
"""… or at the first line end after so many."""
KEPT_PIECES = 2048

Span = tuple[int, int]

_KEY_BEGIN = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY( BLOCK)?-----")
_KEY_END = re.compile(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY( BLOCK)?-----")
_BASE64 = re.compile(
    r"^[^\w\n]{0,12}(?P<full>[A-Za-z0-9+/]{60,76}={0,2})(?:\\n)?[^\w\n]{0,6}$"
    r"(?P<rest>(?:\n[^\w\n]{0,12}[A-Za-z0-9+/]{4,76}={0,2}(?:\\n)?[^\w\n]{0,6}$)*)",
    re.M,
)
_MIXED = re.compile(r"(?=.*[a-z])(?=.*[A-Z])(?=.*\d)")

_URL = re.compile(r"://[^\s:/@'\"`<>]{0,80}:(?P<value>[^\s/'\"`<>]{3,200})@")
_URL_TOKEN = re.compile(r"://(?P<value>[A-Za-z0-9_-]{20,200})@")
_URL_CUT = re.compile(r"://[^\s:/@'\"`<>]{0,80}:(?P<value>[^\s/'\"`<>@]{8,200})(?=\s|\Z)")
"""An address whose rest is not in this text."""
_SCHEME = re.compile(
    r"(?:bearer|basic|digest|token)\s+(?:realm=)?(?P<value>[A-Za-z0-9._~+/-]{16,}=*)", re.I
)
_HEADER = re.compile(
    r"authorization[\"']?\s*[\]:=,]\s*[fbru]?[\"']?\s*(?:bearer|basic|digest|token|apikey)\s+"
    r"(?P<value>[A-Za-z0-9._~+/-]{8,}=*)",
    re.I,
)
_CURL = re.compile(
    r"curl\b[^\n]{0,200}?\s(?:-u|--user)[\s=]{0,3}[\"']?[^\s:\"']{1,80}:(?P<value>[^\s\"']{3,200})"
)
_PAIR = re.compile(
    r"auth[\w]{0,12}\s*[=(]\s*\(?\s*[\"'][^\"'\n]{0,80}[\"']\s*,\s*(?P<quote>[\"'])"
    r"(?P<value>[^\"'\r\n]{3,200})(?:(?P=quote)|\r?$)",
    re.I | re.M,
)
_WORDY = re.compile(
    r"(?i)(?:pass(?:word|wd)?|pwd|pw|secret|token|\*+|x+|\.+)\Z|[{<$]|%[(s]|example"
)

_AFTER_NAME = (
    r"[\w-]{0,30}\\*[\"'`]?[\])]{0,2}\s?"
    r"(?:\s*:\s*(?:[\w\[\], .|]|\"[\w\[\], .|]{1,24}\"|'[\w\[\], .|]{1,24}'){1,30}="
    r"|\s*(?::=|=>|[!=]={1,2}|[:=]|\|\|=)"
    r"|(?P<needs_quotes>\(|(?<=[\"'`])\s*,)|(?<=[\"'])\s+value\s*=|(?P<element>>))"
    r"[ \t]*"
)
_VALUE = (
    r"(?:(?:[\\(\[{][ \t]*)?(?:\r?\n[ \t]*)?[@bruBRUfFL]{0,2}"
    r"(?P<quote>\\*(?:\"\"\"|'''|[\"'`]))(?P<quoted>(?:(?!(?P=quote))(?:[^\r\n\\]|\\.)){6,400})"
    r"(?:(?P<closed>(?P=quote))|\\?\r?$)"
    r"|(?P<bare>[^\s\"'`,;(){}\[\]<>&]{8,400})(?=[\s,;&\"'`)<\\]|$))"
)
_PASSWORD = re.compile(
    r"(?:(?i:passw(?:or)?d|passwd|passphrase|passcode|pwd|contrase[nñ]a|kennwort|passwort)"
    r"|(?:(?<![A-Za-z])(?:pass|pw|PASS|PW)|(?<=[a-z])(?:Pass|Pw)"
    r"|(?:(?<=db)|(?<=sql)|(?<=user)|(?<=ldap)|(?<=smtp)|(?<=mail))pass"
    r"|(?:(?<=DB)|(?<=SQL)|(?<=USER)|(?<=LDAP)|(?<=SMTP)|(?<=MAIL))PASS)(?![A-Za-z]))"
    + _AFTER_NAME + _VALUE,
    re.M,
)  # fmt: skip
_QUALIFIERS = (
    "api", "access", "auth", "private", "signing", "encryption", "client", "master", "service",
    "account", "storage", "license", "deploy", "session", "shared", "hmac", "jwt", "ssh", "crypt",
    "app", "consumer", "subscription", "admin", "webhook", "secure", "function", "secret",
)  # fmt: skip
"""What makes a key one that opens something."""
_KEY = re.compile(
    rf"(?:secret|token|credential|creds|(?:{'|'.join(_QUALIFIERS)})[_-]?key)"
    + _AFTER_NAME + _VALUE,
    re.I | re.M,
)  # fmt: skip
_NAMES = (
    *((word, _PASSWORD) for word in ("pass", "pwd", "pw", "contrase", "kennwort")),
    *((word, _KEY) for word in ("secret", "token", "cred", "key")),
)
MIN_CUT = 16
"""Characters of a random value that counts although more words stand before the closing quote."""
MIN_TOKEN = 15
"""No token of a known shape is shorter."""
_TO_BLANK = bytes(
    at if chr(at).isalnum() and at < 128 or chr(at) in "_-.+/=~%@:\\" else 32 for at in range(256)
)
_ASCII_LOWER = {upper: upper + 32 for upper in range(65, 91)}


def redact(text: str) -> str:
    """The text with every secret replaced by as many `*`."""
    found = sorted(_spans(text))
    if not found:
        return text
    out: list[str] = []
    at = 0
    for start, end in found:
        if end <= at:
            continue
        start = max(start, at)
        out += [text[at:start], re.sub(r"[^\r\n]", MARK, text[start:end])]
        at = end
    return "".join([*out, text[at:]])


def redact_parts(*texts: str) -> tuple[str, ...]:
    """The parts of one text without its secrets, which may reach over their borders (as one does
    that the cursor is in). Each part keeps its length."""
    whole = redact("".join(texts))
    parts, at = [], 0
    for text in texts:
        parts.append(whole[at : at + len(text)])
        at += len(text)
    return tuple(parts)


def has_secret(text: str) -> bool:
    """Whether `redact` would change the text."""
    return next(_spans(text), None) is not None


def _spans(text: str) -> Iterator[Span]:
    """Character spans of the secrets, in no order; they may overlap."""
    if "PRIVATE KEY" in text:
        yield from _keys(text)
    for start, end in _pieces(text):
        for first, last in _in_piece(text[start:end]):
            yield start + first, start + last


def _pieces(text: str) -> Iterator[Span]:
    """Pieces of whole lines. They depend on what stands near their ends, not on their distance
    from the beginning, so that most stay the same when text is put in or taken out."""
    start, size = 0, len(text)
    while start < size:
        end = text.find("\n\n", start + PIECE_CHARS)
        if end < 0 or end > start + MAX_PIECE_CHARS:
            end = text.find("\n", start + MAX_PIECE_CHARS)
        end = size if end < 0 else end + 1
        yield start, end
        start = end


@lru_cache(KEPT_PIECES)
def _in_piece(text: str) -> tuple[Span, ...]:
    """Spans of all secrets but key blocks with their frame."""
    found: set[Span] = set()
    for token in _tokens(text):
        found.update((at, at + len(token)) for at in _places(text, token))
    found.update(match.span() for match in WORDLESS.finditer(text))
    lower = text.lower()
    if len(lower) != len(text):  # some capitals are shorter than their small letters
        lower = text.translate(_ASCII_LOWER)
    found.update(_beside_names(text, lower))
    found.update(_in_place(text, lower))
    found.update(_bare_base64(text))
    return tuple(sorted(found))


def _tokens(text: str) -> set[str]:
    """All tokens of a known shape. Only runs of characters that such tokens are made of are
    searched: a tenth of ordinary code."""
    runs = text.encode("ascii", "replace").translate(_TO_BLANK).split()
    blob = b" ".join([run for run in runs if len(run) >= MIN_TOKEN]).decode()
    found: set[str] = set()
    for word, pattern in AT_WORD:
        for at in _places(blob, word):
            if match := pattern.match(blob, at):
                found.add(match[0])
    for word, pattern in AROUND_WORD:
        for at in _places(blob, word):
            if match := pattern.search(blob, max(0, at - BEFORE_WORD), at + 512):
                found.add(match[0])
    return found


def _places(text: str, word: str) -> Iterator[int]:
    at = text.find(word)
    while at >= 0:
        yield at
        at = text.find(word, at + len(word))


def _beside_names(text: str, lower: str) -> Iterator[Span]:
    """Values that are given to a name which says that they are secret."""
    for word, pattern in _NAMES:
        for at in _places(lower, word):
            if word == "key":
                at -= _qualifier(lower, at)
            if (match := pattern.match(text, at)) is None:
                continue
            if match["quoted"] is not None:
                group, quoted = "quoted", True
            elif match["needs_quotes"]:
                continue
            else:
                group = "bare"
                quoted = bool(match["element"]) or _inside_quotes(text, match.start(group))
            value = match[group]
            if group == "quoted":
                first = value.split(None, 1)[0] if value.strip() else ""
                is_cut = len(first) >= MIN_CUT and first != value and is_random(first)
                if match["closed"] is None or is_cut:  # being typed, or other text follows
                    value = first
            at = text.find(value, match.start(group))
            if is_secret(value, password=pattern is _PASSWORD, quoted=quoted):
                yield at, at + len(value)


def _qualifier(lower: str, at: int) -> int:
    """How many characters before "key" belong to its name, for example those of "api_"."""
    before = lower[max(0, at - 16) : at]
    stem = before[:-1] if before.endswith(("_", "-")) else before
    for word in _QUALIFIERS:
        if stem.endswith(word):
            return len(word) + len(before) - len(stem)
    return 0


def _inside_quotes(text: str, at: int) -> bool:
    """Whether a place is inside a string that began in its line, as far as one line tells."""
    line = text[text.rfind("\n", 0, at) + 1 : at].replace('\\"', "").replace("\\'", "")
    return line.count('"') % 2 == 1 or line.count("'") % 2 == 1 or line.count("`") % 2 == 1


def _in_place(text: str, lower: str) -> Iterator[Span]:
    """Secrets that their surroundings give away: addresses, headers, command lines."""
    for word, pattern in (("://", _URL), ("curl", _CURL), ("auth", _PAIR), ("authoriz", _HEADER)):
        for at in _places(lower, word):
            if (match := pattern.match(text, at)) and not _WORDY.match(match["value"]):
                yield match.span("value")
    by_value = (("://", _URL_TOKEN), ("://", _URL_CUT), ("bearer", _SCHEME), ("basic", _SCHEME))
    for word, pattern in by_value:
        for at in _places(lower, word):
            if (match := pattern.match(text, at)) and is_random(match["value"]):
                yield match.span("value")


def _bare_base64(text: str) -> Iterator[Span]:
    """Lines of base64 and nothing else, as keys and certificates have them."""
    for match in _BASE64.finditer(text):
        if _MIXED.match(match["full"]):
            yield match.start("full"), match.end()


def _keys(text: str) -> Iterator[Span]:
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
