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

_BUSY: Final = 0.2
"""Seconds between two checks while the job changes its state."""
_IDLE: Final = 1.0
"""Seconds between two checks after one without a change."""
_SHARE: Final = 3
"""A check takes at most one part in this many of the time, for ledgers of any size."""
_ALIVE: Final = 15.0
"""Seconds after which an empty comment keeps the connection open."""
_UNIMPORTANT: Final = {"time", "rates", "last_minute", "last_hour"}
"""Members, at any depth, that change without an event."""


class _Look(NamedTuple):
    until: float
    """When it expires, by the monotonic clock."""
    document: dict[str, Any]
    state: str
    """A digest of its relevant parts."""


class Live:
    """The state of the job, and events whenever it changes."""

    def __init__(self, documents: Documents) -> None:
        self._documents = documents
        self._looks: dict[Scope, _Look] = {}
        self._looking = asyncio.Lock()

    async def status(self, scope: Scope) -> dict[str, Any]:
        """``Documents.status`` of the last unexpired check; errors as there."""
        return (await self._look(scope)).document

    def state(self, scope: Scope) -> str:
        """The state at the last check, however old; empty if there was none."""
        look = self._looks.get(scope)
        return look.state if look else ""

    async def events(self, scope: Scope, seen: str) -> AsyncIterator[bytes]:
        """Server-sent events: ``changed`` whenever the state of the job changes.

        ``seen`` is a state not newer than what the page shows; empty if none is known. Source: the
        WHATWG HTML Living Standard, section 9.2.
        """
        said = time.monotonic()
        yield b"retry: 2000\n\n"
        while True:
            now, until = seen, time.monotonic() + _IDLE
            with contextlib.suppress(RedriveError, TransientFault):  # the page already shows it
                until, _, now = await self._look(scope)
            if now != seen:
                seen, said = now, time.monotonic()
                yield f"event: changed\nid: {now}\ndata: \n\n".encode()
            elif time.monotonic() - said > _ALIVE:
                said = time.monotonic()
                yield b": \n\n"
            await asyncio.sleep(until - time.monotonic())

    async def _look(self, scope: Scope) -> _Look:
        async with self._looking:
            look, began = self._looks.get(scope), time.monotonic()
            if look is None or began >= look.until:
                documents = self._documents.within(scope)
                document = await anyio.to_thread.run_sync(documents.status)
                text = orjson.dumps(
                    _important(document), default=str, option=orjson.OPT_NON_STR_KEYS
                )
                state = hashlib.blake2b(text, digest_size=8).hexdigest()
                pause = _IDLE if look is not None and look.state == state else _BUSY
                until = began + max(pause, _SHARE * (time.monotonic() - began))
                look = self._looks[scope] = _Look(until, document, state)
        return look


def _important(value: Any) -> Any:  # noqa: ANN401 - a part of a document
    """A document without its irrelevant parts."""
    if isinstance(value, dict):
        return {
            name: _important(member) for name, member in value.items() if name not in _UNIMPORTANT
        }
    return [*map(_important, value)] if isinstance(value, list) else value
