"""``redrive parked``: attempt parked messages now, or cancel their attempts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from redrive.command import replay
from redrive.command.options import FILE, combined, config_option
from redrive.command.selection import selection_options
from redrive.engine.commands import To
from redrive.operations.replay.plan import Order
from redrive.outcomes.inventory import Selection
from redrive.settings import read_settings

__all__ = ["parked"]


_arguments = combined(
    click.argument("identity", metavar="[ID]", required=False),
    config_option,
    selection_options,
    replay.limit_option,
    click.option(
        "-o", "--output", type=FILE, help="Write the plan only; redrive replay apply applies it."
    ),
    replay.because_option,
    replay.yes_option,
    replay.json_option,
)


@click.group()
def parked() -> None:
    """Retry parked messages now, or cancel their retries.

    \b
    redrive parked now --destq ORDERS                     the target is there again
    redrive parked now orders.dlq:0:17                    one message
    redrive parked cancel --rule 12 --because "ticket 4711"

    A parked message waits for its next attempt. `now` makes that attempt at once; it counts as any
    other. `cancel` makes no more: the message remains, for redrive replay or redrive discard. The
    running job does it, once for each message; without one, a job is run for the purpose.

    Exit codes: 0 done, also if nothing matches; 1 error; 2 usage.
    """  # noqa: D301 - \b keeps click from wrapping the examples


@parked.command()
@_arguments
def now(**arguments: Any) -> None:  # noqa: ANN401 - of ``_do``
    """Make the next attempt on parked messages now, and not when it is due.

    Example: redrive parked now --reason MQRC_Q_FULL --because "the queue was emptied"

    Messages parked before them on the same partition may have to wait once more, for one interval
    at most.
    """
    _do(To.ATTEMPT, **arguments)


@parked.command()
@_arguments
def cancel(**arguments: Any) -> None:  # noqa: ANN401 - of ``_do``
    """Make no more attempts on parked messages: they remain.

    Example: redrive parked cancel --destq ORDERS --because "the queue is gone for good"
    """
    _do(To.REMAIN, **arguments)


def _do(
    to: To,
    *,
    identity: str | None,
    config: Path,
    selection: Selection,
    limit: int | None,
    output: Path | None,
    purpose: str,
    yes: bool,
    as_document: bool,
) -> None:
    if identity is not None:
        selection = replace(selection, message=identity)
    settings = read_settings(config)
    found = replay.planned(settings, selection, Order(to=to), limit)
    if identity is not None:
        found = replay.check_message(settings.job, found, identity)
    if output is None:
        replay.plan_and_apply(settings.job, found, purpose, yes=yes, as_document=as_document)
    else:
        replay.tell_plan(found, output, as_document=as_document)
