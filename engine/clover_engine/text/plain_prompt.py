"""Contexts for models that only continue text: no hole-filling tokens, so nothing after the hole.

Snippets stand before the prefix as comments. The prefix is cut back to before its trailing blanks,
which are forced instead (`decode.healing`): vocabularies join a line's indentation with its end.
"""

from __future__ import annotations

import re

from clover_engine.api import Snippet
from clover_engine.text.fim_prompt import MARKS, FimPrompt
from clover_engine.text.fitting import last_tokens, nearest_last, require_room
from clover_engine.text.prompt import Prompt
from clover_engine.text.tokenizer import Tokenizer

END = "<|endoftext|>"
CONTEXT = 1024
"""Tokens that are read at most: a long context costs a larger model seconds on a CPU."""
SNIPPET_SHARE = 0.25
MAX_ENDING = 16
"""Tokens of the suffix that end a candidate."""
_CHARS_PER_TOKEN = 4
_BLANKS = re.compile(r"\s*\Z")


class PlainPrompt:
    """Builds contexts for one tokenizer and context length; the end of text ends a hole."""

    def __init__(self, tokenizer: Tokenizer, length: int) -> None:
        self.tok, self.length = tokenizer, min(length, CONTEXT)
        self.eom = self.pad = tokenizer.required(END)
        self.ends = frozenset({self.eom})

    def context(
        self,
        prefix: str,
        suffix: str,
        original: str | None,
        snippets: tuple[Snippet, ...],
        reserve: int,
    ) -> list[int]:
        """Context tokens, at most `length - reserve` of them. Such a model can be shown neither
        `suffix` nor `original`. Raises RequestError for no room."""
        room = self.length - reserve - 1
        require_room(room, reserve, self.length)
        extra = self._comments(snippets, int(room * SNIPPET_SHARE))
        before = last_tokens(self.tok, prefix, room - len(extra), _CHARS_PER_TOKEN)
        return [self.eom, *extra, *before]

    @staticmethod
    def seen(suffix: str, single_line: bool) -> str:
        """What of the suffix the model should see: all of it."""
        return suffix

    def split(self, prefix: str) -> tuple[str, str]:
        """The prefix without its trailing blanks, and these."""
        found = _BLANKS.search(prefix)
        assert found is not None  # it matches the empty end
        return prefix[: found.start()], found[0]

    def ending(self, suffix: str) -> list[int]:
        """What follows the hole, up to the end of the next line: a candidate that fits makes it
        probable, so it ends one as `<eom>` does elsewhere."""
        lines = suffix.splitlines(keepends=True)
        return self.tok.encode("".join(lines[:2]))[:MAX_ENDING] or [self.eom]

    def _comments(self, snippets: tuple[Snippet, ...], room: int) -> list[int]:
        """Most relevant nearest to the hole; one that does not fit is left out."""
        texts = (
            "".join(f"# {line}\n" for line in snippet.text.splitlines()) for snippet in snippets
        )
        return nearest_last((self.tok.encode(text + "\n") for text in texts), room)


def prompt_for(tokenizer: Tokenizer, length: int) -> Prompt | PlainPrompt | FimPrompt:
    """By what the vocabulary has. Raises `CheckpointError` where it is none's."""
    if tokenizer.special(MARKS[0]) is not None and tokenizer.special("<mid>") is None:
        return FimPrompt(tokenizer, length)
    if tokenizer.special("<mid>") is None and tokenizer.special(END) is not None:
        return PlainPrompt(tokenizer, length)
    return Prompt(tokenizer, length)
