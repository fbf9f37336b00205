"""Name resolution of IBM MQ: from the names in an MQOPEN or MQPUT1 to a queue.

Resolution specification B.3 to B.10. The procedure follows B.4; each branch names its row of the
resolution table. Where the documentation is silent the function or branch is marked ``OPEN``;
docs/resolution.md lists these readings.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

from redrive.topology.mq.attributes import ValueProblem, check_name
from redrive.topology.mq.network import Network
from redrive.topology.mq.objects import (
    CLUSTER_TRANSMISSION_QUEUE,
    MAX_NAME_LENGTH,
    SHARED_TRANSMISSION_QUEUE,
    AliasQueue,
    DefaultBind,
    Definition,
    DynamicType,
    LocalQueue,
    ModelQueue,
    Queue,
    RemoteQueue,
    SharedQueueManagerName,
    TargetType,
    Usage,
    UseQueue,
)
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
    Target,
    Used,
)
from redrive.topology.mq.workload import choose, draw
from redrive.topology.names import NO_NAMES, Names
from redrive.topology.put import UNLIMITED, QueueLimits
from redrive.topology.reasons import ADVICE, Reason

_LAST_ASTERISK = 33
_GENERATED_DIGITS = 16


def open_queue(network: Network, at: str, request: OpenRequest) -> Resolution:
    """Resolve the names of an MQOPEN or MQPUT1.

    Args:
        network: The queue managers.
        at: Name of the manager to which the application is connected.
        request: The arguments of the call.

    Returns:
        Where the names lead, or the reason code.

    Raises:
        KeyError: The network has no manager ``at``.
    """
    return _Opening(network, network.queue_managers[at], request).run()


class _Refused(Exception):
    """Leads from any branch to the end of the open."""

    def __init__(
        self,
        reason: Reason,
        detail: str,
        at_fault: Definition | ClusterInstance | None = None,
        *,
        advice: str = "",
    ) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail
        self.at_fault = at_fault
        self.advice = advice or ADVICE.get(reason, "")


@dataclass(frozen=True, slots=True)
class _Carrier:
    """What carries a message to another manager."""

    queue: LocalQueue
    """The transmission queue."""
    why: str
    """Why this one."""
    leads_to: str = ""
    """The manager it leads to, unless a channel tells."""
    channel: str = ""
    """The cluster channel to it."""
    by: ClusterRoute | ClusterInstance | None = None
    """What the cluster knows about the manager's name."""


class _Opening:
    """One open at one queue manager."""

    __slots__ = (
        *("_network", "_manager", "_request", "_group", "_needs_local", "_for_output"),
        *("_steps", "_path", "_first", "_alias_of_local", "_remote_forbidden"),
        "_is_choice",
    )

    def __init__(self, network: Network, manager: QueueManager, request: OpenRequest) -> None:
        options = request.options
        plain = options is OpenOption.OUTPUT
        self._needs_local = not plain and bool(options & NEEDS_LOCAL_QUEUE)
        """Whether the options are such that only a local queue will do."""
        self._for_output = plain or OpenOption.OUTPUT in options
        self._network = network
        self._manager = manager
        self._request = request
        self._group = manager.queue_sharing_group
        self._steps: list[Step] = []
        self._path: list[Queue | ClusterInstance] = []
        self._first: Queue | ClusterInstance | None = None
        """What gives the defaults, if it is not the first object on the path."""
        self._alias_of_local = False
        """A queue manager alias for the local manager was used: a model is refused."""
        self._remote_forbidden = False
        """A queue manager alias was used that must not lead to a remote definition."""
        self._is_choice = False

    def run(self) -> Resolution:
        """Resolve the names."""
        try:
            return self._open()
        except _Refused as refused:
            return Resolution(
                opened_at=self._manager.name,
                steps=tuple(self._steps),
                reason=refused.reason,
                detail=refused.detail,
                at_fault=refused.at_fault or self._last_definition(),
                advice=refused.advice,
            )

    def _last_definition(self) -> Used | None:
        return self._steps[-1].definition if self._steps else None

    def _open(self) -> Resolution:
        if not self._for_output and not self._request.options:
            raise _Refused(Reason.OPTIONS_ERROR, "no open option is given")
        names = Names(
            queue=self._request.queue.rstrip(" "),
            queue_manager=self._request.queue_manager.rstrip(" "),
        )
        if not names.queue_manager or self._is_local(names.queue_manager):
            return self._here(names)
        try:
            check_name(names.queue_manager)
        except ValueProblem as problem:
            detail = f"the queue manager name {names.queue_manager!r} {problem.problem}"
            raise _Refused(Reason.UNKNOWN_OBJECT_Q_MGR, detail) from None
        if self._is_shared_at(names):
            return self._local("R11", names, self._manager.shared_queues[names.queue])
        if not names.queue:
            detail = f"no queue is named at queue manager {names.queue_manager}"
            raise _Refused(Reason.REMOTE_Q_NAME_ERROR, detail)
        return self._by_queue_manager(names)

    # The queue manager name

    def _is_local(self, queue_manager: str) -> bool:
        """Whether a name means this manager: its own or that of its queue-sharing group."""
        group = self._group.name if self._group else None
        return queue_manager in (self._manager.name, group)

    def _is_in_group(self, queue_manager: str) -> bool:
        return self._group is not None and queue_manager in self._group.members

    def _is_shared_at(self, names: Names) -> bool:
        """Whether row R11 holds: a shared queue, at another member of the group.

        OPEN: the table opens it here whatever SQQMNAME says; SQQMNAME(USE), if written, sends the
        put to the member instead, as the attribute's page says.
        """
        use = self._manager.attributes.shared_queue_manager_name
        return (
            self._is_in_group(names.queue_manager)
            and names.queue in self._manager.shared_queues
            and use is not SharedQueueManagerName.USE
        )

    def _by_queue_manager(self, names: Names) -> Resolution:
        name = names.queue_manager
        match self._manager.queue(name):
            case None:
                return self._unknown_queue_manager(names)
            case LocalQueue(usage=Usage.XMITQ) as queue:
                self._check_output(names, queue)
                return self._carried("R12", _Carrier(queue, "named like the manager"), names)
            case LocalQueue() as queue:
                raise _Refused(Reason.XMIT_Q_USAGE_ERROR, f"{queue} has USAGE(NORMAL)", queue)
            case RemoteQueue(remote_queue="") as alias:
                return self._queue_manager_alias(alias, names)
            case queue:
                # OPEN for an alias queue: no page covers it; read as the other kinds.
                detail = f"{queue} is neither a transmission queue nor a queue manager alias"
                advice = "name the queue manager itself, or let the object be a transmission queue"
                raise _Refused(Reason.UNKNOWN_REMOTE_Q_MGR, detail, queue, advice=advice)

    def _unknown_queue_manager(self, names: Names) -> Resolution:
        self._check_output(names)
        carrier = self._carrier(names.queue_manager, "")
        row = "R14" if isinstance(carrier.by, ClusterRoute | ClusterInstance) else "R15"
        return self._carried(row, carrier, names)

    def _queue_manager_alias(self, alias: RemoteQueue, names: Names) -> Resolution:
        after = Names(queue=names.queue, queue_manager=alias.remote_queue_manager)
        if after.queue_manager and not self._is_local(after.queue_manager):
            self._check_output(names, alias)
            self._path.append(alias)
            self._step("R13", "queue manager alias", alias, names, after)
            carrier = self._carrier(after.queue_manager, alias.transmission_queue)
            return self._carried("R13", carrier, after)
        self._path.append(alias)
        self._remote_forbidden = True
        if after.queue_manager:
            self._alias_of_local = True
            self._step("R13", "alias of this queue manager", alias, names, after)
            if self._needs_local or OpenOption.INQUIRE in self._request.options:
                detail = f"{alias} stands for this manager and can be opened for output only"
                raise _Refused(Reason.OPTION_NOT_VALID_FOR_TYPE, detail, alias)
        else:
            self._step("R13", "alias that leaves the choice to the cluster", alias, names, after)
        return self._here(after)

    # The queue name, at this manager

    def _here(self, names: Names) -> Resolution:
        match self._queue(names.queue):
            case LocalQueue() as queue:
                return self._local_queue(names, queue)
            case ModelQueue() as model:
                return self._model(names, model)
            case AliasQueue() as alias:
                return self._alias(names, alias)
            case RemoteQueue() as definition:
                return self._remote_definition(names, definition)
            case _:
                return self._no_object(names)

    def _queue(self, name: str) -> Queue | None:
        """The queue of this name; a shared queue and a private definition exclude each other."""
        shared = self._manager.shared_queues
        if shared and name in shared and name in self._manager.queues:
            detail = f"{name} is a shared queue and a private definition"
            raise _Refused(Reason.OBJECT_NOT_UNIQUE, detail, self._manager.queues[name])
        return self._manager.queue(name)

    def _local_queue(self, names: Names, queue: LocalQueue) -> Resolution:
        if names.queue_manager:
            return self._local("R3" if queue.is_clustered else "R1", names, queue)
        if not queue.is_clustered:
            return self._local("R1", names, queue)
        if self._needs_local or not self._for_output:
            return self._local("R2", names, queue)
        instances = self._network.instances(self._manager, names.queue)
        if not instances:
            return self._local("R2", names, queue)
        return self._workload("R2", names, instances, queue)

    def _model(self, names: Names, model: ModelQueue) -> Resolution:
        if self._alias_of_local:
            detail = f"{model} cannot be reached through a queue manager alias"
            raise _Refused(Reason.Q_TYPE_ERROR, detail, model)
        if self._request.call is Call.MQPUT1:
            raise _Refused(Reason.Q_TYPE_ERROR, f"{model} cannot be opened by MQPUT1", model)
        name = self._dynamic_name()
        after = Names(queue=name, queue_manager=self._manager.name)
        self._path.append(model)
        self._step(
            "R4", f"made from the model queue a {model.dynamic_type} queue", model, names, after
        )
        return self._result(
            Target.DYNAMIC,
            after,
            limits=self._limits(model, temporary=model.dynamic_type is DynamicType.TEMPDYN),
        )

    def _alias(self, names: Names, alias: AliasQueue) -> Resolution:
        self._path.append(alias)
        after = Names(queue=alias.target, queue_manager=names.queue_manager)
        if alias.target_type is TargetType.TOPIC:
            return self._topic(names, alias)
        base = self._queue(alias.target)
        row = "R5"
        if alias.is_clustered:
            row = "R6" if names.queue_manager else "R7"
        self._step(row, f"alias for {alias.target or 'nothing'}", alias, names, after)
        if base is None:
            return self._alias_of_cluster_queue(after, alias)
        if row == "R7" and base is alias:
            # A clustered alias may have the name of the cluster queue it stands for.
            instances = self._network.instances(self._manager, alias.target)
            if instances:
                return self._workload("R9", after, instances, None)
        if isinstance(base, AliasQueue | ModelQueue):
            detail = f"{alias} targets {base}, which is no local, remote or cluster queue"
            raise _Refused(Reason.ALIAS_BASE_Q_TYPE_ERROR, detail, alias)
        return self._here(after)

    def _alias_of_cluster_queue(self, after: Names, alias: AliasQueue) -> Resolution:
        """An alias whose base is not defined here.

        OPEN: with a local queue manager name such a base is forbidden (row R6), but no code is
        documented; it is read as unknown.
        """
        instances = self._network.instances(self._manager, after.queue)
        if not after.queue or after.queue_manager or not instances:
            detail = f"{alias} targets {after.queue or 'nothing'!r}, which is not known"
            raise _Refused(Reason.UNKNOWN_ALIAS_BASE_Q, detail, alias)
        return self._workload("R9", after, instances, None)

    def _topic(self, names: Names, alias: AliasQueue) -> Resolution:
        topic = self._manager.topic(alias.target)
        if topic is None:
            detail = f"{alias} targets topic object {alias.target!r}, which is not known"
            raise _Refused(Reason.UNKNOWN_ALIAS_BASE_Q, detail, alias)
        if self._needs_local:
            detail = f"{topic} can be opened for output and inquire only"
            raise _Refused(Reason.OPTION_NOT_VALID_FOR_TYPE, detail, topic)
        self._step(
            "R5", "alias for a topic", topic, names, Names(queue=alias.target, queue_manager="")
        )
        if self._for_output and not self._request.publishes:
            detail = f"topic object {topic.name} has no subscriptions here"
            raise _Refused(Reason.PUBLICATION_FAILURE, detail, alias)
        limit = self._manager.attributes.max_message_length
        return Resolution(
            opened_at=self._manager.name,
            steps=tuple(self._steps),
            target=Target.TOPIC,
            destination=Names(queue=alias.target, queue_manager=""),
            path=tuple(self._path),
            limits=QueueLimits(queue_manager_max_message_length=limit),
            default_persistence=alias.default_persistence,
            default_priority=alias.default_priority,
        )

    def _remote_definition(self, names: Names, definition: RemoteQueue) -> Resolution:
        after = Names(queue=definition.remote_queue, queue_manager=definition.remote_queue_manager)
        if self._remote_forbidden:
            # OPEN: documented as forbidden after a queue manager alias, without a code.
            detail = f"a queue manager alias must not lead to {definition}"
            raise _Refused(Reason.UNKNOWN_OBJECT_NAME, detail, definition)
        if not after.queue:
            raise _Refused(Reason.REMOTE_Q_NAME_ERROR, f"{definition} has no RNAME", definition)
        if not after.queue_manager or self._is_local(after.queue_manager):
            name = after.queue_manager or "no manager"
            detail = f"{definition} has RQMNAME {name}, which is not remote"
            advice = "let RQMNAME name another queue manager; for a queue of this one, use a QALIAS"
            raise _Refused(Reason.UNKNOWN_REMOTE_Q_MGR, detail, definition, advice=advice)
        self._check_output(names, definition)
        self._path.append(definition)
        self._step("R8", "local definition of a remote queue", definition, names, after)
        carrier = self._carrier(after.queue_manager, definition.transmission_queue)
        return self._carried("R8", carrier, after)

    def _no_object(self, names: Names) -> Resolution:
        if names.queue and not names.queue_manager:
            instances = self._network.instances(self._manager, names.queue)
            if instances:
                return self._workload("R9", names, instances, None)
        what = f"{names.queue!r}" if names.queue else "with a blank name"
        raise _Refused(
            Reason.UNKNOWN_OBJECT_NAME, f"queue manager {self._manager.name} knows no queue {what}"
        )

    def _dynamic_name(self) -> str:
        """The name of a dynamic queue (resolution specification B.7)."""
        asked = self._request.dynamic_queue.rstrip(" ")
        prefix = asked.removesuffix("*")
        generic = prefix != asked
        try:
            check_name(prefix, _LAST_ASTERISK - 1 if generic else MAX_NAME_LENGTH)
        except ValueProblem as problem:
            detail = f"the dynamic queue name {asked!r} {problem.problem}"
            raise _Refused(Reason.DYNAMIC_Q_NAME_ERROR, detail) from None
        if not asked:
            raise _Refused(Reason.DYNAMIC_Q_NAME_ERROR, "the dynamic queue name is blank")
        if not generic:
            if existing := self._manager.queue(prefix):
                raise _Refused(Reason.OBJECT_ALREADY_EXISTS, f"{existing} exists", existing)
            return prefix
        number = draw(self._request.seed, self._manager.name, prefix)
        while self._manager.queue(name := f"{prefix}{number:0{_GENERATED_DIGITS}X}"):
            number = (number + 1) % 16**_GENERATED_DIGITS
        return name

    # Cluster queues

    def _workload(
        self,
        row: str,
        names: Names,
        instances: list[ClusterInstance],
        local: LocalQueue | None,
    ) -> Resolution:
        """Choose an instance, now or for each message (rows R2, R9)."""
        if self._needs_local:
            # OPEN: documented as failing, without a code; such a queue is unknown to input.
            detail = f"cluster queue {names.queue} has no instance at {self._manager.name}"
            raise _Refused(Reason.UNKNOWN_OBJECT_NAME, detail)
        if not self._path:
            # A local definition gives the defaults even if another instance gets the message.
            self._first = local
        able = [instance for instance in instances if instance.put_enabled]
        if not self._for_output:
            able = instances
        own = self._network.own_instance(self._manager, local) if local else None
        if own is not None and own.put_enabled:
            able = [own] if self._prefers_local(local) else [own, *able]
        bind = self._bind(able or ([own] if own else instances))
        per_message = bind is Bind.NOT_FIXED and self._request.call is Call.MQOPEN
        if per_message and self._for_output:
            return self._per_message(row, names, instances[0])
        if not able and own is None:
            self._refuse_all_disabled(names)
        # OPEN: with a local instance the open succeeds although every instance is disabled; so
        # does MQPUT1, and the put then meets the local PUT(DISABLED).
        chosen = own if own is not None and not able else self._choose(able)
        if local is not None and chosen is own:
            return self._local(row, names, local)
        return self._cluster_queue(row, names, chosen)

    def _prefers_local(self, local: LocalQueue | None) -> bool:
        """Whether a local instance wins at once (resolution specification B.10, step 3)."""
        use = local.cluster_use if local else UseQueue.ANY
        if use is UseQueue.QMGR:
            use = self._manager.attributes.cluster_use
        return use is UseQueue.LOCAL or self._request.from_cluster_channel

    def _bind(self, instances: list[ClusterInstance]) -> Bind:
        """The bind option, settled by the first object or the instance if left to the queue."""
        if self._request.bind is not Bind.AS_Q_DEF:
            return self._request.bind
        first = self._first_object() or self._choose(instances)
        default = first.default_bind
        return Bind.NOT_FIXED if default is DefaultBind.NOTFIXED else Bind.ON_OPEN

    def _first_object(self) -> Queue | ClusterInstance | None:
        """The object that gives the defaults (resolution specification B.6)."""
        return self._first or (self._path[0] if self._path else None)

    def _choose(self, candidates: list[ClusterInstance]) -> ClusterInstance:
        self._is_choice = self._is_choice or len(candidates) > 1
        return choose(
            candidates,
            seed=self._request.seed,
            at=self._manager.name,
            channels_used=self._manager.attributes.cluster_channels_used,
        )

    def _refuse_all_disabled(self, names: Names) -> NoReturn:
        detail = f"every instance of cluster queue {names.queue} has PUT(DISABLED)"
        if self._request.call is Call.MQPUT1:
            raise _Refused(Reason.NO_DESTINATIONS_AVAILABLE, detail)
        raise _Refused(Reason.CLUSTER_PUT_INHIBITED, detail)

    def _per_message(self, row: str, names: Names, one: ClusterInstance) -> Resolution:
        self._step(row, "cluster queue, not bound to an instance", None, names, names)
        return self._result(
            Target.PER_MESSAGE,
            names,
            first=one,
            resolved=Names(queue=names.queue, queue_manager=""),
            limits=UNLIMITED,
        )

    def _cluster_queue(self, row: str, names: Names, chosen: ClusterInstance) -> Resolution:
        after = Names(queue=names.queue, queue_manager=chosen.route.queue_manager)
        self._path.append(chosen)
        self._step(row, "instance of the cluster queue", chosen, names, after)
        shared = self._uses_shared_transmission_queue(after.queue_manager)
        carrier = self._shared_carrier(after.queue_manager) if shared else None
        return self._carried(row, carrier or self._cluster_carrier(chosen.route), after)

    # What carries a message to another manager

    def _carrier(self, queue_manager: str, named: str) -> _Carrier:
        """The transmission queue to a manager (``carrier`` of B.4)."""
        if named:
            return _Carrier(self._named_transmission_queue(named), "XMITQ names it")
        queue = self._manager.queue(queue_manager)
        if queue is not None:
            if not isinstance(queue, LocalQueue):
                raise _Refused(Reason.XMIT_Q_TYPE_ERROR, f"{queue} is no transmission queue", queue)
            if queue.usage is not Usage.XMITQ:
                raise _Refused(Reason.XMIT_Q_USAGE_ERROR, f"{queue} has USAGE(NORMAL)", queue)
            return _Carrier(queue, "named like the manager")
        cluster = self._cluster_way(queue_manager)
        if cluster is not None:
            return cluster
        if self._uses_shared_transmission_queue(queue_manager):
            return self._shared_carrier(queue_manager)
        return _Carrier(self._default_transmission_queue(queue_manager), "DEFXMITQ names it")

    def _named_transmission_queue(self, name: str) -> LocalQueue:
        queue = self._manager.queue(name)
        if queue is None:
            raise _Refused(Reason.UNKNOWN_XMIT_Q, f"there is no transmission queue {name}")
        if not isinstance(queue, LocalQueue):
            raise _Refused(
                Reason.XMIT_Q_TYPE_ERROR, f"XMITQ names {queue}, which is no QLOCAL", queue
            )
        if queue.usage is not Usage.XMITQ:
            raise _Refused(Reason.XMIT_Q_USAGE_ERROR, f"{queue} has USAGE(NORMAL)", queue)
        if name == SHARED_TRANSMISSION_QUEUE and not self._manager.attributes.intra_group_queuing:
            raise _Refused(Reason.XMIT_Q_USAGE_ERROR, f"{queue} needs IGQ(ENABLED)", queue)
        return queue

    def _default_transmission_queue(self, queue_manager: str) -> LocalQueue:
        name = self._manager.attributes.default_transmission_queue
        if not name:
            detail = f"nothing leads to queue manager {queue_manager}, and DEFXMITQ is blank"
            raise _Refused(Reason.UNKNOWN_REMOTE_Q_MGR, detail)
        queue = self._manager.queue(name)
        if queue is None:
            raise _Refused(
                Reason.UNKNOWN_DEF_XMIT_Q,
                f"DEFXMITQ names {name}, which is not known",
                self._manager.attributes,
            )
        if not isinstance(queue, LocalQueue):
            raise _Refused(Reason.DEF_XMIT_Q_TYPE_ERROR, f"DEFXMITQ names {queue}", queue)
        if queue.usage is not Usage.XMITQ or name == CLUSTER_TRANSMISSION_QUEUE:
            detail = f"DEFXMITQ names {queue}, which cannot serve as the default"
            raise _Refused(Reason.DEF_XMIT_Q_USAGE_ERROR, detail, queue)
        return queue

    def _cluster_way(self, queue_manager: str) -> _Carrier | None:
        """The way to a cluster queue manager, or to a host of a cluster queue manager alias."""
        candidates = [
            ClusterInstance(name=queue_manager, route=route)
            for route in self._network.routes(self._manager, queue_manager)
        ]
        if candidates:
            route = self._choose(candidates).route
            return self._cluster_carrier(route, by=route)
        hosts = self._network.instances(self._manager, queue_manager, aliases=True)
        if not hosts:
            return None
        able = [host for host in hosts if host.put_enabled]
        host = self._choose(able or hosts)
        self._path.append(host)
        return self._cluster_carrier(host.route, by=host)

    def _cluster_carrier(
        self, route: ClusterRoute, by: ClusterRoute | ClusterInstance | None = None
    ) -> _Carrier:
        queue = self._created_queue(self._network.transmission_queue(self._manager, route))
        return _Carrier(queue, f"cluster {route.cluster}", route.queue_manager, route.channel, by)

    def _uses_shared_transmission_queue(self, queue_manager: str) -> bool:
        return self._manager.attributes.intra_group_queuing and self._is_in_group(queue_manager)

    def _shared_carrier(self, queue_manager: str) -> _Carrier:
        queue = self._created_queue(SHARED_TRANSMISSION_QUEUE)
        return _Carrier(queue, "intra-group queuing", queue_manager)

    def _created_queue(self, name: str) -> LocalQueue:
        """A transmission queue that the product creates itself if no script defines it."""
        queue = self._manager.queue(name)
        return queue if isinstance(queue, LocalQueue) else LocalQueue(name=name, usage=Usage.XMITQ)

    # Ends

    def _check_output(self, names: Names, definition: Queue | None = None) -> None:
        """Refuse what needs a local queue where the way leads to another manager."""
        if self._needs_local:
            detail = f"{names} is not local; it can be opened for output and inquire only"
            raise _Refused(Reason.OPTION_NOT_VALID_FOR_TYPE, detail, definition)

    def _local(self, row: str, names: Names, queue: LocalQueue) -> Resolution:
        after = Names(queue=names.queue, queue_manager=self._manager.name)
        self._path.append(queue)
        self._step(row, "local queue", queue, names, after)
        return self._result(Target.LOCAL, after, limits=self._limits(queue))

    def _carried(self, row: str, carrier: _Carrier, names: Names) -> Resolution:
        queue = carrier.queue
        self._path.append(queue)
        self._step(row, f"transmission queue, {carrier.why}", queue, names, names)
        return self._result(
            Target.REMOTE,
            names,
            transmission_queue=queue.name,
            next_queue_manager=carrier.leads_to,
            channel=carrier.channel,
            limits=self._limits(queue),
        )

    def _limits(self, queue: LocalQueue | ModelQueue, *, temporary: bool = False) -> QueueLimits:
        return QueueLimits(
            put_enabled=all([one.put_enabled for one in self._path]),  # noqa: C419 - twice as fast
            max_message_length=queue.max_message_length,
            max_depth=queue.max_depth,
            queue_manager_max_message_length=self._manager.attributes.max_message_length,
            temporary=temporary,
        )

    def _cap_expiry(self) -> int | None:
        """The lowest CAPEXPRY of the path (CAPEXPRY of DEFINE queues)."""
        caps = [
            one.cap_expiry
            for one in self._path
            if isinstance(one, Queue) and one.cap_expiry is not None
        ]
        return min(caps, default=None)

    def _result(
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
        resolved = resolved or destination
        if not (self._for_output or self._request.options & NEEDS_NAMES):
            resolved = NO_NAMES
        attributes = self._first_object() or first
        return Resolution(
            opened_at=self._manager.name,
            steps=tuple(self._steps),
            target=target,
            resolved_queue_manager=resolved.queue_manager,
            resolved_queue=resolved.queue,
            destination=destination,
            transmission_queue=transmission_queue,
            next_queue_manager=next_queue_manager,
            channel=channel,
            path=tuple(self._path),
            limits=limits,
            default_persistence=attributes is not None and attributes.default_persistence,
            default_priority=attributes.default_priority if attributes else 0,
            cap_expiry=self._cap_expiry(),
            is_choice=self._is_choice,
        )

    def _step(
        self,
        row: str,
        rule: str,
        definition: Used | None,
        before: Names,
        after: Names,
    ) -> None:
        self._steps.append(Step(self._manager.name, row, rule, definition, before, after))
