"""Properties: wherever a secret stands and wherever the cursor cuts, no server is sent it."""

from __future__ import annotations

import json
import random
import string
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.engine.privacy.talker import Talker

from clover_engine.api import (
    ClozeRequest,
    InfillRequest,
    ScoreRequest,
    Snippet,
    to_json,
)
from clover_engine.errors import Unsupported
from clover_engine.generation import (
    DecisionRequest,
    GenerateRequest,
    Message,
    Question,
)
from clover_engine.privacy.discreet import DiscreetEngine
from clover_engine.privacy.secrets import redact, redact_parts

UPPER, LOWER, DIGITS = string.ascii_uppercase, string.ascii_lowercase, string.digits
HEX, ALNUM = "0123456789abcdef", UPPER + LOWER + DIGITS
BASE64, URL64 = ALNUM + "+/", ALNUM + "-_"

SHAPES: dict[str, tuple[tuple[str, str, int], ...]] = {
    # (what stands first, of what characters, how many follow), as the issuers document them
    "aws id": (("AKIA", UPPER + "234567", 16),),
    "aws session id": (("ASIA", UPPER + "234567", 16),),
    "gcp key": (("AIza", URL64, 35),),
    "gcp client secret": (("GOCSPX-", URL64, 28),),
    "gcp access": (("ya29.a0", URL64, 120),),
    "azure client secret": (("k1c8", "", 0), ("Q~", URL64, 34)),
    "azure storage": (("AccountKey=", BASE64, 86), ("==", "", 0)),
    "github": (("ghp_", ALNUM, 36),),
    "github fine": (("github_pat_11", ALNUM, 20), ("_", ALNUM, 59)),
    "gitlab": (("glpat-", URL64, 20),),
    "gitlab runner": (("glrt-", URL64, 20),),
    "slack bot": (("xoxb-", DIGITS, 12), ("-", DIGITS, 12), ("-", ALNUM, 24)),
    "slack hook": (("https://hooks.slack.com/services/T", UPPER, 8), ("/B", UPPER, 8),
                   ("/", ALNUM, 24)),
    "stripe": (("sk_live_", ALNUM, 24),),
    "stripe restricted": (("rk_live_", ALNUM, 99),),
    "openai": (("sk-proj-1", URL64, 74), ("T3BlbkFJ", URL64, 74)),
    "anthropic": (("sk-ant-api03-", URL64, 93), ("AA", "", 0)),
    "hugging face": (("hf_", UPPER + LOWER, 34),),
    "npm": (("npm_", ALNUM, 36),),
    "pypi": (("pypi-AgEIcHlwaS5vcmc", URL64, 120),),
    "digital ocean": (("dop_v1_", HEX, 64),),
    "databricks": (("dapi1", HEX, 31),),
    "send grid": (("SG.", URL64, 22), (".", URL64, 43)),
    "json web token": (("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIx", URL64, 40), (".", URL64, 43)),
    "telegram": (("1234567890:AA", URL64, 33),),
    "vault": (("hvs.", URL64, 95),),
    "shopify": (("shpat_", HEX, 32),),
    "docker": (("dckr_pat_", URL64, 27),),
    "discord hook": (("https://discord.com/api/webhooks/", DIGITS, 18), ("/", URL64, 68)),
    "terraform": (("Ab3dE5gH7jK9mN", "", 0), (".atlasv1.", URL64, 67)),
}  # fmt: skip


def token(name: str, seed: int) -> str:
    source = random.Random(f"{name} {seed}")
    return "".join(
        first + "".join(source.choices(of or "x", k=count)) for first, of, count in SHAPES[name]
    )


ANYWHERE = (
    "{}", "x = '{}'", 'call("{}", 3)', "# see {} there", "url = f'https://h/x?k={}&b=1'",
    "{{\"k\": \"{}\"}}", "curl -H 'X-Key: {}' https://h", "<a b=\"{}\"/>", "export K={}",
    "print(\"a\\n{}\\tb\")", "k: {}", "return {} if a else b", "['a', '{}', 'c']", "k=%22{}%22",
    "  - {}", "ENV K {}", "é{}é", "`{}`", "({})", "x == '{}' or y",
)  # fmt: skip
"""Any place at all: the token's shape gives it away."""

BESIDE = (
    "db_pass = '{}'", "DB_PASSWORD=\"{}\"", "password: '{}'", "'password': \"{}\",",
    "conn = 'host=h user=u password={} port=1'", "c = \"Server=h;Uid=sa;Pwd={};Encrypt=yes\"",
    "api_key = (\n    '{}'\n)", "API_TOKEN = \\\n    \"{}\"", "apiKey: \"{}\"",
    "if password == '{}':",
    "client.set_password(\"{}\")", "login('bob', password='{}')", "('password', '{}'),",
    "s = '{{\"secret\": \"{}\"}}'", "s = \"{{\\\"client_secret\\\": \\\"{}\\\"}}\"",
    "auth=('bob', '{}')", "db = 'postgres://bob:{}@db.internal:5432/x'", "redis://:{}@h/0",
    "<password>{}</password>", "<add key=\"Password\" value=\"{}\" />", "const authToken = `{}`;",
    "$config['db_password'] = '{}';", "secretKey := \"{}\"", "'api_key' => '{}',",
    "headers = {{'Authorization': 'Basic {}'}}",
    "curl -u bob:{} https://h", "os.environ['PW'] = '{}'",
    "SMTP_PASS='{}' ./send", "PGPASSWORD='{}' psql", "String dbPass = \"{}\";",
    "\"?access_token={}&x=1\"", "ACCESS_KEY : str = '{}'",
    "let mut passphrase = \"{}\".to_string();",
)  # fmt: skip
"""Places that say that the value is secret."""

NOISE = ("", "def f(a, b):", "    return a + b", "import os", "x = {'a': 1}  # it's", "/* é */")


def value(seed: int, place: str) -> str:
    """What a generator of passwords or, in another place, of keys gives."""
    size = 12 if any(word in place.lower() for word in ("pass", "pw", "auth", "@")) else 24
    source = random.Random(seed)
    made = [
        source.choice(UPPER),
        source.choice(LOWER),
        source.choice(DIGITS),
        source.choice(DIGITS),
    ]
    while len(made) < size or len(set(made)) < 10:
        made.append(source.choice(ALNUM))
    middle = made[1:]
    source.shuffle(middle)
    return made[0] + "".join(middle)


secrets = st.one_of(
    st.tuples(
        st.sampled_from(sorted(SHAPES)), st.integers(0, 10**6), st.sampled_from(ANYWHERE)
    ).map(lambda t: (token(t[0], t[1]), t[2])),
    st.tuples(st.integers(0, 10**6), st.sampled_from(BESIDE)).map(
        lambda t: (value(t[0], t[1]), t[1])
    ),
)
noise = st.lists(st.sampled_from(NOISE), max_size=5).map("\n".join)


@pytest.mark.parametrize("place", ANYWHERE)
def test_every_shape_in_every_place(place: str) -> None:
    left = {}
    for name in SHAPES:
        secret = token(name, 1)
        text = f"a = 1\n{place.format(secret)}\nb = 2\n"
        safe = redact(text)
        assert len(safe) == len(text)
        if secret[-12:] in safe or secret in safe:
            left[name] = safe
    assert not left


@pytest.mark.parametrize("place", BESIDE)
def test_values_beside_telling_names(place: str) -> None:
    for seed in range(40):
        secret = value(seed, place)
        text = f"a = 1\n{place.format(secret)}\nb = 2\n"
        assert secret not in redact(text), text


@settings(max_examples=400, deadline=None, derandomize=True)  # see docs/log.md
@example(("Mfyy6061QgZ9", "login('b', password='{}')"), "x\n/* y */", "", 0.25, "\n")
@example(("Mfyy6061QgZ9", "redis://:{}@h/0"), "/* é */\nimport os", "", 0.0, "\n")
@example(("HxeCXmfbpJSoKJGcjmXcaO70", '"?access_token={}&x=1"'), "", "", 0.0, "\n")
@example(
    ("Myf9SNl5T6IZg1eW0Iy966gQ", "s = '{{\"secret\": \"{}\"}}'"),
    "def f(a, b):\nx = {'a': 1}  # it's", "", 0.4375, "\n",
)  # fmt: skip
@given(secrets, noise, noise, st.floats(0, 1), st.sampled_from(["\n", "\r\n"]))
def test_no_request_carries_a_secret_wherever_the_cursor_is(
    secret: tuple[str, str], above: str, below: str, at: float, newline: str
) -> None:
    hidden, place = secret
    text = f"{above}\n{place.format(hidden)}\n{below}\n".replace("\n", newline)
    cut = round(at * len(text))
    prefix, suffix = text[:cut], text[cut:]
    fake = Talker()
    engine = DiscreetEngine(fake)
    for ask in (
        lambda: engine.infill(
            InfillRequest(prefix, suffix, (Snippet(text, "a.py"),), drafts=(text,))
        ),
        lambda: engine.infill(InfillRequest(prefix, "", original=suffix)),
        lambda: engine.infill(InfillRequest(prefix[:-3], suffix, must_start_with=prefix[-3:])),
        lambda: engine.score(ScoreRequest(prefix, suffix, ("pass", text[cut : cut + 40]))),
        lambda: engine.score(ScoreRequest(prefix[:-20], suffix, ("x", prefix[-20:]))),
        lambda: engine.cloze(ClozeRequest(prefix[:-9], prefix[-9:], suffix)),
        lambda: engine.generate(GenerateRequest((Message("user", text),))),
        lambda: engine.decide(DecisionRequest(text, (Question(text, ("a", "b")),))),
        lambda: engine.decide(DecisionRequest("", (Question("?", (text, "b")),))),
    ):
        try:
            ask()
        except Unsupported as refused:
            assert hidden not in str(refused)
    assert fake.requests
    for request in fake.requests:
        joined = "".join(texts(to_json(request)))
        assert hidden not in joined and hidden[-12:] not in joined


def texts(value: object) -> list[str]:
    """All texts of a request, in the order in which a server reads them."""
    if isinstance(value, dict):
        order = ("prefix", "must_start_with", "original")
        keys = [*[k for k in order if k in value], *[k for k in value if k not in order]]
        return [text for key in keys for text in texts(value[key])]
    if isinstance(value, list):
        return [text for each in value for text in texts(each)]
    return [value] if isinstance(value, str) else []


KEY = "-----BEGIN {0}PRIVATE KEY-----\n{1}\n-----END {0}PRIVATE KEY-----\n"


def pem(seed: int, kind: str = "RSA ", lines: int = 25) -> tuple[str, list[str]]:
    source = random.Random(seed)
    body = ["".join(source.choices(BASE64, k=64)) for _ in range(lines)]
    body.append("".join(source.choices(BASE64, k=22)) + "==")
    return KEY.format(kind, "\n".join(body)), body


@settings(max_examples=100, deadline=None)
@given(
    st.integers(0, 999), st.sampled_from(["", "RSA ", "OPENSSH ", "EC ", "ENCRYPTED "]),
    st.floats(0, 1), st.floats(0, 1), st.sampled_from(["", "    ", "# ", '    "']),
)  # fmt: skip
def test_a_key_that_any_window_cuts(
    seed: int, kind: str, one: float, other: float, indent: str
) -> None:
    block, body = pem(seed, kind)
    lines = ["x = 1", *(indent + line for line in block.splitlines()), "y = 2"]
    first, last = sorted((round(one * len(lines)), round(other * len(lines))))
    window = "\n".join(lines[first:last])
    safe = redact(window)
    assert not [line for line in body[:-1] if line in safe]
    if any(line in window for line in body[:-1]):
        assert body[-1] not in safe


def test_a_key_in_one_line_of_json() -> None:
    block, body = pem(3, "")
    text = json.dumps({"type": "service_account", "private_key": block, "client_email": "a@b"})
    safe = redact(text)
    assert not [line for line in body if line in safe] and '"client_email": "a@b"' in safe


@settings(max_examples=60, deadline=None, derandomize=True)
@given(secrets, st.integers(0, 60_000))
def test_a_secret_deep_in_a_large_document(secret: tuple[str, str], at: int) -> None:
    hidden, place = secret
    base = "\n".join(f"def f{n}(a):\n    return a + {n}\n" for n in range(2000))
    at = base.find("\n", at) + 1
    safe = redact(base[:at] + place.format(hidden) + "\n" + base[at:])
    assert hidden not in safe and len(safe) == len(base) + len(place.format(hidden)) + 1


def library(count: int, chars: int) -> list[str]:
    """Ordinary code: modules of the standard library without its tests."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    paths = sorted(
        p for p in folder.rglob("*.py") if not {"test", "tests", "site-packages"} & {*p.parts}
    )
    found, size = [], 0
    for path in paths[:count]:
        found.append(path.read_text("utf-8", "replace"))
        size += len(found[-1])
        if size > chars:
            break
    return found


def test_ordinary_code_is_hardly_ever_touched() -> None:
    """At most one line in 10,000 (measured: see docs/benchmarks.md)."""
    lines = touched = 0
    for text in library(400, 6_000_000):
        before, after = text.split("\n"), redact(text).split("\n")
        lines += len(before)
        touched += sum(a != b for a, b in zip(before, after, strict=True))
    assert lines > 50_000 and touched <= lines / 10_000


def test_a_large_document_is_looked_at_once() -> None:
    """While somebody types in 2 MB of code, what is redacted again is what changed."""
    text = "".join(library(600, 2_000_000))[:2_000_000]
    middle = text.find("\n", len(text) // 2)
    quick = timed(lambda: redact_parts(text[:middle], text[middle:]))
    first = quick()
    times = []
    for step in range(9):
        prefix = text[:middle] + "password = 'Zx81Lq0Pw7Rt"[: step + 1]
        times.append(timed(lambda p=prefix: redact_parts(p, text[middle:]))())  # type: ignore[misc]
    assert sorted(times)[4] < 0.1, (first, times)


def timed(work: Callable[[], object]) -> Callable[[], float]:
    """The processor time of a call, in seconds: other processes do not count."""

    def run() -> float:
        begun = time.process_time()
        work()
        return time.process_time() - begun

    return run
