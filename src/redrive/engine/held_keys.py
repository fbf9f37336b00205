"""The part of a rules table's decider that keeps the messages of a key in order: ORDER(KEY)."""

from __future__ import annotations

from collections.abc import Callable

from redrive.engine.deciders import Decided
from redrive.engine.decision import NO_PROFILE, DecisionWriter, Hold, Put
from redrive.engine.message import Attempts, Message
from redrive.engine.names import HandlerIdentity
from redrive.engine.ordering import Ahead, Round
from redrive.engine.outcome import Result
from redrive.engine.rule_targets import failed_group
from redrive.messages import TopicPartition
from redrive.rules import Action, RulesTable
from redrive.rules.backoff import HOLDS


class HeldKeys:
    """Makes messages of one dead-letter queue wait behind earlier ones of their key."""

    def __init__(
        self,
        identity: HandlerIdentity,
        table: RulesTable,
        interval: Callable[[TopicPartition], float],
        decisions: DecisionWriter,
    ) -> None:
        self._identity = identity
        self._delays = table.backoff_partitions
        self._interval = interval
        self._decisions = decisions

    def hold(self, message: Message, attempts: Attempts, ahead: Ahead, now: int) -> Hold:
        """The decision to wait behind earlier messages; ``now`` in milliseconds.

        It is decided again soon after the message ahead may have moved, and later if more messages
        are ahead. No failed attempt is added.
        """
        seconds = float(min(ahead.messages, HOLDS[-1]))
        lane, (position, since) = ahead.lane, ahead.first
        if lane is not None and lane.topic == self._identity.remaining_topic:
            seconds = HOLDS[-1]
        elif lane is not None:
            seconds = max(seconds, since / 1000 + self._interval(lane) - now / 1000)
        identity = position.identity
        return self._decisions.write(
            Hold,
            Result.PARKED,
            message.profile or NO_PROFILE,
            attempts=attempts,
            attempt=0,
            detail=f"waits behind {identity}, which has its key",
            of_kind={"behind": identity, "delay": self._delays.longest_within(seconds)},
        )

    def round_of(self, decided: Decided, home: int, now: int) -> Round | None:
        """The round that a decision begins; None if its message is not processed again.

        ``home`` is the message's partition of the dead-letter queue, ``now`` the time of the put in
        milliseconds.
        """
        put = decided.decision
        if not isinstance(put, Put) or put.rule is None or put.rule.action is not Action.RETRY:
            return None
        ((_, record),) = decided.records
        letters = TopicPartition(self._identity.topic, home)
        return Round(record.topic, record.partition, failed_group(put.profile), now, letters)

    def note_place(self, noted: Round, now: int) -> TopicPartition:
        """Where the note of a round waits: longer for an older round."""
        age = (now - noted.put_at) / 1000
        delay = self._delays.longest_within(min(age / 4, HOLDS[-1]))
        partition = self._delays.partition(delay, 0)
        return TopicPartition(self._identity.backoff_topic, partition)
