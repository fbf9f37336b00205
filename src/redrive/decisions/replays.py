"""Instructions to replay: what a person decided is done with what still remains.

An instruction holds the copy that it is about. Whether the message still remains is a fact of the
remaining topic, asked before the transaction: what a table, or another replay, has placed since is
left alone. The copy's tombstone is written in the transaction of the put.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redrive.decisions.attempts import DeadLetterProcessor
from redrive.messages import own_headers as own
from redrive.outcomes.record import Result
from redrive.topology.facts import TAKEN_AWAY

if TYPE_CHECKING:
    from redrive.decisions.handlers import Handler
    from redrive.decisions.plans import Plan
    from redrive.decisions.processor import PartitionRecords, SliceContext
    from redrive.decisions.waiting import DeadLetterRecord, Progress
    from redrive.messages.dead_letters import DeadLetterDecoder, DeadLetterProfile
    from redrive.topology.replays import Replay

__all__ = ["ReplayProcessor"]


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

    def _decide(
        self, row: int, record: DeadLetterRecord, letter: DeadLetterProfile, progress: Progress
    ) -> Plan:
        facts, handler = self._context.facts, self._handler
        mine = own.read_own(self._part.records.headers[row])
        copies, replay = facts.copies(self._remaining), facts.replay(mine.replay)
        if replay is None:
            why = "no replay of this plan was accepted"
            return handler.untouched(letter, Result.SKIPPED, why, None)
        if replay.cancelled_by:
            why = f"cancelled by {replay.cancelled_by}"
            return handler.untouched(letter, Result.CANCELLED, why, replay)
        there = None if copies is None else copies.get(record.origin.encode("ascii"))
        remains = there != TAKEN_AWAY and (there is not None or mine.is_restored)
        if copies is not None and not remains:
            return handler.untouched(letter, Result.SKIPPED, "it does not remain any more", replay)
        if record.origin in self._context.replayed:
            # What this transaction does is no fact yet.
            why = "an instruction just before it was carried out"
            return handler.untouched(letter, Result.SKIPPED, why, replay)
        self._context.replayed.add(record.origin)
        self._replay = replay
        return self._plan_for(record, letter, progress)

    def _plan_for(
        self, record: DeadLetterRecord, letter: DeadLetterProfile, progress: Progress
    ) -> Plan:
        if self._replay is None:
            raise ValueError("a plan is asked for before an instruction was read")
        return self._plans.plan_for(record, letter, progress, self._replay)
