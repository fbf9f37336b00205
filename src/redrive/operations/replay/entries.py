"""The entries of accepted plans on the tables topic.

Every plan has a transactional id of its own: commands that apply it at the same moment fence each
other, so its entry, and what is written with it, is written once.
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
    """Every replay that was accepted, by the id of its plan; of a part of a job, its own."""
    found = read_replays(read_decisions(job, cluster))
    if job.only_handlers is None:
        return found
    topics = {one.identity.replay_topic for one in job.handlers}
    return {
        plan: one
        for plan, one in found.items()
        if one.spans and {lane.topic for lane in one.spans} <= topics
    }


def write_with_retry(
    job: JobConfiguration, cluster: Cluster, plan: str, write: Callable[[StatesWriter], Replay]
) -> Replay:
    """The result of ``write``, retried while the broker is silent or another command applies.

    ``write`` gets a producer that fenced every other for the plan: what an earlier one wrote is
    settled, and it writes what is not written yet.

    Raises:
        TransientFault: The broker gave no answer for a minute. Applying the plan again goes on.
    """
    failing_since = time.monotonic()
    while True:
        before = _instructed_count(job, cluster, plan)
        try:
            with _writer(job, cluster, plan) as states:
                return write(states)
        except (TransientFault, FencedFault, OutcomeUnknown):
            # Another command that applies the same plan now fences us, and we fence it.
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
    lanes = cluster.lanes(one.identity.replay_topic for one in job.handlers)
    return StatesWriter(cluster, job.application, f"replay-{plan}", lanes=lanes)
