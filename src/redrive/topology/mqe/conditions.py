"""What decides about a put besides definitions and the message: the state of the moment."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from redrive.topology.names import Names


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """The state of the network at the moment of a put."""

    down: Collection[tuple[str, str]] = frozenset()
    """Links that cannot be used: the manager that calls, the name of its connection."""
    depths: Mapping[tuple[str, Names], int] = field(default_factory=dict)
    """Messages on queues: the manager and the identity of the queue; a queue that is not named
    is empty."""
    received: Collection[tuple[str, str]] = frozenset()
    """Messages that were put before: the manager and the identity of the message."""
    now: int | None = None
    """Milliseconds since 1970-01-01 UTC; None: nothing expires."""


NORMAL = Conditions()
"""Every link up, every queue empty, no message seen before, no clock."""
