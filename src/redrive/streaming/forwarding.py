"""Forwarding to other clusters: FWDT('cluster:topic'), exactly once.

A rule puts a message for another cluster on a topic of Redrive's own, in the transaction that
decides it. From there it is forwarded in order by transactions of the other cluster. They carry the
offset of the message on the topic that it comes from: the other cluster has an empty topic of the
same name, and a consumer group there says what was forwarded. Group and transactions are named
after Kafka's id of the topic: a topic that was recreated, and an application of the same name on
a third cluster, have offsets of their own.

What the other cluster refuses returns to its dead-letter queue as a failed attempt, in a
transaction of the job's own cluster that carries the same offset. The greater of both offsets is
the position.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import groupby, islice
from typing import Final

from redrive.checkpoints.epoch import RunEntry, RunIdentity
from redrive.checkpoints.own_topics import waiting_topic
from redrive.checkpoints.protocol import Emitter, PositionsOnly
from redrive.configuration import JobConfiguration
from redrive.engine.decision import TimestampMode
from redrive.engine.facts import Answers, Facts, Questions
from redrive.engine.names import cluster_topic
from redrive.engine.put_record import PutTimes
from redrive.errors import FatalFault, RecreatedFault, RedriveError, TransientFault
from redrive.kafka.administration import TopicAdministration
from redrive.kafka.cluster import Cluster
from redrive.kafka.deadline import AGAIN, ONE_TRY
from redrive.kafka.errors import UNANSWERED_REASON
from redrive.kafka.facts import ClusterFacts
from redrive.kafka.producer import KafkaProducer
from redrive.kafka.records import StoredRecord, Watch
from redrive.kafka.reports import Batching
from redrive.messages import OutputRecord, Refused, TopicPartition
from redrive.messages import own_headers as own
from redrive.messages.dead_letters import Form, add_header, new_header
from redrive.messages.reasons import Reason
from redrive.streaming.lifecycle import JobControl

_AT_ONCE: Final = 2_000
"""Maximum records of one transaction."""
_BYTES_AT_ONCE: Final = 16 * 1024 * 1024
"""Bytes above which a transaction gets no further record."""
_TOPIC_PAUSE: Final = 5.0
"""Seconds before a topic that refused a message is tried again."""
_CLEAR_AGE: Final = 300.0
"""Seconds between two deletions of forwarded records."""
_CHECK_AGE: Final = 10.0
"""Seconds between two checks whether the topic was recreated, while nothing is forwarded."""
_REMINDER: Final = 60.0
"""Seconds between two warnings about one cluster."""
_TOPIC_REASONS: Final = (
    Reason.UNKNOWN_OBJECT_NAME,
    Reason.NOT_AUTHORIZED,
    Reason.UNKNOWN_REMOTE_Q_MGR,
)
"""Reasons that apply to all messages to a topic."""


class Forwarding:
    """Forwards to all other clusters during one run.

    Each cluster has its own thread: one that does not answer delays neither the job nor other
    clusters.
    """

    def __init__(
        self, configuration: JobConfiguration, run: RunIdentity, control: JobControl
    ) -> None:
        """Begin to forward, if this instance has the topics that all instances share.

        A later run ends this one; ``control`` is notified about clusters with waiting messages.
        """
        self._ended = threading.Event()
        clusters = configuration.clusters if configuration.share.is_first else {}
        self._forwarders = [
            Forwarder(configuration, run, name, control.warning) for name in clusters
        ]
        self._threads = [
            threading.Thread(
                target=forwarder.run,
                args=(self._ended,),
                name=f"redrive-to-{forwarder.name}",
                daemon=True,
            )
            for forwarder in self._forwarders
        ]
        for thread in self._threads:
            thread.start()

    def completed(self, home: Cluster) -> Mapping[TopicPartition, int] | None:
        """The ends of the topics of other clusters, if everything before them was forwarded.

        Returns:
            By topic, the offset after its last record; None if a message waits.

        Raises:
            TransientFault: The broker gave no answer in time.
        """
        completed = {forwarder.lane: forwarder.completed for forwarder in self._forwarders}
        ends = home.ends(completed, committed_only=False)  # readers may not see the last ones yet
        return ends if completed == ends else None

    @property
    def problem(self) -> str:
        """Why messages wait for other clusters; empty if none does."""
        return "; ".join(forwarder.problem for forwarder in self._forwarders if forwarder.problem)

    @property
    def waiting(self) -> Mapping[str, int]:
        """How many messages wait for each cluster, including transaction markers."""
        return {forwarder.name: forwarder.waiting for forwarder in self._forwarders}

    def end(self) -> None:
        """Ends the threads; one that waits for an answer ends later and forwards nothing more."""
        self._ended.set()
        deadline = time.monotonic() + ONE_TRY
        for thread in self._threads:
            thread.join(timeout=max(0.0, deadline - time.monotonic()))


class Forwarder:
    """Forwards to one cluster."""

    def __init__(
        self,
        configuration: JobConfiguration,
        run: RunIdentity,
        name: str,
        warn: Callable[..., None],
    ) -> None:
        """Prepare; clients connect in the thread that forwards."""
        self.name = name
        self.completed: int | None = None
        """The end of the topic up to which everything was forwarded; None if a message waits."""
        self.problem = ""
        """Why messages wait; empty if none does."""
        self.waiting = 0
        """How many there were at the last check."""
        self._application = configuration.application
        self._home = Cluster(configuration.connection)
        self._there = Cluster(configuration.clusters[name])
        self._connections = configuration.connection, configuration.clusters[name]
        self._topic = cluster_topic(configuration.application, name)
        self.lane = TopicPartition(self._topic, 0)
        self._position = 0
        """Everything before it was forwarded or returned; 0 if unknown."""
        self._timestamps = {
            handler.identity.topic: handler.timestamp for handler in configuration.handlers
        }
        self._facts_there = Facts(time.monotonic)
        self._answers_there = ClusterFacts(self._there).answers
        self._refused_topics: dict[str, tuple[Refused, float]] = {}
        self._refused_records: dict[int, Refused] = {}
        self._warn, self._warned_at = warn, -_REMINDER
        self._group_there = ""
        self._topic_id = ""
        """Kafka's id of the topic at home to which the position applies."""
        self._check_at = 0.0
        entry = RunEntry(self._home, configuration.control_topic, run)
        emitter = partial(Emitter, cluster=self, run=entry, clock=time)
        self._forward = emitter(self._producer_there)
        self._return = emitter(partial(self._producer_here, run.new_transactional_id()))

    def run(self, ended: threading.Event) -> None:
        """Forwards until the run ends, and retries after failures."""
        watch = Watch(self._connections[0])
        try:
            while not ended.is_set():
                try:
                    self._serve(ended, watch)
                except FatalFault as fault:  # the rights may be granted, or another run took over
                    self._note_problem(fault)
                    ended.wait(_TOPIC_PAUSE)
                except RedriveError as fault:
                    self._note_problem(fault)
                    ended.wait(AGAIN)
        finally:
            watch.close()
            for emitter in (self._forward, self._return):
                emitter.drop_producer()
            for cluster in (self._home, self._there):
                cluster.close()

    def _serve(self, ended: threading.Event, watch: Watch) -> None:
        cleared_at = time.monotonic()
        while not ended.is_set():
            first, end = self._home.extents([self.lane])[self.lane]
            if self._position > end or self._is_recreated():
                self._position = 0
            if self._position > first and time.monotonic() - cleared_at > _CLEAR_AGE:
                self._clear()
                cleared_at = time.monotonic()
            begin = max(first, self._position)
            self.waiting = max(0, end - begin)
            if end <= begin:
                self.completed, self.problem = end, ""
                watch.wait({self.lane: end}, AGAIN)
                continue
            self.completed = None
            if not self._position:
                self._begin(first)
            if records := [*self._records(end)]:
                self._move(records)
                self.problem = ""
            else:  # only transaction markers
                self._position = end
        if self._position:  # the other cluster may forget the offset before the next start
            with suppress(RedriveError):
                self._clear()

    def _is_recreated(self) -> bool:
        """Whether the position is of an earlier topic of the name; asked now and then."""
        now = time.monotonic()
        if not self._position or now < self._check_at:
            return False
        self._check_at = now + _CHECK_AGE
        return self._home.topic_ids([self._topic]).get(self._topic) != self._topic_id

    def _begin(self, first: int) -> None:
        """Finds the position, and creates the topic of the same name in the other cluster."""
        here = self._home.committed(self._application, [self.lane])[self.lane]
        if self._topic not in self._there.topics():
            if here is not None:
                raise TransientFault(
                    f"the topic {self._topic} of cluster {self.name} is gone, and with it how far"
                    f" messages were forwarded: certain is offset {here}",
                    hint="create it there, with one partition: messages from that offset on are"
                    " forwarded, and some of them may be there already",
                )
            TopicAdministration(self._connections[1]).ensure([waiting_topic(self._topic)])
        identities = self._home.topic_ids([self._topic])
        if self._topic not in identities:
            raise TransientFault(
                f"the broker does not describe {self._topic}", hint="grant Describe on the topic"
            )
        self._topic_id = identities[self._topic]
        self._check_at = time.monotonic() + _CHECK_AGE
        self._group_there = f"{self._topic}-{self._topic_id}"
        self._forward.drop_producer()
        self._forward.open()  # ends an older run's open transaction, which would hide its offset
        self._position = max(first, self.committed([self.lane])[self.lane] or 0)
        if here is None:  # from now on a missing topic there means lost offsets
            self._commit_position()

    def _records(self, end: int) -> Iterator[StoredRecord]:
        if self._position >= end:
            return
        size = 0
        until = {self.lane: end}
        read = self._home.read({self.lane: self._position}, until, passes_gone=False)
        for record in islice(read, _AT_ONCE):
            yield record
            size += len(record.value or b"")
            if size > _BYTES_AT_ONCE:
                return

    def _move(self, records: Sequence[StoredRecord]) -> None:
        now = time.monotonic()
        self._refused_topics = {
            topic: (why, at) for topic, (why, at) in self._refused_topics.items() if at > now
        }
        for is_refused, run in groupby(
            records, lambda record: self._refusal_of(record) is not None
        ):
            part = list(run)
            for emitter in (self._forward, self._return):
                emitter.begin_batch()  # the other may have moved the position
            try:
                if is_refused:
                    self._return.emit(_Part(part, [*map(self._dead_letter, part)]))
                else:
                    self._forward.emit(_Part(part, self._outputs_of(part), self._note_refused))
            except _Refusal:
                self._position = 0  # a part may have been forwarded
                return
            except RedriveError:
                self._position = 0
                raise
            self._position = part[-1].offset + 1
        self._refused_records.clear()

    def _outputs_of(self, records: Sequence[StoredRecord]) -> Sequence[OutputRecord]:
        """The records as they are written to the other cluster, where each must live."""
        facts = self._facts_there
        facts.begin_slice()
        now = time.time_ns() // 1_000_000

        def decide() -> Sequence[OutputRecord]:
            return [*map(output_of, records)]

        def output_of(record: StoredRecord) -> OutputRecord:
            forward = _forward_of(record)
            assert forward is not None, "others return"
            mode = self._timestamps.get(forward.dead_letters, TimestampMode.AUTO)
            return _output_of(record, forward, PutTimes.at(facts.topic(forward.topic), now, mode))

        return facts.answered(decide, self._answers_there)

    def _refusal_of(self, record: StoredRecord) -> Refused | None:
        forward = _forward_of(record)
        if forward is None:
            return Refused(0, Reason.FORMAT_ERROR, f"the header {own.FORWARD} is missing")
        if forward.topic in self._refused_topics:
            return self._refused_topics[forward.topic][0]
        return self._refused_records.get(record.offset)

    def _note_refused(self, part: Sequence[StoredRecord], refused: Sequence[Refused]) -> bool:
        """Notes refused records; False if smaller parts must show which one is meant.

        Raises:
            TransientFault: The other cluster did not accept them in time.
            _Refusal: It is certain which records are refused.
        """
        for refusal in refused:
            record = part[refusal.entry]
            if refusal.reason == UNANSWERED_REASON:
                raise TransientFault(f"cluster {self.name}: {refusal.detail}")
            forward = _forward_of(record)
            if refusal.reason in _TOPIC_REASONS and forward is not None:
                self._refused_topics[forward.topic] = refusal, time.monotonic() + _TOPIC_PAUSE
            elif len(part) == 1:
                self._refused_records[record.offset] = refusal
            else:
                return False
        raise _Refusal

    def _dead_letter(self, record: StoredRecord) -> OutputRecord:
        """The dead letter that returns to the queue of a record."""
        forward = _forward_of(record)
        refused = self._refusal_of(record)
        if forward is None or refused is None:
            raise TransientFault(
                f"{self.lane} has a record without header {own.FORWARD} at offset {record.offset}",
                hint=f"let only the job write to {self._topic}",
            )
        now = time.time_ns() // 1_000_000
        queue = f"{self.name}:{forward.topic}"
        header = new_header(
            record.headers, reason=refused.reason, queue=queue, queue_manager="", timestamp=now
        )
        replaced = {own.FORWARD, own.TIMESTAMP}
        headers = [pair for pair in record.headers if pair[0] not in replaced]
        headers.append((own.TIMESTAMP, own.number(max(0, record.original_time))))
        value, headers = add_header(header, record.value, headers, form=Form.HEADERS)
        return OutputRecord(forward.dead_letters, record.key, value, headers, now, -1)

    def _clear(self) -> None:
        """Deletes forwarded records, so that lost offsets could not repeat them.

        The offsets are committed again, as brokers drop old ones (KIP-211).
        """
        self._commit_position()
        self._home.delete_records({self.lane: self._position})

    def _commit_position(self) -> None:
        self._return.begin_batch()
        self._return.emit(PositionsOnly({self.lane: self._position}, {self.lane}))

    def _note_problem(self, fault: RedriveError) -> None:
        self.completed = None
        self.problem = f"messages wait for cluster {self.name}: {fault.message}"
        if time.monotonic() - self._warned_at >= _REMINDER:
            self._warned_at = time.monotonic()
            self._warn("messages wait for another cluster", cluster=self.name, error=fault.message)

    def _producer_here(self, transactional_id: str, batching: Batching) -> KafkaProducer:
        client = self._connections[0].librdkafka()
        return KafkaProducer(client, transactional_id, self._application, batching=batching)

    def _producer_there(self, batching: Batching) -> KafkaProducer:
        # All runs use the same id, so that each fences an older one.
        name, client = self._group_there, self._connections[1].librdkafka()
        return KafkaProducer(client, name, name, batching=batching)

    # -- the cluster for ``redrive.checkpoints.protocol`` -----------------------------------------

    def committed(self, lanes: Sequence[TopicPartition]) -> Mapping[TopicPartition, int | None]:
        """The next offset to forward, as far as either cluster knows."""
        for emitter in (self._forward, self._return):
            emitter.reopen()  # what it left open would hide the offset until it expires
        here = self._home.committed(self._application, lanes, stable=True)
        there = self._there.committed(self._group_there, lanes, stable=True)
        # Ids are never used again: this one proves that records and positions are of one topic.
        if self._home.topic_ids([self._topic]).get(self._topic) != self._topic_id:
            raise RecreatedFault(f"topic {self._topic} was deleted or recreated")
        return {lane: max(here[lane] or 0, there[lane] or 0) for lane in lanes}

    def answers(self, questions: Questions) -> Answers:
        """Nothing is asked."""
        assert not questions, "a forwarded message is decided"
        return Answers()


class _Refusal(Exception):
    """The other cluster refuses some records, which are noted."""


class _Part:
    """Some records, and what is written for each; see ``protocol.TransactionInput``."""

    batch_limit = 1 << 62
    is_packed = False

    def __init__(
        self,
        records: Sequence[StoredRecord],
        written: Sequence[OutputRecord],
        refused: Callable[[Sequence[StoredRecord], Sequence[Refused]], bool] | None = None,
    ) -> None:
        self._records = records
        self._written = written
        self._refused = refused
        self.lane = records[0].lane
        self._begin = 0
        self.has_to_be_split = False

    def lanes(self) -> Sequence[TopicPartition]:
        return [self.lane]

    def resume(self, committed: Mapping[TopicPartition, int | None]) -> None:
        self._begin = committed[self.lane] or 0

    def ends(self) -> Mapping[TopicPartition, int]:
        end = self._records[-1].offset + 1
        return {self.lane: end} if self._begin < end else {}

    def decide(self) -> Questions:
        return Questions()

    @property
    def outputs(self) -> Sequence[tuple[int, OutputRecord]]:
        return [
            (row, record)
            for row, record in enumerate(self._written)
            if self._records[row].offset >= self._begin
        ]

    def learn(self, answers: Answers) -> None:
        """No answer is needed."""

    def refuse(self, refused: Sequence[Refused], doubted: Iterable[str]) -> None:
        del doubted
        if refused and self._refused is None:
            raise TransientFault(f"a message cannot be returned: {refused[0].detail}")
        if refused and self._refused is not None:
            self.has_to_be_split = not self._refused(self._records, refused)

    def split(self) -> Sequence[_Part]:
        half = len(self._records) // 2
        return [
            _Part(self._records[rows], self._written[rows], self._refused)
            for rows in (slice(half), slice(half, None))
        ]


def _forward_of(record: StoredRecord) -> own.Forward | None:
    return own.read_forward(dict(record.headers).get(own.FORWARD))


def _output_of(record: StoredRecord, forward: own.Forward, times: PutTimes) -> OutputRecord:
    headers = [pair for pair in record.headers if pair[0] != own.FORWARD]
    output = OutputRecord(forward.topic, record.key, record.value, headers, record.timestamp, -1)
    own_time = record.original_time
    if own_time != record.timestamp:
        return output  # it has the time of the put already
    is_noted = own.TIMESTAMP in dict(headers)
    output = output._replace(headers=[pair for pair in headers if pair[0] != own.TIMESTAMP])
    return times._replace(may_drift=is_noted).note(output, own_time)
