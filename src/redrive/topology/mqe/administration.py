"""Changes to definitions that the product answers in a way of its own (specification A.1, A.6)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from redrive.topology.mqe.objects import CodeBase, QueueManager, QueueManagerAlias, name_problem
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
    """What the product answers."""
    queue: Addressable
    """The queue, unchanged unless the answer is ``DONE``."""


@dataclass(frozen=True, slots=True)
class QueueManagerChange:
    """The answer to a change of a queue manager, and the manager as it is then."""

    answer: Answer
    """What the product answers."""
    queue_manager: QueueManager
    """The manager, unchanged unless the answer is ``DONE``."""


def add_queue_alias(queue: Addressable, alias: str) -> QueueChange:
    """Give a queue a further name.

    Only the answer of the C code base to a duplicate is known; Java is given the same.

    Args:
        queue: The queue.
        alias: The further name.
    """
    if name_problem(alias):
        return QueueChange(Answer.INVALID_NAME, queue)
    if alias in queue.aliases:
        return QueueChange(Answer.NOTHING_TO_DO, queue)
    return QueueChange(Answer.DONE, replace(queue, aliases=(*queue.aliases, alias)))


def add_queue_manager_alias(manager: QueueManager, alias: str, of: str) -> QueueManagerChange:
    """Define a queue manager alias on a manager.

    Args:
        manager: The manager that will know the alias.
        alias: The extra name.
        of: The name that takes its place.
    """
    if name_problem(alias):
        return QueueManagerChange(Answer.INVALID_NAME, manager)
    if any(known == alias for known, _, _ in manager_aliases(manager)):
        is_c = manager.code_base is CodeBase.C
        answer = Answer.NOTHING_TO_DO if is_c else Answer.ALIAS_ALREADY_EXISTS
        return QueueManagerChange(answer, manager)
    added = QueueManagerAlias(name=alias, of=of)
    return QueueManagerChange(Answer.DONE, replace(manager, aliases=(*manager.aliases, added)))
