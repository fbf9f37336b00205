"""Restarts of a running job when settings, rules tables or definitions change.

It does what ``redrive restart`` does, in the process of the job.
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
"""Seconds between two looks. A change is taken up once two looks saw the same: files that are
written one after the other are one change. The kubelet takes a minute to write them."""

_LOGGER: Final = logging.getLogger("redrive.watch")


class FileWatch:
    """Asks a job to restart once for each complete change of its files.

    The job itself checks the files, and says what it refuses.
    """

    def __init__(
        self,
        digest: Callable[[], bytes],
        *,
        taken: bytes,
        restart: Callable[[], object],
        every: float = _LOOK,
    ) -> None:
        """Look at nothing yet; ``taken`` is the digest of the files that the job started with."""
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
        """Requests a restart if the files changed, but not since the last look."""
        before, self._seen = self._seen, self._digest()
        if self._seen == self._taken or self._seen != before:
            return
        self._taken = self._seen
        _LOGGER.info("settings, tables or definitions changed: restarting with them")
        try:
            self._restart()
        except RedriveError as error:
            # The answer is late; the job says itself what it takes and what it refuses.
            _LOGGER.info("%s", error.message)

    def _run(self) -> None:
        while not self._ended.wait(self._every):
            self.look()
