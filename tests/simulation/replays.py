"""Replays in schedules: what an operator asks for.

Some are applied by the project's own code, in a process that may die like any other; some are
written at once, so that there are instructions that a job has to be wary of.
"""

from __future__ import annotations

import contextlib
import json
import random

from tests.simulation.cluster import SimulatedCluster
from tests.simulation.job import APPLICATION, REMAINING, REPLAY

from redrive.configuration import JobConfiguration
from redrive.errors import ProtocolError
from redrive.kafka.cluster import Cluster
from redrive.messages import OutputRecord, TopicPartition
from redrive.messages import own_headers as own
from redrive.operations.replay.instructions import Instructions
from redrive.operations.replay.plan import Order, ReplayPlan, places_of
from redrive.topology.names import Names, control_topic
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


def plan_replay(cluster: SimulatedCluster, chance: random.Random, plan: str) -> ReplayPlan | None:
    """A plan about some messages that remain, or did once; None if there is none."""
    origins = sorted({(record.key or b"").decode() for *_, record in cluster.visible(REMAINING)})
    if not origins:
        return None
    chosen = chance.sample(origins, chance.randint(1, len(origins)))
    order = Order(to=chance.choice(list(To)), target=Names(queue=_TARGET))
    return ReplayPlan(
        plan=plan,
        application=APPLICATION,
        created="",
        order=order,
        messages={"dlq": places_of(chosen)},
    )


def apply(job: JobConfiguration, plan: ReplayPlan) -> None:
    """The body of a process that applies a plan; it gives up when nothing answers for long."""
    cluster = Cluster(job.connection)
    with contextlib.suppress(ProtocolError):
        Instructions(job, cluster, plan, operator="ann", purpose="a schedule").write()


def cancel_replay(cluster: SimulatedCluster, plan: str) -> None:
    """Cancels what is left of a plan."""
    _write_entry(cluster, cancelled_entry(plan, "bob"))


def _write_entry(cluster: SimulatedCluster, entry: Entry) -> None:
    key, value = entry
    now = int(cluster.now() * 1000)
    topic = control_topic(APPLICATION)
    record = OutputRecord(topic, key.encode(), json.dumps(value).encode(), None, now, 0)
    cluster.append(record)
