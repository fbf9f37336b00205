"""Streaming queues: where a copy of each message goes that is put on a local queue (STREAMQ)."""

from __future__ import annotations

from redrive.topology.mq.objects import LocalQueue, StreamQuality
from redrive.topology.mq.queue_manager import QueueManager
from redrive.topology.mq.results import Resolution, Target
from redrive.topology.put import Stream


def stream_of(manager: QueueManager, opened: Resolution) -> Stream | None:
    """Where a copy of a message goes (DEFINE QLOCAL, STREAMQ and STRMQOS).

    Args:
        manager: The manager that opened the queue.
        opened: Where the names of the put led there.

    Returns:
        None if the message is not put on a local queue, or on one without STREAMQ.
    """
    queue = manager.queue(opened.destination.queue)
    if opened.target is not Target.LOCAL or not isinstance(queue, LocalQueue):
        return None
    is_required = queue.stream_quality is StreamQuality.MUST_DUPLICATE
    return Stream(queue.stream_queue, is_required) if queue.stream_queue else None
