"""Collects the training corpus: permissively licensed Python source, filtered and deduplicated.

    python -m clover_engine.train.corpus --out DIR [--limit-mb 80] [--packages FILE]
        [--wheels DIR] [--heldout DIR] [--no-download]

Sources are the running Python's standard library and packages by name: a wheel in ``--wheels``,
else the installed distribution, else one ``pip download``; only where the metadata names a
permissive licence. The packages in ``HELD_OUT`` measure the model, so they are refused in every
form: by name, by path, and, where ``--heldout`` has their wheels, by shared five-line windows.

Writes ``docs-train.jsonl`` and ``docs-val.jsonl`` (``{"package", "path", "text"}``, ordered by
the hash of the text) and ``manifest.json``. The same inputs give the same bytes.
"""

from __future__ import annotations

import argparse
import ast
import email.message
import fnmatch
import hashlib
import importlib.metadata
import json
import multiprocessing
import platform
import re
import subprocess
import sys
import sysconfig
import warnings
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

HELD_OUT: tuple[str, ...] = (
    "trio", "jedi", "flask", "requests", "click", "werkzeug", "jinja2", "pytest", "_pytest",
    "pydantic-settings", "flask-cors", "responses", "httpx", "rich", "attrs", "starlette",
    "quixbugs",
)  # fmt: skip
"""Names the quality measurements use. Never in a training corpus, in any version."""

MANIFEST = Path(__file__).with_name("manifest.json")  # names the default packages
STDLIB = "python-stdlib"
_TEXTBOOK = {"algorithms", "pygorithm", "thealgorithms", "the-algorithms"}
_SKIP_PARTS = """
    vendor vendored third_party thirdparty extern externals bundled test tests idle_test testdata
    test_data locale locales site-packages dist-packages pydoc_data attr"""
_SKIP_GLOBS = """
    encodings/cp* encodings/iso* encodings/mac_* encodings/koi* encodings/ptcp*
    lib2to3/pgen2/grammar* */lexers/_* faker/providers/* torch/testing/_internal/* *_pb2.py
    */conftest.py */test_*.py *_test.py */dummy_*_objects.py"""
_GENERATED = re.compile(
    r"(?i)do not (manually )?edit|auto[- ]?(matically )?generated|generated (by|from|using|with)"
    r"|this file (is|was) (machine )?generated"
)
_LICENCE_COMMENT = re.compile(r"(?i)copyright|licen[cs]e|spdx|all rights reserved|\bauthors?\b")
_DENIED = re.compile(
    r"\b([AL]?GPL|MPL|EUPL)(v?\d|\b)|(?i:(general|mozilla) public|creative commons)"
)
_ALLOWED_IDS = re.compile(
    r"(?i)MIT(-0|-CMU)?|0?BSD(-\w+)*|Apache-2\.0|PSF-2\.0|Python-2\.0(\.1)?|ISC|Zlib|CC0-1\.0"
    r"|Unlicense|BSL-1\.0|HPND|public domain"
)
_ALLOWED_TEXT = re.compile(
    r"(?i)\b(MIT|BSD|PSF|ISC)\b|apache (software )?licen[cs]e|apache[- ]2|public domain|unlicense"
    r"|python software foundation|redistribution and use in source and binary forms"
    r"|permission is hereby granted, free of charge"
)

_MIN_BYTES, _MAX_BYTES, _WINDOW = 300, 60_000, 5
_PACKAGE_SHARE, _NEAR_DUPLICATE, _NEAR_HELD_OUT = 0.08, 0.5, 0.05


@dataclass
class Source:
    """One package; ``origin`` is a wheel, a folder, or None for an installed distribution."""

    name: str
    version: str
    licence: str
    origin: Path | None


@dataclass
class Document:
    """One kept file."""

    package: str
    path: str
    text: str

    @cached_property
    def digest(self) -> str:
        """The hash that orders and splits the corpus."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def validation(self) -> bool:
        """About one document in a hundred."""
        return int(self.digest[:8], 16) % 100 == 0

    @cached_property
    def size(self) -> int:
        """Bytes of UTF-8."""
        return len(self.text.encode())


def normalise(name: str) -> str:
    """The comparable form of a distribution, folder or module name."""
    return re.sub(r"[-_.]+", "-", name).strip("-").lower()


_HELD_OUT_NAMES = frozenset(normalise(name) for name in HELD_OUT)


def licence_of(metadata: email.message.Message) -> str | None:
    """The permissive licence that a package's metadata names; None: refuse it."""
    expression = (metadata.get("License-Expression") or "").strip()
    if expression:
        plain = re.sub(r"\s+WITH\s+[\w.-]+", "", expression)
        for choice in [plain] if "(" in plain else plain.split(" OR "):
            terms = re.split(r"\s+(?:AND|OR)\s+", choice)
            if all(_ALLOWED_IDS.fullmatch(term.strip(" ()")) for term in terms):
                return expression
        return None
    classifiers = [
        str(c).split("::")[-1].strip()
        for c in metadata.get_all("Classifier") or []
        if str(c).startswith("License ::") and str(c).strip() != "License :: OSI Approved"
    ]
    text = (metadata.get("License") or "").strip()[:1200]
    if any(_DENIED.search(item) for item in (*classifiers, text)):
        return None
    for item in (*classifiers, text):
        if found := _ALLOWED_TEXT.search(item):
            return item if len(item) <= 60 else found.group(0)
    return None


def excluded_path(path: str) -> str | None:
    """Why a file is refused by its path, or None."""
    for part in path.removesuffix(".py").split("/"):
        if normalise(part) in _HELD_OUT_NAMES or "quixbugs" in part.lower():
            return "held-out path"
        if part.strip("_").lower() in _SKIP_PARTS.split():
            return "vendored or test path"
    if any(fnmatch.fnmatchcase(path.lower(), pattern) for pattern in _SKIP_GLOBS.split()):
        return "data or test file"
    return None


def strip_licence_header(text: str) -> str:
    """Drops the leading comment block when it is a licence or author notice."""
    lines = text.split("\n")
    start = end = 1 if lines[0].startswith("#!") else 0
    while end < len(lines) and (not lines[end].strip() or lines[end].startswith("#")):
        end += 1
    if not _LICENCE_COMMENT.search("\n".join(lines[start:end])):
        return text
    return "\n".join(lines[:start] + lines[end:])


def clean(path: str, raw: bytes) -> tuple[str, str]:
    """(text, "") of a file to keep, or ("", reason)."""
    if reason := excluded_path(path):
        return "", reason
    try:
        text = raw.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError:
        return "", "not UTF-8"
    if _DENIED.search(text[:4000]):
        return "", "licence text"
    text = strip_licence_header(text).strip("\n") + "\n"
    if not _MIN_BYTES <= len(text.encode()) <= _MAX_BYTES:
        return "", "size"
    if _GENERATED.search(text[:1500]):
        return "", "generated"
    if re.search(r"(?i)quixbugs|thealgorithms", text):
        return "", "benchmark text"
    if max(map(len, text.split("\n"))) > 400 or len(text) > 80 * (text.count("\n") + 1):
        return "", "long lines"
    try:
        with warnings.catch_warnings(action="ignore"):
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return "", "does not parse"
    return ("", "mostly literals") if mostly_literals(tree, text) else (text, "")


def mostly_literals(tree: ast.Module, text: str) -> bool:
    """Tables and prose: little of the file is logic."""
    strings = numbers = nodes = 0
    for node in ast.walk(tree):
        nodes += 1
        if isinstance(node, ast.Constant):
            if isinstance(node.value, (str, bytes)):
                strings += len(node.value)
                numbers += len(node.value) < 40
            elif isinstance(node.value, (int, float, complex)) and node.value is not True:
                numbers += 1
    return strings > 0.6 * len(text) or numbers > 0.4 * nodes


def windows(text: str) -> set[int]:
    """Hashes of the text's five-line windows, blank lines and indentation left out."""
    lines = [stripped for line in text.split("\n") if (stripped := line.strip())]
    joined = ("\n".join(lines[i : i + _WINDOW]) for i in range(max(1, len(lines) - _WINDOW + 1)))
    hashes = (hashlib.blake2b(window.encode(), digest_size=7) for window in joined)
    return {int.from_bytes(found.digest(), "little") for found in hashes}


def read_wheel(path: Path, suffix: str = ".py") -> Iterator[tuple[str, bytes]]:
    """(path, content) of a wheel's own files whose names end in ``suffix``."""
    with zipfile.ZipFile(path) as wheel:
        for name in sorted(wheel.namelist()):
            if name.endswith(suffix) and "_vendor/" not in name:
                yield name, wheel.read(name)


def read_source(source: Source) -> Iterator[tuple[str, bytes]]:
    """(path, content) of a source's Python files."""
    if source.origin is None:
        for file in importlib.metadata.files(source.name) or []:
            located = Path(str(file.locate()))
            if file.suffix == ".py" and ".." not in file.parts and located.is_file():
                yield file.as_posix(), located.read_bytes()
    elif source.origin.is_dir():
        for found in sorted(source.origin.rglob("*.py")):
            name = found.relative_to(source.origin).as_posix()
            if "site-packages/" not in name:
                yield name, found.read_bytes()
    else:
        yield from read_wheel(source.origin)


def _wheel(folder: Path | None, name: str, download: bool) -> Path | None:
    for path in sorted(folder.glob("*.whl")) if folder else ():
        if normalise(path.name.split("-")[0]) == normalise(name):
            return path
    if download and folder:
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(folder)]
        subprocess.run([*command, "--only-binary=:all:", name], check=False)
    return _wheel(folder, name, download=False) if download else None


def find_source(name: str, wheels: Path | None, download: bool) -> Source | str:
    """The source of one package, or why it is refused."""
    if normalise(name) in _HELD_OUT_NAMES | _TEXTBOOK:
        return "held out or textbook solutions"
    try:
        metadata: Any = importlib.metadata.metadata(name)
    except importlib.metadata.PackageNotFoundError:
        metadata = None
    wheel = _wheel(wheels, name, download and metadata is None)
    for _, content in read_wheel(wheel, ".dist-info/METADATA") if wheel else ():
        metadata = email.message_from_bytes(content)
    if metadata is None:
        return "not found"
    if licence := licence_of(metadata):
        return Source(normalise(name), str(metadata["Version"]), licence, wheel)
    return "licence"


def filtered(source: Source) -> tuple[Source, list[Document], Counter[str]]:
    """A source's clean files in hash order, and what was dropped for which reason."""
    kept, dropped = [], Counter[str]()
    for path, raw in read_source(source):
        text, reason = clean(path, raw)
        if reason:
            dropped[reason] += 1
        else:
            kept.append(Document(source.name, path, text))
    return source, sorted(kept, key=lambda d: (d.digest, d.path)), dropped


def deduplicate(
    documents: Iterable[Document], seen: set[int], held_out: set[int], budget: int
) -> tuple[list[Document], Counter[str]]:
    """Leaves out near duplicates of earlier and held-out files and what exceeds the budget."""
    kept, dropped = list[Document](), Counter[str]()
    for document in documents:
        own = windows(document.text) if document.size <= budget else set()
        if not own:
            dropped["package share"] += 1
        elif len(own & held_out) > _NEAR_HELD_OUT * len(own):
            dropped["near a held-out file"] += 1
        elif len(own & seen) > _NEAR_DUPLICATE * len(own):
            dropped["near duplicate"] += 1
        else:
            seen |= own
            budget -= document.size
            kept.append(document)
    return kept, dropped


def level(packages: Sequence[list[Document]], limit: int) -> list[list[Document]]:
    """Cuts the largest packages to one size, with which all together stay within ``limit``."""
    sizes = [sum(d.size for d in package) for package in packages]
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        fits = sum(min(size, middle) for size in sizes) <= limit
        low, high = (middle, high) if fits else (low, middle - 1)
    kept: list[list[Document]] = []
    for package in packages:
        room = low
        kept.append([])
        for document in package:
            if document.size <= room:
                room -= document.size
                kept[-1].append(document)
    return kept


def collect(
    sources: Sequence[Source], held_out: set[int], limit: int, processes: int = 2
) -> tuple[list[Document], Counter[str]]:
    """Every kept document in hash order; the standard library is spared the levelling."""
    seen, dropped = set[int](), Counter[str]()
    packages: dict[str, list[Document]] = {}
    budget = int(limit * _PACKAGE_SHARE) if len(sources) * _PACKAGE_SHARE > 1 else limit
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        for source, documents, reasons in pool.imap(filtered, sources):
            kept, doubles = deduplicate(documents, seen, held_out, budget)
            dropped += reasons + doubles
            print(f"{source.name:20} {sum(d.size for d in kept):>10,} bytes", flush=True)
            packages[source.name] = kept
    whole = packages.pop(STDLIB, [])
    levelled = level([*packages.values()], limit - sum(d.size for d in whole))
    dropped["package share"] += sum(map(len, packages.values())) - sum(map(len, levelled))
    chosen = whole + [document for kept in levelled for document in kept]
    return sorted(chosen, key=lambda d: (d.digest, d.path)), dropped


def manifest(documents: Sequence[Document], sources: Sequence[Source]) -> dict[str, Any]:
    """What went into the corpus."""
    packages: list[dict[str, Any]] = []
    for source in sources:
        about = {"package": source.name, "version": source.version, "licence": source.licence}
        if sizes := [d.size for d in documents if d.package == source.name]:
            packages.append(about | {"files": len(sizes), "bytes": sum(sizes)})
    validation = sum(d.validation for d in documents)
    totals = {"packages": len(packages), "files": len(documents)}
    totals |= {"bytes": sum(d.size for d in documents), "val_files": validation}
    return {"packages": packages, "totals": totals, "held_out": [*HELD_OUT]}


def default_packages() -> list[str]:
    """The package names of the committed manifest in its order, then the refused ones."""
    known = json.loads(MANIFEST.read_text())
    names = [str(entry["package"]) for entry in known["packages"]] + [*known["refused"]]
    return [name for name in names if name != STDLIB]


def main(argv: Sequence[str] | None = None) -> int:
    """Collects the corpus; see the module's docstring."""
    parser = argparse.ArgumentParser(description="collect the training corpus")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--limit-mb", type=float, default=80.0)
    parser.add_argument("--packages", type=Path, help="package names, one a line")
    parser.add_argument("--wheels", type=Path, help="a folder of wheels, also where downloads go")
    parser.add_argument("--heldout", type=Path, help="wheels of held-out packages, to compare")
    parser.add_argument("--no-download", action="store_true")
    args = parser.parse_args(argv)
    stdlib = Path(sysconfig.get_paths()["stdlib"])
    sources = [Source(STDLIB, platform.python_version(), "PSF-2.0", stdlib)]
    refused: dict[str, str] = {}
    for name in args.packages.read_text().split() if args.packages else default_packages():
        found = find_source(name, args.wheels, not args.no_download)
        if isinstance(found, Source):
            sources.append(found)
        else:
            refused[name] = found
    wheels = sorted(args.heldout.glob("*.whl")) if args.heldout else []
    texts = (raw.decode("utf-8", "replace") for wheel in wheels for _, raw in read_wheel(wheel))
    held_out = set[int]().union(*map(windows, texts))
    documents, dropped = collect(sources, held_out, int(args.limit_mb * 1e6))
    args.out.mkdir(parents=True, exist_ok=True)
    for split in ("train", "val"):
        with (args.out / f"docs-{split}.jsonl").open("w", encoding="utf-8") as handle:
            for d in documents:
                if d.validation == (split == "val"):
                    record = {"package": d.package, "path": d.path, "text": d.text}
                    handle.write(json.dumps(record, ensure_ascii=False) + "\n")
    used = {document.package for document in documents}
    refused |= {source.name: "no file left" for source in sources if source.name not in used}
    result = manifest(documents, sources)
    result |= {"refused": refused, "dropped_files": dict(sorted(dropped.items()))}
    (args.out / "manifest.json").write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps({"totals": result["totals"], "dropped": result["dropped_files"]}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
