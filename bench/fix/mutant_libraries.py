"""The libraries of the mutation bench: pinned source distributions that bring their tests.

None of them is in the training corpus (`engine/clover_engine/train/manifest.json`; `pinned`
refuses one that is). They are downloaded into a folder that the caller names, never committed.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

MANIFEST = Path(__file__).resolve().parents[2] / "engine/clover_engine/train/manifest.json"
_KEPT = ("", ".py", ".pyi", ".json", ".txt", ".sql", ".toml", ".cfg", ".md", ".rst")


@dataclass(frozen=True, slots=True)
class Library:
    """One pinned source distribution."""

    name: str
    version: str
    sha256: str
    sources: tuple[str, ...]
    """Files, or folders of files, that mutants change."""
    tests: tuple[str, ...]
    """What pytest is given."""
    root: str = "."
    """The folder that is put on the import path."""
    half: str = "fit"
    """"fit": figures may be used to tune the patcher; "report": they may not."""

    @property
    def archive(self) -> str:
        return f"{self.name}-{self.version}.tar.gz"

    def check(self, python: str) -> str:
        """The check command."""
        return " ".join((python, "-m", "pytest", "-x", "-q", *self.tests))


LIBRARIES = (
    Library("cachetools", "8.0.2",
            "30ac523adfc118b51d2b2e7bad8a0ddb31370dfe2700c7f10ca224f36ccf81e0",
            ("src/cachetools",), ("tests",), "src", "report"),
    Library("inflection", "0.5.1",
            "1a29730d366e996aaacffb2f1f1cb9593dc38e2ddd30c91250c6dde09ea9b417",
            ("inflection",), ("test_inflection.py",)),
    Library("jsonpointer", "3.12",
            "7a3dcc11b64053eaa9c549e85e413f8d40a075215f793a331bed9182a14251ae",
            ("jsonpointer.py",), ("tests.py",)),
    Library("num2words", "0.5.14",
            "b066ec18e56b6616a3b38086b5747daafbaa8868b226a36127e0451c0cf379c6",
            ("num2words/base.py", "num2words/currency.py", "num2words/lang_DE.py",
             "num2words/lang_EN.py", "num2words/lang_ES.py", "num2words/lang_EU.py",
             "num2words/utils.py"),
            ("tests/test_base.py", "tests/test_currency.py", "tests/test_de.py",
             "tests/test_en.py", "tests/test_es.py", "tests/test_utils.py"), half="report"),
    Library("parse", "1.22.4",
            "706d458feed5a81b02768d3156e8070baf6cee7d150a3a3c0cd43101a875c3b5",
            ("parse",), ("tests",), half="report"),
    Library("pytimeparse", "1.1.10",
            "ecf0ee613a72cb0b1d3d5404bd398a64266576fc36ccf3149178af6f2ec6f736",
            ("pytimeparse/timeparse.py",),
            ("pytimeparse/tests/testtimeparse.py", "pytimeparse/tests/testdayclock.py")),
    Library("schema", "0.7.8",
            "e86cc08edd6fe6e2522648f4e47e3a31920a76e82cce8937535422e310862ab5",
            ("schema",), ("test_schema.py",), half="report"),
    Library("semver", "3.1.2",
            "bea193552413194252d33ff26ce0962b76669bd1c6fb17e8e203ac37f072feaf",
            ("src/semver",), ("tests",), "src"),
    Library("simpleeval", "1.0.8",
            "b417f869c11f2de034eb919820a825f35d12ce99f63a43971947ce73679eb9ba",
            ("simpleeval.py",), ("tests",), half="report"),
    Library("sqlparse", "0.6.1",
            "ca722573f848ff2d30e40ea30f53a104b7dea7635ea9285891263eb2c58fb6e7",
            ("sqlparse",), ("tests",)),
    Library("tabulate", "0.8.10",
            "6c57f3f3dd7ac2782770155f3adb2db0b1a269637e42f27599925e64b114f519",
            ("tabulate.py",), ("test",), half="report"),
    Library("xmltodict", "1.0.4",
            "6d94c9f834dd9e44514162799d344d815a3a4faec913717a9ecbfa5be1bb8e61",
            ("xmltodict.py",), ("tests",)),
)  # fmt: skip


def prepare(library: Library, folder: Path) -> Path:
    """A git repository of the unpacked distribution, made once below `folder`.

    Raises `OSError` where it cannot be downloaded or is not the pinned archive.
    """
    _require_unseen(library)
    root = folder / "repositories" / library.name
    if (root / ".git").is_dir():
        return root
    archive = _download(library, folder / "archives")
    shutil.rmtree(root, ignore_errors=True)
    _unpack(archive, root)
    # Their own pytest options ask for plugins; ours say only where the package is.
    for name in ("pytest.ini", "tox.ini", "setup.cfg", "pyproject.toml", ".gitattributes"):
        (root / name).unlink(missing_ok=True)
    (root / "pytest.ini").write_text(f"[pytest]\npythonpath = {library.root}\n")
    (root / ".gitignore").write_text("__pycache__/\n.pytest_cache/\n.hypothesis/\n")
    git(root, "init", "-q")
    commit(root, "Add the library")
    return root


def commit(root: Path, message: str) -> None:
    git(root, "add", "-A")
    identity = ("-c", "user.name=bench", "-c", "user.email=bench@localhost")
    git(root, *identity, "commit", "-qm", message)


def git(root: Path, *args: str) -> None:
    subprocess.run(["git", *args], cwd=root, check=True, stdout=subprocess.DEVNULL)


def source_files(library: Library, root: Path) -> list[Path]:
    """The library's files that mutants change, in order."""
    found: list[Path] = []
    for name in library.sources:
        path = root / name
        found += sorted(path.rglob("*.py")) if path.is_dir() else [path]
    return [path for path in found if "tests" not in path.parts and path.name != "__main__.py"]


def _require_unseen(library: Library) -> None:
    packages = {entry["package"] for entry in json.loads(MANIFEST.read_text())["packages"]}
    if library.name in packages:
        raise OSError(f"{library.name} is in the training corpus: take another library")


def _download(library: Library, folder: Path) -> Path:
    archive = folder / library.archive
    if not archive.exists():
        folder.mkdir(parents=True, exist_ok=True)
        pinned = f"{library.name}=={library.version}"
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps"]
        command += ["--no-binary", ":all:", "-d", str(folder), pinned]
        subprocess.run(command, check=True)
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    if digest != library.sha256:
        raise OSError(f"{archive} is not the pinned archive (sha256 {digest}): delete it")
    return archive


def _unpack(archive: Path, root: Path) -> None:
    """Python sources and the texts that tests read; no links, no build files."""
    with tarfile.open(archive) as tar:
        for member in tar.getmembers():
            _, *inner = PurePosixPath(member.name).parts
            path = PurePosixPath(*inner)
            data = tar.extractfile(member) if member.isfile() else None
            skipped = any(part.endswith(".egg-info") or part == ".." for part in inner)
            if data is None or skipped or path.suffix not in _KEPT or path.name == "setup.py":
                continue
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_bytes(data.read())
