"""``redrive show``: the message behind an outcome, where some of its partitions have no leader."""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.outcomes.small_job import SmallJob

from redrive.kafka.records import StoredRecord
from redrive.messages import DeadLetterHeader, encode_header
from redrive.outcomes.history import Archive, History, Lost


def test_a_message_is_found_where_a_broker_leads_a_partition(
    small_job: SmallJob, without_leader: Callable[..., None]
) -> None:
    header = DeadLetterHeader(reason=2053, dest_q_name="NOWHERE", format="MQSTR")
    identity = small_job.identity
    small_job.kafka.produce(
        identity.topic, [{"value": encode_header(header) + b"body", "partition": 0}]
    )
    small_job.step(int(time.time() * 1000))
    archive = Archive(small_job.configuration)
    story = archive.history(f"{identity.topic}:0:0")
    assert isinstance(story, History)

    def lane_of(*leaderless: str) -> str:
        without_leader(*leaderless)
        record = archive.record(story.last)
        assert isinstance(record, StoredRecord)
        return str(record.lane)

    elsewhere = [f"{topic}:1" for topic in (identity.topic, *identity.waiting_topics)]
    assert lane_of(*elsewhere) == f"{identity.topic}:0"
    assert lane_of(f"{identity.topic}:0") == f"{identity.retry_topic}:0"
    without_leader(f"{identity.topic}:0", f"{identity.retry_topic}:0")
    lost = archive.record(story.last)
    assert isinstance(lost, Lost)
    assert f"{identity.topic}:0, {identity.retry_topic}:0" in lost.reason
