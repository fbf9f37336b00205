"""What topics will delete before it is handled."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.configurations import handled, job_of
from tests.conftest import KafkaClient
from tests.kafka.known_topics import KnownTopics

from redrive.configuration import JobConfiguration
from redrive.messages import TopicPartition
from redrive.operations.retention import (
    FOREVER,
    DiscardedMessages,
    Waiting,
    discarded_messages,
    expiring_of,
    held_until,
    waiting_on_topics,
)
from redrive.outcomes.selection import Selection, State

NOW = 1_800_000_000.0
HOUR = 3600.0
DLQ, RETRY, REMAINING = "orders.dlq", "retry", "remaining"


def topics_of(
    times: Mapping[TopicPartition, list[float]],
    settings: Mapping[str, Mapping[str, str]],
    positions: Mapping[TopicPartition, int] | None = None,
) -> KnownTopics:
    """Topics with records of these times, from offset 100 on."""
    logs = {lane: [(int(1000 * seconds), b"") for seconds in some] for lane, some in times.items()}
    return KnownTopics(logs, begin=100, settings=settings, positions=positions or {})


def kept(hours: float, policy: str = "delete") -> dict[str, str]:
    """Settings of a topic."""
    return {"retention.ms": str(int(hours * 3_600_000)), "cleanup.policy": policy}


def job(alarm: float = 24.0, **more: Any) -> JobConfiguration:
    return job_of(handled(DLQ, name="orders"), retention_alarm=alarm, **more)


def found_by(topics: KnownTopics, wanted: JobConfiguration | None = None) -> dict[str, Waiting]:
    """What waits, by topic."""
    topics_waiting = waiting_on_topics(wanted or job(), topics, NOW)  # type: ignore[arg-type]
    return {topic.topic: topic for topic in topics_waiting}


AGES = st.lists(st.integers(0, int(400 * HOUR)), max_size=8).map(
    lambda ages: sorted(ages, reverse=True)
)


@given(
    st.lists(AGES, min_size=1, max_size=3),
    st.lists(st.integers(90, 130), min_size=3, max_size=3),
    st.floats(1, 300),
    st.floats(0.1, 200),
)
def test_a_message_counts_if_its_topic_deletes_it_within_the_time(
    partitions: list[list[float]], committed: list[int], retention: float, alarm: float
) -> None:
    records = {
        TopicPartition(DLQ, number): [NOW - age for age in ages]
        for number, ages in enumerate(partitions)
    }
    stands = {lane: committed[lane.partition] for lane in records}
    waiting = found_by(topics_of(records, {DLQ: kept(retention)}, stands), job(alarm))[DLQ]
    unread = [
        time
        for lane, times in records.items()
        for offset, time in enumerate(times, 100)
        if offset >= stands[lane]
    ]
    keeps = int(retention * 3_600_000) / 1000
    # The broker gets times in whole milliseconds.
    edge = int(1000 * (NOW - keeps + min(alarm * HOUR, keeps / 2)))
    soon = [time for time in unread if 1000 * time < edge]
    assert (waiting.messages, waiting.retention, waiting.expiring) == (
        len(unread),
        keeps,
        len(soon),
    )
    if soon:
        assert waiting.first == pytest.approx(min(soon) + keeps, abs=0.01)
    else:
        assert waiting.first is None


@pytest.mark.parametrize("policy", ["compact", ""])
def test_only_what_is_deleted_for_its_age_expires(policy: str) -> None:
    old = [NOW - 1000 * HOUR]
    lanes = {TopicPartition(topic, 0): old for topic in (DLQ, RETRY, REMAINING)}
    settings = {RETRY: {"retention.ms": "-1"}, REMAINING: kept(1, policy)}
    by_topic = found_by(topics_of(lanes, settings))
    assert {topic: waiting.retention for topic, waiting in by_topic.items()} == {
        DLQ: None, RETRY: FOREVER, REMAINING: FOREVER,
    }  # fmt: skip
    assert all(waiting.expiring == 0 and waiting.first is None for waiting in by_topic.values())
    assert [waiting.topic for waiting in by_topic.values() if waiting.is_own] == [RETRY, REMAINING]


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
def test_parked_and_remaining_messages_expire_too_where_topics_were_changed(policy: str) -> None:
    lanes = {TopicPartition(topic, 0): [NOW - 99 * HOUR] for topic in (RETRY, REMAINING)}
    by_topic = found_by(topics_of(lanes, dict.fromkeys((RETRY, REMAINING), kept(100, policy))))
    for waiting in by_topic.values():
        assert waiting.expiring == 1
        assert waiting.sentence(NOW) == (
            f"{waiting.topic} deletes up to 1 message before handling, the first in 1 h:"
            " it keeps them for 4 d 4 h"
        )


def test_a_real_broker_says_what_expires(kafka: KafkaClient) -> None:
    dlq = kafka.topic("dlq", config={"retention.ms": str(10 * 86_400_000)})
    now = time.time()
    days = (9.9, 9.5, 2.0, 0.0)
    kafka.produce(
        dlq, [{"value": b"x", "timestamp_ms": int(1000 * (now - 86_400 * age))} for age in days]
    )
    base = job()
    identity = replace(base.handlers[0].identity, topic=dlq)
    configuration = replace(
        base,
        connection=kafka.connection,
        handlers=(replace(base.handlers[0], identity=identity),),
    )
    (waiting,) = expiring_of(configuration, now)
    assert (waiting.topic, waiting.messages, waiting.expiring, waiting.retention) == (
        dlq,
        4,
        2,
        864_000.0,
    )
    assert waiting.first == pytest.approx(now + 0.1 * 86_400, abs=1)


def test_nothing_is_asked_for_without_an_alarm() -> None:
    topics = topics_of({TopicPartition(DLQ, 0): [NOW - 99 * HOUR]}, {DLQ: kept(100)})
    assert found_by(topics, job(0.0))[DLQ].expiring == 0


def test_a_job_that_begins_at_the_end_has_no_backlog() -> None:
    lane = TopicPartition(DLQ, 0)
    topics = topics_of({lane: [NOW - 99 * HOUR] * 3}, {DLQ: kept(100)})
    assert found_by(topics, job(starting_offsets="latest"))[DLQ].messages == 0
    seen = replace(topics, positions={lane: 101})
    assert found_by(seen, job(starting_offsets="latest"))[DLQ].messages == 2


def test_that_the_first_cannot_be_read_hides_nothing() -> None:
    topics = topics_of({TopicPartition(DLQ, 0): [NOW - 99 * HOUR]}, {DLQ: kept(100)})
    waiting = found_by(replace(topics, is_silent=True))[DLQ]
    assert (waiting.expiring, waiting.first) == (1, None)
    assert "before handling: it keeps" in waiting.sentence(NOW)
    assert "at any time" in replace(waiting, first=NOW - 1).sentence(NOW)


@pytest.mark.parametrize(
    ("settings", "until"),
    [
        (kept(2), datetime.fromtimestamp(NOW + 2 * HOUR, UTC)),
        (kept(2, "compact"), None),
        ({"retention.ms": "-1"}, None),
        ({"retention.ms": str(2**63 - 1)}, None),
        ({}, None),
    ],
)
def test_a_topic_holds_its_records_until_the_first_may_be_deleted(
    settings: dict[str, str], until: datetime | None
) -> None:
    lanes = [TopicPartition(DLQ, number) for number in range(2)]
    topics: Any = topics_of({lanes[0]: [NOW + HOUR], lanes[1]: [0, NOW]}, {DLQ: settings})
    known = held_until(topics, {lanes[0]: 100, lanes[1]: 101})
    assert known == ({} if until is None else {DLQ: until})
    held = DiscardedMessages(topic=DLQ, held=2, gone=1, until=known.get(DLQ))
    first, second = held.sentences()
    time_text = "" if until is None else ", the first of them until 2027-01-15 10:00 UTC"
    assert first.startswith(f"{DLQ} still holds 2 discarded messages{time_text}; ")
    assert second == f"1 message is gone from {DLQ}, which has deleted it"


def test_without_a_broker_nothing_is_said_of_discarded_messages() -> None:
    inventory: Any = None
    assert discarded_messages(job(), inventory, Selection(state=State.DISCARDED)) == ()
