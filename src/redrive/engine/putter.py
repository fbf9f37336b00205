"""One put at a receiver: its destination, and its record or why there is none."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from redrive.engine.message import seed_of
from redrive.engine.put_descriptor import (
    PERSISTENCE_AS_QUEUE_IS_DEFINED,
    PRIORITY_AS_QUEUE_IS_DEFINED,
    READ,
    PutDescriptor,
    without_names,
)
from redrive.engine.put_record import PutTimes
from redrive.messages import (
    INTERNAL,
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
from redrive.messages.fields import DEADLINE, EXPIRY, counted_down
from redrive.topology.names import Names
from redrive.topology.put import Destination, Refusal
from redrive.topology.receiving import BINARY

if TYPE_CHECKING:
    from redrive.engine.context import SliceContext
    from redrive.engine.decision import Put
    from redrive.engine.message import Message
    from redrive.engine.put_decider import PutDecider

_QUEUE_MANAGER_TYPE: Final = constant_value("MQAT_QMGR") or 0


class Effect(IntEnum):
    """What one input may write to queues; each effect has its own entry numbers."""

    MESSAGE = 0
    DEAD_LETTER = 1
    REPORT = 2
    DEAD_REPORT = 3
    """A report that is a dead letter."""

    def entry(self, entry: int) -> int:
        """The entry number of this effect of an input, which identifies its refusal."""
        if self is Effect.MESSAGE:
            return entry
        return INTERNAL - self - len(Effect) * entry  # below every other one


class Putter:
    """The puts of one lane at its receiver.

    It determines:

    - what a put reads from a message, and where its names resolve to;
    - the record of a put, with the queue's defaults in its message descriptor;
    - dead letters of the receiver.

    Results for one message are cached for equal messages.
    """

    def __init__(self, decider: PutDecider, facts: SliceContext) -> None:
        self._decider = decider
        self._facts = facts
        self._puts: dict[tuple[Names, int, int], Put | Refusal] = {}
        self._descriptors: dict[tuple[tuple[bytes | None, ...], bool], PutDescriptor] = {}
        self._changes: dict[tuple[int, int], Mapping[str, bytes]] = {}
        self._times: dict[str, PutTimes] = {}

    @classmethod
    def of(cls, decider: PutDecider, facts: SliceContext) -> Putter:
        """The puts of a decider in a slice."""
        putter = facts.putters.get(id(decider))
        if putter is None:
            putter = facts.putters[id(decider)] = cls(decider, facts)
        return putter

    def descriptor(
        self, headers: Mapping[str, bytes | None], *, is_new: bool = False
    ) -> PutDescriptor:
        """What a put reads from a message with these headers; see ``PutDescriptor.of``."""
        raw = tuple(map(headers.get, READ))
        descriptor = self._descriptors.get((raw, is_new))
        if descriptor is None:
            descriptor = self._descriptors[raw, is_new] = PutDescriptor.of(raw, is_new=is_new)
        return descriptor

    def decision(self, message: Message, descriptor: PutDescriptor) -> Put | Refusal:
        """The destination of a message's names, or why it cannot be put."""
        put = self._put_to(descriptor.names, message.hops, 0)
        if isinstance(put, Refusal) or not put.destination.is_choice:
            return put
        # Bind on open or on group: all puts of one choose the same; others choose individually.
        group = descriptor.group if put.destination.binds_groups else ""
        seed = seed_of(descriptor.bind or group or message.identity)
        return self._put_to(descriptor.names, message.hops, seed)

    def put(
        self, entry: int, message: Message, descriptor: PutDescriptor, destination: Destination
    ) -> OutputRecord | Refusal:
        """The record of a put to a destination, or why it fails.

        ``entry`` is the number of this record, ``descriptor`` what a put reads from the message.
        """
        headers = self._headers(message, descriptor, destination)
        headers += destination.headers
        put = self._output(message, destination.topic, message.value, headers)
        persistence = descriptor.persistence_at(destination)
        return self._facts.check(entry, put, persistence, destination) or put

    def as_opened(
        self, message: Message, descriptor: PutDescriptor, place: Destination | None
    ) -> Message:
        """A message after the open of its put, as reports and dead letters have it.

        A message whose names do not resolve has the defaults of a place, if it goes to one.
        """
        put = self.decision(message, descriptor)
        queue = place if isinstance(put, Refusal) else put.destination
        if queue is None:
            return message
        return message._replace(headers=self._headers(message, descriptor, queue))

    def put_by_names(
        self, entry: int, message: Message, descriptor: PutDescriptor
    ) -> OutputRecord | Refusal:
        """The record of a put to the names of a message, or why it fails; see ``put``."""
        put = self.decision(message, descriptor)
        if isinstance(put, Refusal):
            return put
        return self.put(entry, message, descriptor, put.destination)

    def dead_letter(
        self, entry: int, message: Message, descriptor: PutDescriptor, refusal: Refusal
    ) -> tuple[Destination, OutputRecord] | Refusal:
        """The dead letter of a message that cannot be put, or why there is none; see ``put``."""
        place = self._decider.dead_letters()
        if isinstance(place, Refusal):
            return place
        put = self.decision(message, descriptor)
        # A put that fails on a queue has that queue's defaults (MQMD, field Persistence).
        queue = place if isinstance(put, Refusal) else put.destination
        record = self._dead_letter(message, descriptor, refusal, place)
        problem = self._facts.check(entry, record, descriptor.persistence_at(queue), place)
        if problem is not None:
            return Refusal(problem.reason, f"{place.queue}: {problem.detail}")
        return place, record

    def _put_to(self, names: Names, hops: int, seed: int) -> Put | Refusal:
        key = names, hops, seed
        put = self._puts.get(key)
        if put is None:
            put = self._puts[key] = self._decider.put_to(names, hops, seed)
        return put

    def _headers(self, message: Message, descriptor: PutDescriptor, queue: Destination) -> Headers:
        headers = without_names(message.headers)
        if changes := self._descriptor_changes(descriptor, queue):
            if EXPIRY in changes:
                headers = [pair for pair in headers if pair[0] != DEADLINE]
            headers = with_mqmd_headers(headers, changes)
        if descriptor.expiry > 0:
            headers = counted_down(headers, message.timestamp, self._facts.now)
        return headers

    def _descriptor_changes(
        self, descriptor: PutDescriptor, destination: Destination
    ) -> Mapping[str, bytes]:
        """Changes to the message descriptor: defaults of the queue, and reply-to names."""
        # Both objects live as long as the slice: descriptors here, destinations in the decisions.
        key = id(descriptor), id(destination)
        changes = self._changes.get(key)
        if changes is None:
            fields = self._changed_fields(descriptor, destination)
            changes = self._changes[key] = mqmd_headers(fields)
        return changes

    def _changed_fields(
        self, descriptor: PutDescriptor, destination: Destination
    ) -> dict[str, str | int]:
        changes: dict[str, str | int] = {}
        if descriptor.persistence == PERSISTENCE_AS_QUEUE_IS_DEFINED:
            changes["Persistence"] = destination.persistence
        if descriptor.priority == PRIORITY_AS_QUEUE_IS_DEFINED:
            changes["Priority"] = destination.priority
        cap = destination.cap_expiry
        if cap is not None and not 0 < descriptor.expiry <= cap:
            changes["Expiry"] = cap
        if descriptor.reply_to.queue:
            after = self._decider.receiver.reply_to(descriptor.reply_to)
            if after != descriptor.reply_to:
                changes["ReplyToQMgr"], changes["ReplyToQ"] = after.queue_manager, after.queue
        return changes

    def _dead_letter(
        self,
        message: Message,
        descriptor: PutDescriptor,
        refusal: Refusal,
        place: Destination,
    ) -> OutputRecord:
        plain = self.as_opened(message, descriptor, place).headers
        receiver = self._decider.receiver
        header = new_header(
            plain,
            reason=refusal.reason,
            queue=descriptor.names.queue,
            queue_manager=descriptor.names.queue_manager or receiver.queue_manager,
            timestamp=self._facts.now,
            put_appl_name=receiver.queue_manager,
            put_appl_type=_QUEUE_MANAGER_TYPE,
        )
        form = Form.BINARY if receiver.dead_letter_form == BINARY else Form.HEADERS
        value, headers = add_header(header, message.value, plain, form=form)
        return self._output(message, place.topic, value, list(headers))

    def _output(
        self, message: Message, topic: str, value: bytes | None, headers: Headers
    ) -> OutputRecord:
        if message.identity:  # Redrive first sees its own records where it reads them
            headers.append((own.ID, message.identity.encode("ascii")))
            headers.append((own.HOPS, own.number(message.hops + 1)))
        times = self._times.get(topic)
        if times is None:
            times = self._times[topic] = PutTimes.at(
                self._facts.facts.topic(topic), self._facts.now
            )
        put = OutputRecord(topic, message.key, value, headers, message.timestamp)
        return times.note(put, message.own_time)
