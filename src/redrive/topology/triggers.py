"""Triggers of a topology: the topics of queues with TRIGGER, and what a put to them causes.

Every record that the job writes to the topic of such a queue is a put: a message, a report, a copy,
a dead letter, or the put of a rule.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from redrive.messages import Form
from redrive.messages.trigger_message import encode_trigger_message
from redrive.topology.files import Topology
from redrive.topology.layout import QueueTopic, TopicRole
from redrive.topology.mq.objects import LocalQueue, TriggerType
from redrive.topology.mq.triggers import (
    trigger_message_fields,
    trigger_problem,
    triggered_queues,
)
from redrive.topology.names import put_topic
from redrive.topology.put import Destination, Refusal
from redrive.topology.receiving import BINARY, MqReceivingQueueManager


@dataclass(frozen=True, slots=True, kw_only=True)
class Trigger:
    """What puts to one queue cause."""

    queue: str
    queue_manager: str
    message: bytes
    """The body of the trigger message, an MQTM."""
    initiation_queue: Destination
    dead_letters: Destination | Refusal
    """The destination of a trigger message that the initiation queue refuses."""
    dead_letter_form: Form
    lowest_priority: int
    """The lowest priority of messages that cause one (TRIGMPRI)."""
    depth: int
    """The depth that a put must reach: 1 for FIRST, TRIGDPTH for DEPTH, 0 for EVERY."""
    consumer_group: str
    """The consumer group whose lag is the depth; empty for EVERY, which needs none."""


def triggers_of(topology: Topology) -> Mapping[str, Trigger]:
    """The triggers of a topology, by the topic of their queue."""
    found: dict[str, Trigger] = {}
    for manager in topology.mq.queue_managers.values():
        queues = [one for one in triggered_queues(manager) if not trigger_problem(manager, one)]
        if not queues:
            continue
        name = manager.name
        intake = QueueTopic(topic=put_topic(name), role=TopicRole.PUTS, queue_manager=name)
        receiver = MqReceivingQueueManager(topology, intake)
        for queue in queues:
            trigger = _trigger(topology, receiver, queue)
            if trigger is not None:
                found.setdefault(topology.topic(queue=queue.name, queue_manager=name), trigger)
    return found


def _trigger(
    topology: Topology, receiver: MqReceivingQueueManager, queue: LocalQueue
) -> Trigger | None:
    name = receiver.queue_manager
    manager = topology.mq.queue_managers[name]
    holder = manager.holder_of(queue.name)
    group = topology.bindings.consumer_group(queue=queue.name, queue_manager=holder) or ""
    depth = {TriggerType.FIRST: 1, TriggerType.DEPTH: queue.trigger_depth}.get(queue.trigger_type)
    initiation_queue = receiver.resolve(queue=queue.initiation_queue, queue_manager=name)
    if (depth and not group) or isinstance(initiation_queue, Refusal):
        return None
    return Trigger(
        queue=queue.name,
        queue_manager=name,
        message=encode_trigger_message(trigger_message_fields(manager, queue)),
        initiation_queue=initiation_queue,
        dead_letters=receiver.dead_letters,
        dead_letter_form=Form.BINARY if receiver.dead_letter_form == BINARY else Form.HEADERS,
        lowest_priority=queue.trigger_priority,
        depth=depth or 0,
        consumer_group=group if depth else "",
    )
