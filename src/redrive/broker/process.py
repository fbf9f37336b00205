"""Background processes that outlive the command which started them."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

_PROC = Path("/proc")
_POLL_INTERVAL = 0.02  # seconds


def spawn(command: Sequence[str], log: Path, *, folder: Path) -> int:
    """Start a process in its own session, which no terminal signal reaches; returns its id.

    Its standard output and error go to the log.
    """
    with log.open("ab") as output:
        process = subprocess.Popen(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    # Only the id is kept: another command may stop the process.
    process.returncode = 0
    return process.pid


def is_alive(pid: int, mark: str) -> bool:
    """Whether a process runs and is the right one, not a later one with the same id.

    An ending process counts as alive until it has released its files and ports. ``mark`` is a text
    in its command line, such as its folder.
    """
    with suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)  # an ended child would otherwise stay in the process table
    if not _PROC.joinpath("self").exists():
        return mark in _listed_command_line(pid)
    process = _PROC / str(pid)
    try:
        command_line = process.joinpath("cmdline").read_bytes().decode(errors="replace")
        # It is empty while a process begins and while it ends.
        return mark in command_line if command_line else not _is_zombie(process)
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until_gone(pid: int, mark: str, timeout: float) -> bool:
    """Wait until a process has ended; False if it still runs after ``timeout`` seconds."""
    deadline = time.monotonic() + timeout
    while is_alive(pid, mark):
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_INTERVAL)
    return True


def send_signal(pid: int, mark: str, number: signal.Signals) -> None:
    """Send a signal to the right process, if it still runs."""
    if is_alive(pid, mark):
        os.kill(pid, number)


def _is_zombie(process: Path) -> bool:
    """Whether only the exit code of a process is left, without threads."""
    state = process.joinpath("stat").read_text().rpartition(")")[2].split()[0]
    return state in {"Z", "X"} and len(list(process.joinpath("task").iterdir())) <= 1


def _listed_command_line(pid: int) -> str:
    listing = subprocess.run(
        ["ps", "-ww", "-o", "command=", "-p", str(pid)],  # noqa: S607 - ps is found on the PATH
        capture_output=True,
        text=True,
        check=False,
    )
    return listing.stdout
