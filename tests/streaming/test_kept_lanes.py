"""Which lanes are held, and by what, without a broker."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from tests.configurations import handled, job_of, write_settings

from redrive.checkpoints.clock import SteadyClock
from redrive.checkpoints.epoch import RunIdentity
from redrive.checkpoints.held import (
    HeldChannel,
    HeldInstructions,
    Kept,
    Parked,
    TransmissionQueue,
)
from redrive.checkpoints.instances import Share
from redrive.configuration.deciders import inhibited_queues
from redrive.kafka.connection import Connection
from redrive.messages import TopicPartition
from redrive.settings import read_settings
from redrive.streaming.held_reader import HeldSettings
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
    assert [(partition.lane, partition.channel.is_running) for partition in held] == [
        (lane, False)
    ] * is_held


def test_settings_of_the_held_source_come_through_its_options() -> None:
    lane, place = TopicPartition("q", 0), TopicPartition("t", 1)
    channel = HeldChannel(("QM", "TO.B"), (("QM", "TO.C"),), is_running=False)
    settings = HeldSettings(
        held=(
            Kept(lane, 3, 2, can_be_released=True),
            Parked(lane, 3, interval=1.5, channel=channel),
            TransmissionQueue(lane, 0, channel=channel, paused_by=place, head=place),
            HeldInstructions(lane, 0, behind=place),
        ),
        connection=Connection(bootstrap_servers="localhost:1", sasl_username="me"),
        max_rows=5,
        clock=SteadyClock.of_wall(),
        run=RunIdentity("app", Share(1, 1), 7),
        watched=(place,),
        rate=3.5,
    )
    assert HeldSettings.from_options(settings.options()) == settings


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
