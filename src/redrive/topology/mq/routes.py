"""The way of a message over several queue managers.

A channel moves what a transmission queue holds and, at its far end, opens the queue as an
application that fills both names; what cannot be put there goes to the receiver's dead-letter
queue (resolution specification B.8, B.11).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial

from redrive.messages import MQDLH_LENGTH
from redrive.messages.reasons import TEMPORARY, Reason
from redrive.messages.reports import ReportOptions
from redrive.topology.mq.network import Link, Network
from redrive.topology.mq.objects import (
    CLUSTER_TRANSMISSION_QUEUE,
    SHARED_TRANSMISSION_QUEUE,
    Channel,
    LocalQueue,
    Queue,
)
from redrive.topology.mq.puts import put_message
from redrive.topology.mq.queue_manager import QueueManager
from redrive.topology.mq.results import (
    OpenRequest,
    Persistence,
    PutMessage,
    PutResult,
    Resolution,
    Target,
    Used,
    job_request,
)
from redrive.topology.names import NO_NAMES, Names
from redrive.topology.put import QueueLimits, check_limits


class End(StrEnum):
    """How a message's way ends."""

    QUEUE = "on a queue"
    TOPIC = "published to a topic"
    DEAD_LETTER = "on a dead-letter queue"
    HELD = "stays on a transmission queue"
    DISCARDED = "discarded"
    REFUSED = "refused to the application"
    OUTSIDE = "leaves the topology"
    LOOP = "circulates for ever"


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutedMessage:
    """A message that is sent on its way."""

    put: PutMessage = PutMessage()  # noqa: RUF009 - the value is frozen
    """What each put checks."""
    expiry: int | None = None
    """Time it has left, in tenths of a second; None if it never expires."""
    discard_if_undeliverable: bool = False
    """Whether the report options ask to discard it instead of a dead letter."""
    report: ReportOptions = ReportOptions()  # noqa: RUF009 - the value is frozen
    """What it asks to be told (MQMD, field Report)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hop:
    """The way over one transmission queue."""

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
    """The whole way of one message."""

    puts: tuple[PutResult, ...]
    """What each manager did, in order; the last one may have failed."""
    hops: tuple[Hop, ...]
    """The transmission queues it was put on, in order."""
    end: End
    """How the way ends."""
    final: Names = NO_NAMES
    """Manager and queue (or topic object) where the message is in the end; blank if nowhere."""
    reason: Reason = Reason.NONE
    """Why it did not reach its queue."""
    detail: str = ""
    """One sentence on that."""
    at_fault: Used | None = None
    """The definition to look at on that, as far as one can be named."""
    destination: Names = NO_NAMES
    """Names that a dead-letter header records: those that travelled with the message."""
    retried_by: Channel | None = None
    """The receiving end that tries a put that failed some more times before the way ends so."""

    @property
    def advice(self) -> str:
        """What to change if it did not reach its queue."""
        return self.puts[-1].advice if self.reason else ""


@dataclass(slots=True)
class _Journey:
    """A message on its way."""

    network: Network
    message: RoutedMessage
    depths: Mapping[str, Mapping[str, int]]
    seed: int
    puts: list[PutResult] = field(default_factory=list)
    hops: list[Hop] = field(default_factory=list)
    left: int | None = None
    """What is left of the expiry."""
    publishes: bool = True
    """Whether topic objects can be put to."""

    def put(self, at: str, request: OpenRequest) -> PutResult:
        """Put at one manager, and keep what became of it."""
        depths = self.depths.get(at)
        result = put_message(self.network, at, request, self.message.put, depths=depths)
        self.puts.append(result)
        return result

    def ended(
        self,
        end: End,
        *,
        final: Names = NO_NAMES,
        reason: Reason = Reason.NONE,
        detail: str = "",
        destination: Names = NO_NAMES,
    ) -> Route:
        """The route as it stands."""
        return Route(
            puts=tuple(self.puts),
            hops=tuple(self.hops),
            end=end,
            final=final,
            reason=reason,
            detail=detail,
            at_fault=self.puts[-1].at_fault if reason else None,
            destination=destination,
        )

    def follow(self, at: str, request: OpenRequest) -> Route:
        """From the application's put to the end."""
        result = self.put(at, request)
        if result.is_failed:
            return self.ended(End.REFUSED, reason=result.reason, detail=result.detail)
        self._settle(result)
        seen: set[tuple[str, Names]] = set()
        while result.resolution.target is Target.REMOTE:
            arrival = self._arrival(result.resolution)
            if isinstance(arrival, Route):
                return arrival
            to, link = arrival
            destination = result.resolution.destination
            if (to, destination) in seen:
                detail = f"{destination} comes back to {to}"
                return self.ended(End.LOOP, detail=detail, destination=destination)
            seen.add((to, destination))
            result = self.put(to, self._receiver_request(result.resolution))
            if result.is_failed:
                route = self._undelivered(to, link, result, destination)
                is_retried = result.reason in TEMPORARY and link.receiver.message_retries > 0
                return replace(route, retried_by=link.receiver) if is_retried else route
        opened = result.resolution
        end = End.TOPIC if opened.target is Target.TOPIC else End.QUEUE
        return self.ended(
            end, final=Names(queue=opened.destination.queue, queue_manager=opened.opened_at)
        )

    def _settle(self, result: PutResult) -> None:
        """Persistence and reply-to names are those of the first put from here on."""
        persistence = Persistence(int(result.is_persistent))
        put = replace(self.message.put, persistence=persistence, reply_to=result.reply_to)
        self.message = replace(self.message, put=put)

    def _receiver_request(self, sent: Resolution) -> OpenRequest:
        request = job_request(
            sent.destination.queue,
            sent.destination.queue_manager,
            seed=self.seed,
            from_cluster_channel=bool(sent.next_queue_manager)
            and sent.transmission_queue != SHARED_TRANSMISSION_QUEUE,
        )
        return replace(request, publishes=self.publishes)

    def _arrival(self, sent: Resolution) -> tuple[str, Link] | Route:
        """The manager at the end of a transmission queue, or the end of the way."""
        at, queue = sent.opened_at, sent.transmission_queue
        written = self.network.queue_managers[at].queue(queue)
        if isinstance(written, LocalQueue) and not written.get_enabled:
            self.hops.append(Hop(transmission_queue=queue, queue_manager=at, to=""))
            detail = f"transmission queue {queue} of {at} has GET(DISABLED), so its channel stops"
            return self.ended(End.HELD, final=Names(queue=queue, queue_manager=at), detail=detail)
        link = self.network.link(queue=queue, queue_manager=at)
        if sent.next_queue_manager:
            link = replace(link or self._cluster_link(sent), queue_manager=sent.next_queue_manager)
        to = link.queue_manager if link else ""
        self.hops.append(Hop(transmission_queue=queue, queue_manager=at, to=to))
        if link is None:
            detail = self.network.why_held(queue=queue, queue_manager=at)
            return self.ended(End.HELD, final=Names(queue=queue, queue_manager=at), detail=detail)
        if self.left is not None:
            self.left -= link.delay
            if self.left <= 0:
                detail = f"the message expired on transmission queue {queue} of {at}"
                return self.ended(End.DISCARDED, detail=detail)
        if link.queue_manager not in self.network:
            detail = f"queue manager {link.queue_manager} is not part of the topology"
            return self.ended(End.OUTSIDE, detail=detail, destination=sent.destination)
        return link.queue_manager, link

    def _cluster_link(self, sent: Resolution) -> Link:
        name = sent.next_queue_manager
        receiver = None
        if name in self.network:
            receiver = self.network.queue_managers[name].channels.get(sent.channel)
        return Link(queue_manager=name, receiver=receiver) if receiver else Link(queue_manager=name)

    def _undelivered(self, at: str, link: Link, result: PutResult, destination: Names) -> Route:
        """What a receiving channel does with a message it cannot put (B.11)."""
        ended = partial(self.ended, reason=result.reason, destination=destination)
        if self.message.discard_if_undeliverable:
            return ended(End.DISCARDED, detail=result.detail)
        manager = self.network.queue_managers[at]
        problem = self._dead_letter_problem(manager, link)
        if not problem:
            final = Names(queue=manager.attributes.dead_letter_queue, queue_manager=at)
            return ended(End.DEAD_LETTER, final=final, detail=result.detail)
        detail = f"{result.detail}; {problem}"
        if link.is_fast and self.message.put.persistence is Persistence.NOT_PERSISTENT:
            return ended(End.DISCARDED, detail=detail)
        last = self.hops[-1]
        final = Names(queue=last.transmission_queue, queue_manager=last.queue_manager)
        return ended(End.HELD, final=final, detail=detail)

    def _dead_letter_problem(self, manager: QueueManager, link: Link) -> str:
        """Why a manager's dead-letter queue cannot take the message; empty if it can."""
        if not link.receiver.use_dead_letter_queue:
            return f"channel {link.receiver.name} has USEDLQ(NO)"
        if problem := dead_letter_queue_problem(manager):
            return problem
        name, put = manager.attributes.dead_letter_queue, self.message.put
        limits = limits_of(manager.queue(name), manager)
        depth = self.depths.get(manager.name, {}).get(name, 0)
        # The header is a part of the message, and counts.
        refusal = check_limits(limits, put.length + MQDLH_LENGTH, depth, put.persistence)
        return f"dead-letter queue {name}: {refusal.detail}" if refusal else ""


def dead_letter_queue_problem(manager: QueueManager) -> str:
    """Why a manager's DEADQ cannot serve; empty if it is a local queue with USAGE(NORMAL)."""
    name = manager.attributes.dead_letter_queue
    if not name:
        return f"{manager.name} has no DEADQ"
    queue = manager.queue(name)
    if queue is None:
        return f"DEADQ of {manager.name} names {name}, which does not exist"
    if not isinstance(queue, LocalQueue) or queue.is_transmission_queue:
        return f"DEADQ of {manager.name} names {queue}, which is no QLOCAL with USAGE(NORMAL)"
    return ""


def default_transmission_queue_problem(manager: QueueManager) -> str:
    """Why a manager's DEFXMITQ cannot serve, with the code that a put gets; empty if it can."""
    name = manager.attributes.default_transmission_queue
    if not name:
        return ""
    queue = manager.queue(name)
    if queue is None:
        return f"DEFXMITQ of {manager.name} names {name}, which does not exist (2197)"
    if not isinstance(queue, LocalQueue):
        return f"DEFXMITQ of {manager.name} names {queue}, which is no QLOCAL (2198)"
    if name == CLUSTER_TRANSMISSION_QUEUE:
        return f"DEFXMITQ of {manager.name} names {name}, which is the clusters' own (2199)"
    if not queue.is_transmission_queue:
        return f"DEFXMITQ of {manager.name} names {queue}, which has USAGE(NORMAL) (2199)"
    return ""


def limits_of(queue: Queue | None, manager: QueueManager) -> QueueLimits:
    """What a put to a queue has to pass on its manager; without a local queue none passes."""
    if not isinstance(queue, LocalQueue):
        return QueueLimits(put_enabled=False)
    return QueueLimits(
        put_enabled=queue.put_enabled,
        max_message_length=queue.max_message_length,
        max_depth=queue.max_depth,
        queue_manager_max_message_length=manager.attributes.max_message_length,
    )


def follow_route(
    network: Network,
    at: str,
    request: OpenRequest,
    message: RoutedMessage | None = None,
    *,
    depths: Mapping[str, Mapping[str, int]] | None = None,
) -> Route:
    """Follow a put to where its message ends.

    It ends on every topology: names that come back to a manager are recognised.

    Args:
        network: The queue managers.
        at: Name of the manager to which the application is connected.
        request: The arguments of its open.
        message: The message; by default an empty one that never expires.
        depths: Messages on queues before the put: manager to queue to number.

    Returns:
        The way and its end.

    Raises:
        KeyError: The network has no manager ``at``.
    """
    message = message or RoutedMessage()
    journey = _Journey(
        network,
        message,
        depths or {},
        request.seed,
        left=message.expiry,
        publishes=request.publishes,
    )
    return journey.follow(at, request)
