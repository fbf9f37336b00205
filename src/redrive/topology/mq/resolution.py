"""Name resolution of IBM MQ: from the names in an MQOPEN or MQPUT1 to a queue.

Each branch names its row of "The table" in docs/resolution.md. ``OPEN`` marks a branch on which
IBM's documentation is silent; "Readings" on the same page lists them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import blake2b

from redrive.messages.reasons import ADVICE, Reason
from redrive.topology.mq import objects as mq
from redrive.topology.mq.network import MqNetwork
from redrive.topology.mq.objects import MAX_NAME_LENGTH, ValueProblem, check_name
from redrive.topology.mq.queue_manager import ClusterInstance, ClusterRoute, QueueManager
from redrive.topology.mq.results import (
    NEEDS_LOCAL_QUEUE,
    NEEDS_NAMES,
    Bind,
    Call,
    OpenOption,
    OpenRequest,
    Resolution,
    Step,
    TargetKind,
    Used,
)
from redrive.topology.names import NO_NAMES, Names
from redrive.topology.put import UNLIMITED, QueueLimits


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
        *("first", "is_choice", "_alias_of_local"),
    )

    def __init__(self, network: MqNetwork, manager: QueueManager, request: OpenRequest) -> None:
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
        self._alias_of_local = False
        """Whether an alias of the local manager was used, which leads to local queues only."""

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
        equal.sort(
            key=lambda choice: (
                choice.route.queue_manager,
                choice.route.channel,
                choice.route.cluster,
            )
        )
        equal = equal[: self.manager.attributes.cluster_channels_used]
        total = sum(choice.route.weight for choice in equal)
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
        return self.result(TargetKind.LOCAL, after, limits=self.limits(queue))

    def carried(self, row: str, carrier: Carrier, names: Names) -> Resolution:
        """End at a transmission queue, with the names that travel."""
        queue = carrier.queue
        self.path.append(queue)
        self.step(row, f"transmission queue, {carrier.why}", queue, names, names)
        return self.result(
            TargetKind.REMOTE,
            names,
            transmission_queue=queue.name,
            next_queue_manager=carrier.leads_to,
            channel=carrier.channel,
            limits=self.limits(queue),
        )

    def limits(self, queue: mq.LocalQueue) -> QueueLimits:
        """The limits of a put to a queue, with those of all objects on the path."""
        return QueueLimits(
            put_enabled=all([queue.put_enabled for queue in self.path]),  # noqa: C419 - twice as fast
            max_message_length=queue.max_message_length,
            max_depth=queue.max_depth,
            queue_manager_max_message_length=self.manager.attributes.max_message_length,
            temporary=queue.is_temporary,
        )

    def result(
        self,
        target: TargetKind,
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
            queue.cap_expiry
            for queue in self.path
            if isinstance(queue, mq.Queue) and queue.cap_expiry is not None
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

    def resolve(self) -> Resolution:
        """Resolve the names of the call; raises ``OpenRefused``."""
        if not self.for_output and not self.request.options:
            raise OpenRefused(Reason.OPTIONS_ERROR, "no open option is given")
        names = Names(
            queue=self.request.queue.rstrip(" "),
            queue_manager=self.request.queue_manager.rstrip(" "),
        )
        if not names.queue_manager or self.is_local(names.queue_manager):
            return self._here(names)
        try:
            check_name(names.queue_manager)
        except ValueProblem as problem:
            detail = f"the queue manager name {names.queue_manager!r} {problem.problem}"
            raise OpenRefused(Reason.UNKNOWN_OBJECT_Q_MGR, detail) from None
        if self._is_shared_at(names):
            self._queue(names.queue)  # refused if a private definition has its name
            return self.local("R11", names, self.manager.shared_queues[names.queue])
        if not names.queue:
            detail = f"no queue is named at queue manager {names.queue_manager}"
            raise OpenRefused(Reason.REMOTE_Q_NAME_ERROR, detail)
        return self._by_queue_manager(names)

    def _is_shared_at(self, names: Names) -> bool:
        """Whether row R11 applies: a shared queue, at another member of the group.

        OPEN: the table opens it here whatever SQQMNAME says; an explicit SQQMNAME(USE) sends the
        put to the member instead, as the attribute's page says.
        """
        return (
            self.is_in_group(names.queue_manager)
            and names.queue in self.manager.shared_queues
            and not self.manager.attributes.uses_shared_queue_manager_name
        )

    def _by_queue_manager(self, names: Names) -> Resolution:
        name = names.queue_manager
        match self.manager.queue(name):
            case None:
                self.check_output(names)
                way = carrier(self, name, "")
                return self.carried("R14" if way.is_of_cluster else "R15", way, names)
            case mq.LocalQueue(is_transmission_queue=True) as queue:
                self.check_output(names, queue)
                way = _over(self, queue, name, "named like the manager")
                return self.carried("R12", way, names)
            case mq.LocalQueue() as queue:
                raise OpenRefused(Reason.XMIT_Q_USAGE_ERROR, f"{queue} has USAGE(NORMAL)", queue)
            case mq.RemoteQueue(remote_queue="") as alias:
                return self._queue_manager_alias(alias, names)
            case queue:
                # OPEN for an alias queue: no page covers it; treated like the other kinds.
                detail = f"{queue} is neither a transmission queue nor a queue manager alias"
                advice = "name the queue manager itself, or make the object a transmission queue"
                raise OpenRefused(Reason.UNKNOWN_REMOTE_Q_MGR, detail, queue, advice=advice)

    def _queue_manager_alias(self, alias: mq.RemoteQueue, names: Names) -> Resolution:
        after = Names(queue=names.queue, queue_manager=alias.remote_queue_manager)
        if after.queue_manager and not self.is_local(after.queue_manager):
            self.check_output(names, alias)
            self.path.append(alias)
            self.step("R13", "queue manager alias", alias, names, after)
            way = carrier(self, after.queue_manager, alias.transmission_queue)
            return self.carried("R13", way, after)
        self.path.append(alias)
        if after.queue_manager:
            self._alias_of_local = True
            self.step("R13", "alias of this queue manager", alias, names, after)
            if self.needs_local or OpenOption.INQUIRE in self.request.options:
                detail = f"{alias} stands for this manager and can be opened for output only"
                raise OpenRefused(Reason.OPTION_NOT_VALID_FOR_TYPE, detail, alias)
        else:
            self.step("R13", "alias for a choice by the cluster", alias, names, after)
        return self._here(after)

    def _here(self, names: Names) -> Resolution:
        match self._queue(names.queue):
            case mq.LocalQueue() as queue:
                return self._local_queue(names, queue)
            case mq.ModelQueue() as model:
                return self._model(names, model)
            case mq.AliasQueue() as alias:
                return self._alias(names, alias)
            case mq.RemoteQueue() as definition:
                return self._remote_definition(names, definition)
            case _:
                return self._no_object(names)

    def _queue(self, name: str) -> mq.Queue | None:
        """The queue of this name; a shared queue and a private definition exclude each other."""
        shared = self.manager.shared_queues
        if shared and name in shared and name in self.manager.queues:
            detail = f"{name} is a shared queue and a private definition"
            raise OpenRefused(Reason.OBJECT_NOT_UNIQUE, detail, self.manager.queues[name])
        return self.manager.queue(name)

    def _local_queue(self, names: Names, queue: mq.LocalQueue) -> Resolution:
        if names.queue_manager:
            return self.local("R3" if queue.is_clustered else "R1", names, queue)
        if not queue.is_clustered:
            return self.local("R1", names, queue)
        if self.needs_local or not self.for_output:
            return self.local("R2", names, queue)
        instances = self.network.instances(self.manager, names.queue)
        return workload(self, "R2", names, instances, queue)

    def _model(self, names: Names, model: mq.ModelQueue) -> Resolution:
        if self._alias_of_local:
            detail = f"{model} cannot be reached through a queue manager alias"
            raise OpenRefused(Reason.Q_TYPE_ERROR, detail, model)
        if self.request.call is Call.MQPUT1:
            raise OpenRefused(Reason.Q_TYPE_ERROR, f"{model} cannot be opened by MQPUT1", model)
        name = _dynamic_name(self.manager, self.request)
        after = Names(queue=name, queue_manager=self.manager.name)
        self.path.append(model)
        rule = f"made from the model queue a {model.dynamic_type} queue"
        self.step("R4", rule, model, names, after)
        return self.result(TargetKind.DYNAMIC, after, limits=self.limits(model.make(name)))

    def _alias(self, names: Names, alias: mq.AliasQueue) -> Resolution:
        self.path.append(alias)
        after = Names(queue=alias.target, queue_manager=names.queue_manager)
        if alias.is_for_topic:
            return self._topic(names, alias)
        base = self._queue(alias.target)
        row = "R5"
        if alias.is_clustered:
            row = "R6" if names.queue_manager else "R7"
        self.step(row, f"alias for {alias.target or 'nothing'}", alias, names, after)
        if base is None:
            return self._alias_of_cluster_queue(after, alias)
        if row == "R7" and base is alias:
            # A clustered alias may have the name of its own cluster queue.
            instances = self.network.instances(self.manager, alias.target)
            if instances:
                return workload(self, "R9", after, instances)
        if isinstance(base, mq.AliasQueue | mq.ModelQueue):
            detail = f"{alias} targets {base}, which is not a local, remote or cluster queue"
            raise OpenRefused(Reason.ALIAS_BASE_Q_TYPE_ERROR, detail, alias)
        return self._here(after)

    def _alias_of_cluster_queue(self, after: Names, alias: mq.AliasQueue) -> Resolution:
        """An alias whose base is not defined here.

        OPEN: with a local queue manager name such a base is forbidden (row R6), but no code is
        documented; it is treated as unknown.
        """
        instances = self.network.instances(self.manager, after.queue)
        if not after.queue or after.queue_manager or not instances:
            detail = f"{alias} targets {after.queue or 'nothing'!r}, which is not known"
            raise OpenRefused(Reason.UNKNOWN_ALIAS_BASE_Q, detail, alias)
        return workload(self, "R9", after, instances)

    def _topic(self, names: Names, alias: mq.AliasQueue) -> Resolution:
        topic = self.manager.topic(alias.target)
        if topic is None:
            detail = f"{alias} targets topic object {alias.target!r}, which is not known"
            raise OpenRefused(Reason.UNKNOWN_ALIAS_BASE_Q, detail, alias)
        if self.needs_local:
            detail = f"{topic} can be opened for output and inquire only"
            raise OpenRefused(Reason.OPTION_NOT_VALID_FOR_TYPE, detail, topic)
        after = Names(queue=alias.target)
        self.step("R5", "alias for a topic", topic, names, after)
        return Resolution(
            opened_at=self.manager.name,
            steps=tuple(self.steps),
            target=TargetKind.TOPIC,
            destination=after,
            path=tuple(self.path),
        )

    def _remote_definition(self, names: Names, definition: mq.RemoteQueue) -> Resolution:
        after = Names(queue=definition.remote_queue, queue_manager=definition.remote_queue_manager)
        if self._alias_of_local:
            # OPEN: documented as forbidden after an alias of the manager itself, without a code.
            detail = f"an alias of queue manager {self.manager.name} must not lead to {definition}"
            raise OpenRefused(Reason.UNKNOWN_OBJECT_NAME, detail, definition)
        if not after.queue:
            raise OpenRefused(Reason.REMOTE_Q_NAME_ERROR, f"{definition} has no RNAME", definition)
        if not after.queue_manager or self.is_local(after.queue_manager):
            name = after.queue_manager or "no manager"
            detail = f"{definition} has RQMNAME {name}, which is not remote"
            advice = "set RQMNAME to another queue manager; for a queue of this one, use a QALIAS"
            raise OpenRefused(Reason.UNKNOWN_REMOTE_Q_MGR, detail, definition, advice=advice)
        self.check_output(names, definition)
        self.path.append(definition)
        self.step("R8", "local definition of a remote queue", definition, names, after)
        way = carrier(self, after.queue_manager, definition.transmission_queue)
        return self.carried("R8", way, after)

    def _no_object(self, names: Names) -> Resolution:
        if names.queue and not names.queue_manager:
            instances = self.network.instances(self.manager, names.queue)
            if instances:
                return workload(self, "R9", names, instances)
        what = f"{names.queue!r}" if names.queue else "with a blank name"
        raise OpenRefused(
            Reason.UNKNOWN_OBJECT_NAME, f"queue manager {self.manager.name} knows no queue {what}"
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


# How a message reaches another queue manager: rows R2 and R9 of the table, and "Which cluster
# instance is chosen" in docs/resolution.md


def carrier(opening: Opening, queue_manager: str, named: str) -> Carrier:
    """The transmission queue to a manager; ``named`` is XMITQ of the definition used."""
    if named:
        return _over(opening, _named_queue(opening, named), queue_manager, "XMITQ names it")
    if (queue := opening.manager.queue(queue_manager)) is not None:
        checked = _transmission_queue(queue, f"{queue} is not a transmission queue")
        return _over(opening, checked, queue_manager, "named like the manager")
    way = _cluster_way(opening, queue_manager) or _shared_way(opening, queue_manager)
    return way or Carrier(_default_queue(opening, queue_manager), "DEFXMITQ names it")


def _over(opening: Opening, queue: mq.LocalQueue, queue_manager: str, why: str) -> Carrier:
    """A named queue; one for several managers leads to that of the message, or nowhere."""
    way = None
    if queue.serves_clusters:
        way = _cluster_way(opening, queue_manager, queue.name)
    elif queue.name == mq.SHARED_TRANSMISSION_QUEUE:
        way = _shared_way(opening, queue_manager)
    return replace(way, queue=queue, why=why) if way else Carrier(queue, why)


def _transmission_queue(queue: mq.Queue, problem: str) -> mq.LocalQueue:
    if not isinstance(queue, mq.LocalQueue):
        raise OpenRefused(Reason.XMIT_Q_TYPE_ERROR, problem, queue)
    if not queue.is_transmission_queue:
        raise OpenRefused(Reason.XMIT_Q_USAGE_ERROR, f"{queue} has USAGE(NORMAL)", queue)
    return queue


def _named_queue(opening: Opening, name: str) -> mq.LocalQueue:
    queue = opening.manager.queue(name)
    if queue is None:
        raise OpenRefused(Reason.UNKNOWN_XMIT_Q, f"there is no transmission queue {name}")
    checked = _transmission_queue(queue, f"XMITQ names {queue}, which is not a QLOCAL")
    if name == mq.SHARED_TRANSMISSION_QUEUE and not opening.manager.attributes.intra_group_queuing:
        raise OpenRefused(Reason.XMIT_Q_USAGE_ERROR, f"{queue} needs IGQ(ENABLED)", queue)
    return checked


def _default_queue(opening: Opening, queue_manager: str) -> mq.LocalQueue:
    manager = opening.manager
    name = manager.attributes.default_transmission_queue
    if not name:
        detail = f"nothing leads to queue manager {queue_manager}, and DEFXMITQ is blank"
        raise OpenRefused(Reason.UNKNOWN_REMOTE_Q_MGR, detail)
    queue, (reason, problem) = manager.queue(name), manager.default_transmission_queue_problem
    if reason or not isinstance(queue, mq.LocalQueue):
        raise OpenRefused(reason, problem, queue or manager.attributes)
    return queue


def _cluster_way(opening: Opening, queue_manager: str, queue: str = "") -> Carrier | None:
    """The route to a cluster queue manager or a host of its alias, over ``queue`` if given."""
    network, manager = opening.network, opening.manager
    hosts = [
        ClusterInstance(name=queue_manager, route=route)
        for route in network.routes(manager, queue_manager)
    ] or network.instances(manager, queue_manager, aliases=True)
    hosts = [
        host
        for host in hosts
        if not (queue and host.route.channel)
        or queue == network.transmission_queue(manager, host.route)
    ]
    if not hosts:
        return None
    able = [host for host in hosts if host.put_enabled]
    host = opening.choose(able or hosts)
    if host.is_queue_manager_alias:
        opening.path.append(host)
    return _in_cluster(opening, host.route)


def _in_cluster(opening: Opening, route: ClusterRoute) -> Carrier:
    queue = _automatic_queue(opening, opening.network.transmission_queue(opening.manager, route))
    why = f"cluster {route.cluster}"
    return Carrier(queue, why, route.queue_manager, route.channel, is_of_cluster=True)


def _shared_way(opening: Opening, queue_manager: str) -> Carrier | None:
    """Intra-group queuing, if the manager uses it and the other one is in its group."""
    if opening.manager.attributes.intra_group_queuing and opening.is_in_group(queue_manager):
        queue = _automatic_queue(opening, mq.SHARED_TRANSMISSION_QUEUE)
        return Carrier(queue, "intra-group queuing", queue_manager)
    return None


def _automatic_queue(opening: Opening, name: str) -> mq.LocalQueue:
    """A transmission queue that the product creates itself if no script defines it."""
    queue = opening.manager.queue(name)
    if isinstance(queue, mq.LocalQueue):
        return queue
    return mq.LocalQueue(name=name, is_transmission_queue=True)


def workload(
    opening: Opening,
    row: str,
    names: Names,
    instances: list[ClusterInstance],
    local: mq.LocalQueue | None = None,
) -> Resolution:
    """Choose an instance of a cluster queue, now or for each message (rows R2, R9).

    ``instances`` are those at other managers, ``local`` is its own definition.
    """
    if opening.needs_local:
        # OPEN: documented as failing, without a code; treated as unknown.
        detail = f"cluster queue {names.queue} has no instance at {opening.manager.name}"
        raise OpenRefused(Reason.UNKNOWN_OBJECT_NAME, detail)
    if not opening.path:
        # A local definition has the defaults even if another instance gets the message.
        opening.first = local
    able = instances
    if opening.for_output:
        able = [instance for instance in instances if instance.put_enabled]
    own = opening.network.own_instance(opening.manager, local) if local else None
    if own is not None and own.put_enabled:
        able = [own] if _prefers_local(opening, local) else [own, *able]
    call = opening.request.call
    bind = _bind(opening, able or ([own] if own else instances))
    if bind is Bind.NOT_FIXED and call is Call.MQOPEN and opening.for_output:
        opening.step(row, "cluster queue, not bound to an instance", None, names, names)
        resolved, first = Names(queue=names.queue), next(iter(instances), None)
        return opening.result(
            TargetKind.PER_MESSAGE, names, first=first, resolved=resolved, limits=UNLIMITED
        )
    if not able and own is None:
        detail = f"every instance of cluster queue {names.queue} has PUT(DISABLED)"
        at_once = call is Call.MQPUT1
        reason = Reason.NO_DESTINATIONS_AVAILABLE if at_once else Reason.CLUSTER_PUT_INHIBITED
        raise OpenRefused(reason, detail)
    # OPEN: with a local instance the open succeeds although every instance is disabled; so does
    # MQPUT1, and the put then fails at the local PUT(DISABLED).
    chosen = own if own is not None and not able else opening.choose(able)
    if local is not None and chosen is own:
        return opening.local(row, names, local)
    after = Names(queue=names.queue, queue_manager=chosen.route.queue_manager)
    opening.path.append(chosen)
    opening.step(row, "instance of the cluster queue", chosen, names, after)
    shared = _shared_way(opening, chosen.route.queue_manager)
    return opening.carried(row, shared or _in_cluster(opening, chosen.route), after)


def _prefers_local(opening: Opening, local: mq.LocalQueue | None) -> bool:
    """Whether a local instance wins at once."""
    use = local.cluster_use if local else mq.UseQueue.ANY
    if use is mq.UseQueue.QMGR:
        use = opening.manager.attributes.cluster_use
    return use is mq.UseQueue.LOCAL or opening.request.from_cluster_channel


def _bind(opening: Opening, instances: list[ClusterInstance]) -> Bind:
    """The bind option, taken from the first object or the instance if left to the queue."""
    if opening.request.bind is not Bind.AS_Q_DEF:
        return opening.request.bind
    first = opening.first_object() or opening.choose(instances)
    return Bind.NOT_FIXED if first.default_bind is mq.DefaultBind.NOTFIXED else Bind.ON_OPEN


_LAST_ASTERISK = 33
_GENERATED_DIGITS = 16


def open_queue(network: MqNetwork, at: str, request: OpenRequest) -> Resolution:
    """Resolve the names of an MQOPEN or MQPUT1 at one manager of the network."""
    opening = Opening(network, network.queue_managers[at], request)
    try:
        return opening.resolve()
    except OpenRefused as refusal:
        return opening.refused(refusal)


def _dynamic_name(manager: QueueManager, request: OpenRequest) -> str:
    asked = request.dynamic_queue.rstrip(" ")
    prefix = asked.removesuffix("*")
    generic = prefix != asked
    try:
        check_name(prefix, _LAST_ASTERISK - 1 if generic else MAX_NAME_LENGTH)
    except ValueProblem as problem:
        detail = f"the dynamic queue name {asked!r} {problem.problem}"
        raise OpenRefused(Reason.DYNAMIC_Q_NAME_ERROR, detail) from None
    if not asked:
        raise OpenRefused(Reason.DYNAMIC_Q_NAME_ERROR, "the dynamic queue name is blank")
    if not generic:
        if existing := manager.queue(prefix):
            raise OpenRefused(Reason.OBJECT_ALREADY_EXISTS, f"{existing} exists", existing)
        return prefix
    number = draw(request.seed, manager.name, prefix)
    while manager.queue(name := f"{prefix}{number:0{_GENERATED_DIGITS}X}"):
        number = (number + 1) % 16**_GENERATED_DIGITS
    return name
