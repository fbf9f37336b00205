"""Findings about queue managers of both kinds together, and about the bindings of all of them."""

from __future__ import annotations

from collections.abc import Iterator

from redrive.diagnostics import Diagnostic, Severity
from redrive.topology.bindings import Bindings
from redrive.topology.mq.checks import check_topology, queues_by_topic, topic_key
from redrive.topology.mq.network import Network
from redrive.topology.mqe import objects as mqe


def check_together(
    network: Network, everyplace: mqe.Network | None, bindings: Bindings
) -> list[Diagnostic]:
    """Check a whole topology whose files are sound; errors are what a job must not start with."""
    managers = everyplace.queue_managers if everyplace else ()
    findings = check_topology(network, bindings, others=[manager.name for manager in managers])
    for manager in managers:
        if manager.name in network:
            message = f"queue manager {manager.name!r} is one of IBM MQ already"
            hint = "give one of the two another name"
            findings.append(
                manager.location.finding(
                    Severity.ERROR, "DUPLICATE_QUEUE_MANAGER", message, hint=hint
                )
            )
        findings += _unknown_queues(manager, bindings)
    findings += _topics_used_twice(network, managers, bindings)
    return findings


def _unknown_queues(manager: mqe.QueueManager, bindings: Bindings) -> Iterator[Diagnostic]:
    bound = bindings.queue_managers.get(manager.name)
    local = {queue.name for queue in manager.queues if isinstance(queue, mqe.LocalQueue)}
    for name, binding in bound.queues.items() if bound else ():
        if name not in local:
            message = f"bindings name {name}, which is no local queue of {manager.name}"
            hint = "only local queues can be bound; others keep messages on topics of their own"
            yield binding.location.finding(Severity.ERROR, "UNKNOWN_QUEUE", message, hint=hint)


def _topics_used_twice(
    network: Network, managers: tuple[mqe.QueueManager, ...], bindings: Bindings
) -> Iterator[Diagnostic]:
    seen = queues_by_topic(network, bindings)
    for manager in managers:
        if manager.name in network:
            continue  # its name is the mistake
        for queue in manager.queues:
            if not isinstance(queue, mqe.LocalQueue):
                continue
            key, this = (
                topic_key(bindings, queue=queue.name, queue_manager=manager.name),
                f"{queue.name}@{manager.name}",
            )
            if key in seen:
                topic = bindings.topic(queue=queue.name, queue_manager=manager.name)
                message = f"{this} and {seen[key]} are on one topic, {topic}"
                hint = "bind one of them to a topic of its own"
                yield queue.location.finding(Severity.ERROR, "ONE_TOPIC", message, hint=hint)
            seen.setdefault(key, this)
