"""Several queue managers together: what their repositories know, and where channels lead.

Cluster knowledge follows from the definitions: a manager is in a cluster if it has a
cluster-receiver channel for it, and its queues with that CLUSTER are known to every other member.
Channels of sender and receiver find each other by their common name.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from redrive.topology.mq import objects as mq
from redrive.topology.mq.queue_manager import (
    ClusterInstance,
    ClusterRoute,
    QueueManager,
    QueueSharingGroup,
)
from redrive.topology.names import Names
from redrive.topology.put import DynamicQueue

_SENDERS = (mq.ChannelType.SDR, mq.ChannelType.SVR)
_RECEIVERS = (mq.ChannelType.RCVR, mq.ChannelType.RQSTR)
_DEFAULT_RECEIVER = mq.Channel(name="SYSTEM.DEF.RECEIVER", channel_type=mq.ChannelType.RCVR)


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A channel between two queue managers, which empties a transmission queue."""

    queue_manager: str
    sender: mq.Channel | None = None
    receiver: mq.Channel = _DEFAULT_RECEIVER

    @property
    def is_fast(self) -> bool:
        """Whether nonpersistent messages may be lost: both ends have NPMSPEED(FAST)."""
        return self.receiver.fast_nonpersistent and (
            self.sender is None or self.sender.fast_nonpersistent
        )


class MqNetwork:
    """Queue managers that know of each other."""

    def __init__(
        self, queue_managers: Iterable[QueueManager], *, links: Mapping[Names, Link] | None = None
    ) -> None:
        """Connect queue managers; the last of several with the same name counts.

        ``links`` are further channels, by transmission queue and sending manager.
        """
        self.queue_managers: Mapping[str, QueueManager] = {
            manager.name: manager for manager in _in_groups(queue_managers)
        }
        self._routes: dict[str, dict[str, list[ClusterRoute]]] = {}
        """Cluster -> manager -> the routes to it."""
        self._instances: dict[str, dict[str, list[ClusterInstance]]] = {}
        """Cluster -> queue -> its instances."""
        self._clusters: dict[str, tuple[str, ...]] = {}
        """Manager -> its clusters."""
        for manager in self.queue_managers.values():
            self._join_clusters(manager)
        self._receivers: dict[str, list[tuple[str, mq.Channel]]] = defaultdict(list)
        """Managers and channels that receive, by the name of the channel."""
        for name, manager in self.queue_managers.items():
            for channel in manager.channels.values():
                if channel.channel_type in _RECEIVERS:
                    self._receivers[channel.name].append((name, channel))
        self._given_links = dict(links or {})
        links_by_queue = {
            Names(queue=channel.transmission_queue, queue_manager=name): link
            for name, manager in self.queue_managers.items()
            # If several channels name a queue, the alphabetically first one serves it.
            for channel in sorted(senders(manager), key=lambda sender: sender.name, reverse=True)
            if (link := self._link_of(name, channel)) is not None
        }
        self._links = links_by_queue | self._given_links

    def with_put_enabled(self, changes: Mapping[tuple[str, str], bool]) -> MqNetwork:
        """The network with PUT of some queues changed, by manager and queue."""
        changed = []
        for (name, queue), put_enabled in changes.items():
            manager = self.queue_managers.get(name)
            definition = manager and (manager.queues.get(queue) or manager.shared_queues.get(queue))
            if definition:
                changed.append((name, replace(definition, put_enabled=put_enabled)))
        return self._with_queues(changed)

    def with_dynamic_queues(self, opened: Iterable[DynamicQueue]) -> MqNetwork:
        """The network with dynamic queues that opens created.

        A queue whose model was deleted has the attributes of a new model queue. A definition of the
        same name takes precedence.
        """
        made = []
        for definition in opened:
            manager = self.queue_managers.get(definition.queue_manager)
            if manager is None or manager.queue(definition.queue) is not None:
                continue
            model = manager.queue(definition.model)
            if not isinstance(model, mq.ModelQueue):
                model = mq.ModelQueue(name=definition.model)
            queue = replace(model.make(definition.queue), is_temporary=definition.until is not None)
            made.append((definition.queue_manager, queue))
        return self._with_queues(made)

    def _with_queues(self, queues: Iterable[tuple[str, mq.Queue]]) -> MqNetwork:
        managers = dict(self.queue_managers)
        for name, queue in queues:
            group = managers[name].queue_sharing_group
            if isinstance(queue, mq.LocalQueue) and queue.is_shared and group:
                for member in {name, *group.members} & managers.keys():
                    shared = {**managers[member].shared_queues, queue.name: queue}
                    managers[member] = replace(managers[member], shared_queues=shared)
            else:
                private = {**managers[name].queues, queue.name: queue}
                managers[name] = replace(managers[name], queues=private)
        return MqNetwork(managers.values(), links=self._given_links)

    def __contains__(self, queue_manager: object) -> bool:
        return queue_manager in self.queue_managers

    def _join_clusters(self, manager: QueueManager) -> None:
        routes = [
            _route(manager, channel, cluster)
            for channel in manager.channels.values()
            if channel.channel_type is mq.ChannelType.CLUSRCVR
            for cluster in manager.clusters_of(channel.cluster, channel.cluster_namelist)
        ]
        self._clusters[manager.name] = tuple(sorted({route.cluster for route in routes}))
        for route in routes:
            self._routes.setdefault(route.cluster, defaultdict(list))[manager.name].append(route)
        if not routes:
            return
        for queue in manager.queues.values():
            clusters = manager.clusters_of(queue.cluster, queue.cluster_namelist)
            for route in routes:
                if route.cluster in clusters:
                    known = self._instances.setdefault(route.cluster, defaultdict(list))
                    known[queue.name].append(_instance(queue, route))

    def routes(self, at: QueueManager, queue_manager: str) -> list[ClusterRoute]:
        """The cluster channels over which a manager reaches another one; may be empty."""
        routes = [route for route in _known_routes(at) if route.queue_manager == queue_manager]
        for cluster in self.joined(at):
            routes += self._routes[cluster].get(queue_manager, ())
        return routes

    def instances(
        self, at: QueueManager, name: str, *, aliases: bool = False
    ) -> list[ClusterInstance]:
        """Instances of a cluster queue at others, as a manager's repository knows them.

        With ``aliases``, instances of a cluster queue manager alias instead of a queue.
        """
        instances = [instance for instance in at.known_instances if instance.name == name]
        seen = {instance.route.queue_manager for instance in instances}
        for cluster in self.joined(at):
            instances += (
                instance
                for instance in self._instances.get(cluster, {}).get(name, ())
                if instance.route.queue_manager not in seen
            )
        return [
            instance
            for instance in instances
            if instance.is_queue_manager_alias is aliases
            and instance.route.queue_manager != at.name
        ]

    def routes_from(self, at: QueueManager) -> list[ClusterRoute]:
        """The cluster channels to other members, each member once for each transmission queue."""
        found: dict[tuple[str, str], ClusterRoute] = {}
        for cluster in self.joined(at):
            for name, routes in self._routes[cluster].items():
                for route in routes if name != at.name else ():
                    found.setdefault((name, self.transmission_queue(at, route)), route)
        return list(found.values())

    def joined(self, at: QueueManager) -> tuple[str, ...]:
        """The clusters of a manager: those of its cluster-receiver channels, by name."""
        return self._clusters.get(at.name, ())

    def own_instance(self, at: QueueManager, queue: mq.Queue) -> ClusterInstance:
        """A manager's own clustered queue as workload management compares it with others."""
        channels = (
            route for cluster in self.joined(at) for route in self._routes[cluster][at.name]
        )
        clusters = at.clusters_of(queue.cluster, queue.cluster_namelist)
        own = ClusterRoute(queue_manager=at.name, cluster=next(iter(clusters), ""))
        route = next((route for route in channels if route.cluster in clusters), own)
        return _instance(queue, route)

    def transmission_queue(self, at: QueueManager, route: ClusterRoute) -> str:
        """The name of the cluster transmission queue that a route uses.

        A QLOCAL whose CLCHNAME matches the channel takes precedence, the most specific one before
        others; then DEFCLXQ decides.
        """
        if route.channel:
            matching = [
                queue
                for queue in at.queues.values()
                if isinstance(queue, mq.LocalQueue)
                and queue.cluster_channels
                and queue.is_transmission_queue
                and re.fullmatch(
                    re.escape(queue.cluster_channels).replace(r"\*", ".*"), route.channel
                )
            ]
            if matching:
                return min(matching, key=_specificity).name
            if at.attributes.has_queue_per_channel:
                return f"SYSTEM.CLUSTER.TRANSMIT.{route.channel}"
        return mq.CLUSTER_TRANSMISSION_QUEUE

    def link(self, *, queue: str, queue_manager: str) -> Link | None:
        """The channel that serves a transmission queue; None if unknown."""
        return self._links.get(Names(queue=queue, queue_manager=queue_manager))

    def reached(self) -> frozenset[str]:
        """Names of the managers that another one reaches by a channel or in a cluster."""
        reached = {
            link.queue_manager
            for names, link in self._links.items()
            if names.queue_manager != link.queue_manager
        }
        for members in self._routes.values():
            if len(members) > 1:
                reached.update(members)
        for manager in self.queue_managers.values():
            reached.update(route.queue_manager for route in _known_routes(manager))
            reached.update(self.group_of(manager))
        return frozenset(reached)

    def group_of(self, manager: QueueManager) -> tuple[str, ...]:
        """The other members of a manager's queue-sharing group that the network has."""
        group = manager.queue_sharing_group
        members = group.members if group else ()
        return tuple(member for member in members if member != manager.name and member in self)

    def receivers(self, sender: str, channel: mq.Channel) -> list[tuple[str, mq.Channel]]:
        """Managers with a receiver or requester channel of a sender's name, and that channel."""
        return [
            (name, receiver)
            for name, receiver in self._receivers.get(channel.name, ())
            if name != sender
        ]

    def _link_of(self, sender: str, channel: mq.Channel) -> Link | None:
        """Where a sender channel leads.

        To its receiver; if several managers have one of this name, to the manager that the
        transmission queue is named after. Without a receiver it leads nowhere.
        """
        receivers = self.receivers(sender, channel)
        named = [pair for pair in receivers if pair[0] == channel.transmission_queue]
        for name, receiver in named or (receivers if len(receivers) == 1 else ()):
            return Link(queue_manager=name, sender=channel, receiver=receiver)
        return None

    def why_held(self, *, queue: str, queue_manager: str) -> str:
        """Why nothing moves the messages of a transmission queue, as a sentence."""
        channels = senders(self.queue_managers[queue_manager])
        serving = [channel for channel in channels if channel.transmission_queue == queue]
        if not serving:
            return f"no channel serves transmission queue {queue} of {queue_manager}"
        channel = min(serving, key=lambda candidate: candidate.name)
        if several := ", ".join(name for name, _ in self.receivers(queue_manager, channel)):
            return f"channel {channel.name} of {queue_manager} may lead to any of {several}"
        return f"no queue manager has a receiver for channel {channel.name} of {queue_manager}"


def _in_groups(queue_managers: Iterable[QueueManager]) -> Iterator[QueueManager]:
    """Queue managers as members of the queue-sharing groups named by QSGNAME.

    All members have the shared queues of each; the first of several definitions counts.
    """
    managers = list(queue_managers)
    groups: dict[str, list[QueueManager]] = defaultdict(list)
    for member in managers:
        if member.queue_sharing_group is None and member.attributes.queue_sharing_group:
            groups[member.attributes.queue_sharing_group].append(member)
    for manager in managers:
        members = groups.get(manager.attributes.queue_sharing_group, [])
        if manager not in members:
            yield manager
            continue
        group = QueueSharingGroup(
            name=manager.attributes.queue_sharing_group,
            members=tuple(member.name for member in members),
        )
        shared = {
            queue.name: queue
            for member in reversed(members)
            for queue in member.shared_queues.values()
        }
        yield replace(manager, queue_sharing_group=group, shared_queues=shared)


def senders(manager: QueueManager) -> Iterator[mq.Channel]:
    """The sender and server channels of a manager that serve a transmission queue."""
    return (
        channel
        for channel in manager.channels.values()
        if channel.channel_type in _SENDERS and channel.transmission_queue
    )


def _known_routes(at: QueueManager) -> Iterator[ClusterRoute]:
    """Routes known from the repository only; each manager and cluster once."""
    seen = set()
    instances = (instance.route for instance in at.known_instances)
    for route in (*at.known_routes, *instances):
        if (key := (route.queue_manager, route.cluster, route.channel)) not in seen:
            seen.add(key)
            yield route


def _route(manager: QueueManager, channel: mq.Channel, cluster: str) -> ClusterRoute:
    return ClusterRoute(
        queue_manager=manager.name,
        cluster=cluster,
        channel=channel.name,
        rank=channel.cluster_rank,
        priority=channel.cluster_priority,
        weight=channel.cluster_weight,
        network_priority=channel.network_priority,
        suspended=cluster in manager.suspended_clusters,
        location=channel.location,
    )


def _instance(queue: mq.Queue, route: ClusterRoute) -> ClusterInstance:
    return ClusterInstance(
        name=queue.name,
        route=route,
        keyword=queue.keyword,
        is_queue_manager_alias=isinstance(queue, mq.RemoteQueue) and queue.is_queue_manager_alias,
        put_enabled=queue.put_enabled,
        rank=queue.cluster_rank,
        priority=queue.cluster_priority,
        default_bind=queue.default_bind,
        default_persistence=queue.default_persistence,
        default_priority=queue.default_priority,
        location=queue.location,
    )


def _specificity(queue: mq.LocalQueue) -> tuple[bool, int, str]:
    """A sort key: names without ``*`` first, then those with the most other characters."""
    pattern = queue.cluster_channels
    return "*" in pattern, -len(pattern.replace("*", "")), queue.name
