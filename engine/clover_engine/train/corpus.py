"""Collects the training corpus: permissively licensed Python source, filtered and deduplicated.

    python -m clover_engine.train.corpus --out DIR [--limit-mb 80] [--packages FILE]
        [--wheels DIR] [--heldout DIR] [--no-download]

Sources are the standard library of the running Python and packages by name: an archive (wheel or
sdist) in ``--wheels``, else the installed distribution, else one ``pip download``. A package is
taken only when its metadata names a permissive licence. The packages in ``HELD_OUT`` measure the
model, so they are refused in every form: by name, as a vendored copy (by path), and, where
``--heldout`` holds their archives, by shared five-line windows.

Writes ``docs-train.jsonl`` and ``docs-val.jsonl`` (``{"package", "path", "text"}``, ordered by
the hash of the text) and ``manifest.json``. The same inputs give the same bytes.
"""

from __future__ import annotations

import argparse
import ast
import email
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
import tarfile
import warnings
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

HELD_OUT: tuple[str, ...] = (
    "trio", "jedi", "flask", "requests", "click", "werkzeug", "jinja2", "pytest", "_pytest",
    "pydantic-settings", "flask-cors", "responses", "httpx", "rich", "attrs", "starlette",
    "quixbugs",
)  # fmt: skip
"""Names the quality measurements use. Never in a training corpus, in any version."""

PACKAGES: tuple[str, ...] = (
    "torch", "numpy", "scipy", "sympy", "mpmath", "networkx", "pandas", "scikit-learn",
    "statsmodels", "scikit-image", "astropy", "xarray", "dask", "distributed", "jax", "keras",
    "transformers", "nltk", "bokeh", "matplotlib", "fonttools", "shapely", "trimesh", "pyglet",
    "more-itertools", "toolz", "sortedcontainers", "boltons", "sqlalchemy", "alembic", "peewee",
    "sqlglot", "tinydb", "whoosh", "pymongo", "redis", "celery", "kombu", "django", "twisted",
    "tornado", "aiohttp", "cherrypy", "bottle", "fastapi", "urllib3", "scrapy", "boto3", "pydantic",
    "marshmallow", "cattrs", "jsonschema", "construct", "typer", "textual", "prompt-toolkit",
    "ipython", "traitlets", "nbformat", "mypy", "black", "parso", "lark", "ply", "pyparsing",
    "pygments", "docutils", "sphinx", "markdown", "mistune", "cython", "coverage", "setuptools",
    "pip", "hatchling", "virtualenv", "packaging", "platformdirs", "filelock", "tomlkit", "fsspec",
    "babel", "arrow", "pendulum", "python-dateutil", "loguru", "structlog", "faker", "dnspython",
    "rdflib", "openpyxl", "pypdf", "beautifulsoup4", "pygls",
)  # fmt: skip

_TEXTBOOK = frozenset({"algorithms", "pygorithm", "thealgorithms", "the-algorithms"})
_SKIP_PARTS = frozenset({
    "vendor", "vendored", "third_party", "thirdparty", "extern", "externals", "bundled",
    "test", "tests", "idle_test", "testdata", "test_data", "locale", "locales", "site-packages",
    "dist-packages", "pydoc_data", "attr", "pip._vendor", "node_modules",
})  # fmt: skip
_SKIP_GLOBS = (
    "encodings/cp*", "encodings/iso*", "encodings/mac_*", "encodings/koi*", "encodings/ptcp*",
    "lib2to3/pgen2/grammar*", "*/lexers/_*", "faker/providers/*", "torch/testing/_internal/*",
    "*_pb2.py", "*/conftest.py", "*/test_*.py", "*_test.py", "*/dummy_*_objects.py",
)  # fmt: skip
_GENERATED = re.compile(
    r"do not (?:manually )?edit|auto[- ]?(?:matically )?generated|generated (?:by|from|using|with)"
    r"|this file (?:is|was) (?:machine )?generated", re.I)  # fmt: skip
_LICENCE_COMMENT = re.compile(r"copyright|licen[cs]e|spdx|all rights reserved|\bauthors?\b", re.I)
_DENIED = re.compile(r"\bA?L?GPL|general public|\bMPL|mozilla|eupl|cddl|epl|proprietary", re.I)
_ALLOWED_IDS = re.compile(
    r"MIT(?:-0|-CMU)?|0?BSD(?:-\w+)*|Apache-2\.0|PSF-2\.0|Python-2\.0(?:\.1)?|ISC|Zlib|CC0-1\.0"
    r"|Unlicense|BSL-1\.0|HPND|public domain", re.I)  # fmt: skip
_ALLOWED_TEXT = re.compile(
    r"\bMIT\b|\bBSD\b|apache(?: software)? licen[cs]e|apache[- ]2|\bPSF\b|python software foundation"
    r"|\bISC\b|public domain|unlicense|redistribution and use in source and binary forms"
    r"|permission is hereby granted, free of charge", re.I)  # fmt: skip

_MIN_BYTES, _MAX_BYTES, _WINDOW = 300, 60_000, 5
_PACKAGE_SHARE, _NEAR_DUPLICATE, _NEAR_HELD_OUT = 0.08, 0.5, 0.25


@dataclass
class Source:
    """One package: its metadata and its candidate files, read lazily."""

    name: str
    version: str
    licence: str
    origin: Path | None
    """An archive, a folder of modules, or None for an installed distribution."""


@dataclass
class Document:
    """One kept file."""

    package: str
    path: str
    text: str
    digest: str = field(default="")

    def __post_init__(self) -> None:
        self.digest = hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def size(self) -> int:
        """Bytes of UTF-8."""
        return len(self.text.encode())


def normalise(name: str) -> str:
    """The comparable form of a distribution, folder or module name."""
    return re.sub(r"[-_.]+", "-", name).strip("-").lower()


_HELD_OUT_NAMES = frozenset(normalise(name) for name in HELD_OUT)


def refused_name(name: str) -> str | None:
    """Why a package of this name may not be used at all, or None."""
    if normalise(name) in _HELD_OUT_NAMES:
        return "held out"
    if normalise(name) in _TEXTBOOK:
        return "textbook solutions"
    return None


def licence_of(metadata: email.message.Message) -> str | None:
    """The permissive licence that a package's metadata names; None: refuse it."""
    expression = (metadata.get("License-Expression") or "").strip()
    if expression:
        for choice in re.split(r"\s+OR\s+", expression):
            terms = re.split(r"\s+AND\s+", re.sub(r"\s+WITH\s+[\w.-]+", "", choice))
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
        found = _ALLOWED_TEXT.search(item)
        if found:
            return item if len(item) <= 60 else found.group(0)
    return None


def excluded_path(path: str) -> str | None:
    """Why a file is refused by its path, or None."""
    parts = path.removesuffix(".py").split("/")
    for part in parts:
        if normalise(part) in _HELD_OUT_NAMES or "quixbugs" in part.lower():
            return "held-out path"
        if part.strip("_").lower() in _SKIP_PARTS:
            return "vendored or test path"
    if any(fnmatch.fnmatchcase(path.lower(), pattern) for pattern in _SKIP_GLOBS):
        return "data or test file"
    return None


def strip_licence_header(text: str) -> str:
    """Drops the leading comment block when it is a licence or author notice."""
    lines = text.split("\n")
    start = 1 if lines[0].startswith("#!") else 0
    end = start
    while end < len(lines) and (not lines[end].strip() or lines[end].startswith("#")):
        end += 1
    if not _LICENCE_COMMENT.search("\n".join(lines[start:end])):
        return text
    return "\n".join(lines[:start] + lines[end:])


def clean(path: str, raw: bytes) -> tuple[str, str]:
    """(text, "") of a file to keep, or ("", reason)."""
    if reason := excluded_path(path):
        return "", reason
    if not _MIN_BYTES <= len(raw) <= 2 * _MAX_BYTES:
        return "", "size"
    try:
        text = raw.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError:
        return "", "not UTF-8"
    text = strip_licence_header(text).strip("\n") + "\n"
    if not _MIN_BYTES <= len(text.encode()) <= _MAX_BYTES:
        return "", "size"
    if _GENERATED.search(text[:1500]):
        return "", "generated"
    lowered = text.lower()
    if "quixbugs" in lowered or "thealgorithms" in lowered:
        return "", "benchmark text"
    lines = text.split("\n")
    if max(map(len, lines)) > 400 or len(text) / len(lines) > 80:
        return "", "long lines"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
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
    return {
        int.from_bytes(hashlib.blake2b(window.encode(), digest_size=7).digest(), "little")
        for window in joined
    }


def read_archive(path: Path, suffix: str = ".py") -> Iterator[tuple[str, bytes]]:
    """(path, content) of an archive's files; an sdist's top folder and src/ are left out."""
    if path.suffix in {".whl", ".zip"}:
        with zipfile.ZipFile(path) as archive:
            for name in sorted(archive.namelist()):
                if name.endswith(suffix):
                    yield name, archive.read(name)
        return
    with tarfile.open(path) as tar:
        for member in sorted(tar.getmembers(), key=lambda m: m.name):
            if member.isfile() and member.name.endswith(suffix):
                handle = tar.extractfile(member)
                if handle is not None:
                    name = member.name.partition("/")[2].removeprefix("src/")
                    yield name, handle.read()


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
            if not name.startswith(("test/", "site-packages/", "ensurepip/_bundled/")):
                yield name, found.read_bytes()
    else:
        yield from read_archive(source.origin)


def _archive(folder: Path | None, name: str) -> Path | None:
    for path in sorted(folder.iterdir()) if folder and folder.is_dir() else ():
        stem = path.name.split("-")[0] if path.suffix == ".whl" else path.name.rpartition("-")[0]
        if normalise(stem) == normalise(name):
            return path
    return None


def _download(name: str, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(folder)]
    subprocess.run([*command, "--only-binary=:all:", name], check=False)


def find_source(name: str, wheels: Path | None, download: bool) -> Source | str:
    """The source of one package, or why it is refused."""
    if reason := refused_name(name):
        return reason
    archive = _archive(wheels, name)
    metadata: email.message.Message
    if archive is None:
        try:
            # a mapping with Message's get and get_all
            metadata = importlib.metadata.metadata(name)  # type: ignore[assignment]
        except importlib.metadata.PackageNotFoundError:
            if not (download and wheels):
                return "not found"
            _download(name, wheels)
            return find_source(name, wheels, download=False)
    else:
        suffix = ".dist-info/METADATA" if archive.suffix == ".whl" else "PKG-INFO"
        found = dict(read_archive(archive, suffix))
        if not found:
            return "no metadata"
        shortest = min(found, key=len)
        metadata = email.message_from_bytes(found[shortest])
    licence = licence_of(metadata)
    if licence is None:
        return "licence"
    return Source(normalise(name), str(metadata["Version"]), licence, archive)


def standard_library() -> Source:
    """The running Python's own library."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    return Source("python-stdlib", platform.python_version(), "PSF-2.0", folder)


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
    documents: Iterable[Document], seen: set[int], held_out: set[int], budget: int,
    dropped: Counter[str],
) -> list[Document]:  # fmt: skip
    """Drops near duplicates of earlier and of held-out files; stops at ``budget`` bytes."""
    kept: list[Document] = []
    for document in documents:
        if document.size > budget:
            dropped["package share"] += 1
            continue
        own = windows(document.text)
        if len(own & held_out) > _NEAR_HELD_OUT * len(own):
            dropped["near a held-out file"] += 1
        elif len(own & seen) > _NEAR_DUPLICATE * len(own):
            dropped["near duplicate"] += 1
        else:
            seen |= own
            budget -= document.size
            kept.append(document)
    return kept


def share_cap(sizes: Sequence[int], limit: int) -> int:
    """The largest per-package size that keeps the total and every package's share in bounds."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        total = sum(min(size, middle) for size in sizes)
        largest = min(middle, max(sizes))
        fits = total <= limit and (largest <= _PACKAGE_SHARE * total or len(sizes) < 13)
        low, high = (middle, high) if fits else (low, middle - 1)
    return low


def collect(
    sources: Sequence[Source], held_out: set[int], limit: int, processes: int = 2
) -> tuple[list[Document], Counter[str]]:
    """Every kept document, ordered by the hash of its text."""
    seen: set[int] = set()
    dropped: Counter[str] = Counter()
    packages: list[list[Document]] = []
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        for source, documents, reasons in pool.imap(filtered, sources):
            dropped += reasons
            budget = int(limit * _PACKAGE_SHARE) if len(sources) >= 13 else limit
            kept = deduplicate(documents, seen, held_out, budget, dropped)
            print(f"{source.name:20} {sum(d.size for d in kept):>10,} bytes", flush=True)
            if kept:
                packages.append(kept)
    if not packages:
        return [], dropped
    cap = share_cap([sum(d.size for d in kept) for kept in packages], limit)
    chosen: list[Document] = []
    for kept in packages:
        room = cap
        for document in kept:
            if document.size <= room:
                room -= document.size
                chosen.append(document)
            else:
                dropped["package share"] += 1
    return sorted(chosen, key=lambda d: (d.digest, d.path)), dropped


def is_validation(document: Document) -> bool:
    """About one document in a hundred, by the hash of its text."""
    return int(document.digest[:8], 16) % 100 == 0


def manifest(
    documents: Sequence[Document], sources: Sequence[Source], refused: dict[str, str],
    dropped: Counter[str],
) -> dict[str, object]:  # fmt: skip
    """What went into the corpus and what was kept out."""
    files, sizes = Counter[str](), Counter[str]()
    for document in documents:
        files[document.package] += 1
        sizes[document.package] += document.size
    packages = [
        {"package": s.name, "version": s.version, "licence": s.licence,
         "files": files[s.name], "bytes": sizes[s.name]}
        for s in sorted(sources, key=lambda s: s.name) if files[s.name]
    ]  # fmt: skip
    validation = sum(is_validation(d) for d in documents)
    return {
        "packages": packages,
        "totals": {"packages": len(packages), "files": len(documents),
                   "bytes": sum(sizes.values()), "train_files": len(documents) - validation,
                   "val_files": validation},
        "refused": dict(sorted(refused.items())),
        "dropped_files": dict(sorted(dropped.items())),
        "held_out": list(HELD_OUT),
    }  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """Collects the corpus; see the module's docstring."""
    parser = argparse.ArgumentParser(description="collect the training corpus")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--limit-mb", type=float, default=80.0)
    parser.add_argument("--packages", type=Path, help="package names, one a line")
    parser.add_argument("--wheels", type=Path, help="archives, also where downloads go")
    parser.add_argument("--heldout", type=Path, help="archives of held-out packages, to compare")
    parser.add_argument("--no-download", action="store_true")
    args = parser.parse_args(argv)
    names = args.packages.read_text().split() if args.packages else PACKAGES
    sources, refused = [standard_library()], dict[str, str]()
    for name in names:
        found = find_source(name, args.wheels, not args.no_download)
        if isinstance(found, Source):
            sources.append(found)
        else:
            refused[name] = found
            print(f"{name}: refused ({found})", flush=True)
    held_out: set[int] = set()
    for archive in sorted(args.heldout.iterdir()) if args.heldout else ():
        for _, raw in read_archive(archive):
            held_out |= windows(raw.decode("utf-8", "replace"))
    documents, dropped = collect(sources, held_out, int(args.limit_mb * 1e6))
    args.out.mkdir(parents=True, exist_ok=True)
    for split in ("train", "val"):
        with (args.out / f"docs-{split}.jsonl").open("w", encoding="utf-8") as handle:
            for d in documents:
                if is_validation(d) == (split == "val"):
                    record = {"package": d.package, "path": d.path, "text": d.text}
                    handle.write(json.dumps(record, ensure_ascii=False) + "\n")
    result = manifest(documents, sources, refused, dropped)
    (args.out / "manifest.json").write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps({"totals": result["totals"], "dropped": result["dropped_files"]}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
