"""Failures that no edit of the program can mend: they are told at once instead of searched.

Packages that are not installed, names in the check's own words that do not exist, formatters, and
an installed copy of the package that is tested instead of the tree.
"""

from __future__ import annotations

import difflib
import importlib.machinery
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath

from clover_patcher.check.command import Check
from clover_patcher.check.fidelity import shortened
from clover_patcher.check.runners import Runner
from clover_patcher.repository.permission import is_frozen
from clover_patcher.types import Outcome, TestFailure

_NO_MODULE = re.compile(r"No module named '?([\w.]+)'?")
_CANNOT_IMPORT = "Failed to import test module"
_NO_ATTRIBUTE = re.compile(r"(?:module|type object) '[\w.]+' has no attribute '(\w+)'")
_UNKNOWN_WORD = (
    re.compile(r"No rule to make target ['`\"]?([^'`\"\n]+?)['`\"]?(?:, needed by .*)?\.\s"),
    re.compile(r"Don't know how to (?:build|make) (?:task )?['`\"]?([^'`\"\n(]+)"),
    re.compile(r"[Mm]issing script:? ['\"]?([\w:.-]+)"),
    re.compile(r"does not contain recipe [`'\"]?([\w-]+)"),
    re.compile(r"No idea what '([^'\n]+)' is"),
    re.compile(r"Unknown command:? ['\"`]?([\w:.-]+)"),
    re.compile(r"no such (?:sub)?command:? ['\"`]?([\w:.-]+)", re.IGNORECASE),
    re.compile(r"[Ss]essions? not found: ['\"]?([\w:.-]+)"),
    re.compile(r"unknown environment[s]? ['\"]?([\w:.-]+)", re.IGNORECASE),
    re.compile(r"environments? not found in configuration file:\n?\s*['\"]?([\w:.-]+)"),
    re.compile(r"[Tt]ask \"([^\"\n]+)\" does not exist"),
    re.compile(r"(?:Command not found|Failed to spawn|the command):? ['\"`]?([\w:./-]+)"),
    re.compile(r"can't open file ['\"]([^'\"\n]+)['\"]"),
    re.compile(r"(?:invalid choice|unrecognized arguments|No such option):? ['\"]?([^\s'\"]+)"),
)
_NO_MAKEFILE = re.compile(
    r"No targets specified and no makefile found|No makefile found|"
    r"no such file or directory, open '[^'\n]*package\.json'|could not find `Cargo\.toml`|"
    r"go\.mod file not found|cannot find main module"
)
_COPY = re.compile(r"/[^\s'\"]*/clover-fix-\w+/\d+/[^/\s'\"]+/")
"""Where the copy of the tree is, which nobody needs to know."""
_NEEDED = re.compile(r"No rule to make target .+, needed by .+\.\s+Stop")
_NO_PROGRAM = re.compile(
    r"^(?:\S+: (?:line )?\d+|sh): (?P<name>[\w./+-]+): (?:command )?not found\s*$"
    r"|^make(?:\[\d+\])?: (?P<made>[\w./+-]+): No such file or directory\s*$"
    r"|^(?:/usr/bin/)?env: [‘'\"]?(?P<env>[\w./+-]+)[’'\"]?: No such file or directory\s*$",
    re.MULTILINE,
)
_PRINTED = re.compile(
    r"^(?:E\s+)?(?:ModuleNotFoundError|ImportError): No module named '([\w.]+)'\s*$"
    r"(?!\s*During handling of the above)|^\S*python[\d.]*: No module named '?([\w.]+)'?",
    re.MULTILINE,
)
_SYNTAX = ("SyntaxError", "IndentationError", "TabError")
_NOT_PARSED = re.compile(r"(?P<why>[^\n]*) \((?P<file>[^()\n]+), line (?P<line>\d+)\)")
_NO_LIBRARY = re.compile(r"(\S+\.so[.\d]*): cannot open shared object file")
_NO_MARK = re.compile(r"'(\w+)' not found in `markers` configuration option")
_NO_FIXTURE = re.compile(r"fixture '(\w+)' not found|^\('(\w+)', <")
_WOULD_REFORMAT = re.compile(
    r"^(?:would reformat .+|Would reformat: .+|.+ would be reformatted.*|"
    r"ERROR: .+ Imports are incorrectly sorted.*|"
    r"(?:\[warn\] )?Code style issues (?:were )?found.*|.+: code should be clang-formatted.*)$",
    re.MULTILINE,
)
_FORMATTERS = {
    **dict.fromkeys(("black", "pyink", "blue", "prettier", "docformatter"), ("--check",)),
    "ruff": ("--check", "--diff"),
    "isort": ("--check", "-c", "--diff"),
    "yapf": ("--diff", "-d"),
    "autopep8": ("--diff", "-d"),
}
"""Options with which formatters change nothing and only complain."""
_SITE = re.compile(r"([\w./+ -]*/(?:site|dist)-packages)/(\w+)/[\w/]+\.py['\":]")
_CLOSE = 0.75


def why_hopeless(
    check: Check,
    outcome: Outcome,
    files: Sequence[str],
    runner: Runner,
    freed: Sequence[str] = (),
) -> str | None:
    """One sentence that names the reason and the next step; None where an edit may help.

    `files` are all paths of the snapshot; `freed` those tests that the user lets a patch change.
    """
    if outcome.status == "passed":
        return None
    reasons = (
        _formatter(check, outcome),
        _words(check, outcome),
        _packages(check, outcome, files),
        _broken_test(outcome, freed),
        _program(check, outcome),
        _installed(outcome, files, runner),
    )
    return next((reason for reason in reasons if reason), None)


# --- the check's own words ------------------------------------------------------------------


def _words(check: Check, outcome: Outcome) -> str | None:
    words = {part for word in check.words[1:] for part in (word, *word.split())}
    for failure in outcome.failures:
        if failure.nodeid.startswith("unittest.loader._FailedTest"):
            name = _misspelt(failure, words)
            if name:
                return f"the check cannot run: it names {name!r}, which does not exist; correct it"
    if any(failure.nodeid for failure in outcome.failures):
        return None
    if _NO_MAKEFILE.search(outcome.output):
        return f"the check cannot run: {_line(outcome, _NO_MAKEFILE)}; go to the folder that has it"
    if _NEEDED.search(outcome.output):
        return f"the check cannot run: {_line(outcome, _NEEDED)}; make that file, or its rule"
    for pattern in _UNKNOWN_WORD:
        match = pattern.search(outcome.output)
        if match and match[1].strip(" .`'\"") in words:
            said = shortened(_line(outcome, pattern))
            return f"the check cannot run: {said}; correct the command {check.display!r}"
    for name in _NO_MODULE.findall(outcome.output):
        if name in words:
            return f"the check cannot run: there is no module {name!r}; correct it or install it"
    return None


def _misspelt(failure: TestFailure, words: set[str]) -> str | None:
    """The name in the check's words that is behind a test that could not be loaded."""
    for name in _NO_MODULE.findall(failure.message):
        if any(word == name or word.startswith(f"{name}.") for word in words):
            return str(name)
    for name in _NO_ATTRIBUTE.findall(failure.message):
        match = next((word for word in words if word.split(".")[-1] == name), None)
        match = match or next((word for word in words if name in word.split(".")), None)
        if match and _CANNOT_IMPORT not in failure.message:
            return match
    return None


def _program(check: Check, outcome: Outcome) -> str | None:
    if any(failure.nodeid for failure in outcome.failures) or check.kind != "command":
        return None
    kinds = {failure.kind for failure in outcome.failures}
    match = _NO_PROGRAM.search(outcome.output)
    if match is None or not kinds & {"exit 127", "exit 2", "exit 126"}:
        return None
    name = match["name"] or match["made"] or match["env"]
    return f"the check cannot run: `{name}` was not found: install it, or correct the path"


def _line(outcome: Outcome, pattern: re.Pattern[str]) -> str:
    """The line of the output in which the pattern is."""
    match = pattern.search(outcome.output)
    if match is None:
        return ""
    begin = outcome.output.rfind("\n", 0, match.start()) + 1
    said = outcome.output[begin : match.end()].strip(" .\n")
    return shortened(_COPY.sub("", said))


# --- tests that cannot run --------------------------------------------------------------------


def _broken_test(outcome: Outcome, freed: Sequence[str]) -> str | None:
    """A test's file that does not parse, or asks for a fixture that nobody brings."""
    for failure in outcome.failures:
        path = failure.nodeid.partition("::")[0]
        if not path.endswith(".py") or not is_frozen(path) or path in freed:
            continue
        place = _NOT_PARSED.search(failure.message)
        if failure.kind in _SYNTAX and place and path.endswith(PurePosixPath(place["file"]).name):
            return (
                f"{path}:{place['line']} does not parse ({place['why']}), and tests are left "
                f"alone: correct it, or let a patch change it with --allow {path}"
            )
        if mark := _NO_MARK.search(failure.message):
            return (
                f"{path} uses the marker {mark[1]!r}, which does not exist: correct or declare it"
            )
        if failure.kind == "FixtureLookupError" and (
            fixture := _NO_FIXTURE.search(failure.message) or _NO_FIXTURE.search(outcome.output)
        ):
            name = fixture[1] or fixture[2]
            return (
                f"{failure.nodeid} asks for the fixture {name!r}, which does not exist: "
                "correct its name, or install the plugin that brings it"
            )
    return None


# --- packages ---------------------------------------------------------------------------------


def _packages(check: Check, outcome: Outcome, files: Sequence[str]) -> str | None:
    known = set(_importable(files))
    for failure in outcome.failures:
        if library := _NO_LIBRARY.search(failure.message):
            return f"the shared library {library[1]} is missing on this machine: install it"
        for name in _not_found(failure, outcome.output):
            top = name.split(".")[0]
            if top in known or _misspelt_import(check, failure, top, known):
                continue
            where = failure.frames[-1].path if failure.frames else failure.nodeid.split("::")[0]
            python = check.interpreter or "the check's Python"
            return (
                f"{where or 'the check'} imports {name!r}, which is not installed for {python} and "
                "not in the repository: install it there"
            )
    return None


def _not_found(failure: TestFailure, output: str) -> list[str]:
    """Names of modules that a failure says are missing."""
    if failure.kind == "ModuleNotFoundError" or _CANNOT_IMPORT in failure.message:
        return [str(name) for name in _NO_MODULE.findall(failure.message)]
    if failure.kind == "ImportError":
        return [str(name) for name in _NO_MODULE.findall(failure.message)]
    if failure.nodeid:
        return []
    return [match[1] or match[2] for match in _PRINTED.finditer(output)]


def _misspelt_import(check: Check, failure: TestFailure, name: str, known: set[str]) -> bool:
    """Whether the import may be in a file that is patched, of a name close to one that exists."""
    if failure.frames and is_frozen(failure.frames[-1].path):
        return False
    if not failure.frames and failure.nodeid:
        return False
    names = known | set(sys.stdlib_module_names) | _installed_names(check)
    return name in names or bool(difflib.get_close_matches(name, names, 1, _CLOSE))


def _installed_names(check: Check) -> set[str]:
    """Names that the check's interpreter can import."""
    if check.interpreter is None:
        return set()
    code = "import pkgutil; print(*(m.name for m in pkgutil.iter_modules()))"
    with suppress(OSError, subprocess.SubprocessError):
        command = [check.interpreter, "-I", "-c", code]
        said = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
        return set(said.stdout.split())
    return set()


def _importable(files: Sequence[str]) -> Iterator[str]:
    """Names that could be imported from files of the repository, wherever they stand."""
    suffixes = tuple(importlib.machinery.all_suffixes())
    for name in files:
        path = PurePosixPath(name)
        yield from path.parts[:-1]
        if name.endswith((*suffixes, ".pyx", ".pyi")):
            yield path.name.split(".")[0]


def _installed(outcome: Outcome, files: Sequence[str], runner: Runner) -> str | None:
    """An installed copy of one of the repository's own packages that the failing code is in."""
    tops = set(_packages_of(files))
    found = [one for one in runner.installed_twins if one[0] in tops]
    texts = [outcome.output, *(failure.message for failure in outcome.failures)]
    found += [(top, site) for text in texts for site, top in _SITE.findall(text) if top in tops]
    for top, site in found:
        return (
            f"the check tests the installed copy of `{top}` in {Path(site).as_posix()}, not this "
            "tree: install the tree with `pip install -e .`, or uninstall the copy"
        )
    return None


def _packages_of(files: Sequence[str]) -> Iterator[str]:
    """Top packages of the repository, at its top or in a folder that is no package itself."""
    packages = {str(PurePosixPath(name).parent) for name in files if name.endswith("/__init__.py")}
    for package in packages:
        folder, _, name = package.rpartition("/")
        if folder not in packages and "/" not in folder and not is_frozen(f"{package}/x.py"):
            yield name


# --- formatters -------------------------------------------------------------------------------


def _formatter(check: Check, outcome: Outcome) -> str | None:
    if check.kind != "command":
        return None
    for at, name in enumerate(PurePosixPath(word).name for word in check.argv[:4]):
        rest = check.argv[at + 1 :]
        options = _FORMATTERS.get(name, ())
        found = next((word for word in rest if word.startswith(options)), None) if options else None
        tool = f"{name} format" if name == "ruff" else name
        if found and (name != "ruff" or rest[0] == "format"):
            return (
                f"`{tool} {found}` says how files are laid out: run `{tool}` without it, "
                "that needs no search"
            )
    if match := _WOULD_REFORMAT.search(outcome.output):
        return f"a formatter fails ({shortened(match[0])}): run it, it needs no search"
    return None
