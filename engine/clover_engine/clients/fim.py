"""Prompts that ask a served model to fill a hole, as each family of models was trained for it.

Served models get text, so a template is text too: the family's marks around suffix and prefix, and
before them other files, where the family knows files of a repository. The user's text cannot pose
as a mark: `FimTemplate.prompt` breaks up those it contains. Sources: the model cards and technical
reports of the families.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from clover_engine.api import Snippet
from clover_engine.errors import RequestError

SUFFIX_SHARE = 0.3
"""Share of the characters that the suffix may take when the prefix fills the rest."""
SNIPPET_SHARE = 0.25
"""Share that snippets may take when prefix and suffix would fill all."""
_CUT_STEP = 8
"""A prefix that is too long loses a multiple of an eighth of its room, so that the beginning of the
prompt, which servers keep in their caches, stays the same over many keystrokes."""
_COMMENT = {"py": "#", "sh": "#", "rb": "#", "lua": "--", "sql": "--"}
_BREAK = "\u200b"
_OWN_ENDS = 4
"""So many stop strings OpenAI's interface allows."""


@dataclass(frozen=True, slots=True)
class FimParts:
    """What a prompt is made of, cut to size by `fit`."""

    prefix: str
    suffix: str = ""
    snippets: tuple[Snippet, ...] = ()
    """Most relevant first."""
    original: str | None = None
    """What stands in the hole now and is believed wrong; only Clover's own layout can say so."""
    path: str = ""


@dataclass(frozen=True)
class FimTemplate:
    """One family's layout. The marks are strings that its tokenizer reads as special tokens."""

    name: str
    before: str = ""
    """Stands before the prefix. Families without any marks continue the prefix only."""
    after: str = ""
    middle: str = ""
    order: Literal["prefix first", "suffix first"] = "prefix first"
    start: str = ""
    """Begins every prompt."""
    file: str = ""
    """Before each other file's text, with ``{path}``; empty: other files come as comments."""
    this_file: str = ""
    """Before the file with the hole, where there are other files."""
    wrong: str = ""
    """Before the text that stands in the hole now."""
    ends: tuple[str, ...] = ()
    """Marks after which nothing belongs to the hole."""
    marks: tuple[str, ...] = field(default=(), repr=False)
    """Further special tokens that the user's text must not contain."""

    @property
    def sees_suffix(self) -> bool:
        """False where the model only continues the prefix: answers then need more checking."""
        return bool(self.after)

    @property
    def tells_wrong(self) -> bool:
        """The model can be told what stands in the hole now."""
        return bool(self.wrong)

    def prompt(self, hole: FimParts) -> str:
        """The text to send; the model's continuation of it is the hole's content."""
        safe = self.defused
        head = self.start + "".join(self._other(s) for s in reversed(hole.snippets))
        if hole.snippets and self.this_file:
            head += self._marked(self.this_file, hole.path)
        before = self.before + safe(hole.prefix)
        after = self.after + safe(hole.suffix) if self.after else ""
        if hole.original is not None and self.wrong:
            before += self.wrong + safe(hole.original)
        parts = (before, after) if self.order == "prefix first" else (after, before)
        return head + "".join(parts) + self.middle

    def cut(self, text: str) -> str:
        """`text` before the first mark in it, where a server sends marks as text."""
        for mark in self.ends:
            text = text.partition(mark)[0]
        return text

    @cached_property
    def _special(self) -> re.Pattern[str] | None:
        given = (self.before, self.after, self.middle, self.start, self.wrong)
        found = {mark.strip() for mark in (*given, *self.ends, *self.marks)} - {""}
        alternatives = "|".join(re.escape(mark) for mark in sorted(found, key=len, reverse=True))
        return re.compile(alternatives) if found else None

    def defused(self, text: str) -> str:
        """`text` with a zero-width space inside each of the family's marks."""
        if self._special is None:
            return text
        return self._special.sub(lambda m: m[0][0] + _BREAK + m[0][1:], text)

    def _marked(self, mark: str, path: str) -> str:
        return mark.replace("{path}", self.defused(path or "untitled"))

    def _other(self, snippet: Snippet) -> str:
        """Another file's text, as comments where the model was not trained to see several files."""
        if self.file:
            text = self._marked(self.file, snippet.path) + self.defused(snippet.text)
            return text if "{path}" not in self.file or text.endswith("\n") else text + "\n"
        sign = _COMMENT.get(snippet.path.rpartition(".")[2], "#" if not snippet.path else "//")
        lines = ([snippet.path] if snippet.path else []) + snippet.text.splitlines()
        return self.defused("".join(f"{sign} {line}".rstrip() + "\n" for line in lines))


_CHAT_MARKS = ("<|im_start|>", "<|im_end|>", "<|endoftext|>")
_QWEN = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")
_STAR = ("<fim_prefix>", "<fim_suffix>", "<fim_middle>")
_STAR_ENDS = ("<|endoftext|>", "<file_sep>", "<fim_prefix>", "<fim_suffix>", "<fim_middle>")
_DEEPSEEK = ("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>")

TEMPLATES: Mapping[str, FimTemplate] = {
    template.name: template
    for template in (
        FimTemplate(
            "clover",
            before="<pre>", after="<suf>", middle="<mid>", order="suffix first", start="<doc>",
            file="<snip>", wrong="<bug>", ends=("<eom>", "<pad>"),
            marks=("<mask>", "<snip>"),
        ),
        FimTemplate(
            "qwen", *_QWEN,
            file="<|file_sep|>{path}\n", this_file="<|file_sep|>{path}\n",
            ends=("<|endoftext|>", "<|im_end|>", "<|file_sep|>", "<|fim_pad|>", "<|repo_name|>",
                  *_QWEN),
            marks=(*_CHAT_MARKS, "<|MASK|>", "<|mask|>", "<think>", "</think>"),
        ),
        FimTemplate(
            "starcoder", *_STAR,
            file="<file_sep>{path}\n", this_file="<file_sep>{path}\n",
            ends=_STAR_ENDS, marks=("<repo_name>", "<filename>"),
        ),
        FimTemplate("granite-code", *_STAR, ends=_STAR_ENDS, marks=("<filename>", "<reponame>")),
        FimTemplate(
            "granite", *_QWEN,
            ends=("<|end_of_text|>", "<|fim_pad|>", *_QWEN),
            marks=("<|start_of_role|>", "<|end_of_role|>"),
        ),
        FimTemplate(
            "codegemma", *_QWEN,
            file="<|file_separator|>{path}\n", this_file="<|file_separator|>{path}\n",
            ends=("<|file_separator|>", "<eos>", *_QWEN), marks=("<bos>", "<start_of_turn>"),
        ),
        FimTemplate(
            "deepseek", *_DEEPSEEK,
            file="#{path}\n", this_file="#{path}\n",
            ends=("<｜end▁of▁sentence｜>", "<|EOT|>", *_DEEPSEEK),
            marks=("<｜begin▁of▁sentence｜>",),
        ),
        FimTemplate(
            "codellama",
            before="<PRE> ", after=" <SUF>", middle=" <MID>",
            ends=("<EOT>", "</s>", "<PRE>", "<SUF>", "<MID>"),
        ),
        FimTemplate(
            "codestral",
            before="[PREFIX]", after="[SUFFIX]", order="suffix first",
            file="+++++ {path}\n", this_file="+++++ {path}\n",
            ends=("</s>", "[SUFFIX]", "[PREFIX]"), marks=("[INST]", "[/INST]"),
        ),
        FimTemplate(
            "seed-coder",
            before="<[fim-prefix]>", after="<[fim-suffix]>", middle="<[fim-middle]>",
            order="suffix first",
            ends=("<[end▁of▁sentence]>", "<[fim-prefix]>", "<[fim-suffix]>", "<[fim-middle]>"),
            marks=("<[begin▁of▁sentence]>", "<[PAD▁TOKEN]>"),
        ),
        FimTemplate(
            "mellum", *_STAR,
            order="suffix first", file="<filename>{path}\n", this_file="<filename>{path}\n",
            ends=("<|endoftext|>", "<filename>", *_STAR), marks=("<reponame>",),
        ),
        FimTemplate(
            "glm",
            before="<|code_prefix|>", after="<|code_suffix|>", middle="<|code_middle|>",
            ends=("<|endoftext|>", "<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"),
            marks=("<|user|>", "<|assistant|>", "<|system|>", "<|observation|>"),
        ),
        FimTemplate("plain", ends=("<|endoftext|>", "<|im_end|>"), marks=_CHAT_MARKS),
    )
}  # fmt: skip
"""By name. ``plain`` has no marks: the model continues the prefix and does not see the suffix."""

_FAMILIES = (
    (r"qwen.?2\.?5?-?coder|codeqwen|qwen|sdar", "qwen"),
    (r"star.?coder|stable-?code", "starcoder"),
    (r"granite.*code", "granite-code"),
    (r"granite", "granite"),
    (r"code-?gemma", "codegemma"),
    (r"deepseek", "deepseek"),
    (r"code-?llama", "codellama"),
    (r"codestral|devstral", "codestral"),
    (r"seed.?coder|stable-?diffcoder", "seed-coder"),
    (r"mellum", "mellum"),
    (r"\bglm-?4", "glm"),
)


def template_for(model: str, architectures: tuple[str, ...] = (), kind: str = "") -> FimTemplate:
    """The template of a served model: by its name, else by its architecture and `kind`
    (Hugging Face's ``model_type``), else ``plain``.

    Clover checkpoints that were converted from a base model keep its tokenizer, and its marks.
    """
    for text in (model.replace("\\", "/").rstrip("/").rpartition("/")[2], *architectures, kind):
        for pattern, name in _FAMILIES:
            if re.search(pattern, text.lower()):
                return TEMPLATES[name]
        if "clover" in text.lower() and kind in ("", "clover"):
            return TEMPLATES["clover"]
    return TEMPLATES["plain"]


def template_named(name: str) -> FimTemplate:
    """The template that a setting names, or spells out: ``<PRE>{prefix}<SUF>{suffix}<MID>``.

    Raises RequestError for anything else, with the names there are.
    """
    if name in TEMPLATES:
        return TEMPLATES[name]
    if name.count("{prefix}") == 1 and name.count("{suffix}") <= 1:
        return _spelled_out(name)
    raise RequestError(
        f"no FIM template {name[:80]!r}; choose one of {', '.join(TEMPLATES)}, or spell it out "
        "with {prefix} and {suffix} where those belong"
    )


def _spelled_out(text: str) -> FimTemplate:
    """A template of the user's own. Its marks are never shown, and end the hole."""
    before, _, rest = text.partition("{prefix}")
    if "{suffix}" in before:
        after, _, before = before.partition("{suffix}")
        order: Literal["prefix first", "suffix first"] = "suffix first"
        middle = rest
    else:
        after, _, middle = rest.partition("{suffix}")
        order = "prefix first"
        if "{suffix}" not in rest:
            after, middle = "", rest
    marks = dict.fromkeys(m for m in map(str.strip, (before, after, middle)) if m)
    ends = (*list(marks)[: _OWN_ENDS - 1], "<|endoftext|>")
    return FimTemplate("own", before, after, middle, order, ends=ends, marks=_CHAT_MARKS)


def fit(hole: FimParts, room: int) -> FimParts:
    """`hole` cut to about `room` characters: what is nearest to the hole is kept, and snippets
    that do not fit are left out whole.

    Raises RequestError where `original` leaves no room.
    """
    room -= len(hole.original or "")
    if room < 64:
        raise RequestError(
            f"no room for context: {room} characters left beside the text to replace; "
            "ask for fewer tokens, or serve the model with a longer context"
        )
    wanted = min(len(hole.prefix), room) + min(len(hole.suffix), room)
    snippets = _fitting(hole.snippets, max(int(room * SNIPPET_SHARE), room - wanted))
    room -= sum(_size(s) for s in snippets)
    kept = min(len(hole.suffix), max(int(room * SUFFIX_SHARE), room - len(hole.prefix)))
    suffix = hole.suffix[:kept]
    return FimParts(_tail(hole.prefix, room - kept), suffix, snippets, hole.original, hole.path)


def _fitting(snippets: tuple[Snippet, ...], room: int) -> tuple[Snippet, ...]:
    kept: list[Snippet] = []
    for snippet in snippets:
        if _size(snippet) <= room:
            kept.append(snippet)
            room -= _size(snippet)
    return tuple(kept)


def _size(snippet: Snippet) -> int:
    return len(snippet.text) + len(snippet.path) + 16


def _tail(text: str, room: int) -> str:
    """The end of `text`; the cut falls on a multiple of characters, then on a line's beginning."""
    over = len(text) - room
    if over <= 0:
        return text
    step = max(1, room // _CUT_STEP)
    cut = min(len(text), -(-over // step) * step)
    line = text.find("\n", cut, cut + step) + 1
    return text[line or cut :]
