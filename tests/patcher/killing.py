"""Kills a piece of work before its n-th step on files, in a process of its own."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

STEPS = {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.chmod", "os.truncate"}
"""Audit events that stand for a step; each is told before the step is taken."""


def finishes(work: Callable[[], Any], step: int, below: Path) -> bool:
    """Whether `work` ends before its `step`-th step; else it is killed there.

    A step is a use of a file below the folder, or the start of a program.

    Raises `RuntimeError` where it ends with an exception.
    """
    child = os.fork()
    if child == 0:
        _work(work, step, str(below))
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return False
    if os.WEXITSTATUS(status):
        raise RuntimeError("the work failed in its own process")
    return True


def _work(work: Callable[[], Any], step: int, below: str) -> None:
    left = step

    def count(event: str, details: tuple[Any, ...]) -> None:
        nonlocal left
        on_file = event in STEPS and str(details[0]).startswith(below)
        if on_file or event == "subprocess.Popen":
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)
    try:
        work()
    except BaseException:
        os._exit(1)
    os._exit(0)
