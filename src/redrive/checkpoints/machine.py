"""Which machine this process runs on, and which processes run beside it.

A machine is never told by its name: two of them may have the same one, and so may two containers.
The kernel makes a random id at each boot, which no other machine has, and the process table that a
pid is looked up in is that of a pid namespace of this boot.
"""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import Final

__all__ = ["boot", "process_table", "runs"]

_PROC: Final = Path("/proc")
_UNKNOWN: Final = f"unknown-{uuid.uuid4().hex}"
"""Stands for a machine whose kernel tells nothing: no other process has the same."""


def boot() -> str:
    """Names this boot of this machine and what its clock counts from (``time_namespaces(7)``)."""
    return _identity("time")


def process_table() -> str:
    """Names the process table in which this process looks up others (``pid_namespaces(7)``)."""
    return _identity("pid")


def runs(pid: int) -> bool:
    """Whether a process of this pid namespace exists, of any user.

    Args:
        pid: Its number.
    """
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _identity(namespace: str) -> str:
    try:
        kernel = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        return f"{kernel}/{(_PROC / 'self/ns' / namespace).readlink()}"
    except OSError:
        return _UNKNOWN
