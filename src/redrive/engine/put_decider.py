"""The decider of a topic whose records are put by a receiving queue manager.

A message that cannot be put becomes a dead letter, stays, or is lost (docs/traffic.md, "What
happens to a put").
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from enum import IntEnum
from typing import Final, NamedTuple

import orjson

from redrive.engine.attempts import LOOP
from redrive.engine.cache import PreparedPut, PutCache, put_bounds
from redrive.engine.commands import Entry as CommandEntry
from redrive.engine.commands import Replay, channel_entry, discovered_entry
from redrive.engine.context import Decided, Entry, SliceContext
from redrive.engine.decision import Decision, DecisionWriter, Discard, Keep, Park, Put
from redrive.engine.facts import Gone
from redrive.engine.message import NO_ATTEMPTS, Attempts, Message, seed_of
from redrive.engine.names import HandlerIdentity
from redrive.engine.outcome import Result, bounded
from redrive.engine.pointers import NO_PAYLOAD, restore_message
from redrive.engine.put_record import (
    NAMES,
    PERSISTENCE_AS_QUEUE_IS_DEFINED,
    PRIORITY_AS_QUEUE_IS_DEFINED,
    READ,
    Completion,
    PutDescriptor,
    PutTimes,
    as_put,
    is_late,
    renewal_detail,
    without_names,
)
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
_QUEUE_MANAGER_TYPE: Final = constant_value("MQAT_QMGR") or 0
_NO_REFUSAL: Final = Refusal(0, "")


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


class MadeReport(NamedTuple):
    """The result of a report that is due."""

    entries: tuple[Entry, ...] = ()
    """What to write; empty if no queue accepted it."""
    detail: str = ""
    """Its destination, or why there is none, for the outcome of the message."""


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


@dataclass(eq=False)
class PutDecider:
    """One topic, and the queue manager that puts its messages.

    See ``redrive.engine.context.Decider``. It determines:
        - the destination of a put, in names and in topics;
        - the consequence of a failure: a retry, a dead letter, or the message stays;
        - the reports that a message asks for, and the definitions that the put creates.
    """

    identity: HandlerIdentity
    """Names of the source, and of the topic for messages that cannot be put anywhere."""
    receiver: ReceivingQueueManager
    check: Callable[[Destination | Refusal], Destination | Refusal]
    """Refuses destinations that Kafka would refuse now."""
    _: KW_ONLY
    table_id: str
    """16 hex digits that identify the definitions."""
    hop_limit: int
    """Redrive's puts of one message before it counts as looping."""
    channel: tuple[str, str] | None = None
    """The channel, by queue manager and name, that stops at a message which no queue accepts."""
    by_priority: bool = False
    """Whether messages leave the topic by priority, the highest first."""
    message_retries: int = 0
    """The number of retries of a put that fails temporarily (MRRTY)."""
    message_retry_interval: float = 0.0
    """Seconds between two retries (MRTMR)."""

    def __post_init__(self) -> None:
        self._decisions = DecisionWriter(
            self.identity, self.table_id, self.receiver.queue_manager, expects_dead_letters=False
        )
        self._cache = PutCache(None)
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
        is_new, failures = self.receiver.takes_puts, attempts.failures
        put = PutAttempt(self, message, facts, entry, failures=failures, is_new=is_new)
        return put.decide()

    def prepare(
        self, message: Message, names: tuple[str, ...], facts: SliceContext
    ) -> PreparedPut | None:
        """The put of each message that differs from this one only in what a put does not read.

        ``names`` are those of their records' headers in order. None if each message needs its own
        attempt: the moment decides about it, a header is replaced, or more than a record written.
        """
        attempt = PutAttempt(self, message, facts, 0, is_new=self.receiver.takes_puts)
        return attempt.prepared(names, dict(message.headers))

    def waiting_place(self, message: Message, decision: Park, partition: int) -> TopicPartition:
        """See ``Decider.waiting_place``."""
        del message, decision
        return TopicPartition(self.identity.retry_topic, partition)

    def interval(self, lane: TopicPartition) -> float:
        """See ``Decider.interval``."""
        del lane
        return self.message_retry_interval

    def cache_in(self, facts: SliceContext) -> PutCache:
        """What is cached in a slice, until it is decided again."""
        cache = self._cache  # another thread may decide another slice meanwhile
        if cache.begun is not facts.begun:
            cache = self._cache = PutCache(facts.begun)
        return cache

    def put_to(self, names: Names, hops: int, seed: int = 0) -> Put | Refusal:
        """The decision about a put by its names.

        Args:
            names: The names that came with the message; the queue manager may be empty.
            hops: The number of Redrive's puts of the message on queues.
            seed: Determines the choice among equal instances of a cluster queue.

        Returns:
            The decision to put the message, or why it cannot be put.
        """
        if hops >= self.hop_limit:
            return Refusal(
                LOOP, f"put {counted(hops, 'time')} already, the limit is {self.hop_limit}"
            )
        answer = self.check(self._resolve(names, seed))
        if isinstance(answer, Refusal):
            return answer
        put = self._write(Result.ROUTED, names, _NO_REFUSAL, answer, 1)
        assert isinstance(put, Put)
        return put

    def dead_letters(self) -> Destination | Refusal:
        """The dead-letter queue for messages that cannot be put, or why there is none."""
        return self.check(self.receiver.dead_letters)

    def end(
        self,
        result: Result,
        names: Names,
        refusal: Refusal,
        destination: Destination | None,
        attempt: int,
    ) -> Decision:
        """The decision about messages with the same names and result, in one attempt, from 1.

        The refusal says why; the destination is that of the put or of the dead letter, if any.
        """
        topic = destination.topic if destination else ""
        key = (result, names, refusal.reason, refusal.detail, topic, attempt)
        decision = self._known.get(key)
        if decision is None:
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            decision = self._write(result, names, refusal, destination, attempt)
            self._known[key] = decision
        return decision

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
            of_kind={"is_worth_logging": refusal.reason != 0},
        )


class PutAttempt:
    """One message that a queue manager puts, with all records that this writes.

    A report about the message is another message that the manager puts.
    """

    def __init__(
        self,
        decider: PutDecider,
        message: Message,
        facts: SliceContext,
        entry: int,
        *,
        failures: int = 0,
        is_new: bool = False,
    ) -> None:
        """Prepare the put of a message.

        ``entry`` is the number of its input, ``failures`` that of earlier attempts; ``is_new`` is
        whether an application puts the message, which MQPUT completes.
        """
        self._decider = decider
        self._facts = facts
        self._cache = decider.cache_in(facts)
        self._entry = entry
        self._attempt = failures + 1
        self._is_new = is_new
        self._records: list[Entry] = []
        self._read(message)

    def _read(self, message: Message) -> None:
        """Read the descriptor of a message; complete a new message."""
        headers = dict(message.headers)
        raw = tuple(map(headers.get, READ))
        descriptor = self._cache.descriptors.get((raw, self._is_new))
        if descriptor is None:
            descriptor = PutDescriptor.of(raw, is_new=self._is_new)
            self._cache.descriptors[raw, self._is_new] = descriptor
        if self._is_new:
            message = as_put(message, headers, self._decider.receiver.queue_manager)
        self._message, self._descriptor = message, descriptor

    # -- the decision ----------------------------------------------------------------------------

    def prepared(
        self, names: tuple[str, ...], present: Mapping[str, bytes | None]
    ) -> PreparedPut | None:
        """See ``PutDecider.prepare``; ``present`` are the headers before they were completed."""
        put, descriptor, completion = self._routed(), self._descriptor, None
        if isinstance(put, Refusal) or descriptor.report.value or descriptor.expiry > 0:
            return None
        place, bounds = put.destination, put_bounds(put, self._facts)
        if bounds is None or place.discovered or (place.expiry, place.cap_expiry) != (None, None):
            return None
        if self._is_new:
            completion = Completion.of(present, self._decider.receiver.queue_manager)
            made = [name for name, _ in completion.headers("", 1)]
            if not present.keys().isdisjoint(made):
                return None
            names = *names, *made
        first, last = PutTimes.of(put, self._facts).kept
        return PreparedPut(
            put,
            names,
            (bounds[0], max(1, first), last),
            self._facts,
            hops=self._message.hops,
            completion=completion,
            rewrite=lambda probe: [
                *self._headers_on(place, own.without_own(probe, NAMES)),
                *place.headers,
            ],
        )

    def decide(self) -> Decided:
        """The decision about the message, and the records that it writes."""
        channel = self._decider.channel
        if channel is not None and channel in self._facts.recorded:
            behind = Refusal(0, "the channel stopped at an earlier message")
            return Decided(self._message, self._end(Result.REMAINS, behind))
        decision = self._decision()
        if isinstance(decision, Refusal):
            decision = self._on_failure(decision)
            if channel is not None and isinstance(decision, Keep):
                because = bounded(f"{decision.reason} {decision.detail}")
                self._record(channel, channel_entry(*channel, is_running=False, because=because))
        elif self._descriptor.report.value:
            decision = self._with_report(decision)
        return Decided(self._message, decision, tuple(self._records))

    def _decision(self) -> Decision | Refusal:
        message = self._message
        whole = restore_message(message, self._facts.facts)
        if isinstance(whole, Gone):
            return self._end(Result.REMAINS, Refusal(NO_PAYLOAD, whole.detail))
        if whole is not message:
            self._read(whole)
        if message.unreadable:
            detail = f"the message cannot be put unchanged: {message.unreadable}"
            return self._end(Result.REMAINS, Refusal(Reason.FORMAT_ERROR, detail))
        put = self._routed()
        destination = put.destination if isinstance(put, Put) else None
        if is_late(self._message, self._descriptor, self._facts.now, destination):
            return self._end(Result.EXPIRED)
        if isinstance(put, Refusal):
            return put
        # Discovered definitions stay even if the remote queue refuses the message.
        for definition in put.destination.discovered:
            if definition not in self._facts.discovered:
                self._record(definition, discovered_entry(*definition))
        record = self._put_on(put.destination, self._entry)
        if isinstance(record, Refusal):
            return record
        self._records.append((self._entry, record))
        return self._with_detail(put, renewal_detail(record, self._message.own_time))

    def _on_failure(self, refusal: Refusal) -> Decision:
        """The decision about a failed put: MRRTY applies first."""
        report = self._descriptor.report
        if refusal.reason in TEMPORARY and self._attempt <= self._decider.message_retries:
            return self._end(Result.PARKED, refusal)
        if not report.discards:
            return self._with_report(self._dead_letter_or_keep(refusal))
        before = len(self._records)
        decision = self._with_report(self._end(Result.DISCARDED, refusal))
        is_returned = len(self._records) > before
        if is_returned or not report.asks_for(ReportKind.EXCEPTION):
            return decision
        # It cannot be returned to its sender, who would not learn that it was discarded.
        return self._dead_letter_or_keep(replace(refusal, detail=decision.detail))

    def _dead_letter_or_keep(self, refusal: Refusal) -> Decision:
        """A dead letter; otherwise the message stays, or a fast channel discards it."""
        receiver, result = self._decider.receiver, Result.REMAINS
        if not (refusal.is_kept or receiver.keeps_refused):
            number = Effect.DEAD_LETTER.entry(self._entry)
            written = self._dead_letter(number, refusal)
            if not isinstance(written, Refusal):
                place, record = written
                self._records.append((number, record))
                return self._end(Result.DEAD_LETTERED, refusal, place)
            detail = f"{refusal.detail}; no dead letter, because {written.detail}"
            refusal = replace(refusal, detail=detail)
            if receiver.is_lost(self._descriptor.persistence):
                result = Result.DISCARDED
        return self._end(result, refusal)

    def _end(
        self,
        result: Result,
        refusal: Refusal = _NO_REFUSAL,
        destination: Destination | None = None,
    ) -> Decision:
        names = self._descriptor.names
        return self._decider.end(result, names, refusal, destination, self._attempt)

    def _with_detail(self, decision: Decision, detail: str) -> Decision:
        """A decision with more detail in its outcome, and with the number of this attempt."""
        if not detail and self._attempt == decision.attempt:
            return decision
        text = "; ".join(filter(None, (decision.detail, detail)))
        destination = decision.destination if isinstance(decision, Put) else None
        return self._end(decision.result, Refusal(decision.reason, text), destination)

    def _record(self, what: object, entry: CommandEntry) -> None:
        """Write an entry of the tables topic, once in the slice, in the same transaction."""
        if what in self._facts.recorded:
            return
        self._facts.recorded.add(what)
        key, value = entry
        record = OutputRecord(
            self._facts.tables_topic, key.encode(), orjson.dumps(value), None, self._facts.now
        )
        self._records.append((INTERNAL, record))

    # -- the records -----------------------------------------------------------------------------

    def _routed(self) -> Put | Refusal:
        """The decision to put the message where its names lead, or why it cannot be put."""
        put = self._put_to(0)
        if isinstance(put, Refusal) or not put.destination.is_choice:
            return put
        # Bind on open or on group: all puts of one choose the same; others choose individually.
        group = self._descriptor.group if put.destination.binds_groups else ""
        return self._put_to(seed_of(self._descriptor.bind or group or self._message.identity))

    def _put_to(self, seed: int) -> Put | Refusal:
        names, hops, puts = self._descriptor.names, self._message.hops, self._cache.puts
        key = names, hops, seed
        put = puts.get(key)
        if put is None:
            put = puts[key] = self._decider.put_to(names, hops, seed)
        return put

    def _put_on(self, destination: Destination, entry: int) -> OutputRecord | Refusal:
        """The record of a put to a destination, by the number of the record, or why it fails."""
        headers = self._headers_on(destination, self._message.headers)
        headers += destination.headers
        record = self._output(destination.topic, self._message.value, headers)
        persistence = self._descriptor.persistence_at(destination)
        return self._facts.check(entry, record, persistence, destination) or record

    def _dead_letter(
        self, entry: int, refusal: Refusal
    ) -> tuple[Destination, OutputRecord] | Refusal:
        """The dead letter of the message, which cannot be put, or why there is none."""
        place, receiver = self._decider.dead_letters(), self._decider.receiver
        if isinstance(place, Refusal):
            return place
        put, names = self._routed(), self._descriptor.names
        # A put that fails on a queue has that queue's defaults (MQMD, field Persistence).
        queue = place if isinstance(put, Refusal) else put.destination
        plain = self._headers_on(queue, self._message.headers)
        header = new_header(
            plain,
            reason=refusal.reason,
            queue=names.queue,
            queue_manager=names.queue_manager or receiver.queue_manager,
            timestamp=self._facts.now,
            put_appl_name=receiver.queue_manager,
            put_appl_type=_QUEUE_MANAGER_TYPE,
        )
        form = Form.BINARY if receiver.dead_letter_form == BINARY else Form.HEADERS
        value, headers = add_header(header, self._message.value, plain, form=form)
        record = self._output(place.topic, value, list(headers))
        problem = self._facts.check(entry, record, self._descriptor.persistence_at(queue), place)
        if problem is not None:
            return Refusal(problem.reason, f"{place.queue}: {problem.detail}")
        return place, record

    def _headers_on(self, queue: Destination, headers: Headers) -> Headers:
        """Headers of the message after the open of its put, with the queue's defaults."""
        # Both objects live as long as the cache: it has the descriptor and the decision.
        key = id(self._descriptor), id(queue)
        changes = self._cache.changes.get(key)
        if changes is None:
            changes = self._cache.changes[key] = mqmd_headers(self._changed_fields(queue))
        headers = without_names(headers)
        if changes:
            if EXPIRY in changes:
                headers = [pair for pair in headers if pair[0] != DEADLINE]
            headers = with_mqmd_headers(headers, changes)
        if self._descriptor.expiry > 0:
            headers = counted_down(headers, self._message.timestamp, self._facts.now)
        return headers

    def _changed_fields(self, queue: Destination) -> dict[str, str | int]:
        """Changes to the message descriptor: defaults of the queue, and reply-to names."""
        descriptor, changes = self._descriptor, dict[str, str | int]()
        if descriptor.persistence == PERSISTENCE_AS_QUEUE_IS_DEFINED:
            changes["Persistence"] = queue.persistence
        if descriptor.priority == PRIORITY_AS_QUEUE_IS_DEFINED:
            changes["Priority"] = queue.priority
        cap = queue.cap_expiry
        if cap is not None and not 0 < descriptor.expiry <= cap:
            changes["Expiry"] = cap
        if descriptor.reply_to.queue:
            after = self._decider.receiver.reply_to(descriptor.reply_to)
            if after != descriptor.reply_to:
                changes["ReplyToQMgr"], changes["ReplyToQ"] = after.queue_manager, after.queue
        return changes

    def _output(self, topic: str, value: bytes | None, headers: Headers) -> OutputRecord:
        message, times = self._message, self._cache.times.get(topic)
        if message.identity:  # Redrive first sees its own records where it reads them
            headers.append((own.ID, message.identity.encode("ascii")))
            headers.append((own.HOPS, own.number(message.hops + 1)))
        if times is None:
            times = PutTimes.at(self._facts.facts.topic(topic), self._facts.now)
            self._cache.times[topic] = times
        record = OutputRecord(topic, message.key, value, headers, message.timestamp)
        return times.note(record, message.own_time)

    # -- reports ---------------------------------------------------------------------------------

    def _with_report(self, decision: Decision) -> Decision:
        kind = self._due_report(decision)
        if kind is None:
            return decision
        put, message = self._routed(), self._message
        queue = decision.destination if isinstance(decision, Put) else None
        if isinstance(put, Put):
            queue = put.destination
        # A report has the message as the open of its put left it.
        if queue is not None:
            message = message._replace(headers=self._headers_on(queue, message.headers))
        report = self.report(kind, message, decision.reason)
        self._records += report.entries
        return self._with_detail(decision, report.detail)

    def _due_report(self, decision: Decision) -> ReportKind | None:
        """The report that the message requests and its fate triggers; None if there is none.

        An exception is reported once the message is dead-lettered or discarded: while it stays, its
        fate is open. A message on a dead-letter queue has not arrived (MQMD, field Report).
        """
        kind = None
        match decision.result:
            case Result.ROUTED if isinstance(decision, Put) and decision.destination.is_arrival:
                format_ = read_text(dict(self._message.headers).get(_FORMAT))
                kind = None if format_ == DEAD_LETTER_FORMAT else ReportKind.ARRIVAL
            case Result.DEAD_LETTERED | Result.DISCARDED if decision.reason:
                kind = ReportKind.EXCEPTION
            case Result.EXPIRED:
                kind = ReportKind.EXPIRATION
        return kind if kind is not None and self._descriptor.report.asks_for(kind) else None

    def report(self, kind: ReportKind, message: Message, reason: int = 0) -> MadeReport:
        """Put a report at the manager that makes it; if that fails, dead-letter it there.

        ``message`` is as the open of its put left it; ``reason`` says why it could not be put, 0 if
        it could.
        """
        receiver, now = self._decider.receiver, self._facts.now
        reply_to = self._descriptor.reply_to
        if reply_to.queue:
            reply_to = receiver.reply_to(reply_to)
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
        made = Message(message.key, value, headers, now, "", "", 0)
        report = PutAttempt(self._decider, made, self._facts, self._entry)
        put, number = report._routed(), Effect.REPORT.entry(self._entry)
        written = put if isinstance(put, Refusal) else report._put_on(put.destination, number)
        if not isinstance(written, Refusal):
            return MadeReport(((number, written),), f"report of {kind} to {reply_to}")
        number = Effect.DEAD_REPORT.entry(self._entry)
        dead = report._dead_letter(number, written)
        if isinstance(dead, Refusal):
            why = f"{written.detail}; no dead letter, because {dead.detail}"
            return MadeReport(detail=f"no report of {kind}: {why}")
        place, letter = dead
        where = f"report of {kind} on {place.queue}@{place.queue_manager}"
        return MadeReport(((number, letter),), f"{where}: {written.reason} {written.detail}")
