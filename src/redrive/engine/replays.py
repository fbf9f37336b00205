"""What persons decided is done with what still remains, and with what is parked.

An instruction holds the remaining copy that it is about. Whether the message still remains is a
fact of the remaining topic, asked before the transaction: what a table, or another replay, has
placed since is left alone. The copy's tombstone is written in the transaction of the put. An
instruction that was restored, as there is no copy, is carried out if no outcome says that another
one was since the outcomes were looked at for it.

Nobody but the lane of a retry topic ever takes a parked message from there, so that none is taken
twice. A plan names parked copies by their offsets. The lane is then read further than what is due:
those that are named are dealt with, the others are parked again as they were.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redrive.engine.attempts import DeadLetterProcessor
from redrive.engine.facts import TAKEN_AWAY, Copies, ReplayedQuestion
from redrive.engine.outcome import Result
from redrive.messages import INTERNAL, OutputRecord
from redrive.messages import own_headers as own

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from redrive.engine.commands import Replay
    from redrive.engine.handlers import Handler
    from redrive.engine.plans import Plan
    from redrive.engine.processor import Entry, PartitionRecords, SliceContext
    from redrive.engine.waiting import DeadLetterRecord, Progress
    from redrive.messages.dead_letters import DeadLetterDecoder, DeadLetterProfile
    from redrive.messages.own_headers import OwnHeaders

__all__ = ["ReplayProcessor", "RetryProcessor"]

_PLACED = "it does not remain any more"


class ReplayProcessor(DeadLetterProcessor):
    """The instructions of one partition of a replay topic."""

    def __init__(
        self,
        part: PartitionRecords,
        handler: Handler,
        decoder: DeadLetterDecoder,
        context: SliceContext,
    ) -> None:
        """Take the lane; arguments as for ``DeadLetterProcessor``."""
        super().__init__(part, handler, decoder, context)
        self._remaining = part.lane._replace(topic=handler.identity.remaining_topic)
        self._replay: Replay | None = None
        """What the instruction belongs to that is carried out."""

    def _rows(self, first: int) -> Iterator[Entry]:
        if self._context.facts.copies(self._remaining) is not None:
            return super()._rows(first)
        # Nothing is known yet: ask for everything at once, and decide when it is.
        for plan in {dict(one).get(own.REPLAY) for one in self._part.records.headers[first:]}:
            self._context.facts.replay(own.read_own([(own.REPLAY, plan)]).replay)
        return iter(())

    def _decide(
        self, row: int, record: DeadLetterRecord, letter: DeadLetterProfile, progress: Progress
    ) -> Plan:
        facts, handler, mine = self._context.facts, self._handler, self._mine.own(row)
        copies, replay = facts.copies(self._remaining), facts.replay(mine.replay)
        if replay is None:
            why = "no replay of this plan was accepted"
            return handler.untouched(letter, Result.SKIPPED, why, None)
        if replay.cancelled_by:
            why = f"cancelled by {replay.cancelled_by}"
            return handler.untouched(letter, Result.CANCELLED, why, replay)
        if copies is not None and (why := self._why_not(record.origin, mine, copies)):
            return handler.untouched(letter, Result.SKIPPED, why, replay)
        if record.origin in self._context.replayed:
            # What this transaction does is no fact yet.
            why = "an instruction just before it was carried out"
            return handler.untouched(letter, Result.SKIPPED, why, replay)
        self._context.replayed.add(record.origin)
        self._replay = replay
        return self._plan_for(record, letter, progress)

    def _why_not(self, origin: str, mine: OwnHeaders, copies: Copies) -> str:
        """Why a message is left alone; empty if it remains, or if a fact is missing."""
        there = copies.get(origin.encode("ascii"))
        if there == TAKEN_AWAY or (there is None and not mine.is_restored):
            return _PLACED
        if there is not None:
            return ""
        # No copy: only another restored instruction can have placed it since it was looked up, and
        # the outcome of that one says so for longer than a tombstone lasts.
        if mine.asked_until is None:
            return "it was restored by an earlier version"
        question = ReplayedQuestion(*mine.asked_until)
        replayed = self._context.facts.replayed(question)
        if replayed is None:
            return ""
        if replayed.first > question.since:
            return "outcomes since it was looked up are gone"
        return _PLACED if replayed.last.get(origin, -1) >= question.since else ""

    def _plan_for(
        self, record: DeadLetterRecord, letter: DeadLetterProfile, progress: Progress
    ) -> Plan:
        if self._replay is None:
            raise ValueError("a plan is asked for before an instruction was read")
        return self._plans.plan_for(record, letter, progress, self._replay)


class RetryProcessor(DeadLetterProcessor):
    """What was read of one partition of a retry topic: it is due, or something behind it is named.

    This class is responsible for: that a message which is neither due nor named stays parked.
    """

    def __init__(
        self,
        part: PartitionRecords,
        handler: Handler,
        decoder: DeadLetterDecoder,
        context: SliceContext,
    ) -> None:
        """Take the lane; arguments as for ``DeadLetterProcessor``."""
        super().__init__(part, handler, decoder, context)
        lane = part.lane
        is_delayed = lane.topic == handler.identity.backoff_topic
        self._interval = 1000 * (
            handler.table.backoff_partitions.seconds(lane.partition)
            if is_delayed
            else handler.table.control.retry_interval
        )
        """Milliseconds that messages wait here."""
        self._orders: Sequence[Replay] = ()
        self._replay: Replay | None = None
        """The order that names the message which is decided about."""

    def _rows(self, first: int) -> Iterator[Entry]:
        self._orders = self._context.facts.orders(self._part.lane)
        return super()._rows(first)

    def _outputs_of(self, row: int) -> Iterator[Entry]:
        order = self._order_of(row)
        is_named = order is not None and not order.cancelled_by
        self._replay = order if is_named else None
        if is_named or self._is_due(row) or not self._is_read_for_others(row):
            yield from super()._outputs_of(row)
        else:
            yield from self._parked_again(row, order)

    def _order_of(self, row: int) -> Replay | None:
        """The last order that names a row; one that was cancelled only if there is no other."""
        lane, offset = self._part.lane, self._part.records.offsets[row]
        named = [one for one in self._orders if offset in one.spans[lane].named]
        return min(named, key=lambda one: bool(one.cancelled_by), default=None)

    def _is_due(self, row: int) -> bool:
        waits = self._interval + self._context.late
        return self._part.records.timestamps[row] + waits <= self._context.now

    def _is_read_for_others(self, row: int) -> bool:
        """Whether an order, cancelled or not, let the lane be read beyond a row."""
        lane, offset = self._part.lane, self._part.records.offsets[row]
        return any(offset < (one.spans[lane].end or 0) for one in self._orders)

    def _parked_again(self, row: int, cancelled: Replay | None) -> Iterator[Entry]:
        lane, records = self._part.lane, self._part.records
        record, _ = self._read(row)
        result, why = Result.SKIPPED, "it waits on: one behind it was to be tried now"
        if cancelled is not None:
            result, why = Result.CANCELLED, f"cancelled by {cancelled.cancelled_by}"
        yield (
            INTERNAL,
            OutputRecord(
                lane.topic,
                records.keys[row],
                records.values[row],
                records.headers[row],
                records.timestamps[row],
                lane.partition,
            ),
        )
        plan = self._handler.untouched(self._letters[row], result, why, cancelled)
        yield from self._settled(row, record, plan)

    def _plan_for(
        self, record: DeadLetterRecord, letter: DeadLetterProfile, progress: Progress
    ) -> Plan:
        return self._plans.plan_for(record, letter, progress, self._replay)
