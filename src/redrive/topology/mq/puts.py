"""Puts on a queue manager: the checks after name resolution."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, TypeAlias

from redrive.messages.reasons import Reason
from redrive.topology.mq.network import Network
from redrive.topology.mq.objects import LocalQueue, RemoteQueue
from redrive.topology.mq.queue_manager import QueueManager
from redrive.topology.mq.resolution import open_queue
from redrive.topology.mq.results import (
    Call,
    OpenOption,
    OpenRequest,
    Persistence,
    PutMessage,
    PutResult,
    Resolution,
    Target,
    Used,
)
from redrive.topology.names import Names
from redrive.topology.put import check_limits


def put_message(
    network: Network,
    at: str,
    request: OpenRequest,
    message: PutMessage,
    *,
    depths: Mapping[str, int] | None = None,
) -> PutResult:
    """Open a queue at a manager and put one message to it.

    ``depths`` are the messages on queues of this manager before the put; others are empty.
    """
    opened = open_queue(network, at, request)
    if opened.target is Target.PER_MESSAGE:
        opened = open_queue(network, at, replace(request, call=Call.MQPUT1))
    if opened.is_failed:
        return PutResult(
            resolution=opened, reason=opened.reason, detail=opened.detail, at_fault=opened.at_fault
        )
    if OpenOption.OUTPUT not in request.options:
        detail = "the object was not opened for output"
        return PutResult(resolution=opened, reason=Reason.NOT_OPEN_FOR_OUTPUT, detail=detail)
    persistence = message.persistence
    if persistence is Persistence.AS_Q_DEF:
        persistence = Persistence(opened.default_persistence)
    message = replace(message, persistence=persistence)
    manager = network.queue_managers[at]
    reason, detail, at_fault = unsupported(manager, opened)
    if reason is Reason.NONE:
        reason, detail, at_fault = _refusal(opened, message, depths or {})
    return PutResult(
        resolution=opened,
        reason=reason,
        detail=detail,
        at_fault=at_fault,
        is_persistent=persistence is Persistence.PERSISTENT,
        reply_to=reply_to_names(manager, message.reply_to),
    )


_Refusal: TypeAlias = tuple[Reason, str, Used | None]
_NO_REFUSAL: Final[_Refusal] = (Reason.NONE, "", None)


def _refusal(opened: Resolution, message: PutMessage, depths: Mapping[str, int]) -> _Refusal:
    disabled = next((one for one in opened.path if not one.put_enabled), None)
    if disabled is not None:
        return Reason.PUT_INHIBITED, f"{disabled} has PUT(DISABLED)", disabled
    depth = depths.get(opened.put_queue, 0)
    refusal = check_limits(opened.limits, message.length, depth, message.persistence)
    if refusal is None:
        return _NO_REFUSAL
    written = opened.path[-1] if opened.path else None
    return Reason(refusal.reason), f"{opened.put_queue}: {refusal.detail}", written


def reply_to_names(manager: QueueManager, names: Names) -> Names:
    """The reply-to names that travel with a message put on a manager.

    They are unchanged if they name a manager; otherwise those of the remote definition that
    ReplyToQ names, or completed by the name of the local manager.
    """
    if names.queue_manager:
        return names
    definition = manager.queue(names.queue)
    if isinstance(definition, RemoteQueue):
        return Names(queue=definition.remote_queue, queue_manager=definition.remote_queue_manager)
    return Names(queue=names.queue, queue_manager=manager.name)


def unsupported(manager: QueueManager, opened: Resolution) -> _Refusal:
    """Why no put follows an open, whatever the message: it would need copies, which nobody makes.

    A put to a topic would publish; one to a queue with STRMQOS(MUSTDUP) needs its copy on STREAMQ.
    Without MUSTDUP the message is put, and has no copy.
    """
    if opened.target is Target.TOPIC:
        detail = f"{opened.path[-1]} is an alias for a topic, and nothing is published"
        return Reason.FUNCTION_NOT_SUPPORTED, detail, opened.path[-1]
    queue = manager.queue(opened.destination.queue)
    if (
        opened.target is Target.LOCAL
        and isinstance(queue, LocalQueue)
        and queue.stream_queue
        and queue.must_duplicate
    ):
        detail = f"{queue} has STRMQOS(MUSTDUP), and no copy is put to {queue.stream_queue}"
        return Reason.FUNCTION_NOT_SUPPORTED, detail, queue
    return _NO_REFUSAL
