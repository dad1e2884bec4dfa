"""`clover-code doctor --plan`: what is printed, and how bad input ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from clover_engine.worker.local import DEFAULT_CHECKPOINT

Command = Callable[..., Any]


def test_overview_of_cards(command: Command) -> None:
    ran = command("doctor", "--plan")
    assert ran.code == 0 and ran.err == ""
    rows = {line.split()[0].rstrip(","): line for line in ran.out.splitlines() if "int4" in line}
    assert "(18.7 GB)" in rows["int4"] and "%)" in rows["int4"]
    assert all(len(line) <= 100 for line in ran.out.splitlines())
    plans = command("doctor", "--plan", "--json").json["plans"]
    assert len(plans) == 15 and {p["bits"] for p in plans} == {16, 8, 4}


def test_a_card_that_holds_all(command: Command) -> None:
    arguments = ("doctor", "--plan", "--gpu-memory", "141GB")
    text, found = command(*arguments), command(*arguments, "--json").json
    assert text.code == 0 and found["fits"] and found["expert_share_on_card"] == 1
    count = found["sequences"]["32768"]
    assert f"--context-length 32768 --max-running-requests {count}" in text.out
    assert sum(found["weights_bytes"].values()) == found["resident_bytes"]


def test_a_small_card_names_the_cost_of_host_memory(command: Command) -> None:
    arguments = ("doctor", "--plan", "--gpu-memory", "16GB", "--bits", "4")
    text, found = command(*arguments), command(*arguments, "--json").json
    assert text.code == 0 and 0 < found["expert_share_on_card"] < 1
    ms = 1000 * found["fetched_bytes_per_token"] / 25e9
    assert f"{ms:.1f} ms" in text.out and "with 2 such cards" in text.out


def test_what_does_not_fit_says_what_would(command: Command) -> None:
    arguments = ("--plan", "--model", "qwen2.5-coder-7b", "--gpu-memory")
    ran = command("doctor", *arguments, "10GB")
    assert ran.code == 1 and "does not fit" in ran.out and "--bits 4" in ran.out
    ran = command("doctor", *arguments, "10GB", "--bits", "16", "--json")
    assert ran.code == 1 and not ran.json["fits"] and ran.json["missing_bytes"] > 0
    ran = command("doctor", *arguments, "4GB", "--bits", "4")
    assert ran.code == 1 and "use 4 such cards" in ran.out


def test_the_shipped_checkpoint_as_stored(command: Command) -> None:
    folder = str(DEFAULT_CHECKPOINT)
    ran = command("doctor", "--plan", "--model", folder, "--gpu-memory", "8GiB")
    assert ran.code == 0 and "as stored" in ran.out and f"serve --model {folder}" in ran.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--gpu-memory", "much"), "write it like 16GB"),
        (("--model", "no-such-model"), "clover-35b-a3b"),
        (("--gpu-memory", "80GB", "--tp", "3"), "use a number that divides 16"),
        (("--gpu-memory", "80GB", "--tp", "0"), "use a number that divides 16"),
        (("--gpu-memory", "80GB", "--context-length", "0"), "--context-length"),
    ],
)
def test_bad_input_is_one_line(command: Command, arguments: tuple[str, ...], message: str) -> None:
    ran = command("doctor", "--plan", *arguments)
    assert ran.code == 2 and message in ran.err and ran.err.count("\n") == 1
    assert ran.out == ""
