"""What changes: one look at the job for all browsers that see the same of it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Final

import anyio.to_thread
import orjson

from redrive.console.access import Scope
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
        self._looks: dict[Scope, _Look] = {}
        self._looking = asyncio.Lock()

    async def status(self, scope: Scope) -> dict[str, Any]:
        """``Documents.status``, at most ``_AGE`` seconds old; errors as there.

        Args:
            scope: What of the job it is about.
        """
        async with self._looking:
            self._looks = {
                one: look for one, look in self._looks.items() if time.monotonic() - look.at <= _AGE
            }
            look = self._looks.get(scope)
            if look is None:
                documents = self._documents.within(scope)
                document = await anyio.to_thread.run_sync(documents.status)
                look = self._looks[scope] = _Look(time.monotonic(), document)
        return look.document

    async def events(self, scope: Scope) -> AsyncIterator[bytes]:
        """Server-sent events: ``changed`` whenever the state of the job is another one.

        See the WHATWG HTML Living Standard, section 9.2.

        Args:
            scope: What of the job they are about.
        """
        seen, said = b"", time.monotonic()
        yield b"retry: 2000\n\n"
        while True:
            now = seen
            with contextlib.suppress(RedriveError, TransientFault):  # the page itself shows it
                now = _digest(await self.status(scope))
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
