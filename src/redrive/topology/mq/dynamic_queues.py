"""Dynamic queues: the names of those that an open of a model queue makes."""

from __future__ import annotations

from redrive.topology.mq.forms import ValueProblem, check_name
from redrive.topology.mq.objects import MAX_NAME_LENGTH
from redrive.topology.mq.opening import OpenRefused
from redrive.topology.mq.queue_manager import QueueManager
from redrive.topology.mq.results import OpenRequest
from redrive.topology.mq.workload import draw
from redrive.topology.reasons import Reason

_LAST_ASTERISK = 33
_GENERATED_DIGITS = 16


def dynamic_name(manager: QueueManager, request: OpenRequest) -> str:
    """The name of a dynamic queue (resolution specification B.7).

    Args:
        manager: The queue manager that makes it.
        request: The open; its seed decides what stands for an asterisk.

    Raises:
        OpenRefused: DynamicQName is malformed, or a queue has the name already.
    """
    asked = request.dynamic_queue.rstrip(" ")
    prefix = asked.removesuffix("*")
    generic = prefix != asked
    try:
        check_name(prefix, _LAST_ASTERISK - 1 if generic else MAX_NAME_LENGTH)
    except ValueProblem as problem:
        detail = f"the dynamic queue name {asked!r} {problem.problem}"
        raise OpenRefused(Reason.DYNAMIC_Q_NAME_ERROR, detail) from None
    if not asked:
        raise OpenRefused(Reason.DYNAMIC_Q_NAME_ERROR, "the dynamic queue name is blank")
    if not generic:
        if existing := manager.queue(prefix):
            raise OpenRefused(Reason.OBJECT_ALREADY_EXISTS, f"{existing} exists", existing)
        return prefix
    number = draw(request.seed, manager.name, prefix)
    while manager.queue(name := f"{prefix}{number:0{_GENERATED_DIGITS}X}"):
        number = (number + 1) % 16**_GENERATED_DIGITS
    return name
