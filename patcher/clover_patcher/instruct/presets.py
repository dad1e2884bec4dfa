"""Instructions that everybody wants: docstring, types, tests, explain, simplify."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from clover_patcher.instruct.request import Instruction, Kind


@dataclass(frozen=True, slots=True)
class Preset:
    """An instruction with a name."""

    name: str
    title: str
    """For a menu."""
    words: str
    kind: Kind = "edit"

    def applied(self, request: Instruction) -> Instruction:
        """The request with the preset's words, followed by the user's own."""
        words = f"{self.words} {request.words}".strip()
        return replace(request, words=words, kind=self.kind)


PRESETS: Mapping[str, Preset] = {
    preset.name: preset
    for preset in (
        Preset(
            "docstring",
            "Write a docstring",
            "Write a short docstring for the function or class. Leave its code as it is.",
        ),
        Preset(
            "types",
            "Add type annotations",
            "Add type annotations to the parameters and the return value. Change nothing else.",
        ),
        Preset(
            "tests",
            "Write tests for this",
            "Write pytest tests for the selected code: usual cases and edge cases.",
            "file",
        ),
        Preset(
            "explain",
            "Explain this",
            "Explain what the selected code does, in a few plain sentences.",
            "say",
        ),
        Preset(
            "simplify",
            "Simplify this",
            "Simplify the code: shorter and easier to read, with the same behaviour.",
        ),
    )
}
"""By name."""
