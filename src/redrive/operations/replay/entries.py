"""The entries of accepted plans on the tables topic.

Every plan has its own transactional id: concurrent commands for the same plan fence each other, so
its entry, and what is written with it, is written once.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

from redrive.checkpoints.states import StatesWriter
from redrive.configuration import JobConfiguration
from redrive.engine.commands import Replay, read_replays
from redrive.errors import FencedFault, OutcomeUnknown, TransientFault
from redrive.kafka.cluster import Cluster
from redrive.kafka.deadline import AGAIN, PATIENCE
from redrive.operations.states import ensure_topics, read_decisions


def read_accepted(job: JobConfiguration, cluster: Cluster) -> dict[str, Replay]:
    """Every accepted replay by the id of its plan; for part of a job, its own."""
    replays = read_replays(read_decisions(job, cluster))
    if job.only_handlers is None:
        return replays
    topics = {handler.identity.replay_topic for handler in job.handlers}
    return {
        plan: replay
        for plan, replay in replays.items()
        if replay.spans and {lane.topic for lane in replay.spans} <= topics
    }


def write_with_retry(
    job: JobConfiguration, cluster: Cluster, plan: str, write: Callable[[StatesWriter], Replay]
) -> Replay:
    """The result of ``write``, retried while the broker does not answer or another command applies.

    ``write`` gets a producer that has fenced all others for the plan. The transaction of an earlier
    one has ended, and ``write`` adds what is missing.

    Raises:
        TransientFault: The broker did not answer for a minute. Apply the plan again to continue.
    """
    failing_since = time.monotonic()
    while True:
        before = _instructed_count(job, cluster, plan)
        try:
            with _writer(job, cluster, plan) as states:
                return write(states)
        except (TransientFault, FencedFault, OutcomeUnknown):
            # Another command that applies the same plan fences us, and we fence it.
            if _instructed_count(job, cluster, plan) != before:
                failing_since = time.monotonic()
            if time.monotonic() - failing_since > PATIENCE:
                raise
            time.sleep(AGAIN)


def _instructed_count(job: JobConfiguration, cluster: Cluster, plan: str) -> int:
    with contextlib.suppress(TransientFault):
        accepted = read_accepted(job, cluster).get(plan)
        return 0 if accepted is None else accepted.instructed
    return 0


def _writer(job: JobConfiguration, cluster: Cluster, plan: str) -> StatesWriter:
    if not {job.control_topic, job.tables_topic} <= cluster.topics().keys():
        ensure_topics(job)
    lanes = cluster.lanes(handler.identity.replay_topic for handler in job.handlers)
    return StatesWriter(cluster, job.application, f"replay-{plan}", lanes=lanes)
