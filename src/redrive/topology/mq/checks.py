"""Findings about a whole topology: what its definitions do together.

Each script may be correct and puts may still fail. Every alias and remote definition is resolved
and followed, so that a finding gives the result of a put to it.

In IBM MQ a member of a cluster learns of queues and of other members from full repositories, and
finds these by cluster-sender channels that are named like the cluster-receiver channels of the
repositories. Here every member knows all definitions, so missing ones are only noted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from redrive.diagnostics import Diagnostic, Severity, SourceLocation
from redrive.messages.reasons import ADVICE, Reason
from redrive.topology.layout import Topology, topics_of
from redrive.topology.mq import objects as mq
from redrive.topology.mq.network import MqNetwork, senders
from redrive.topology.mq.objects import ignored_attributes
from redrive.topology.mq.queue_manager import SYSTEM_NAMES, QueueManager
from redrive.topology.mq.results import location_of
from redrive.topology.names import Names, put_topic
from redrive.topology.put import PERSISTENT, Destination, Refusal, check_limits
from redrive.topology.receiving import MqReceivingQueueManager, receiving_queue_managers


def _finding(
    severity: Severity,
    of: mq.Definition | SourceLocation,
    code: str,
    message: str,
    hint: str = "",
) -> Diagnostic:
    location = of.location if isinstance(of, mq.Definition) else of
    return location.finding(severity, code, message, hint=hint)


_warning = partial(_finding, Severity.WARNING)
_note = partial(_finding, Severity.NOTE)
_ANY_QUEUE = "ANY.QUEUE"
_CODES: Mapping[int, str] = {
    Reason.ALIAS_BASE_Q_TYPE_ERROR: "ALIAS_TARGET",
    Reason.UNKNOWN_ALIAS_BASE_Q: "ALIAS_TARGET",
    Reason.UNKNOWN_REMOTE_Q_MGR: "NO_TRANSMISSION_QUEUE",
    Reason.UNKNOWN_XMIT_Q: "NO_TRANSMISSION_QUEUE",
    Reason.UNKNOWN_DEF_XMIT_Q: "NO_TRANSMISSION_QUEUE",
}


def check_topology(network: MqNetwork, *, others: Container[str] = ()) -> list[Diagnostic]:
    """Check queue managers against each other; ``others`` are the names of those of other kinds.

    What IBM MQ would accept, although a put fails, is a warning.
    """
    findings: list[Diagnostic] = []
    puts = _Puts(network, others)
    reached = network.reached()
    for manager in network.queue_managers.values():
        findings += _queue_manager_findings(network, manager)
        if len(network.queue_managers) > 1 and manager.name not in reached:
            message = f"no other queue manager has a channel to {manager.name}"
            hint = "a sender channel needs a receiver channel of the same name there, or a cluster"
            findings.append(_note(manager.attributes, "UNREACHABLE", message, hint))
        for queue in manager.queues.values():
            findings += _queue_findings(puts, network, manager, queue)
        findings += _ignored_attributes(manager)
    findings += check_clusters(network)
    return sorted(findings, key=lambda finding: (finding.file, finding.line))


# Queue managers


def _queue_manager_findings(network: MqNetwork, manager: QueueManager) -> Iterator[Diagnostic]:
    attributes = manager.attributes
    if attributes.dead_letter_queue and (problem := manager.dead_letter_queue_problem):
        hint = "define it as QLOCAL with USAGE(NORMAL); until then undelivered messages stay"
        yield _warning(attributes.set_at("DEADQ"), "DEADQ", problem, hint)
    reason, problem = manager.default_transmission_queue_problem
    if problem and attributes.default_transmission_queue:
        problem += f" ({reason:d})"
        hint = "define it as QLOCAL with USAGE(XMITQ); until then puts that need it fail"
        yield _warning(attributes.set_at("DEFXMITQ"), "DEFXMITQ", problem, hint)
    for name in sorted(manager.queues.keys() & manager.shared_queues.keys()):
        message = f"{name} is a shared queue and a private definition: puts end with 2343"
        yield _warning(manager.queues[name], "NOT_UNIQUE", message)
    for channel in senders(manager):
        yield from _channel_findings(network, manager, channel)


def _ignored_attributes(manager: QueueManager) -> Iterator[Diagnostic]:
    definitions: Iterable[mq.Definition] = (
        manager.attributes,
        *manager.queues.values(),
        *manager.channels.values(),
        *manager.client_channels.values(),
    )
    # Default objects are not reported, nor is the dead-letter queue, whose handler pauses while it
    # has GET(DISABLED).
    passed_over = {*SYSTEM_NAMES, manager.attributes.dead_letter_queue}
    for definition in definitions:
        for written, consequence in ignored_attributes(definition):
            if definition.name not in passed_over:
                message = f"{written} of {definition} has no effect: {consequence}"
                hint = "docs/resolution.md describes the effect of each attribute"
                location = definition.set_at(written.partition("(")[0])
                yield _warning(location, "NOT_HONOURED", message, hint)


def _channel_findings(
    network: MqNetwork, manager: QueueManager, channel: mq.Channel
) -> Iterator[Diagnostic]:
    queue = manager.queue(channel.transmission_queue)
    if not isinstance(queue, mq.LocalQueue) or not queue.is_transmission_queue:
        name = channel.transmission_queue
        message = f"XMITQ of {channel} names {name}, which is not a QLOCAL with USAGE(XMITQ)"
        yield _warning(channel.set_at("XMITQ"), "NO_TRANSMISSION_QUEUE", message)
    if len(network.queue_managers) == 1:
        return
    receivers = network.receivers(manager.name, channel)
    if not receivers:
        message = f"no other queue manager has a receiver channel {channel.name}: messages stay on"
        message += f" {channel.transmission_queue}, and the channel is retrying"
        hint = "define CHLTYPE(RCVR) of this name there, or add the definitions of that manager"
        yield _warning(channel, "NO_RECEIVER", message, hint)
    elif (
        len(receivers) > 1
        and network.link(queue=channel.transmission_queue, queue_manager=manager.name) is None
    ):
        names = ", ".join(name for name, _ in receivers)
        message = f"{channel} may lead to any of {names}"
        hint = "name the transmission queue like the manager it is for"
        yield _warning(channel.set_at("XMITQ"), "AMBIGUOUS_CHANNEL", message, hint)


# Queues


@dataclass(frozen=True, slots=True)
class _Route:
    """The way of a put by the definitions."""

    receiver: MqReceivingQueueManager
    """The last queue manager that put the message."""
    names: Names
    puts: int
    answer: Destination | Refusal
    is_loop: bool = False
    """Whether the names were there before, so that the message never stops."""


class _Puts:
    """Follows puts by definitions alone, over the receivers with which the job resolves them."""

    def __init__(self, network: MqNetwork, others: Container[str]) -> None:
        self._network, self._others = network, others
        self._is_alone = len(network.queue_managers) == 1
        topology = Topology(mq=network)
        moving = {
            topic.topic: topic
            for topic in topics_of(topology)
            if topic.is_read and topic.is_running
        }
        self._receivers = {
            topic: receiver
            for topic, receiver in receiving_queue_managers(topology, moving).items()
            if isinstance(receiver, MqReceivingQueueManager)
        }

    def _follow(self, at: str, names: Names) -> _Route:
        """The way of a persistent message without a body, until its names lead no further."""
        topic, seen = put_topic(at), set[tuple[str, Names]]()
        while True:
            receiver = self._receivers[topic]
            answer = receiver.resolve(queue=names.queue, queue_manager=names.queue_manager)
            if isinstance(answer, Destination):
                answer = check_limits(answer.limits, 0, None, PERSISTENT) or answer
            is_loop = (topic, names) in seen
            seen.add((topic, names))
            if (
                is_loop
                or isinstance(answer, Refusal)
                or answer.is_arrival
                or answer.topic not in self._receivers
            ):
                return _Route(receiver, names, len(seen), answer, is_loop)
            topic = answer.topic
            names = Names(queue=answer.queue, queue_manager=answer.queue_manager)

    def findings(
        self, manager: QueueManager, queue: mq.Queue, names: Names
    ) -> Iterator[Diagnostic]:
        """The finding about a put to a definition by these names, if it reaches no queue."""
        route = self._follow(manager.name, names)
        location, answer = location_of(queue), route.answer
        if route.is_loop:
            message = f"{route.names} returns to {route.receiver.queue_manager}"
            yield _warning(location, "ROUTE_LOOP", f"a put to {queue} never ends: {message}")
            return
        if isinstance(answer, Destination):
            name = answer.queue_manager
            is_known = name in self._network or name in self._others
            if name and not (answer.is_arrival or is_known or self._is_alone):
                message = f"a put to {queue} leaves the topology: no definition has queue manager "
                hint = "correct RQMNAME, or add the definitions of that queue manager"
                yield _warning(location, "DANGLING_RQMNAME", message + name, hint)
            return
        opened = route.receiver.opened(
            queue=route.names.queue, queue_manager=route.names.queue_manager
        )
        reason, fault = Reason(answer.reason), opened.fault
        text = f"{reason:d} MQRC_{reason.name}"
        detail = answer.detail
        if reason is Reason.PUT_INHIBITED and not opened.is_failed:
            detail = f"{fault} has PUT(DISABLED)"
        if fault is queue:
            location = location_of(queue, reason)
        advice = opened.advice or ADVICE.get(reason, "")
        if route.puts > 1:
            if names.queue != _ANY_QUEUE:
                at = route.receiver.queue_manager
                message = f"a put to {queue} fails at {at} with {text}: {detail}"
                yield _warning(location, "UNDELIVERABLE", message, advice)
        elif names.queue != _ANY_QUEUE or reason is not Reason.UNKNOWN_OBJECT_NAME:
            # By an alias of the manager itself the put names a queue.
            message = f"a put to {queue} ends with {text}: {detail}"
            yield _warning(location, _CODES.get(reason, "PUT_FAILS"), message, advice)


def _queue_findings(
    puts: _Puts, network: MqNetwork, manager: QueueManager, queue: mq.Queue
) -> Iterable[Diagnostic]:
    match queue:
        case mq.AliasQueue() if _is_alias_loop(manager, queue):
            message = f"{queue} resolves to itself: a put to it ends with 2001"
            hint = "make one alias of the loop target a queue"
            return [_warning(location_of(queue), "ALIAS_LOOP", message, hint)]
        case mq.RemoteQueue():
            return _remote_findings(puts, manager, queue)
        case mq.ModelQueue() if queue.name not in SYSTEM_NAMES:
            reason = Reason.Q_TYPE_ERROR
            message = f"a put to {queue} by the job ends with {reason:d} MQRC_{reason.name}"
            hint = "redrive queue open makes a dynamic queue from it, which applications can put to"
            return [_note(queue, "MODEL_QUEUE", message, hint)]
        case mq.AliasQueue():
            return puts.findings(manager, queue, Names(queue=queue.name))
        case mq.LocalQueue():
            return _local_queue_findings(puts, network, manager, queue)
    return ()


def _remote_findings(puts: _Puts, manager: QueueManager, queue: mq.RemoteQueue) -> list[Diagnostic]:
    names = Names(queue=queue.name)
    if queue.is_queue_manager_alias:
        names = Names(queue=_ANY_QUEUE, queue_manager=queue.name)
    findings = list(puts.findings(manager, queue, names))
    if not (findings and _is_reply_to_alias(manager, queue)):
        return findings
    target = f"{queue.remote_queue}@{queue.remote_queue_manager}"
    message = f"{queue} serves as a reply-to alias for {target}: a put to it would fail"
    hint = "reports of delivery (COD) never arrive there: Kafka does not record who read a message"
    return [_note(location_of(queue), "REPLY_TO_ALIAS", message, hint)]


def _is_reply_to_alias(manager: QueueManager, definition: mq.RemoteQueue) -> bool:
    """Whether replies to its RNAME stay here.

    A reply-to alias names a queue of its own manager, by a name of the manager that others resolve,
    and no XMITQ (Reply-to queue alias example). A remote definition holds no replies, itself
    included.
    """
    queue = manager.queue(definition.remote_queue)
    base = manager.queue(queue.target) if isinstance(queue, mq.AliasQueue) else queue
    holds_replies = queue is not None and not isinstance(base, mq.RemoteQueue)
    return holds_replies and not definition.transmission_queue


def _is_alias_loop(manager: QueueManager, alias: mq.AliasQueue) -> bool:
    seen = {alias.name}
    queue = manager.queue(alias.target)
    while isinstance(queue, mq.AliasQueue) and queue.name not in seen:
        seen.add(queue.name)
        queue = manager.queue(queue.target)
    # An alias may have the name of its own cluster queue.
    return queue is not None and queue.name == alias.name and not alias.is_clustered


def _local_queue_findings(
    puts: _Puts, network: MqNetwork, manager: QueueManager, queue: mq.LocalQueue
) -> Iterator[Diagnostic]:
    if queue.stream_queue and queue.must_duplicate:
        yield from puts.findings(manager, queue, Names(queue=queue.name))
    if (
        queue.is_transmission_queue
        and len(network.queue_managers) > 1
        and not queue.cluster_channels
        and not queue.name.startswith("SYSTEM.")
        and not any(channel.transmission_queue == queue.name for channel in senders(manager))
    ):
        message = f"no channel of {manager.name} serves transmission queue {queue.name}"
        hint = "messages stay on it; define a sender channel with this XMITQ"
        yield _warning(queue.set_at("USAGE", "CLCHNAME"), "NO_CHANNEL", message, hint)


# Clusters


@dataclass(frozen=True, slots=True)
class _Member:
    """A queue manager with a cluster-receiver channel for a cluster."""

    manager: QueueManager
    receiver: mq.Channel
    is_full: bool
    senders: frozenset[str]
    """Its cluster-sender channels for the cluster, by name."""


def check_clusters(network: MqNetwork) -> Iterator[Diagnostic]:
    """Notes on clusters with several members.

    They report a cluster without a full repository, and members that no cluster-sender channel
    connects with another full repository. If no member has such a channel they count as automatic
    ones, as in uniform clusters.
    """
    for cluster, members in sorted(_members_by_cluster(network).items()):
        if len(members) < 2:  # noqa: PLR2004 - alone it has nobody to learn from
            continue
        if not any(member.is_full for member in members):
            message = f"no queue manager here holds a full repository of cluster {cluster}"
            hint = (
                "in IBM MQ its members would not know each other (2085, 2189), here they do;"
                " set REPOS on two of them, or add the definitions of those that have it"
            )
            yield _note(_joined_at(members[0]), "NO_FULL_REPOSITORY", message, hint)
        elif any(member.senders for member in members):
            for member in members:
                yield from _unconnected_member(cluster, member, members)


def _joined_at(member: _Member) -> SourceLocation:
    return member.receiver.set_at("CLUSTER", "CLUSNL")


def _members_by_cluster(network: MqNetwork) -> dict[str, list[_Member]]:
    members: dict[str, list[_Member]] = defaultdict(list)
    for manager in network.queue_managers.values():
        attributes = manager.attributes
        full = manager.clusters_of(attributes.repository_cluster, attributes.repository_namelist)
        for cluster, receiver in _channels(manager, mq.ChannelType.CLUSRCVR):
            senders = frozenset(
                channel.name
                for name, channel in _channels(manager, mq.ChannelType.CLUSSDR)
                if name == cluster
            )
            members[cluster].append(_Member(manager, receiver, cluster in full, senders))
    return members


def _channels(manager: QueueManager, kind: mq.ChannelType) -> Iterator[tuple[str, mq.Channel]]:
    for channel in manager.channels.values():
        if channel.channel_type is kind:
            for cluster in manager.clusters_of(channel.cluster, channel.cluster_namelist):
                yield cluster, channel


def _unconnected_member(
    cluster: str, member: _Member, members: Iterable[_Member]
) -> Iterator[Diagnostic]:
    name = member.manager.name
    others = {
        other.receiver.name
        for other in members
        if other.is_full and other.manager is not member.manager
    }
    if not others or others & member.senders:
        return
    what = f"full repository {name}" if member.is_full else name
    message = f"no cluster-sender channel of {what} leads to a full repository of {cluster}"
    hint = (
        "in IBM MQ it would not learn of the others, here it does; define CHLTYPE(CLUSSDR) named"
        f" like the CLUSRCVR channel there: {', '.join(sorted(others))}"
    )
    yield _note(_joined_at(member), "NO_REPOSITORY_CHANNEL", message, hint)
