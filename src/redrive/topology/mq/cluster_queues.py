"""Cluster queues: the instance to which an open leads, now or for each message (R2, R9, B.10)."""

from __future__ import annotations

from typing import NoReturn

from redrive.topology.mq.objects import DefaultBind, LocalQueue, UseQueue
from redrive.topology.mq.opening import Opening, OpenRefused
from redrive.topology.mq.queue_manager import ClusterInstance
from redrive.topology.mq.results import Bind, Call, Resolution, Target
from redrive.topology.mq.transmission import TransmissionQueues
from redrive.topology.names import Names
from redrive.topology.put import UNLIMITED
from redrive.topology.reasons import Reason


class ClusterQueues:
    """Chooses among the instances of cluster queues, for one open."""

    __slots__ = ("_manager", "_network", "_opening", "_request", "_transmission")

    def __init__(self, opening: Opening, transmission: TransmissionQueues) -> None:
        """Take the open, and what leads to other managers."""
        self._opening, self._request = opening, opening.request
        self._network, self._manager = opening.network, opening.manager
        self._transmission = transmission

    def workload(
        self,
        row: str,
        names: Names,
        instances: list[ClusterInstance],
        local: LocalQueue | None,
    ) -> Resolution:
        """Choose an instance, now or for each message (rows R2, R9).

        Args:
            row: The row of the resolution table.
            names: The names that lead to the queue.
            instances: The instances that the manager knows at others.
            local: The manager's own definition; None if it has none.

        Raises:
            OpenRefused: No instance will do.
        """
        if self._opening.needs_local:
            # OPEN: documented as failing, without a code; such a queue is unknown to input.
            detail = f"cluster queue {names.queue} has no instance at {self._manager.name}"
            raise OpenRefused(Reason.UNKNOWN_OBJECT_NAME, detail)
        if not self._opening.path:
            # A local definition gives the defaults even if another instance gets the message.
            self._opening.first = local
        able = [instance for instance in instances if instance.put_enabled]
        if not self._opening.for_output:
            able = instances
        own = self._network.own_instance(self._manager, local) if local else None
        if own is not None and own.put_enabled:
            able = [own] if self._prefers_local(local) else [own, *able]
        bind = self._bind(able or ([own] if own else instances))
        per_message = bind is Bind.NOT_FIXED and self._request.call is Call.MQOPEN
        if per_message and self._opening.for_output:
            return self._per_message(row, names, instances[0])
        if not able and own is None:
            self._refuse_all_disabled(names)
        # OPEN: with a local instance the open succeeds although every instance is disabled; so
        # does MQPUT1, and the put then meets the local PUT(DISABLED).
        chosen = own if own is not None and not able else self._opening.choose(able)
        if local is not None and chosen is own:
            return self._opening.local(row, names, local)
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
        first = self._opening.first_object() or self._opening.choose(instances)
        default = first.default_bind
        return Bind.NOT_FIXED if default is DefaultBind.NOTFIXED else Bind.ON_OPEN

    def _refuse_all_disabled(self, names: Names) -> NoReturn:
        detail = f"every instance of cluster queue {names.queue} has PUT(DISABLED)"
        if self._request.call is Call.MQPUT1:
            raise OpenRefused(Reason.NO_DESTINATIONS_AVAILABLE, detail)
        raise OpenRefused(Reason.CLUSTER_PUT_INHIBITED, detail)

    def _per_message(self, row: str, names: Names, one: ClusterInstance) -> Resolution:
        self._opening.step(row, "cluster queue, not bound to an instance", None, names, names)
        return self._opening.result(
            Target.PER_MESSAGE,
            names,
            first=one,
            resolved=Names(queue=names.queue, queue_manager=""),
            limits=UNLIMITED,
        )

    def _cluster_queue(self, row: str, names: Names, chosen: ClusterInstance) -> Resolution:
        after = Names(queue=names.queue, queue_manager=chosen.route.queue_manager)
        self._opening.path.append(chosen)
        self._opening.step(row, "instance of the cluster queue", chosen, names, after)
        return self._opening.carried(row, self._transmission.to_instance(chosen.route), after)
