"""Puts: one record of an intake or a transmission queue becomes one record somewhere else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import orjson

from redrive.engine import waiting
from redrive.engine.commands import Entry as StateEntry
from redrive.engine.commands import channel_entry, discovered_entry
from redrive.engine.copies import make_copy
from redrive.engine.facts import Gone
from redrive.engine.handlers import NO_PAYLOAD
from redrive.engine.outcome import Result, bounded
from redrive.engine.pointers import restored
from redrive.engine.processor import (
    Entry,
    PartitionProcessor,
    PartitionRecords,
    SliceContext,
    SourceKind,
)
from redrive.engine.put_descriptor import NAMES, PutDescriptor, by_priority
from redrive.engine.putter import Effect, Putter
from redrive.engine.reports import MadeReport, due_report, make_report
from redrive.messages import INTERNAL, OutputRecord
from redrive.messages import own_headers as own
from redrive.messages.reasons import Reason
from redrive.messages.reports import ReportKind
from redrive.topology.put import Destination, Refusal

if TYPE_CHECKING:
    from redrive.engine.plans import Plan
    from redrive.engine.routers import Router


class PutProcessor(PartitionProcessor):
    """The puts of the records of one lane."""

    def __init__(self, part: PartitionRecords, router: Router, context: SliceContext) -> None:
        """Take the lane; nothing is decided yet.

        Args:
            part: Some records of the lane.
            router: Decides about its puts.
            context: What all lanes of the slice share.
        """
        super().__init__(part, context)
        self._router = router
        self._putter = Putter(router, context, self._check)
        self._told: set[tuple[str, str, str]] = set()
        self._is_stopped = False

    def _rows(self, first: int) -> Iterator[Entry]:
        """See ``PartitionProcessor``; a channel takes the rows by priority, then as they came."""
        rows: Iterable[int] = range(first, len(self._part.records))
        if self._router.by_priority:
            rows = by_priority(self._part.records, rows)
        for row in rows:
            yield from self._outputs_of(row)

    def _outputs_of(self, row: int) -> Iterator[Entry]:
        if self._part.records.values[row] is None and self._part.kind is SourceKind.UNDELIVERED:
            return  # a tombstone
        record, message = self._read(row)
        entry = self._base + row
        whole = restored(record, self._context.facts)
        if isinstance(whole, Gone):
            plan: Plan | Refusal = self._router.ended(
                Result.REMAINS, *message.names, reason=NO_PAYLOAD, detail=whole.detail
            )
        else:
            if whole is not record:
                record, message = whole, self._putter.descriptor(dict(whole.headers))
            plan = self._decide(row, record, message)
        if not isinstance(plan, Refusal) and plan.destination is not None:
            if plan.destination.discovered:
                # They last even if the far queue then refuses the message (A.5).
                yield from self._discoveries(plan.destination)
            plan, put = self._put(entry, record, message, plan, plan.destination)
            yield from put
        failures = self._failures(row)
        if isinstance(plan, Refusal):
            plan, written = self._failed(entry, record, message, plan, failures)
            yield from written
            yield from self._stop(plan)
        elif message.report.value:
            plan, written = self._reported(entry, record, message, plan)
            yield from written
        yield from self._settled(row, record, self._router.told(plan, attempt=failures + 1))

    def _failures(self, row: int) -> int:
        """How often the receiver tried in vain, with the present definitions, to put a message."""
        if self._part.kind is not SourceKind.RETRIES:
            return 0
        mine = own.read_own(self._part.records.headers[row])
        return mine.failures if self._part.counts_go_on(row, mine, self._router.table_id) else 0

    def _failed(
        self,
        entry: int,
        record: waiting.DeadLetterRecord,
        message: PutDescriptor,
        refusal: Refusal,
        failures: int,
    ) -> tuple[Plan, tuple[Entry, ...]]:
        """What becomes of a message that cannot be put now: MRRTY comes first (B.11)."""
        plan = self._router.parked(*message.names, refusal, failures)
        if plan is not None:
            return plan, ()
        return self._undelivered(entry, record, message, refusal)

    def _put(
        self,
        entry: int,
        record: waiting.DeadLetterRecord,
        message: PutDescriptor,
        plan: Plan,
        destination: Destination,
    ) -> tuple[Plan | Refusal, tuple[Entry, ...]]:
        """A put, with the copy that the queue's STREAMQ wants."""
        put = self._putter.put(entry, record, message, destination)
        if isinstance(put, Refusal):
            return put, ()
        if destination.stream is None:
            return plan, ((entry, put),)
        copy = make_copy(destination.stream, entry, put, message, self._putter)
        if not isinstance(copy, Refusal):
            return plan, ((entry, put), copy)
        if destination.stream.is_required:
            return copy, ()
        told = self._router.told(plan, f"no copy: {copy.reason} {copy.detail}")
        return told, ((entry, put),)

    def _discoveries(self, destination: Destination) -> Iterator[Entry]:
        """Definitions that came into being: kept in the transaction of the put that found them."""
        context = self._context
        for one in destination.discovered:
            if one not in context.discovered and one not in self._told:
                self._told.add(one)
                yield self._state_entry(discovered_entry(*one))

    def _stop(self, plan: Plan) -> Iterator[Entry]:
        """A channel stops at what can be put nowhere, in the transaction that finds it (B.11)."""
        channel = self._router.channel
        if channel is not None and plan.result is Result.REMAINS and not self._is_stopped:
            self._is_stopped = True
            because = bounded(f"{plan.reason} {plan.detail}")
            yield self._state_entry(channel_entry(*channel, is_running=False, because=because))

    def _state_entry(self, entry: StateEntry) -> Entry:
        key, value = entry
        context = self._context
        return INTERNAL, OutputRecord(
            context.tables_topic, key.encode(), orjson.dumps(value), None, context.now
        )

    def _read(self, row: int) -> tuple[waiting.DeadLetterRecord, PutDescriptor]:
        """The message of a row; its headers are without Redrive's, save the names of the put."""
        part, records = self._part, self._part.records
        here = f"{self._prefix}{records.offsets[row]}"
        key, value, headers = records.keys[row], records.values[row], records.headers[row]
        timestamp = records.timestamps[row]
        fields = dict(headers)
        message = self._putter.descriptor(fields)
        is_first = own.ID not in fields and own.UNREADABLE not in fields
        if is_first and part.kind is SourceKind.PUTS:
            record = waiting.DeadLetterRecord(key, value, headers, timestamp, here, here, 0)
            return record, message
        mine = own.read_own(headers)
        kept = [pair for pair in headers if pair[0] in NAMES or not pair[0].startswith(own.PREFIX)]
        if part.kind is not SourceKind.PUTS:
            if part.kind is SourceKind.UNDELIVERED:
                key, value = mine.key, None if mine.is_null else value
            record = waiting.taken_back(key, value, kept, timestamp=timestamp, mine=mine, here=here)
            return record, message
        identity = mine.identity or here
        record = waiting.DeadLetterRecord(key, value, kept, timestamp, identity, here, mine.hops)
        return record, message

    def _decide(
        self, row: int, record: waiting.DeadLetterRecord, message: PutDescriptor
    ) -> Plan | Refusal:
        if self._part.kind is SourceKind.PUTS:
            # As it stands on the topic; the copy that remains has names that can be read.
            told = own.unreadable(self._part.records.headers[row])
            if told:
                detail = f"the message can't be put as it was written: {told}"
                return self._router.ended(
                    Result.REMAINS, *message.names, reason=Reason.FORMAT_ERROR, detail=detail
                )
        plan = self._putter.plan(record, message)
        destination = None if isinstance(plan, Refusal) else plan.destination
        if message.is_late(record.timestamp, self._context.now, destination):
            return self._router.ended(Result.EXPIRED, *message.names)
        return plan

    def _reported(
        self, entry: int, record: waiting.DeadLetterRecord, message: PutDescriptor, plan: Plan
    ) -> tuple[Plan, tuple[Entry, ...]]:
        """A plan with the report that it makes due, and that report."""
        kind = due_report(plan, record, message)
        if kind is None:
            return plan, ()
        made = self._report(kind, entry, record, message, plan.reason)
        return self._router.told(plan, made.detail), made.entries

    def _report(
        self,
        kind: ReportKind,
        entry: int,
        record: waiting.DeadLetterRecord,
        message: PutDescriptor,
        reason: int,
    ) -> MadeReport:
        return make_report(
            kind,
            entry,
            record,
            message,
            reason=reason,
            putter=self._putter,
            receiver=self._router.receiver,
            now=self._context.now,
        )

    def _undelivered(
        self,
        entry: int,
        record: waiting.DeadLetterRecord,
        message: PutDescriptor,
        refusal: Refusal,
    ) -> tuple[Plan, tuple[Entry, ...]]:
        """What becomes of a message that cannot be put (resolution specification B.11, A.6)."""
        router, names = self._router, message.names
        reason, detail = refusal.reason, refusal.detail
        if message.report.discards:
            plan = router.ended(Result.DISCARDED, *names, reason=reason, detail=detail)
            plan, returned = self._reported(entry, record, message, plan)
            if returned or not message.report.asks_for(ReportKind.EXCEPTION):
                return plan, returned
            # It was to be returned to its sender and cannot be: nobody would know of its end.
            return self._kept_or_dead(entry, record, message, replace(refusal, detail=plan.detail))
        plan, written = self._kept_or_dead(entry, record, message, refusal)
        plan, reports = self._reported(entry, record, message, plan)
        return plan, (*written, *reports)

    def _kept_or_dead(
        self,
        entry: int,
        record: waiting.DeadLetterRecord,
        message: PutDescriptor,
        refusal: Refusal,
    ) -> tuple[Plan, tuple[Entry, ...]]:
        """A dead letter; else the message stays, or is lost with a fast channel."""
        router, names = self._router, message.names
        reason, detail = refusal.reason, refusal.detail
        result = Result.REMAINS
        if not (refusal.is_kept or router.receiver.keeps_refused):
            number = Effect.DEAD_LETTER.entry(entry)
            letter = self._putter.dead_letter(number, record, message, refusal)
            if not isinstance(letter, Refusal):
                place, written = letter
                plan = router.ended(
                    Result.DEAD_LETTERED, *names, reason=reason, detail=detail, destination=place
                )
                return plan, ((number, written),)
            detail = f"{detail}; no dead letter, because {letter.detail}"
            if router.receiver.is_lost(message.persistence):
                result = Result.DISCARDED
        return router.ended(result, *names, reason=reason, detail=detail), ()
