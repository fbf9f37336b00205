"""The options ``--report`` and ``--reply-to`` of a message."""

from __future__ import annotations

from collections.abc import Sequence

import click

from redrive.command.options import combined
from redrive.command.put_names import read_queue_names
from redrive.diagnostics import did_you_mean
from redrive.errors import UsageError
from redrive.messages.reports import REPORT_OPTIONS
from redrive.topology.names import NO_NAMES, Names

_PREFIX = "MQRO_"


report_options = combined(
    click.option(
        "--report",
        "reports",
        multiple=True,
        metavar="OPTION",
        help="A report option, such as COA, EXCEPTION_WITH_DATA, DISCARD_MSG. May be repeated.",
    ),
    click.option(
        "--reply-to", default="", metavar="QUEUE[@QM]", help="Where reports and replies go."
    ),
)


def read_report(names: Sequence[str]) -> int:
    """The field Report: options with or without ``MQRO_``, in any case, also with commas.

    Raises:
        UsageError: One is not a report option.
    """
    value = 0
    for text in ",".join(names).upper().split(","):
        name = text.strip().removeprefix(_PREFIX)
        if name and name not in REPORT_OPTIONS:
            hint = did_you_mean(name, REPORT_OPTIONS) or f"choose from {', '.join(REPORT_OPTIONS)}"
            raise UsageError(f"--report: there is no option {_PREFIX}{name}", hint=hint)
        value |= REPORT_OPTIONS.get(name, 0)
    return value


def read_reply_to(text: str) -> Names:
    """ReplyToQ and ReplyToQMgr from ``QUEUE`` or ``QUEUE@QM``; empty for none."""
    if not text:
        return NO_NAMES
    queue, queue_manager = read_queue_names(text)
    return Names(queue=queue, queue_manager=queue_manager)
