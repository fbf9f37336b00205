"""Ranges of several partitions are read side by side, and each of them to its end."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any, NamedTuple

import pytest
from confluent_kafka import OFFSET_INVALID
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, not in the stub's list
    AdminClient,
    ListOffsetsResultInfo,
)
from tests.conftest import KafkaClient

from redrive.errors import TransientFault
from redrive.kafka.cluster import Cluster
from redrive.kafka.connection import Connection
from redrive.kafka.records import Readers, read_parts
from redrive.messages import OffsetRange, TopicPartition


def test_each_range_is_read_whole_in_order_and_no_further(kafka: KafkaClient) -> None:
    name = kafka.topic("ranges", partitions=4)
    kafka.produce(
        name,
        [
            {"value": b"%d" % n, "partition": p}
            for p, count in ((0, 5), (1, 3000))
            for n in range(count)
        ],
    )
    kafka.produce(name, [{"value": b"0", "partition": 2}])
    asked = [
        OffsetRange(name, 0, 2, 4),
        OffsetRange(name, 1, 10, 2500),
        OffsetRange(name, 2, 0, 1),
        OffsetRange(name, 3, 0, 0),
    ]
    connection = kafka.connection
    for _ in range(2):
        by_partition: dict[int, list[int]] = {}
        for lane, records in read_parts(connection, asked):
            by_partition.setdefault(lane.partition, []).extend(
                int(value or b"") for value in records.values
            )
        assert by_partition == {0: [2, 3], 1: list(range(10, 2500)), 2: [0]}


def test_a_range_that_is_not_there_is_not_passed_over(
    kafka: KafkaClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redrive.kafka.records.SILENCE", 1.0)
    name = kafka.topic("ranges", partitions=2)
    kafka.produce(name, [{"value": b"x", "partition": 0}])
    asked = [OffsetRange(name, 0, 0, 1), OffsetRange(name, 1, 0, 2)]
    connection = kafka.connection
    read = read_parts(connection, asked)
    assert next(read)[1].values == [b"x"]
    with pytest.raises(TransientFault, match=f"{name}:1 returned nothing from offset 0 on"):
        list(read)


class Interleaved:
    """A client that gives the records of several partitions in turns."""

    def __init__(self, _: object) -> None:
        self.left: list[Stored] = []

    def assign(self, lanes: list[ClientPartition]) -> None:
        ends = {lane.partition: range(lane.offset, 6) for lane in lanes}
        self.left = [Stored(n, offset) for offset in range(6) for n in ends if offset in ends[n]]

    def consume(self, most: int, timeout: float) -> list[Stored]:
        del timeout
        given, self.left = self.left[:most], self.left[most:]
        return given

    def incremental_unassign(self, _: object) -> None:
        pass


class Stored(NamedTuple):
    """A record of the client."""

    number: int
    at: int

    def topic(self) -> str:
        return "turns"

    def partition(self) -> int:
        return self.number

    def offset(self) -> int:
        return self.at

    def error(self) -> None:
        return None


@pytest.mark.parametrize("lanes", [1, 2, 3])
def test_no_run_of_a_partition_is_lost_if_the_client_takes_turns(
    lanes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redrive.kafka.records.Consumer", Interleaved)
    starts = {TopicPartition("turns", number): 0 for number in range(lanes)}
    runs = Readers(Connection(bootstrap_servers="nowhere")).read(starts, dict.fromkeys(starts, 5))
    by_partition: dict[int, list[int]] = {}
    for run in runs:
        by_partition.setdefault(run.lane.partition, []).extend(
            message.offset() or 0 for message in run.messages
        )
    assert by_partition == {number: [0, 1, 2, 3, 4] for number in range(lanes)}


def test_an_offset_that_the_client_does_not_know_is_asked_for_again(
    kafka: KafkaClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says -1001 then, without an error, which would make a full topic look empty."""
    lane = TopicPartition(kafka.topic("full"), 0)
    kafka.produce(lane.topic, [{"value": b"%d" % number} for number in range(3)])
    asked: list[Any] = []
    list_offsets = AdminClient.list_offsets

    def forgetful(self: AdminClient, places: Any, **named: Any) -> Any:
        asked.append(places)
        answers = list_offsets(self, places, **named)
        if len(asked) > 1:
            return answers
        unknown: Future[ListOffsetsResultInfo] = Future()
        unknown.set_result(ListOffsetsResultInfo(OFFSET_INVALID, -1, -1))
        return dict.fromkeys(answers, unknown)

    monkeypatch.setattr(AdminClient, "list_offsets", forgetful)
    with Cluster(kafka.connection) as cluster:
        assert cluster.ends([lane]) == {lane: 3}
    assert len(asked) == 2
