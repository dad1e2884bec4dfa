"""Conversations as token ids, by the checkpoint's own chat template.

Templates are Jinja, as Hugging Face checkpoints have them (``chat_template.jinja``, or the key
``chat_template`` of ``tokenizer_config.json``), rendered in a sandbox with the same helpers as
transformers gives them. What a message says stays text: marks of the template that a user types
(``<|im_end|>``) are never encoded as special tokens.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

from clover_engine.errors import CheckpointError, RequestError
from clover_engine.generation import Message
from clover_engine.text.thinking import CLOSE, OPEN, Opening
from clover_engine.text.tokenizer import Tokenizer

_SHIELDS = range(0xF0000, 0xF0100)
"""Private-use characters; one that no message contains breaks up the marks inside messages."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """Token ids that end where the assistant's turn begins, and how that turn begins."""

    tokens: list[int]
    opening: Opening
    """For `ThinkingSplit`."""


class ChatTemplate:
    """A checkpoint's template with its tokenizer. Make one with `load`."""

    def __init__(self, source: str, tokenizer: Tokenizer, marks: dict[str, str]) -> None:
        """`marks` are the template's variables such as `bos_token`. Raises CheckpointError."""
        self._tokenizer = tokenizer
        self._marks = marks
        self._specials = re.compile(
            "|".join(re.escape(s) for s in sorted(tokenizer.added, key=len, reverse=True)) or "$^"
        )
        self._template = _compile(source)

    @classmethod
    def load(cls, folder: Path, tokenizer: Tokenizer) -> ChatTemplate | None:
        """The folder's template; None where it has none. Raises CheckpointError."""
        settings = _read_json(folder / "tokenizer_config.json")
        file = folder / "chat_template.jinja"
        source = file.read_text("utf-8") if file.is_file() else settings.get("chat_template")
        return cls.made_of(source, settings, tokenizer)

    @classmethod
    def made_of(
        cls, source: object, settings: Mapping[str, Any], tokenizer: Tokenizer
    ) -> ChatTemplate | None:
        """Of the key ``chat_template`` and the others of ``tokenizer_config.json``."""
        if isinstance(source, list):  # several, by name
            named = {str(entry["name"]): str(entry["template"]) for entry in source}
            source = named.get("default")
        if not isinstance(source, str):
            return None
        marks = {name: _mark(settings.get(name)) for name in settings if name.endswith("_token")}
        return cls(source, tokenizer, {name: mark for name, mark in marks.items() if mark})

    def render(self, messages: Sequence[Message], thinking: bool) -> str:
        """The text up to where the assistant's turn begins. Raises RequestError for a conversation
        that the template refuses."""
        turns = [{"role": m.role, "content": m.content} for m in messages]
        return self._render(turns, thinking)

    def encode(self, messages: Sequence[Message], thinking: bool) -> Conversation:
        """Raises RequestError for a conversation that the template refuses."""
        shield = _shield(m.content for m in messages)
        turns = [
            {"role": m.role, "content": self._shielded(m.content, m.role, shield)} for m in messages
        ]
        text = self._render(turns, thinking)
        tokens: list[int] = []
        at = 0
        for found in self._specials.finditer(text):
            tokens += self._plain(text[at : found.start()], shield)
            tokens.append(self._tokenizer.added[found[0]])
            at = found.end()
        tokens += self._plain(text[at:], shield)
        return Conversation(tokens, _opening(text, thinking))

    def _render(self, turns: list[dict[str, str]], thinking: bool) -> str:
        from jinja2 import TemplateError

        try:
            return str(
                self._template.render(
                    messages=turns,
                    tools=None,
                    documents=None,
                    add_generation_prompt=True,
                    enable_thinking=thinking,
                    **self._marks,
                )
            )
        except TemplateError as error:
            raise RequestError(
                f"the model's chat template refuses these messages: {error}; "
                "give a user's message last, and roles that the model knows"
            ) from error

    def _shielded(self, content: str, role: str, shield: str) -> str:
        """`content` without special tokens; an assistant's thinking marks stay, since templates
        cut past thinking out by them."""

        def broken(match: re.Match[str]) -> str:
            mark = match[0]
            if role == "assistant" and mark in (OPEN, CLOSE):
                return mark
            return mark[0] + shield + mark[1:]

        return self._specials.sub(broken, content)

    def _plain(self, text: str, shield: str) -> list[int]:
        text = text.replace(shield, "")
        return self._tokenizer.encode(text) if text else []


def _compile(source: str) -> Any:
    try:
        from jinja2 import TemplateError
        from jinja2.ext import loopcontrols
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ImportError as error:
        raise CheckpointError(
            "the package jinja2 is not installed; pip install 'clover-code[engine]'"
        ) from error
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    try:
        return environment.from_string(source)
    except TemplateError as error:
        raise CheckpointError(
            f"the checkpoint's chat template is no valid Jinja: {error}; fetch it again"
        ) from error


def _to_json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _refuse(message: str) -> NoReturn:
    from jinja2 import TemplateError

    raise TemplateError(message)


def _opening(text: str, thinking: bool) -> Opening:
    if text.rstrip().endswith(OPEN):
        return "thinking"
    return "start" if thinking else "answer"


def _shield(contents: Iterable[str]) -> str:
    used = set().union(*contents)
    for code in _SHIELDS:
        if chr(code) not in used:
            return chr(code)
    raise RequestError(
        f"the messages use all of U+{_SHIELDS[0]:X} to U+{_SHIELDS[-1]:X}; take some out"
    )


def _mark(value: object) -> str:
    """`"<s>"`, or `{"content": "<s>", …}`."""
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else ""


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        data = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"cannot read {path}: {error}; fetch the checkpoint again") from error
    return data if isinstance(data, dict) else {}


def stop_tokens(folder: Path, tokenizer: Tokenizer) -> frozenset[int]:
    """Ids that end a turn: `eos_token_id` of generation_config.json and config.json, and the
    tokenizer's own end tokens. Raises CheckpointError for unreadable files."""
    found: set[int] = set()
    for name in ("generation_config.json", "config.json"):
        value = _read_json(folder / name).get("eos_token_id")
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, int) and 0 <= one < tokenizer.vocab_size:
                found.add(one)
    eos = _mark(_read_json(folder / "tokenizer_config.json").get("eos_token"))
    return frozenset(found) | end_tokens(tokenizer, eos)


def end_tokens(tokenizer: Tokenizer, eos: str = "") -> frozenset[int]:
    """Ids of the tokens that end a turn by their names, `eos` and the usual ones."""
    found = set()
    for mark in (eos, "<|im_end|>", "<|endoftext|>", "<eom>"):
        index = tokenizer.special(mark) if mark else None
        if index is not None:
            found.add(index)
    return frozenset(found)
