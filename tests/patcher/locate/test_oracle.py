"""What decides is not patched: whatever it is called, and however the check comes to it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from clover_patcher.locate.evidence import Evidence, gather
from clover_patcher.repository.permission import Permission
from clover_patcher.repository.workspace import Workspace
from clover_patcher.request import FixRequest
from clover_patcher.task.task import Task
from clover_patcher.validate.lanes import Lanes

CART = "def shipping(total):\n    if total > 50:\n        return 0\n    return 5\n"
HELPER = (
    "def assert_same(got, wanted):\n    if got != wanted:\n"
    "        raise AssertionError(f'{got!r} is not {wanted!r}')\n"
)
TEST = (
    "import sys\nfrom pathlib import Path\nsys.path.insert(0, str(Path(__file__).parent))\n"
    "from {helper} import assert_same\nfrom shop.cart import shipping\n\n\n"
    "def test_free():\n    assert_same(shipping(50), 0)\n"
)
SHOP = {"shop/__init__.py": "", "shop/cart.py": CART}
PYTEST = "python -m pytest -q -p no:cacheprovider"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, temporary_root: Path) -> Iterator[None]:
    monkeypatch.setenv("PATH", os.path.dirname(sys.executable), prepend=os.pathsep)
    yield


def evidence(root: Path, check: str, **more: object) -> Evidence:
    """What a run of the check leads to, without trying anything."""
    task = Task.of(FixRequest(root, check, jobs=1, **more))  # type: ignore[arg-type]
    with Workspace(task.repository, trees=1) as workspace, ExitStack() as stack:
        lanes = Lanes(task, workspace, stack)
        baseline, runners = lanes.baseline()
        permission = Permission.of(
            workspace.python_files, task.paths, task.check_words, task.cwd, task.request.allow
        )
        return gather(task, workspace, permission, baseline, runners[0])


@pytest.mark.parametrize(
    "folder", ["Tests", "unit_tests", "shop/test", "qa", "t", "kontrolle", "shop/tests/deep"]
)
def test_whatever_lies_beside_tests_is_frozen(make_repo, folder: str) -> None:
    files = {f"{folder}/helper.py": HELPER, f"{folder}/test_cart.py": TEST.format(helper="helper")}
    ini = {"pytest.ini": "[pytest]\npythonpath = .\n"}
    found = evidence(make_repo({**SHOP, **files, **ini}), PYTEST)
    assert {at.path for at in found.locations} == {"shop/cart.py"}
    assert f"{folder}/helper.py" in found.permission.frozen


def test_what_lies_below_and_above_test_files_of_a_folder_of_tests(make_repo) -> None:
    files = {
        "qa/conftest.py": "",
        "qa/support/compare.py": HELPER,
        "qa/unit/test_cart.py": "from qa.support.compare import assert_same\n"
        + TEST.format(helper="qa.support.compare"),
    }
    found = evidence(make_repo({**SHOP, **files}), PYTEST)
    assert {at.path for at in found.locations} == {"shop/cart.py"}


def test_tests_beside_the_modules_leave_the_modules_free(make_repo) -> None:
    files = {
        "shop/test_cart.py": "from shop.cart import shipping\nfrom money import cents\n\n\n"
        "def test_free():\n    assert cents(shipping(50)) == 0\n",
        "money.py": "def cents(value):\n    return value * 100\n",
    }
    found = evidence(make_repo({**SHOP, **files}), PYTEST)
    assert {at.path for at in found.locations} == {"shop/cart.py", "money.py"}


@pytest.mark.parametrize("name", ["testkit", "helpers", "shop_asserts"])
def test_a_module_of_helpers_beside_the_tests_is_frozen(make_repo, name: str) -> None:
    files = {f"{name}.py": HELPER, "tests/test_cart.py": TEST.format(helper=name)}
    ini = {"pytest.ini": "[pytest]\npythonpath = .\n"}
    found = evidence(make_repo({**SHOP, **files, **ini}), PYTEST)
    assert {at.path for at in found.locations} == {"shop/cart.py"}


@pytest.mark.parametrize("place", ["testing", "lib/testing"])
def test_a_package_for_testing_may_be_the_program(make_repo, place: str) -> None:
    module = place.replace("/", ".")
    files = {
        f"{place}/__init__.py": "",
        f"{place}/asserts.py": HELPER.replace("got != wanted", "got == wanted"),
        "lib/__init__.py": "",
        "lib/core.py": "def one():\n    return 1\n",
        "tests/test_asserts.py": f"from {module}.asserts import assert_same\n"
        "from lib.core import one\n\n\ndef test_same():\n    assert_same(one(), 1)\n",
    }
    ini = {"pytest.ini": "[pytest]\npythonpath = .\n"}
    found = evidence(make_repo({**files, **ini}), PYTEST)
    assert f"{place}/asserts.py" in {at.path for at in found.locations}


CHECKER = (
    "import sys\nfrom shop.cart import shipping\n\n"
    "if shipping(50) != 0:\n    print('wrong')\n    {verdict}\n"
)


@pytest.mark.parametrize(
    "verdict", ["sys.exit(1)", "raise SystemExit('wrong')", "assert False", "raise ValueError(1)"]
)
@pytest.mark.parametrize("chain", ["make", "sh", "python"])
def test_a_script_that_decides_is_frozen(make_repo, chain: str, verdict: str) -> None:
    files = {
        "Makefile": f"check:\n\t@sh run.sh {sys.executable}\n",
        "run.sh": "PYTHONPATH=.:$PYTHONPATH exec $1 tools/verify.py\n",
        "tools/verify.py": CHECKER.format(verdict=verdict),
    }
    checks = {"make": "make check", "sh": f"sh run.sh {sys.executable}"}
    files["tools/verify.py"] = "import sys\nsys.path.insert(0, '.')\n" + files["tools/verify.py"]
    check = checks.get(chain, f"{sys.executable} tools/verify.py")
    found = evidence(make_repo({**SHOP, **files}), check)
    assert "shop/cart.py" in {at.path for at in found.locations}
    assert "tools/verify.py" in found.permission.frozen
    assert "tools/verify.py" not in {at.path for at in found.locations}


def test_what_a_deciding_script_loads_from_its_folder_is_frozen(make_repo) -> None:
    files = {
        "Makefile": f"check:\n\t@PYTHONPATH=.:$$PYTHONPATH {sys.executable} tools/verify.py\n",
        "tools/verify.py": "from compare import expect\nfrom shop.cart import shipping\n"
        "expect(shipping(50), 0)\n",
        "tools/compare.py": "import sys\n\ndef expect(got, wanted):\n"
        "    if got != wanted:\n        sys.exit(1)\n",
    }
    found = evidence(make_repo({**SHOP, **files}), "make check")
    assert {at.path for at in found.locations} <= {"shop/cart.py", "shop/__init__.py"}


def test_the_program_that_a_checker_starts_is_free(make_repo) -> None:
    files = {
        "Makefile": f"check:\n\t@{sys.executable} tools/verify.py\n",
        "tools/verify.py": "import subprocess, sys\n"
        "out = subprocess.run([sys.executable, 'app.py'], capture_output=True, text=True).stdout\n"
        "sys.exit(out.strip() != '0')\n",
        "app.py": "from shop.cart import shipping\nprint(shipping(50))\n",
    }
    found = evidence(make_repo({**SHOP, **files}), "make check")
    assert {"app.py", "shop/cart.py"} <= {at.path for at in found.locations}
    assert "tools/verify.py" in found.permission.frozen


def test_a_program_piped_to_a_comparison_is_free(make_repo) -> None:
    files = {
        "run.sh": f"{sys.executable} app.py > out.txt\n"
        f"{sys.executable} same.py out.txt wanted.txt\n",
        "app.py": "from shop.cart import shipping\nprint(shipping(50))\n",
        "same.py": "import sys\na, b = (open(p).read() for p in sys.argv[1:])\nassert a == b\n",
        "wanted.txt": "0\n",
    }
    found = evidence(make_repo({**SHOP, **files}), "sh run.sh")
    assert {"app.py", "shop/cart.py"} <= {at.path for at in found.locations}
    assert "same.py" in found.permission.frozen


def test_steps_of_behave_are_frozen(make_repo) -> None:
    files = {
        "features/cart.feature": "Feature: shipping\n",
        "features/steps/cart.py": HELPER,
        "features/environment.py": "",
        "runner.py": "import sys\nsys.path.insert(0, 'features/steps')\n"
        "from cart import assert_same\n"
        "from shop.cart import shipping\nassert_same(shipping(50), 0)\n",
    }
    found = evidence(make_repo({**SHOP, **files}), f"{sys.executable} runner.py")
    assert "features/steps/cart.py" in found.permission.frozen
    assert {at.path for at in found.locations} <= {"shop/cart.py", "shop/__init__.py"}


def test_unittest_in_a_folder_of_any_name(make_repo) -> None:
    files = {
        "verify/__init__.py": "",
        "verify/base.py": "import unittest\n\nclass Base(unittest.TestCase):\n"
        "    def same(self, a, b):\n        self.assertEqual(a, b)\n",
        "verify/cart_cases.py": "from shop.cart import shipping\nfrom verify.base import Base\n\n\n"
        "class Free(Base):\n    def test_free(self):\n        self.same(shipping(50), 0)\n",
    }
    check = "python -m unittest verify.cart_cases"
    found = evidence(make_repo({**SHOP, **files}), check)
    assert {at.path for at in found.locations} == {"shop/cart.py"}


DOCTEST = 'def double(x):\n    """\n    >>> double(4)\n    8\n    """\n    return x + 2\n'


@pytest.mark.parametrize(
    "check", ["python -m doctest shop/text.py", f"{PYTEST} --doctest-modules shop/text.py"]
)
def test_a_module_with_doctests_is_the_program(make_repo, check: str) -> None:
    found = evidence(make_repo({**SHOP, "shop/text.py": DOCTEST}), check)
    assert found.locations[0].path == "shop/text.py"
    assert {at.path for at in found.locations} == {"shop/text.py"}


@pytest.mark.parametrize(
    "line", ["print(shipping(10) / lenn([1]))", "print(shipping(10) + 'x')", "print(1"]
)
@pytest.mark.parametrize("make", [False, True])
def test_a_script_that_crashes_by_itself_is_the_program(make_repo, line: str, make: bool) -> None:
    files = {
        "report.py": f"from shop.cart import shipping\n\n{line}\n",
        "Makefile": f"run:\n\t@{sys.executable} report.py\n",
    }
    check = "make run" if make else f"{sys.executable} report.py"
    found = evidence(make_repo({**SHOP, **files}), check)
    assert "report.py" in {at.path for at in found.locations}


def test_a_checker_that_stumbles_over_a_wrong_value_stays_frozen(make_repo) -> None:
    """The KeyError comes up in the checker, and the fault is in what the program returned."""
    files = {
        "verify.py": "from shop.report import report\n\nassert report()['count'] == 1\n"
        "assert report()['total'] == 5\n",
        "shop/report.py": "def report():\n    return {'count': 1}\n",
    }
    found = evidence(make_repo({**SHOP, **files}), f"{sys.executable} verify.py")
    assert "verify.py" in found.permission.frozen
    assert "verify.py" not in {at.path for at in found.locations}


def test_a_file_that_the_check_only_reads_is_free(make_repo) -> None:
    files = {
        "verify.py": "import runpy, sys\nassert runpy.run_path(sys.argv[1])['VALUE'] == 2\n",
        "prog.py": "VALUE = 1\n",
    }
    found = evidence(make_repo({**SHOP, **files}), f"{sys.executable} verify.py prog.py")
    assert "prog.py" in {at.path for at in found.locations}
    assert "verify.py" in found.permission.frozen
