# ruff: noqa: ARG002 - the clients' own signatures
"""The clients of Kafka as librdkafka shows them, on a simulated cluster.

Everything of the project runs on top of these as it is: only ``Producer``, ``Consumer`` and
``AdminClient`` of confluent-kafka, the clock, and what makes threads are replaced. What the real
clients do was measured; the sentences beside the code say what.
"""

from __future__ import annotations

import pickle
import random
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import Enum, auto
from functools import lru_cache, partial
from itertools import groupby
from types import SimpleNamespace
from typing import Any, Final, NamedTuple, Self, TypeVar
from unittest.mock import patch

from confluent_kafka import TIMESTAMP_CREATE_TIME, IsolationLevel, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AclOperation, OffsetSpec  # type: ignore[attr-defined]  # as in redrive.kafka
from tests.simulation.cluster import Fate, Fenced, SimulatedCluster, Topic
from tests.simulation.scheduler import Process, Scheduler, one_core

from redrive.engine.commands import REPLAY
from redrive.errors import OutcomeUnknown
from redrive.kafka.administration import NewTopic
from redrive.kafka.deadline import ANSWER
from redrive.kafka.errors import translated
from redrive.kafka.producer import RETRY_BACKOFF
from redrive.messages import OutputRecord, Records, TopicPartition, packed_size, wire_size
from redrive.rules import parse

_Answer = TypeVar("_Answer")
_KEY: Final = "simulated"
"""Name of the client setting that holds the network."""
_NO_OFFSET: Final = -1001
_SESSION: Final = 6.0
"""Seconds after which the broker drops a member that says nothing."""
_SILENCE: Final = ANSWER + 1.0
"""Seconds after which whoever asks about topics has given up."""
_SENT_TWICE: Final = {"commit": 1.0, "abort": 1.0, "send_offsets": 0.2}
"""Requests that may be sent twice by ``Faults.ended_twice``, and how often one is."""
_EARLIEST: Final = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST: Final = OffsetSpec.latest()  # type: ignore[no-untyped-call]
_RIGHTS: Final = "describe_topics with rights"
"""What somebody asks who is about to write to topics."""
_PARTITION_END: Final = KafkaError(KafkaError._PARTITION_EOF)
_PRIVATE = SimpleNamespace(
    fenced=KafkaError._FENCED,
    fatal=KafkaError._FATAL,
    state=KafkaError._STATE,
    conflict=KafkaError._CONFLICT,
    inconsistent=KafkaError._INCONSISTENT,
    timed_out=KafkaError._TIMED_OUT,
    transport=KafkaError._TRANSPORT,
    message_timed_out=KafkaError._MSG_TIMED_OUT,
    purged=KafkaError._PURGE_QUEUE,
    unknown_topic=KafkaError._UNKNOWN_TOPIC,
    different_record=KafkaError._INVALID_DIFFERENT_RECORD,
)


class NeverReturns(Exception):
    """The call does not come back, whatever its timeout."""


@dataclass(kw_only=True)
class Faults:
    """How often requests fail, as shares of all of them, and in which way."""

    lost_request: float = 0.0
    lost_answer: float = 0.0
    unregistered: float = 0.0
    """Shares of the requests to register an id that are lost."""
    hangs: float = 0.0
    """The client's call never comes back, before or after it took effect."""
    late: float = 0.0
    """The request arrives long after the client gave it up."""
    repeated: float = 0.0
    """The connection breaks and the client sends the request again; the first copy arrives late."""
    ended_twice: float = 0.0
    """Of commits, aborts and the sending of offsets: as ``repeated``."""
    unanswered: float = 0.0
    """From a question on that decides whether a topic takes a record, none about topics is answered
    for longer than anybody asks."""
    fencer_dies: float = 0.0
    """Whoever fences the producer of another process dies before it asks for that."""
    opener_stops: float = 0.0
    """Whoever opens the control topic to write stands still before it fences the writer before."""
    buffer_full: float = 0.0
    sent_early: float = 0.1
    """A thread of the client sends what is queued before it is flushed."""
    commit_in_doubt: float = 0.0
    """The answer to a commit is lost."""
    out_of_sequence: float = 0.0
    """The first transaction after an abort fails once."""
    fetched_later: float = 0.0
    """Of a consumer's answers: only a part of what it may read is there yet, or nothing."""
    is_mixed: bool = False
    """Whether every refusal comes together with another fault of another record."""


_NO_FAULTS: Final = Faults()


class Network:
    """What lies between the clients of all processes and the cluster."""

    def __init__(self, cluster: SimulatedCluster, scheduler: Scheduler) -> None:
        self.cluster = cluster
        self.scheduler = scheduler
        self.faults = Faults()
        self.members: dict[str, Process] = {}
        """The group of live instances."""
        self.down_until = 0.0
        """Until then nothing is answered."""
        self.on_death: Callable[[], None] = lambda: None
        """Called when a process died while it fenced."""
        self.on_opening: Callable[[], None] = lambda: None
        self.on_fenced: Callable[[str], None] = lambda _: None
        """What happens once a process has fenced the transactional id of another."""
        """Called in a process that is about to open the control topic, and stands still there."""
        self.on_unregistered: Callable[[], None] = lambda: None
        """Called in a process whose request to register an id is lost."""
        self.on_first_plan: Callable[[], None] = lambda: None
        """Called where a run plans its first batch: a new table is to look at what remains."""
        self._silent_until = 0.0
        """Until then no question about topics is answered."""
        self._late: list[Callable[[], object]] = []
        cluster.now = lambda: scheduler.now

    @property
    def random(self) -> random.Random:
        """The one source of chance."""
        return self.scheduler.random

    def connection(self) -> Any:
        """What the project takes for the settings of a connection."""
        settings = {_KEY: self}
        return SimpleNamespace(
            bootstrap_servers="the simulated cluster",
            librdkafka=lambda: settings,
            reader=lambda: {**settings, "group.id": "app"},
        )

    def has_plans(self) -> bool:
        """Whether any plan was accepted: then what is parked may be read before its time."""
        return any(
            entry.record is not None and (entry.record.key or b"").startswith(REPLAY.encode())
            for lane, log in self.cluster.logs.items()
            if lane.topic.endswith(("-control", "-tables"))
            for entry in log
        )

    def happens(self, share: float) -> bool:
        """Whether something with this probability happens."""
        return share > 0 and self.random.random() < share

    def request(
        self,
        what: str,
        effect: Callable[[], _Answer],
        *,
        writes: bool = False,
        timeout: float = 15.0,
    ) -> _Answer:
        """One request and its answer, either of which may be lost or overtaken.

        What others do until the answer is there they might as well do before the next request: so
        there is one step for both.

        Args:
            what: For the trace.
            effect: What the cluster does.
            writes: Whether it changes anything: then it may also arrive late, or the client's call
                may ignore its timeout.
            timeout: Seconds after which the client gives up.
        """
        self.scheduler.step()
        faults = self._faults_of(what)
        is_down = self.scheduler.now < self.down_until or self._is_unanswered(what)
        if what.startswith("append emitter/") and self.happens(faults.unregistered):
            self.on_unregistered()
            is_down = True
        if is_down or self.happens(faults.lost_request):
            self.lose(f"{what}: the request is lost", timeout)
        if writes and self.happens(faults.hangs):
            self.scheduler.tell(f"{what}: never comes back, without effect")
            raise NeverReturns(self)
        if writes and self.happens(faults.late):
            self._late.append(effect)
            self.lose(f"{what}: the request is late", timeout)
        share = _SENT_TWICE.get(what.partition(" ")[0], 0.0)
        if writes and self.happens(max(faults.repeated, faults.ended_twice * share)):
            self.scheduler.tell(f"{what}: sent again, the first copy is on its way")
            self._late.append(effect)
            self.scheduler.sleep(RETRY_BACKOFF * self.random.uniform(0.8, 1.2))
        answer = effect()
        self.scheduler.tell(what)
        if self.happens(faults.lost_answer):
            self.lose(f"{what}: the answer is lost", timeout)
        if writes and self.happens(faults.hangs):
            self.scheduler.tell(f"{what}: never comes back, with effect")
            raise NeverReturns(self)
        return answer

    def _is_unanswered(self, what: str) -> bool:
        """Whether this is a question about topics, while nobody answers any."""
        if not what.startswith("describe_"):
            return False
        if what == _RIGHTS and self.happens(self.faults.unanswered):
            self._silent_until = max(self._silent_until, self.scheduler.now + _SILENCE)
        return self.scheduler.now < self._silent_until

    def _faults_of(self, what: str) -> Faults:
        # A start takes so many requests that few schedules would get beyond it.
        is_spared = what.endswith("-writer") and self.scheduler.random.random() < 0.8
        return _NO_FAULTS if is_spared else self.faults

    def deliver_late(self) -> None:
        """Lets one late request arrive."""
        if self._late:
            effect = self._late.pop(self.random.randrange(len(self._late)))
            try:
                effect()
                self.scheduler.tell("a late request takes effect")
            except (Fenced, KafkaException, KeyError):
                self.scheduler.tell("a late request is refused")

    def lose(self, what: str, timeout: float) -> None:
        """Raises what a client does that hears nothing, at once or after its timeout."""
        self.scheduler.tell(what)
        if self.random.random() < 0.5:
            self.scheduler.sleep(0.1)
            raise problem(_PRIVATE.transport, retriable=True)
        self.scheduler.sleep(timeout)
        raise problem(_PRIVATE.timed_out, retriable=True)


def problem(code: int, text: str = "simulated", **flags: bool) -> KafkaException:
    """What a client raises."""
    return KafkaException(KafkaError(code, text, **flags))


def _shown(offsets: Mapping[TopicPartition, int]) -> str:
    return ", ".join(f"{lane}={offset}" for lane, offset in offsets.items())


# -- producer ----------------------------------------------------------------------------------


class _State(Enum):
    NEW = auto()
    READY = auto()
    IN_TRANSACTION = auto()
    ABORTABLE = auto()
    IN_DOUBT = auto()
    """A commit timed out: it goes on, and nothing new can begin."""
    FATAL = auto()


@dataclass(eq=False, slots=True)
class _Message:
    record: OutputRecord
    report: Callable[[KafkaError | None, Any], None] | None


class SimulatedProducer:
    """``confluent_kafka.Producer``, with a transactional id or without."""

    def __init__(self, settings: Mapping[str, Any], *, logger: object = None) -> None:
        del logger
        self._network: Network = settings[_KEY]
        self._id: str = settings.get("transactional.id", "")
        self._batch_size: int = settings.get("batch.size", 1_000_000)
        self._is_packed = settings.get("compression.type") == "zstd"
        self._message_timeout = settings.get("message.timeout.ms", 0) / 1000
        self._born = self._network.cluster.restarts
        self._epoch = -1
        self._state = _State.NEW
        self._queue: list[_Message] = []
        self._handed_over: list[_Message] = []
        """All of this transaction."""
        self._reports: deque[tuple[_Message, int]] = deque()
        self._sent_any = False
        self._breaks_sequence = False
        """Whether the transaction after an abort is to fail, which it does once."""
        self._broke_sequence = False

    def list_topics(self, timeout: float = -1) -> None:
        """Waits for a broker; nobody looks at the answer."""
        self._network.request("list_topics", lambda: None, timeout=timeout)

    def init_transactions(self, timeout: float) -> None:
        """Fences older producers of the id, and waits for what they left."""
        network = self._network
        before = network.cluster.owners.get(self._id, network.scheduler.name)
        if before != network.scheduler.name and network.happens(network.faults.fencer_dies):
            network.scheduler.die(network.on_death)
        if self._id.endswith("-control-writer") and network.happens(network.faults.opener_stops):
            network.on_opening()
        self._epoch = network.request(
            f"init_transactions {self._id}",
            partial(network.cluster.initialise, self._id, network.scheduler.name),
            writes=True,
        )
        self._state = _State.READY
        if before != network.scheduler.name:
            network.on_fenced(self._id)

    def begin_transaction(self) -> None:
        """Local only: no request."""
        if self._state not in {_State.READY, _State.FATAL}:
            self._network.cluster.violations.append(
                f"{self._id} begins a transaction while another is {self._state.name}"
            )
        if self._state is not _State.READY:
            raise self._dead("begin")
        self._state, self._sent_any = _State.IN_TRANSACTION, False
        self._handed_over.clear()

    def produce(
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        partition: int = -1,
        callback: Callable[[KafkaError | None, Any], None] | None = None,
        on_delivery: Callable[[KafkaError | None, Any], None] | None = None,
        timestamp: int = 0,
        headers: list[tuple[str, bytes | None]] | None = None,
    ) -> None:
        """Queues a record; a thread of the client may send it at once."""
        network = self._network
        if self._id and self._state is not _State.IN_TRANSACTION:
            # The same error as the report of the culprit, which may come before or after.
            raise problem(_PRIVATE.fatal if self._state is _State.FATAL else _PRIVATE.state)
        if self._id and network.happens(network.faults.buffer_full):
            raise BufferError
        if topic not in network.cluster.topics and network.random.random() < 0.5:
            raise problem(_PRIVATE.unknown_topic)  # known already; the transaction goes on
        record = OutputRecord(topic, key, value, headers, timestamp, partition)
        message = _Message(record, callback or on_delivery)
        self._queue.append(message)
        self._handed_over.append(message)
        if self._id and network.happens(network.faults.sent_early):
            self._send()

    def poll(self, timeout: float = 0) -> int:
        """Serves the reports that are there."""
        while self._reports:
            message, code = self._reports.popleft()
            if message.report is not None:
                message.report(KafkaError(code, "simulated"), None)
        return 0

    def flush(self, timeout: float = 0) -> int:
        """Sends what is queued, and serves every report."""
        network = self._network
        network.scheduler.step()
        if not self._id:
            return self._append()
        if network.happens(network.faults.hangs):
            raise NeverReturns(network)
        if network.happens(network.faults.lost_answer):
            network.scheduler.sleep(timeout)
            return max(1, len(self._queue))
        self._send()
        if self._queue:
            network.scheduler.sleep(self._message_timeout)
            self._send(is_last_try=True)
        self.poll()
        return 0

    def send_offsets_to_transaction(
        self, positions: Iterable[ClientPartition], metadata: str, timeout: float
    ) -> None:
        """Adds offsets; never comes back once the coordinator was away (librdkafka 5456)."""
        network = self._network
        self._check("send_offsets")
        if self._queue:
            network.cluster.violations.append(
                "offsets were sent before the records were flushed: 0.1 s a transaction"
            )
        if self._born < network.cluster.restarts and network.random.random() < 0.7:
            raise NeverReturns(network)
        ends = {
            TopicPartition(position.topic, position.partition): position.offset
            for position in positions
        }
        epoch = self._epoch  # as in ``_end``
        self._fenced(
            f"send_offsets {self._id} {_shown(ends)}",
            lambda: network.cluster.add_offsets(self._id, epoch, metadata, ends),
        )

    def commit_transaction(self, timeout: float) -> None:
        """Commits; after a lost answer it is in doubt until the id is initialised again."""
        if self._queue:
            self._send()
        self._check("commit")
        self._end("commit", Fate.COMMITTED, timeout)

    def abort_transaction(self, timeout: float) -> None:
        """Aborts, and drops what was not sent."""
        if self._state not in {_State.IN_TRANSACTION, _State.ABORTABLE}:
            raise self._dead("abort")
        # The sequence numbers of what was on its way are gone (waterdrop#501).
        network = self._network
        breaks = self._sent_any and network.happens(network.faults.out_of_sequence)
        self._end("abort", Fate.ABORTED, timeout)
        self._queue.clear()
        self._breaks_sequence = breaks and not self._broke_sequence
        self._broke_sequence = False

    def purge(self) -> None:
        self._queue.clear()

    def _end(self, step: str, fate: Fate, timeout: float) -> None:
        network, cluster = self._network, self._network.cluster
        epoch = self._epoch  # of this request, also where a copy of it arrives later
        try:
            self._epoch = self._fenced(
                f"{step} {self._id}", lambda: cluster.end_transaction(self._id, epoch, fate)
            )
            if fate is Fate.COMMITTED and network.happens(network.faults.commit_in_doubt):
                network.lose(f"{step} {self._id}: the answer is lost", timeout)
        except KafkaException:
            if self._state is not _State.FATAL:
                self._state = _State.IN_DOUBT
            raise
        self._state = _State.READY

    def _fenced(self, what: str, effect: Callable[[], _Answer]) -> _Answer:
        try:
            return self._network.request(what, effect, writes=True)
        except Fenced:
            self._network.scheduler.tell(f"{what}: fenced")
            self._state = _State.FATAL
            raise self._dead(what) from None

    def _check(self, step: str) -> None:
        """Refuses a step of a transaction that can't be committed any more."""
        if self._state is _State.ABORTABLE:
            raise problem(_PRIVATE.inconsistent, txn_requires_abort=True)
        if self._state is not _State.IN_TRANSACTION:
            raise self._dead(step)
        if self._breaks_sequence:
            self._breaks_sequence, self._broke_sequence = False, True
            self._state = _State.ABORTABLE
            raise problem(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, txn_requires_abort=True)

    def _dead(self, step: str) -> KafkaException:
        if self._state is _State.FATAL:
            return problem(_PRIVATE.fenced, f"{step}: fenced", fatal=True)
        return problem(_PRIVATE.conflict if self._state is _State.IN_DOUBT else _PRIVATE.state)

    def _append(self) -> int:
        """Sends records outside of any transaction; how many were not acknowledged."""
        network, messages = self._network, self._queue
        self._queue = []
        try:
            for message in messages:
                record = message.record
                network.request(
                    f"append {(record.key or b'').decode()}",
                    partial(network.cluster.append, record),
                    writes=True,
                )
                if message.report is not None:
                    message.report(None, None)
        except (KafkaException, NeverReturns):
            return 1
        return 0

    def _send(self, *, is_last_try: bool = False) -> None:
        """Sends what is queued, batch by batch, until something makes the transaction abort."""
        waiting: list[_Message] = []
        for batch in self._batches():
            if self._state is not _State.IN_TRANSACTION:
                self._purge(batch)
                continue
            codes = self._sent(batch)
            if codes is None and not is_last_try:
                waiting += batch
            elif codes is None:
                self._refuse(batch, [_PRIVATE.message_timed_out] * len(batch))
            elif codes:
                self._refuse(batch, codes)
        self._queue = waiting
        if self._state is not _State.IN_TRANSACTION:
            self._purge(waiting)
            self._queue = []

    def _batches(self) -> list[list[_Message]]:
        """What is queued as produce batches: each for one partition, within ``batch.size``."""
        cluster = self._network.cluster
        batches: list[list[_Message]] = []
        filling: dict[object, tuple[list[_Message], int]] = {}
        for message in self._queue:
            record = message.record
            lane = cluster.lane_of(record) if record.topic in cluster.topics else record.topic
            size = cluster.wire_size(record)
            batch, filled = filling.get(lane, ([], 0))
            if not batch or filled + size > self._batch_size:
                batch, filled = [], 0
                batches.append(batch)
            batch.append(message)
            filling[lane] = batch, filled + size
        return batches

    def _sent(self, batch: list[_Message]) -> list[int] | None:
        """Codes of a batch that is refused, none if it is written; None without an answer."""
        cluster = self._network.cluster
        topic = cluster.topics.get(batch[0].record.topic)
        if topic is not None and not topic.has_leader:
            return None
        if topic is not None and not cluster.has_leader(cluster.lane_of(batch[0].record)):
            return None
        codes = self._refusals(batch, topic)
        if codes:
            return codes
        try:
            for message in batch:
                cluster.write(self._id, self._epoch, message.record)
                cluster.writers[self._id] = self._network.scheduler.name
        except Fenced:
            self._state = _State.FATAL
            code = _PRIVATE.fenced if self._network.random.random() < 0.5 else _PRIVATE.purged
            return [code] * len(batch)
        self._sent_any = True
        return []

    def _refusals(self, batch: list[_Message], topic: Topic | None) -> list[int]:
        """Codes of a batch that its topic refuses."""
        if topic is None:
            return [KafkaError.UNKNOWN_TOPIC_OR_PART] * len(batch)
        if not topic.may_write:
            return [KafkaError.TOPIC_AUTHORIZATION_FAILED] * len(batch)
        size = packed_size if self._is_packed and topic.packs else wire_size
        records = [message.record for message in batch]
        if (
            sum(size(message.key, message.value, message.headers or []) for message in records)
            > topic.limit
        ):
            return [KafkaError.MSG_SIZE_TOO_LARGE] * len(batch)  # whole, innocents included
        is_invalid = [topic.finds_invalid(message.record) for message in batch]
        if not any(is_invalid):
            return []
        if self._network.random.random() < 0.5:
            return [KafkaError.INVALID_RECORD] * len(
                batch
            )  # of one record, reported for the whole batch
        return [
            KafkaError.INVALID_RECORD if is_refused else _PRIVATE.different_record
            for is_refused in is_invalid
        ]

    def _refuse(self, batch: list[_Message], codes: list[int]) -> None:
        network = self._network
        others = [message for message in self._handed_over if message not in batch]
        if network.faults.is_mixed and others:
            self._reports.append((others[0], _PRIVATE.transport))
        network.scheduler.tell(f"{self._id}: {batch[0].record.topic} refuses {codes}")
        self._reports.extend(zip(batch, codes, strict=True))
        if self._state is _State.IN_TRANSACTION:
            self._state = _State.ABORTABLE

    def _purge(self, messages: list[_Message]) -> None:
        """Innocents of an abort."""
        self._reports.extend((message, _PRIVATE.purged) for message in messages)


# -- consumer ----------------------------------------------------------------------------------


class Received(NamedTuple):
    """``confluent_kafka.Message``."""

    lane: TopicPartition
    at: int
    record: OutputRecord | None
    """None stands for the end of the partition."""

    def error(self) -> KafkaError | None:
        return None if self.record is not None else _PARTITION_END

    def topic(self) -> str:
        return self.lane.topic

    def partition(self) -> int:
        return self.lane.partition

    def offset(self) -> int:
        return self.at

    def key(self) -> bytes | None:
        return self.record.key if self.record is not None else None

    def value(self) -> bytes | None:
        return self.record.value if self.record is not None else None

    def timestamp(self) -> tuple[int, int]:
        return TIMESTAMP_CREATE_TIME, self.record.timestamp if self.record is not None else -1

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        return self.record.headers if self.record is not None else None


@dataclass(frozen=True, slots=True)
class Rows:
    """``pyarrow.RecordBatch``, as far as an emission cuts it: Arrow took a fifth of the time."""

    messages: Sequence[Received]

    @property
    def num_rows(self) -> int:
        return len(self.messages)

    @property
    def nbytes(self) -> int:
        return sum(len(message.value() or b"") + 100 for message in self.messages)

    def slice(self, start: int, length: int | None = None) -> Rows:
        return Rows(self.messages[start:][:length])

    def lanes(self) -> Iterator[tuple[TopicPartition, Rows]]:
        """``redrive.streaming.emission._lanes``."""
        for lane, messages in groupby(self.messages, key=lambda message: message.lane):
            yield lane, Rows(tuple(messages))

    def records(self) -> Records:
        """``Records.from_arrow``."""
        every = [
            (message.record, message.at) for message in self.messages if message.record is not None
        ]
        return Records(
            keys=[record.key for record, _ in every],
            values=[record.value for record, _ in every],
            headers=[list(record.headers or ()) for record, _ in every],
            timestamps=[max(0, record.timestamp) for record, _ in every],
            offsets=[offset for _, offset in every],
        )


class SimulatedConsumer:
    """``confluent_kafka.Consumer``, as far as it is used: assigned, never subscribed."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._network: Network = settings[_KEY]
        self._group: str = settings["group.id"]
        self._committed_only = settings.get("isolation.level") == "read_committed"
        self._goes_on_with_oldest = settings.get("auto.offset.reset") == "earliest"
        self._positions: dict[TopicPartition, int] = {}
        self._told: dict[TopicPartition, int] = {}

    def consumer_group_metadata(self) -> str:
        """What the transaction's offsets are sent with: here the group's name."""
        return self._group

    def committed(
        self, partitions: Iterable[ClientPartition], timeout: float
    ) -> list[ClientPartition]:
        """Committed offsets; with read_committed it waits for transactions that move them."""
        network, cluster, asked = self._network, self._network.cluster, list(partitions)
        lanes = [TopicPartition(partition.topic, partition.partition) for partition in asked]
        network.request("committed", lambda: None, timeout=timeout)
        deadline = network.scheduler.now + timeout
        while moving := self._moving(lanes):
            if network.scheduler.name in moving:
                cluster.violations.append(
                    f"{network.scheduler.name} waits for its own transaction to move offsets"
                )
            if network.scheduler.now > deadline:
                raise problem(_PRIVATE.timed_out, retriable=True)
            network.scheduler.sleep(0.1)
        offsets = [cluster.offsets.get((self._group, lane), _NO_OFFSET) for lane in lanes]
        network.scheduler.tell(f"committed {_shown(dict(zip(lanes, offsets, strict=True)))}")
        return [ClientPartition(*lane, offset) for lane, offset in zip(lanes, offsets, strict=True)]

    def _moving(self, lanes: Iterable[TopicPartition]) -> list[str]:
        """The processes whose transactions move offsets, if that has to be waited for."""
        if not self._committed_only:
            return []
        cluster = self._network.cluster
        return [owner for lane in lanes for owner in cluster.moving(self._group, lane)]

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> None:
        """Learns who leads topics; nobody looks at the answer."""
        self._network.request("list_topics", lambda: None, timeout=timeout)

    def assign(self, partitions: Iterable[ClientPartition]) -> None:
        """Takes these partitions and no others, each from an offset on."""
        self._positions, self._told = {}, {}
        starts = self._network.cluster.starts
        for partition in partitions:
            lane = TopicPartition(partition.topic, partition.partition)
            oldest = starts.get(lane, 0) if self._goes_on_with_oldest else 0
            self._positions[lane] = max(partition.offset, oldest)

    def incremental_unassign(self, partitions: Iterable[ClientPartition]) -> None:
        for partition in partitions:
            self._positions.pop(TopicPartition(partition.topic, partition.partition), None)

    def consume(self, count: int = 1, timeout: float = -1) -> list[Received]:
        """What there is to read, then the end of the partition."""
        try:
            self._network.request("consume", lambda: None)
        except KafkaException:
            return []  # no event; the client asks again by itself
        received = self._received()
        if not received:
            self._network.scheduler.sleep(max(timeout, 0.01))
        return received

    def poll(self, timeout: float) -> None:
        """Waits for a record; none comes, as far as this one can tell."""
        self._network.scheduler.sleep(timeout)

    def close(self) -> None:
        """Lets go."""

    def _received(self) -> list[Received]:
        network = self._network
        cluster, received = network.cluster, []
        for lane, position in self._positions.items():
            if not cluster.has_leader(lane):
                continue
            end = cluster.stable_end(lane) if self._committed_only else cluster.end(lane)
            is_late = end > position and network.happens(network.faults.fetched_later)
            if is_late:
                end = network.random.randrange(position, end)
            received += [
                Received(lane, offset, record)
                for offset, _, record in cluster.read(
                    lane, position, end, committed_only=self._committed_only
                )
            ]
            if self._told.get(lane) != end and not is_late:
                self._told[lane] = end
                received.append(Received(lane, end, None))
            self._positions[lane] = max(end, position)
        return received


# -- admin client ------------------------------------------------------------------------------


class _Offset(NamedTuple):
    """What ``list_offsets`` answers about one partition."""

    offset: int
    timestamp: int = -1


class _Future:
    """An answer of the admin client that is there already."""

    __slots__ = ("_answer",)

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    def result(self, timeout: float | None = None) -> Any:
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


class _Metadata:
    """What ``list_topics`` answers; mostly nobody looks at it."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.cluster_id = cluster.identity
        self._partitions = {topic.name: topic.partitions for topic in cluster.topics.values()}

    @property
    def topics(self) -> dict[str, SimpleNamespace]:
        return {
            name: SimpleNamespace(partitions=range(count))
            for name, count in self._partitions.items()
        }


class SimulatedAdmin:
    """``confluent_kafka.admin.AdminClient``, as far as it is used."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._network: Network = settings[_KEY]
        self._cluster: SimulatedCluster = self._network.cluster
        self._born = self._cluster.restarts

    def poll(self, timeout: float = 0) -> int:
        return 0

    def list_topics(self, timeout: float = -1) -> Any:
        return self._network.request(
            "list_topics", timeout=timeout, effect=lambda: _Metadata(self._cluster)
        )

    def describe_cluster(self, *, request_timeout: float) -> _Future:
        """The answer of any broker; nobody looks at it."""
        return self._asked("describe_cluster", [""], lambda _: None, request_timeout)[""]

    def describe_topics(
        self, topics: Any, *, request_timeout: float, include_authorized_operations: bool = False
    ) -> dict[str, _Future]:
        """Identity, leaders and replicas; facts are asked for outside of any transaction."""
        name = self._network.scheduler.name
        if self._cluster.is_writing(name):
            self._cluster.violations.append(f"{name} asks for facts in an open transaction")
        what = _RIGHTS if include_authorized_operations else "describe_topics"
        return self._asked(what, topics.topic_names, self._description, request_timeout)

    def describe_configs(self, resources: Any, *, request_timeout: float) -> dict[Any, _Future]:
        return self._asked(
            "describe_configs",
            resources,
            lambda resource: self._settings(resource.name),
            request_timeout,
        )

    def list_offsets(
        self,
        places: Mapping[ClientPartition, Any],
        *,
        isolation_level: IsolationLevel,
        request_timeout: float,
    ) -> dict[ClientPartition, _Future]:
        """Offsets; a client from before a restart gets FENCED_LEADER_EPOCH forever."""
        if self._born < self._cluster.restarts:
            stale = problem(KafkaError.FENCED_LEADER_EPOCH)
            return {place: _Future(stale) for place in places}
        is_committed = isolation_level == IsolationLevel.READ_COMMITTED
        return self._asked(
            "list_offsets",
            places,
            lambda place: self._offset(place, places[place], is_committed),
            request_timeout,
        )

    def describe_consumer_groups(
        self, groups: Iterable[str], *, request_timeout: float
    ) -> dict[str, _Future]:
        """Members of the only group that has any."""
        network = self._network

        def described(_: str) -> Any:
            now = network.scheduler.now
            silent = {name: member.silent_since(now) for name, member in network.members.items()}
            known = [name for name, since in silent.items() if now - (since or now) < _SESSION]
            return SimpleNamespace(members=[SimpleNamespace(client_id=name) for name in known])

        return self._asked("describe_consumer_groups", groups, described, request_timeout)

    def delete_records(
        self, places: Iterable[ClientPartition], *, request_timeout: float
    ) -> dict[ClientPartition, _Future]:
        return self._asked("delete_records", places, self._deleted, request_timeout)

    def _deleted(self, place: ClientPartition) -> None:
        lane, starts = TopicPartition(place.topic, place.partition), self._cluster.starts
        if lane not in self._cluster.logs:
            raise problem(KafkaError.UNKNOWN_TOPIC_OR_PART)
        starts[lane] = max(starts.get(lane, 0), place.offset)

    def _asked(
        self, what: str, names: Iterable[Any], answer_of: Callable[[Any], Any], timeout: float
    ) -> dict[Any, _Future]:
        names = list(names)
        try:
            return self._network.request(
                what,
                lambda: {name: _Future(_answered(answer_of, name)) for name in names},
                timeout=timeout,
            )
        except KafkaException as error:
            # What the broker does not answer in time, the client's future does not either.
            lost = error if self._network.random.random() < 0.5 else TimeoutError()
            return {name: _Future(lost) for name in names}

    def _description(self, name: str) -> Any:
        topic = self._cluster.topics.get(name)
        if topic is None:
            raise problem(KafkaError.UNKNOWN_TOPIC_OR_PART)
        leader = SimpleNamespace(id=1) if topic.has_leader else None
        return SimpleNamespace(
            topic_id=topic.identity,
            authorized_operations=None if topic.may_write else [AclOperation.READ],
            partitions=[
                SimpleNamespace(
                    id=number, leader=None if number in topic.leaderless else leader, isr=[1]
                )
                for number in range(topic.partitions)
            ],
        )

    def _settings(self, name: str) -> dict[str, Any]:
        topic = self._cluster.topics.get(name)
        if topic is None:
            raise problem(KafkaError.UNKNOWN_TOPIC_OR_PART)
        values = {
            "max.message.bytes": str(topic.limit),
            "cleanup.policy": "compact" if topic.wants_keys else "delete",
            "min.insync.replicas": "1",
        }
        return {key: SimpleNamespace(value=value) for key, value in values.items()}

    def _offset(self, place: ClientPartition, spec: Any, is_committed: bool) -> _Offset:  # noqa: FBT001
        cluster, lane = self._cluster, TopicPartition(place.topic, place.partition)
        if lane not in cluster.logs:
            raise problem(KafkaError.UNKNOWN_TOPIC_OR_PART)
        if not cluster.has_leader(lane):
            raise problem(KafkaError.LEADER_NOT_AVAILABLE, retriable=True)
        if spec is _EARLIEST:
            return _Offset(cluster.starts.get(lane, 0))
        end = cluster.stable_end(lane) if is_committed else cluster.end(lane)
        if spec is _LATEST:
            return _Offset(end)
        records = cluster.read(lane, 0, end, committed_only=is_committed)
        since = spec.timestamp
        positions = (_Offset(offset, record.timestamp) for offset, _, record in records)
        return next((place for place in positions if place.timestamp >= since), _Offset(-1))


class SimulatedHeartbeat:
    """``redrive.kafka.heartbeat.Heartbeat``: dead and frozen processes are members for a while."""

    def __init__(self, connection: Any, application: str, name: str, topic: str) -> None:
        self._network: Network = connection.librdkafka()[_KEY]
        self._name = name
        process = self._network.scheduler.current
        assert process is not None
        self._network.members[name] = process

    def end(self) -> None:
        """Leaves the group."""
        self._network.members.pop(self._name, None)


class SimulatedAdministration:
    """``redrive.kafka.administration.TopicAdministration``, as far as it is used."""

    def __init__(self, connection: Any) -> None:
        self._network: Network = connection.librdkafka()[_KEY]

    def ensure(self, wanted: Iterable[NewTopic]) -> None:
        """Makes topics that do not exist, and gives others more partitions."""
        with translated("creation of topics"):
            self._network.request("create_topics", lambda: self._make(list(wanted)))

    def _make(self, wanted: Sequence[NewTopic]) -> None:
        for topic in wanted:
            is_compacted = topic.settings.get("cleanup.policy") == "compact"
            self._network.cluster.create(topic.name, topic.partitions, wants_keys=is_compacted)


def _answered(answer_of: Callable[[Any], Any], name: Any) -> Any:
    try:
        return answer_of(name)
    except KafkaException as error:
        return error


# -- instead of threads and the clock ------------------------------------------------------------


class InlineDeadline:
    """``DeadlineThread`` without a thread: what never returns is left behind at its deadline."""

    def __init__(self, name: str) -> None:
        del name
        self.is_abandoned = False
        """See ``DeadlineThread.is_abandoned``."""
        self.has_returned = False
        """See ``DeadlineThread.has_returned``."""

    def run(self, step: str, seconds: float, call: Callable[[], _Answer]) -> _Answer:
        """The answer of a call; see ``DeadlineThread.run``."""
        if self.is_abandoned:
            raise OutcomeUnknown(f"{step}: an earlier call of this client never returned")
        try:
            return call()
        except NeverReturns as hangs:
            self.is_abandoned = True
            hangs.args[0].scheduler.sleep(seconds)
            raise OutcomeUnknown(f"{step}: the client did not return") from None

    def end(self) -> None:
        """Nothing to end."""


class InTurn:
    """``ThreadPoolExecutor`` without threads."""

    def __init__(self, max_workers: int) -> None:
        del max_workers

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    @staticmethod
    def map(function: Callable[[Any], Any], values: Iterable[Any]) -> Iterator[Any]:
        """The results one after the other; the first error once all were tried, as in threads."""
        results, errors = [], []
        for value in values:
            try:
                results.append(function(value))
            except Exception as error:  # noqa: BLE001 - raised below
                errors.append(error)
        if errors:
            raise errors[0]
        return iter(results)


class SimulatedTime:
    """The module ``time`` of whatever runs on a simulated cluster."""

    def __init__(self) -> None:
        self.scheduler = Scheduler(0, most_steps=0)
        """Whose clock it is."""

    def time(self) -> float:
        """Seconds since the epoch, by a clock that may be set."""
        return self.scheduler.wall

    def monotonic(self) -> float:
        """Seconds, by a clock that nobody sets."""
        return self.scheduler.now

    def thread_time(self) -> float:
        """Seconds of processor time: none are counted."""
        return 0.0

    process_time = thread_time

    def clock_gettime(self, _: int) -> float:
        """Seconds since the machine booted."""
        return self.scheduler.now

    def time_ns(self) -> int:
        return int(self.scheduler.wall * 1e9)

    def sleep(self, seconds: float) -> None:
        self.scheduler.sleep(seconds)

    def uniform(self, least: float, most: float) -> float:
        """Seconds between two bounds, where a pause is drawn."""
        return self.scheduler.random.uniform(least, most)

    def paused(self, seconds: float) -> bool:
        """Lets time pass; nobody asked for a stop meanwhile."""
        self.scheduler.sleep(seconds)
        return True


class SimulatedNumbers:
    """The module ``uuid`` where ids are made that a trace shows."""

    def __init__(self) -> None:
        self._count = 0

    def uuid4(self) -> Any:
        """The next number."""
        self._count += 1
        return SimpleNamespace(hex=f"{self._count:08x}")


TIME: Final = SimulatedTime()
_PARSE: Final = lru_cache(parse)
_CLOCKS: Final = (
    "redrive.checkpoints.clock",
    "redrive.checkpoints.control",
    "redrive.checkpoints.epoch",
    "redrive.checkpoints.held",
    "redrive.checkpoints.registry",
    "redrive.checkpoints.states",
    "redrive.kafka.cluster",
    "redrive.kafka.compacted",
    "redrive.kafka.producer",
    "redrive.kafka.records",
    "redrive.kafka.waiting_keys",
    "redrive.operations.replay.applying",
    "redrive.streaming.batch",
    "redrive.streaming.emission",
    "redrive.streaming.forwarding",
    "redrive.streaming.held_keys",
    "redrive.streaming.held_reader",
    "redrive.streaming.preparation",
    "redrive.streaming.upkeep",
)
"""Modules that look at the clock."""


class SimulatedLock:
    """``threading.Lock`` between threads of one simulated process."""

    def __init__(self) -> None:
        self._is_held = False

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:  # noqa: FBT001, FBT002 - as it is called
        """Takes it, unless somebody holds it for so long."""
        until = TIME.monotonic() + timeout
        while self._is_held:
            if not blocking or (timeout >= 0 and TIME.monotonic() >= until):
                return False
            TIME.sleep(0.01)
        self._is_held = True
        return True

    def release(self) -> None:
        self._is_held = False

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class SimulatedThread:
    """``threading.Thread`` of a part of a simulated process."""

    def __init__(
        self, *, target: Callable[..., None], name: str, daemon: bool, args: tuple[Any, ...] = ()
    ) -> None:
        del daemon
        self._target, self._name = partial(target, *args), name
        self._process: Process | None = None

    def start(self) -> None:
        scheduler = TIME.scheduler
        driver = scheduler.current
        self._process = scheduler.spawn(f"{scheduler.name}.{self._name}", self._target, driver)

    def join(self, timeout: float) -> None:
        until = TIME.monotonic() + timeout
        while self._process is not None and self._process.is_alive and TIME.monotonic() < until:
            TIME.sleep(0.2)


class SimulatedEvent:
    """``threading.Event`` that such a thread waits for."""

    def __init__(self) -> None:
        self._is_set = False

    def set(self) -> None:
        self._is_set = True

    def is_set(self) -> bool:
        return self._is_set

    def wait(self, seconds: float) -> bool:
        """Waits for some time, in few steps."""
        until = TIME.monotonic() + seconds
        while not self._is_set and TIME.monotonic() < until:
            TIME.sleep(min(1.0, seconds))
        return self._is_set


_MACHINE: Final = SimpleNamespace(gethostname=lambda: "host", getpid=lambda: 1)
"""``socket`` and ``os`` where a process says who it is."""
SETTLED: Final = 8.0
"""Seconds after which a round counts as over: nobody processes here, so no group passes a put."""
_DELAYS: Final = 6
"""Partitions of messages that wait by BACKOFF for each of the dead-letter queue, wherever they are
dealt out: enough for three delays, two for each."""
_REPLACED: Final[Mapping[str, object]] = {
    "redrive.kafka.producer.Producer": SimulatedProducer,
    "redrive.kafka.producer.Consumer": SimulatedConsumer,
    "redrive.kafka.producer.DeadlineThread": InlineDeadline,
    "redrive.kafka.deadline.DeadlineThread": InlineDeadline,
    "redrive.kafka.cluster.AdminClient": SimulatedAdmin,
    "redrive.kafka.cluster.Consumer": SimulatedConsumer,
    "redrive.kafka.records.Consumer": SimulatedConsumer,
    "redrive.checkpoints.epoch.ThreadPoolExecutor": InTurn,
    "redrive.checkpoints.epoch.socket": _MACHINE,
    "redrive.checkpoints.epoch.os": _MACHINE,
    "redrive.checkpoints.registry.Heartbeat": SimulatedHeartbeat,
    "redrive.checkpoints.registry.socket": _MACHINE,
    "redrive.checkpoints.registry.os": _MACHINE,
    "redrive.checkpoints.states.socket": _MACHINE,
    "redrive.checkpoints.states.os": _MACHINE,
    "redrive.streaming.batch.pickle": SimpleNamespace(
        dumps=lambda order: order, loads=pickle.loads
    ),
    "redrive.streaming.batch.threading": SimpleNamespace(Event=threading.Event, Lock=SimulatedLock),
    "redrive.streaming.emission.Records": SimpleNamespace(from_arrow=Rows.records),
    "redrive.streaming.emission._lanes": Rows.lanes,
    "redrive.kafka.waiting_keys.SETTLED": SETTLED,
    **{
        f"redrive.streaming.{module}.threading": SimpleNamespace(
            Event=SimulatedEvent, Thread=SimulatedThread
        )
        for module in ("forwarding", "held_keys")
    },
    "redrive.streaming.forwarding.TopicAdministration": SimulatedAdministration,
    "redrive.streaming.forwarding._CLEAR_AGE": 20.0,
    "redrive.streaming.held_keys._LOOK": 3.0,
    "redrive.operations.replay.applying._CHUNK_RECORDS": 1,
    "redrive.operations.replay.applying.TopicAdministration": SimulatedAdministration,
    "redrive.operations.states.TopicAdministration": SimulatedAdministration,
    "redrive.streaming.held_reader.log_to_standard_error": lambda _: None,
    "redrive.streaming.preparation.Preparation._sleep": lambda _, seconds: TIME.paused(seconds),
    "redrive.streaming.preparation.TopicAdministration": SimulatedAdministration,
    "redrive.streaming.preparation._check_room": lambda _: None,
    "redrive.streaming.preparation.random": TIME,
    "redrive.streaming.upkeep.Thread": lambda **_: SimpleNamespace(
        start=lambda: None, is_alive=lambda: False
    ),
    "redrive.streaming.upkeep._PURGE_AGE": 15.0,
    "redrive.streaming.upkeep._RECOMMIT_AGE": 20.0,
    # The same tables over and over.
    "redrive.configuration.deciders.parse": _PARSE,
    **{f"{module}.time": TIME for module in _CLOCKS},
}


@contextmanager
def simulated_clients() -> Iterator[None]:
    """Lets the project's code run on simulated clients, on one core."""
    with ExitStack() as stack:
        stack.enter_context(one_core())
        for name, value in _REPLACED.items():
            stack.enter_context(patch(name, value))
        for module in [
            module for module in sys.modules.values() if module.__name__.startswith("redrive.")
        ]:
            if hasattr(module, "PARTITIONS"):
                stack.enter_context(patch.object(module, "PARTITIONS", _DELAYS))
        yield


@contextmanager
def simulated_clock(scheduler: Scheduler) -> Iterator[None]:
    """Lets the project's code run by the clock of a scheduler; ids are counted from 1."""
    TIME.scheduler = scheduler
    with (
        patch("redrive.checkpoints.epoch.uuid", SimulatedNumbers()),
        patch("redrive.checkpoints.registry.uuid", SimulatedNumbers()),
        patch("redrive.kafka.producer._abandoned", []),
    ):
        yield
