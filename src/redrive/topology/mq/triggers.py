"""Triggering: which local queues cause trigger messages, and why others do not.

The conditions 6, 7, 9 and 10 of "Conditions for a trigger event" (q026930), which depend on
definitions.
"""

from __future__ import annotations

from collections.abc import Iterator

from redrive.topology.mq.objects import LocalQueue, Process
from redrive.topology.mq.queue_manager import QueueManager


def triggered_queues(manager: QueueManager) -> Iterator[LocalQueue]:
    """The queues of a manager whose definitions request trigger messages.

    A transmission queue is not among them: channels run without a channel initiator.
    """
    for queue in (*manager.queues.values(), *manager.shared_queues.values()):
        if isinstance(queue, LocalQueue) and queue.is_triggered and not queue.is_transmission_queue:
            yield queue


def trigger_problem(manager: QueueManager, queue: LocalQueue) -> str:
    """Why no trigger message is made for a queue with TRIGGER; empty if one is."""
    if not queue.process:
        return "it has no PROCESS"
    if manager.process(queue.process) is None:
        return f"PROCESS({queue.process}) does not exist"
    if not queue.initiation_queue:
        return "it has no INITQ"
    match manager.queue(queue.initiation_queue):
        case None:
            problem = "does not exist"
        case LocalQueue(is_transmission_queue=False, put_enabled=False):
            problem = "has PUT(DISABLED)"
        case LocalQueue(is_transmission_queue=False, get_enabled=False):
            problem = "has GET(DISABLED)"
        case LocalQueue(is_transmission_queue=False):
            return ""
        case _:
            problem = "is not a QLOCAL with USAGE(NORMAL)"
    return f"INITQ names {queue.initiation_queue}, which {problem}"


def trigger_message_fields(manager: QueueManager, queue: LocalQueue) -> dict[str, str | int]:
    """The MQTM fields of the trigger message of a queue without a ``trigger_problem``."""
    process = manager.process(queue.process)
    assert isinstance(process, Process), "the queue has no problem"
    return {
        "QName": queue.name,
        "ProcessName": process.name,
        "TriggerData": queue.trigger_data,
        "ApplType": process.application_type,
        "ApplId": process.application,
        "EnvData": process.environment,
        "UserData": process.user_data,
    }
