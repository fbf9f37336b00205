"""The identity of this machine, and the processes that run on it.

A host name does not identify a machine: two machines, or two containers, may share one. The kernel
makes a random id at each boot, which is unique, and a pid is looked up in the process table of a
pid namespace of this boot.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Mapping
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


def stopped_descendants(pid: int, program: str) -> frozenset[int]:
    """The stopped processes (SIGSTOP, ``proc_pid_stat(5)``: T) that a process started.

    Args:
        pid: The process; those that its children started count as well.
        program: A part of the command lines to look for.
    """
    parents: dict[int, int] = {}
    stopped = []
    for file in _PROC.glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            # The name before the last parenthesis may hold anything.
            state, parent = file.read_text(errors="replace").rpartition(")")[2].split()[:2]
            number = int(file.parent.name)
            parents[number] = int(parent)
            if state == "T" and program.encode() in (file.parent / "cmdline").read_bytes():
                stopped.append(number)
    return frozenset(process for process in stopped if pid in _ancestors(process, parents))


def _ancestors(pid: int, parents: Mapping[int, int]) -> set[int]:
    ancestors: set[int] = set()
    while (pid := parents.get(pid, 0)) and pid not in ancestors:
        ancestors.add(pid)
    return ancestors


def _identity(namespace: str) -> str:
    try:
        kernel = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        return f"{kernel}/{(_PROC / 'self/ns' / namespace).readlink()}"
    except OSError:
        return _UNKNOWN
