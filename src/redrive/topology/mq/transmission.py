"""What carries a message to another queue manager (``carrier`` of B.4)."""

from __future__ import annotations

from redrive.topology.mq.objects import (
    CLUSTER_TRANSMISSION_QUEUE,
    SHARED_TRANSMISSION_QUEUE,
    LocalQueue,
    Usage,
)
from redrive.topology.mq.opening import Carrier, Opening, OpenRefused
from redrive.topology.mq.queue_manager import ClusterInstance, ClusterRoute
from redrive.topology.reasons import Reason


class TransmissionQueues:
    """Finds the transmission queue that leads to another manager, for one open."""

    __slots__ = ("_manager", "_network", "_opening")

    def __init__(self, opening: Opening) -> None:
        """Take the open."""
        self._opening = opening
        self._network, self._manager = opening.network, opening.manager

    def carrier(self, queue_manager: str, named: str) -> Carrier:
        """The transmission queue to a manager.

        Args:
            queue_manager: The manager.
            named: XMITQ of the definition that leads there; empty if none is named.

        Raises:
            OpenRefused: Nothing leads there, or what should cannot.
        """
        if named:
            return Carrier(self._named_transmission_queue(named), "XMITQ names it")
        queue = self._manager.queue(queue_manager)
        if queue is not None:
            if not isinstance(queue, LocalQueue):
                raise OpenRefused(
                    Reason.XMIT_Q_TYPE_ERROR, f"{queue} is no transmission queue", queue
                )
            if queue.usage is not Usage.XMITQ:
                raise OpenRefused(Reason.XMIT_Q_USAGE_ERROR, f"{queue} has USAGE(NORMAL)", queue)
            return Carrier(queue, "named like the manager")
        cluster = self._cluster_way(queue_manager)
        if cluster is not None:
            return cluster
        if self._uses_shared_transmission_queue(queue_manager):
            return self._shared_carrier(queue_manager)
        return Carrier(self._default_transmission_queue(queue_manager), "DEFXMITQ names it")

    def _named_transmission_queue(self, name: str) -> LocalQueue:
        queue = self._manager.queue(name)
        if queue is None:
            raise OpenRefused(Reason.UNKNOWN_XMIT_Q, f"there is no transmission queue {name}")
        if not isinstance(queue, LocalQueue):
            raise OpenRefused(
                Reason.XMIT_Q_TYPE_ERROR, f"XMITQ names {queue}, which is no QLOCAL", queue
            )
        if queue.usage is not Usage.XMITQ:
            raise OpenRefused(Reason.XMIT_Q_USAGE_ERROR, f"{queue} has USAGE(NORMAL)", queue)
        if name == SHARED_TRANSMISSION_QUEUE and not self._manager.attributes.intra_group_queuing:
            raise OpenRefused(Reason.XMIT_Q_USAGE_ERROR, f"{queue} needs IGQ(ENABLED)", queue)
        return queue

    def _default_transmission_queue(self, queue_manager: str) -> LocalQueue:
        name = self._manager.attributes.default_transmission_queue
        if not name:
            detail = f"nothing leads to queue manager {queue_manager}, and DEFXMITQ is blank"
            raise OpenRefused(Reason.UNKNOWN_REMOTE_Q_MGR, detail)
        queue = self._manager.queue(name)
        if queue is None:
            raise OpenRefused(
                Reason.UNKNOWN_DEF_XMIT_Q,
                f"DEFXMITQ names {name}, which is not known",
                self._manager.attributes,
            )
        if not isinstance(queue, LocalQueue):
            raise OpenRefused(Reason.DEF_XMIT_Q_TYPE_ERROR, f"DEFXMITQ names {queue}", queue)
        if queue.usage is not Usage.XMITQ or name == CLUSTER_TRANSMISSION_QUEUE:
            detail = f"DEFXMITQ names {queue}, which cannot serve as the default"
            raise OpenRefused(Reason.DEF_XMIT_Q_USAGE_ERROR, detail, queue)
        return queue

    def _cluster_way(self, queue_manager: str) -> Carrier | None:
        """The way to a cluster queue manager, or to a host of a cluster queue manager alias."""
        candidates = [
            ClusterInstance(name=queue_manager, route=route)
            for route in self._network.routes(self._manager, queue_manager)
        ]
        if candidates:
            route = self._opening.choose(candidates).route
            return self._cluster_carrier(route, by=route)
        hosts = self._network.instances(self._manager, queue_manager, aliases=True)
        if not hosts:
            return None
        able = [host for host in hosts if host.put_enabled]
        host = self._opening.choose(able or hosts)
        self._opening.path.append(host)
        return self._cluster_carrier(host.route, by=host)

    def to_instance(self, route: ClusterRoute) -> Carrier:
        """The transmission queue to the manager of a cluster queue's instance.

        Args:
            route: The way through the cluster.
        """
        if self._uses_shared_transmission_queue(route.queue_manager):
            return self._shared_carrier(route.queue_manager)
        return self._cluster_carrier(route)

    def _cluster_carrier(
        self, route: ClusterRoute, by: ClusterRoute | ClusterInstance | None = None
    ) -> Carrier:
        queue = self._created_queue(self._network.transmission_queue(self._manager, route))
        return Carrier(queue, f"cluster {route.cluster}", route.queue_manager, route.channel, by)

    def _uses_shared_transmission_queue(self, queue_manager: str) -> bool:
        return self._manager.attributes.intra_group_queuing and self._opening.is_in_group(
            queue_manager
        )

    def _shared_carrier(self, queue_manager: str) -> Carrier:
        queue = self._created_queue(SHARED_TRANSMISSION_QUEUE)
        return Carrier(queue, "intra-group queuing", queue_manager)

    def _created_queue(self, name: str) -> LocalQueue:
        """A transmission queue that the product creates itself if no script defines it."""
        queue = self._manager.queue(name)
        return queue if isinstance(queue, LocalQueue) else LocalQueue(name=name, usage=Usage.XMITQ)
