"""What changes: one look at the job for all browsers, however many there are."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Final

import anyio.to_thread
import orjson

from redrive.console.documents import Documents
from redrive.errors import RedriveError, TransientFault

__all__ = ["Live"]

_AGE: Final = 1.0
"""Seconds for which a look at the job holds."""
_ALIVE: Final = 15.0
"""Seconds after which a line without meaning keeps the connection open."""
_UNIMPORTANT: Final = ("time", "rates")
"""What changes without anything having happened."""


@dataclass(slots=True)
class _Look:
    at: float
    document: dict[str, Any]


class Live:
    """The state of the job, and events whenever it changes.

    Args:
        documents: Those of the job.
    """

    def __init__(self, documents: Documents) -> None:
        self._documents = documents
        self._look: _Look | None = None
        self._looking = asyncio.Lock()

    async def status(self) -> dict[str, Any]:
        """``Documents.status``, at most ``_AGE`` seconds old; errors as there."""
        async with self._looking:
            look = self._look
            if look is None or time.monotonic() - look.at > _AGE:
                document = await anyio.to_thread.run_sync(self._documents.status)
                look = self._look = _Look(time.monotonic(), document)
        return look.document

    async def events(self) -> AsyncIterator[bytes]:
        """Server-sent events: ``changed`` whenever the state of the job is another one.

        See the WHATWG HTML Living Standard, section 9.2.
        """
        seen, said = b"", time.monotonic()
        yield b"retry: 2000\n\n"
        while True:
            now = seen
            with contextlib.suppress(RedriveError, TransientFault):  # the page itself shows it
                now = _digest(await self.status())
            if now != seen:
                seen, said = now, time.monotonic()
                yield b"event: changed\ndata: \n\n"
            elif time.monotonic() - said > _ALIVE:
                said = time.monotonic()
                yield b": \n\n"
            await asyncio.sleep(_AGE)


def _digest(document: dict[str, Any]) -> bytes:
    told = {name: value for name, value in document.items() if name not in _UNIMPORTANT}
    return orjson.dumps(told, default=str, option=orjson.OPT_NON_STR_KEYS)
