"""``redrive discard``: throw remaining messages away, as ``redrive replay`` places them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from redrive.command import replay
from redrive.command.options import FILE, config_option
from redrive.command.selection import selection_options
from redrive.engine.commands import To
from redrive.operations.replay.plan import Order, ReplayPlan, parse_rate
from redrive.outcomes.inventory import Selection
from redrive.settings import Settings, read_settings

__all__ = ["discard"]


@click.group(cls=replay.Verbs)
def discard() -> None:
    """Throw remaining messages away, by a plan or at once.

    \b
    redrive discard orders.dlq:0:17 --because "a test message"
    redrive discard now --older-than 90d --because "kept for 90 days"
    redrive discard plan --where "body_size = 0" -o plan.json
    redrive discard apply plan.json --reason "ticket 4711"

    It works as redrive replay does: the running job does it, once, and the ledger records who and
    why. Discarded messages are gone once the broker compacts the topic of remaining messages.

    Exit codes: 0 done, also if nothing matches; 1 error; 2 usage.
    """  # noqa: D301 - \b keeps click from wrapping the examples


for _command in replay.commands:
    discard.add_command(_command)


@discard.command()
@config_option
@selection_options
@replay.rate_option
@replay.limit_option
@click.option("-o", "--output", type=FILE, help="Write the plan.")
@replay.json_option
def plan(*, config: Path, output: Path | None, as_document: bool, **which: Any) -> None:  # noqa: ANN401
    """Plan which messages to throw away. Nothing is touched.

    Example: redrive discard plan --reason MQRC_Q_FULL --older-than 30d -o plan.json
    """
    replay.tell_plan(_planned(read_settings(config), **which), output, as_document=as_document)


@discard.command()
@config_option
@selection_options
@replay.rate_option
@replay.limit_option
@replay.because_option
@replay.yes_option
@replay.json_option
def now(*, config: Path, purpose: str, yes: bool, as_document: bool, **which: Any) -> None:  # noqa: ANN401
    """Plan which messages to throw away, show it, ask, and do it.

    Example: redrive discard now --older-than 90d --because "kept for 90 days"
    """
    settings = read_settings(config)
    found = _planned(settings, **which)
    replay.plan_and_apply(settings.job, found, purpose, yes=yes, as_document=as_document)


@discard.command(hidden=True)
@click.argument("identity", metavar="ID")
@config_option
@replay.because_option
@replay.yes_option
@replay.json_option
def message(*, identity: str, config: Path, purpose: str, yes: bool, as_document: bool) -> None:
    """Throw one message away.

    Example: redrive discard orders.dlq:0:17 --because "a test message"
    """
    settings = read_settings(config)
    found = _planned(settings, Selection(message=identity))
    found = replay.check_message(settings.job, found, identity)
    replay.plan_and_apply(settings.job, found, purpose, yes=yes, as_document=as_document)


def _planned(
    settings: Settings, selection: Selection, rate: str | None = None, limit: int | None = None
) -> ReplayPlan:
    order = Order(to=To.DISCARD, rate=None if rate is None else parse_rate(rate))
    return replay.planned(settings, selection, order, limit)
