"""``redrive trigger``: ``triggerTransmission`` of MQ Everyplace on the running job."""

from __future__ import annotations

from pathlib import Path

import click

from redrive.command.channel import waiting_on
from redrive.command.control import open_cluster, write_states
from redrive.command.network import Network, config_option, network_of_settings
from redrive.errors import EnvironmentFault, UsageError
from redrive.topology import mqe
from redrive.topology.layout import TopicRole, topics_of
from redrive.topology.states import release_entry

__all__ = ["trigger"]


@click.command()
@click.argument("queue_manager", metavar="QM")
@config_option
def trigger(queue_manager: str, config: Path | None) -> None:
    """Set free what waits at QM of MQ Everyplace, once (triggerTransmission).

    \b
    redrive trigger MOON

    Messages on QM's asynchronous definitions are sent, and QM's home-server queues pull, whatever
    the state of the connection: those that wait now, not those that come later.

    Prints how many messages were set free, which may count ends of transactions too.

    Exit codes: 0 done, also if nothing waits; 1 error; 2 usage.
    """  # noqa: D301 - \b keeps click from wrapping the examples
    network = network_of_settings(config)
    topics = _topics(network, network.checked_manager(queue_manager))
    job = network.required_job()
    with open_cluster(job.connection) as cluster:
        missing = sorted(set(topics) - set(cluster.partitions(topics)))
        if missing:
            raise EnvironmentFault(
                f"there is no topic {', '.join(missing)}",
                hint="redrive topology apply creates the topics of the queue managers",
            )
        waiting = [waiting_on(job, cluster, topic) for topic in topics]
    ends = [end for one in waiting for end in one.ends.items()]
    if ends:
        write_states(job, [release_entry(lane, offset) for lane, offset in ends])
    count = sum(one.messages for one in waiting)
    click.echo(f"{count} message{'s' * (count != 1)} set free at {queue_manager}")


def _topics(network: Network, queue_manager: str) -> list[str]:
    """What a trigger moves: see ``triggerTransmission`` in the resolution specification, A.4.

    What store-and-forward queues keep is pushed or pulled without it.
    """
    in_mqe = network.topology.mqe
    manager = in_mqe.queue_manager(queue_manager) if in_mqe else None
    if manager is None:
        raise UsageError(
            f"{queue_manager} is a queue manager of IBM MQ, which has no triggerTransmission",
            hint=f"redrive channel start {queue_manager} lets its channels move messages",
        )
    asynchronous = {
        queue.name
        for queue in manager.queues
        if isinstance(queue, mqe.RemoteQueue) and queue.mode is mqe.Mode.ASYNC
    }
    found = [
        one.topic
        for one in topics_of(network.topology)
        if one.role is TopicRole.TRANSMISSION
        and (
            (one.queue_manager == queue_manager and one.queue in asynchronous)
            or (one.is_pulled and one.channel[0] == queue_manager)
        )
    ]
    if not found:
        raise UsageError(
            f"queue manager {queue_manager} defines nothing asynchronous and no home-server queue",
            hint="there is nothing that a trigger could set free",
        )
    return found
