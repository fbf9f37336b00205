"""The exactly-once protocol: one transaction carries effects, outcomes and source offsets.

Everything here works behind small seams, without Spark and without a Kafka client, so that a
simulated broker drives the very same code through every crash (design 6).

The order of one emission, referred to by number below:

1. Make sure of the producer. Opening it fences whatever used its transactional id before.
2. Read the committed offsets, and drop every record below them: they had their effects.
3. Begin, produce, flush.
4. A refused record aborts the transaction; its attempt has failed, the others are redone.
5. Send the offsets of the lanes and commit.

To hear of each record what became of it costs a tenth of the time, and hardly ever is there news.
So a transaction is first produced without reports; if it then can't be committed, it is aborted and
produced again with reports, which name the refused records for step 4.

After a lost answer the producer is dropped and the emission starts again at 1: opening it anew
settles what was in doubt, and the committed offsets tell how it was settled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from redrive.errors import FatalFault, OutcomeUnknown, TransientFault
from redrive.messages import INTERNAL, OutputRecord, Refused, TopicPartition


@dataclass(frozen=True, slots=True)
class Flushed:
    """What became of the records produced since ``begin``."""

    refused: tuple[Refused, ...] = ()
    """The culprits."""
    spoiled: bool = False
    """Whether the transaction has to be aborted, be it only for innocent records."""


class Spoiled(TransientFault):
    """Records that were handed over without reports were refused: the transaction has to end."""


class Producer(Protocol):
    """A transactional producer, initialised: everything older with its id is fenced.

    Every method raises ``TransientFault`` when the step may succeed with a new producer,
    ``OutcomeUnknown`` when an answer was lost, and ``FatalFault`` when the process must stop.
    """

    def begin(self) -> None:
        """Begins a transaction."""

    def produce(
        self, outputs: Iterable[tuple[int, OutputRecord]], *, with_reports: bool = True
    ) -> None:
        """Hands over records, each with the entry number a refusal will carry.

        Without reports, refusals show only when the transaction can't be committed.
        """

    def flush(self) -> Flushed:
        """Waits until every record is acknowledged or refused."""

    def send_offsets(self, ends: Mapping[TopicPartition, int]) -> None:
        """Adds the next offset to read of each lane to the transaction.

        Raises:
            Spoiled: A record that was handed over without a report was refused.
        """

    def commit(self) -> None:
        """Commits the transaction.

        Raises:
            Spoiled: A record that was handed over without a report was refused.
        """

    def abort(self) -> None:
        """Aborts the transaction."""

    def close(self) -> None:
        """Lets go of the producer; an open transaction is left for the next one to abort."""


class CommittedOffsets(Protocol):
    """Where the lanes stand, as the broker knows it."""

    def committed(self, lanes: Sequence[TopicPartition]) -> Mapping[TopicPartition, int | None]:
        """The next offset to read of each lane; None where nothing was ever committed.

        Raises:
            TransientFault: The broker gave no answer in time.
        """


class Work(Protocol):
    """What one transaction is to carry: the attempts on the records of some lanes."""

    def lanes(self) -> Sequence[TopicPartition]:
        """The lanes whose offsets this work moves."""

    def resume(self, committed: Mapping[TopicPartition, int | None]) -> None:
        """Drops every record below the committed offset of its lane."""

    def ends(self) -> Mapping[TopicPartition, int]:
        """The next offset to read, of each lane that still has something to commit."""

    def outputs(self) -> Iterable[tuple[int, OutputRecord]]:
        """The records to produce, as decided with every refusal so far."""

    def refuse(self, refusals: Sequence[Refused]) -> None:
        """Counts the attempts of these entries as failed and decides them again."""


class Clock(Protocol):
    """Time as the emission sees it; simulated in tests."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary start."""

    def sleep(self, seconds: float) -> None:
        """Waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often and how long one emission is tried before the job gives up on it."""

    initial_interval: float = 0.1
    """Seconds before the second try."""
    backoff_coefficient: float = 2.0
    """Factor from one interval to the next."""
    maximum_interval: float = 5.0
    """Seconds that no interval exceeds."""
    deadline: float = 120.0
    """Seconds after which the last fault is raised."""

    def interval(self, tries: int) -> float:
        """Seconds to wait after ``tries`` failed tries."""
        return min(
            self.maximum_interval, self.initial_interval * self.backoff_coefficient ** (tries - 1)
        )


MAXIMUM_ROUNDS = 64
"""Aborted transactions in one emission. Each round names at least one culprit, or follows one
whose abort spoiled the next transaction (a known habit of the client), so a batch with a few bad
destinations needs a handful; this only bounds a broker that refuses everything one by one."""


class Emitter:
    """Carries works through the protocol, one after the other, with one producer.

    This class is responsible for:
        - the order of the steps, and starting over after a lost answer;
        - taking refused records out of a transaction without harming the others;
        - keeping one producer open from work to work.
    """

    def __init__(
        self,
        open_producer: Callable[[], Producer],
        committed: CommittedOffsets,
        clock: Clock,
        policy: RetryPolicy | None = None,
    ) -> None:
        """Create an emitter without a producer yet.

        Args:
            open_producer: Opens and initialises a producer with this emitter's transactional id.
            committed: Reads the committed offsets of the group.
            clock: Time.
            policy: When to give up; the default suits a broker restart.
        """
        self._open_producer = open_producer
        self._committed = committed
        self._clock = clock
        self._policy = policy or RetryPolicy()
        self._producer: Producer | None = None
        self._with_reports = False

    def emit(self, work: Work) -> None:
        """Emits ``work`` exactly once, whatever answer gets lost.

        Raises:
            TransientFault: The policy's deadline passed; nothing of the work is half done, and
                the same records may be emitted again later.
            FatalFault: Fenced by a newer instance, or refused for good.
        """
        started = self._clock.monotonic()
        tries = 0
        while True:
            try:
                self._emit_once(work)
            except (TransientFault, OutcomeUnknown) as fault:
                self.drop_producer()
                tries += 1
                if self._clock.monotonic() - started > self._policy.deadline:
                    raise TransientFault(fault.message, hint=fault.hint) from fault
                self._clock.sleep(self._policy.interval(tries))
            except BaseException:
                self.drop_producer()
                raise
            else:
                return

    def open(self) -> Producer:
        """Opens the producer now, which fences every older one with the same id."""
        if self._producer is None:
            self._producer = self._open_producer()
        return self._producer

    def drop_producer(self) -> None:
        """Lets go of the producer; the next emission opens a new one with the same id."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.close()

    def _emit_once(self, work: Work) -> None:
        producer = self.open()  # step 1
        work.resume(self._committed.committed(work.lanes()))  # step 2
        if work.ends():
            self._transact(producer, work)

    def _transact(self, producer: Producer, work: Work) -> None:
        for number in range(MAXIMUM_ROUNDS):
            producer.begin()
            producer.produce(work.outputs(), with_reports=self._with_reports)
            flushed = producer.flush()  # step 3
            if not flushed.spoiled and self._commits(producer, work):
                # What was refused once is likely to be refused in the next batch too.
                self._with_reports = number > 0
                return
            self._with_reports = True
            self._check_own_topics(flushed.refused)
            # Step 4; noted first, since the abort may fail and the work start over.
            work.refuse(flushed.refused)
            producer.abort()
        raise TransientFault(
            f"the broker made {MAXIMUM_ROUNDS} transactions of one batch fail",
            hint="look at the outcomes of the batch and at the broker's log",
        )

    @staticmethod
    def _commits(producer: Producer, work: Work) -> bool:
        """Step 5; False if it shows now that records were refused."""
        try:
            producer.send_offsets(work.ends())
            producer.commit()
        except Spoiled:
            return False
        return True

    @staticmethod
    def _check_own_topics(refused: Sequence[Refused]) -> None:
        own = [refusal for refusal in refused if refusal.entry == INTERNAL]
        if own:
            raise FatalFault(
                f"the broker refused a record of Redrive's own topics: {own[0].detail}",
                hint="check that the outcomes, retry and remaining topics exist, that this user"
                " may write to them, and that their max.message.bytes is not too small",
            )
