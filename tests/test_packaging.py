"""The distribution as users get it, and the rules that keep its rooms apart."""

from __future__ import annotations

import ast
import importlib.metadata
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
ROOMS = {"clover_code": "cli", "clover_lsp": "lsp", "clover_engine": "engine"}
ROOMS["clover_patcher"] = "patcher"
WEIGHTS = "clover_engine/weights/nano"
MAX_LINES = 420

DOOR = ("api", "errors", "folders", "gate", "generation", "languages", "line_ends")
ENGINE_CLIENT = {f"clover_engine.{n}" for n in DOOR}
CLIENTS = {"clover_engine.clients.address"}
PRIVATE = ("discreet", "ignore", "quotes", "secrets", "unquoting", "uris", "withheld")
PRIVACY = {f"clover_engine.privacy.{n}" for n in PRIVATE}
CHOICE = {f"clover_engine.choice.{n}" for n in ("edits", "engines", "wanted")}
STATISTICS = {f"clover_engine.statistics.{n}" for n in ("cutter", "edits", "grams")}
MODELS = {f"clover_engine.checkpoint.{n}" for n in ("catalog", "fetch", "listed")}
ALLOWED = {
    "clover_engine": {"clover_engine"},
    "clover_patcher": {"clover_patcher", *ENGINE_CLIENT, *PRIVACY, *STATISTICS},
    "clover_lsp": {
        "clover_lsp",
        "clover_patcher",
        *ENGINE_CLIENT,
        *PRIVACY,
        *CHOICE,
        *CLIENTS,
        *MODELS,
    },  # fmt: skip
    "clover_code": {*ROOMS},
}


def modules(package: str) -> list[Path]:
    return sorted((ROOT / ROOMS[package] / package).rglob("*.py"))


def imports(package: str, path: Path) -> Iterator[str]:
    """Full names of what a module imports, also inside functions."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield package if node.level else node.module or ""


@pytest.mark.parametrize("package", ROOMS)
def test_imports_go_one_way(package: str) -> None:
    wrong = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in modules(package)
        for name in imports(package, path)
        if name.partition(".")[0] in ROOMS and not {name, name.partition(".")[0]} & ALLOWED[package]
    ]
    assert not wrong


def test_an_engine_is_chosen_without_the_language_server() -> None:
    """Of the commands, only those about editors know the server's package."""
    users = {
        path.name
        for path in modules("clover_code")
        if any(name.startswith("clover_lsp") for name in imports("clover_code", path))
    }
    context = {"context_cmd.py", "context_output.py", "desk.py", "gateway_cmd.py", "fill.py"}
    assert users == {"lsp_cmd.py", "stats_cmd.py", *context}


def test_only_one_module_uses_gitpython() -> None:
    users = {
        str(path.relative_to(ROOT))
        for package in ROOMS
        for path in modules(package)
        if {name.partition(".")[0] for name in imports(package, path)} & {"git", "gitdb"}
    }
    assert users == {"patcher/clover_patcher/repository/git.py"}


def test_files_stay_short() -> None:
    paths = [path for package in ROOMS for path in modules(package)]
    lengths = {path: len(path.read_text("utf-8").splitlines()) for path in paths}
    assert not {str(p.relative_to(ROOT)): n for p, n in lengths.items() if n > MAX_LINES}


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_constraints_pin_everything_that_is_installed() -> None:
    pinned = {}
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            name, version = line.split("==")
            pinned[canonical(name)] = version
    todo = [("clover-code", {"engine", "dev", "gateway", "mcp", "acp", ""})]
    seen = set()
    while todo:
        name, extras = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        for required in importlib.metadata.requires(name) or []:
            needed = Requirement(required)
            if needed.marker and not any(needed.marker.evaluate({"extra": e}) for e in extras):
                continue
            child = canonical(needed.name)
            try:
                version = importlib.metadata.version(child)
            except importlib.metadata.PackageNotFoundError:
                continue  # for another platform or Python
            assert child in pinned, f"{child} (needed by {name}) is not in constraints.txt"
            if child != "torch":
                assert pinned[child] == version, f"{child}: run make setup"
            todo.append((child, {""}))
    assert {"torch", "pygls", "pytest", "transformers"} <= seen


def test_no_local_places_in_published_files() -> None:
    """Pins name versions only: no index, no folder, no build of one machine."""
    text = (ROOT / "constraints.txt").read_text()
    assert not re.search(r"^[^#\n]*([/@+]|--)", text, re.MULTILINE)


def test_editable_install_is_importable() -> None:
    code = "import clover_code, clover_lsp, clover_engine, clover_patcher as p; print(p.__file__)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert Path(run.stdout.strip()).name == "__init__.py"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """An sdist of this tree and the wheel that is built from that sdist."""
    out = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(ROOT)],
        check=True,
        capture_output=True,
        text=True,
    )
    (sdist,) = out.glob("*.tar.gz")
    (wheel,) = out.glob("*.whl")
    return sdist, wheel


@pytest.fixture(scope="module")
def installed(built: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An otherwise empty environment with the wheel; returns its `bin` folder."""
    venv = tmp_path_factory.mktemp("empty") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    pip = [sys.executable, "-m", "pip", "--python", str(venv / "bin" / "python"), "--quiet"]
    subprocess.run(
        [*pip, "install", "--no-deps", "--no-index", "--no-compile", str(built[1])], check=True
    )
    return venv / "bin"


def test_wheel_holds_the_packages_and_the_weights(built: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(built[1]) as wheel:
        names = set(wheel.namelist())
        size = sum(info.compress_size for info in wheel.infolist())
    for package in ROOMS:
        assert {f"{package}/__init__.py", f"{package}/py.typed"} <= names
    tops = {name.split("/")[0] for name in names}
    assert {t for t in tops if not t.endswith(".dist-info")} == set(ROOMS)
    assert {f"{WEIGHTS}/{n}" for n in ("config.json", "model.safetensors", "tokenizer.json")} <= (
        names
    )
    assert any(name.endswith("/licenses/LICENSE") for name in names)
    assert not [name for name in names if name.endswith(".pyc")]
    assert size < 30e6


def test_sdist_holds_what_tests_need(built: tuple[Path, Path]) -> None:
    with tarfile.open(built[0]) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    for name in ("pyproject.toml", "constraints.txt", "Makefile", "README.md", "LICENSE"):
        assert name in names
    assert "tests/test_packaging.py" in names and "demo/shop/cart.py" in names


def run_clean(command: list[str], **extra: str) -> subprocess.CompletedProcess[str]:
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "CLOVER"))}
    env |= extra
    return subprocess.run(command, capture_output=True, text=True, env=env, timeout=120)


@pytest.mark.parametrize(
    "arguments", [("--help",), ("--version",), ("fix", "--help"), ("infill", "--help")]
)
def test_wheel_runs_without_any_dependency(arguments: tuple[str, ...], installed: Path) -> None:
    run = run_clean([str(installed / "clover-code"), *arguments])
    assert run.returncode == 0, run.stderr
    assert "clover-code" in run.stdout


def test_doctor_says_what_an_empty_environment_lacks(installed: Path) -> None:
    run = run_clean([str(installed / "clover-code"), "doctor"])
    assert run.returncode == 1 and run.stderr == ""
    assert "MISSING  torch" in run.stdout and "MISSING  pygls" in run.stdout
    assert f"{installed}/python -m pip install 'clover-code[engine]'" in run.stdout


def test_infill_names_the_install_command_where_torch_is_missing(
    installed: Path, tmp_path: Path
) -> None:
    (tmp_path / "a.py").write_text("x = \n")
    run = run_clean([str(installed / "clover-code"), "infill", str(tmp_path / "a.py:1:5")])
    assert run.returncode == 2
    assert "is not installed; run: " in run.stderr and "clover-code[engine]" in run.stderr
    assert run.stderr.count("\n") == 1


def test_wheel_repairs_without_a_model(installed: Path, make_repo: object) -> None:
    """The installed wheel with the base dependencies, and no torch, on a real broken program."""
    root, _ = make_repo.project("off_by_one")  # type: ignore[attr-defined]
    command = [str(installed / "clover-code"), "fix", "--engine", "none", "--json"]
    run = subprocess.run(
        [*command, "--check", f"{sys.executable} -m pytest -q"],
        cwd=root,
        env={**os.environ, "PYTHONPATH": sysconfig.get_paths()["purelib"]},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert '"status": "fixed"' in run.stdout
