"""The exactly-once protocol: one transaction carries effects, outcomes and source offsets.

Everything here uses small interfaces, without Spark or a Kafka client, so that a simulated cluster
drives the same code through every crash.

The order of one emission, referred to by number below:

1. Verify the producer. Its id is registered, then it is initialised, which fences whatever
   used the id before, then the entry of the share is read: it names this run, or this run is over.
2. Read the committed offsets, and drop every record below them, which is already handled.
3. Decide, ask for missing facts, and decide again, until none are missing.
4. Begin, produce, flush. A verdict about the report follows (``verdicts``).
5. Send the offsets of the lanes, and commit.
6. A refused record aborts the transaction: its attempt has failed, facts about its topic are in
   doubt, and the slice is decided again from step 3.

Delivery reports cost about 10 % and rarely report a failure. So a transaction is first produced
without reports; if it then can't be committed, it is aborted and produced again with reports, which
name the refused records for step 6.

After a lost answer the producer is dropped and the emission starts again at 1 with the same id:
initialising it settles what was in doubt, and the committed offsets show how.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from redrive.engine.facts import Answers, Questions
from redrive.errors import (
    FatalFault,
    FencedFault,
    OutcomeUnknown,
    ProtocolError,
    TransientFault,
)
from redrive.kafka.reports import Batching, FailedRecord, FailureKind, TransactionReport
from redrive.messages import INTERNAL, OutputRecord, Refused, TopicPartition
from redrive.messages.reasons import Reason

_CONDEMNED = (FailureKind.CULPRIT, FailureKind.UNANSWERED)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What to do about a transaction."""

    commit: bool = False
    """Whether it may be committed; if not, it must be aborted."""
    refused: tuple[Refused, ...] = ()
    """Failed attempts, which count whatever else happened to the transaction."""
    doubted: frozenset[str] = frozenset()
    """Topics whose facts may have changed and are read again."""
    fault: ProtocolError | None = None
    """Why this producer cannot continue after the abort; None if it can."""


def verdict_of(report: TransactionReport) -> Verdict:
    """The verdict on a transaction that was flushed, or whose commit was refused.

    A report without single records does not name the refused ones; the transaction must then be
    produced again with reports of them.
    """
    if report.may_commit:
        return Verdict(commit=True)
    refused = tuple(
        Refused(record.entry, record.reason, record.detail)
        for record in report.failed
        if record.kind in _CONDEMNED and record.entry != INTERNAL
    )
    topics = frozenset(record.topic for record in report.failed if record.kind in _CONDEMNED)
    return Verdict(refused=refused, doubted=topics, fault=_fault(report))


def _fault(report: TransactionReport) -> ProtocolError | None:
    for kind, fault in (
        (FailureKind.FATAL, FatalFault),
        (FailureKind.FENCED, FencedFault),
        (FailureKind.TRANSIENT, TransientFault),
    ):
        for record in report.failed:
            if record.kind is kind:
                return fault(record.detail)
    for record in report.failed:
        if record.entry == INTERNAL and record.kind in _CONDEMNED:
            return _own_topic_fault(record)
    return None


def _own_topic_fault(failed: FailedRecord) -> ProtocolError:
    """The fault of a refused record of Redrive's own: nothing can be decided until it is fixed."""
    hint = (
        "check that the outcomes, retry and remaining topics exist, that this user may write to"
        " them, and that their max.message.bytes is not too small"
    )
    fault = FatalFault if failed.reason == Reason.NOT_AUTHORIZED else TransientFault
    return fault(f"the broker refused a record of Redrive's own: {failed.detail}", hint=hint)


class Producer(Protocol):
    """A transactional producer.

    Every method raises ``TransientFault`` when the step may succeed with a new producer,
    ``OutcomeUnknown`` when an answer was lost, ``FencedFault`` when a newer producer of the id was
    opened, and ``FatalFault`` when the broker will never accept it. Every method ends in time.
    """

    @property
    def transactional_id(self) -> str:
        """The id; producers of one id fence each other."""

    def initialise(self) -> None:
        """Fence older producers of the id, and abort their open transactions."""

    @property
    def may_arrive_late(self) -> bool:
        """Whether a request that ends a transaction, or adds offsets, may have been sent twice.

        The first copy may still arrive later and end this producer's next transaction early: the
        records so far would be committed without their offsets, or lost.
        """

    def begin(self) -> None:
        """Begin a transaction."""

    def produce(
        self, outputs: Iterable[tuple[int, OutputRecord]], *, with_reports: bool = True
    ) -> None:
        """Hand over records, each with the entry number that a report will carry.

        Without reports, refusals show only when the transaction cannot be committed. Stops when the
        transaction must be aborted anyway.
        """

    def flush(self) -> TransactionReport:
        """Wait until every record is acknowledged or refused."""

    def send_offsets(self, ends: Mapping[TopicPartition, int]) -> TransactionReport:
        """Add the next offset to read of each lane to the transaction."""

    def commit(self) -> TransactionReport:
        """Commits, unless the report says that the client refused to."""

    def abort(self) -> None:
        """Abort the transaction."""

    def close(self) -> None:
        """Drop the producer; the next one aborts an open transaction."""


class Cluster(Protocol):
    """An emission's questions to the cluster, outside of any transaction.

    Every method raises ``TransientFault`` when no answer came in time.
    """

    def committed(self, lanes: Sequence[TopicPartition]) -> Mapping[TopicPartition, int | None]:
        """The next offset to read of each lane; None where nothing is committed."""

    def answers(self, questions: Questions) -> Answers:
        """An answer to each question."""


class Run(Protocol):
    """The run that an emitter works for."""

    def register(self, transactional_id: str) -> None:
        """Announce an id to later runs, which fence it before they read positions."""

    def check_current(self) -> None:
        """Checks that this run has its share; errors as for ``epoch.check_current``."""


class TransactionInput(Protocol):
    """The content of one transaction: the attempts on the records of some lanes."""

    def lanes(self) -> Sequence[TopicPartition]:
        """The lanes whose offsets this input moves."""

    def resume(self, committed: Mapping[TopicPartition, int | None]) -> None:
        """Drop every record below the committed offset of its lane."""

    def ends(self) -> Mapping[TopicPartition, int]:
        """The next offset to read, of each lane that still has something to commit."""

    def decide(self) -> Questions:
        """Decide with the facts and refusals so far; returns the missing facts."""

    @property
    def outputs(self) -> Sequence[tuple[int, OutputRecord]]:
        """The records to produce, as decided last."""

    @property
    def batch_limit(self) -> int:
        """Largest produce batch for every target, in bytes; 1 for batches of one record."""

    @property
    def is_packed(self) -> bool:
        """Whether a record may fit its topic only if it compresses well."""

    def learn(self, answers: Answers) -> None:
        """Use answers in later decisions."""

    def refuse(self, refused: Sequence[Refused], doubted: Iterable[str]) -> None:
        """Count the attempts of some entries as failed, and doubt facts about topics."""

    @property
    def has_to_be_split(self) -> bool:
        """Whether only smaller transactions can identify the refused record, or fit."""

    def split(self) -> Sequence[TransactionInput]:
        """Two smaller inputs that keep the order of each lane; empty if it cannot be split."""


@dataclass(eq=False)
class PositionsOnly:
    """A ``TransactionInput`` without records: at a start, after markers, against expiry.

    Offsets of a group without members expire after a while (KIP-211), and after the last record of
    a lane there may be transaction markers, which look like waiting records.
    """

    positions: dict[TopicPartition, int]
    """The minimum position of each lane; a lane that is further stays there."""
    moved: Collection[TopicPartition] = frozenset()
    """Lanes that take this position whatever is committed: records were lost, the offsets expired,
    or the topic was recreated under the same name."""
    outputs: Sequence[tuple[int, OutputRecord]] = ()
    batch_limit = 1 << 62
    is_packed = False
    has_to_be_split = False

    def lanes(self) -> Sequence[TopicPartition]:
        """The lanes whose offsets are moved."""
        return list(self.positions)

    def resume(self, committed: Mapping[TopicPartition, int | None]) -> None:
        """Use the committed offset if it is further: progress never goes backwards."""
        for lane, offset in committed.items():
            if offset is not None and lane not in self.moved:
                self.positions[lane] = max(offset, self.positions[lane])

    def ends(self) -> Mapping[TopicPartition, int]:
        """The position of each lane; committing an offset again prevents its expiry."""
        return self.positions

    def decide(self) -> Questions:
        """Nothing is decided."""
        return Questions()

    def learn(self, answers: Answers) -> None:
        """Nothing is asked."""

    def refuse(self, refused: Sequence[Refused], doubted: Iterable[str]) -> None:
        """Nothing can be refused."""

    def split(self) -> Sequence[PositionsOnly]:
        """There is nothing to split."""
        return ()


class Clock(Protocol):
    """The clock of the emission: the module ``time``, simulated in tests."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary start."""

    def sleep(self, seconds: float, /) -> None:
        """Waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often and how long an emission is retried before its batch gives up."""

    initial_interval: float = 0.1
    """Seconds before the second attempt."""
    backoff_coefficient: float = 2.0
    """Factor from one interval to the next."""
    maximum_interval: float = 5.0
    """The longest interval, in seconds."""
    deadline: float = 40.0
    """Seconds after which the last fault is raised: the job then logs what it waits for and starts
    a new run, which fences and begins at the committed offsets."""

    def interval(self, tries: int) -> float:
        """Seconds to wait after ``tries`` failed tries."""
        return min(
            self.maximum_interval, self.initial_interval * self.backoff_coefficient ** (tries - 1)
        )


@dataclass(frozen=True, slots=True)
class FailedTry:
    """One failed and retried attempt of an emission, as its warning describes it."""

    tries: int
    """Number of the attempt, from 1."""
    lanes: tuple[TopicPartition, ...]
    transactional_id: str
    seconds: float
    """Seconds since the first attempt."""
    fault: ProtocolError
    """The step that failed, with Kafka's code."""


@dataclass(slots=True)
class EmissionFigures:
    """Statistics of one emitter since the last call, for monitoring."""

    transactions: list[float] = field(default_factory=list)
    """Seconds of each committed transaction, from its begin to the end of its commit."""
    records: int = 0
    """Records written in them, including Redrive's own."""
    aborted: int = 0
    """Transactions that were aborted, or abandoned with their producer."""
    refused: Counter[int] = field(default_factory=Counter)
    """Refused records by the MQ reason code that the refusal maps to."""
    retries: int = 0
    """Failed attempts of emissions that were retried."""
    opened: int = 0
    """Producers opened: the first one, and one for each that was abandoned."""

    def add(self, other: EmissionFigures) -> None:
        """Add the statistics of another emitter, or later ones of the same emitter."""
        self.transactions += other.transactions
        self.records += other.records
        self.aborted += other.aborted
        self.refused.update(other.refused)
        self.retries += other.retries
        self.opened += other.opened


MAXIMUM_ROUNDS: Final = 8
"""Aborted transactions of one slice before it is halved. Each round names at least one culprit, and
asks about topics that refuse, after which all their records are refused together; so only a broker
that refuses many records one by one gets this far."""

_MAXIMUM_ASKING: Final = 16
"""Maximum decisions of a slice before its facts must be known: an answer can lead to another
target, and that to another, but not forever."""


class Emitter:
    """Carries slices through the protocol, one after the other, with one producer.

    This class is responsible for:
        - the order of the steps, and starting over after a lost answer;
        - taking refused records out of a transaction without harming the others;
        - keeping one producer open from slice to slice.
    """

    def __init__(
        self,
        make_producer: Callable[[Batching], Producer],
        cluster: Cluster,
        run: Run,
        clock: Clock,
        *,
        policy: RetryPolicy | None = None,
        failed: Callable[[FailedTry], None] = lambda _: None,
    ) -> None:
        """Create an emitter without a producer yet.

        The producers that it makes have its transactional id and are not initialised yet. The
        default policy suits a broker restart. ``failed`` is called for every failed attempt that is
        repeated.
        """
        self._make_producer = make_producer
        self._cluster = cluster
        self._run = run
        self._clock = clock
        self._policy = policy or RetryPolicy()
        self._failed = failed
        self._producer: Producer | None = None
        self._batching = Batching()
        self._needed = Batching()
        """How the producer makes produce batches in this batch of the query."""
        self._is_registered = False
        self._with_reports = False
        self._known: dict[TopicPartition, int | None] = {}
        self._figures = EmissionFigures()

    def begin_batch(self) -> None:
        """Drop the known positions, which another process may have moved meanwhile.

        Produce batches become large and fast again if the previous batch needed nothing else.
        """
        if self._needed != self._batching:
            self._batching = self._needed
            self.drop_producer()
        self._needed = Batching()
        self._known.clear()

    def emit(self, work: TransactionInput) -> Sequence[TransactionInput]:
        """Emit ``work`` exactly once, even if answers are lost.

        Returns:
            The committed input: ``work``, or the parts that it was split into.

        Raises:
            TransientFault: The policy's deadline passed. No work is half done, and the
                same records may be emitted again later.
            SupersededFault: A newer run took over.
            FatalFault: The broker refuses for good.
        """
        started = self._clock.monotonic()
        tries = 0
        parts: Sequence[TransactionInput] = ()
        while True:
            try:
                parts = self._emit_once(work)
            except (TransientFault, OutcomeUnknown, FencedFault) as fault:
                tries += 1
                self._note(fault, tries, started, work)
                if self._clock.monotonic() - started > self._policy.deadline:
                    raise TransientFault(fault.message, hint=fault.hint) from fault
                self._clock.sleep(self._policy.interval(tries))
            except BaseException:
                # The transaction may be open: the next producer with the id ends it.
                self.drop_producer()
                raise
            else:
                break
        if not parts:
            return [work]
        return [done for part in parts for done in self.emit(part)]

    def take_figures(self) -> EmissionFigures:
        """The figures since the last call."""
        figures, self._figures = self._figures, EmissionFigures()
        return figures

    def open(self) -> Producer:
        """Step 1; the open producer, verified to belong to this run."""
        if self._producer is not None:
            return self._producer
        producer = self._make_producer(self._batching)
        try:
            # A newer run fences the ids that it finds, so the id is registered before it can write.
            # That run may have looked just before: then it is current afterwards, and not this one.
            if not self._is_registered:
                self._run.register(producer.transactional_id)
                self._is_registered = True
            producer.initialise()
            self._run.check_current()
        except BaseException:
            producer.close()
            raise
        self._producer = producer
        self._figures.opened += 1
        return producer

    def reopen(self) -> None:
        """Open a dropped producer again.

        This ends a transaction that it left open, or that a late request began.
        """
        if self._is_registered:
            self.open()

    def drop_producer(self) -> None:
        """Drop the producer; the next emission opens a new one with the same id."""
        producer, self._producer = self._producer, None
        self._known.clear()
        if producer is not None:
            producer.close()

    def _note(
        self, fault: ProtocolError, tries: int, started: float, work: TransactionInput
    ) -> None:
        name = self._producer.transactional_id if self._producer is not None else ""
        self.drop_producer()
        seconds = self._clock.monotonic() - started
        self._figures.retries += 1
        self._failed(FailedTry(tries, tuple(work.lanes()), name, seconds, fault))

    def _emit_once(self, work: TransactionInput) -> Sequence[TransactionInput]:
        """One attempt; returns the work that is left for smaller transactions."""
        producer = self.open()
        work.resume(self._committed(work.lanes()))  # step 2
        for number in range(MAXIMUM_ROUNDS):
            ends = work.ends()
            if not ends:
                return ()
            self._decide(work)  # step 3
            if work.has_to_be_split:
                break
            producer = self._with_room(Batching(work.batch_limit, work.is_packed))
            # What is committed was decided: an answer or a refusal never adds or drops an input.
            assert work.ends() == ends
            # Step 2 compared each with its committed offset: without a producer nothing is known,
            # as another process may have gone further.
            assert ends.keys() <= self._known.keys()
            # Offsets only grow, or committed records would be emitted twice. Positions without
            # records may stay, and go back where a run starts with lanes that lost records.
            least = {lane: self._known[lane] or 0 for lane in ends}
            if isinstance(work, PositionsOnly):
                assert all(end >= least[lane] or lane in work.moved for lane, end in ends.items())
            else:
                assert all(end > least[lane] for lane, end in ends.items())
            verdict = self._transact(producer, work, ends)
            # A record like a refused one is likely to be refused in the next slice too.
            self._with_reports = number > 0 or not verdict.commit
            if verdict.commit:
                self._known.update(ends)
                self._fence_late_requests(producer)
                return ()
            # Step 6; noted first, since the abort may fail and the work start over.
            work.refuse(verdict.refused, verdict.doubted)
            self._figures.refused.update(refusal.reason for refusal in verdict.refused)
            if isinstance(verdict.fault, FatalFault | FencedFault):
                raise verdict.fault
            producer.abort()
            self._fence_late_requests(producer)
            if verdict.fault is not None:
                raise verdict.fault
            if work.has_to_be_split:
                break
        return self._halved(work)

    def _committed(self, lanes: Sequence[TopicPartition]) -> Mapping[TopicPartition, int | None]:
        """Positions of lanes: read once a batch, then known from our own commits."""
        unknown = [lane for lane in lanes if lane not in self._known]
        if unknown:
            self._known.update(self._cluster.committed(unknown))
        return {lane: self._known[lane] for lane in lanes}

    def _decide(self, work: TransactionInput) -> None:
        for _ in range(_MAXIMUM_ASKING):
            questions = work.decide()
            if not questions:
                return
            work.learn(self._cluster.answers(questions))
            if work.has_to_be_split:
                return
        raise TransientFault("facts about the cluster changed while they were being read")

    def _with_room(self, asked: Batching) -> Producer:
        """The producer, reopened if one of its produce batches would be too large for a target."""
        self._needed = self._needed.joined(asked)
        batching = self._batching.joined(asked)
        if batching != self._batching:
            self._batching = batching
            return self._renew_producer()
        return self.open()

    def _fence_late_requests(self, producer: Producer) -> None:
        """Replace the producer if late copies of its requests may still arrive.

        A copy could end its next transaction; or copies of offsets and of a commit could move its
        lanes back, once other producers went further. So the next producer of the id is opened at
        once: its epoch is newer, and the coordinator refuses them. Brokers that raise the epoch
        with every transaction (KIP-890) need no such care, but librdkafka does not speak that part
        of the protocol.
        """
        if producer.may_arrive_late:
            self._renew_producer()

    def _renew_producer(self) -> Producer:
        """Open another producer of the id while positions are certain."""
        known = dict(self._known)
        self.drop_producer()
        self._known = known
        return self.open()

    def _transact(
        self, producer: Producer, work: TransactionInput, ends: Mapping[TopicPartition, int]
    ) -> Verdict:
        begun = self._clock.monotonic()
        self._figures.aborted += 1  # until it is known to be committed
        producer.begin()
        outputs = work.outputs
        # Only the broker can say whether a record that must be compressed fits, one by one.
        producer.produce(outputs, with_reports=self._with_reports or work.is_packed)
        # Each step waits for the answer to the one before: offsets that are sent while a record is
        # in doubt would let its message be lost.
        verdict = verdict_of(producer.flush())
        if verdict.commit:
            verdict = verdict_of(producer.send_offsets(ends))
        if verdict.commit:
            verdict = verdict_of(producer.commit())
        if verdict.commit:
            self._figures.aborted -= 1
            self._figures.records += len(outputs)
            self._figures.transactions.append(self._clock.monotonic() - begun)
        return verdict

    def _halved(self, work: TransactionInput) -> Sequence[TransactionInput]:
        parts = work.split()
        # A lane that is in no part would be passed over by the next slice's offsets.
        assert not parts or {lane for part in parts for lane in part.lanes()} == {*work.lanes()}
        if not parts:
            raise TransientFault(
                f"the broker made {MAXIMUM_ROUNDS} transactions of one record fail",
                hint="check the broker's log",
            )
        return parts
