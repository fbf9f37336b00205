"""Where a message ends, as the library says it and as it is found on the broker."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import StrEnum

from redrive.messages import reason_name
from redrive.topology import mqe
from redrive.topology.files import Topology
from redrive.topology.layout import TopicRole, topics_of

__all__ = ["End", "EndKind", "Places"]


class EndKind(StrEnum):
    """What kind of an end it is, in the words of the sum."""

    QUEUE = "on queues"
    """On a queue that applications read."""
    DEAD_LETTER = "dead letters"
    """On a dead-letter queue, for a person."""
    EXPIRED = "expired"
    """It was late, and is gone."""
    REMAINING = "remaining"
    """Nothing can place it now; the job keeps it."""
    WAITING = "waiting"
    """It has not come to an end: it waits for the job, a channel or its next attempt."""


@dataclass(frozen=True, slots=True)
class End:
    """Where a message is in the end, and why."""

    kind: EndKind
    place: str = ""
    """``queue@manager``; of what remains, the queue from which it could not be put."""
    reason: int = 0
    """Why it is not on its queue."""

    def __str__(self) -> str:
        where = {
            EndKind.QUEUE: self.place,
            EndKind.DEAD_LETTER: f"{self.place} (dead letter)",
            EndKind.REMAINING: f"remains, from {self.place}",
        }.get(self.kind, " ".join([str(self.kind), self.place]).strip())
        return where + (f" with {reason_name(self.reason)}" if self.reason else "")


class Places:
    """What the topics of a network are to a message that lies on them."""

    def __init__(self, topology: Topology, handled: Collection[str]) -> None:
        """Take the definitions.

        Args:
            topology: The definitions.
            handled: Topics of dead-letter queues that the job handles.
        """
        self._topology = topology
        self._topics = {one.topic: one for one in topics_of(topology)}
        self._handled = handled
        self._dead_letter_queues = set(_dead_letter_queues(topology))

    def name(self, topic: str) -> str:
        """``queue@manager`` of a topic; of an intake only the manager."""
        one = self._topics[topic]
        return f"{one.queue}@{one.queue_manager}" if one.queue else one.queue_manager

    def over(self, topic: str) -> str:
        """A topic as a part of a message's way: of a transmission queue of IBM MQ its channel."""
        one = self._topics[topic]
        is_channel = one.role is TopicRole.TRANSMISSION and one.queue_manager in self._topology.mq
        return one.channel[1] if is_channel else self.name(topic)

    def end(self, topic: str, lies_on: str) -> End:
        """What kind of an end it is.

        Args:
            topic: A topic of the network, or one where a message waits for its next attempt.
            lies_on: The topic where the message is: that one, or the one that keeps what could
                not be put from there.
        """
        one = self._topics.get(topic)
        if one is None:
            return End(EndKind.WAITING, topic)
        place = self.name(topic)
        if lies_on != topic:
            return End(EndKind.REMAINING, place)
        if one.role is not TopicRole.QUEUE or topic in self._handled:
            return End(EndKind.WAITING, place)
        is_dead = (one.queue_manager, one.queue) in self._dead_letter_queues
        return End(EndKind.DEAD_LETTER if is_dead else EndKind.QUEUE, place)


def _dead_letter_queues(topology: Topology) -> Iterator[tuple[str, str]]:
    """The dead-letter queue of each manager that has one."""
    for manager in topology.mq.queue_managers.values():
        yield manager.name, manager.attributes.dead_letter_queue
    for manager_of_mqe in topology.mqe_managers:
        for queue in manager_of_mqe.queues:
            if isinstance(queue, mqe.LocalQueue) and queue.role is mqe.Role.DEAD_LETTER:
                yield manager_of_mqe.name, queue.name
