"""Each handler has a state of its own."""

from __future__ import annotations

from collections.abc import Collection

from tests.configurations import handled, job_of
from tests.kafka.known_topics import KnownTopics

from redrive.messages import TopicPartition
from redrive.operations.handlers import HandlerState, HandlerWatch

NOW = 1_800_000_000.0
ORDERS, BILLS = TopicPartition("orders.dlq", 0), TopicPartition("bills.dlq", 0)
RUNNING, STOPPED = HandlerState.RUNNING, HandlerState.STOPPED


def test_a_handler_that_does_not_move_is_stopped_whatever_others_do() -> None:
    job = job_of(
        handled("orders.dlq", name="orders"),
        handled("bills.dlq", name="bills"),
        handled("absent.dlq", name="absent"),
        stalled_after=60.0,
    )
    positions = {ORDERS: 1, BILLS: 1}
    topics = KnownTopics({ORDERS: [(0, b"")] * 9, BILLS: [(0, b"")] * 9}, positions=positions)
    watch = HandlerWatch(topics)  # type: ignore[arg-type]
    looks = []
    for seconds, orders, bills in ((0, 1, 1), (59, 2, 1), (60, 3, 1), (90, 3, 2), (149, 9, 2)):
        positions |= {ORDERS: orders, BILLS: bills}
        states = watch.look(job, NOW + seconds)
        assert states["absent"] is HandlerState.WAITING
        looks.append((states["orders"], states["bills"]))
    assert looks == [
        (RUNNING, RUNNING), (RUNNING, RUNNING), (RUNNING, STOPPED), (RUNNING, RUNNING),
        (RUNNING, RUNNING),
    ]  # fmt: skip


def test_markers_and_partitions_without_a_leader() -> None:
    job = job_of(handled("orders.dlq", name="orders"), stalled_after=60.0)

    class Markers(KnownTopics):
        def ends(self, lanes: Collection[TopicPartition], **_: object) -> dict[TopicPartition, int]:
            return dict.fromkeys(lanes, 5)

    class Leaderless(KnownTopics):
        def led(self, _: Collection[str]) -> tuple[list[TopicPartition], frozenset[TopicPartition]]:
            return [], frozenset({ORDERS})

    for kind, state in ((Markers, RUNNING), (Leaderless, STOPPED)):
        watch = HandlerWatch(kind({ORDERS: [(0, b"")] * 4}, positions={ORDERS: 4}))  # type: ignore[arg-type]
        assert watch.look(job, NOW) == {"orders": RUNNING}
        assert watch.look(job, NOW + 60) == {"orders": state}
