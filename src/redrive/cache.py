"""The folder of each user for what Redrive can fetch or make again."""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def cache_directory() -> Path:
    """The folder for jars and the like; it need not exist yet.

    ``REDRIVE_CACHE`` names it; else it is ``redrive`` under ``XDG_CACHE_HOME`` or under the
    platform's cache folder.
    """
    if chosen := os.environ.get("REDRIVE_CACHE"):
        return Path(chosen).expanduser().absolute()
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base) / "redrive"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "redrive"
    return Path.home() / ".cache" / "redrive"


@contextmanager
def exclusively(directory: Path) -> Iterator[None]:
    """Hold the lock of a folder, created if missing; others wait.

    The operating system frees it if the process dies.
    """
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / ".lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
