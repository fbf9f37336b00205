"""The exactly-once protocol on a simulated cluster that breaks everywhere, from printed seeds."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import pytest
from tests.streaming.simulation import (
    OUTCOMES,
    Calm,
    Chaos,
    OpenQueues,
    ProcessDied,
    SimulatedClock,
    SimulatedCluster,
    SimulatedJob,
    SimulatedProducer,
    ends_of,
    identity_of,
)

from redrive.checkpoints.positions import PositionsOnly
from redrive.checkpoints.protocol import Emitter, RetryPolicy
from redrive.decisions.attempts import Attempts
from redrive.decisions.processor import LaneRecords
from redrive.errors import FatalFault, OutcomeUnknown, TransientFault
from redrive.messages import DeadLetterDecoder, OutputRecord, TopicPartition
from redrive.rules import parse

TABLE = """RETRYINT(10)
REASON(2053) ACTION(RETRY) RETRY(3)
REASON(2035) ACTION(DISCARD)
REASON(2085) ACTION(FWD) FWDQ(ELSEWHERE) HEADER(NO)
REASON(2051) ACTION(IGNORE)
"""


def dead_letter(number: int, reason: int, partition: int) -> OutputRecord:
    """A dead letter in header form."""
    headers: list[tuple[str, bytes | None]] = [
        ("mqdlh.Reason", str(reason).encode()),
        ("mqdlh.DestQName", f"Q{number % 3}".encode()),
    ]
    key = f"k{number % 7}".encode()
    return OutputRecord("DLQ", key, str(number).encode(), headers, 1000 + number, partition)


def loaded_cluster(inputs: int, partitions: int) -> SimulatedCluster:
    """A cluster with dead letters of every kind, some of them for a queue that refuses."""
    cluster = SimulatedCluster()
    for number in range(inputs):
        reason = (2053, 2035, 2085, 2051, 9999)[number % 5]
        cluster.append(dead_letter(number, reason, number % partitions))
    cluster.refuse = lambda record: 2053 if record.topic == "Q0" else None
    return cluster


def run_to_end(cluster: SimulatedCluster, seed: int, rate: float, partitions: int) -> int:
    """Runs processes until nothing is left; returns how many calls broke."""
    table = parse(TABLE).table
    assert table is not None
    chaos, sizes = Chaos(seed, rate), random.Random(seed + 1)
    now, job = 0.0, None
    for _ in range(200_000):
        try:
            if job is None:
                job = SimulatedJob(cluster, table, chaos=chaos, partitions=partitions)
                # The table is the same: what remains is not evaluated again.
                job.released = dict.fromkeys(job.released, 0)
            if job.step(now, limit=sizes.randint(1, 5)) is None:
                due = job.due_at()
                if due is None:
                    return chaos.breaks
                now = max(now, due)
        except (ProcessDied, TransientFault, OutcomeUnknown):
            job = None
    raise AssertionError("the job never came to an end")


@pytest.mark.parametrize("seed", range(60))
def test_every_input_has_one_outcome_and_every_effect_once_whatever_dies(seed: int) -> None:
    """Crashes and lost answers at random calls change nothing that a reader sees."""
    inputs, partitions = 60, 3
    cluster = loaded_cluster(inputs, partitions)
    breaks = run_to_end(cluster, seed, rate=0.1, partitions=partitions)
    calm = loaded_cluster(inputs, partitions)
    run_to_end(calm, seed, rate=0.0, partitions=partitions)
    assert breaks > 0, f"seed {seed} broke nothing"
    for topic in ("Q1", "Q2", "ELSEWHERE", "DLQ-remaining"):
        expected = Counter(identity_of(record) for record in calm.records(topic))
        assert Counter(identity_of(record) for record in cluster.records(topic)) == expected
        assert set(expected.values()) <= {1}
    outcomes = Counter(record.value for record in cluster.records(OUTCOMES))
    keys = Counter((value or b"").split(b",")[0] for value in outcomes.elements())
    assert set(keys.values()) == {1}, "an input has two outcomes"
    assert len(keys) == len(calm.records(OUTCOMES))


@pytest.mark.parametrize("seed", range(20))
def test_messages_that_needed_no_retry_keep_their_order_per_partition(seed: int) -> None:
    """What left a lane at the first attempt is in the order of the lane, in every target."""
    cluster = loaded_cluster(60, 1)
    run_to_end(cluster, seed, rate=0.1, partitions=1)
    for topic in ("Q1", "Q2", "ELSEWHERE"):
        numbers = [int(record.value or b"") for record in cluster.records(topic)]
        assert numbers == sorted(numbers)


def test_a_refused_record_harms_no_other_record_of_its_transaction() -> None:
    """The culprit's attempt fails with the mapped reason; all others are delivered."""
    cluster = loaded_cluster(30, 1)
    table = parse(TABLE).table
    assert table is not None
    job = SimulatedJob(cluster, table)
    summary = job.step(0.0)
    assert summary is not None
    assert {key[2]: count for key, count in summary.results.items() if key[1] == 2} == {
        "retried": 4,
        "parked": 2,
    }
    assert not cluster.records("Q0")


def test_a_late_producer_of_an_earlier_run_is_fenced_at_its_next_call() -> None:
    """A zombie can't commit: opening a producer of the same name ends the older one."""
    cluster = SimulatedCluster()
    zombie = SimulatedProducer(cluster, "job", Calm())
    zombie.begin()
    zombie.produce([(0, OutputRecord("Q", None, b"x", None, 0))])
    SimulatedProducer(cluster, "job", Calm())
    with pytest.raises(FatalFault):
        zombie.commit()
    assert not cluster.records("Q")


def test_records_that_could_not_be_read_are_never_passed_over() -> None:
    """Whatever error ends the reading, the lane's offset does not move beyond what was read."""
    cluster = loaded_cluster(10, 1)
    table = parse(TABLE).table
    assert table is not None
    job = SimulatedJob(cluster, table)
    (part,) = [part for part in job._lanes(0.0, 4) if part.records.offsets]

    def parts() -> Iterator[LaneRecords]:
        yield part
        raise TransientFault("the broker went away")

    work = Attempts(
        parts(), {part.lane: 10}, DeadLetterDecoder(), OpenQueues(), outcomes_topic=OUTCOMES, now=0
    )
    with pytest.raises(RuntimeError, match="could not be read"):
        job.emitter.emit(work)
    assert not cluster.records(OUTCOMES)
    assert part.lane not in cluster.offsets


class Unreachable:
    """A broker that never answers."""

    def committed(self, lanes: object) -> dict[TopicPartition, int | None]:
        del lanes
        raise TransientFault("no answer")


def test_an_outage_is_waited_out_and_given_up_at_the_deadline() -> None:
    """The emission pauses longer and longer, and ends with a fault that may be tried again."""
    clock = SimulatedClock()
    policy = RetryPolicy(deadline=60)
    cluster = SimulatedCluster()
    emitter = Emitter(
        lambda: SimulatedProducer(cluster, "job", Calm()), Unreachable(), clock, policy
    )

    with pytest.raises(TransientFault, match="no answer"):
        emitter.emit(PositionsOnly({TopicPartition("DLQ", 0): 0}))
    assert 60 < clock.now < 70
    assert [policy.interval(n) for n in (1, 2, 3, 10)] == [0.1, 0.2, 0.4, 5.0]


def test_a_replayed_batch_emits_what_is_missing_and_nothing_else() -> None:
    """Records below the committed offset are dropped one by one, not by batch."""
    cluster = loaded_cluster(10, 1)
    table = parse(TABLE).table
    assert table is not None
    SimulatedJob(cluster, table).step(0.0, limit=4)
    before = len(cluster.records(OUTCOMES))
    again = SimulatedJob(cluster, table)
    lane = TopicPartition("DLQ", 0)
    committed, cluster.offsets[lane] = cluster.offsets[lane], 0
    parts = [part for part in again._lanes(0.0, 100) if part.lane == lane]
    cluster.offsets[lane] = committed
    work = Attempts(
        parts, ends_of(parts), DeadLetterDecoder(), OpenQueues(), outcomes_topic=OUTCOMES, now=0
    )
    again.emitter.emit(work)
    assert before == 4
    assert len(cluster.records(OUTCOMES)) == 10
