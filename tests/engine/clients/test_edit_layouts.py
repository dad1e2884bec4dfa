"""What models of the next edit are sent, what is made of their answers, and over real HTTP."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clover_engine.api import CancelToken
from clover_engine.choice.edits import PAUSE_S, EditServer
from clover_engine.choice.wanted import WantedEdits
from clover_engine.clients.edit_layouts import LAYOUTS, EditLayout, Region, Scene, layout_for
from clover_engine.clients.edit_model import EditModel
from clover_engine.errors import RequestError
from clover_engine.testing.answers import FakeModel
from clover_engine.testing.faults import Fault
from clover_engine.testing.server import FakeServer

FORMER = "def area(width, height):\n    return width * height\n\n\nprint(area(2, 3))\n"
TEXT = FORMER.replace("def area(width, height):", "def area(w, height):")
SCENE = Scene("shapes.py", TEXT, TEXT.index("(w,") + 2, (FORMER,))
WANTED = TEXT.replace("return width", "return w")


def spoken(layout: EditLayout, region: Region, new: str) -> str:
    """The answer with which a model of that layout writes the region anew."""
    if layout.name == "zeta":
        return f"<|editable_region_start|>\n{new}\n<|editable_region_end|>\n```"
    if layout.name == "zeta-2":
        return f"{new}>>>>>>> UPDATED\n"
    if layout.name == "zeta-2.1":
        marks = layout.prompt(SCENE, region).count("<|marker_")
        last = max(2, marks)
        return f"<|marker_1|>{new}<|marker_{last}|>"
    return f"{new}<|file_sep|>other"


@pytest.mark.parametrize("name", LAYOUTS)
def test_an_edit_comes_back_as_the_lines_that_differ(name: str) -> None:
    layout = LAYOUTS[name]
    region = layout.region(SCENE)
    prompt = layout.prompt(SCENE, region)
    assert "-def area(width, height):" in prompt or "original:\ndef area(width" in prompt
    found = layout.edit(spoken(layout, region, WANTED[region.start :]), region)
    assert found is not None
    start, end, new = found
    assert new == "    return w * height"
    assert TEXT[:start] + new + TEXT[end:] == WANTED
    assert len(layout.ends) <= 4


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_same_text_is_no_edit(name: str) -> None:
    layout = LAYOUTS[name]
    region = layout.region(SCENE)
    assert layout.edit(spoken(layout, region, region.text), region) is None
    assert layout.edit("", region) is None
    nothing = {"zeta-2": "NO_EDITS>>>>>>> UPDATED", "zeta-2.1": "<|marker_1|>x<|marker_1|>"}
    assert layout.edit(nothing.get(name, "\n"), region) is None


@pytest.mark.parametrize("name", LAYOUTS)
@given(data=st.data())
def test_no_mark_is_ever_shown_and_none_is_asked_about(name: str, data: st.DataObject) -> None:
    layout = LAYOUTS[name]
    piece = st.sampled_from([*layout.marks, *layout.ends, "x = 1\n", "\n", "<|", "a"])
    answer = "".join(data.draw(st.lists(piece, max_size=8)))
    found = layout.edit(answer, layout.region(SCENE))
    assert found is None or not any(mark in found[2] for mark in layout.marks)
    marked = Scene("a.py", f"x = '{data.draw(st.sampled_from(layout.marks))}'\n", 0)
    assert not layout.may_ask(marked)


LINES = st.lists(st.sampled_from(["", "a = 1", "    b", "é"]), max_size=60).map("\n".join)


@pytest.mark.parametrize("name", LAYOUTS)
@given(text=LINES, former=LINES, data=st.data())
def test_any_document_has_a_region_of_whole_lines(
    name: str, text: str, former: str, data: st.DataObject
) -> None:
    scene = Scene("a.py", text, data.draw(st.integers(0, len(text))), (former,))
    layout = LAYOUTS[name]
    region = layout.region(scene)
    end = region.start + len(region.text)
    assert text[region.start : end] == region.text and 0 <= region.cursor <= len(region.text)
    assert region.start == 0 or text[region.start - 1] == "\n"
    assert end == len(text) or text[end - 1] == "\n"
    assert layout.prompt(scene, region)


def test_layouts_by_the_model_s_name() -> None:
    for model, name in (
        ("zed-industries_zeta-2.1-Q4_K_M.gguf", "zeta-2.1"),
        ("zeta-2", "zeta-2"),
        ("zed-industries/zeta", "zeta"),
        ("sweep-next-edit-1.5b", "sweep"),
    ):
        assert layout_for("", model).name == name
    assert layout_for("sweep", "any").name == "sweep"
    with pytest.raises(RequestError, match=r"zeta, zeta-2, zeta-2\.1, sweep"):
        layout_for("", "qwen2.5-coder")


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer(FakeModel([WANTED])) as started:
        yield started


def test_over_http(server: FakeServer) -> None:
    model = EditModel(server.url, model="sweep-next-edit-0.5b")
    found = model.next_edit(SCENE)
    assert found is not None and TEXT[: found[0]] + found[2] + TEXT[found[1] :] == WANTED
    (body,) = server.bodies("/v1/completions")
    assert body["model"] == "sweep-next-edit-0.5b" and len(body["stop"]) <= 4
    server.model.texts = ["x = 1\n" * 2000]
    assert model.next_edit(SCENE) is None, "half an answer would remove the rest"
    model.close()


def test_secrets_stay_here_and_a_server_that_is_away_is_left_alone(server: FakeServer) -> None:
    now = 0.0
    edits = EditServer(WantedEdits(server.url, layout="sweep"), lambda: now)
    cancel = CancelToken()
    secret = Scene("a.py", "x = 1\n", 3, ("key = 'AKIAIOSFODNN7EXAMPLE'\n",))
    assert edits.next_edit(secret, cancel, 5) is None and not server.bodies("/v1/completions")
    server.faults.append(Fault("status", path="/v1/completions", status=500))
    assert edits.next_edit(SCENE, cancel, 5) is None
    asked = len(server.bodies("/v1/completions"))
    assert edits.next_edit(SCENE, cancel, 5) is None
    assert len(server.bodies("/v1/completions")) == asked
    now = PAUSE_S
    assert edits.next_edit(SCENE, cancel, 5) is not None
    edits.close()
