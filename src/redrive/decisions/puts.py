"""Puts: one record of an intake or a transmission queue becomes one record somewhere else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import orjson

from redrive.decisions import waiting
from redrive.decisions.processor import (
    Entry,
    PartitionProcessor,
    PartitionRecords,
    SliceContext,
    SourceKind,
)
from redrive.decisions.routers import Router, seed_of
from redrive.messages import (
    INTERNAL,
    MQMD,
    Form,
    Headers,
    OutputRecord,
    add_header,
    mqmd_headers,
    new_header,
    with_mqmd_headers,
)
from redrive.messages import own_headers as own
from redrive.messages.constants import constant_value
from redrive.messages.fields import read_long, read_text
from redrive.outcomes.record import Result
from redrive.topology.mq.resolver import (
    BIND_HEADER,
    NEXT_QUEUE_MANAGER_HEADER,
    QUEUE_HEADER,
    QUEUE_MANAGER_HEADER,
)
from redrive.topology.names import Names
from redrive.topology.put import Destination, Refusal
from redrive.topology.receiving import BINARY
from redrive.topology.states import discovered_entry

if TYPE_CHECKING:
    from redrive.decisions.handlers import Plan

_EXPIRY: Final = MQMD["Expiry"].header
_PERSISTENCE: Final = MQMD["Persistence"].header
_PRIORITY: Final = MQMD["Priority"].header
_REPORT: Final = MQMD["Report"].header
_REPLY_TO_QUEUE: Final = MQMD["ReplyToQ"].header
_REPLY_TO_QUEUE_MANAGER: Final = MQMD["ReplyToQMgr"].header
_DISCARD: Final = 0x08000000
"""MQRO_DISCARD_MSG."""
_AS_QUEUE_IS_DEFINED: Final = 2
"""MQPER_PERSISTENCE_AS_Q_DEF."""
_PRIORITY_AS_QUEUE_IS_DEFINED: Final = -1
"""MQPRI_PRIORITY_AS_Q_DEF."""
_TENTH: Final = 100
"""Milliseconds of the unit of Expiry."""
_QUEUE_MANAGER_TYPE: Final = constant_value("MQAT_QMGR") or 0

NAMES: Final = frozenset(
    {QUEUE_MANAGER_HEADER, QUEUE_HEADER, NEXT_QUEUE_MANAGER_HEADER, BIND_HEADER}
)
"""Headers with the names of a put, and of the open that it belongs to."""

_READ: Final = (
    QUEUE_MANAGER_HEADER, QUEUE_HEADER, _PERSISTENCE, _EXPIRY, _REPORT, _REPLY_TO_QUEUE,
    _REPLY_TO_QUEUE_MANAGER, _PRIORITY, BIND_HEADER,
)  # fmt: skip
"""The headers that a put looks at, in the order of ``_Message.of``."""


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
        self._plans: dict[tuple[str, str, int, int], Plan | Refusal] = {}
        self._messages: dict[tuple[bytes | None, ...], _Message] = {}
        self._changes: dict[tuple[int, int], Mapping[str, bytes]] = {}
        self._told: set[tuple[str, str, str]] = set()

    def _outputs_of(self, row: int) -> Iterator[Entry]:
        if self._part.records.values[row] is None and self._part.kind is SourceKind.UNDELIVERED:
            return  # a tombstone
        record, message = self._read(row)
        entry = self._base + row
        plan = self._decide(record, message)
        if not isinstance(plan, Refusal) and plan.destination is not None:
            if plan.destination.discovered:
                # They last even if the far queue then refuses the message (A.5).
                yield from self._discoveries(plan.destination)
            put = self._record(record, message, plan.destination)
            problem = self._refused(entry, put, message.settled(plan.destination), plan.destination)
            if problem is None:
                yield entry, put
            else:
                plan = problem
        if isinstance(plan, Refusal):
            plan, dead_letter = self._undelivered(entry, record, message, plan)
            if dead_letter is not None:
                yield _dead_letter_entry(entry), dead_letter
        yield from self._settled(row, record, plan)

    def _discoveries(self, destination: Destination) -> Iterator[Entry]:
        """Definitions that came into being: kept in the transaction of the put that found them."""
        context = self._context
        for one in destination.discovered:
            if one not in context.discovered and one not in self._told:
                self._told.add(one)
                key, value = discovered_entry(*one)
                yield (
                    INTERNAL,
                    OutputRecord(
                        context.control_topic, key.encode(), orjson.dumps(value), None, context.now
                    ),
                )

    def _read(self, row: int) -> tuple[waiting.DeadLetterRecord, _Message]:
        """The message of a row; its headers are without Redrive's, save the names of the put."""
        part, records = self._part, self._part.records
        here = f"{self._prefix}{records.offsets[row]}"
        key, value, headers = records.keys[row], records.values[row], records.headers[row]
        timestamp = records.timestamps[row]
        fields = dict(headers)
        message = self._message(fields)
        if own.ID not in fields and part.kind is SourceKind.PUTS:
            record = waiting.DeadLetterRecord(key, value, headers, timestamp, here, here, 0)
            return record, message
        mine = own.read_own(headers)
        kept = [pair for pair in headers if pair[0] in NAMES or not pair[0].startswith(own.PREFIX)]
        if part.kind is SourceKind.UNDELIVERED:
            body = None if mine.is_null else value
            record = waiting.taken_back(
                mine.key, body, kept, timestamp=timestamp, mine=mine, here=here
            )
            return record, message
        identity = mine.identity or here
        record = waiting.DeadLetterRecord(key, value, kept, timestamp, identity, here, mine.hops)
        return record, message

    def _message(self, fields: Mapping[str, bytes | None]) -> _Message:
        raw = tuple(map(fields.get, _READ))
        message = self._messages.get(raw)
        if message is None:
            message = self._messages[raw] = _Message.of(raw)
        return message

    def _decide(self, record: waiting.DeadLetterRecord, message: _Message) -> Plan | Refusal:
        names = message.queue_manager, message.queue
        plan = self._plan(*names, record.hops, 0)
        destination = None if isinstance(plan, Refusal) else plan.destination
        if destination is not None and destination.is_choice:
            # Bind on open: all puts of one open choose alike, others each for itself.
            seed = seed_of(message.bind or record.identity)
            plan = self._plan(*names, record.hops, seed)
        expiry = destination.expiry if destination else None
        if message.is_late(record.timestamp, self._context.now, expiry):
            return self._router.ended(Result.EXPIRED, *names)
        return plan

    def _plan(self, queue_manager: str, queue: str, hops: int, seed: int) -> Plan | Refusal:
        key = queue_manager, queue, hops, seed
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plans[key] = self._router.plan(queue_manager, queue, hops, seed)
        return plan

    def _refused(
        self, entry: int, put: OutputRecord, persistence: int, destination: Destination
    ) -> Refusal | None:
        refused = self._context.refused.get(entry) or self._check(
            entry, put, persistence, destination
        )
        return None if refused is None else Refusal(refused.reason, refused.detail)

    def _record(
        self, record: waiting.DeadLetterRecord, message: _Message, destination: Destination
    ) -> OutputRecord:
        headers = without_names(record.headers)
        if changes := self._described(message, destination):
            headers = with_mqmd_headers(headers, changes)
        headers += destination.headers
        return self._output(record, destination.topic, record.value, headers)

    def _described(self, message: _Message, destination: Destination) -> Mapping[str, bytes]:
        """What changes in the message descriptor: what the queue settles, and reply-to names."""
        # Both objects live as long as the lane: messages here, destinations in the plans.
        key = id(message), id(destination)
        found = self._changes.get(key)
        if found is None:
            found = self._changes[key] = mqmd_headers(self._changed(message, destination))
        return found

    def _changed(self, message: _Message, destination: Destination) -> dict[str, str | int]:
        changes: dict[str, str | int] = {}
        if message.persistence == _AS_QUEUE_IS_DEFINED:
            changes["Persistence"] = destination.persistence
        if message.priority == _PRIORITY_AS_QUEUE_IS_DEFINED:
            changes["Priority"] = destination.priority
        cap = destination.cap_expiry
        if cap is not None and not 0 < message.expiry <= cap:
            changes["Expiry"] = cap
        if message.reply_to_queue:
            before = Names(
                queue=message.reply_to_queue, queue_manager=message.reply_to_queue_manager
            )
            after = self._router.receiver.reply_to(before)
            if after != before:
                changes["ReplyToQMgr"], changes["ReplyToQ"] = after.queue_manager, after.queue
        return changes

    @staticmethod
    def _output(
        record: waiting.DeadLetterRecord, topic: str, value: bytes | None, headers: Headers
    ) -> OutputRecord:
        headers.append((own.ID, record.identity.encode("ascii")))
        headers.append((own.HOPS, own.number(record.hops + 1)))
        return OutputRecord(topic, record.key, value, headers, record.timestamp)

    def _undelivered(
        self,
        entry: int,
        record: waiting.DeadLetterRecord,
        message: _Message,
        refusal: Refusal,
    ) -> tuple[Plan, OutputRecord | None]:
        """What becomes of a message that cannot be put (resolution specification B.11, A.6)."""
        router, names = self._router, (message.queue_manager, message.queue)
        reason, detail = refusal.reason, refusal.detail
        if message.is_discarded_if_undeliverable:
            return router.ended(Result.DISCARDED, *names, reason=reason, detail=detail), None
        if not (refusal.is_kept or router.receiver.keeps_refused):
            place = router.dead_letters()
            problem = place
            if isinstance(place, Destination):
                dead_letter = self._dead_letter(record, message, refusal, place)
                second = _dead_letter_entry(entry)
                found = self._refused(second, dead_letter, message.settled(place), place)
                if found is None:
                    plan = router.ended(
                        Result.DEAD_LETTERED,
                        *names,
                        reason=reason,
                        detail=detail,
                        destination=place,
                    )
                    return plan, dead_letter
                problem = Refusal(found.reason, f"{place.queue}: {found.detail}")
            if isinstance(problem, Refusal):
                detail = f"{detail}; no dead letter, because {problem.detail}"
            if router.receiver.is_lost(message.persistence):
                return router.ended(Result.DISCARDED, *names, reason=reason, detail=detail), None
        return router.ended(Result.REMAINS, *names, reason=reason, detail=detail), None

    def _dead_letter(
        self,
        record: waiting.DeadLetterRecord,
        message: _Message,
        refusal: Refusal,
        place: Destination,
    ) -> OutputRecord:
        plain = without_names(record.headers)
        receiver = self._router.receiver
        header = new_header(
            plain,
            reason=refusal.reason,
            queue=message.queue,
            queue_manager=message.queue_manager or receiver.queue_manager,
            timestamp=self._context.now,
            put_appl_name=receiver.queue_manager,
            put_appl_type=_QUEUE_MANAGER_TYPE,
        )
        form = Form.BINARY if receiver.dead_letter_form == BINARY else Form.HEADERS
        value, headers = add_header(header, record.value, plain, form=form)
        return self._output(record, place.topic, value, list(headers))


@dataclass(frozen=True, slots=True)
class _Message:
    """What a put looks at in a message."""

    queue_manager: str
    queue: str
    persistence: int
    expiry: int
    report: int
    reply_to_queue: str
    reply_to_queue_manager: str
    priority: int
    bind: str
    """Name of the open that the put belongs to; empty if it was not said."""

    @classmethod
    def of(cls, raw: Sequence[bytes | None]) -> _Message:
        """The fields from the values of the headers ``_READ``."""
        queue_manager, queue, persistence, expiry, report, *rest = raw
        reply_to, reply_to_manager, priority, bind = rest
        return cls(
            queue_manager=read_text(queue_manager),
            queue=read_text(queue),
            persistence=read_long(persistence),
            expiry=read_long(expiry),
            report=read_long(report),
            reply_to_queue=read_text(reply_to),
            reply_to_queue_manager=read_text(reply_to_manager),
            priority=read_long(priority),
            bind=read_text(bind),
        )

    @property
    def is_discarded_if_undeliverable(self) -> bool:
        """Whether the report options ask for it."""
        return bool(self.report & _DISCARD)

    def settled(self, destination: Destination) -> int:
        """The persistence, settled if it is left to the queue."""
        left_open = self.persistence == _AS_QUEUE_IS_DEFINED
        return destination.persistence if left_open else self.persistence

    def is_late(self, created: int, now: int, queue_expiry: int | None) -> bool:
        """Whether the message has expired; its own expiry overrides the queue's."""
        allowed = self.expiry * _TENTH if self.expiry > 0 else queue_expiry
        return allowed is not None and now - created > allowed


def without_names(headers: Headers) -> Headers:
    """The headers without the names of the put, in their order."""
    return [pair for pair in headers if pair[0] not in NAMES]


def _dead_letter_entry(entry: int) -> int:
    """Entry number of the dead letter of an entry: below every other one."""
    return INTERNAL - 1 - entry
