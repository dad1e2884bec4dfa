"""The bench of edits by instruction: its cases say what they mean, and none is done already."""

from __future__ import annotations

import pytest
from bench.edit.instruct import PROGRAMS, failure, span, touched_others
from bench.edit.instructions import CASES, Case

from clover_patcher.instruct.request import Edited, Instruction


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.words[:30])
def test_the_check_fails_without_the_edit(case: Case) -> None:
    text = (PROGRAMS / f"{case.program}.py").read_text()
    first, last = span(text, case.select)
    lines = text.split("\n")[first - 1 : last]
    assert lines[0].lstrip().startswith(("def ", "class ", "@"))
    same = Edited("\n".join(lines), after=text)
    assert failure(same, case)
    request = Instruction(f"{case.program}.py", text, first, last, case.words)
    assert not touched_others(request, same)
    assert touched_others(request, Edited("", after=text + "x = 1\n"))
