"""Which lanes are held, and by what, without a broker."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from tests.configurations import handled, job_of, write_settings

from redrive.checkpoints.held import HeldPartition
from redrive.checkpoints.instances import Share
from redrive.configuration.deciders import inhibited_queues
from redrive.messages import TopicPartition
from redrive.settings import read_settings
from redrive.streaming.held_reader import read_held
from redrive.streaming.kept_lanes import held_by_channels, kept_lanes
from redrive.streaming.topics import own_topics


@pytest.mark.parametrize(("get", "is_held"), [("ENABLED", False), ("DISABLED", True)])
def test_a_handler_waits_while_its_queue_has_get_disabled(
    tmp_path: Path, get: str, *, is_held: bool
) -> None:
    """How the rules table is processed, note 6: nothing is taken, what is parked included."""
    path = write_settings(tmp_path, "DLQ", more='[topology]\nfiles = ["QM1.mqsc"]\n')
    script = f"DEFINE QLOCAL(DLQ) GET({get})\nALTER QMGR DEADQ(DLQ)\n"
    (tmp_path / "QM1.mqsc").write_text(script)
    job = read_settings(path).job
    inhibited = inhibited_queues(job)
    assert [queue.place for queue in inhibited.values()] == ["DLQ@QM1"] * is_held
    lane = TopicPartition("QM1--DLQ", 0)
    kept = [
        lane_kept for lane_kept in kept_lanes(job, {lane.topic: 1}, {}) if lane_kept.source == lane
    ]
    channels = [(record.source, record.channel) for record in kept if record.channel]
    held = list(held_by_channels(channels, kept, {lane: 0}))
    assert [(partition.lane, partition.is_running) for partition in held] == [
        (lane, False)
    ] * is_held


def test_a_held_partition_comes_through_the_options_of_its_source() -> None:
    place = TopicPartition("t", 1)
    held = HeldPartition(
        "q", 0, 3, 2, 1.5, ("QM", "TO.B"), is_running=False, paused_by=place, behind=place,
        can_be_released=True, via=(("QM", "TO.C"),), head=place,
    )  # fmt: skip
    plain = HeldPartition("q", 1, 0, 0, None)
    for handler in (held, plain):
        assert read_held(json.loads(json.dumps(asdict(handler)))) == handler


@pytest.mark.parametrize("partitions", [0, 2, 4, 6])
@pytest.mark.parametrize("total", [1, 3])
def test_each_own_partition_belongs_to_one_share_whatever_became_of_its_source(
    partitions: int, total: int
) -> None:
    handler = handled("dlq", "ACTION(RETRY)\n", replay_topic="replay")
    own = {"retry": 4, "remaining": 4, "replay": 4, "retry-backoff": 64}
    layout = {"dlq": partitions} if partitions else {}
    job = job_of(handler)
    wanted = {topic.name: topic.partitions for topic in own_topics(job, layout, own)}
    lanes = Counter(
        lane
        for number in range(1, total + 1)
        for kept_lane in kept_lanes(replace(job, share=Share(number, total)), layout, own)
        for lane in kept_lane.lanes
    )
    every = {**layout, **{name: wanted[name] for name in own}}
    assert lanes == {
        TopicPartition(name, number): 1 for name, count in every.items() for number in range(count)
    }


def test_what_waits_for_a_topic_that_may_not_be_read_stays() -> None:
    job = job_of(handled("dlq", "ACTION(RETRY)\n"))
    assert kept_lanes(job, {}, {"retry": 4, "remaining": 4}, denied={"dlq"}) == []
