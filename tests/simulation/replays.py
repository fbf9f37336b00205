"""Replays in schedules: what an operator asks for.

Some are applied by the project's own code, in a process that may die like any other; some are
written at once, so that there are instructions that a job has to be wary of.
"""

from __future__ import annotations

import contextlib
import json
import random
from itertools import pairwise

from tests.simulation.audit import OUTCOMES
from tests.simulation.cluster import SimulatedCluster
from tests.simulation.job import APPLICATION, BACKOFF, REMAINING, REPLAY, RETRY

from redrive.configuration import JobConfiguration
from redrive.engine.commands import Entry, Replay, Span, To, cancelled_entry
from redrive.engine.names import tables_topic
from redrive.errors import ProtocolError
from redrive.kafka.cluster import Cluster
from redrive.messages import OutputRecord, TopicPartition
from redrive.messages import own_headers as own
from redrive.operations.replay.applying import accept
from redrive.operations.replay.plan import Plan, places_of

_TARGET = "ELSEWHERE"
_BEHIND = 0.8
"""Share of the orders that are about messages behind others that wait, if there are any."""
_ABOUT_REMAINING = [target for target in To if not (target.is_about_parked or target is To.GROUP)]
"""No dead letter of the simulation names a group."""
_ABOUT_PARKED = [target for target in To if target.is_about_parked]


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
        to=chance.choice(_ABOUT_REMAINING),
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


def write_order(cluster: SimulatedCluster, chance: random.Random, plan: str) -> Replay | None:
    """Accepts a plan about some parked messages; None if none is.

    Mostly about some behind others that wait, which must not be tried with them.

    Args:
        cluster: The cluster.
        chance: Decides which messages, and what is to be done with them.
        plan: Id of the plan.
    """
    parked = [
        (lane, offset)
        for topic in (RETRY, BACKOFF)
        if topic in cluster.topics
        for lane, offset, *_ in cluster.visible(topic)
    ]
    if not parked:
        return None
    waiting = [
        (lane, offset)
        for lane, offset in parked
        if offset >= cluster.offsets.get((APPLICATION, lane), 0)
    ]
    behind = [second for first, second in pairwise(waiting) if first[0] == second[0]]
    if behind and chance.random() < _BEHIND:
        parked = behind
    named: dict[TopicPartition, set[int]] = {}
    for lane, offset in chance.sample(parked, min(len(parked), chance.randint(1, 4))):
        named.setdefault(lane, set()).add(offset)
    spans = {
        lane: Span(first=0, count=len(offsets), end=max(offsets) + 1, named=frozenset(offsets))
        for lane, offsets in named.items()
    }
    to = chance.choice(_ABOUT_PARKED)
    order = Replay(plan=plan, to=to, operator="ann", accepted=cluster.now(), spans=spans)
    _write_entry(cluster, order.entry())
    return order


def plan_replay(cluster: SimulatedCluster, chance: random.Random, plan: str) -> Plan | None:
    """A plan about some messages that remain, are parked or discarded, or were once; None without.

    Of discarded ones it is one to bring them back.
    """
    outcomes = [json.loads(record.value or b"{}") for *_, record in cluster.visible(OUTCOMES)]
    discarded = sorted(
        {
            outcome["origin"]
            for outcome in outcomes
            if outcome["result"] == "discarded" and outcome["handler"] == "dlq"
        }
    )
    is_undo = bool(discarded) and chance.random() < 0.4
    is_about_parked = not is_undo and chance.random() < 0.4
    if is_undo:
        origins = discarded
    elif is_about_parked:
        parked = [record for topic in (RETRY, BACKOFF) for *_, record in cluster.visible(topic)]
        origins = sorted({own.read_own(record.headers or []).origin for record in parked} - {""})
    else:
        remaining = cluster.visible(REMAINING)
        origins = sorted({(record.key or b"").decode() for *_, record in remaining})
    if not origins:
        return None
    about: list[To] = [*(_ABOUT_PARKED if is_about_parked else _ABOUT_REMAINING)]
    if is_undo:
        about.remove(To.DISCARD)
    chosen = chance.sample(origins, chance.randint(1, len(origins)))
    replay = Replay(plan=plan, to=chance.choice(about), queue=_TARGET, is_undo=is_undo)
    return Plan(
        replay=replay,
        application=APPLICATION,
        created="",
        messages={"dlq": places_of(chosen)},
    )


def apply(job: JobConfiguration, plan: Plan) -> None:
    """The body of a process that applies a plan; it gives up when nothing answers for long."""
    cluster = Cluster(job.connection)
    with contextlib.suppress(ProtocolError):
        accept(job, cluster, plan, operator="ann", purpose="a schedule")


def cancel_replay(cluster: SimulatedCluster, plan: str) -> None:
    _write_entry(cluster, cancelled_entry(plan, "bob"))


def _write_entry(cluster: SimulatedCluster, entry: Entry) -> None:
    key, value = entry
    now = int(cluster.now() * 1000)
    topic = tables_topic(APPLICATION)
    record = OutputRecord(topic, key.encode(), json.dumps(value).encode(), None, now, 0)
    cluster.append(record)
