"""Checks of clusters: what their members could not learn in IBM MQ, and know here.

In IBM MQ a member learns of queues and of other members from full repositories, and finds these by
cluster-sender channels that are named like the cluster-receiver channels of the repositories. Here
every member knows what the definitions say, so all of it is noted and nothing of it counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from redrive.diagnostics import Diagnostic, Severity
from redrive.topology.mq.network import Network
from redrive.topology.mq.objects import Channel, ChannelType
from redrive.topology.mq.queue_manager import QueueManager


@dataclass(frozen=True, slots=True)
class _Member:
    """A queue manager with a cluster-receiver channel for a cluster."""

    manager: QueueManager
    receiver: Channel
    is_full: bool
    """Whether it holds a full repository of the cluster."""
    senders: frozenset[str]
    """Its cluster-sender channels for the cluster, by name."""


def check_clusters(network: Network) -> Iterator[Diagnostic]:
    """Notes on clusters with several members.

    Args:
        network: The queue managers.

    Yields:
        A cluster without a full repository; members, full repositories among them, that no
        cluster-sender channel connects with another full repository. Where no member has such a
        channel they are taken for automatic ones, as uniform clusters have them.
    """
    for cluster, members in sorted(_members_by_cluster(network).items()):
        if len(members) < 2:  # noqa: PLR2004 - alone it has nobody to learn from
            continue
        if not any(one.is_full for one in members):
            yield _without_repository(cluster, members[0])
        elif any(one.senders for one in members):
            for one in members:
                yield from _unconnected(cluster, one, members)


def _members_by_cluster(network: Network) -> dict[str, list[_Member]]:
    found: dict[str, list[_Member]] = {}
    for manager in network.queue_managers.values():
        attributes = manager.attributes
        full = manager.clusters_of(attributes.repository_cluster, attributes.repository_namelist)
        for cluster, receiver in _channels(manager, ChannelType.CLUSRCVR):
            senders = (
                channel.name
                for name, channel in _channels(manager, ChannelType.CLUSSDR)
                if name == cluster
            )
            member = _Member(manager, receiver, cluster in full, frozenset(senders))
            found.setdefault(cluster, []).append(member)
    return found


def _channels(manager: QueueManager, kind: ChannelType) -> Iterator[tuple[str, Channel]]:
    """Channels of a kind, with each cluster that they are for."""
    for channel in manager.channels.values():
        if channel.channel_type is kind:
            for cluster in manager.clusters_of(channel.cluster, channel.cluster_namelist):
                yield cluster, channel


def _without_repository(cluster: str, member: _Member) -> Diagnostic:
    message = f"no queue manager here holds a full repository of cluster {cluster}"
    hint = (
        "in IBM MQ its members would know nothing of each other (2085, 2189), here they do;"
        " set REPOS on two of them, or add the definitions of those that have it"
    )
    return member.receiver.location.finding(Severity.NOTE, "NO_FULL_REPOSITORY", message, hint=hint)


def _unconnected(cluster: str, member: _Member, members: Iterable[_Member]) -> Iterator[Diagnostic]:
    name = member.manager.name
    others = {
        one.receiver.name for one in members if one.is_full and one.manager is not member.manager
    }
    if not others or others & member.senders:
        return
    what = f"full repository {name}" if member.is_full else name
    message = f"no cluster-sender channel of {what} leads to a full repository of {cluster}"
    hint = (
        "in IBM MQ it would not learn of the others, here it does; define CHLTYPE(CLUSSDR) named"
        f" like the CLUSRCVR channel there: {', '.join(sorted(others))}"
    )
    yield member.receiver.location.finding(
        Severity.NOTE, "NO_REPOSITORY_CHANNEL", message, hint=hint
    )
