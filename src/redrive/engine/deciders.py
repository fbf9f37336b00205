"""Deciders: one protocol for the rules of a dead-letter queue and for puts."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from redrive.engine.commands import Replay
from redrive.engine.context import Entry, SliceContext
from redrive.engine.decision import Decision, Park
from redrive.engine.message import Attempts, Message
from redrive.engine.names import HandlerIdentity
from redrive.messages import TopicPartition


class Decided(NamedTuple):
    """A message, the decision about it, and the records that it writes."""

    message: Message
    """The message, completed with what its copy had to cut, if that could be read."""
    decision: Decision
    records: tuple[Entry, ...] = ()
    """Records for queues and for Redrive's topics, apart from copies and the outcome."""


class Decider(Protocol):
    """Decides the messages of one topic and of its waiting topics.

    It neither reads nor writes. It uses the facts of the slice about the cluster; a missing fact
    becomes a question, and the message is decided again.
    """

    @property
    def identity(self) -> HandlerIdentity:
        """Names of the handler, and of the topics where its messages wait."""

    @property
    def table_id(self) -> str:
        """16 hex digits that identify its table or definitions."""

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
        """Decide one message in one attempt.

        Args:
            message: The message.
            attempts: The failed ones, under this decider's table.
            facts: Known facts about the cluster, and the effects of the slice so far.
            entry: Number of the input, which identifies the broker's refusals.
            replay: An operator's decision about it.
        """

    def waiting_place(self, message: Message, decision: Park, partition: int) -> TopicPartition:
        """The place where a message waits for its next attempt."""

    def interval(self, lane: TopicPartition) -> float:
        """Seconds that messages wait on a partition of a retry topic."""
