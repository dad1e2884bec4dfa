"""A model's code put into files: whole functions, whole files, texts that are replaced, new ones.

`splice` of the rewriting room puts functions in place of those that stand there. Here is what a
repair never needs and a requirement often does: new functions, methods, constants and files.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from textwrap import dedent

from clover_patcher.agent.task import Call
from clover_patcher.locate.functions import Function, error_count, functions, grammar_of
from clover_patcher.propose.rewrite.answers import Answer, Block, Replacement
from clover_patcher.propose.rewrite.imports import missing_imports
from clover_patcher.propose.rewrite.indent import fitted
from clover_patcher.propose.rewrite.minimal import is_abbreviated
from clover_patcher.propose.rewrite.splice import splice


class Refused(Exception):
    """An edit cannot be placed; the message says why, in words for the model."""


def placed(call: Call, texts: Mapping[str, str], shown: tuple[str, ...] = ()) -> dict[str, str]:
    """The texts that the edit changes, by path; new files among them.

    `texts` are the files that may be changed; `shown`, paths that the model has read, are where a
    block without a heading belongs. Raises `Refused`.
    """
    path, _, name = call.argument.partition("::")
    if call.old:
        return _spliced(Answer(replacements=(Replacement(call.old, call.code, path),)), texts, ())
    known = _known(path, texts)
    if known is None and path and "." in path.rpartition("/")[2]:
        return {path: _parsing(path, call.code)}
    if known is None:
        read = [p for p in shown if p in texts]
        if (known := _owner(call.code, texts, read)) is None:
            return _unheaded(call.code, texts, read)
    if grammar_of(known) is None:
        return {known: call.code}
    if (text := _with_new(call.code, name, known, texts[known])) is not None:
        return {known: _parsing(known, text, texts[known])}
    block = Block(call.code, known, name, grammar_of(known) or "")
    return _spliced(Answer(blocks=(block,)), texts, [(known, "")])


def _owner(code: str, texts: Mapping[str, str], shown: Sequence[str]) -> str | None:
    """Of the files that were read, the one whose definitions a block without a heading has."""
    if len(shown) == 1:
        return shown[0]
    shared = {path: len(_qualnames(path, code) & _qualnames(path, texts[path])) for path in shown}
    best = sorted(shown, key=lambda path: -shared[path])[:2]
    if not best or not shared[best[0]] or shared[best[0]] == shared[best[1]]:
        return None
    return best[0]


def _qualnames(path: str, text: str) -> set[str]:
    language = grammar_of(path)
    return {f.qualname for f in functions(language, text.encode())} if language else set()


def _unheaded(code: str, texts: Mapping[str, str], shown: Sequence[str]) -> dict[str, str]:
    """A block without a heading: where its functions stand, else new in what was read last."""
    block = Block(code, "", "", grammar_of(shown[0]) or "" if shown else "")
    try:
        return _spliced(Answer(blocks=(block,)), texts, [(path, "") for path in shown])
    except Refused:
        for target in shown:
            if (text := _with_methods(code, target, texts[target])) is not None:
                return {target: _parsing(target, text, texts[target])}
        raise


def _spliced(answer: Answer, texts: Mapping[str, str], asked: object) -> dict[str, str]:
    done = splice(answer, texts, asked)  # type: ignore[arg-type]
    if not done.texts:
        raise Refused("; ".join(done.complaints) or "it changes nothing: the code is there already")
    for block in answer.blocks:
        for path in done.texts:
            done.texts[path] = _with_constants(block.code, done.texts[path])
    return done.texts


def _known(path: str, texts: Mapping[str, str]) -> str | None:
    """The file that a path means: itself, or the only one with that end."""
    if path in texts or not path:
        return path or None
    found = [name for name in texts if name.endswith("/" + path) or path.endswith("/" + name)]
    return found[0] if len(found) == 1 else None


def _with_new(code: str, name: str, path: str, text: str) -> str | None:
    """The file with the block's functions and classes, where all of them are new in it.

    None where one of them stands there already, or the block holds none.
    """
    language = grammar_of(path)
    if language is None:
        return None
    if (methods := _with_methods(code, path, text)) is not None:
        return methods
    if is_abbreviated(code, language):
        return None
    given = functions(language, code.encode())
    standing = functions(language, text.encode())
    top = [f for f in given if not f.owner]
    if not top:
        return None
    owner = name.rpartition(".")[0] or (name if len(top) and not top[0].is_class else "")
    holder = next((f for f in standing if f.is_class and f.qualname == owner), None)
    inside = holder.qualname + "." if holder else ""
    known = {f.qualname for f in standing}
    if any(f"{inside}{f.name}" in known for f in top):
        return None
    if holder is None and re.match(r"\s*(?:async )?def \w+\(\s*self\b", code):
        classes = [f.qualname for f in standing if f.is_class]
        if len(classes) != 1:
            raise Refused(f"{top[0].name} is a method: head it `{path}::ClassName.{top[0].name}`")
        holder = next(f for f in standing if f.is_class)
    return _in_class(code, holder, text, language) if holder else _at_end(code, text, language)


def _with_methods(code: str, path: str, text: str) -> str | None:
    """The file with a block's methods, where the block is a class that stands there already and
    all of its methods are new: then it is not the whole class."""
    language = grammar_of(path)
    if language is None:
        return None
    given, standing = functions(language, code.encode()), functions(language, text.encode())
    top = [f for f in given if not f.owner]
    holder = next(
        (f for f in standing if f.is_class and len(top) == 1 and f.qualname == top[0].qualname),
        None,
    )
    methods = [f for f in given if f.owner and f.owner == (holder.qualname if holder else "")]
    known = {f.qualname for f in standing}
    if holder is None or not methods or any(f.qualname in known for f in methods):
        return None
    parts = [dedent(_with_margin(code.encode(), f)) for f in methods]
    if any(is_abbreviated(part, language) for part in parts):
        return None
    imports = "\n".join(line for line in code.split("\n") if line.startswith(("import ", "from ")))
    added = _in_class("\n\n".join(part.rstrip() for part in parts), holder, text, language)
    return missing_imports(f"{imports}\n", added) if language == "python" else added


def _with_margin(code: bytes, function: Function) -> str:
    """A function's text with the blanks before its first line."""
    line = code.rfind(b"\n", 0, function.outer_start) + 1
    return code[line : function.outer_end].decode()


def _at_end(code: str, text: str, language: str) -> str:
    """New functions behind all others, before what runs at the end of a script."""
    body = _without_imports(code) if language == "python" else code
    gap = "\n\n\n" if language == "python" else "\n\n"
    head, tail = text, ""
    for mark in ('\nif __name__ == "__main__":', "\nif __name__ == '__main__':"):
        if mark in text:
            head, tail = text[: text.index(mark)], text[text.index(mark) + 1 :]
    joined = head.rstrip("\n") + gap * bool(head.strip()) + body.strip("\n") + "\n"
    joined += f"{gap[1:]}{tail}" if tail else ""
    return missing_imports(code, joined) if language == "python" else joined


def _in_class(code: str, holder: Function, text: str, language: str) -> str:
    """New methods at the end of their class."""
    body = _without_imports(code) if language == "python" else code
    old = text.encode()
    line = old.rfind(b"\n", 0, holder.start) + 1
    margin = old[line : holder.start].decode()
    margin = (margin if not margin.strip() else "") + "    "
    like = old[holder.start : holder.end].decode()
    moved = margin + fitted(body.strip("\n"), "", margin, like, language)
    head, tail = old[: holder.end].decode().rstrip(), old[holder.end :].decode()
    joined = f"{head}\n\n{moved}\n{tail.removeprefix(chr(10))}"
    return missing_imports(code, joined) if language == "python" else joined


def _without_imports(code: str) -> str:
    """Python: the code without top-level imports, which go to the top of the file."""
    try:
        body = ast.parse(code).body
    except (SyntaxError, ValueError):
        return code
    lines = code.split("\n")
    for node in reversed(body):
        if isinstance(node, ast.Import | ast.ImportFrom):
            del lines[node.lineno - 1 : node.end_lineno]
    return "\n".join(lines)


def _with_constants(code: str, text: str) -> str:
    """Python: the file with the block's new top-level assignments, behind the imports."""
    try:
        given, standing = ast.parse(code), ast.parse(text)
    except (SyntaxError, ValueError):
        return text
    bound = {n.id for n in ast.walk(standing) if isinstance(n, ast.Name) and _stored(n)}
    used = {n.id for n in ast.walk(standing) if isinstance(n, ast.Name) and not _stored(n)}
    new = [
        ast.get_source_segment(code, node) or ""
        for node in given.body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        and (names := {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and _stored(n)})
        and names & used
        and not names & bound
    ]
    if not new:
        return text
    imports = [n for n in standing.body if isinstance(n, ast.Import | ast.ImportFrom)]
    at = (imports[-1].end_lineno or 0) if imports else 0
    lines = text.split("\n")
    return "\n".join([*lines[:at], *([""] if at else []), *new, *([] if at else [""]), *lines[at:]])


def _stored(name: ast.Name) -> bool:
    return isinstance(name.ctx, ast.Store)


def _parsing(path: str, text: str, before: str = "") -> str:
    """The text, if it parses no worse than before. Raises `Refused`."""
    language = grammar_of(path)
    if language and error_count(language, text.encode()) > error_count(language, before.encode()):
        raise Refused(f"with it {path} has a syntax error: write it again, whole")
    return text
