"""Reloads a running job when its settings, rules tables or definitions change.

The same as ``redrive restart``, within the job's process.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import Final, Self

from redrive.configuration import JobConfiguration
from redrive.errors import RedriveError
from redrive.kafka.deadline import PATIENCE
from redrive.operations.restart import restart

_LOOK: Final = 2.0
"""Seconds between two checks. A change applies once two checks saw the same content, so that files
written one after the other are one change. The kubelet takes a minute to write them."""

_LOGGER: Final = logging.getLogger("redrive.watch")


class FileWatch:
    """Requests one restart of a job for each complete change of its files.

    The job checks the files, and reports what it refuses.
    """

    def __init__(
        self,
        digest: Callable[[], bytes],
        *,
        taken: bytes,
        restart: Callable[[], object],
        every: float = _LOOK,
    ) -> None:
        """Start without a check; ``taken`` is the digest of the files that the job started with."""
        self._digest = digest
        self._taken = self._seen = taken
        self._restart = restart
        self._every = every
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="redrive-watch", daemon=True)

    @classmethod
    def of(cls, job: JobConfiguration, digest: Callable[[], bytes], taken: bytes) -> FileWatch:
        """A watch for a job that runs in this process."""
        return cls(digest, taken=taken, restart=partial(restart, job, timeout=PATIENCE))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()

    def look(self) -> None:
        """Request a restart if the files have changed, but not since the last check."""
        before, self._seen = self._seen, self._digest()
        if self._seen == self._taken or self._seen != before:
            return
        self._taken = self._seen
        _LOGGER.info("settings, tables or definitions changed: reloading")
        try:
            self._restart()
        except RedriveError as error:
            # The answer is late; the job itself logs what it accepts or refuses.
            _LOGGER.info("%s", error.message)

    def _run(self) -> None:
        while not self._ended.wait(self._every):
            self.look()
