"""Puts on IBM MQ by the rules of the product alone: what the job's walk is compared with.

An application's MQOPEN or MQPUT1 with the checks of the put that follows, and the way over several
queue managers: a channel empties a transmission queue and, at its far end, opens the queue like an
application that sets both names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Final, TypeAlias

from redrive.messages.reasons import Reason
from redrive.topology.mq.network import MqNetwork
from redrive.topology.mq.objects import SHARED_TRANSMISSION_QUEUE, LocalQueue
from redrive.topology.mq.queue_manager import QueueManager
from redrive.topology.mq.resolution import open_queue
from redrive.topology.mq.resolver import reply_to_names
from redrive.topology.mq.results import (
    Call,
    OpenOption,
    OpenRequest,
    Persistence,
    Resolution,
    TargetKind,
    job_request,
)
from redrive.topology.names import NO_NAMES, Names
from redrive.topology.put import check_limits

Depths: TypeAlias = Mapping[str, Mapping[str, int]]
_NO_DEPTHS: Final[Depths] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class PutMessage:
    """The message fields that a put checks."""

    length: int = 0
    """Bytes of the body."""
    persistence: Persistence = Persistence.AS_Q_DEF
    reply_to: Names = NO_NAMES
    """ReplyToQ and ReplyToQMgr."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PutResult:
    """The result of one put at one queue manager."""

    resolution: Resolution
    """The resolution of its names; for a cluster queue chosen per message, the choice."""
    reason: Reason = Reason.NONE
    detail: str = ""
    is_persistent: bool = False
    reply_to: Names = NO_NAMES
    """The reply-to names as they travel."""

    @property
    def is_failed(self) -> bool:
        return self.reason is not Reason.NONE


def put_message(
    network: MqNetwork,
    at: str,
    request: OpenRequest,
    message: PutMessage,
    *,
    depths: Mapping[str, int] | None = None,
) -> PutResult:
    """Open a queue at a manager and put one message to it.

    ``depths`` are the messages on queues of this manager before the put; others are empty.
    """
    opened = open_queue(network, at, request)
    if opened.target is TargetKind.PER_MESSAGE:
        opened = open_queue(network, at, replace(request, call=Call.MQPUT1))
    if opened.is_failed:
        return PutResult(resolution=opened, reason=opened.reason, detail=opened.detail)
    if OpenOption.OUTPUT not in request.options:
        detail = "the object was not opened for output"
        return PutResult(resolution=opened, reason=Reason.NOT_OPEN_FOR_OUTPUT, detail=detail)
    persistence = message.persistence
    if persistence is Persistence.AS_Q_DEF:
        persistence = Persistence(opened.default_persistence)
    manager = network.queue_managers[at]
    reason, detail = _refusal(
        manager, opened, replace(message, persistence=persistence), depths or {}
    )
    return PutResult(
        resolution=opened,
        reason=reason,
        detail=detail,
        is_persistent=persistence is Persistence.PERSISTENT,
        reply_to=reply_to_names(manager, message.reply_to),
    )


def _refusal(
    manager: QueueManager, opened: Resolution, message: PutMessage, depths: Mapping[str, int]
) -> tuple[Reason, str]:
    queue = manager.queue(opened.destination.queue)
    is_copied = isinstance(queue, LocalQueue) and queue.stream_queue and queue.must_duplicate
    if opened.target is TargetKind.TOPIC or (opened.target is TargetKind.LOCAL and is_copied):
        return Reason.FUNCTION_NOT_SUPPORTED, "nothing is published or copied"
    for used in opened.path:
        if not used.put_enabled:
            return Reason.PUT_INHIBITED, f"{used} has PUT(DISABLED)"
    depth = depths.get(opened.put_queue, 0)
    refusal = check_limits(opened.limits, message.length, depth, message.persistence)
    if refusal is None:
        return Reason.NONE, ""
    return Reason(refusal.reason), f"{opened.put_queue}: {refusal.detail}"


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


def follow_route(
    network: MqNetwork,
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
    while (sent := puts[-1].resolution).target is TargetKind.REMOTE:
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


def _next_hop(network: MqNetwork, sent: Resolution) -> tuple[Hop, tuple[End, str] | None]:
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
