"""Server-sent events: one query of the job serves all browsers with the same scope."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import time
from collections.abc import AsyncIterator
from typing import Any, Final, NamedTuple

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


class _Look(NamedTuple):
    at: float
    document: dict[str, Any]
    state: str
    """A digest of what is important in it."""


class Live:
    """The state of the job, and events whenever it changes."""

    def __init__(self, documents: Documents) -> None:
        self._documents = documents
        self._looks: dict[Scope, _Look] = {}
        self._looking = asyncio.Lock()

    async def status(self, scope: Scope) -> dict[str, Any]:
        """``Documents.status``, at most ``_AGE`` seconds old; errors as there."""
        return (await self._look(scope)).document

    def state(self, scope: Scope) -> str:
        """The state at the last look, however long ago; empty if there was none."""
        look = self._looks.get(scope)
        return look.state if look else ""

    async def events(self, scope: Scope, seen: str) -> AsyncIterator[bytes]:
        """Server-sent events: ``changed`` whenever the state of the job is another one.

        ``seen`` is a state not newer than what the page shows; empty if none is known. Source: the
        WHATWG HTML Living Standard, section 9.2.
        """
        said = time.monotonic()
        yield b"retry: 2000\n\n"
        while True:
            now = seen
            with contextlib.suppress(RedriveError, TransientFault):  # the page itself shows it
                now = (await self._look(scope)).state
            if now != seen:
                seen, said = now, time.monotonic()
                yield f"event: changed\nid: {now}\ndata: \n\n".encode()
            elif time.monotonic() - said > _ALIVE:
                said = time.monotonic()
                yield b": \n\n"
            await asyncio.sleep(_AGE)

    async def _look(self, scope: Scope) -> _Look:
        async with self._looking:
            look = self._looks.get(scope)
            if look is None or time.monotonic() - look.at > _AGE:
                documents = self._documents.within(scope)
                document = await anyio.to_thread.run_sync(documents.status)
                look = self._looks[scope] = _Look(time.monotonic(), document, _digest(document))
        return look


def _digest(document: dict[str, Any]) -> str:
    important = {name: value for name, value in document.items() if name not in _UNIMPORTANT}
    text = orjson.dumps(important, default=str, option=orjson.OPT_NON_STR_KEYS)
    return hashlib.blake2b(text, digest_size=8).hexdigest()
