"""Findings about queue managers of both kinds, and about their bindings."""

from __future__ import annotations

from collections.abc import Iterator

from redrive.diagnostics import Diagnostic, Severity, SourceLocation
from redrive.topology.bindings import Bindings
from redrive.topology.mq import objects as mq
from redrive.topology.mq.checks import check_topology
from redrive.topology.mq.network import Network
from redrive.topology.mqe import objects as mqe


def check_together(
    network: Network, everyplace: mqe.Network | None, bindings: Bindings
) -> list[Diagnostic]:
    """Check a whole topology whose files have no errors; a job does not start with errors."""
    managers = everyplace.queue_managers if everyplace else ()
    findings = [
        *check_topology(network, others=[manager.name for manager in managers]),
        *_duplicates(network, managers),
        *_binding_findings(network, managers, bindings),
        *_topic_findings(network, managers, bindings),
    ]
    return sorted(findings, key=lambda finding: (finding.file, finding.line))


def _error(at: SourceLocation, code: str, message: str, hint: str = "") -> Diagnostic:
    return at.finding(Severity.ERROR, code, message, hint=hint)


def _duplicates(network: Network, managers: tuple[mqe.QueueManager, ...]) -> Iterator[Diagnostic]:
    for manager in managers:
        if manager.name in network:
            message = f"queue manager {manager.name!r} is already one of IBM MQ"
            hint = "rename one of the two"
            yield _error(manager.location, "DUPLICATE_QUEUE_MANAGER", message, hint)


def _binding_findings(
    network: Network, managers: tuple[mqe.QueueManager, ...], bindings: Bindings
) -> Iterator[Diagnostic]:
    local = {
        manager.name: {one.name for one in manager.queues if isinstance(one, mqe.LocalQueue)}
        for manager in managers
    }
    for member in network.queue_managers.values():
        group = member.queue_sharing_group
        if group is not None:
            local.setdefault(group.name, set()).update(member.shared_queues)
    for name, bound in bindings.queue_managers.items():
        manager = network.queue_managers.get(name)
        if manager is None and name not in local:
            message = f"bindings name queue manager {name}, which is not defined"
            yield _error(bound.location, "UNKNOWN_QUEUE_MANAGER", message)
            continue
        for queue, binding in bound.queues.items():
            is_local = manager is not None and isinstance(manager.queue(queue), mq.LocalQueue)
            if not is_local and queue not in local.get(name, ()):
                message = f"bindings name {queue}, which is not a local queue of {name}"
                hint = "only local queues can be bound"
                yield _error(binding.location, "UNKNOWN_QUEUE", message, hint)


def _topic_findings(
    network: Network, managers: tuple[mqe.QueueManager, ...], bindings: Bindings
) -> Iterator[Diagnostic]:
    seen: dict[tuple[str, str], str] = {}
    for manager, queue, kind in _local_queues(network, managers):
        bound = bindings.queue_managers.get(manager)
        topic = bindings.topic(queue=queue.name, queue_manager=manager)
        # Kafka treats names that differ only in . and _ as the same.
        key = ((bound and bound.bootstrap_servers) or "", topic.replace("_", "."))
        this = f"{kind}@{manager}"
        if seen.setdefault(key, this) != this:
            message = f"{this} and {seen[key]} are on one topic, {topic}"
            hint = "bind one of them to a topic of its own"
            yield _error(queue.location, "ONE_TOPIC", message, hint)


def _local_queues(
    network: Network, managers: tuple[mqe.QueueManager, ...]
) -> Iterator[tuple[str, mq.LocalQueue | mqe.LocalQueue, str]]:
    shared: set[tuple[str, str]] = set()
    for name, manager in network.queue_managers.items():
        for queue in manager.queues.values():
            if isinstance(queue, mq.LocalQueue):
                yield name, queue, str(queue)
        # A shared queue is one queue, whichever member shows it.
        group = manager.queue_sharing_group.name if manager.queue_sharing_group else name
        for queue in manager.shared_queues.values():
            if (group, queue.name) not in shared:
                shared.add((group, queue.name))
                yield group, queue, str(queue)
    for one in managers:
        # A manager with a duplicate name is reported elsewhere.
        for definition in () if one.name in network else one.queues:
            if isinstance(definition, mqe.LocalQueue):
                yield one.name, definition, definition.name
