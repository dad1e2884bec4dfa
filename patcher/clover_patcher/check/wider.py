"""What lies around a check that runs some tests: the rest of their files, then the whole suite."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from clover_patcher.check.command import Check

_WITH_VALUE = frozenset(
    {"-k", "-m", "-p", "-c", "-o", "-n", "-W", "-r", "--rootdir", "--confcutdir", "--ignore"}
    | {"--deselect", "--maxfail", "--tb", "--cov", "--cov-report", "--durations", "--basetemp"}
    | {"--import-mode", "--junitxml", "--log-level", "--timeout", "--dist", "--override-ini"}
)
_NARROW = frozenset({"-k", "-m", "--deselect"})
_STOPS = frozenset({"-x", "--exitfirst", "--lf", "--last-failed", "--ff", "--sw", "--stepwise"})


def wider_checks(check: Check, folder: Path) -> list[tuple[str, Check]]:
    """Checks that run more tests than `check` does in `folder`, each with what it covers.

    Empty where the check is whole already, or is no set of tests.
    """
    if check.kind == "pytest":
        found = _wider_pytest(check.arguments, folder)
    elif check.kind == "python" and check.arguments[:2] == ("-m", "unittest"):
        found = _wider_unittest(check.arguments, folder)
    else:
        return []
    return [
        (what, replace(check, arguments=arguments, argv=_argv(check, arguments)))
        for what, arguments in found
        if arguments != check.arguments
    ]


def _argv(check: Check, arguments: tuple[str, ...]) -> tuple[str, ...]:
    before = len(check.argv) - len(check.arguments)
    return (*check.argv[:before], *arguments)


def _wider_pytest(words: Sequence[str], folder: Path) -> list[tuple[str, tuple[str, ...]]]:
    """pytest's arguments without what narrows: to whole files, then without files."""
    options: list[str] = []
    places: list[str] = []
    narrow = False
    words = list(words)
    while words:
        word = words.pop(0)
        name = word.partition("=")[0]
        valued = name in _WITH_VALUE and "=" not in word
        values = [words.pop(0)] if valued and words else []
        if name in _NARROW or (name[:2] in _NARROW and not name.startswith("--")):
            narrow = True
        elif name in _STOPS or name == "--maxfail":
            continue
        elif not word.startswith("-") and (folder / word.split("::")[0]).exists():
            places.append(word)
        else:
            options += [word, *values]
    files = list(dict.fromkeys(place.split("::")[0] for place in places))
    wider = []
    if files and (narrow or files != places):
        wider.append(("the rest of " + ", ".join(files), (*options, *files)))
    if files or narrow:
        wider.append(("the whole suite", tuple(options)))
    return wider


def _wider_unittest(words: Sequence[str], folder: Path) -> list[tuple[str, tuple[str, ...]]]:
    """unittest's arguments with modules instead of tests, then discovery."""
    rest = [word for word in words[2:] if word not in ("-f", "--failfast")]
    if not rest or rest[0] == "discover":
        return []
    modules: list[str] = []
    options: list[str] = []
    while rest:
        word = rest.pop(0)
        if word == "-k" and rest:
            rest.pop(0)
        elif word.startswith("-"):
            options.append(word)
        else:
            modules.append(_module(word, folder))
    files = list(dict.fromkeys(modules))
    start = tuple(words[:2])
    found = [("the rest of " + ", ".join(files), (*start, *options, *files))] if files else []
    return [*found, ("the whole suite", (*start, "discover", *options))]


def _module(name: str, folder: Path) -> str:
    """The module of a test that unittest names with dots."""
    if name.endswith(".py"):
        return name
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        if (folder.joinpath(*parts[:length])).with_suffix(".py").is_file():
            return ".".join(parts[:length])
    return name
