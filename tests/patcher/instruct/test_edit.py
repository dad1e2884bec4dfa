"""Edits by instruction: what is asked, what comes back, and that nothing else changes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clover_engine.errors import Unsupported
from clover_engine.generation import GenerateRequest
from clover_engine.testing.fakes import FakeTalker
from clover_patcher.errors import UsageError
from clover_patcher.instruct.answer import new_lines
from clover_patcher.instruct.edit import edit, so_far
from clover_patcher.instruct.place import Place
from clover_patcher.instruct.presets import PRESETS
from clover_patcher.instruct.request import Edited, Instruction, NoConversation, NoEdit, Turn

CART = '''\
import os


class Cart:
    """What somebody wants to buy."""

    def add(self, item, count=1):
        # one entry for each piece
        for _ in range(count):
            self.items.append(item)

    def total(self):
        total = 0
        for item in self.items:
            total += item.price
        return total


def path():
    return os.getcwd()
'''
TOTAL = Instruction("shop/cart.py", CART, 12, 16, "use sum()")
SUM = "def total(self):\n    return sum(item.price for item in self.items)"
INSIDE = "    def total(self):\n        return sum(item.price for item in self.items)"


def asked(answers: list[str], request: Instruction = TOTAL) -> tuple[Edited, list[str]]:
    """The edit, and the last words of every prompt."""
    engine = FakeTalker(answers=answers)
    done = edit(engine, request)
    return done, [one.messages[-1].content for one in engine.conversations]


def outside(request: Instruction, done: Edited) -> bool:
    """Whether all lines but the selected ones are as they were."""
    lines, after = request.lines, done.after.split("\n")
    head, tail = lines[: request.first - 1], lines[request.last :]
    return after[: len(head)] == head and (not tail or after[-len(tail) :] == tail)


@pytest.mark.parametrize(
    "answer",
    [
        f"```python\n{SUM}\n```",
        f"Sure, here it is:\n\n```python\n{SUM}\n```\n\nIt uses `sum`.",
        f"```python\n{INSIDE}\n```",
        f"```\n{SUM}\n```",
        f"```python\n{SUM}\n",
        f"```python\n            self.items.append(item)\n\n{INSIDE}\n\n\ndef path():\n```",
    ],
    ids=["plain", "prose", "margin", "no-language", "unclosed", "around"],
)
def test_answers_as_models_give_them(answer: str) -> None:
    done, _ = asked([answer])
    assert done.text == INSIDE
    assert outside(TOTAL, done)
    assert done.after.count("def total") == 1


def test_the_old_version_shown_once_more_is_not_the_answer() -> None:
    place = Place.of(TOTAL)
    answer = f"Before:\n```python\n{place.code}\n```\nAfter:\n```python\n{SUM}\n```"
    assert new_lines(answer, place).text == INSIDE


def test_what_is_asked_for() -> None:
    engine = FakeTalker(answers=[f"```python\n{SUM}\n```"])
    edit(engine, TOTAL)
    (request,) = engine.conversations
    said = request.messages[-1].content
    assert "```python\ndef total(self):\n    total = 0\n" in said, "without its margin"
    assert "class Cart:" in said, "the class around it"
    assert "Instruction: use sum()" in said
    assert request.temperature == 0 and not request.thinking


def test_another_attempt_is_another_draw() -> None:
    engine = FakeTalker(answers=[f"```python\n{SUM}\n```"])
    edit(engine, replace(TOTAL, attempt=1))
    assert engine.conversations[0].temperature > 0


def test_unusable_answers_are_told_why() -> None:
    same = "\n".join(line.removeprefix("    ") for line in TOTAL.selected)
    answers = [
        f"```python\n{same}\n```",
        "```python\ndef total(self:\n```",
        f"```python\n{SUM}\n```",
    ]
    done, prompts = asked(answers)
    assert done.text == INSIDE and done.asked == 3
    assert "the same as before" in prompts[1]
    assert "syntax error" in prompts[2]


def test_gives_up_in_words() -> None:
    with pytest.raises(NoEdit, match="no code block"):
        asked(["I cannot do that."])


def test_code_left_out_is_refused() -> None:
    answers = [
        "```python\ndef total(self):\n    # ... rest unchanged\n```",
        f"```python\n{SUM}\n```",
    ]
    done, prompts = asked(answers)
    assert "leaves code out" in prompts[1] and done.asked == 2


def test_imports_of_the_answer_stay_out_unless_wanted() -> None:
    answer = f"```python\nimport math\n\n{SUM.replace('sum', 'math.fsum')}\n```"
    done, _ = asked([answer])
    assert done.imports == ("import math",)
    assert outside(TOTAL, done) and "import math" not in done.after
    done, _ = asked([answer], replace(TOTAL, imports=True))
    assert done.after.startswith("import os\nimport math\n")
    assert done.text == INSIDE.replace("sum", "math.fsum")


def test_an_import_that_is_there_is_not_needed() -> None:
    answer = f"```python\nimport os\n\n{SUM.replace('self.items', 'os.environ')}\n```"
    assert asked([answer])[0].imports == ()


def test_follow_ups_are_one_conversation() -> None:
    engine = FakeTalker(answers=["```python\ndef total(self):\n    return 0\n```"])
    edit(engine, replace(TOTAL, words="return 0", turns=(Turn("use sum()", INSIDE),)))
    said = [(m.role, m.content) for m in engine.conversations[0].messages]
    assert [role for role, _ in said] == ["system", "user", "assistant", "user"]
    assert "use sum()" in said[1][1]
    assert said[2][1] == f"```python\n{SUM}\n```"
    assert "return 0" in said[3][1]


def test_a_blank_line_is_filled_at_its_depth() -> None:
    text = CART.replace("        return total\n", "        return total\n\n    \n")
    at = text.split("\n").index("    ") + 1
    answer = "```python\ndef count(self):\n    return len(self.items)\n```"
    done, _ = asked([answer], Instruction("cart.py", text, at, at, "a method count"))
    assert done.text == "    def count(self):\n        return len(self.items)"


def test_lines_vanish_only_where_the_words_say_so() -> None:
    done, _ = asked(["```python\n```"], replace(TOTAL, words="remove this method"))
    assert done.text == "" and "def total" not in done.after and outside(TOTAL, done)
    with pytest.raises(NoEdit):
        asked(["```python\n```"])


def test_tabs_stay_tabs() -> None:
    text = "func total(a []int) int {\n\tt := 0\n\treturn t\n}\n"
    request = Instruction("a.go", text, 2, 3, "sum them up")
    answer = "```go\nt := 0\nfor _, x := range a {\n    t += x\n}\nreturn t\n```"
    done, _ = asked([answer], request)
    assert done.text == "\tt := 0\n\tfor _, x := range a {\n\t\tt += x\n\t}\n\treturn t"


def test_presets() -> None:
    said, _ = asked(["It adds the prices up."], PRESETS["explain"].applied(TOTAL))
    assert said.explanation == "It adds the prices up." and said.after == CART
    tests, prompts = asked(
        ["```python\nfrom shop.cart import Cart\n```"], PRESETS["tests"].applied(TOTAL)
    )
    assert tests.text == "from shop.cart import Cart\n" and tests.after == CART
    assert "import from `shop.cart`" in prompts[0]


def test_a_secret_that_a_server_sees_as_stars_comes_back() -> None:
    token = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    text = f'def client():\n    token = "{token}"\n    return Client(token)\n'
    request = Instruction("a.py", text, 1, 3, "return a Session")
    hidden = text.replace(token, "*" * len(token)).replace("Client(", "Session(")
    done, _ = asked([f"```python\n{hidden}```"], request)
    assert token in done.text and "Session(token)" in done.text
    with pytest.raises(NoEdit, match="stars over a secret"):
        asked([f"```python\n{hidden.replace('token = ', 'secret = ')}```"], request)


def test_the_preview_grows_with_the_answer() -> None:
    answer = f"Sure:\n```python\n{SUM}\n```\nDone."
    shown = [so_far(TOTAL, answer[:end]) for end in range(len(answer) + 1)]
    assert shown[0] == "" and shown[-1] == INSIDE
    assert all(INSIDE.startswith(text) or text.startswith(INSIDE) for text in shown)


@pytest.mark.parametrize(
    ("first", "last", "words", "why"),
    [
        (0, 3, "x", "from 1"),
        (5, 4, "x", "first"),
        (3, 99, "x", "ends at line 20"),
        (3, 3, " ", "empty"),
    ],
)
def test_requests_that_make_no_sense(first: int, last: int, words: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        asked(["x"], Instruction("a.py", CART, first, last, words))


def test_a_model_that_only_fills_holes_says_what_to_do() -> None:
    def refuse(request: GenerateRequest) -> str:
        raise Unsupported("this model only fills holes")

    with pytest.raises(NoConversation, match="model get coder-1.5b"):
        edit(FakeTalker(on_generate=refuse), TOTAL)


LINES = st.lists(
    st.sampled_from(
        [
            "x = 1",
            "    y = 2",
            "",
            "def f():",
            "    return 3",
            "# a note",
            "import os",
            "```",
            "…",
            "pass",
        ]
    ),
    min_size=1,
    max_size=12,
)


@given(LINES, LINES, st.data())
def test_nothing_outside_the_selection_changes(
    file: list[str], answer: list[str], data: st.DataObject
) -> None:
    first = data.draw(st.integers(1, len(file)))
    last = data.draw(st.integers(first, len(file)))
    text = "\n".join([*file, "end"])
    request = Instruction("a.py", text, first, last, "change it")
    try:
        done, _ = asked(["```python\n" + "\n".join(answer) + "\n```"], request)
    except NoEdit:
        return
    assert outside(request, done)
    assert done.after == "\n".join(
        [*file[: first - 1], *(done.text.split("\n") if done.text else []), *file[last:], "end"]
    )
