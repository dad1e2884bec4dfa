"""What a typist would get: every source of suggestions at the same places, as people type.

    python -m bench.suggest.typed gather --set fitted --places 150 --out fitted.jsonl
    python -m bench.suggest.typed gather --set measured --places 150 --out measured.jsonl
    python -m bench.suggest.typed report measured.jsonl [--fit fitted.jsonl]
    python -m bench.suggest.typed fit fitted.jsonl

Places are chosen by hash over the code of the packages (`packages.py`, no tables): at a line's
start, inside a word, and after ``.``, ``(``, ``=`` and ``return``. Each is asked twice: with the
rest of the file open, and with nothing after the cursor, as at the end of a file that grows. A
package is a workspace of its own, indexed as the language server does it; the file is open without
the rest of the line. `gather` can be stopped and goes on where it was.

What is reported of each source, and of all as the server joins them: exact rest of the line, first
token right, tokens of the longest correct beginning, edit similarity, what the gate shows, how much
of that is right, and characters kept of 1,000 (the longest correct beginning of what is shown, in
whole words; a suggestion that is wrong from its first word keeps nothing).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import tempfile
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from bench.suggest.packages import FITTED, MEASURED, sources
from bench.suggest.typed_fit import print_weights
from bench.suggest.typed_report import read, report

from clover_engine.api import CancelToken, Engine, InfillRequest, InfillResult
from clover_engine.statistics.cutter import cutter
from clover_engine.statistics.edits import FileStatistics
from clover_engine.statistics.grams import Grams
from clover_engine.worker.local import DEFAULT_CHECKPOINT, LocalEngine
from clover_lsp.completion.compute import Ask, Computer
from clover_lsp.context.confidence import confidence, features
from clover_lsp.context.room import Room, RoomOptions
from clover_lsp.context.types import Place
from clover_lsp.settings.settings import Settings
from clover_lsp.suggest.shape import Plan, plan
from clover_lsp.suggest.text import first_line

SETS = {"fitted": FITTED, "measured": MEASURED}
MODELS = ("nano", "coder-0.5b", "coder-1.5b")
_AFTER = {"dot": r"\.", "call": r"\(", "equals": r"[^=!<>]= ", "return": r"\breturn "}


@dataclass(frozen=True)
class Typed:
    """A place in a file, and what stood there."""

    package: str
    path: str
    kind: str
    prefix: str
    rest: str
    suffix: str


@dataclass
class Answer:
    """What one source says: its text as it would be shown, and what it knows of it."""

    source: str
    text: str
    features: tuple[float, ...]
    """A look-up's features (`context/confidence.py`), or (mean token probability,)."""
    sure: float
    """The probability that was shipped for it when it was gathered."""
    ms: float = 0.0


@dataclass
class Case:
    """One place in one variant with all answers."""

    key: str
    kind: str
    variant: str
    rest: str
    answers: list[Answer] = field(default_factory=list)
    counts: dict[str, tuple[float, int]] = field(default_factory=dict)
    """By text: what it adds to the line's log-probability by the counts of package and file, and
    how many tokens it adds."""


def places(packages: tuple[str, ...], count: int) -> list[Typed]:
    """The same places in every run, as many of each kind as hashes give."""
    found: list[tuple[str, str, str, int, str, int]] = []
    for package in packages:
        for name, text in sources(package):
            lines = text.replace("\r\n", "\n").splitlines(keepends=True)
            for at in range(3, len(lines) - 1):
                body = lines[at].strip()
                if len(body) < 4 or body.startswith(("#", '"', "'")):
                    continue
                key = hashlib.sha256(f"{name}:{at}:{body}".encode()).hexdigest()
                place = _cursor(lines[at].rstrip(), int(key, 16))
                if place is not None:
                    found.append((key, package, name, at, *place))
    chosen = sorted(found)[:count]
    texts = {name: text for package in packages for name, text in sources(package)}
    return [_typed(package, name, texts[name], *where) for _, package, name, *where in chosen]


def _cursor(line: str, key: int) -> tuple[str, int] | None:
    """(kind, column) by hash; None where the line has no such place."""
    indent = len(line) - len(line.lstrip())
    kinds = ("start", "word", *_AFTER)
    kind = kinds[key % len(kinds)]
    if kind == "start":
        cuts = [indent]
    elif kind == "word":
        cuts = [
            i for i in range(indent + 1, len(line)) if line[i - 1].isalnum() and line[i].isalnum()
        ]
    else:
        cuts = [m.end() for m in re.finditer(_AFTER[kind], line) if m.end() < len(line)]
    if not cuts:
        return None
    return kind, cuts[key // len(kinds) % len(cuts)]


def _typed(package: str, name: str, text: str, at: int, kind: str, cut: int) -> Typed:
    lines = text.replace("\r\n", "\n").splitlines(keepends=True)
    line = lines[at].rstrip()
    before, after = "".join(lines[:at]) + line[:cut], "\n" + "".join(lines[at + 1 :])
    return Typed(package, name, kind, before, line[cut:], after)


class Recorder:
    """An engine that remembers its last answer."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.last: InfillResult | None = None

    def infill(self, request: InfillRequest, cancel: CancelToken | None = None) -> InfillResult:
        self.last = self.engine.infill(request, cancel)
        return self.last

    def __getattr__(self, name: str) -> object:
        return getattr(self.engine, name)


class Workspace:
    """A package copied to a folder, indexed and counted."""

    def __init__(self, package: str, folder: Path, engines: dict[str, Recorder]) -> None:
        self.root = folder
        texts = dict(sources(package))
        for name, text in texts.items():
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
        self.texts = {name: text.replace("\r\n", "\n") for name, text in texts.items()}
        self.cutter = cutter()
        self.grams = Grams.of(self.cutter.cut(text) for text in self.texts.values())
        cache = folder / "cache"
        self.room = Room(RoomOptions(watch=False, git_diff=False, cache_dir=cache))
        self.room.set_roots([str(folder / package)])
        self.room.start()
        self.room.wait(120)
        base = Settings()
        every = replace(
            base.completion,
            min_confidence=0.0, deadline_ms=60_000, lookup=False, multi_line="never",
        )  # fmt: skip
        self.settings = replace(base, completion=every)
        self.engines = engines

    def ask(self, typed: Typed, variant: str) -> Case | None:
        """None where the server would not ask at such a place."""
        suffix = typed.suffix if variant == "open" else "\n"
        uri = (self.root / typed.path).as_uri()
        place = Place(uri, "python", typed.prefix, suffix)
        shape = plan(place, lines="single")
        if not isinstance(shape, Plan):
            return None
        self.room.opened(uri, "python", typed.prefix + suffix, 1)
        case = Case(key_of(typed, variant), typed.kind, variant, typed.rest)
        context = self.room.gather(place, self.settings.context.budget_tokens, CancelToken())
        for found in context.lookups[:4]:
            sure = confidence(found)
            text = first_line(found.text.replace("\r\n", "\n"))
            case.answers.append(Answer("look-up", text, features(found), sure))
        for source, engine in self.engines.items():
            begun = time.perf_counter()
            computer = Computer(self.settings, self.room, engine)  # type: ignore[arg-type]
            best = computer.find(Ask(place), CancelToken()).suggestions[:1]
            took = 1000 * (time.perf_counter() - begun)
            if best and engine.last is not None:
                own = (engine.last.choices[0].confidence,)
                text = best[0].text[best[0].replace_before :]
                case.answers.append(Answer(source, text, own, best[0].confidence, took))
        self.room.closed(uri)
        self._count(case, typed, suffix)
        return case

    def _count(self, case: Case, typed: Typed, suffix: str) -> None:
        """The counts know the package without this file, and the file as it is open."""
        now = typed.prefix + suffix
        at = len(typed.prefix)
        file = FileStatistics(now, self.cutter, self.grams, self.texts[typed.path])
        line = typed.prefix[typed.prefix.rfind("\n") + 1 :]
        for text in {answer.text for answer in case.answers}:
            tokens = len(self.cutter.cut(line + text)) - len(self.cutter.cut(line))
            gained = file.logprob(at, at, text) - file.logprob(at, at, "")
            case.counts[text] = (gained, tokens)


def key_of(typed: Typed, variant: str) -> str:
    where = f"{typed.path}:{typed.prefix.count(chr(10))}:{len(typed.prefix)}"
    return f"{where}:{variant}"


def gather(args: argparse.Namespace) -> None:
    out: Path = args.out
    known = {json.loads(line)["key"] for line in out.open()} if out.exists() else set()
    engines = {name: Recorder(_engine(name, args.threads)) for name in args.models}
    chosen = places(SETS[args.set], args.places)
    with tempfile.TemporaryDirectory() as folder, out.open("a") as file:
        for package in dict.fromkeys(typed.package for typed in chosen):
            mine = [typed for typed in chosen if typed.package == package]
            mine.sort(key=lambda typed: (typed.path, len(typed.prefix)))
            asked = [(t, v) for t in mine for v in ("open", "end") if key_of(t, v) not in known]
            if not asked:
                continue
            workspace = Workspace(package, Path(folder) / package, engines)
            for typed, variant in asked:
                if (case := workspace.ask(typed, variant)) is not None:
                    file.write(json.dumps(asdict(case)) + "\n")
                    file.flush()
            workspace.room.close()
    for engine in engines.values():
        engine.engine.close()


def _engine(name: str, threads: int) -> Engine:
    """The model by the name that CLOVER_CHECKPOINT takes; "nano": the shipped one."""
    engine = LocalEngine(DEFAULT_CHECKPOINT if name == "nano" else Path(name), threads)
    engine.health(start=True)
    return engine


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("gather")
    one.add_argument("--set", choices=tuple(SETS), required=True)
    one.add_argument("--places", type=int, default=150)
    one.add_argument("--models", nargs="+", choices=MODELS, default=["nano", "coder-0.5b"])
    one.add_argument("--threads", type=int, default=2)
    one.add_argument("--out", type=Path, required=True)
    other = commands.add_parser("report")
    other.add_argument("file", type=Path)
    other.add_argument("--fit", type=Path, help="fits the choice on these cases first")
    other.add_argument("--least", type=float, default=Settings().completion.min_confidence)
    last = commands.add_parser("fit", help="weights for gate.py and suggest/joint.py")
    last.add_argument("file", type=Path)
    args = parser.parse_args()
    if args.command == "gather":
        gather(args)
    elif args.command == "fit":
        print_weights(read(args.file))
    else:
        report(args.file, args.fit, args.least)


if __name__ == "__main__":
    main()
