"""Looking after another process."""

from __future__ import annotations

import ctypes
import os
from typing import Any

_QUERY, _DENIED, _STILL_ACTIVE = 0x1000, 5, 259
"""PROCESS_QUERY_LIMITED_INFORMATION, ERROR_ACCESS_DENIED, STILL_ACTIVE of the Windows API."""


def is_alive(process: int) -> bool:
    """Is there such a process on this machine?"""
    if process <= 0:
        return False
    if os.name == "nt":
        return _is_alive_on_windows(process)
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _is_alive_on_windows(process: int, kernel: Any = None) -> bool:
    """There, `os.kill` with signal 0 does not ask: it ends the process."""
    if kernel is None:
        kernel = ctypes.WinDLL("kernel32")  # type: ignore[attr-defined]
        kernel.OpenProcess.restype = ctypes.c_void_p
    handle = kernel.OpenProcess(_QUERY, False, process)
    if not handle:
        return bool(kernel.GetLastError() == _DENIED)
    code = ctypes.c_ulong()
    try:
        known = kernel.GetExitCodeProcess(ctypes.c_void_p(handle), ctypes.byref(code))
        return not known or code.value == _STILL_ACTIVE
    finally:
        kernel.CloseHandle(ctypes.c_void_p(handle))
