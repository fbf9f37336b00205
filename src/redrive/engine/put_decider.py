"""The decider of a topic whose records are put by a receiving queue manager.

A message that cannot be put becomes a dead letter, stays, or is lost (docs/traffic.md, "What
happens to a put").
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final

import orjson

from redrive.engine.attempts import LOOP
from redrive.engine.commands import Entry as CommandEntry
from redrive.engine.commands import Replay, channel_entry, discovered_entry
from redrive.engine.context import Entry, SliceContext
from redrive.engine.deciders import Decided
from redrive.engine.decision import Decision, DecisionWriter, Discard, Keep, Park, Put
from redrive.engine.facts import Gone
from redrive.engine.message import NO_ATTEMPTS, Attempts, Message, seed_of
from redrive.engine.names import HandlerIdentity
from redrive.engine.outcome import Result, bounded
from redrive.engine.pointers import NO_PAYLOAD, restore_message
from redrive.engine.put_descriptor import (
    PERSISTENCE_AS_QUEUE_IS_DEFINED,
    PRIORITY_AS_QUEUE_IS_DEFINED,
    READ,
    PutDescriptor,
    as_put,
    is_late,
    without_names,
)
from redrive.engine.put_record import PutTimes, renewal_detail
from redrive.messages import (
    INTERNAL,
    MQMD,
    NO_VALID_SCHEME,
    DeadLetterProfile,
    Form,
    Headers,
    OutputRecord,
    TopicPartition,
    add_header,
    mqmd_headers,
    new_header,
    with_mqmd_headers,
)
from redrive.messages import own_headers as own
from redrive.messages.constants import constant_value
from redrive.messages.dead_letters import DEAD_LETTER_FORMAT
from redrive.messages.fields import DEADLINE, EXPIRY, counted_down, read_text
from redrive.messages.reasons import TEMPORARY, Reason
from redrive.messages.reports import ReportKind, report_message
from redrive.printable import counted
from redrive.topology.mq.resolver import QUEUE_HEADER, QUEUE_MANAGER_HEADER
from redrive.topology.names import Names
from redrive.topology.put import Destination, Refusal
from redrive.topology.receiving import BINARY, ReceivingQueueManager

_FORMAT: Final = MQMD["Format"].header


@dataclass(frozen=True, slots=True)
class MadeReport:
    """The result of a report that is due."""

    entries: tuple[Entry, ...] = ()
    """What to write; empty if no queue accepted it."""
    detail: str = ""
    """Its destination, or why there is none, for the outcome of the message."""


def due_report(
    decision: Decision, message: Message, descriptor: PutDescriptor
) -> ReportKind | None:
    """The report that a message requests and its fate triggers; None if there is none.

    An exception is reported once the message is dead-lettered or discarded: while it stays, its
    fate is open. A message on a dead-letter queue has not arrived (MQMD, field Report).
    """
    kind = None
    match decision.result:
        case Result.ROUTED if isinstance(decision, Put) and decision.destination.is_arrival:
            is_letter = read_text(dict(message.headers).get(_FORMAT)) == DEAD_LETTER_FORMAT
            kind = None if is_letter else ReportKind.ARRIVAL
        case Result.DEAD_LETTERED | Result.DISCARDED if decision.reason:
            kind = ReportKind.EXCEPTION
        case Result.EXPIRED:
            kind = ReportKind.EXPIRATION
    return kind if kind is not None and descriptor.report.asks_for(kind) else None


def make_report(
    kind: ReportKind,
    entry: int,
    message: Message,
    descriptor: PutDescriptor,
    *,
    reason: int,
    putter: Putter,
    receiver: ReceivingQueueManager,
    now: int,
) -> MadeReport:
    """Put a report at the manager that makes it; if that fails, dead-letter it there.

    ``entry`` and ``descriptor`` are those of its message, which is as the open of its put left it.
    ``reason`` says why the
    message could not be put, 0 if it could; ``now`` is in milliseconds since 1970.
    """
    reply_to = (
        receiver.reply_to(descriptor.reply_to) if descriptor.reply_to.queue else descriptor.reply_to
    )
    if not reply_to.queue:
        return MadeReport(detail=f"no report of {kind}: the message has no ReplyToQ")
    value, headers = report_message(
        kind,
        message.value,
        message.headers,
        feedback=reason,
        queue_manager=receiver.queue_manager,
        identity=f"{message.identity} {message.hops}",
        timestamp=message.timestamp,
        now=now,
    )
    headers.append((QUEUE_MANAGER_HEADER, reply_to.queue_manager.encode()))
    headers.append((QUEUE_HEADER, reply_to.queue.encode()))
    report = Message(message.key, value, headers, now, "", "", 0)
    about = putter.descriptor(dict(headers))
    number = Effect.REPORT.entry(entry)
    put = putter.put_by_names(number, report, about)
    if not isinstance(put, Refusal):
        return MadeReport(((number, put),), f"report of {kind} to {reply_to}")
    number = Effect.DEAD_REPORT.entry(entry)
    dead = putter.dead_letter(number, report, about, put)
    if isinstance(dead, Refusal):
        why = f"{put.detail}; no dead letter, because {dead.detail}"
        return MadeReport(detail=f"no report of {kind}: {why}")
    place, written = dead
    where = f"report of {kind} on {place.queue}@{place.queue_manager}"
    return MadeReport(((number, written),), f"{where}: {put.reason} {put.detail}")


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


REMEMBERED: Final = 100_000
"""Maximum cached answers; then the cache is cleared."""

_KINDS: Final[dict[Result, type[Decision]]] = {
    Result.ROUTED: Put,
    Result.DEAD_LETTERED: Put,
    Result.PARKED: Park,
    Result.REMAINS: Keep,
    Result.DISCARDED: Discard,
    Result.EXPIRED: Discard,
}


class PutDecider:
    """One topic, and the queue manager that puts its messages.

    See ``redrive.engine.deciders.Decider``. It determines:
        - the destination of a put, in names and in topics;
        - the consequence of a failure: a retry, a dead letter, or the message stays;
        - the reports that a message asks for, and the definitions that the put creates.
    """

    def __init__(
        self,
        identity: HandlerIdentity,
        receiver: ReceivingQueueManager,
        check: Callable[[Destination | Refusal], Destination | Refusal],
        *,
        table_id: str,
        hop_limit: int,
        channel: tuple[str, str] | None = None,
        by_priority: bool = False,
        message_retries: int = 0,
        message_retry_interval: float = 0.0,
    ) -> None:
        """Take the receiver.

        Args:
            identity: Names of the source, and of the topic for messages that cannot be put
                anywhere.
            receiver: Puts the messages of the topic.
            check: Refuses destinations that Kafka would refuse now.
            table_id: 16 hex digits that identify the definitions.
            hop_limit: Redrive's puts of one message before it counts as looping.
            channel: The channel, by queue manager and name, that stops at a message which
                no queue accepts; None if none does.
            by_priority: Whether messages leave the topic by priority, the highest first.
            message_retries: The number of retries of a put that fails temporarily (MRRTY).
            message_retry_interval: Seconds between two retries (MRTMR).
        """
        self.identity = identity
        self.receiver = receiver
        self.table_id = table_id
        self.by_priority = by_priority
        self.channel = channel
        self._hop_limit = hop_limit
        self._message_retries = message_retries
        self._message_retry_interval = message_retry_interval
        self._check = check
        self._decisions = DecisionWriter(
            identity, table_id, receiver.queue_manager, expects_dead_letters=False
        )
        self._putter: tuple[object, Putter] | None = None
        self._answers: dict[tuple[str, str, int], Destination | Refusal] = {}
        self._known: dict[tuple[Result, Names, int, str, str, int], Decision] = {}

    def decide(
        self,
        message: Message,
        attempts: Attempts,
        facts: SliceContext,
        *,
        entry: int = 0,
        replay: Replay | None = None,
    ) -> Decided:
        """See ``Decider.decide``; puts are never replayed."""
        assert replay is None, "a put is not replayed"
        putter = self._putter_in(facts)
        return _PutAttempt(self, putter, facts, message, attempts.failures, entry).decide()

    def report_arrival(self, entry: int, message: Message, facts: SliceContext) -> MadeReport:
        """Put the report of arrival (COA) of a message that a rules table puts on its queue.

        The message is as it was put at this decider's queue manager.
        """
        putter = self._putter_in(facts)
        return make_report(
            ReportKind.ARRIVAL,
            entry,
            message,
            putter.descriptor(dict(message.headers)),
            reason=0,
            putter=putter,
            receiver=self.receiver,
            now=facts.now,
        )

    def waiting_place(self, message: Message, decision: Park, partition: int) -> TopicPartition:
        """See ``Decider.waiting_place``."""
        del message, decision
        return TopicPartition(self.identity.retry_topic, partition)

    def interval(self, lane: TopicPartition) -> float:
        """See ``Decider.interval``."""
        del lane
        return self._message_retry_interval

    def _putter_in(self, facts: SliceContext) -> Putter:
        """The puts in a slice; what is cached about them holds until it is decided again."""
        last = self._putter  # another thread may decide another slice meanwhile
        if last is None or last[0] is not facts.begun:
            last = self._putter = facts.begun, Putter(self, facts)
        return last[1]

    # -- all puts to the same names --------------------------------------------------------------

    def put_to(self, names: Names, hops: int, seed: int = 0) -> Put | Refusal:
        """The decision about a put by its names.

        Args:
            names: The names that came with the message; the queue manager may be empty.
            hops: The number of Redrive's puts of the message on queues.
            seed: Determines the choice among equal instances of a cluster queue.

        Returns:
            The decision to put the message, or why it cannot be put.
        """
        if hops >= self._hop_limit:
            return Refusal(
                LOOP, f"put {counted(hops, 'time')} already, the limit is {self._hop_limit}"
            )
        answer = self._check(self._resolve(names, seed))
        if isinstance(answer, Refusal):
            return answer
        put = self._write(Result.ROUTED, names, Refusal(0, ""), answer, 1)
        assert isinstance(put, Put)
        return put

    def dead_letters(self) -> Destination | Refusal:
        """The dead-letter queue for messages that cannot be put, or why there is none."""
        return self._check(self.receiver.dead_letters)

    def end(
        self,
        result: Result,
        names: Names,
        refusal: Refusal | None = None,
        *,
        destination: Destination | None = None,
        attempt: int = 1,
    ) -> Decision:
        """The decision about a message that is not put to its own destination.

        The refusal says why, None if nothing refused it; the destination is the dead-letter queue,
        if the message goes there. Attempts count from 1.
        """
        refusal = refusal or Refusal(0, "")
        topic = destination.topic if destination else ""
        key = (result, names, refusal.reason, refusal.detail, topic, attempt)
        decision = self._known.get(key)
        if decision is None:
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            decision = self._write(result, names, refusal, destination, attempt)
            self._known[key] = decision
        return decision

    def on_refusal(self, names: Names, refusal: Refusal, failures: int) -> Decision | None:
        """The decision to retry a put later, as a receiving channel does (MRRTY).

        None after too many failures, or if the reason is not temporary.
        """
        if refusal.reason not in TEMPORARY or failures >= self._message_retries:
            return None
        return self.end(Result.PARKED, names, refusal, attempt=failures + 1)

    def with_detail(self, decision: Decision, detail: str = "", *, attempt: int = 0) -> Decision:
        """A decision with more detail in its outcomes; attempt 0 keeps that of the decision."""
        attempt = attempt or decision.attempt
        if not detail and attempt == decision.attempt:
            return decision
        text = "; ".join(filter(None, (decision.detail, detail)))
        destination = decision.destination if isinstance(decision, Put) else None
        return self.end(
            decision.result,
            decision.target,
            Refusal(decision.reason, text),
            destination=destination,
            attempt=attempt,
        )

    def _resolve(self, names: Names, seed: int) -> Destination | Refusal:
        key = names.queue_manager, names.queue, seed
        answer = self._answers.get(key)
        if answer is None:
            if len(self._answers) >= REMEMBERED:
                self._answers.clear()
            answer = self.receiver.resolve(
                queue=names.queue, queue_manager=names.queue_manager, seed=seed
            )
            self._answers[key] = answer
        return answer

    def _write(
        self,
        result: Result,
        names: Names,
        refusal: Refusal,
        destination: Destination | None,
        attempt: int,
    ) -> Decision:
        fields: dict[str, str | int] = {"DESTQ": names.queue, "DESTQM": names.queue_manager}
        if refusal.reason:
            fields["REASON"] = refusal.reason
        headers = {"headers": destination.headers} if destination else {}
        return self._decisions.write(
            _KINDS[result],
            result,
            DeadLetterProfile(NO_VALID_SCHEME, "", fields, None),
            attempt=attempt,
            attempts=Attempts(attempt) if result is Result.PARKED else NO_ATTEMPTS,
            target=names,
            destination=destination,
            reason=refusal.reason,
            detail=refusal.detail,
            of_kind={"is_worth_logging": refusal.reason != 0, **headers},
        )


class _PutAttempt:
    """One put, with all records that it writes."""

    def __init__(  # noqa: PLR0917 - once for every record
        self,
        decider: PutDecider,
        putter: Putter,
        facts: SliceContext,
        message: Message,
        failures: int,
        entry: int,
    ) -> None:
        self._decider = decider
        self._putter = putter
        self._facts = facts
        self._failures = failures
        self._entry = entry
        self._records: list[Entry] = []
        self._take(message)

    def _take(self, message: Message) -> None:
        receiver, headers = self._decider.receiver, dict(message.headers)
        if receiver.takes_puts:
            message = as_put(message, headers, receiver.queue_manager)
        self._message = message
        self._descriptor = self._putter.descriptor(headers, is_new=receiver.takes_puts)

    @property
    def _names(self) -> Names:
        return self._descriptor.names

    def decide(self) -> Decided:
        channel = self._decider.channel
        if channel is not None and channel in self._facts.recorded:
            behind = Refusal(0, "the channel stopped at an earlier message")
            return Decided(
                self._message,
                self._decider.end(Result.REMAINS, self._names, behind, attempt=self._failures + 1),
            )
        decision = self._decision()
        if isinstance(decision, Refusal):
            decision = self._on_failure(decision)
            self._stop(decision)
        elif self._descriptor.report.value:
            decision = self._with_report(decision)
        decision = self._decider.with_detail(decision, attempt=self._failures + 1)
        return Decided(self._message, decision, tuple(self._records))

    def _decision(self) -> Decision | Refusal:
        message = self._message
        whole = restore_message(message, self._facts.facts)
        if isinstance(whole, Gone):
            refusal = Refusal(NO_PAYLOAD, whole.detail)
            return self._decider.end(Result.REMAINS, self._names, refusal)
        if whole is not message:
            self._take(whole)
        if message.unreadable:
            detail = f"the message cannot be put unchanged: {message.unreadable}"
            refusal = Refusal(Reason.FORMAT_ERROR, detail)
            return self._decider.end(Result.REMAINS, self._names, refusal)
        put = self._putter.decision(self._message, self._descriptor)
        destination = put.destination if isinstance(put, Put) else None
        if is_late(self._message, self._descriptor, self._facts.now, destination):
            return self._decider.end(Result.EXPIRED, self._names)
        return self._put(put) if isinstance(put, Put) else put

    def _put(self, put: Put) -> Decision | Refusal:
        # Discovered definitions stay even if the remote queue refuses the message.
        for definition in put.destination.discovered:
            if definition not in self._facts.discovered:
                self._record(definition, discovered_entry(*definition))
        record = self._putter.put(self._entry, self._message, self._descriptor, put.destination)
        if isinstance(record, Refusal):
            return record
        self._records.append((self._entry, record))
        return self._decider.with_detail(put, renewal_detail(record, self._message.own_time))

    def _on_failure(self, refusal: Refusal) -> Decision:
        """The decision about a failed put: MRRTY applies first."""
        decider, names, descriptor = self._decider, self._names, self._descriptor
        again = decider.on_refusal(names, refusal, self._failures)
        if again is not None:
            return again
        if not descriptor.report.discards:
            return self._with_report(self._dead_letter_or_keep(refusal))
        before = len(self._records)
        decision = self._with_report(decider.end(Result.DISCARDED, names, refusal))
        is_returned = len(self._records) > before
        if is_returned or not descriptor.report.asks_for(ReportKind.EXCEPTION):
            return decision
        # It cannot be returned to its sender, who would not learn that it was discarded.
        return self._dead_letter_or_keep(replace(refusal, detail=decision.detail))

    def _dead_letter_or_keep(self, refusal: Refusal) -> Decision:
        """A dead letter; otherwise the message stays, or a fast channel discards it."""
        decider, result = self._decider, Result.REMAINS
        if not (refusal.is_kept or decider.receiver.keeps_refused):
            number = Effect.DEAD_LETTER.entry(self._entry)
            written = self._putter.dead_letter(number, self._message, self._descriptor, refusal)
            if not isinstance(written, Refusal):
                place, record = written
                self._records.append((number, record))
                return decider.end(Result.DEAD_LETTERED, self._names, refusal, destination=place)
            detail = f"{refusal.detail}; no dead letter, because {written.detail}"
            refusal = replace(refusal, detail=detail)
            if decider.receiver.is_lost(self._descriptor.persistence):
                result = Result.DISCARDED
        return decider.end(result, self._names, refusal)

    def _with_report(self, decision: Decision) -> Decision:
        kind = due_report(decision, self._message, self._descriptor)
        if kind is None:
            return decision
        place = decision.destination if isinstance(decision, Put) else None
        report = make_report(
            kind,
            self._entry,
            self._putter.as_opened(self._message, self._descriptor, place),
            self._descriptor,
            reason=decision.reason,
            putter=self._putter,
            receiver=self._decider.receiver,
            now=self._facts.now,
        )
        self._records += report.entries
        return self._decider.with_detail(decision, report.detail)

    def _stop(self, decision: Decision) -> None:
        """Stop the channel at an undeliverable message, in the same transaction."""
        channel = self._decider.channel
        if channel is not None and isinstance(decision, Keep):
            because = bounded(f"{decision.reason} {decision.detail}")
            self._record(channel, channel_entry(*channel, is_running=False, because=because))

    def _record(self, what: object, entry: CommandEntry) -> None:
        if what in self._facts.recorded:
            return
        self._facts.recorded.add(what)
        key, value = entry
        record = OutputRecord(
            self._facts.tables_topic, key.encode(), orjson.dumps(value), None, self._facts.now
        )
        self._records.append((INTERNAL, record))
