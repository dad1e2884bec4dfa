"""The failure in a copy is the failure of the tree, or the run says what is missing there."""

from __future__ import annotations

import json
import os
import socket
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from clover_patcher.errors import CannotPass, UsageError
from clover_patcher.fix import FixRequest, FixResult, fix

PROGRAM = "def limit(n):\n    return n > 50\n"
TESTS = "from program import limit\n\n\ndef test_limit():\n    assert limit(50)\n\n\n"
CHECK = f"{sys.executable} -m pytest -q"
Run = Callable[..., FixResult]


@pytest.fixture(params=["mounted", "copied"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With mounts where the system allows them, and without any."""
    monkeypatch.setenv("CLOVER_MOUNTS", "1" if request.param == "mounted" else "0")
    return str(request.param)


@pytest.fixture
def run(make_repo, temporary_root: Path) -> Run:
    """Repairs a small program whose test module ends with the given text."""

    def begin(
        more: str,
        files: dict[str, str | bytes] | None = None,
        check: str = CHECK,
        **options: object,
    ) -> FixResult:
        root = make_repo({"program.py": PROGRAM, "test_program.py": TESTS + textwrap.dedent(more)})
        make_repo.write(root, files or {})
        for name in files or {}:
            if not name.startswith("../"):
                with (root / ".git/info/exclude").open("a") as exclude:
                    exclude.write(f"/{name.split('/')[0]}\n")
        return fix(FixRequest(root, check, dry_run=True, jobs=1, **options))  # type: ignore[arg-type]

    return begin


def reads(path: str) -> str:
    return f"""
        import pathlib

        def test_data():
            assert pathlib.Path({path!r}).read_text() == "50"
    """


@pytest.mark.parametrize(
    "path",
    ["build/x/rates", "my_cache/rates", "deep/dist/rates", "rates.log", "../beside/rates"],
)
def test_ignored_files_and_those_beside_are_there(run: Run, way: str, path: str) -> None:
    assert run(reads(path), {path: "50"}).status == "fixed"


def test_a_small_file_beside_a_large_one_is_there(run: Run, way: str) -> None:
    assert (
        run(reads("data/rates"), {"data/rates": "50", "data/b": bytes(33 << 20)}).status == "fixed"
    )


def test_a_large_folder_or_file_can_be_replaced(run: Run, way: str) -> None:
    more = """
        import pathlib, shutil

        def test_replace():
            assert pathlib.Path("data/b").stat().st_size
            shutil.rmtree("data")
            pathlib.Path("data").mkdir()
            pathlib.Path("data/b").write_text("x")

        def test_change():
            with open("model.bin", "r+b") as file:
                file.write(b"x")
    """
    large = bytes(33 << 20)
    assert run(more, {"data/b": large, "model.bin": large}).status == "fixed"


def test_a_wrapped_error_of_a_missing_folder_is_understood(run: Run, way: str) -> None:
    more = """
        import os

        def test_data():
            if not os.path.isdir("data"):
                raise RuntimeError("the folder data was not found: run make data")
    """
    assert run(more, {"data/rates": "50", "data/b": bytes(33 << 20)}).status == "fixed"


def test_empty_folders_sockets_and_times_are_those_of_the_tree(make_repo, way: str) -> None:
    more = """
        import os, socket

        def test_tree():
            assert os.listdir("empty/inner") == []
            assert os.stat("old.txt").st_mtime == 1000000000
            assert open("out").read() == "outside"
            with socket.socket(socket.AF_UNIX) as client:
                client.connect("run.sock")
            with socket.socket(socket.AF_UNIX) as server:
                server.bind(os.path.abspath("a-name-of-some-length.sock"))
            os.unlink("a-name-of-some-length.sock")
    """
    root = make_repo(
        {"program.py": PROGRAM, "test_program.py": TESTS + textwrap.dedent(more), "old.txt": ""}
    )
    os.utime(root / "old.txt", (1000000000, 1000000000))
    (root / "empty/inner").mkdir(parents=True)
    (root.parent / "outside.txt").write_text("outside")
    (root / "out").symlink_to("../outside.txt")
    here = Path.cwd()
    with socket.socket(socket.AF_UNIX) as server:
        os.chdir(root)  # the name of a socket must be short
        try:
            server.bind("run.sock")
        finally:
            os.chdir(here)
        server.listen()
        result = fix(FixRequest(root, CHECK, dry_run=True, jobs=1))
    assert result.status == "fixed", result.failures


@pytest.fixture
def service() -> Iterator[int]:
    """A service on the loopback device that answers "50" to everybody."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                client, _ = server.accept()
            except OSError:
                return
            client.sendall(b"50")
            client.close()

    threading.Thread(target=serve, daemon=True).start()
    yield server.getsockname()[1]
    server.close()


def test_a_service_on_this_machine_is_reached(run: Run, service: int) -> None:
    more = f"""
        import socket

        def test_service():
            with socket.create_connection(("localhost", {service}), 5) as client:
                assert client.recv(10) == b"50"
    """
    result = run(more)
    assert result.status == "fixed", result.failures
    assert any("loopback" in note for note in result.notes) or not result.notes


def test_the_network_is_not_reached_and_that_is_told_at_once(run: Run) -> None:
    more = """
        import socket

        def test_network():
            socket.create_connection(("192.0.2.1", 80), 1)
    """
    with pytest.raises(
        CannotPass, match=r"test_network fails in the copy with .*--network"
    ) as told:
        run(more)
    assert told.value.outcome is not None
    assert len(told.value.outcome.failures) == 2


def test_what_is_too_large_is_named_and_can_be_included(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLOVER_MOUNTS", "0")
    monkeypatch.setattr("clover_patcher.repository.snapshot._DEMANDED_BYTES", 1 << 20)
    files: dict[str, str | bytes] = {"big/rates": "50", "big/blob": bytes(33 << 20)}
    more = """
        import os

        def test_data():
            assert os.path.getsize("big/blob"), "big was not found"

        def test_all():
            open("big/blob").close()
    """
    with pytest.raises(CannotPass, match="big.* is not copied.*--include big"):
        run(more, files)


def test_including_what_is_too_large(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLOVER_MOUNTS", "0")
    monkeypatch.setattr("clover_patcher.repository.snapshot._DEMANDED_BYTES", 1 << 20)
    files: dict[str, str | bytes] = {"big/rates": "50", "big/blob": bytes(33 << 20)}
    assert run(reads("big/rates"), files, include=("big",)).status == "fixed"


@pytest.mark.parametrize("path", ["nothing", ".", "../../.."])
def test_what_cannot_be_included(run: Run, path: str) -> None:
    with pytest.raises(UsageError, match="--include|cannot be copied"):
        run("", include=(path,))


HOPELESS = [
    ("import a_package_nobody_has\n", CHECK, "'a_package_nobody_has', which is not installed"),
    ("", f"{sys.executable} -m unittest test_progarm", "'test_progarm', which does not exist"),
    ("", f"{sys.executable} -m unittest test_program.Nothing", "does not exist"),
    ("", "make nothing-of-that-name", "No rule to make target|no makefile"),
    ("", "no-such-tool-here && true", "cannot run: .*not found"),
    ("", "cd sub && make tset", "no folder"),
    ("", f"{sys.executable} -m no_such_module", "no module 'no_such_module'"),
    ("", "black --check .", "`black --check` says how files are laid out"),
    ("", f"{CHECK} --no-such-option", "cannot run: .*unrecognized arguments: --no-such-option;"),
    ("", "echo '[warn] Code style issues found in 2 files.' && false", "a formatter fails"),
    ("", 'echo "x: No rule to make target $PWD/a, needed by b. Stop" && false', "target a, need"),
    ("", "echo 'go: go.mod file not found in current directory' && false", "go to the folder"),
    (
        "import pytest\n\n@pytest.mark.slwo\ndef test_x():\n    pass\n",
        f"{CHECK} --strict-markers",
        "marker 'slwo', which does not exist",
    ),
    (
        "raise ImportError('libGL.so.1: cannot open shared object file: No such file')\n",
        CHECK,
        "shared library libGL.so.1 is missing",
    ),
    ("", "ruff format --check .", "run `ruff format` without it"),
    ("def test_x(:\n    pass\n", CHECK, r"test_program.py:\d+ does not parse \(invalid syntax\)"),
    ("def test_x(no_fixture):\n    pass\n", CHECK, "asks for the fixture 'no_fixture', which"),
]


@pytest.mark.parametrize(("more", "check", "said"), HOPELESS)
def test_what_no_edit_can_mend_ends_at_once(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, more: str, check: str, said: str
) -> None:
    tool = tmp_path / "bin/black"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\necho would reformat program.py\nexit 1\n")
    tool.chmod(0o755)
    for folder in (os.path.dirname(sys.executable), str(tool.parent)):
        monkeypatch.setenv("PATH", folder, prepend=os.pathsep)
    with pytest.raises(UsageError, match=said):
        run(more, {}, check)


def test_a_misspelt_import_of_the_program_is_not_hopeless(make_repo) -> None:
    root = make_repo(
        {"program.py": "import jsn as json\n\n\ndef dump(x):\n    return json.dumps(x)\n"}
    )
    make_repo.write(
        root,
        {"test_program.py": "import program\n\n\ndef test_x():\n    assert program.dump(1) == '1'"},
    )
    result = fix(FixRequest(root, CHECK, dry_run=True, jobs=1))
    assert result.status == "fixed"
    assert "+import json as json\n" in result.patch.decode()


def test_a_test_that_does_not_parse_is_mended_where_that_is_allowed(make_repo) -> None:
    tests = "import program\n\n\ndef test_x(:\n    assert program.limit(60)\n"
    root = make_repo({"program.py": PROGRAM, "test_program.py": tests})
    request = FixRequest(root, CHECK, dry_run=True, jobs=1, allow=("test_program.py",))
    result = fix(request)
    assert (result.status, result.path) == ("fixed", "test_program.py")


def test_an_installed_copy_under_test_is_told(make_repo, tmp_path: Path) -> None:
    site = tmp_path / "env/lib/python/site-packages"
    tests = "from shop import limit\n\n\ndef test_limit():\n    assert limit(50)\n"
    root = make_repo({"src/shop/__init__.py": PROGRAM, "tests/test_shop.py": tests})
    make_repo.write(site, {"shop/__init__.py": PROGRAM})
    command = f"PYTHONPATH={site} {sys.executable} -m pytest -q --import-mode=importlib"
    with pytest.raises(CannotPass, match="installed copy of `shop`"):
        fix(FixRequest(root, command, dry_run=True, jobs=1))


def test_a_script_without_a_suffix_is_repaired(make_repo) -> None:
    script = f"#!{sys.executable}\nimport sys\n\n\ndef limit(n):\n    return n > 50\n\n\n"
    script += "if __name__ == '__main__':\n    sys.exit(not limit(int(sys.argv[1])))\n"
    root = make_repo({"bin/limit": script, "check.sh": "./bin/limit 50 && ! ./bin/limit 49\n"})
    (root / "bin/limit").chmod(0o755)
    result = fix(FixRequest(root, "sh check.sh", dry_run=True, jobs=1))
    assert (result.status, result.path, result.line) == ("fixed", "bin/limit", 6)
    assert json.dumps(result.patch.decode()).count(">= 50") == 1
