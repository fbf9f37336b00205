"""Name resolution of IBM MQ: from the names in an MQOPEN or MQPUT1 to a queue.

Each branch names its row of "The table" in docs/resolution.md. ``OPEN`` marks a branch on which
IBM's documentation is silent; "Readings" on the same page lists them.
"""

from __future__ import annotations

from redrive.messages.reasons import Reason
from redrive.topology.mq import objects as mq
from redrive.topology.mq.forms import MAX_NAME_LENGTH, ValueProblem, check_name
from redrive.topology.mq.network import Network
from redrive.topology.mq.opening import Carrier, Opening, OpenRefused, draw
from redrive.topology.mq.queue_manager import QueueManager
from redrive.topology.mq.results import Call, OpenOption, OpenRequest, Resolution, Target
from redrive.topology.mq.transmission import carrier, workload
from redrive.topology.names import Names

_LAST_ASTERISK = 33
_GENERATED_DIGITS = 16


def open_queue(network: Network, at: str, request: OpenRequest) -> Resolution:
    """Resolve the names of an MQOPEN or MQPUT1 at one manager of the network."""
    table = _Table(network, network.queue_managers[at], request)
    try:
        return table.resolve()
    except OpenRefused as refusal:
        return table.refused(refusal)


class _Table(Opening):
    """The rows of the resolution table, for one open."""

    __slots__ = ("_alias_of_local", "_remote_forbidden")

    def __init__(self, network: Network, manager: QueueManager, request: OpenRequest) -> None:
        super().__init__(network, manager, request)
        self._alias_of_local = False
        """Whether a queue manager alias for the local manager was used: then models are refused."""
        self._remote_forbidden = False
        """Whether a queue manager alias was used that must not lead to a remote definition."""

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
            return self.local("R11", names, self.manager.shared_queues[names.queue])
        if not names.queue:
            detail = f"no queue is named at queue manager {names.queue_manager}"
            raise OpenRefused(Reason.REMOTE_Q_NAME_ERROR, detail)
        return self._by_queue_manager(names)

    def _is_shared_at(self, names: Names) -> bool:
        """Whether row R11 applies: a shared queue, at another member of the group.

        OPEN: the table opens it here whatever SQQMNAME says; an explicit SQQMNAME(USE) sends the
        put to
        the member instead, as the attribute's page says.
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
                return self._unknown_queue_manager(names)
            case mq.LocalQueue(is_transmission_queue=True) as queue:
                self.check_output(names, queue)
                return self.carried("R12", Carrier(queue, "named like the manager"), names)
            case mq.LocalQueue() as queue:
                raise OpenRefused(Reason.XMIT_Q_USAGE_ERROR, f"{queue} has USAGE(NORMAL)", queue)
            case mq.RemoteQueue(remote_queue="") as alias:
                return self._queue_manager_alias(alias, names)
            case queue:
                # OPEN for an alias queue: no page covers it; treated like the other kinds.
                detail = f"{queue} is neither a transmission queue nor a queue manager alias"
                advice = "name the queue manager itself, or make the object a transmission queue"
                raise OpenRefused(Reason.UNKNOWN_REMOTE_Q_MGR, detail, queue, advice=advice)

    def _unknown_queue_manager(self, names: Names) -> Resolution:
        self.check_output(names)
        way = carrier(self, names.queue_manager, "")
        return self.carried("R14" if way.is_of_cluster else "R15", way, names)

    def _queue_manager_alias(self, alias: mq.RemoteQueue, names: Names) -> Resolution:
        after = Names(queue=names.queue, queue_manager=alias.remote_queue_manager)
        if after.queue_manager and not self.is_local(after.queue_manager):
            self.check_output(names, alias)
            self.path.append(alias)
            self.step("R13", "queue manager alias", alias, names, after)
            way = carrier(self, after.queue_manager, alias.transmission_queue)
            return self.carried("R13", way, after)
        self.path.append(alias)
        self._remote_forbidden = True
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
        if not instances:
            return self.local("R2", names, queue)
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
        return self.result(Target.DYNAMIC, after, limits=self.limits(model.make(name)))

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
            target=Target.TOPIC,
            destination=after,
            path=tuple(self.path),
        )

    def _remote_definition(self, names: Names, definition: mq.RemoteQueue) -> Resolution:
        after = Names(queue=definition.remote_queue, queue_manager=definition.remote_queue_manager)
        if self._remote_forbidden:
            # OPEN: documented as forbidden after a queue manager alias, without a code.
            detail = f"a queue manager alias must not lead to {definition}"
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
