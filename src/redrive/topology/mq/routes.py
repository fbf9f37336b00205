"""The way that definitions give a message: the opens of several queue managers, one by one.

A channel moves what a transmission queue holds and, at its far end, opens the queue as an
application that fills both names (resolution specification B.8). What becomes of a message that
the far end cannot put is decided by the job (``redrive.engine``), and not told here.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum

from redrive.messages.reasons import Reason
from redrive.topology.mq.network import Link, Network
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


class End(StrEnum):
    """How the way of a message ends."""

    QUEUE = "on a queue"
    TOPIC = "published to a topic"
    HELD = "stays on a transmission queue"
    REFUSED = "refused to the application"
    UNDELIVERED = "refused at the far end"
    OUTSIDE = "leaves the topology"
    LOOP = "circulates for ever"


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
    """The way of one message."""

    puts: tuple[PutResult, ...]
    """What each manager did, in order; the last one may have failed."""
    hops: tuple[Hop, ...]
    end: End
    final: Names = NO_NAMES
    """Manager and queue (or topic object) where the message is in the end; blank if nowhere."""
    detail: str = ""

    @property
    def reason(self) -> Reason:
        """Why the last put failed; ``NONE`` if it did not."""
        return self.puts[-1].reason

    @property
    def advice(self) -> str:
        """What to change if it failed."""
        return self.puts[-1].advice if self.reason else ""


@dataclass(slots=True)
class _Journey:
    """A message on its way."""

    network: Network
    message: PutMessage
    seed: int
    puts: list[PutResult] = field(default_factory=list)
    hops: list[Hop] = field(default_factory=list)

    def put(self, at: str, request: OpenRequest) -> PutResult:
        result = put_message(self.network, at, request, self.message)
        self.puts.append(result)
        return result

    def ended(self, end: End, *, final: Names = NO_NAMES, detail: str = "") -> Route:
        detail = detail or self.puts[-1].detail
        return Route(
            puts=tuple(self.puts), hops=tuple(self.hops), end=end, final=final, detail=detail
        )

    def follow(self, at: str, request: OpenRequest) -> Route:
        result = self.put(at, request)
        if result.is_failed:
            return self.ended(End.REFUSED)
        self._settle(result)
        seen: set[tuple[str, Names]] = set()
        while result.resolution.target is Target.REMOTE:
            to = self._arrival(result.resolution)
            if isinstance(to, Route):
                return to
            destination = result.resolution.destination
            if (to, destination) in seen:
                return self.ended(End.LOOP, detail=f"{destination} comes back to {to}")
            seen.add((to, destination))
            result = self.put(to, self._receiver_request(result.resolution))
            if result.is_failed:
                return self.ended(End.UNDELIVERED)
        opened = result.resolution
        end = End.TOPIC if opened.target is Target.TOPIC else End.QUEUE
        return self.ended(
            end, final=Names(queue=opened.destination.queue, queue_manager=opened.opened_at)
        )

    def _settle(self, result: PutResult) -> None:
        """Persistence and reply-to names are those of the first put from here on."""
        persistence = Persistence(int(result.is_persistent))
        self.message = replace(self.message, persistence=persistence, reply_to=result.reply_to)

    def _receiver_request(self, sent: Resolution) -> OpenRequest:
        return job_request(
            sent.destination.queue,
            sent.destination.queue_manager,
            seed=self.seed,
            from_cluster_channel=bool(sent.next_queue_manager)
            and sent.transmission_queue != SHARED_TRANSMISSION_QUEUE,
        )

    def _arrival(self, sent: Resolution) -> str | Route:
        """The manager at the end of a transmission queue, or the end of the way."""
        at, queue = sent.opened_at, sent.transmission_queue
        held = Names(queue=queue, queue_manager=at)
        written = self.network.queue_managers[at].queue(queue)
        if isinstance(written, LocalQueue) and not written.get_enabled:
            self.hops.append(Hop(transmission_queue=queue, queue_manager=at, to=""))
            detail = f"transmission queue {queue} of {at} has GET(DISABLED), so its channel stops"
            return self.ended(End.HELD, final=held, detail=detail)
        to = sent.next_queue_manager or _far_end(self.network.link(queue=queue, queue_manager=at))
        self.hops.append(Hop(transmission_queue=queue, queue_manager=at, to=to))
        if not to:
            detail = self.network.why_held(queue=queue, queue_manager=at)
            return self.ended(End.HELD, final=held, detail=detail)
        if to not in self.network:
            detail = f"queue manager {to} is not part of the topology"
            return self.ended(End.OUTSIDE, detail=detail)
        return to


def _far_end(link: Link | None) -> str:
    return link.queue_manager if link else ""


def follow_route(
    network: Network, at: str, request: OpenRequest, message: PutMessage | None = None
) -> Route:
    """Follow a put over the managers that definitions lead it to.

    It ends on every topology: names that come back to a manager are recognised.

    Args:
        network: The queue managers.
        at: Name of the manager to which the application is connected.
        request: The arguments of its open.
        message: The message; by default an empty one.
    """
    journey = _Journey(network, message or PutMessage(), request.seed)
    return journey.follow(at, request)
