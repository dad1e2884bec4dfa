"""Settings: tolerant reading, complaints, and documentation that cannot drift."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clover_lsp.settings.docs import json_schema, markdown, vscode
from clover_lsp.settings.read import all_names, read_settings
from clover_lsp.settings.settings import Settings

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    "raw",
    [
        {"completion": {"maxTokens": 32}},
        {"completion.maxTokens": 32},
        {"clover": {"completion": {"maxTokens": 32}}},
        {"clover": {"completion.maxTokens": 32}},
        {"clover.completion.maxTokens": 32},
    ],
)
def test_every_way_to_write_a_setting(raw: dict[str, Any]) -> None:
    settings, complaints = read_settings(raw)
    assert (settings.completion.max_tokens, complaints) == (32, ())
    assert settings.completion.enabled is True


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ({"completion": {"maxTokens": 0}}, "a whole number from 1 to 512, not 0; the default, 64"),
        ({"completion": {"maxTokens": 1.5}}, "a whole number from 1 to 512, not 1.5"),
        ({"completion": {"maxTokens": True}}, "not true"),
        ({"completion": {"minConfidence": "high"}}, 'a number from 0 to 1, not "high"'),
        ({"completion": {"enabled": "yes"}}, "must be true or false"),
        ({"completion": {"languages": {"python": 1}}}, "true or false for each language"),
        ({"completion": 7}, "must be an object, not 7; its defaults are used"),
        (
            {"engine": "cloud"},
            'must be one of "auto", "embedded", "sglang", "llamacpp", "openai", "none"',
        ),
        ({"sglang": {"url": "gpu:30000"}}, "an address like http://127.0.0.1:8080, without"),
        ({"llamacpp": {"url": 8080}}, "must be a text, not 8080"),
        ({"engine": []}, "not []"),
        ({"context": {"ignore": "*.py"}}, "a list of texts"),
        ("text", "settings are an object"),
    ],
)
def test_a_bad_value_is_one_complaint_and_its_default(raw: Any, words: str) -> None:
    settings, complaints = read_settings(raw)
    assert settings == Settings()
    (complaint,) = complaints
    assert words in complaint.text and complaint.is_error
    assert "\n" not in complaint.text


def test_an_unknown_name_gets_the_nearest_one() -> None:
    settings, (complaint,) = read_settings({"completion": {"maxTokenz": 3}})
    assert settings == Settings() and not complaint.is_error
    assert complaint.text == (
        "unknown setting clover.completion.maxTokenz; did you mean clover.completion.maxTokens?"
    )


def test_editors_own_groups_and_nulls_are_no_mistakes() -> None:
    raw = {"server": {"command": "x"}, "engine": None, "completion": {"maxTokens": None}}
    assert read_settings(raw) == (Settings(), ())


def test_later_sources_win_name_by_name() -> None:
    first = {"completion": {"maxTokens": 10, "alternatives": 2}}
    settings, _ = read_settings(first, {"completion": {"maxTokens": 20}, "engine": "none"})
    chosen = settings.completion
    assert (chosen.max_tokens, chosen.alternatives, settings.engine) == (20, 2, "none")


def test_languages() -> None:
    settings, _ = read_settings({"completion": {"languages": {"*": False, "python": True}}})
    assert settings.suggests("python") and not settings.suggests("lua")
    assert not read_settings({"completion": {"enabled": False}})[0].suggests("python")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["completion", "clover", "engine", "context", "ignore", "x.y", "languages"]
            ),
            inner,
            max_size=4,
        )
    ),
)


@given(JSON)
def test_nothing_that_a_client_sends_raises(raw: Any) -> None:
    settings, _ = read_settings(raw)
    assert isinstance(settings.completion.max_tokens, int)
    assert isinstance(settings.completion.languages.get("python", True), bool)


def test_the_documentation_page_is_current() -> None:
    page = (ROOT / "docs" / "settings.md").read_text("utf-8")
    assert page == markdown(), "run: python -m clover_lsp.settings --markdown > docs/settings.md"
    assert all(f"`clover.{name}`" in page for name in all_names())


def test_the_extensions_manifest_is_current() -> None:
    manifest = json.loads((ROOT / "editors" / "vscode" / "package.json").read_text("utf-8"))
    groups = manifest["contributes"]["configuration"]
    groups = groups if isinstance(groups, list) else [groups]
    found = {name: shape for group in groups for name, shape in group["properties"].items()}
    ours = vscode()["properties"]
    hint = "take over the output of: python -m clover_lsp.settings --vscode"
    assert {name: found.get(name) for name in ours} == ours, hint
    unknown = {
        n for n in found if n not in ours and not n.startswith(("clover.server", "clover.trace"))
    }
    assert not unknown, hint


def test_the_schema_takes_the_defaults() -> None:
    schema = json_schema()
    inner = schema["properties"]["completion"]["properties"]
    assert inner["maxTokens"] == {
        "type": "integer",
        "minimum": 1,
        "maximum": 512,
        "default": 64,
        "description": inner["maxTokens"]["description"],
    }
    engines = ["auto", "embedded", "sglang", "llamacpp", "openai", "none"]
    assert schema["properties"]["engine"]["enum"] == engines


@pytest.mark.parametrize("what", ["--markdown", "--json-schema", "--vscode"])
def test_the_generator_prints(what: str) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "clover_lsp.settings", what], capture_output=True, text=True
    )
    assert run.returncode == 0 and "maxTokens" in run.stdout, run.stderr


def test_the_server_says_once_what_is_wrong(servers: Any) -> None:
    editor = servers(settings={"engine": "cloud", "completion": {"alternativez": 2}})
    client = sys.modules["lsp_client"]
    client.until(lambda: len(editor.messages) >= 2)
    change = {"settings": {"clover": {"engine": "cloud", "completion": {"enabled": False}}}}
    editor.notify("workspace/didChangeConfiguration", dict_params(change))
    client.until(lambda: editor.status()["kind"] == "Inactive")
    texts = [message.message for message in editor.messages]
    assert len(texts) == 2 and all(text.startswith("clover-code: ") for text in texts)
    assert any("did you mean clover.completion.alternatives?" in text for text in texts)
    uri = editor.open("untitled:off.py", "x = ")
    editor.script.set(default="1")
    assert editor.suggest(uri) == [] and editor.script.prompts() == []
    assert editor.stop() == 0


def test_the_server_asks_the_client_for_settings(servers: Any) -> None:
    client = sys.modules["lsp_client"]
    editor = servers(say_hello=False)
    editor.configuration = {"completion": {"enabled": False}}
    editor.hello(client.capabilities(configuration=True), {"completion": {"debounceMs": 0}})
    client.until(lambda: editor.status()["message"] == "suggestions are off")
    editor.configuration = {"completion": {"enabled": True}}
    editor.notify("workspace/didChangeConfiguration", dict_params({"settings": None}))
    client.until(lambda: editor.status()["message"] != "suggestions are off")
    assert editor.stop() == 0


def dict_params(params: dict[str, Any]) -> Any:
    from lsprotocol import types

    return types.DidChangeConfigurationParams(**params)


def test_keys_and_passwords_stand_in_no_complaint() -> None:
    secret = "ghp_" + "a1B2c3D4e5" * 4
    settings, _ = read_settings({"sglang": {"url": "http://127.0.0.1:1", "apiKey": secret}})
    assert settings.sglang.api_key == settings.wanted.sglang.api_key == secret
    assert secret not in repr(settings)
    _, [complaint] = read_settings({"sglang": {"apiKey": [secret]}})
    assert secret not in complaint.text and "clover.sglang.apiKey" in complaint.text
    _, [complaint] = read_settings({"sglang": {"url": f"http://me:{secret}@host"}})
    assert secret not in complaint.text and "without a password" in complaint.text
