"""Secrets inside text: found, replaced by as many characters, and not seen where there are none."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clover_engine.privacy.secrets import has_secret, redact, redact_parts
from clover_engine.privacy.values import entropy

GITHUB = "ghp_" + "a1B2" * 9
FOUND = {
    "aws": ("key = 'AKIA" + "Z7XQ4M2K9P1L8B3C'", "AKIAZ7XQ4M2K9P1L8B3C"),
    "github": (f"curl -H {GITHUB}", GITHUB),
    "openai": ("client = OpenAI('sk-proj-" + "ab12CD34" * 4 + "')", "sk-proj-" + "ab12CD34" * 4),
    "anthropic": ("K=sk-ant-api03-" + "xY9z8w7v" * 4, "sk-ant-api03-" + "xY9z8w7v" * 4),
    "slack": ("token: xoxb-123456789012-abcdefGHIJ", "xoxb-123456789012-abcdefGHIJ"),
    "google": ("AIza" + "Sy0123456789abcdefghijklmnopqrstuvw"[:35], "AIzaSy0123456789abcdef"),
    "stripe": ("sk_live_" + "4eC39HqLyjWDarjtT1zdp7dc", "sk_live_4eC39HqLyjWDarjtT1zdp7dc"),
    "hugging face": ("HF = 'hf_" + "AbCd1234" * 4 + "'", "hf_" + "AbCd1234" * 4),
    "jwt": ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abcDEF123456_-", "eyJhbGciOiJIUzI1NiJ9"),
    "url": ("db = 'postgres://app:s3cr3tPw@db.internal/x'", "s3cr3tPw"),
    "bearer": ('"Authorization": "Bearer 9f8e7d6c5b4a39281706aabb"', "9f8e7d6c5b4a39281706aabb"),
    "python": ('DB_PASSWORD = "x9$kL2mQ8v"', "x9$kL2mQ8v"),
    "annotated": ('api_key: str = "f3a9c1d27b884e60"', "f3a9c1d27b884e60"),
    "json": ('  "client_secret": "Qm7xTz41LpW9aVbN",', "Qm7xTz41LpW9aVbN"),
    "yaml": ("auth_token: 8d7f6a5b4c3d2e1f0a9b", "8d7f6a5b4c3d2e1f0a9b"),
    "shell": ("export SECRET_KEY=8d7f6a5b4c3d2e1f0a9b", "8d7f6a5b4c3d2e1f0a9b"),
    "subscript": ("os.environ['API_TOKEN'] = 'Zx81Lq0Pw7Rt'", "Zx81Lq0Pw7Rt"),
    "being typed": ('password = "h7Gk2Lp9Qw', "h7Gk2Lp9Qw"),
}


@pytest.mark.parametrize("name", FOUND)
def test_secret_is_replaced_by_stars(name: str) -> None:
    line, secret = FOUND[name]
    text = f"before = 1\n{line}\nafter = 2\n"
    safe = redact(text)
    assert secret not in safe and "*" * len(secret) in safe
    assert len(safe) == len(text) and safe.startswith("before = 1\n")
    assert safe.endswith("\nafter = 2\n") and has_secret(text)


@pytest.mark.parametrize(
    "line",
    [
        "password = getpass.getpass('Password: ')",
        'password = "changeme"',
        "token = tokens[index + 1]",
        "secret_name = 'projects/my-project/secrets/db'",
        'API_KEY = os.environ["API_KEY"]',
        "self.assertEqual(token.type, tokenize.NUMBER)",
        'password = "<your-password-1>"',
        "token: Token = lexer.next_token2()",
        'url = f"https://{user}:{password}@{host}/"',
        "ask-a-question-about-2-things-in-this-list",
        'SECRET_KEY = "${SECRET_KEY_V2}"',
        "access_token_url = 'https://example.com/oauth2/token'",
        "csrf_token = request.cookies.get('csrftoken2')",
        "if token in ('r2', 'w4'): pass",
    ],
)
def test_ordinary_code_stays(line: str) -> None:
    assert redact(line) == line


KEY = (
    "-----BEGIN RSA PRIVATE KEY-----\n"
    + "MIIEpAIBAAKCAQEA7bq4Zr3x9vY1\n" * 3
    + "-----END RSA PRIVATE KEY-----\n"
)


def test_private_key_blocks() -> None:
    safe = redact("a = 1\n" + KEY + "b = 2\n")
    assert "MII" not in safe and "BEGIN RSA PRIVATE KEY" in safe and safe.endswith("\nb = 2\n")
    assert safe.count("\n") == 7
    assert "MII" not in redact(KEY[: len(KEY) // 2]), "its end is outside of the text"
    assert "MII" not in redact(KEY[40:]), "its beginning is outside of the text"


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.text(max_size=30),
            st.sampled_from([line for line, _ in FOUND.values()]),
            st.sampled_from(
                [KEY, KEY[:60], KEY[50:], "\r\n", "\u2028", "İpassword = 'aB3dE5fG7hI9'"]
            ),
        ),
        max_size=8,
    )
)
def test_length_and_line_ends_never_change(parts: list[str]) -> None:
    text = "\n".join(parts)
    safe = redact(text)
    assert len(safe) == len(text)
    assert [c for c in safe if c in "\r\n"] == [c for c in text if c in "\r\n"]
    assert all(a == b or b == "*" for a, b in zip(text, safe, strict=True))


@pytest.mark.parametrize("at", range(0, 60, 7))
def test_a_secret_that_the_cursor_is_in(at: int) -> None:
    text = f"a = 1\ntoken = '{GITHUB}'\nb = 2\n"
    prefix, suffix = redact_parts(text[: 6 + at], text[6 + at :])
    assert prefix + suffix == redact(text) and len(prefix) == 6 + at


def test_standard_library_has_no_false_alarms() -> None:
    library = Path(sysconfig.get_paths()["stdlib"])
    for name in ("tokenize", "secrets", "ssl", "smtplib", "token", "hashlib", "urllib/parse"):
        text = (library / f"{name}.py").read_text("utf-8")
        assert redact(text) == text


def test_entropy_in_bits() -> None:
    assert entropy("aaaa") == 0 and entropy("abcd") == 2
