"""Producers of librdkafka: in transactions, and for a few records outside of them.

The transactional one translates and decides nothing: ``redrive.checkpoints.protocol`` decides what
to do about its reports, and the order of its steps.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka import TopicPartition as ClientPartition

from redrive.errors import OutcomeUnknown, TransientFault
from redrive.kafka.connection import Connection
from redrive.kafka.deadline import (
    ANSWER,
    CLOSE,
    COORDINATOR,
    GLIMPSE,
    GRACE,
    MESSAGE,
    ONE_TRY,
    PAUSE,
    SILENCE,
    TRANSACTION,
    DeadlineThread,
    within,
)
from redrive.kafka.errors import described, kind_of, reason_of, translated
from redrive.kafka.reports import Batching, FailedRecord, FailureKind, TransactionReport
from redrive.messages import OutputRecord, TopicPartition
from redrive.messages.own_headers import identity
from redrive.printable import counted

RETRY_BACKOFF: Final = 0.1
"""Seconds, less a fifth, after which the client resends a request whose connection broke."""
_SENT_ONCE: Final = 0.06
"""Seconds below which a call of the client cannot have sent its request twice."""
LANES_AT_ONCE: Final = 1_000
"""Lanes in one request: a broker stores the offsets of each as one batch, of 1 MB at most, and the
work of the client grows with their square."""

_LARGEST_RECORD: Final = 1_000_000_000
"""Bytes: the topic limits the size, not the client."""
_CLIENT_LOGGER: Final = logging.getLogger("redrive.kafka.librdkafka")
"""The client's own log lines; each problem also raises a fault, with time, step and lane."""
_CLIENT_LOGGER.setLevel(logging.CRITICAL + 1)

_abandoned: Final[list[KafkaProducer]] = []
"""Producers that may not be destroyed yet; ``abandoned_calls`` counts them, and bounds them."""

_Lane = TypeVar("_Lane")
ClientConfig: TypeAlias = Mapping[str, str | int | float | bool]


class KafkaProducer:
    """One transactional producer; see ``redrive.checkpoints.protocol.Producer``."""

    def __init__(
        self,
        client: ClientConfig,
        transactional_id: str,
        group: str,
        batching: Batching = Batching(),  # noqa: B008 - a value
    ) -> None:
        """Create the producer; ``initialise`` contacts the broker.

        Args:
            client: Settings of every client.
            transactional_id: Two producers of one id fence each other.
            group: The consumer group whose offsets its transactions carry.
            batching: How it makes its batches.
        """
        self.transactional_id = transactional_id
        self._failed: list[FailedRecord] = []
        self._abort_required = False
        self._with_reports = True
        self.may_arrive_late = False
        """Whether a request that ends a transaction may have been sent twice.

        The client does not report that it resent a request, but it waits before it does.
        """
        self._thread = DeadlineThread(f"redrive-producer-{transactional_id}")
        config = _producer_config(client, transactional_id, batching)
        self._producer = Producer(config, logger=_CLIENT_LOGGER)
        _abandoned[:] = [thread for thread in _abandoned if not thread.has_returned]
        self._group_settings = {**client, "group.id": group, "log_level": 2}
        self._group: Consumer | None = None

    @property
    def has_returned(self) -> bool:
        """Whether the abandoned call has returned."""
        return self._thread.has_returned

    def initialise(self) -> None:
        """Fence older producers of the id, and abort their open transactions."""
        self._wait("init_transactions", self._initialise, seconds=ONE_TRY + COORDINATOR)

    def begin(self) -> None:
        """Begin a transaction."""
        self._failed = []
        self._abort_required = False
        step = f"begin_transaction of {self.transactional_id}"
        with translated(step):
            self._thread.run(step, COORDINATOR + GRACE, self._producer.begin_transaction)

    def produce(
        self, outputs: Iterable[tuple[int, OutputRecord]], *, with_reports: bool = True
    ) -> None:
        """Hand over records, each with the entry number that a report will carry."""
        self._with_reports = with_reports
        produce: Any = self._producer.produce  # its type of a list of pairs is invariant
        for entry, record in outputs:
            topic, key, value, headers, timestamp, partition = record
            report = partial(self._on_delivery, entry, topic) if with_reports else None
            while not self._abort_required:
                try:
                    # By position, since names of arguments cost an eighth of the call.
                    produce(topic, value, key, partition, report, None, timestamp, headers)
                except BufferError:
                    self._producer.poll(0.05)
                    continue
                except KafkaException as exception:
                    self._note_failure(entry, topic, exception.args[0])
                break
            if self._abort_required:
                # The rest would only get the same error; the next try produces it.
                return

    def flush(self) -> TransactionReport:
        """Wait until every record is acknowledged or refused."""
        seconds = MESSAGE + GRACE
        left = self._wait("flush", lambda: self._flush(seconds), seconds=seconds)
        if left and not self._failed:
            raise TransientFault(
                f"flush of {self.transactional_id}: {counted(left, 'record')} not acknowledged in"
                f" {seconds:g} s"
            )
        return TransactionReport(tuple(self._failed), self._abort_required)

    def _flush(self, seconds: float) -> int:
        """The number of records that were not acknowledged in time.

        After a refused record the client resends nothing: another record in flight to the same
        partition would time out and be blamed for that.
        """
        if not self._with_reports:
            return self._producer.flush(seconds)
        began = last_progress = time.monotonic()
        left = -1
        while True:
            before, left = left, self._producer.flush(PAUSE)
            now = time.monotonic()
            if left != before:
                last_progress = now
            is_stuck = bool(self._failed) and now - last_progress > GLIMPSE
            if not left or is_stuck or now - began > seconds:
                return left

    def send_offsets(self, ends: Mapping[TopicPartition, int]) -> TransactionReport:
        """Add the next offset to read of each lane to the transaction."""
        if self._group is None:
            # Never subscribes or polls: it only provides the group's metadata.
            self._group = Consumer(self._group_settings)
        metadata = self._group.consumer_group_metadata()
        positions = [ClientPartition(*lane, end) for lane, end in ends.items()]
        send = self._producer.send_offsets_to_transaction
        for part in in_parts(positions):
            report = self._unless_refused(
                "send_offsets_to_transaction", partial(send, part, metadata, COORDINATOR)
            )
            if not report.may_commit:
                return report
        return TransactionReport()

    def commit(self) -> TransactionReport:
        """Commit, unless the report says that the client refused to."""
        return self._unless_refused(
            "commit_transaction", lambda: self._producer.commit_transaction(COORDINATOR)
        )

    def abort(self) -> None:
        """Abort the transaction."""
        self._wait_for_coordinator(
            "abort_transaction", lambda: self._producer.abort_transaction(COORDINATOR)
        )

    def close(self) -> None:
        """Drop the producer; the next one aborts an open transaction."""
        let_go = partial(_let_go, self._producer)
        with contextlib.suppress(OutcomeUnknown):
            self._thread.run(f"closing {self.transactional_id}", CLOSE, let_go)
        if self._thread.is_abandoned:
            # The lost call still uses the client: destroying it would end the process.
            _abandoned.append(self)
            return
        self._thread.end()
        self._group = None

    def _initialise(self) -> None:
        # A client that is used before it is connected retries half a second later.
        with contextlib.suppress(KafkaException):
            self._producer.list_topics(timeout=ONE_TRY)
        self._producer.init_transactions(COORDINATOR)

    def _wait(self, step: str, call: Callable[[], Any], *, seconds: float = COORDINATOR) -> Any:  # noqa: ANN401 - what the client's call gives
        what = f"{step} of {self.transactional_id}"
        with translated(what, in_doubt=True):
            return self._thread.run(what, seconds + GRACE, call)

    def _wait_for_coordinator(self, step: str, call: Callable[[], Any]) -> None:
        """A request that would be harmful if it arrived in the next transaction."""
        began = time.monotonic()
        try:
            self._wait(step, call)
        finally:
            self.may_arrive_late |= time.monotonic() - began >= _SENT_ONCE

    def _unless_refused(self, step: str, call: Callable[[], None]) -> TransactionReport:
        """Make a call that the client refuses after refused records in the transaction."""
        try:
            self._wait_for_coordinator(step, call)
        except TransientFault as fault:
            cause = fault.__cause__
            if isinstance(cause, KafkaException) and cause.args[0].txn_requires_abort():
                return TransactionReport(tuple(self._failed), abort_required=True)
            raise
        return TransactionReport()

    def _on_delivery(
        self, entry: int, topic: str, error: KafkaError | None, _message: Message
    ) -> None:
        if error is not None:
            self._note_failure(entry, topic, error)

    def _note_failure(self, entry: int, topic: str, error: KafkaError) -> None:
        kind = kind_of(error)
        if error.txn_requires_abort() or kind is FailureKind.INNOCENT:
            self._abort_required = True
        detail = f"{topic}: {described(error)}"
        self._failed.append(FailedRecord(entry, topic, kind, reason_of(error), detail))


def in_parts(lanes: list[_Lane]) -> Iterator[list[_Lane]]:
    """Lanes in parts for one request each."""
    for first in range(0, len(lanes), LANES_AT_ONCE):
        yield lanes[first : first + LANES_AT_ONCE]


def fence(client: ClientConfig, transactional_id: str) -> None:
    """Initialise an id, which fences it and aborts its open transaction.

    Raises as ``translated``.
    """
    with contextlib.closing(KafkaProducer(client, transactional_id, "")) as producer:
        producer.initialise()


def _producer_config(
    client: ClientConfig, transactional_id: str, batching: Batching
) -> dict[str, Any]:
    return {
        **client,
        "transactional.id": transactional_id,
        "transaction.timeout.ms": int(TRANSACTION * 1000),
        "message.timeout.ms": int(MESSAGE * 1000),
        "compression.type": "zstd" if batching.is_packed else "lz4",
        # The end of a transaction flushes, so this delays nothing: it only makes full batches.
        "linger.ms": 100,
        "retry.backoff.ms": int(RETRY_BACKOFF * 1000),
        "batch.size": batching.size,
        "batch.num.messages": 100_000,
        "message.max.bytes": _LARGEST_RECORD,
        "queue.buffering.max.messages": 1_000_000,
        "queue.buffering.max.kbytes": 1_048_576,
        "delivery.report.only.error": True,
        # A missing topic is an answer, not a reason to wait 30 s.
        "topic.metadata.propagation.max.ms": 0,
        # Java's partitioner: a forwarded key stays on the partition a Java producer would pick.
        "partitioner": "murmur2_random",
        "log_level": 2,
    }


def _let_go(producer: Producer) -> None:
    """Purge a client and serve its reports; with unserved ones it would keep its threads."""
    for call in (producer.purge, partial(producer.poll, 0)):
        # SystemError is the client's answer while a fatal error of its own is already raised.
        with contextlib.suppress(KafkaException, SystemError):
            call()


@dataclass(frozen=True, slots=True)
class Delivery:
    """The result of writing records."""

    positions: tuple[str, ...]
    """``topic:partition:offset`` of each written record."""
    refusal: str = ""
    """The error of the first record that was not written; empty if all were."""
    is_too_large: bool = False
    """Whether that record is larger than its topic allows."""


class Appender:
    """Writes a few records, with a client that is kept open."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._producer: Producer | None = None

    def append(self, topic: str, entries: Sequence[tuple[bytes, bytes | None]]) -> None:
        """Write records to partition 0, and wait until every replica has them.

        Raises:
            TransientFault: The broker gave no answer in time.
        """
        producer = self._producer or Producer(
            {
                **self._connection.librdkafka(),
                # An entry may be written twice, and an idempotent producer waits half a second.
                "enable.idempotence": False,
                "acks": "all",
                "message.timeout.ms": int(ANSWER * 1000),
                "message.max.bytes": _LARGEST_RECORD,
                "log_level": 2,
            }
        )
        self._producer = None
        problems: list[KafkaError | None] = []
        with translated(f"writing to {topic}"):
            for key, value in entries:
                producer.produce(topic, value, key, 0, lambda error, _: problems.append(error))
            left = producer.flush(ANSWER + GRACE)
        if left or problems != [None] * len(entries):
            _let_go(producer)
            why = next((str(error) for error in problems if error), "no answer")
            raise TransientFault(f"{topic} cannot be written: {why}")
        self._producer = producer

    def close(self) -> None:
        """Drop the client: nothing is in flight between two calls."""
        self._producer = None


def write_records(connection: Connection, records: Iterable[OutputRecord]) -> Delivery:
    """Write records, and wait ``SILENCE`` seconds for each to be stored or refused.

    Equal keys keep their order.
    """
    positions: list[str] = []
    errors: list[KafkaError] = []

    def report(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            errors.append(error)
        else:
            where: Any = message.topic(), message.partition(), message.offset()
            positions.append(identity(*where))

    producer = Producer(
        {
            **connection.librdkafka(),
            "enable.idempotence": True,
            "message.timeout.ms": int(SILENCE * 1000),
            "message.max.bytes": _LARGEST_RECORD,
            "partitioner": "murmur2_random",  # as Java: all clients agree on a partition
            "log_level": 2,
        }
    )
    for record in records:
        while True:
            try:
                producer.produce(
                    record.topic,
                    record.value,
                    record.key,
                    partition=record.partition,
                    on_delivery=report,
                    timestamp=record.timestamp,
                    headers=list(record.headers or ()),
                )
            except BufferError:
                producer.poll(PAUSE)
            else:
                break
        producer.poll(0)
    most = SILENCE + GRACE
    try:
        within("flush of written records", most + GRACE, lambda: producer.flush(most))
    except OutcomeUnknown as unknown:
        return Delivery(tuple(positions), unknown.message)
    if len(producer):
        return Delivery(tuple(positions), f"no answer within {most:g} s")
    if not errors:
        return Delivery(tuple(positions))
    is_too_large = errors[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
    return Delivery(tuple(positions), errors[0].str(), is_too_large)
