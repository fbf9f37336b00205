"""Applying any plan: the one call that a command makes."""

from __future__ import annotations

from collections.abc import Callable

from redrive.configuration import JobConfiguration
from redrive.engine.commands import Replay
from redrive.kafka.cluster import Cluster
from redrive.operations.replay.instructions import Instructions
from redrive.operations.replay.parked import ParkedOrder
from redrive.operations.replay.plan import ReplayPlan


def accept(
    job: JobConfiguration,
    cluster: Cluster,
    plan: ReplayPlan,
    *,
    operator: str,
    purpose: str,
    written: Callable[[int], None] = lambda _: None,
) -> Replay:
    """Hands a plan to the job: instructions about what remains, or an order about what is parked.

    ``written`` gets the number of messages that the job knows of, chunk by chunk.

    Returns:
        The plan as it is accepted; as it was, if it was accepted before.

    Raises:
        UsageError: The plan is of another application, too old, or parks too many messages.
        TransientFault: The broker gave no answer for a minute. Applying the plan again goes on.
        EnvironmentFault: The cluster refused to make a replay topic.
    """
    kind = ParkedOrder if plan.order.to.is_about_parked else Instructions
    return kind(job, cluster, plan, operator=operator, purpose=purpose, written=written).write()
