"""``redrive queue``: whether puts to a queue are allowed, whatever its definition says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from redrive.command.control import write_states
from redrive.command.network import config_option, network_of_settings, queue_names, unknown
from redrive.topology.states import queue_entry

__all__ = ["queue"]


def _arguments(command: Any) -> Any:  # noqa: ANN401 - a decorator, typed as click's own are
    """The arguments and options that both subcommands have."""
    manager = click.argument("queue_manager", metavar="QM")
    name = click.argument("name", metavar="QUEUE")
    return manager(name(config_option(command)))


@click.group()
def queue() -> None:
    """Enable and disable puts to a queue, whatever its definition says.

    \b
    redrive queue disable put QM1 ORDERS
    redrive queue enable put QM1 ORDERS

    QUEUE may be local, an alias or a remote definition of QM: a put fails with MQRC_PUT_INHIBITED
    if any object on its path does not allow it. The running job follows within a moment, and the
    state outlasts it.

    Exit codes: 0 done, 1 error, 2 usage.
    """  # noqa: D301 - \b keeps click from wrapping the examples


@queue.group()
def enable() -> None:
    """Enable an operation on a queue.

    Example: redrive queue enable put QM1 ORDERS
    """


@queue.group()
def disable() -> None:
    """Disable an operation on a queue.

    Example: redrive queue disable put QM1 ORDERS
    """


@enable.command(name="put")
@_arguments
def enable_put(queue_manager: str, name: str, config: Path | None) -> None:
    """Let puts to QUEUE of QM succeed, as with PUT(ENABLED).

    Example: redrive queue enable put QM1 ORDERS
    """
    _set(queue_manager, name, config, put_enabled=True)


@disable.command(name="put")
@_arguments
def disable_put(queue_manager: str, name: str, config: Path | None) -> None:
    """Let puts to QUEUE of QM fail, as with PUT(DISABLED).

    Example: redrive queue disable put QM1 ORDERS
    """
    _set(queue_manager, name, config, put_enabled=False)


def _set(queue_manager: str, name: str, config: Path | None, *, put_enabled: bool) -> None:
    network = network_of_settings(config)
    known = queue_names(network.topology, network.checked_manager(queue_manager))
    if name not in known:
        raise unknown(f"queue manager {queue_manager} has no queue {name}", name, known)
    entry = queue_entry(queue=name, queue_manager=queue_manager, put_enabled=put_enabled)
    write_states(network.required_job(), [entry])
    click.echo(f"puts to {name}@{queue_manager} are {'enabled' if put_enabled else 'disabled'}")
