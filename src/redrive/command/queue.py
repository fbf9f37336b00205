"""``redrive queue``: whether puts to a queue are allowed, and what could be put nowhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from redrive.command.options import config_option
from redrive.operations.network import network_of_settings
from redrive.operations.states import set_put_enabled
from redrive.operations.undelivered import release

__all__ = ["queue"]


def _arguments(command: Any) -> Any:  # noqa: ANN401 - a decorator, typed as click's own are
    """The arguments and options that both subcommands have."""
    manager = click.argument("queue_manager", metavar="QM")
    name = click.argument("name", metavar="QUEUE")
    return manager(name(config_option(command)))


@click.group()
def queue() -> None:
    """Enable and disable puts to a queue, and release what could be put nowhere.

    \b
    redrive queue disable put QM1 ORDERS
    redrive queue enable put QM1 ORDERS
    redrive queue release QM1

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


@queue.command(name="release")
@click.argument("queue_manager", metavar="QM")
@click.argument("name", default="", metavar="[QUEUE]")
@config_option
def release_kept(queue_manager: str, name: str, config: Path | None) -> None:
    """Try once more to put what could be put nowhere on its way from QM.

    QUEUE is a transmission queue of QM; without it all are meant, and what was put to QM itself.
    The running job puts the messages, or keeps them again; redrive browse QM --remaining shows
    them. A channel that stopped because of one goes on by redrive channel start, which releases
    its messages too.

    Example: redrive queue release QM1 QM2
    """
    count = release(network_of_settings(config), queue_manager, name)
    where = f"{name}@{queue_manager}" if name else queue_manager
    click.echo(f"{count} message{'s' * (count != 1)} of {where} set free")


def _set(queue_manager: str, name: str, config: Path | None, *, put_enabled: bool) -> None:
    set_put_enabled(network_of_settings(config), queue_manager, name, put_enabled=put_enabled)
    click.echo(f"puts to {name}@{queue_manager} are {'enabled' if put_enabled else 'disabled'}")
