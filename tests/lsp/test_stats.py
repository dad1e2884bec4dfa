"""Local statistics: what is counted, by several servers at once, through crashes."""

from __future__ import annotations

import multiprocessing
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from clover_lsp.completion.offers import Offer, Offers
from clover_lsp.stats import Event, Recorder, percentile, read_events, report, summarise


def test_events_come_back(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    recorder.record(Event("shown", "a-1", "python", "model", 12, 80.5))
    (found,) = read_events(tmp_path)
    assert (found.kind, found.id, found.chars, found.ms) == ("shown", "a-1", 12, 80.5)
    assert abs(found.time - time.time()) < 60


def test_torn_and_foreign_lines_are_skipped(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    recorder.record(Event("shown", "a-1", "python", "model", 12))
    (path,) = tmp_path.glob("*.jsonl")
    path.write_bytes(path.read_bytes() + b'\xff{"kind": "sho\n[1]\n{"kind": "x", "id": "y"}\n')
    recorder.record(Event("accepted", "a-1", "python", "model", 12))
    assert [event.kind for event in read_events(tmp_path)] == ["shown", "accepted"]


def write_many(folder: Path, name: str) -> None:
    recorder = Recorder(folder)
    for number in range(300):
        recorder.record(Event("shown", f"{name}-{number}", "python", "model", number))


def test_two_servers_at_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    with context.Pool(2) as pool:
        pool.starmap(write_many, [(tmp_path, "a"), (tmp_path, "b")])
    assert summarise(read_events(tmp_path)).shown == 600


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    recorder = Recorder(tmp_path / "file" / "state")
    recorder.record(Event("shown", "a-1", "python", "model", 12))
    assert list(read_events(tmp_path)) == []


def test_old_months_go(tmp_path: Path) -> None:
    for month in range(1, 13):
        (tmp_path / f"suggestions-2020-{month:02}.jsonl").write_text("")
        (tmp_path / f"suggestions-2021-{month:02}.jsonl").write_text("")
    Recorder(tmp_path).record(Event("shown", "a-1", "python", "model", 12))
    names = sorted(path.name for path in tmp_path.iterdir())
    assert len(names) == 13 and names[0] == "suggestions-2021-01.jsonl"


def test_summary() -> None:
    events = [Event("shown", str(n), "python", "model", 10, float(n)) for n in range(1, 101)]
    events += [Event("accepted", "1", "python", "model", 10)]
    events += [Event("partial", "2", "python", "model", chars) for chars in (3, 7, 5)]
    events += [Event("partial", "1", "python", "model", 4)]
    found = summarise(events)
    assert (found.shown, found.accepted, found.partially_accepted) == (100, 1, 1)
    assert (found.rate, found.accepted_chars) == (0.02, 17)
    assert (found.latency_ms_p50, found.latency_ms_p95) == (50.5, 95.0)
    assert summarise([]).rate is None


@pytest.mark.parametrize(("values", "share", "wanted"), [([1.0], 0.95, 1.0), ([1, 2], 0.5, 1)])
def test_percentile(values: list[float], share: float, wanted: float) -> None:
    assert percentile(values, share) == wanted


def test_a_suggestion_counts_once_while_it_is_typed_through() -> None:
    events: list[Event] = []
    offers = Offers()
    offers.record_with(events.append)
    for text in ("value", "alue", "lue"):
        offers.offered(Offer("s-1", "u", "python", "model", text, 5.0))
    offers.accepted("s-1")
    offers.accepted("s-1")
    offers.accepted("unknown")
    assert [(e.kind, e.chars) for e in events] == [("shown", 5), ("accepted", 5)]


def test_clients_that_say_what_they_show() -> None:
    events: list[Event] = []
    offers = Offers()
    offers.record_with(events.append)
    offers.shown({"insertText": "nothing of ours"})
    offers.offered(Offer("s-1", "u", "python", "model", "a😀", 5.0))
    assert events == []
    item = {"insertText": "a😀"}
    offers.shown(item)
    offers.partly_accepted(item, 1)
    offers.partly_accepted(item, 99)
    offers.partly_accepted("junk", 1)
    assert [(e.kind, e.chars) for e in events] == [("shown", 3), ("partial", 1), ("partial", 3)]


def test_through_the_server(servers: Any) -> None:
    editor = servers(settings={"completion": {"debounceMs": 0}})
    editor.script.set(targets=["x = 1 + 2"])
    uri = editor.open("untitled:a.py", "x = ")
    (item,) = editor.suggest(uri)
    editor.accept(uri, item)
    folder = editor.folder / "state"
    until = sys.modules["lsp_client"].until
    until(lambda: {e.kind for e in read_events(folder)} == {"shown", "accepted"})
    assert editor.stop() == 0
    found = report(folder)
    assert found["all"]["accepted_chars"] == len("1 + 2")
    assert set(found["by_language"]) == {"python"} and set(found["by_origin"]) == {"model"}
    (path,) = folder.glob("suggestions-*.jsonl")
    assert "1 + 2" not in path.read_text()


def test_switched_off(servers: Any) -> None:
    editor = servers(settings={"statistics": False, "completion": {"debounceMs": 0}})
    editor.script.set(targets=["x = 1 + 2"])
    uri = editor.open("untitled:a.py", "x = ")
    editor.accept(uri, editor.suggest(uri)[0])
    assert editor.stop() == 0
    assert not list((editor.folder / "state").glob("suggestions-*"))
