"""Hole-filling prompts: each family's layout, what fits, and text that poses as a mark."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clover_engine.api import Snippet
from clover_engine.clients.fim import (
    SUFFIX_SHARE,
    TEMPLATES,
    FimParts,
    FimTemplate,
    fit,
    template_for,
    template_named,
)
from clover_engine.errors import RequestError
from clover_engine.text.prompt import Prompt
from clover_engine.text.tokenizer import Tokenizer
from clover_engine.worker.local import DEFAULT_CHECKPOINT

HOLE = FimParts("PRE", "SUF", (Snippet("near", "n.py"), Snippet("far\n", "f.py")), path="p.py")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "qwen",
            "<|file_sep|>f.py\nfar\n<|file_sep|>n.py\nnear\n<|file_sep|>p.py\n"
            "<|fim_prefix|>PRE<|fim_suffix|>SUF<|fim_middle|>",
        ),
        (
            "starcoder",
            "<file_sep>f.py\nfar\n<file_sep>n.py\nnear\n<file_sep>p.py\n"
            "<fim_prefix>PRE<fim_suffix>SUF<fim_middle>",
        ),
        (
            "deepseek",
            "#f.py\nfar\n#n.py\nnear\n#p.py\n<｜fim▁begin｜>PRE<｜fim▁hole｜>SUF<｜fim▁end｜>",
        ),
        ("codellama", "# f.py\n# far\n# n.py\n# near\n<PRE> PRE <SUF>SUF <MID>"),
        ("codestral", "+++++ f.py\nfar\n+++++ n.py\nnear\n+++++ p.py\n[SUFFIX]SUF[PREFIX]PRE"),
        (
            "granite-code",
            "# f.py\n# far\n# n.py\n# near\n<fim_prefix>PRE<fim_suffix>SUF<fim_middle>",
        ),
        ("plain", "# f.py\n# far\n# n.py\n# near\nPRE"),
    ],
)  # fmt: skip
def test_layouts(name: str, expected: str) -> None:
    template = template_named(name)
    assert template.prompt(HOLE) == expected
    assert template.sees_suffix == ("SUF" in expected)


def test_clover_s_layout_is_the_one_it_was_trained_on() -> None:
    """The text, read by its own tokenizer's marks, gives the tokens of `text.prompt`."""
    tokenizer = Tokenizer.load(DEFAULT_CHECKPOINT)
    prefix, suffix, wrong = "def f(x):\n    return ", "\n\nprint(f(1))\n", "x - 1"
    snippets = (Snippet("near = 1\n"), Snippet("far = 2"))
    text = TEMPLATES["clover"].prompt(FimParts(prefix, suffix, snippets, wrong))
    ids: list[int] = []
    for part in re.split(r"(<[a-z]+>)", text):
        mark = tokenizer.special(part) if part.startswith("<") else None
        ids += tokenizer.encode(part) if mark is None else [mark]
    assert ids == Prompt(tokenizer, 512).context(prefix, suffix, wrong, snippets, 32)


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("Qwen/Qwen2.5-Coder-7B-Instruct", "qwen"),
        ("/data/models/Qwen3-Coder-30B-A3B/", "qwen"),
        ("JetLM/SDAR-1.7B-Chat", "qwen"),
        ("bigcode/starcoder2-7b", "starcoder"),
        ("deepseek-ai/DeepSeek-Coder-V2-Lite-Base", "deepseek"),
        ("codellama/CodeLlama-7b-hf", "codellama"),
        ("mistralai/Codestral-22B-v0.1", "codestral"),
        ("ibm-granite/granite-8b-code-base", "granite-code"),
        ("ibm-granite/granite-4.0-h-tiny", "granite"),
        ("google/codegemma-2b", "codegemma"),
        ("inclusionAI/LLaDA2.0-mini", "plain"),
        ("clover-nano", "clover"),
        ("someone/unheard-of", "plain"),
    ],
)
def test_families(model: str, name: str) -> None:
    assert template_for(model).name == name


def test_a_family_by_its_architecture() -> None:
    assert template_for("my-model", ("Qwen2ForCausalLM",)).name == "qwen"
    assert template_for("my-model", (), "starcoder2").name == "starcoder"


def test_a_template_that_there_is_not() -> None:
    with pytest.raises(RequestError, match=r"choose one of clover, qwen"):
        template_named("gpt")


@pytest.mark.parametrize(
    ("spelled", "prompt"),
    [
        ("<PRE>{prefix}<SUF>{suffix}<MID>", "<PRE>P<SUF>S<MID>"),
        ("[SUFFIX]{suffix}[PREFIX]{prefix}", "[SUFFIX]S[PREFIX]P"),
        ("complete: {prefix}", "complete: P"),
    ],
)
def test_a_template_that_is_spelled_out(spelled: str, prompt: str) -> None:
    template = template_named(spelled)
    assert template.prompt(FimParts("P", "S")) == prompt
    assert template.sees_suffix == ("{suffix}" in spelled)
    assert len(template.ends) <= 4
    for mark in template.ends:
        assert template.cut(f"a{mark}b") == "a"
    for wrong in ("{suffix}", "{prefix}{prefix}", "{prefix}{suffix}{suffix}", ""):
        with pytest.raises(RequestError, match="spell it out"):
            template_named(wrong)


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("ByteDance-Seed/Seed-Coder-8B-Base", "seed-coder"),
        ("Stable-DiffCoder-8B-Instruct", "seed-coder"),
        ("JetBrains/Mellum-4b-sft-python", "mellum"),
        ("zai-org/GLM-4.5-Air", "glm"),
    ],
)
def test_later_families(model: str, name: str) -> None:
    assert template_for(model).name == name


def marks_of(template: FimTemplate) -> list[str]:
    given = (template.before, template.after, template.middle, template.wrong, *template.ends)
    return sorted({mark.strip() for mark in given} - {""})


@pytest.mark.parametrize("name", TEMPLATES)
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_no_text_poses_as_a_mark(name: str, data: st.DataObject) -> None:
    """A prompt has each mark as often as an innocent one, whatever the user's text says."""
    template = TEMPLATES[name]
    text = st.lists(st.sampled_from([*marks_of(template), "a", "<", "|", "\n", "[", "s>"])).map(
        "".join
    )
    hole = FimParts(
        data.draw(text), data.draw(text), (Snippet(data.draw(text), "a.py"),), data.draw(text)
    )
    plain = template.prompt(FimParts("p", "s", (Snippet("x", "a.py"),), "o"))
    made = template.prompt(hole)
    for mark in marks_of(template):
        assert made.count(mark) == plain.count(mark), mark


@settings(max_examples=40, deadline=None)
@given(text=st.text(max_size=80))
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    for template in TEMPLATES.values():
        if not any(mark in text for mark in (*marks_of(template), *template.marks)):
            assert template.defused(text) == text


@settings(max_examples=60, deadline=None)
@given(
    prefix=st.text(max_size=200).map(lambda text: text * 3),
    suffix=st.text(max_size=200).map(lambda text: text * 3),
    snippets=st.lists(st.text(max_size=120).map(Snippet), max_size=4),
    original=st.none() | st.text(max_size=40),
    room=st.integers(64, 600),
)
def test_what_fits(
    prefix: str, suffix: str, snippets: list[Snippet], original: str | None, room: int
) -> None:
    hole = FimParts(prefix, suffix, tuple(snippets), original)
    if room - len(original or "") < 64:
        with pytest.raises(RequestError, match="no room for context"):
            fit(hole, room)
        return
    kept = fit(hole, room)
    used = len(kept.prefix) + len(kept.suffix) + len(original or "")
    assert used + sum(len(s.text) for s in kept.snippets) <= room
    assert prefix.endswith(kept.prefix) and suffix.startswith(kept.suffix)
    rest = iter(snippets)
    assert all(snippet in rest for snippet in kept.snippets)  # some of them, in their order
    taken = sum(len(s.text) + len(s.path) + 16 for s in kept.snippets)  # with their headings
    if len(prefix) + len(suffix) + len(original or "") + taken <= room:
        assert kept.prefix == prefix and kept.suffix == suffix


def test_the_cut_stays_where_it_is_while_typing() -> None:
    text = "".join(f"line {i}\n" for i in range(1000))
    starts = {fit(FimParts(text + "x" * i, "after\n" * 200), 2000).prefix[:30] for i in range(60)}
    assert len(starts) <= 2


def test_a_long_suffix_leaves_room_for_the_prefix() -> None:
    kept = fit(FimParts("p" * 5000, "s" * 5000), 1000)
    assert len(kept.suffix) == int(1000 * SUFFIX_SHARE)
    assert len(kept.prefix) >= 500


def test_text_after_a_mark_is_dropped() -> None:
    assert TEMPLATES["qwen"].cut("a + b<|endoftext|>def g") == "a + b"
    assert TEMPLATES["plain"].cut("a + b") == "a + b"
