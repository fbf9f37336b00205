"""The topics of a network: the queue of each, and whether its messages are at rest."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from redrive.demo.messages import WAITING, End, Found, Outcome, State
from redrive.topology.files import Topology
from redrive.topology.layout import TopicRole, topics_of
from redrive.topology.overview import overview_of

ON_QUEUES: Final = "on queues"
"""On queues that applications read."""
DEAD_LETTERS: Final = "dead letters"
"""On dead-letter queues, for an operator."""
EXPIRED: Final = "expired"
REMAINING: Final = "remaining"
"""No queue accepts them now; the job keeps them."""
_MOVING: Final = frozenset({"routed", "retried", "forwarded", "dead-lettered"})
"""Results of messages that are now on a topic."""


class Places:
    """Topic -> queue, and whether the job reads it."""

    def __init__(self, topology: Topology, handled: Iterable[str]) -> None:
        self.topics = {one.topic: one for one in topics_of(topology)}
        self._mq = topology.mq
        self._handled = set(handled)
        """Topics of dead-letter queues that the job handles."""
        self._dead_letter_queues = {
            (one.name, one.dead_letter_queue) for one in overview_of(topology).queue_managers
        }

    def topic(self, *, queue: str, queue_manager: str) -> str:
        """The topic of a queue."""
        wanted = queue, queue_manager
        topics = self.topics.values()
        return next(one.topic for one in topics if (one.queue, one.queue_manager) == wanted)

    def name(self, topic: str) -> str:
        """``queue@manager`` of a topic; of a put topic the manager; else the topic itself."""
        one = self.topics.get(topic)
        if one is None:
            return topic
        return f"{one.queue}@{one.queue_manager}" if one.queue else one.queue_manager

    def over(self, topic: str) -> str:
        """A topic as one hop of a message: for a transmission queue of IBM MQ, its channel."""
        one = self.topics[topic]
        is_channel = one.role is TopicRole.TRANSMISSION and one.queue_manager in self._mq
        return one.channel[1] if is_channel else self.name(topic)

    def rests(self, outcome: Outcome) -> bool:
        """Whether the job has finished with a message, as things are."""
        if outcome.result == "parked":
            return False
        return outcome.result not in _MOVING or self._is_left(outcome.topic)

    def end(self, found: Found) -> End:
        """The end of a message found there."""
        place = self.name(found.topic)
        if found.state is State.REMAINING:
            return End(REMAINING, place)
        if found.state is State.WAITING or not self._is_left(found.topic):
            return End(WAITING, place)
        one = self.topics[found.topic]
        is_dead = (one.queue_manager, one.queue) in self._dead_letter_queues
        return End(DEAD_LETTERS if is_dead else ON_QUEUES, place)

    def _is_left(self, topic: str) -> bool:
        one = self.topics.get(topic)
        return one is not None and one.role is TopicRole.QUEUE and topic not in self._handled
