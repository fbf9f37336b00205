"""What the product answers besides puts: changes, operations on queues, polls (A.1, A.4, A.6)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from redrive.topology.mqe.objects import (
    BridgeQueue,
    CodeBase,
    HomeServerQueue,
    Mode,
    Queue,
    QueueManager,
    QueueManagerAlias,
    RemoteQueue,
    StoreAndForwardQueue,
    name_problem,
)
from redrive.topology.mqe.results import Failure
from redrive.topology.mqe.tables import Addressable, manager_aliases


class Answer(StrEnum):
    """What the product answers; names of its own where they are known, without numbers."""

    DONE = "done"
    INVALID_NAME = "invalid name"
    """A name that nothing can have; the symbol is ours."""
    ALIAS_ALREADY_EXISTS = "Except_Con_AliasAlreadyExists"
    """Java: the queue manager alias is defined already."""
    NOTHING_TO_DO = "MQERETURN_NOTHING_TO_DO, MQEREASON_DUPLICATE"
    """C: the alias is there already."""


@dataclass(frozen=True, slots=True)
class QueueChange:
    """The answer to a change of a queue, and the queue as it is then."""

    answer: Answer
    queue: Addressable
    """The queue, unchanged unless the answer is ``DONE``."""


@dataclass(frozen=True, slots=True)
class QueueManagerChange:
    """The answer to a change of a queue manager, and the manager as it is then."""

    answer: Answer
    queue_manager: QueueManager
    """The manager, unchanged unless the answer is ``DONE``."""


def add_queue_alias(queue: Addressable, alias: str) -> QueueChange:
    """Give a queue a further name.

    Only the answer of the C code base to a duplicate is known; Java is given the same.
    """
    if name_problem(alias):
        return QueueChange(Answer.INVALID_NAME, queue)
    if alias in queue.aliases:
        return QueueChange(Answer.NOTHING_TO_DO, queue)
    return QueueChange(Answer.DONE, replace(queue, aliases=(*queue.aliases, alias)))


def add_queue_manager_alias(manager: QueueManager, alias: str, of: str) -> QueueManagerChange:
    """Define a queue manager alias on a manager: an extra name, and what takes its place."""
    if name_problem(alias):
        return QueueManagerChange(Answer.INVALID_NAME, manager)
    if any(known == alias for known, _, _ in manager_aliases(manager)):
        is_c = manager.code_base is CodeBase.C
        answer = Answer.NOTHING_TO_DO if is_c else Answer.ALIAS_ALREADY_EXISTS
        return QueueManagerChange(answer, manager)
    added = QueueManagerAlias(name=alias, of=of)
    return QueueManagerChange(Answer.DONE, replace(manager, aliases=(*manager.aliases, added)))


class Operation(StrEnum):
    """What an application can ask of a queue."""

    PUT = "put"
    GET = "get"
    BROWSE = "browse"
    BROWSE_AND_LOCK = "browse and lock"


_EVERYTHING = frozenset(Operation)


def operations(queue: Queue) -> frozenset[Operation]:
    """What a kind of queue offers to applications.

    Store-and-forward and home-server queues offer nothing: the former take what is put for the
    managers they list, nobody addresses them.
    """
    match queue:
        case StoreAndForwardQueue() | HomeServerQueue():
            return frozenset()
        case RemoteQueue() if queue.mode is Mode.ASYNC:
            return frozenset({Operation.PUT})
        case BridgeQueue():
            return _EVERYTHING - {Operation.BROWSE_AND_LOCK}
    return _EVERYTHING


def refusal(queue: Queue, operation: Operation) -> Failure | None:
    """``NOT_SUPPORTED`` (``Except_NotSupported``) if a queue does not offer an operation."""
    return None if operation in operations(queue) else Failure.NOT_SUPPORTED


@dataclass(frozen=True, slots=True, kw_only=True)
class Polling:
    """The polling of one home-server queue: a value that each poll replaces.

    Times are milliseconds on any clock that never goes back.
    """

    interval: int
    """Milliseconds between polls; 0: only triggerTransmission polls."""
    next_poll: int | None = None
    """When the next poll is due; None if only triggerTransmission starts one."""

    @classmethod
    def started(cls, interval: int, now: int) -> Polling:
        """The polling of a queue that is activated now."""
        return cls(interval=interval, next_poll=now + interval if interval > 0 else None)

    def is_due(self, now: int) -> bool:
        """Whether the interval has passed."""
        return self.next_poll is not None and now >= self.next_poll

    def after_poll(self, now: int, *, connected: bool) -> Polling:
        """The polling after a poll, whether the interval or triggerTransmission started it.

        After one that did not reach the home server polling stops until the next
        triggerTransmission.
        """
        goes_on = connected and self.interval > 0
        return replace(self, next_poll=now + self.interval if goes_on else None)
