"""What decides: one protocol for the rules of a dead-letter queue and for puts."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from redrive.engine.context import Entry

if TYPE_CHECKING:
    from redrive.engine.commands import Replay
    from redrive.engine.context import SliceContext
    from redrive.engine.decision import Decision, Park
    from redrive.engine.message import Attempts, Message
    from redrive.engine.names import HandlerIdentity
    from redrive.messages import TopicPartition

__all__ = ["Decided", "Decider"]


class Decided(NamedTuple):
    """A message, what was decided about it, and what that writes."""

    message: Message
    """With what was cut of its copy, if that was to be had."""
    decision: Decision
    records: tuple[Entry, ...] = ()
    """What goes to queues, and to topics of Redrive's own beside copies and the outcome."""


class Decider(Protocol):
    """Decides about the messages of one topic and of those where they wait.

    It neither reads nor writes. What it has to know of the cluster it asks the facts of the slice
    for; a fact that is missing leaves a question behind, and the message is decided again.
    """

    @property
    def identity(self) -> HandlerIdentity:
        """Its names, and those of the topics where its messages wait."""

    @property
    def table_id(self) -> str:
        """16 hex digits that tell its table or definitions from others."""

    @property
    def by_priority(self) -> bool:
        """Whether messages leave the topic by priority, the highest first."""

    def decide(
        self,
        message: Message,
        attempts: Attempts,
        facts: SliceContext,
        *,
        entry: int = 0,
        replay: Replay | None = None,
    ) -> Decided:
        """Decide about one message in one attempt.

        Args:
            message: The message.
            attempts: Those that failed before, under this decider's table.
            facts: What is known of the cluster, and what the slice did already.
            entry: Number of the input, by which the broker's refusals are known.
            replay: What a person decided about it.
        """

    def waiting_place(self, message: Message, decision: Park, partition: int) -> TopicPartition:
        """Where a message waits for its next attempt.

        Args:
            message: The message.
            decision: The decision to park it.
            partition: The partition of its source.
        """

    def interval(self, lane: TopicPartition) -> float:
        """Seconds that messages wait on a partition of a topic for retries."""
