"""What a model reads to edit lines by instruction, written for models of one billion weights.

Short, the instruction last, one thing asked for: the new version of the selected lines in one
fenced block. What stands around them is shown apart, and no more than the function that they are
in, so that it is not answered again.
"""

from __future__ import annotations

from clover_engine.generation import Role
from clover_patcher.instruct.place import Place
from clover_patcher.instruct.request import Instruction

Conversation = list[tuple[Role, str]]

_SYSTEM = (
    "You edit code as you are told. Answer with one fenced code block: the new version of the"
    " selected lines, all of them, and nothing else."
)
_SAYS = "You explain code to programmers, in a few plain sentences. You write no code."
_TESTS = (
    "You write tests with pytest. Answer with one fenced code block: a whole test file, with its"
    " imports, and nothing else."
)


def first_prompt(request: Instruction, place: Place) -> Conversation:
    """The conversation that asks for the edit, with its earlier turns."""
    system = {"edit": _SYSTEM, "say": _SAYS, "file": _TESTS}[request.kind]
    said = [*(turn.words for turn in request.turns), request.words]
    messages: Conversation = [("system", system), ("user", _asked(request, place, said[0]))]
    for turn, words in zip(request.turns, said[1:], strict=True):
        answer = "\n".join(_unmargined(turn.text.split("\n"), place.margin))
        messages += [("assistant", fenced(answer, place)), ("user", _again(words))]
    return messages


def next_prompt(before: Conversation, answer: str, why: str) -> Conversation:
    """The conversation with an answer that cannot be used, and why."""
    return [*before, ("assistant", answer), ("user", f"That cannot be used: {why}.")]


def fenced(code: str, place: Place) -> str:
    """Code between fences that it does not contain itself."""
    mark = "````" if "```" in code else "```"
    return f"{mark}{place.language}\n{code}\n{mark}"


def _asked(request: Instruction, place: Place, words: str) -> str:
    before, after = place.around()
    names = ", ".join(place.names())
    parts = [f"The file `{place.path}`" + (f" has the names {names}." if names else ".")]
    if before:
        parts += ["", "Before the selected lines:", fenced(before, place)]
    if after:
        parts += ["", "After the selected lines:", fenced(after, place)]
    if place.is_blank:
        parts += ["", "Nothing is selected: write the new lines that go between these."]
    else:
        parts += ["", "The selected lines:", fenced(place.code, place)]
    parts += ["", f"Instruction: {words.strip()}"]
    if request.kind == "edit":
        parts += ["", "Answer with the new version of the selected lines in one code block."]
    elif request.kind == "file":
        parts += ["", f"The tests import from `{module_of(place.path)}`."]
    return "\n".join(parts)


def _again(words: str) -> str:
    return f"Instruction: {words.strip()}\n\nAnswer with the new version of all these lines."


def module_of(path: str) -> str:
    """The module that a Python file is, as far as its path tells."""
    parts = path.removesuffix(".py").split("/")
    parts = parts[parts.index("src") + 1 :] if "src" in parts else parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _unmargined(lines: list[str], margin: str) -> list[str]:
    return [line.removeprefix(margin) if line.strip() else "" for line in lines]
