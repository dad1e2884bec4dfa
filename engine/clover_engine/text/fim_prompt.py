"""Contexts for models that were trained to fill holes between marks, as Qwen2.5-Coder was.

Layout (technical report 2409.12186, its repository level where there are snippets)::

    <|repo_name|>repository ⏎ {<|file_sep|>path ⏎ snippet ⏎}… <|file_sep|>path ⏎
    <|fim_prefix|>prefix<|fim_suffix|>suffix<|fim_middle|>

The prefix comes before the suffix, so a keystroke makes the model read the suffix again: it is kept
short, and where a single line is wanted it is the rest of that line (`seen`). What is nearest to
the hole is kept, and what stands before the prefix stays as it is while someone types, for the
prefix cache.
"""

from __future__ import annotations

import re

from clover_engine.api import Snippet
from clover_engine.text.fitting import STEP, last_tokens, nearest_last, require_room
from clover_engine.text.tokenizer import Tokenizer

MARKS = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")
ENDS = ("<|endoftext|>", "<|fim_pad|>", "<|file_sep|>", "<|repo_name|>", "<|im_end|>", *MARKS)
"""Marks after which nothing belongs to the hole; the first is what training put there."""
CONTEXT = 1024
"""Tokens that are read at most: a long context costs such a model seconds on a CPU."""
SUFFIX_TOKENS = 128
SNIPPET_SHARE = 0.3
_CHARS_PER_TOKEN = 5
_BLANKS = re.compile(r"[ \t]*\Z")
_UNTITLED = "untitled"


class FimPrompt:
    """Builds contexts for one tokenizer and context length."""

    def __init__(self, tokenizer: Tokenizer, length: int, context: int = CONTEXT) -> None:
        self.tok, self.length = tokenizer, min(length, context)
        self.pre, self.suf, self.mid = (tokenizer.required(mark) for mark in MARKS)
        found = [tokenizer.special(mark) for mark in ENDS]
        self.ends = frozenset(index for index in found if index is not None)
        self.eom = self.pad = tokenizer.required(ENDS[0])
        self.repo = tokenizer.special("<|repo_name|>")
        self.file = tokenizer.special("<|file_sep|>")

    def context(
        self,
        prefix: str,
        suffix: str,
        original: str | None,
        snippets: tuple[Snippet, ...],
        reserve: int,
    ) -> list[int]:
        """Context tokens, at most `length - reserve` of them. `original` has no place in this
        layout. Raises RequestError for no room."""
        # Rounded up, so that the cut does not move with every word.
        taken = -(-reserve // STEP) * STEP if reserve < self.length // 2 else reserve
        room = self.length - taken - 4
        require_room(room, reserve, self.length)
        after = self._head(suffix, min(SUFFIX_TOKENS, room // 3))
        extra = self._snippets(snippets, int(room * SNIPPET_SHARE))
        left = room - len(after) - len(extra)
        before = last_tokens(self.tok, prefix, left, _CHARS_PER_TOKEN)
        return [*extra, self.pre, *before, self.suf, *after, self.mid]

    @staticmethod
    def seen(suffix: str, single_line: bool) -> str:
        """What of the suffix the model should see.

        Of the lines below it copies some into a single line, and reading them again costs more than
        the line itself: with them fewer lines came out right (docs/benchmarks.md, "As people
        type").
        """
        return suffix.partition("\n")[0] + "\n" if single_line else suffix

    def split(self, prefix: str) -> tuple[str, str]:
        """The prefix without the blanks at its end, and these: vocabularies join them with the
        word that follows."""
        found = _BLANKS.search(prefix)
        assert found is not None  # it matches the empty end
        return prefix[: found.start()], found[0]

    def ending(self, suffix: str) -> list[int]:
        """The tokens that end a candidate text which is to be scored."""
        return [self.eom]

    def _snippets(self, snippets: tuple[Snippet, ...], room: int) -> list[int]:
        """Most relevant nearest to the hole; one that does not fit is left out."""
        if self.file is None or not snippets:
            return []
        head = [] if self.repo is None else [self.repo, *self.tok.encode("repository\n")]
        this = [self.file, *self.tok.encode(f"{_UNTITLED}\n")]
        texts = (f"{snippet.path or _UNTITLED}\n{snippet.text}" for snippet in snippets)
        pieces = (
            [self.file, *self.tok.encode(text if text.endswith("\n") else text + "\n")]
            for text in texts
        )
        found = nearest_last(pieces, room - len(head) - len(this))
        return [*head, *found, *this] if found else []

    def _head(self, text: str, room: int) -> list[int]:
        """The beginning of `text`, up to the end of a line where there is one."""
        ids = self.tok.encode(text[: room * _CHARS_PER_TOKEN])
        if len(ids) <= room:
            return ids
        cut = self.tok.decode(ids[:room]).rstrip("\ufffd")
        line = cut.rfind("\n")
        return self.tok.encode(cut[: line + 1]) if line > 0 else ids[:room]
