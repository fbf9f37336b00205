"""``redrive trigger``: ``triggerTransmission`` of MQ Everyplace on the running job."""

from __future__ import annotations

from pathlib import Path

import click

from redrive.command.options import config_option
from redrive.operations.channel import trigger as trigger_transmission
from redrive.operations.network import network_of_settings

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

    Prints how many messages were set free.

    Exit codes: 0 done, also if nothing waits; 1 error; 2 usage.
    """  # noqa: D301 - \b keeps click from wrapping the examples
    count = trigger_transmission(network_of_settings(config), queue_manager)
    click.echo(f"{count} message{'s' * (count.messages != 1)} set free at {queue_manager}")
