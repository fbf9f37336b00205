"""One put at a receiver: where it leads, and the record that it writes, or why there is none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from redrive.engine.put_descriptor import (
    PERSISTENCE_AS_QUEUE_IS_DEFINED,
    PRIORITY_AS_QUEUE_IS_DEFINED,
    READ,
    PutDescriptor,
    without_names,
)
from redrive.engine.routers import Router, seed_of
from redrive.messages import (
    INTERNAL,
    Form,
    Headers,
    OutputRecord,
    Refused,
    add_header,
    mqmd_headers,
    new_header,
    with_mqmd_headers,
)
from redrive.messages import own_headers as own
from redrive.messages.constants import constant_value
from redrive.topology.put import Destination, Refusal
from redrive.topology.receiving import BINARY

if TYPE_CHECKING:
    from redrive.engine.plans import Plan
    from redrive.engine.processor import SliceContext
    from redrive.engine.waiting import DeadLetterRecord

_QUEUE_MANAGER_TYPE: Final = constant_value("MQAT_QMGR") or 0


class Effect(IntEnum):
    """What one input may write to queues; each has entry numbers of its own."""

    MESSAGE = 0
    DEAD_LETTER = 1
    REPORT = 2
    DEAD_REPORT = 3
    """A report that is a dead letter."""
    COPY = 4
    """What a streaming queue gets."""

    def entry(self, entry: int) -> int:
        """The entry number, by which a refusal is told, of this effect of an input.

        Args:
            entry: Entry number of the input.
        """
        if self is Effect.MESSAGE:
            return entry
        return INTERNAL - self - len(Effect) * entry  # below every other one


class Putter:
    """The puts of one lane at its receiver.

    This class is responsible for:
        - what a message looks like to a put, and where its names lead;
        - the record that a put writes, its message descriptor settled as the queue has it;
        - dead letters of the receiver.

    What was found out for one message is kept for those that are alike.
    """

    def __init__(
        self,
        router: Router,
        context: SliceContext,
        check: Callable[[int, OutputRecord, int, Destination], Refused | None],
    ) -> None:
        """Take the receiver.

        Args:
            router: Decides about its puts.
            context: What all lanes of the slice share.
            check: Refuses a record, by its entry number and persistence, that its destination
                would refuse.
        """
        self._router = router
        self._context = context
        self._check = check
        self._plans: dict[tuple[str, str, int, int], Plan | Refusal] = {}
        self._descriptors: dict[tuple[bytes | None, ...], PutDescriptor] = {}
        self._changes: dict[tuple[int, int], Mapping[str, bytes]] = {}

    def descriptor(self, headers: Mapping[str, bytes | None]) -> PutDescriptor:
        """What a put looks at in a message with these headers."""
        raw = tuple(map(headers.get, READ))
        message = self._descriptors.get(raw)
        if message is None:
            message = self._descriptors[raw] = PutDescriptor.of(raw)
        return message

    def plan(self, record: DeadLetterRecord, message: PutDescriptor) -> Plan | Refusal:
        """Where the names of a message lead, or why it cannot be put.

        Args:
            record: The message.
            message: What a put looks at in it.
        """
        plan = self._plan(*message.names, record.hops, 0)
        destination = None if isinstance(plan, Refusal) else plan.destination
        if destination is not None and destination.is_choice:
            # Bind on open or on group: all puts of one choose alike, others each for itself.
            group = message.group if destination.binds_groups else ""
            seed = seed_of(message.bind or group or record.identity)
            plan = self._plan(*message.names, record.hops, seed)
        return plan

    def put(
        self,
        entry: int,
        record: DeadLetterRecord,
        message: PutDescriptor,
        destination: Destination,
    ) -> OutputRecord | Refusal:
        """The record that a put writes, or why it fails.

        Args:
            entry: Its entry number.
            record: The message.
            message: What a put looks at in it.
            destination: Where it leads.
        """
        headers = without_names(record.headers)
        if changes := self._described(message, destination):
            headers = with_mqmd_headers(headers, changes)
        headers += destination.headers
        put = _output(record, destination.topic, record.value, headers)
        return self._refused(entry, put, message.settled(destination), destination) or put

    def put_by_names(
        self, entry: int, record: DeadLetterRecord, message: PutDescriptor
    ) -> OutputRecord | Refusal:
        """The record that a put to the names of a message writes, or why it fails.

        Args:
            entry: Its entry number.
            record: The message.
            message: What a put looks at in it.
        """
        plan = self.plan(record, message)
        if isinstance(plan, Refusal):
            return plan
        if plan.destination is None:
            return Refusal(plan.reason, plan.detail)
        return self.put(entry, record, message, plan.destination)

    def dead_letter(
        self, entry: int, record: DeadLetterRecord, message: PutDescriptor, refusal: Refusal
    ) -> tuple[Destination, OutputRecord] | Refusal:
        """The dead letter of a message that cannot be put, or why it becomes none.

        Args:
            entry: The dead letter's entry number.
            record: The message.
            message: What a put looks at in it.
            refusal: Why it cannot be put.
        """
        place = self._router.dead_letters()
        if isinstance(place, Refusal):
            return place
        letter = self._dead_letter(record, message, refusal, place)
        found = self._refused(entry, letter, message.settled(place), place)
        if found is not None:
            return Refusal(found.reason, f"{place.queue}: {found.detail}")
        return place, letter

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

    def _described(self, message: PutDescriptor, destination: Destination) -> Mapping[str, bytes]:
        """What changes in the message descriptor: what the queue settles, and reply-to names."""
        # Both objects live as long as the lane: descriptors here, destinations in the plans.
        key = id(message), id(destination)
        found = self._changes.get(key)
        if found is None:
            found = self._changes[key] = mqmd_headers(self._changed(message, destination))
        return found

    def _changed(self, message: PutDescriptor, destination: Destination) -> dict[str, str | int]:
        changes: dict[str, str | int] = {}
        if message.persistence == PERSISTENCE_AS_QUEUE_IS_DEFINED:
            changes["Persistence"] = destination.persistence
        if message.priority == PRIORITY_AS_QUEUE_IS_DEFINED:
            changes["Priority"] = destination.priority
        cap = destination.cap_expiry
        if cap is not None and not 0 < message.expiry <= cap:
            changes["Expiry"] = cap
        if message.reply_to.queue:
            after = self._router.receiver.reply_to(message.reply_to)
            if after != message.reply_to:
                changes["ReplyToQMgr"], changes["ReplyToQ"] = after.queue_manager, after.queue
        return changes

    def _dead_letter(
        self,
        record: DeadLetterRecord,
        message: PutDescriptor,
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
        return _output(record, place.topic, value, list(headers))


def _output(
    record: DeadLetterRecord, topic: str, value: bytes | None, headers: Headers
) -> OutputRecord:
    if record.identity:  # what Redrive makes itself is seen first where it is read again
        headers.append((own.ID, record.identity.encode("ascii")))
        headers.append((own.HOPS, own.number(record.hops + 1)))
    return OutputRecord(topic, record.key, value, headers, record.timestamp)
