"""The options of a put: ``QUEUE[@QM] --at QM``, and what the message asks for."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import click

from redrive.command.options import combined, repeated_option
from redrive.diagnostics import did_you_mean
from redrive.errors import UsageError
from redrive.messages.reports import REPORT_OPTIONS
from redrive.topology.names import NO_NAMES, Names

_PREFIX = "MQRO_"

put_options = combined(
    click.argument("names", nargs=-1, required=True, metavar="QUEUE[@QM]"),
    click.option("--at", default="", metavar="QM", help="The manager the application connects to."),
    click.option("--persistent/--not-persistent", default=None, help="Default: as the queue says."),
    repeated_option(
        "--report",
        "reports",
        metavar="OPTION",
        help_text="A report option, such as COA, EXCEPTION_WITH_DATA, DISCARD_MSG.",
    ),
    click.option(
        "--reply-to", default="", metavar="QUEUE[@QM]", help="Where reports and replies go."
    ),
)
"""The names of the put, and the message's fields that both commands have."""


def read_put_names(command: str, arguments: Sequence[str], at: str) -> tuple[Names, str]:
    """Read the arguments of ``resolve`` or ``put``, and ``--at``.

    The older forms ``redrive resolve QM QUEUE`` and ``redrive put QM QUEUE[@QM]`` are accepted with
    a hint on standard error.

    Returns:
        ObjectName and ObjectQMgrName, and the manager that the application is connected to; empty
        if that is not given.

    Raises:
        UsageError: The arguments are not a valid put.
    """
    match arguments:
        case [text]:
            return read_queue_names(text), at
        case [manager, queue] if command == "resolve":
            names, at = Names(queue=queue, queue_manager=manager), at or manager
        case [manager, text]:
            names, at = read_queue_names(text), manager
        case _:
            hint = "such as PAYROLL@QM2 --at QM1"
            raise UsageError(f"redrive {command} takes one QUEUE or QUEUE@QM", hint=hint)
    hint = f"this is the older form of redrive {command} {names}{at and f' --at {at}'}"
    click.echo(f"{click.style('hint:', fg='cyan')} {hint}", err=True)
    return names, at


def read_queue_names(text: str) -> Names:
    """The queue and the queue manager in ``QUEUE`` or ``QUEUE@QM``."""
    queue, at, manager = text.partition("@")
    if not queue or (at and not manager):
        raise UsageError(f"{text!r} is not QUEUE or QUEUE@QM", hint="such as PAYROLL@QM2")
    return Names(queue=queue, queue_manager=manager)


def checked_at(at: str, managers: Collection[str]) -> str:
    """The named manager, or the only one; raises ``UsageError`` if it does not exist."""
    if at in managers:
        return at
    if not at and len(managers) == 1:
        return next(iter(managers))
    problem = f"the topology has no queue manager {at}" if at else "no queue manager is named"
    raise UsageError(problem, hint=f"give --at one of {', '.join(managers) or 'none'}")


def read_report(names: Sequence[str]) -> int:
    """The field Report from options, also with commas or without ``MQRO_``; else ``UsageError``."""
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
    return read_queue_names(text) if text else NO_NAMES
