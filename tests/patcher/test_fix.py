"""The journey with scripted candidates: what is applied, refused, and left as it was."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from clover_engine.errors import CheckpointError
from clover_patcher import fix as fix_module
from clover_patcher.deliver.undo import undo
from clover_patcher.errors import UsageError
from clover_patcher.fix import FixRequest, FixResult, fix
from clover_patcher.locate.evidence import Evidence
from clover_patcher.repository.git import Repository
from clover_patcher.types import Candidate, Edit, Validation

PROGRAM = "def double(x):\n    return x + 3\n\n\ndef half(x):\n    return x / 2\n"
TESTS = {
    "test_double.py": "from prog import double\n\ndef test_double():\n    assert double(5) == 10\n",
    "test_half.py": "from prog import *\n\ndef test_it():\n    assert half(double(3)) == 3\n",
}
CHECK = "python -m pytest -q"

Batches = list[list[tuple[str, float]]]
Outcomes = list[tuple[str, str]]
Script = Callable[..., Outcomes]


pytestmark = pytest.mark.usefixtures("own_python")


@pytest.fixture
def root(make_repo) -> Path:
    return make_repo({"prog.py": PROGRAM, **TESTS})


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Script:
    """Replaces the making of candidates: line 2 of prog.py becomes each text in turn."""

    def install(batches: Batches, *, before_batch: Callable[[], Any] = lambda: None) -> Outcomes:
        outcomes: Outcomes = []

        class Scripted:
            name = "scripted"
            is_slow = False
            is_awaited = False
            notes: Sequence[str] = ()

            def propose(self, evidence: Evidence) -> Iterator[list[Candidate]]:
                data = evidence.sources["prog.py"]
                self.start = data.index(b"\n") + 1
                self.end = data.index(b"\n", self.start)
                for batch in batches:
                    before_batch()
                    yield [self._candidate(*item) for item in batch]

            def learn(self, validation: Validation) -> None:
                outcomes.append((validation.candidate.text.strip(), validation.outcome.status))

            def _candidate(self, text: str, priority: float) -> Candidate:
                line = f"    {text}"
                edit = Edit("prog.py", self.start, self.end, line.encode())
                return Candidate((edit,), 2, "line", line, None, priority, self.name)

        monkeypatch.setattr(fix_module, "proposers_for", lambda *_: [Scripted()])
        return outcomes

    return install


def status(make_repo, root: Path) -> str:
    return str(make_repo.git(root, "status", "--porcelain", "--ignored"))


def run(root: Path, **more: Any) -> FixResult:
    return fix(FixRequest(root=root, check=CHECK, **more))


def test_the_patch_is_applied_and_nothing_else_changes(make_repo, root: Path, script) -> None:
    script([[("return x + 4", 3.0), ("return x - 3", 2.0)], [("return x + x", 1.0)]])
    result = run(root)
    assert (result.status, result.exit_code, result.error) == ("fixed", 0, None)
    assert (result.path, result.line, result.applied) == ("prog.py", 2, True)
    assert (root / "prog.py").read_text() == PROGRAM.replace("x + 3", "x + x")
    assert status(make_repo, root) == " M prog.py\n"
    assert result.patch.decode() == (
        "diff --git a/prog.py b/prog.py\n--- a/prog.py\n+++ b/prog.py\n@@ -1,5 +1,5 @@\n"
        " def double(x):\n-    return x + 3\n+    return x + x\n \n \n def half(x):\n"
    )
    assert result.candidates_tried == 3
    assert result.passing == 1
    assert result.explanation and "test_double" in result.explanation.summary
    assert not (root / ".git/worktrees").exists()


def test_a_dry_run_changes_nothing(make_repo, root: Path, script) -> None:
    script([[("return x * 2", 1.0)]])
    result = run(root, dry_run=True)
    assert (result.status, result.exit_code, result.applied) == ("fixed", 0, False)
    assert b"+    return x * 2\n" in result.patch
    assert (root / "prog.py").read_text() == PROGRAM
    assert status(make_repo, root) == ""


def test_the_most_probable_passing_candidate_wins(root: Path, script) -> None:
    script(
        [
            [("return x * 2", 1.0), ("return 2 * x", 1.0)],
            [("return x + x + 0", 5.0), ("return x+x", 5.0)],
        ]
    )
    assert b"+    return x+x\n" in run(root).patch


def test_a_candidate_that_breaks_another_test_is_not_taken(root: Path, script) -> None:
    script([[("return x + 5", 2.0), ("return 2 * x", 1.0)]])
    assert b"+    return 2 * x\n" in run(root).patch


def test_no_candidate(root: Path, script) -> None:
    script([[("return x", 1.0)]])
    result = run(root)
    assert (result.status, result.exit_code, result.patch) == ("none_found", 1, b"")
    assert result.error == "no candidate makes the check pass"
    assert (root / "prog.py").read_text() == PROGRAM


def test_a_candidate_that_fails_when_confirmed_is_passed_over(root: Path, script) -> None:
    trick = (
        "import os; open('mark', 'a').write('1'); return 10 if len(open('mark').read()) > 1 else 0"
    )
    script([[(trick, 9.0)], [("return x * 2", 1.0)]])
    assert b"+    return x * 2\n" in run(root, jobs=1).patch


def test_the_budget_is_kept(root: Path, script) -> None:
    script([[("return x", 1.0)]] * 100_000)
    started = time.monotonic()
    result = run(root, budget_s=20)
    assert (result.status, result.exit_code) == ("budget", 124)
    assert result.candidates_tried > 3
    assert time.monotonic() - started < 30


def test_a_patched_file_that_changes_meanwhile_stops_the_patch(root: Path, script) -> None:
    text = (root / "prog.py").read_text() + "# the user was here\n"
    script([[("return x * 2", 1.0)]], before_batch=lambda: (root / "prog.py").write_text(text))
    result = run(root)
    assert (result.status, result.exit_code, result.applied) == ("tree_changed", 4, False)
    assert result.error is not None
    assert result.error.startswith("prog.py changed meanwhile")
    assert (root / "prog.py").read_text() == text


@pytest.mark.parametrize("name", ["test_half.py", "unrelated.py", "notes.txt", "brand_new.py"])
def test_another_file_that_is_saved_meanwhile_does_not(root: Path, script, name: str) -> None:
    """The confirming run shows what was saved: the patch is applied, what was saved stays."""
    old = (root / name).read_text() if (root / name).exists() else ""
    text = old + "# the user was here\n"
    script([[("return x * 2", 1.0)]], before_batch=lambda: (root / name).write_text(text))
    result = run(root)
    assert (result.status, result.applied, result.error) == ("fixed", True, None)
    assert (root / "prog.py").read_text() == PROGRAM.replace("x + 3", "x * 2")
    assert (root / name).read_text() == text


def test_what_is_saved_during_the_confirming_run_takes_part_in_another(
    root: Path, script, tmp_path: Path
) -> None:
    """The check itself says how often it ran cold, and what it saw of the other file then."""
    seen = tmp_path / "seen"
    probe = f"import helper\nopen({str(seen)!r}, 'a').write(helper.WORD + ' ')\n"
    (root / "helper.py").write_text("WORD = 'old'\n")
    (root / "test_probe.py").write_text(probe + "def test_probe():\n    pass\n")

    class Saves:
        def event(self, stage: str, message: str, **numbers: float) -> None:
            if stage == "confirm":
                seen.write_text("")
                self.wait = threading.Thread(target=self.save)
                self.wait.start()

        def save(self) -> None:
            while not seen.read_text():  # the confirming run has imported the old one
                time.sleep(0.01)
            (root / "helper.py").write_text("WORD = 'new'\n")

    script([[("return x * 2", 1.0)]])
    request = FixRequest(root=root, check=CHECK, jobs=1)
    result = fix(request, progress=Saves())
    assert (result.status, result.applied) == ("fixed", True), result.error
    words = seen.read_text().split()
    assert words == sorted(words, reverse=True) and set(words) == {"old", "new"}
    assert any("helper.py changed meanwhile" in note for note in result.notes)


def test_a_saved_file_with_which_the_check_does_not_pass_stops_the_patch(
    root: Path, script
) -> None:
    """The fix would be right by itself; nobody asked for a patch that leaves the check failing."""
    broken = "from prog import half\n\n\ndef test_half():\n    assert half(4) == 3\n"
    script(
        [[("return x * 2", 1.0)]],
        before_batch=lambda: (root / "test_half.py").write_text(broken),
    )
    result = run(root)
    assert (result.status, result.exit_code, result.applied) == ("tree_changed", 4, False)
    assert result.error is not None and result.error.startswith("test_half.py changed meanwhile")
    assert b"+    return x * 2\n" in result.patch
    assert (root / "prog.py").read_text() == PROGRAM


def test_other_changes_meanwhile_do_not_matter(root: Path, script) -> None:
    script([[("return x * 2", 1.0)]], before_batch=lambda: (root / "notes.txt").write_text("x"))
    assert run(root).status == "fixed"


def test_a_dirty_file_keeps_its_changes(make_repo, root: Path, script) -> None:
    dirty = PROGRAM + "\n\nUNSAVED = 'é'\n"
    (root / "prog.py").write_text(dirty, "utf-8")
    make_repo.git(root, "add", "prog.py")
    (root / "prog.py").write_text(dirty + "MORE = 1\n", "utf-8")
    staged = make_repo.git(root, "diff", "--cached")
    script([[("return x * 2", 1.0)]])
    assert run(root).status == "fixed"
    wanted = (dirty + "MORE = 1\n").replace("x + 3", "x * 2")
    assert (root / "prog.py").read_text("utf-8") == wanted
    assert make_repo.git(root, "diff", "--cached") == staged


@pytest.mark.parametrize("project", ["passing", "flaky"])
def test_a_failure_that_does_not_stand_still_is_not_repaired(make_repo, project: str) -> None:
    root, card = make_repo.project(project)
    result = fix(FixRequest(root=root, check=card["check"]))
    assert (result.status, result.exit_code) == ("not_reproducible", 3)
    assert result.error is not None
    assert ("passes already" if project == "passing" else "flaky") in result.error
    assert status(make_repo, root) == ""


@pytest.mark.parametrize(
    "check,paths,words",
    [
        ("no-such-program-here", (), "was not found"),
        ("python missing.py", (), "does not exist"),
        ("python -m pytest nothing_here.py", (), "cannot run"),
        (CHECK, ("missing.py",), "does not exist"),
        (CHECK, ("/etc",), "outside the repository"),
        (CHECK, ("test_half.py",), "frozen"),
    ],
)
def test_bad_requests_are_usage_errors(
    make_repo, root: Path, check: str, paths: tuple[str, ...], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        fix(FixRequest(root=root, check=check, paths=paths))
    assert status(make_repo, root) == ""


def test_no_repository(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="git init"):
        fix(FixRequest(root=tmp_path, check=CHECK))


def test_an_unusable_checkpoint_stops_the_run(make_repo, root: Path, script) -> None:
    class Broken:
        def score(self, request: Any, cancel: Any = None) -> Any:
            raise CheckpointError("model.safetensors is truncated: download it again")

    script([[("return x * 2", 1.0)]])
    with pytest.raises(CheckpointError):
        fix(FixRequest(root=root, check=CHECK), engine=Broken())  # type: ignore[arg-type]
    assert status(make_repo, root) == ""


def test_the_paths_limit_where_patches_go(make_repo, script) -> None:
    files = {"pkg/other.py": "y = 1\n", "prog.py": PROGRAM, **TESTS}
    root = make_repo(files, "limited")
    result = run(root, paths=("pkg",))
    assert (result.status, result.candidates_tried) == ("none_found", 0)


def test_progress_is_told(root: Path, script) -> None:
    events: list[tuple[str, str, dict[str, float]]] = []

    class Listener:
        def event(self, stage: str, message: str, **numbers: float) -> None:
            events.append((stage, message, numbers))

    script([[("return x", 2.0), ("return x * 2", 1.0)]])
    fix(FixRequest(root=root, check=CHECK), None, Listener())
    stages = list(dict.fromkeys(stage for stage, _, _ in events))
    assert [s for s in stages if s != "search"] == [
        "snapshot",
        "baseline",
        "localise",
        "found",
        "confirm",
        "apply",
    ]
    assert max(numbers.get("tried", 0) for _, _, numbers in events) == 2


def test_every_outcome_flows_back_to_the_proposers(root: Path, script) -> None:
    outcomes = script([[("return x - 9", 0.0)], [("return 2 * x", 1.0)]])
    assert fix(FixRequest(root, CHECK, jobs=1)).status == "fixed"
    assert outcomes == [("return x - 9", "failed"), ("return 2 * x", "passed")]


def propose(monkeypatch: pytest.MonkeyPatch, *wanted: dict[str, tuple[str, str]]) -> None:
    """Makes candidates of several edits: for each file a text, and what replaces it."""

    class Fixed:
        name = "fixed"
        is_slow = False
        is_awaited = False
        notes: Sequence[str] = ()

        def propose(self, evidence: Evidence) -> Iterator[list[Candidate]]:
            yield [self._candidate(evidence, edits) for edits in wanted]

        def _candidate(self, evidence: Evidence, edits: dict[str, tuple[str, str]]) -> Candidate:
            made = []
            for path, (old, new) in edits.items():
                at = evidence.read(path).index(old.encode())
                made.append(Edit(path, at, at + len(old), new.encode()))
            return Candidate(tuple(made), 1, "rewrite", "both", proposer=self.name)

        def learn(self, validation: Validation) -> None: ...

    monkeypatch.setattr(fix_module, "proposers_for", lambda *_: [Fixed()])


def test_a_patch_of_several_files_is_one_patch(make_repo, monkeypatch) -> None:
    files = {
        "prog.py": "from unit import UNIT\n\ndef double(x):\n    return x + UNIT\n",
        "unit.py": "UNIT = 3\n",
        "test_it.py": "from prog import double\n\ndef test_it():\n    assert double(5) == 10\n"
        "    assert double(7) == 14\n",
    }
    root = make_repo(files)
    half = {"prog.py": ("x + UNIT", "x * UNIT")}
    both = half | {"unit.py": ("3", "2")}
    propose(monkeypatch, half, both)
    result = fix(FixRequest(root, CHECK))
    assert (result.status, result.candidates_tried) == ("fixed", 2)
    assert [change.path for change in result.changes] == ["prog.py", "unit.py"]
    assert (root / "unit.py").read_text() == "UNIT = 2\n"
    assert "x * UNIT" in (root / "prog.py").read_text()
    undo(Repository.open(root))
    assert {name: (root / name).read_text() for name in files} == files


def test_a_candidate_that_edits_a_test_is_never_tried(root: Path, monkeypatch) -> None:
    propose(monkeypatch, {"prog.py": ("3", "4"), "test_double.py": ("== 10", "== 9")})
    result = fix(FixRequest(root, CHECK))
    assert (result.status, result.candidates_tried) == ("none_found", 0)
