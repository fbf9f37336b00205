"""The route of a message by the definitions: the opens of several queue managers in turn.

A channel empties a transmission queue and, at its far end, opens the queue like an application that
sets both names. For a message that the far end cannot put, the job decides (``redrive.engine``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Final, TypeAlias

from redrive.messages.reasons import Reason
from redrive.topology.mq.network import Network
from redrive.topology.mq.objects import SHARED_TRANSMISSION_QUEUE, LocalQueue
from redrive.topology.mq.puts import put_message
from redrive.topology.mq.results import (
    OpenRequest,
    Persistence,
    PutMessage,
    PutResult,
    Resolution,
    Target,
    job_request,
)
from redrive.topology.names import NO_NAMES, Names

Depths: TypeAlias = Mapping[str, Mapping[str, int]]
_NO_DEPTHS: Final[Depths] = MappingProxyType({})


class End(StrEnum):
    """How the route of a message ends."""

    QUEUE = "on a queue"
    HELD = "stays on a transmission queue"
    REFUSED = "refused to the application"
    UNDELIVERED = "refused at the far end"
    OUTSIDE = "leaves the topology"
    LOOP = "circulates forever"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hop:
    """One transmission queue of a route."""

    transmission_queue: str
    queue_manager: str
    """The sending manager."""
    to: str
    """The receiving manager; empty if no channel serves the queue."""

    def __str__(self) -> str:
        """``QM1 xmitq QM2``."""
        return f"{self.queue_manager} xmitq {self.transmission_queue}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """The route of one message."""

    puts: tuple[PutResult, ...]
    """What each manager did, in order; the last one may have failed."""
    hops: tuple[Hop, ...]
    end: End
    final: Names = NO_NAMES
    """Manager and queue where the message ends; blank if nowhere."""
    detail: str = ""

    @property
    def reason(self) -> Reason:
        """Why the last put failed; ``NONE`` if it did not."""
        return self.puts[-1].reason

    @property
    def advice(self) -> str:
        """What to change if it failed."""
        return self.puts[-1].advice if self.reason else ""


def follow_route(
    network: Network,
    at: str,
    request: OpenRequest,
    message: PutMessage | None = None,
    *,
    depths: Depths = _NO_DEPTHS,
) -> Route:
    """Follow a put of a message over the managers that it reaches.

    ``depths`` are the messages on queues before the put, by manager and queue; others are empty. It
    terminates on every topology, because it recognises names that return to a manager.
    """
    message = message or PutMessage()
    puts = [put_message(network, at, request, message, depths=depths.get(at))]
    hops: list[Hop] = []

    def ended(end: End, *, final: Names = NO_NAMES, detail: str = "") -> Route:
        detail = detail or puts[-1].detail
        return Route(puts=tuple(puts), hops=tuple(hops), end=end, final=final, detail=detail)

    if puts[-1].is_failed:
        return ended(End.REFUSED)
    # Persistence and reply-to names are those of the first put from here on.
    persistence = Persistence(int(puts[0].is_persistent))
    message = replace(message, persistence=persistence, reply_to=puts[0].reply_to)
    seen: set[tuple[str, Names]] = set()
    while (sent := puts[-1].resolution).target is Target.REMOTE:
        hop, stop = _next_hop(network, sent)
        hops.append(hop)
        if stop is not None:
            end, detail = stop
            held = Names(queue=sent.transmission_queue, queue_manager=sent.opened_at)
            return ended(end, final=held if end is End.HELD else NO_NAMES, detail=detail)
        arrival = hop.to, sent.destination
        if arrival in seen:
            return ended(End.LOOP, detail=f"{sent.destination} returns to {hop.to}")
        seen.add(arrival)
        is_of_cluster = sent.transmission_queue != SHARED_TRANSMISSION_QUEUE
        received = job_request(
            sent.destination.queue,
            sent.destination.queue_manager,
            seed=request.seed,
            from_cluster_channel=bool(sent.next_queue_manager) and is_of_cluster,
        )
        puts.append(put_message(network, hop.to, received, message, depths=depths.get(hop.to)))
        if puts[-1].is_failed:
            return ended(End.UNDELIVERED)
    final = Names(queue=sent.destination.queue, queue_manager=sent.opened_at)
    return ended(End.QUEUE, final=final)


def _next_hop(network: Network, sent: Resolution) -> tuple[Hop, tuple[End, str] | None]:
    """The next hop from a transmission queue, and why the route ends if there is none."""
    at, queue = sent.opened_at, sent.transmission_queue
    hop = Hop(transmission_queue=queue, queue_manager=at, to="")
    written = network.queue_managers[at].queue(queue)
    if isinstance(written, LocalQueue) and not written.get_enabled:
        detail = f"transmission queue {queue} of {at} has GET(DISABLED), so its channel stops"
        return hop, (End.HELD, detail)
    link = network.link(queue=queue, queue_manager=at)
    hop = replace(hop, to=sent.next_queue_manager or (link.queue_manager if link else ""))
    if not hop.to:
        return hop, (End.HELD, network.why_held(queue=queue, queue_manager=at))
    if hop.to not in network:
        return hop, (End.OUTSIDE, f"queue manager {hop.to} is not part of the topology")
    return hop, None
