"""Replays in schedules: what an operator asks for, as ``redrive replay apply`` writes it."""

from __future__ import annotations

import json
import random

from tests.simulation.cluster import SimulatedCluster
from tests.simulation.job import APPLICATION, REMAINING, REPLAY

from redrive.messages import OutputRecord, TopicPartition
from redrive.messages import own_headers as own
from redrive.topology.names import control_topic
from redrive.topology.replays import Entry, Replay, Span, To, cancelled_entry

_TARGET = "ELSEWHERE"


def write_replay(cluster: SimulatedCluster, chance: random.Random, plan: str) -> Replay | None:
    """Accepts a plan about some remaining copies, some of which may be gone; None if none is.

    Copies that are asked for twice, and copies that were placed long ago, are what a job has to
    tell apart.

    Args:
        cluster: The cluster.
        chance: Decides which copies, and what is to be done with them.
        plan: Id of the plan.
    """
    copies = [
        (lane.partition, record)
        for lane, _, _, record in cluster.visible(REMAINING)
        if record.value is not None
    ]
    if not copies:
        return None
    chosen = [chance.choice(copies) for _ in range(chance.randint(1, 4))]
    lanes = {TopicPartition(REPLAY, number) for number, _ in chosen}
    replay = Replay(
        plan=plan,
        to=chance.choice(list(To)),
        queue=_TARGET,
        operator="ann",
        spans={lane: Span(first=cluster.end(lane), count=1) for lane in lanes},
    )
    _write_entry(cluster, replay.entry())
    for number, copy in chosen:
        headers = [*(copy.headers or []), (own.REPLAY, plan.encode())]
        now = int(cluster.now() * 1000)
        cluster.append(OutputRecord(REPLAY, copy.key, copy.value, headers, now, number))
    return replay


def cancel_replay(cluster: SimulatedCluster, plan: str) -> None:
    """Cancels what is left of a plan."""
    _write_entry(cluster, cancelled_entry(plan, "bob"))


def _write_entry(cluster: SimulatedCluster, entry: Entry) -> None:
    key, value = entry
    now = int(cluster.now() * 1000)
    topic = control_topic(APPLICATION)
    record = OutputRecord(topic, key.encode(), json.dumps(value).encode(), None, now, 0)
    cluster.append(record)
