"""The seams of the protocol, on a real cluster: confluent-kafka producers and offsets."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka import TopicPartition as ClientPartition

from redrive.checkpoints.protocol import Flushed, Spoiled
from redrive.errors import FatalFault, OutcomeUnknown, TransientFault
from redrive.kafka.errors import Kind, kind_of, reason_of
from redrive.messages import OutputRecord, Refused, TopicPartition, wire_size

_TRANSACTION_TIMEOUT = 120.0
"""Seconds after which the broker aborts an open transaction by itself: enough to read and write a
whole batch over a slow line. A restart aborts it at once by its stable id, so this only bounds how
long a dead machine holds readers back."""

_MESSAGE_TIMEOUT = 45.0
"""Seconds for one record to be acknowledged; librdkafka wants it below the transaction's."""

_REQUEST_TIMEOUT = 30.0
"""Seconds to wait for one answer of the coordinator."""

DEFAULT_BATCH_SIZE = 512 * 1024
"""Bytes of one produce batch: below the default ``max.message.bytes`` of a topic (1 MiB), because
a batch above it is refused whole, with every innocent record inside."""

ClientConfig = Mapping[str, str | int | float | bool]
_Report: TypeAlias = Callable[[KafkaError | None, Message], None]


class SystemClock:
    """The clock of this machine."""

    def monotonic(self) -> float:
        """Seconds since an arbitrary start."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Waits ``seconds``."""
        time.sleep(seconds)


class KafkaCommittedOffsets:
    """Committed offsets of one consumer group, read with RequireStable (KIP-447).

    The consumer never subscribes: it only asks, and lends its group metadata to producers.
    """

    def __init__(self, client: ClientConfig, group: str) -> None:
        """Open the consumer that asks.

        Args:
            client: Settings of every client: bootstrap servers and security.
            group: The consumer group whose offsets are the job's progress.
        """
        self.consumer = Consumer(
            {
                **client,
                "group.id": group,
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "log_level": 2,
            }
        )

    def committed(self, lanes: Sequence[TopicPartition]) -> Mapping[TopicPartition, int | None]:
        """See ``CommittedOffsets.committed``."""
        asked = [ClientPartition(lane.topic, lane.partition) for lane in lanes]
        if not asked:
            return {}
        with _translated(in_doubt=False):
            answer = self.consumer.committed(asked, timeout=_REQUEST_TIMEOUT)
        for entry in answer:
            if entry.error is not None:
                raise TransientFault(f"no committed offset for {entry.topic}: {entry.error}")
        return {
            TopicPartition(entry.topic, entry.partition): entry.offset
            if entry.offset >= 0
            else None
            for entry in answer
        }

    def close(self) -> None:
        """Closes the consumer."""
        self.consumer.close()


class KafkaProducer:
    """One transactional librdkafka producer; see ``protocol.Producer``."""

    def __init__(
        self,
        client: ClientConfig,
        transactional_id: str,
        offsets: KafkaCommittedOffsets,
        *,
        limit_of: Callable[[str], int],
        batch_size: int = DEFAULT_BATCH_SIZE,
        linger_ms: float = 100,
    ) -> None:
        """Opens and initialises the producer, which fences and aborts what the id left behind.

        Args:
            client: Settings of every client.
            transactional_id: A stable name; two producers of one name fence each other.
            offsets: Whose group metadata the transactions carry.
            limit_of: The ``max.message.bytes`` of a topic, in bytes.
            batch_size: Bytes of one produce batch.
            linger_ms: Milliseconds a batch waits to fill. Whoever waits for a transaction flushes,
                which sends what there is, so this delays nobody: it only makes full batches.

        Raises:
            TransientFault: No coordinator answered in time.
            FatalFault: The broker does not let this user produce in transactions.
        """
        self._offsets = offsets
        self._limit_of = limit_of
        self._refused: list[Refused] = []
        self._spoiled = False
        self._fault: KafkaError | None = None
        self._oversized_batch = False
        self._in_transaction = False
        self._with_reports = True
        self._producer = Producer(_producer_config(client, transactional_id, batch_size, linger_ms))
        with _translated(in_doubt=False):
            self._producer.init_transactions(_REQUEST_TIMEOUT)

    @property
    def oversized_batch(self) -> bool:
        """Whether a batch of records, each small enough, was refused for its size."""
        return self._oversized_batch

    def begin(self) -> None:
        """See ``protocol.Producer.begin``."""
        self._refused = []
        self._spoiled = False
        self._fault = None
        with _translated(in_doubt=False):
            self._producer.begin_transaction()
        self._in_transaction = True

    def produce(
        self, outputs: Iterable[tuple[int, OutputRecord]], *, with_reports: bool = True
    ) -> None:
        """See ``protocol.Producer.produce``."""
        self._with_reports = with_reports
        for entry, record in outputs:
            report = partial(self._reported, entry, record) if with_reports else None
            while True:
                try:
                    self._hand_over(record, report)
                except BufferError:
                    self._producer.poll(0.05)
                    continue
                except KafkaException as exception:
                    self._failed(entry, record, exception.args[0])
                break

    def _hand_over(self, record: OutputRecord, report: _Report | None) -> None:
        topic, key, value, headers, timestamp, partition = record
        if headers is None:
            self._producer.produce(topic, value, key, partition, report, timestamp=timestamp)
        else:
            self._producer.produce(
                topic,
                value,
                key,
                partition,
                report,
                timestamp=timestamp,
                headers=headers,  # type: ignore[arg-type]  # a list of pairs, invariant
            )

    def flush(self) -> Flushed:
        """See ``protocol.Producer.flush``."""
        with _translated(in_doubt=False):
            left = self._producer.flush(_MESSAGE_TIMEOUT + 5)
        if left:
            raise TransientFault(f"{left} records were not acknowledged in {_MESSAGE_TIMEOUT:g} s")
        if self._fault is not None:
            raise _fault(self._fault, in_doubt=False)
        return Flushed(tuple(self._refused), self._spoiled)

    def send_offsets(self, ends: Mapping[TopicPartition, int]) -> None:
        """See ``protocol.Producer.send_offsets``."""
        positions = [ClientPartition(lane.topic, lane.partition, end) for lane, end in ends.items()]
        metadata = self._offsets.consumer.consumer_group_metadata()
        with self._spoiled_told(), _translated(in_doubt=True):
            self._producer.send_offsets_to_transaction(positions, metadata, _REQUEST_TIMEOUT)

    def commit(self) -> None:
        """See ``protocol.Producer.commit``."""
        with self._spoiled_told(), _translated(in_doubt=True):
            self._producer.commit_transaction(_REQUEST_TIMEOUT)
        self._in_transaction = False

    def abort(self) -> None:
        """See ``protocol.Producer.abort``."""
        try:
            self._producer.abort_transaction(_REQUEST_TIMEOUT)
        except KafkaException as exception:
            error = exception.args[0]
            if error.code() == KafkaError.INVALID_TXN_STATE:
                # The broker never saw the transaction begin: every partition was refused to us.
                raise TransientFault(f"there is nothing to abort: {error.str()}") from exception
            raise _fault(error, in_doubt=True) from exception
        self._in_transaction = False
        if self._oversized_batch:
            raise TransientFault("a batch of small records exceeded a topic's max.message.bytes")

    def close(self) -> None:
        """See ``protocol.Producer.close``."""
        if self._in_transaction:
            # Records still queued must not keep the client alive until they time out.
            with contextlib.suppress(KafkaException):
                self._producer.purge()

    @contextlib.contextmanager
    def _spoiled_told(self) -> Iterator[None]:
        """Tells by ``Spoiled`` that a transaction without reports has to be aborted.

        The client counts records that were not delivered and refuses to commit their transaction.
        """
        try:
            yield
        except TransientFault as fault:
            cause = fault.__cause__
            must_abort = isinstance(cause, KafkaException) and cause.args[0].txn_requires_abort()
            if must_abort and not self._with_reports:
                raise Spoiled(fault.message) from fault
            raise

    def _reported(
        self, entry: int, record: OutputRecord, error: KafkaError | None, _message: Message
    ) -> None:
        if error is not None:
            self._failed(entry, record, error)

    def _failed(self, entry: int, record: OutputRecord, error: KafkaError) -> None:
        self._spoiled = True
        kind = kind_of(error)
        if kind is Kind.CULPRIT and self._is_innocent_of_size(record, error):
            self._oversized_batch = True
        elif kind is Kind.CULPRIT:
            self._refused.append(Refused(entry, reason_of(error), f"{record.topic}: {error.str()}"))
        elif kind is not Kind.INNOCENT:
            self._fault = error

    def _is_innocent_of_size(self, record: OutputRecord, error: KafkaError) -> bool:
        # The broker refuses a batch whole, so a small record may be reported as too large.
        if error.code() != KafkaError.MSG_SIZE_TOO_LARGE:
            return False
        size = wire_size(record.key, record.value, record.headers or [])
        limit: int = self._limit_of(record.topic)
        return size <= limit


def _producer_config(
    client: ClientConfig, transactional_id: str, batch_size: int, linger_ms: float
) -> dict[str, Any]:
    return {
        **client,
        "transactional.id": transactional_id,
        "transaction.timeout.ms": int(_TRANSACTION_TIMEOUT * 1000),
        "message.timeout.ms": int(_MESSAGE_TIMEOUT * 1000),
        "compression.type": "lz4",
        "linger.ms": linger_ms,
        "batch.size": batch_size,
        "batch.num.messages": 100_000,
        # Above any topic's own limit: the topic decides, not the client.
        "message.max.bytes": 1_000_000_000,
        "queue.buffering.max.messages": 1_000_000,
        "queue.buffering.max.kbytes": 1_048_576,
        "delivery.report.only.error": True,
        # A missing topic is an answer, not a reason to wait 30 s for it.
        "topic.metadata.propagation.max.ms": 0,
        # Java's choice: a forwarded key stays on the partition a Java producer would pick.
        "partitioner": "murmur2_random",
        "log_level": 2,
    }


@contextlib.contextmanager
def _translated(*, in_doubt: bool) -> Iterator[None]:
    try:
        yield
    except KafkaException as exception:
        raise _fault(exception.args[0], in_doubt=in_doubt) from exception


def _fault(error: KafkaError, *, in_doubt: bool) -> TransientFault | OutcomeUnknown | FatalFault:
    text = error.str()
    if kind_of(error) is Kind.FATAL:
        return FatalFault(
            f"Kafka ended this producer: {text}",
            hint="another instance with the same application name and share may have taken over,"
            " or this user may not produce in transactions",
        )
    if in_doubt and not error.txn_requires_abort():
        return OutcomeUnknown(f"Kafka's answer was lost: {text}")
    return TransientFault(f"Kafka did not take the step: {text}")
