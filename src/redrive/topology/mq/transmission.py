"""How a message reaches another queue manager: transmission queues, and cluster queues elsewhere.

Rows R2 and R9 of "The table" in docs/resolution.md, and "Which cluster instance is chosen" there.
"""

from __future__ import annotations

from redrive.messages.reasons import Reason
from redrive.topology.mq import objects as mq
from redrive.topology.mq.opening import Carrier, Opening, OpenRefused
from redrive.topology.mq.queue_manager import ClusterInstance, ClusterRoute
from redrive.topology.mq.results import Bind, Call, Resolution, Target
from redrive.topology.names import Names
from redrive.topology.put import UNLIMITED


def carrier(opening: Opening, queue_manager: str, named: str) -> Carrier:
    """The transmission queue to a manager; ``named`` is XMITQ of the definition used."""
    if named:
        return Carrier(_named_queue(opening, named), "XMITQ names it")
    queue = opening.manager.queue(queue_manager)
    if queue is not None:
        checked = _transmission_queue(queue, f"{queue} is not a transmission queue")
        return Carrier(checked, "named like the manager")
    if (cluster := _cluster_way(opening, queue_manager)) is not None:
        return cluster
    if (shared := _shared_way(opening, queue_manager)) is not None:
        return shared
    return Carrier(_default_queue(opening, queue_manager), "DEFXMITQ names it")


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
    attributes = opening.manager.attributes
    name = attributes.default_transmission_queue
    if not name:
        detail = f"nothing leads to queue manager {queue_manager}, and DEFXMITQ is blank"
        raise OpenRefused(Reason.UNKNOWN_REMOTE_Q_MGR, detail)
    queue = opening.manager.queue(name)
    if queue is None:
        detail = f"DEFXMITQ names {name}, which is not known"
        raise OpenRefused(Reason.UNKNOWN_DEF_XMIT_Q, detail, attributes)
    if not isinstance(queue, mq.LocalQueue):
        raise OpenRefused(Reason.DEF_XMIT_Q_TYPE_ERROR, f"DEFXMITQ names {queue}", queue)
    if not queue.is_transmission_queue or name == mq.CLUSTER_TRANSMISSION_QUEUE:
        detail = f"DEFXMITQ names {queue}, which cannot serve as the default"
        raise OpenRefused(Reason.DEF_XMIT_Q_USAGE_ERROR, detail, queue)
    return queue


def _cluster_way(opening: Opening, queue_manager: str) -> Carrier | None:
    """The route to a cluster queue manager, or to a host of a cluster queue manager alias."""
    network, manager = opening.network, opening.manager
    candidates = [
        ClusterInstance(name=queue_manager, route=route)
        for route in network.routes(manager, queue_manager)
    ]
    if candidates:
        return _in_cluster(opening, opening.choose(candidates).route)
    hosts = network.instances(manager, queue_manager, aliases=True)
    if not hosts:
        return None
    able = [host for host in hosts if host.put_enabled]
    host = opening.choose(able or hosts)
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
        resolved = Names(queue=names.queue)
        return opening.result(
            Target.PER_MESSAGE, names, first=instances[0], resolved=resolved, limits=UNLIMITED
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
