"""An answer's blocks put into files: whole functions by syntax tree, replacements by their text.

A block never lands where it was not meant to: a function is put in place of the one function that
has its qualified name, new functions stand beside it, and what cannot be placed is refused in
words that can be given back to the model. Lines that say the same as before stay byte for byte
(`minimal.py`), so that comments, blank lines and line ends survive.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from clover_patcher.locate.functions import (
    Function,
    error_count,
    functions,
    grammar_of,
    outermost,
)
from clover_patcher.propose.rewrite.answers import Answer, Block, Replacement
from clover_patcher.propose.rewrite.imports import missing_imports
from clover_patcher.propose.rewrite.indent import fitted
from clover_patcher.propose.rewrite.minimal import covers, is_abbreviated, minimal
from clover_patcher.propose.rewrite.replacing import replaced
from clover_patcher.propose.rewrite.secrets import revealed

_TOP_TESTS = ("test_", "Test")

Asked = Sequence[tuple[str, str]]
"""(path, qualified name) of the functions that the model was shown."""


class Refused(Exception):
    """A block cannot be placed; the message says why, in words for the model and the user."""


@dataclass(frozen=True, slots=True)
class Spliced:
    """The texts after the answer, for the files that changed, and what was refused."""

    texts: dict[str, str]
    complaints: tuple[str, ...] = ()


def splice(answer: Answer, files: Mapping[str, str], asked: Asked = ()) -> Spliced:
    """Applies an answer to `files` (path → text with line feeds only; the files that may change).

    `asked` are the (path, qualname) pairs that the model was shown: a block without a heading
    belongs to one of them. Nothing is guessed: where two places fit, the block is refused.
    """
    texts = dict(files)
    complaints = list(answer.complaints)
    for block in answer.blocks:
        try:
            _splice_block(block, texts, asked)
        except Refused as exc:
            complaints.append(str(exc))
    for pair in answer.replacements:
        try:
            _splice_replacement(pair, texts, asked)
        except Refused as exc:
            complaints.append(str(exc))
    changed = {path: text for path, text in texts.items() if text != files[path]}
    for path in list(changed):
        if (text := revealed(files[path], changed[path])) is None:
            del changed[path]
            complaints.append(f"the answer writes stars over a secret in {path}")
            continue
        changed[path] = text
        language = grammar_of(path, changed[path].encode().split(b"\n", 1)[0])
        before = error_count(language, files[path].encode()) if language else 0
        if language and error_count(language, changed[path].encode()) > before:
            del changed[path]
            complaints.append(f"the answer makes {path} a file that does not parse")
    return Spliced(changed, tuple(complaints))


def _splice_block(block: Block, texts: dict[str, str], asked: Asked) -> None:
    path = _file_of(block, texts, asked)
    language = grammar_of(path, texts[path].encode().split(b"\n", 1)[0])
    if language is None:
        raise Refused(f"{path} is in a language whose functions are not known here")
    if block.complete and not block.qualname and covers(block.code, texts[path], language):
        texts[path] = minimal(texts[path], block.code, language)
        return
    everything = functions(language, block.code.encode())
    given = outermost(everything)
    if not block.complete:
        given = given[:-1]  # the last one may have been cut
        if not given and everything:
            raise Refused("the answer ended before the function did: answer with less")
    if not given:
        raise Refused(f"the block for {path} holds no whole function: answer with whole functions")
    wanted = [name for where, name in asked if where == path]
    members = list(_members(given, everything, block.code, language, texts[path]))
    if not members:
        raise Refused(f"the block for {path} holds tests only: answer with the program's functions")
    alone = sum(not f.is_class for f in members) == 1
    pieces = [Given(function, block, language, alone) for function in members]
    if all(_standing(piece, texts[path], wanted) is None for piece in pieces):
        names = ", ".join(f.qualname for f in members[:3])
        raise Refused(f"{path} has no {names}: rewrite functions that are there")
    for piece in pieces:
        _splice_function(piece, path, texts, wanted)
    if language == "python":
        texts[path] = missing_imports(block.code, texts[path])


def _members(
    given: Sequence[Function],
    everything: Sequence[Function],
    code: str,
    language: str,
    text: str,
) -> Iterator[Function]:
    """The functions of a block; of classes their methods, or the class where it is given whole."""
    standing = functions(language, text.encode())
    for function in given:
        if function.name.startswith(_TOP_TESTS):
            continue
        if not function.is_class:
            yield function
            continue
        inside = [f for f in everything if f.owner == function.qualname and not f.is_class]
        there = {f.name for f in standing if f.owner == function.qualname and not f.is_class}
        own = code.encode()[function.start : function.end].decode()
        whole = there <= {f.name for f in inside} and not is_abbreviated(own, language)
        known = any(f.is_class and f.qualname == function.qualname for f in standing)
        if not inside or (whole and known):
            yield function
        else:
            yield from inside


def _file_of(block: Block, texts: Mapping[str, str], asked: Asked) -> str:
    if block.path:
        if (path := _matching(block.path, texts)) is not None:
            return path
        if len(texts) > 1 or PurePosixPath(block.path).name not in _basenames(texts):
            owners = _defining(block, texts, asked)
            if len(owners) == 1 and not block.qualname:
                return owners[0]
            shown = ", ".join(sorted(texts)[:5])
            raise Refused(f"{block.path} is not a file that may be changed; those are: {shown}")
    owners = _defining(block, texts, asked)
    if len(owners) == 1:
        return owners[0]
    if not owners:
        raise Refused("the block's functions are in none of the files: head it `path::function`")
    raise Refused(f"the block fits {' and '.join(owners)}: head it `path::function`")


def _basenames(texts: Mapping[str, str]) -> set[str]:
    return {PurePosixPath(path).name for path in texts}


def _matching(path: str, texts: Mapping[str, str]) -> str | None:
    """The one file that a path means: itself, or the only one that ends with it or with its end."""
    if path in texts:
        return path
    parts = PurePosixPath(path).parts
    for count in range(len(parts), 0, -1):
        tail = "/".join(parts[-count:])
        found = [name for name in texts if name == tail or name.endswith("/" + tail)]
        if len(found) == 1:
            return found[0]
        if found:
            return None
    return None


def _defining(block: Block, texts: Mapping[str, str], asked: Asked) -> list[str]:
    """The files that have one of the block's functions, those that were asked about first."""
    found: dict[str, int] = {}
    for path, text in texts.items():
        language = grammar_of(path, text.encode().split(b"\n", 1)[0])
        if language is None:
            continue
        given = {f.name for f in functions(language, block.code.encode())}
        if any(where == path and name.rpartition(".")[2] in given for where, name in asked):
            found[path] = 2
        elif given & {f.name for f in functions(language, text.encode())}:
            found[path] = 1
    best = max(found.values(), default=0)
    return [path for path, weight in found.items() if weight == best]


@dataclass(frozen=True, slots=True)
class Given:
    """One function of a block."""

    function: Function
    block: Block
    language: str
    alone: bool
    """Whether it is the block's only function: then a heading may name it otherwise."""

    @property
    def code(self) -> str:
        at = self.function
        return self.block.code.encode()[at.outer_start : at.outer_end].decode()

    @property
    def margin(self) -> str:
        """The blanks that stand before it in the block."""
        code = self.block.code.encode()
        line = code.rfind(b"\n", 0, self.function.outer_start) + 1
        blanks = code[line : self.function.outer_start].decode()
        return blanks if not blanks.strip() else ""


def _splice_function(given: Given, path: str, texts: dict[str, str], wanted: Sequence[str]) -> None:
    """Puts one function in its place in `texts[path]`. Raises `Refused`."""
    function, language, new = given.function, given.language, given.code
    if is_abbreviated(new, language):
        raise Refused(f"{function.qualname} leaves code out (`...`): write the whole function")
    old = texts[path].encode()
    target = _standing(given, texts[path], wanted)
    if target is None:
        texts[path] = _inserted(given, path, texts[path], wanted)
        return
    start, end = target.outer_start, target.outer_end
    if function.outer_start == function.start and target.outer_start != target.start:
        start, end = target.start, target.end  # the answer leaves decorators out: they stay
    margin = _margin(old, start, target)
    if function.name != target.name:
        new = _renamed(new, function.name, target.name)
    before = old[start:end].decode()
    after = fitted(new, given.margin, margin, before, language)
    middle = minimal(before, after, language, margin)
    texts[path] = old[:start].decode() + middle + old[end:].decode()


def _margin(code: bytes, start: int, function: Function) -> str:
    """The blanks before the function's line; `export` and the like may stand on it too."""
    line = code.rfind(b"\n", 0, start) + 1
    before = code[line:start]
    blanks = before[: function.outer_start - line] if function.outer_start >= line else before
    if blanks.strip():
        raise Refused(f"{function.qualname} shares its line with other code")
    return blanks.decode()


def _standing(given: Given, text: str, wanted: Sequence[str]) -> Function | None:
    """The function or class of the file that `given` replaces; None where it is a new one."""
    found = functions(given.language, text.encode())
    return _target(given, [f for f in found if f.is_class == given.function.is_class], wanted)


def _target(given: Given, standing: Sequence[Function], wanted: Sequence[str]) -> Function | None:
    """The function of the file that `given` replaces; None where it is a new one."""
    function, heading = given.function, given.block.qualname
    same = [f for f in standing if f.name == function.name]
    for found in (
        [f for f in same if f.qualname == function.qualname] if function.owner else [],
        [f for f in same if f.qualname == heading],
        [f for f in same if heading and f.qualname.endswith("." + heading)],
        [f for f in same if f.qualname in wanted] if not function.owner else [],
        [f for f in same if f.qualname == function.qualname],
        same if not function.owner else [],
        [f for f in standing if f.qualname == heading and given.alone and not function.owner],
    ):
        if len(found) > 1:
            name = function.name
            raise Refused(f"{name} stands {len(found)} times in the file: head it with its class")
        if found:
            return found[0]
    return None


def _renamed(code: str, old: str, new: str) -> str:
    return re.sub(rf"(?<![\w.]){re.escape(old)}(?=\s*\()", new, code)


def _inserted(given: Given, path: str, text: str, wanted: Sequence[str]) -> str:
    """A new function: before the one that was asked about, or before the last of its class."""
    function, old = given.function, text.encode()
    standing = functions(given.language, old)
    if function.owner and function.owner not in {f.qualname for f in standing if f.is_class}:
        raise Refused(f"{path} has no class {function.owner}")
    beside = [f for f in standing if f.owner == function.owner and not f.is_class]
    near = [f for f in beside if f.qualname in wanted] or beside[-1:]
    if not near:
        raise Refused(f"{function.qualname} is new, and {path} has no function to put it beside")
    at = near[0]
    margin = _margin(old, at.outer_start, at)
    line = at.outer_start - len(margin.encode())
    like = old[at.outer_start : at.outer_end].decode()
    body = margin + fitted(given.code, given.margin, margin, like, given.language)
    gap = "\n\n" if margin or given.language != "python" else "\n\n\n"
    return old[:line].decode() + body + gap + old[line:].decode()


def _splice_replacement(pair: Replacement, texts: dict[str, str], asked: Asked) -> None:
    """Replaces a text that stands once in one file; blanks at line ends do not count."""
    path = _matching(pair.path, texts) if pair.path else None
    if pair.path and path is None:
        shown = ", ".join(sorted(texts)[:5])
        raise Refused(f"{pair.path} is not a file that may be changed; those are: {shown}")
    wanted = {where for where, _ in asked}
    places = [path] if path else sorted(texts, key=lambda p: p not in wanted)
    outcomes = [(p, text) for p in places if (text := replaced(texts[p], pair)) is not None]
    if not outcomes:
        first = next((line for line in pair.old.split("\n") if line.strip()), "").strip()
        raise Refused(f"the searched text (`{first[:60]}`…) does not stand there exactly once")
    if len(outcomes) > 1:
        raise Refused("the searched text stands in several files: name the file above it")
    texts[outcomes[0][0]] = outcomes[0][1]
