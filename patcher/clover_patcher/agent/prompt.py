"""What the model of an agent reads, written for models of one or two billion weights.

The tools are command words and headed code blocks (`calls.py`). The files that a requirement
speaks of are shown at once: many tasks are then one answer long.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from math import log

from clover_engine.generation import Role
from clover_patcher.agent.task import Requirement, Result
from clover_patcher.locate.functions import functions, grammar_of
from clover_patcher.repository.permission import is_frozen

Conversation = list[tuple[Role, str]]

_ROOM, _GUESSED = 6_000, 2
"""Characters of files that are shown at the start; how many, where the words name none."""
_NAMES = 60
_WORD = re.compile(r"[A-Za-z][a-z]+|[A-Z]+(?![a-z])|[a-z]+|\d+")

_SYSTEM = """\
You carry out a programming task in a repository. You see files and change them with commands.

To change or add a function, a class or a file, write its heading and then the whole new code:

`path/of/file.py::function_name`
```python
def function_name():
    ...
```

`path/of/file.py::ClassName.method_name` is a method, `path/of/file.py` alone is a whole file, new \
ones too. Never leave code out with `...`. Other commands stand on a line of their own:

LIST
SEARCH some text
READ path/of/file.py
{check}DONE

Change all that the task needs, and nothing else. Write DONE after the last change."""
_CHECK = "CHECK runs the check\n"
_ASK = "Answer with the new or changed functions only, each below its heading, then DONE."


def opening(
    requirement: Requirement, texts: Mapping[str, str], failing: str | None
) -> tuple[Conversation, list[str]]:
    """The first messages, and the paths of the files that they show.

    `failing`: what the check says now; None where it passes, or there is none.
    """
    system = _SYSTEM.format(check=_CHECK if requirement.check else "")
    names = sorted(texts)
    listed = names[:_NAMES] + [f"… and {len(names) - _NAMES} more"] * (len(names) > _NAMES)
    parts = ["Files:", *listed]
    shown = likely_files(requirement.words, texts)
    for path in shown:
        parts += ["", file_block(path, texts[path])]
    if failing is not None:
        parts += ["", f"The check `{requirement.check}` fails now:", failing]
    elif requirement.check:
        parts += ["", f"The check `{requirement.check}` passes now, and must in the end."]
    parts += ["", f"Task: {requirement.words.strip()}", "", _ASK]
    return [("system", system), ("user", "\n".join(parts))], shown


def observed(results: Sequence[Result], *, has_check: bool) -> str:
    """What the model reads after its calls."""
    parts = [result.text for result in results if result.text]
    edited = [result for result in results if result.call.tool == "edit"]
    if edited and all(result.ok for result in results):
        parts.append("Write DONE if the task is finished, else the next change.")
    elif edited and has_check and any(result.call.tool == "check" for result in results):
        parts.append("Write the functions again that are wrong, whole.")
    return "\n\n".join(parts)


def misunderstood(answer: str) -> str:
    """What the model reads where it wrote nothing that can be carried out."""
    if "```" in answer:
        return "Your answer ended in the middle of a code block: write one function at a time."
    return "No command was found. Write a headed code block, or READ, SEARCH, LIST or DONE."


def file_block(path: str, text: str) -> str:
    """A file as the model sees it."""
    return f"`{path}`\n```{grammar_of(path) or ''}\n{text.rstrip(chr(10))}\n```"


def likely_files(words: str, texts: Mapping[str, str]) -> list[str]:
    """The files that a requirement names, or else speaks of, as many as have room.

    Words weigh the more the fewer files have them; names of files and definitions count most.
    """
    wanted = set(_words(words))
    known = {path: Counter(_words(text)) for path, text in texts.items()}
    spread = Counter(word for counts in known.values() for word in counts)
    weight = {word: log(1 + len(texts) / (1 + spread[word])) for word in wanted}
    scores = {}
    for path, counts in known.items():
        names = set(_words(path)) | set(_words(" ".join(_defined(path, texts[path]))))
        score = sum(weight[w] * (min(counts[w], 3) > 0) for w in wanted)
        score += 3 * sum(weight[w] for w in wanted & names) + 9 * (path in words)
        scores[path] = score * (0.5 if is_frozen(path) else 1.0)
    named = {path for path in texts if path in words}
    room, chosen = _ROOM, list[str]()
    for path in sorted(scores, key=lambda p: (-scores[p], p)):
        size = len(texts[path])
        wanted_too = path in named if named else scores[path] > 0 and len(chosen) < _GUESSED
        if wanted_too and size <= room and texts[path].strip():
            chosen.append(path)
            room -= size
    return chosen


def _defined(path: str, text: str) -> list[str]:
    language = grammar_of(path)
    return [f.name for f in functions(language, text.encode())] if language else []


def _words(text: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(text) if len(word) > 2]
