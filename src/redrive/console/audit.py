"""The audit log of the console: a file with one JSON entry a line."""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from fastapi import Request

from redrive.console.access import User, current_user
from redrive.errors import EnvironmentFault
from redrive.printable import printable

_NAME: Final = "console-audit.jsonl"


class Audit:
    """The audit of one job's console, a file in the folder that ``folder`` returns."""

    def __init__(self, folder: Callable[[], Path]) -> None:
        self._folder = folder

    def write(self, user: User, action: str, about: str = "", because: str = "") -> None:
        """Append an entry; raises ``EnvironmentFault`` if that fails.

        An entry is written before its action, so that no action goes unrecorded.
        """
        entry = {
            "time": datetime.now(UTC).isoformat(),
            "user": printable(user.name),
            "role": user.role.name.lower(),
            "by": user.by.value,
            "action": action,
            "about": printable(about),
            **({"because": printable(because)} if because else {}),
        }
        path = self._folder() / _NAME
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            target = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                os.write(target, json.dumps(entry).encode() + b"\n")
            finally:
                os.close(target)
        except OSError as error:
            raise EnvironmentFault(
                f"the audit {path} cannot be written: {error.strerror}",
                hint="run the console as a user who may write to the job's folder",
            ) from error

    def of(self, action: str) -> Callable[[Request], Awaitable[None]]:
        """A dependency that records a request before it is carried out."""

        async def record(request: Request) -> None:
            self.write(current_user(request), action, "/".join(request.path_params.values()))

        return record
