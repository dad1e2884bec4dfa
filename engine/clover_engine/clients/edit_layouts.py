"""How models that were trained to write the next edit are asked, and how their answers are read.

Each layout shows the lines around the cursor, what was changed lately, and asks for the lines anew:
Zed's Zeta in its three forms, and Sweep's. A text that holds one of the layout's marks is not
asked about, and an answer that holds one is not shown.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from clover_engine.errors import RequestError

CHANGES = 6
"""So many of the latest changes are shown."""
EDITABLE, AROUND = 1_050, 450
"""Characters that may change, and those shown before and after them."""
WINDOW = 10
"""Lines above and below the cursor that Sweep's models write anew."""
_MOST_CHANGED = 40
_CUT = 16
"""Lines of a block between two of Zeta-2.1's marks, at most; at least `_CUT_LEAST`."""
_CUT_LEAST = 6


@dataclass(frozen=True, slots=True)
class Scene:
    """A document at the moment; line feeds only. `former`: its texts before, newest first."""

    path: str
    text: str
    cursor: int
    former: tuple[str, ...] = ()

    def changes(self) -> Iterator[tuple[str, str]]:
        """Texts before and after each change, oldest first."""
        texts = [self.text, *self.former[:CHANGES]][::-1]
        yield from ((a, b) for a, b in zip(texts, texts[1:], strict=False) if a != b)


@dataclass(frozen=True, slots=True)
class Region:
    """The characters [start, end) of the document that the model writes anew: whole lines."""

    before: str
    text: str
    after: str
    cursor: int
    """From the region's beginning."""
    start: int

    @classmethod
    def of_lines(cls, scene: Scene, above: int, below: int) -> Region:
        """So many lines around the cursor's."""
        start = scene.cursor
        for _ in range(above + 1):
            start = scene.text.rfind("\n", 0, max(0, start)) if start > 0 else -1
        start += 1
        end = scene.cursor
        for _ in range(below + 1):
            found = scene.text.find("\n", end)
            end = len(scene.text) if found < 0 else found + 1
        return cls._cut(scene, start, end)

    @classmethod
    def of_size(cls, scene: Scene) -> Region:
        """Whole lines around the cursor, of about `EDITABLE` characters."""
        start = max(0, scene.cursor - EDITABLE // 2)
        start = scene.text.rfind("\n", 0, start) + 1
        end = scene.text.find("\n", min(len(scene.text), start + EDITABLE))
        end = len(scene.text) if end < 0 else end + 1
        return cls._cut(scene, start, max(end, scene.cursor))

    @classmethod
    def _cut(cls, scene: Scene, start: int, end: int) -> Region:
        text = scene.text
        before, after = text[max(0, start - AROUND) : start], text[end : end + AROUND]
        return cls(before, text[start:end], after, scene.cursor - start, start)

    def with_cursor(self, mark: str) -> str:
        return self.text[: self.cursor] + mark + self.text[self.cursor :]


@dataclass(frozen=True, slots=True)
class EditLayout:
    """One way to ask."""

    name: str
    region: Callable[[Scene], Region]
    prompt: Callable[[Scene, Region], str]
    read: Callable[[str, Region], str | None]
    """The region's new text; None where the answer proposes none."""
    ends: tuple[str, ...]
    """At most four: servers with OpenAI's interface take no more."""
    marks: tuple[str, ...]

    def may_ask(self, scene: Scene) -> bool:
        """Whether no text that would be shown holds a mark."""
        return not any(mark in text for mark in self.marks for text in (scene.text, *scene.former))

    def edit(self, answer: str, region: Region) -> tuple[int, int, str] | None:
        """What to replace by what: characters of the document, whole lines that differ."""
        new = self.read(answer, region)
        if new is None or not new.strip() or any(mark in new for mark in self.marks):
            return None
        if region.text.endswith("\n") and not new.endswith("\n"):
            new += "\n"
        old_lines = region.text.splitlines(keepends=True)
        new_lines = new.splitlines(keepends=True)
        first = 0
        while first < min(len(old_lines), len(new_lines)) and old_lines[first] == new_lines[first]:
            first += 1
        last = 0
        most = min(len(old_lines), len(new_lines)) - first
        while last < most and old_lines[-1 - last] == new_lines[-1 - last]:
            last += 1
        start = region.start + len("".join(old_lines[:first]))
        old = "".join(old_lines[first : len(old_lines) - last])
        replacement = "".join(new_lines[first : len(new_lines) - last])
        if old.endswith("\n") and replacement.endswith("\n"):
            old, replacement = old[:-1], replacement[:-1]
        return None if old == replacement else (start, start + len(old), replacement)


def _diff(before: str, after: str) -> str:
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=3)
    return "\n".join(list(lines)[2:])


_ZETA_TASK = (
    "You are a code completion assistant and your task is to analyze user edits and then rewrite "
    "an excerpt that the user provides, suggesting the appropriate edits within the excerpt, "
    "taking into account the cursor location."
)
_START, _END = "<|editable_region_start|>", "<|editable_region_end|>"


def _zeta(scene: Scene, region: Region) -> str:
    edits = "\n\n".join(
        f"User edited {scene.path}:\n```diff\n{_diff(a, b)}\n```" for a, b in scene.changes()
    )
    shown = region.with_cursor("<|user_cursor_is_here|>")
    excerpt = f"{region.before}{_START}\n{shown}\n{_END}\n{region.after}"
    return (
        f"### Instruction:\n{_ZETA_TASK}\n\n### User Edits:\n\n{edits}\n\n"
        f"### User Excerpt:\n\n```{scene.path}\n{excerpt}\n```\n\n### Response:\n\n"
    )


def _read_zeta(answer: str, region: Region) -> str | None:
    _, begun, rest = answer.partition(f"{_START}\n")
    new, ended, _ = rest.partition(f"\n{_END}")
    return new.replace("<|user_cursor_is_here|>", "") if begun and ended else None


def _zeta_head(scene: Scene, region: Region) -> str:
    history = "".join(
        f"--- a/{scene.path}\n+++ b/{scene.path}\n{_diff(a, b)}\n" for a, b in scene.changes()
    )
    after = region.after if region.after.endswith("\n") else f"{region.after}\n"
    return (
        f"<[fim-suffix]>\n{after}<[fim-prefix]><filename>edit_history\n{history}\n"
        f"<filename>{scene.path}\n{region.before}"
    )


def _zeta_2(scene: Scene, region: Region) -> str:
    shown = region.with_cursor("<|user_cursor|>")
    shown = shown if shown.endswith("\n") else f"{shown}\n"
    return f"{_zeta_head(scene, region)}<<<<<<< CURRENT\n{shown}=======\n<[fim-middle]>"


def _read_zeta_2(answer: str, region: Region) -> str | None:
    new = answer.partition(">>>>>>> UPDATED")[0].replace("<|user_cursor|>", "")
    return None if new.strip() == "NO_EDITS" else new


def _zeta_21(scene: Scene, region: Region) -> str:
    places = _cuts(region.text)
    shown, at = "", 0
    for number, place in enumerate(places, 1):
        shown += _with_cursor(region, at, place) + f"<|marker_{number}|>"
        at = place
    return f"{_zeta_head(scene, region)}{shown}\n<[fim-middle]>"


def _with_cursor(region: Region, start: int, end: int) -> str:
    text = region.text[start:end]
    if not start <= region.cursor < max(end, start + 1) or start == end:
        return text
    return text[: region.cursor - start] + "<|user_cursor|>" + text[region.cursor - start :]


def _read_zeta_21(answer: str, region: Region) -> str | None:
    marks = list(re.finditer(r"<\|marker_(\d+)\|>", answer))
    places = _cuts(region.text)
    if len(marks) < 2:
        return None
    first, last = int(marks[0][1]), int(marks[-1][1])
    if not 1 <= first < last <= len(places):
        return None
    written = re.sub(r"<\|marker_\d+\|>", "", answer[marks[0].end() : marks[-1].start()])
    new = written.replace("<|user_cursor|>", "")
    return region.text[: places[first - 1]] + new + region.text[places[last - 1] :]


def _cuts(text: str) -> list[int]:
    """Where blocks begin and end: best after a blank line."""
    lines = text.splitlines(keepends=True)
    places, begun, at = [0], 0, 0
    for number, line in enumerate(lines):
        size = number - begun
        after_blank = number > 0 and not lines[number - 1].strip() and bool(line.strip())
        if (size >= _CUT_LEAST and after_blank and len(lines) - number >= _CUT_LEAST) or (
            size >= _CUT
        ):
            places.append(at)
            begun = number
        at += len(line)
    return [*places, len(text)] if len(text) > places[-1] else places


def _sweep(scene: Scene, region: Region) -> str:
    changed = "".join(
        f"<|file_sep|>{scene.path}.diff\noriginal:\n{old}\nupdated:\n{new}\n"
        for old, new in map(_both, list(scene.changes())[-3:])
    )
    window = _lines_of(region.text)
    former = _lines_of(_former_window(scene, region))
    return (
        f"{changed}<|file_sep|>original/{scene.path}\n{former}"
        f"<|file_sep|>current/{scene.path}\n{window}<|file_sep|>updated/{scene.path}\n"
    )


def _lines_of(text: str) -> str:
    return text if text.endswith("\n") else f"{text}\n"


def _both(change: tuple[str, str]) -> tuple[str, str]:
    """The lines around a change, before and after it."""
    lines = [line for line in _diff(*change).split("\n") if not line.startswith("@@")]
    old = [line[1:] for line in lines if line[:1] in " -"][:_MOST_CHANGED]
    new = [line[1:] for line in lines if line[:1] in " +"][:_MOST_CHANGED]
    return "\n".join(old), "\n".join(new)


def _former_window(scene: Scene, region: Region) -> str:
    """The region's lines before the last change."""
    former = next((text for text in scene.former if text != scene.text), scene.text)
    old, new = former.splitlines(keepends=True), scene.text.splitlines(keepends=True)
    first = scene.text.count("\n", 0, region.start)
    last = first + len(region.text.splitlines())
    blocks = difflib.SequenceMatcher(None, new, old, autojunk=False).get_opcodes()

    def there(line: int, end: bool) -> int:
        for _, i1, i2, j1, j2 in blocks:
            if i1 <= line < i2 or (end and line == i2):
                return min(j1 + line - i1, j2) if not end or line < i2 else j2
        return len(old)

    return "".join(old[there(first, False) : there(last, True)])


def _read_sweep(answer: str, region: Region) -> str | None:
    new = answer.partition("<|file_sep|>")[0].partition("<|endoftext|>")[0].partition("</s>")[0]
    return new if new.strip() else None


_ZETA_2_MARKS = (
    *("<[fim-suffix]>", "<[fim-prefix]>", "<[fim-middle]>", "<filename>", "<|user_cursor|>"),
    "<[end▁of▁sentence]>",
)
LAYOUTS: Mapping[str, EditLayout] = {
    layout.name: layout
    for layout in (
        EditLayout(
            "zeta", Region.of_size, _zeta, _read_zeta,
            ends=("<|im_end|>", "<|endoftext|>"),
            marks=(_START, _END, "<|user_cursor_is_here|>", "<|start_of_file|>"),
        ),
        EditLayout(
            "zeta-2", Region.of_size, _zeta_2, _read_zeta_2,
            ends=(">>>>>>> UPDATED", "<[end▁of▁sentence]>"),
            marks=(*_ZETA_2_MARKS, "<<<<<<< CURRENT", ">>>>>>> UPDATED"),
        ),
        EditLayout(
            "zeta-2.1", Region.of_size, _zeta_21, _read_zeta_21,
            ends=("<[end▁of▁sentence]>",), marks=(*_ZETA_2_MARKS, "<|marker_"),
        ),
        EditLayout(
            "sweep", lambda scene: Region.of_lines(scene, WINDOW, WINDOW), _sweep, _read_sweep,
            ends=("<|file_sep|>", "<|endoftext|>", "</s>"),
            marks=("<|file_sep|>", "<|endoftext|>", "</s>"),
        ),
    )
}  # fmt: skip
"""By name."""
_FAMILIES = (
    (r"zeta-?_?2[._-]1", "zeta-2.1"), (r"zeta-?_?2", "zeta-2"), (r"zeta", "zeta"),
    (r"sweep", "sweep"),
)  # fmt: skip


def layout_for(name: str, model: str) -> EditLayout:
    """The layout of that name, else of the model's family. Raises RequestError for neither."""
    if not name:
        found = (known for pattern, known in _FAMILIES if re.search(pattern, model.lower()))
        name = next(found, "")
    if name not in LAYOUTS:
        raise RequestError(f"no edit layout {name!r}: choose one of {', '.join(LAYOUTS)}")
    return LAYOUTS[name]
