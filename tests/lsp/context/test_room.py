"""The room as the server uses it: real folders, real indexing processes."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from clover_engine.api import CancelToken
from clover_engine.privacy.ignore import IgnoreRules
from clover_lsp.context.room import Room
from clover_lsp.context.store import store_path
from clover_lsp.context.types import ContextRoom, Edit, Place, Problem
from clover_lsp.context.walk import walk

from .conftest import WAIT_S, gather

SHOP = {
    "shop/prices.py": (
        "VAT = 0.19\n\n\ndef gross_price(net: float, vat: float = VAT) -> float:\n"
        '    """With tax."""\n    return net * (1 + vat)\n\n\nclass Basket:\n    owner: str\n\n'
        "    def add_item(self, name: str, count: int = 1) -> None:\n        pass\n"
    ),
    "shop/orders.py": (
        "from shop.prices import Basket, gross_price\n\n\ndef total(items):\n"
        "    return sum(gross_price(i.net) for i in items)\n"
    ),
    "shop/__init__.py": "",
    "other/noise.py": "def unrelated_thing():\n    return 1\n",
}
CART = (
    "from shop.prices import Basket, gross_price\n\n\ndef checkout(items):\n"
    "    basket = Basket()\n    price = gross_price(|\n"
)


def texts(room: Room, path: Path, text: str, kind: str, budget: int = 2000) -> dict[str, str]:
    found = gather(room, path, text, budget).snippets
    return {s.path: s.text for s in found if s.kind == kind}


def eventually(check: Callable[[], bool]) -> bool:
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        if check():
            return True
        time.sleep(0.02)
    return False


def test_imported_definitions_come_first(
    write: Callable[..., Path], open_room: Callable[..., Room]
) -> None:
    root = write(SHOP)
    room: ContextRoom = open_room(root)
    assert isinstance(room, Room)
    (first, *rest) = gather(room, root / "shop/cart.py", CART).snippets
    assert first.kind == "definition" and first.path == "shop/prices.py"
    assert "def gross_price(net: float, vat: float = VAT) -> float:" in first.text
    assert "class Basket:\n    owner: str\n    def add_item(self" in first.text
    assert "return net" not in first.text and "imported from shop.prices" in first.reason
    assert {s.path for s in rest} == {"shop/orders.py"}, "a usage, and no noise"
    assert room.status().state == "ready" and room.status().files == 4
    assert room.status().bytes == sum(map(len, SHOP.values()))


def test_no_document_is_its_own_context(
    write: Callable[..., Path], open_room: Callable[..., Room]
) -> None:
    """Complaint 6: the file itself stood in the prompt twice."""
    root = write({**SHOP, "shop/cart.py": CART.replace("|", "1)")})
    room = open_room(root)
    found = gather(room, root / "shop/cart.py", CART)
    assert "shop/cart.py" not in {s.path for s in found.snippets}
    assert len({s.path for s in found.snippets}) == len(found.snippets)


def test_untitled_documents_have_their_text_and_the_open_files(
    open_room: Callable[..., Room],
) -> None:
    """Complaint 30: an unsaved file gave an empty prompt."""
    room = open_room()
    room.opened("untitled:Untitled-1", "python", "def helper_one(x):\n    return x\n", 1)
    uri = "untitled:Untitled-2"
    room.opened(uri, "python", "value = helper_one(", 1)
    found = room.gather(Place(uri, "python", "value = helper_one(", "\n"), 500)
    assert found.place.prefix == "value = helper_one(" and not found.withheld
    assert [s.path for s in found.snippets] == ["untitled:Untitled-1"]
    assert room.status().detail == "no folder is open"


def test_untitled_documents_belong_to_the_first_folder(
    write: Callable[..., Path], open_room: Callable[..., Room]
) -> None:
    """Complaint 30 again: in a workspace, an unsaved file had no context."""
    room = open_room(write(SHOP))
    uri, text = "untitled:Untitled-1", CART.partition("|")[0]
    room.opened(uri, "python", text, 1)
    assert room.wait(WAIT_S)
    (first, *_) = room.gather(Place(uri, "python", text, ""), 500).snippets
    assert first.path == "shop/prices.py" and first.kind == "definition"


def test_definitions_of_open_documents_are_the_editors(
    write: Callable[..., Path], open_room: Callable[..., Room]
) -> None:
    root = write(SHOP)
    room = open_room(root)
    unsaved = SHOP["shop/prices.py"].replace("vat: float = VAT", "vat: float, rounded: bool")
    room.opened((root / "shop/prices.py").as_uri(), "python", unsaved, 1)
    found = texts(room, root / "shop/cart.py", CART, "definition")
    assert "rounded: bool" in found["shop/prices.py"] and "owner: str" in found["shop/prices.py"]


def test_other_cells_of_a_notebook(open_room: Callable[..., Room], tmp_path: Path) -> None:
    """Complaint 31: other cells of the notebook were missing."""
    room = open_room(tmp_path)
    base = f"vscode-notebook-cell:{tmp_path}/a.ipynb#"
    room.opened(base + "W0", "python", "import pandas as pd\n", 1)
    room.opened(base + "W1", "python", "frame = pd.DataFrame(rows)\n", 1)
    room.opened(base + "W2", "python", "", 1)
    (cells,) = room.gather(Place(base + "W2", "python", "frame.", ""), 500).snippets
    assert cells.text == "import pandas as pd\nframe = pd.DataFrame(rows)"
    (cells,) = room.gather(Place(base + "W0", "python", "", ""), 500).snippets
    assert cells.text == "frame = pd.DataFrame(rows)"


def test_secret_and_ignored_documents_are_withheld(
    write: Callable[..., Path], open_room: Callable[..., Room]
) -> None:
    root = write({".env": "TOKEN=1", ".gitignore": "made/\n", "made/a.py": "x = 1\n", "ok.py": ""})
    (root / "link.py").symlink_to(".env")
    room = open_room(root, exclude=("private.py",))
    for name in (".env", "link.py", "made/a.py", "private.py", "poetry.lock"):
        uri = (root / name).as_uri()
        room.opened(uri, "python", "token = abcdefgh\n", 1)
        room.changed(uri, "token = abcdefghi\n", 2, [Edit(16, 16, "i")])
        found = room.gather(Place(uri, "python", "token = abcdefghi\n", "tail"), 500)
        assert found.withheld and not found.place.prefix and not found.place.suffix
        assert not found.snippets and not found.lookups
    assert room.recent_edits(9) == []
    found = gather(room, root / "ok.py", "token = |\n")
    assert not found.snippets and not found.lookups and not found.withheld


def test_secrets_inside_files_are_redacted_everywhere(
    write: Callable[..., Path], open_room: Callable[..., Room]
) -> None:
    key = "ghp_" + "a1B2" * 9
    root = write(
        {
            "client.py": f"def connect_now(host):\n    open_line(host)\n    send('{key}')\n",
            "settings.py": f"service_token = '{key}'\nservice_host = 'x'\n",
        }
    )
    room = open_room(root)
    opened = f"def connect_now(host):\n    open_line(host)\n    post('{key}')\n"
    room.opened((root / "open.py").as_uri(), "python", opened, 1)
    text = (
        f"from settings import service_token, service_host\nK = '{key}'\n"
        "def connect_now(host):\n    open_line(host)\n    |\n"
        f"connect_now(service_host)\nL = '{key}'\n"
    )
    found = gather(room, root / "main.py", text)
    everything = repr(found)
    assert key not in everything and "a1B2a1B2" not in everything
    assert len(found.place.prefix) == text.index("|") and found.place.suffix.endswith("**'\n")
    assert found.lookups and "*" * 40 in found.lookups[0].text
    assert any("*" * 40 in s.text for s in found.snippets)


def test_recent_edits_elsewhere_and_deletions(
    write: Callable[..., Path], open_room: Callable[..., Room]
) -> None:
    root = write(SHOP)
    room = open_room(root)
    uri = (root / "other/noise.py").as_uri()
    old = SHOP["other/noise.py"]
    room.opened(uri, "python", old, 1)
    new = old.replace("unrelated_thing():", "renamed_thing(flag):")
    room.changed(uri, new, 2, [])
    assert room.recent_edits(5) == [(uri, "def unrelated_thing():", "def renamed_thing(flag):")]
    found = texts(room, root / "shop/cart.py", CART, "edit")
    assert found == {"other/noise.py": "def renamed_thing(flag):"}
    assert not texts(room, root / "other/noise.py", new + "|", "edit"), "not of the document itself"


def test_diagnostics_near_the_cursor(
    write: Callable[..., Path], open_room: Callable[..., Room]
) -> None:
    root = write(SHOP)
    room = open_room(root)
    path = root / "shop/cart.py"
    room.diagnosed(
        path.as_uri(),
        [
            Problem(5, "missing\n  argument  net", "error", "mypy"),
            Problem(500, "far away", "error"),
            Problem(4, "a hint", "hint"),
        ],
    )
    found = gather(room, path, CART).snippets
    assert [s.text for s in found if s.kind == "diagnostic"] == [
        "# error in line 6: missing argument net"
    ]
    room.closed(path.as_uri())
    assert not [s for s in gather(room, path, CART).snippets if s.kind == "diagnostic"]


def test_uncommitted_changes_of_other_files(
    make_repo: Callable[..., Path], open_room: Callable[..., Room]
) -> None:
    root = make_repo({**SHOP, ".gitignore": ""})
    changed = SHOP["other/noise.py"] + "\n\ndef price_list(basket):\n    return basket.items\n"
    (root / "other/noise.py").write_text(changed)
    room = open_room(root, git_diff=True, index=False)
    found = texts(room, root / "shop/cart.py", CART + "    basket", "diff")
    assert "def price_list(basket):" in found["other/noise.py"]


def test_budget_holds_and_the_answer_is_the_same_each_time(
    write: Callable[..., Path], open_room: Callable[..., Room]
) -> None:
    root = write(SHOP)
    room = open_room(root)
    first = gather(room, root / "shop/cart.py", CART, 60)
    assert sum(len(s.text) for s in first.snippets) < 60 * 3
    prefix, _, suffix = CART.partition("|")
    place = Place((root / "shop/cart.py").as_uri(), "python", prefix, suffix)
    assert all(room.gather(place, 60).snippets == first.snippets for _ in range(5))
    assert not room.gather(place, 0).snippets
    cancelled = CancelToken()
    cancelled.cancel()
    assert not room.gather(place, 60, cancelled).snippets


def test_lookups_from_the_repository_and_from_open_files(
    write: Callable[..., Path], open_room: Callable[..., Room]
) -> None:
    root = write({"a.py": "def f(s):\n    s.begin()\n    s.commit_now()\n", "b.py": "x = 1\n"})
    room = open_room(root)
    text = "def g(s):\n    s.begin()\n    |"
    (found,) = gather(room, root / "c.py", text).lookups
    assert (found.text, found.path) == ("s.commit_now()", "a.py")
    room.opened((root / "b.py").as_uri(), "python", "def h(s):\n    s.begin()\n    s.roll()\n", 1)
    assert {f.path for f in gather(room, root / "c.py", text).lookups} == {"a.py", "b.py"}
    room.opened((root / "a.py").as_uri(), "python", "", 1)
    (found,) = gather(room, root / "c.py", text).lookups
    assert found.path == "b.py", "an open document counts as the editor has it, not as on disk"


def test_lookups_have_the_line_ends_of_the_document(
    write: Callable[..., Path], open_room: Callable[..., Room]
) -> None:
    root = write({"a.py": "def f(s):\r\n    s.begin()\r\n    s.one()\r\n    s.two()\r\n"})
    room = open_room(root)
    (found,) = gather(room, root / "b.py", "def g(s):\r\n    s.begin()\r\n    |\r\n").lookups
    assert found.text == "s.one()\r\n    s.two()"
    (found,) = gather(room, root / "c.py", "def g(s):\n    s.begin()\n    |\n").lookups
    assert found.text == "s.one()\n    s.two()"


def test_saved_changed_and_deleted_files(
    write: Callable[..., Path], open_room: Callable[..., Room]
) -> None:
    root = write(SHOP)
    room = open_room(root)
    path = root / "shop/prices.py"
    path.write_text(SHOP["shop/prices.py"].replace("vat: float", "rate: float"))
    room.saved(path.as_uri())
    assert room.wait(WAIT_S)
    assert "rate: float" in texts(room, root / "shop/cart.py", CART, "definition")["shop/prices.py"]
    path.unlink()
    room.files_changed([str(path)])
    assert room.wait(WAIT_S)
    assert not texts(room, root / "shop/cart.py", CART, "definition")
    (root / ".cloverignore").write_text("shop/\n")
    room.files_changed([str(root / ".cloverignore")])
    assert room.wait(WAIT_S)
    assert room.status().files == 2 and room.withheld(path.as_uri())


def test_files_that_change_outside_of_the_editor(
    write: Callable[..., Path], open_room: Callable[..., Room]
) -> None:
    root = write({**SHOP, "node_modules/x/i.js": ""})
    before = inotify_watches() if sys.platform == "linux" else 0
    room = open_room(root, watch=True)
    if sys.platform == "linux":
        assert eventually(lambda: inotify_watches() >= before + 2), "the watch's thread begins"
    (root / "shop/prices.py").write_text("def gross_price(brand_new):\n    return 1\n")
    (root / "fresh" / "deep").mkdir(parents=True)
    (root / "fresh" / "deep" / "late.py").write_text("def late_comer():\n    pass\n")
    (root / "node_modules/x/late.js").write_text("function lateToo() {}\n")

    def seen() -> bool:
        found = texts(room, root / "shop/cart.py", CART, "definition")
        return "brand_new" in found.get("shop/prices.py", "") and room.status().files == 5

    assert eventually(seen)
    (root / "fresh" / "deep" / "later.py").write_text("def later():\n    pass\n")
    assert eventually(lambda: room.status().files == 6), "a folder that came later is watched too"


def test_several_roots_and_files_outside_of_them(
    write: Callable[..., Path], open_room: Callable[..., Room]
) -> None:
    one, two = write(SHOP, "one"), write({"util.py": "def helper_two(a): pass\n"}, "two")
    room = open_room(one, two, one / "shop")
    assert room.status().files == 5, "a root within another is that other one"
    assert texts(room, two / "main.py", "from util import helper_two\nhelper_two(|", "definition")
    outside = gather(room, one.parent / "outside.py", CART)
    assert not outside.withheld and not [s for s in outside.snippets if s.kind == "definition"]
    room.set_roots([str(two)])
    assert room.wait(WAIT_S) and room.status().files == 1


def test_two_roots_with_the_same_relative_path(
    write: Callable[..., Path], open_room: Callable[..., Room]
) -> None:
    """Opening B's `pkg/util.py` changed what was known of A's at 2846628."""
    one = write({"pkg/util.py": "def helper(of_one): pass\n", "pkg/__init__.py": ""}, "one")
    two = write({"pkg/util.py": "def helper(of_two): pass\n", "pkg/__init__.py": ""}, "two")
    room = open_room(one, two)
    other = two / "pkg/util.py"
    room.opened(other.as_uri(), "python", other.read_text(), 1)
    assert room.wait(WAIT_S)
    cart = "from pkg.util import helper\nhelper(|"
    found = texts(room, one / "main.py", cart, "definition")
    assert "of_one" in found["pkg/util.py"]
    found = texts(room, two / "main.py", cart, "definition")
    assert "of_two" in found["pkg/util.py"] and "of_one" not in found["pkg/util.py"]
    own = one / "pkg/util.py"
    room.opened(own.as_uri(), "python", "def helper(of_one, changed): pass\n", 1)
    assert room.wait(WAIT_S)
    found = texts(room, one / "main.py", cart, "definition")
    assert "of_one, changed" in found["pkg/util.py"]


def inotify_watches() -> int:
    """How many folders this process watches."""
    found = 0
    for file in Path("/proc/self/fdinfo").iterdir():
        with contextlib.suppress(OSError):
            found += file.read_text().count("inotify wd:")
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="counts the watches of Linux")
def test_new_folders_that_are_ignored_are_not_watched(
    write: Callable[..., Path], open_room: Callable[..., Room]
) -> None:
    root = write({"a.py": "", ".gitignore": "data/\n*.out/\n"})
    before = inotify_watches()
    room = open_room(root, watch=True)
    assert eventually(lambda: inotify_watches() == before + 1)
    for number in range(50):
        (root / "data" / f"run_{number}").mkdir(parents=True)
        (root / f"{number}.out" / "deep").mkdir(parents=True)
    (root / "src").mkdir()
    (root / "src" / "late.py").write_text("def late(): pass\n")
    assert eventually(lambda: room.status().files == 2)
    assert eventually(lambda: inotify_watches() >= before + 2)
    (root / "src" / "later.py").write_text("def later(): pass\n")
    assert eventually(lambda: room.status().files == 3)
    assert inotify_watches() == before + 2


def test_a_folder_with_too_many_files_is_indexed_in_part_and_says_so(
    write: Callable[..., Path], open_room: Callable[..., Room], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A home folder that is opened: files near its top, and a message."""
    files = {f"deep/er/est/f{n}.py": "x = 1\n" for n in range(40)}
    root = write({**files, "top.py": "def near_the_top(): pass\n"})
    monkeypatch.setenv("CLOVER_MAX_INDEXED_FILES", "10")
    room = open_room(root)
    assert room.status().files == 10
    assert "only 10 files are indexed" in room.status().limited
    assert texts(room, root / "b.py", "from top import near_the_top\nnear_the_top(|", "definition")


def test_the_walk_ends_where_there_are_too_many_folders(
    write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write({f"f{n}/a.py": "" for n in range(30)})
    monkeypatch.setattr("clover_lsp.context.walk.MAX_WALKED", 11)
    assert len(list(walk(IgnoreRules(root, ())))) == 10


def test_two_rooms_on_one_folder_and_a_warm_start(
    write: Callable[..., Path], open_room: Callable[..., Room]
) -> None:
    root = write(SHOP)
    first, second = open_room(root), open_room(root)
    for room in (first, second):
        assert texts(room, root / "shop/cart.py", CART, "definition")
    (root / "shop/prices.py").write_text("def gross_price(other): pass\n")
    for room in (first, second):
        room.files_changed([str(root / "shop/prices.py")])
        assert room.wait(WAIT_S)
        assert "other" in texts(room, root / "shop/cart.py", CART, "definition")["shop/prices.py"]
    first.close()
    assert texts(second, root / "shop/cart.py", CART, "definition")


def test_an_index_that_is_damaged_while_in_use(
    write: Callable[..., Path], open_room: Callable[..., Room], cache: Path
) -> None:
    root = write(SHOP)
    room = open_room(root)
    store = store_path(root)
    assert store.is_relative_to(cache)
    with sqlite3.connect(store) as db:
        db.execute("DROP TABLE symbols")
    db.close()
    prefix, _, suffix = CART.partition("|")
    place = Place((root / "shop/cart.py").as_uri(), "python", prefix, suffix)
    assert not [s for s in room.gather(place, 2000).snippets if s.kind == "definition"]

    def healed() -> bool:
        return any(s.kind == "definition" for s in room.gather(place, 2000).snippets)

    assert eventually(healed)


def test_a_cache_that_cannot_be_written(
    write: Callable[..., Path], open_room: Callable[..., Room], cache: Path
) -> None:
    cache.write_text("a file where the folder should be")
    root = write(SHOP)
    room = open_room(root)
    assert eventually(lambda: room.status().state == "failed") and room.status().detail
    assert gather(room, root / "shop/cart.py", CART).place.prefix


def test_without_index(
    write: Callable[..., Path], open_room: Callable[..., Room], cache: Path
) -> None:
    root = write({**SHOP, ".env": ""})
    room = open_room(root, index=False)
    assert room.status().state == "off" and not cache.exists()
    room.opened((root / "shop/prices.py").as_uri(), "python", SHOP["shop/prices.py"], 1)
    assert [s.kind for s in gather(room, root / "shop/cart.py", CART).snippets] == ["open"]
    assert room.withheld((root / ".env").as_uri())


def test_too_many_folders_to_watch(
    write: Callable[..., Path], open_room: Callable[..., Room], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Complaint 28: a million inotify watches."""
    monkeypatch.setattr("clover_lsp.context.watch.MAX_FOLDERS", 1)
    monkeypatch.setattr("clover_lsp.context.index.POLL_S", 0.0)
    root = write(SHOP)
    room = open_room(root, watch=True)
    assert "more than 1 folders" in room.status().detail
    (root / "shop/late.py").write_text("def late(): pass\n")
    room.focused((root / "shop/cart.py").as_uri())
    assert room.wait(WAIT_S) and room.status().files == 5, "looked for on focus"


def test_closing_ends_the_indexing_process(
    write: Callable[..., Path], open_room: Callable[..., Room]
) -> None:
    """Complaint 41: orphaned processes."""
    room = open_room(write(SHOP))
    (index,) = room._roots.indexes
    process = index._process._process
    assert process is not None and process.poll() is None
    room.close()
    assert process.poll() is not None
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)
