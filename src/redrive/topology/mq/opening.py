"""One open at one queue manager: the request, the objects found, and the result."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

from redrive.messages.reasons import ADVICE, Reason
from redrive.topology.mq import objects as mq
from redrive.topology.mq.network import Network
from redrive.topology.mq.queue_manager import ClusterInstance, QueueManager
from redrive.topology.mq.results import (
    NEEDS_LOCAL_QUEUE,
    NEEDS_NAMES,
    OpenOption,
    OpenRequest,
    Resolution,
    Step,
    Target,
    Used,
)
from redrive.topology.names import NO_NAMES, Names
from redrive.topology.put import QueueLimits


class OpenRefused(Exception):
    """The open fails; raised by any branch."""

    def __init__(
        self, reason: Reason, detail: str, at_fault: Used | None = None, *, advice: str = ""
    ) -> None:
        super().__init__(detail)
        self.reason, self.detail, self.at_fault = reason, detail, at_fault
        self.advice = advice or ADVICE.get(reason, "")


@dataclass(frozen=True, slots=True)
class Carrier:
    """The transmission queue that carries a message to another manager."""

    queue: mq.LocalQueue
    why: str
    leads_to: str = ""
    """The manager it leads to; empty if the channel determines it."""
    channel: str = ""
    """The cluster channel to it."""
    is_of_cluster: bool = False
    """Whether the cluster knows the manager's name."""


class Opening:
    """One open at one queue manager: the request, the objects found, and its possible results.

    Attributes:
        needs_local: Whether the options need a local queue.
        path: The objects found so far.
        first: The object with the defaults, if not the first of the path.
        is_choice: Whether workload management chose among several instances.
    """

    __slots__ = (
        *("network", "manager", "request", "group", "needs_local", "for_output", "steps", "path"),
        *("first", "is_choice"),
    )

    def __init__(self, network: Network, manager: QueueManager, request: OpenRequest) -> None:
        options = request.options
        plain = options is OpenOption.OUTPUT
        self.needs_local = not plain and bool(options & NEEDS_LOCAL_QUEUE)
        self.for_output = plain or OpenOption.OUTPUT in options
        self.network, self.manager, self.request = network, manager, request
        self.group = manager.queue_sharing_group
        self.steps: list[Step] = []
        self.path: list[mq.Queue | ClusterInstance] = []
        self.first: mq.Queue | ClusterInstance | None = None
        self.is_choice = False

    def refused(self, refusal: OpenRefused) -> Resolution:
        """The end of an open that fails."""
        last = self.steps[-1].definition if self.steps else None
        return Resolution(
            opened_at=self.manager.name,
            steps=tuple(self.steps),
            reason=refusal.reason,
            detail=refusal.detail,
            at_fault=refusal.at_fault or last,
            advice=refusal.advice,
        )

    def is_local(self, queue_manager: str) -> bool:
        """Whether a name means this manager: its own or that of its queue-sharing group."""
        group = self.group.name if self.group else None
        return queue_manager in (self.manager.name, group)

    def is_in_group(self, queue_manager: str) -> bool:
        """Whether a manager is a member of this manager's queue-sharing group."""
        return self.group is not None and queue_manager in self.group.members

    def first_object(self) -> mq.Queue | ClusterInstance | None:
        """The object with the defaults."""
        return self.first or (self.path[0] if self.path else None)

    def choose(self, candidates: list[ClusterInstance]) -> ClusterInstance:
        """Choose one of at least one instance by workload management.

        Tested in this order: rank of the channel, rank of the queue, not suspended, state of the
        channel, network priority, priority of the channel, priority of the queue; then at most
        CLWLMRUC channels are kept, in alphabetical order; weights and seed decide the rest. The
        product remembers which channel was used last; here the last step is drawn from the seed of
        the call, in proportion to the weights, so that a replay chooses the same.
        """
        self.is_choice = self.is_choice or len(candidates) > 1
        best = max(map(_preference, candidates))
        equal = [candidate for candidate in candidates if _preference(candidate) == best]
        if len(equal) == 1:
            return equal[0]
        equal.sort(key=lambda one: (one.route.queue_manager, one.route.channel, one.route.cluster))
        equal = equal[: self.manager.attributes.cluster_channels_used]
        total = sum(one.route.weight for one in equal)
        point = draw(self.request.seed, self.manager.name, equal[0].name) % total
        for candidate in equal:
            point -= candidate.route.weight
            if point < 0:
                return candidate
        return equal[-1]  # pragma: no cover - the weights add up to more than the point

    def check_output(self, names: Names, definition: mq.Queue | None = None) -> None:
        """Refuse an open that needs a local queue where the path leaves the manager."""
        if self.needs_local:
            detail = f"{names} is not local; it can be opened for output and inquire only"
            raise OpenRefused(Reason.OPTION_NOT_VALID_FOR_TYPE, detail, definition)

    def step(
        self, row: str, rule: str, definition: Used | None, before: Names, after: Names
    ) -> None:
        """Record a step: the row of the table, what it did, the definition, and the names."""
        self.steps.append(Step(self.manager.name, row, rule, definition, before, after))

    def local(self, row: str, names: Names, queue: mq.LocalQueue) -> Resolution:
        """End at a local queue, by a row of the table."""
        after = Names(queue=names.queue, queue_manager=self.manager.name)
        self.path.append(queue)
        self.step(row, "local queue", queue, names, after)
        return self.result(Target.LOCAL, after, limits=self.limits(queue))

    def carried(self, row: str, carrier: Carrier, names: Names) -> Resolution:
        """End at a transmission queue, with the names that travel."""
        queue = carrier.queue
        self.path.append(queue)
        self.step(row, f"transmission queue, {carrier.why}", queue, names, names)
        return self.result(
            Target.REMOTE,
            names,
            transmission_queue=queue.name,
            next_queue_manager=carrier.leads_to,
            channel=carrier.channel,
            limits=self.limits(queue),
        )

    def limits(self, queue: mq.LocalQueue) -> QueueLimits:
        """The limits of a put to a queue, with those of all objects on the path."""
        return QueueLimits(
            put_enabled=all([one.put_enabled for one in self.path]),  # noqa: C419 - twice as fast
            max_message_length=queue.max_message_length,
            max_depth=queue.max_depth,
            queue_manager_max_message_length=self.manager.attributes.max_message_length,
            temporary=queue.is_temporary,
        )

    def result(
        self,
        target: Target,
        destination: Names,
        *,
        limits: QueueLimits,
        resolved: Names | None = None,
        first: ClusterInstance | None = None,
        transmission_queue: str = "",
        next_queue_manager: str = "",
        channel: str = "",
    ) -> Resolution:
        """The result of a successful open, most arguments as in ``Resolution``.

        ``resolved`` are the names that the application gets, the destination by default; ``first``
        has the defaults if nothing on the path does.
        """
        resolved = resolved or destination
        if not (self.for_output or self.request.options & NEEDS_NAMES):
            resolved = NO_NAMES
        attributes = self.first_object() or first
        caps = [
            one.cap_expiry
            for one in self.path
            if isinstance(one, mq.Queue) and one.cap_expiry is not None
        ]
        return Resolution(
            opened_at=self.manager.name,
            steps=tuple(self.steps),
            target=target,
            resolved_queue_manager=resolved.queue_manager,
            resolved_queue=resolved.queue,
            destination=destination,
            transmission_queue=transmission_queue,
            next_queue_manager=next_queue_manager,
            channel=channel,
            path=tuple(self.path),
            limits=limits,
            default_persistence=attributes is not None and attributes.default_persistence,
            default_priority=attributes.default_priority if attributes else 0,
            cap_expiry=min(caps, default=None),
            is_choice=self.is_choice,
            binds_groups=attributes is not None and attributes.default_bind is mq.DefaultBind.GROUP,
        )


def draw(seed: int, *parts: str) -> int:
    """A number from 0 to 2**64 - 1 determined by the arguments, evenly distributed over seeds."""
    text = "\0".join((str(seed), *parts))
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest())


def _preference(candidate: ClusterInstance) -> tuple[int, ...]:
    """A sort key: greater for a preferred candidate."""
    route = candidate.route
    return (
        route.rank,
        candidate.rank,
        not route.suspended,
        -route.state,
        route.network_priority,
        route.priority,
        candidate.priority,
    )
