"""The identity of this machine, and the processes that run on it.

A host name does not identify a machine: two machines, or two containers, may share one. The kernel
makes a random id at each boot, which is unique, and a pid is looked up in the process table of a
pid namespace of this boot.
"""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
_UNKNOWN: Final = f"unknown-{uuid.uuid4().hex}"
"""Replaces the boot id of a kernel without one; unique to this process."""


def boot() -> str:
    """An id of this boot of this machine and the origin of its clock (``time_namespaces(7)``)."""
    return _identity("time")


def process_table() -> str:
    """An id of the process table that this process sees (``pid_namespaces(7)``)."""
    return _identity("pid")


def runs(pid: int) -> bool:
    """Whether a process with this number exists in this pid namespace, of any user."""
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
