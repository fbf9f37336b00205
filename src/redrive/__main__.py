"""The ``redrive`` command line, also ``python -m redrive``.

A subcommand is the click command of that name in ``redrive.command.<name>``, or in the module that
``_MODULES`` names. Modules are imported late, so that ``redrive --help`` answers at once and
``redrive check`` does not wait for Spark.
"""

from __future__ import annotations

import errno
import gc
import importlib
import logging
import os
import sys
import traceback
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import click

from redrive.command import report_error
from redrive.errors import EnvironmentFault, RedriveError
from redrive.kafka.deadline import abandoned_calls
from redrive.version import __version__

_FILE_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM}
"""Errors of the operating system that a user can fix."""

GROUPS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "Set up": {
            "init": "Write settings and starter rules for TOPICS, after a look at them.",
            "setup": "Fetch and verify the jars that Spark and the broker need.",
            "identify": "Show what dead letters TOPIC holds, and write starter rules.",
            "demo": "Run the whole job on sample dead letters and an embedded broker.",
            "broker": "Run a Kafka broker in the background.",
            "acls": "Print the kafka-acls commands for the rights that a job needs.",
        },
        "Run": {
            "run": "Handle dead letters by rules tables, exactly once, until stopped.",
            "restart": "Reload the settings and rules tables of a running job.",
            "status": "Show what waits for every handler, and the results so far.",
            "console": "Serve a web console: browse groups, inspect messages, replay them.",
            "handler": "Show stopped handlers, and resume one that lost its position.",
            "ledger": "Maintain the ledger, while no job runs.",
        },
        "Look": {
            "groups": "Count dead letters by cause.",
            "ls": "List dead letters that are parked, remain or ended.",
            "show": "Show one dead letter: error, headers, body and history.",
            "history": "Show every outcome of the message ID, and what comes next.",
        },
        "Act": {
            "replay": "Put remaining messages back: plan, review, apply; or at once.",
            "discard": "Discard remaining messages, by a plan or at once.",
            "parked": "Retry parked messages now, or cancel their retries.",
            "ack": "Acknowledge messages that remain on purpose.",
        },
        "Tables": {
            "plan": "Show what the rules table NEW would do with the existing messages.",
            "check": "Report the errors of rules tables, settings and topologies.",
            "explain": "Explain what TABLE does with one message, rule by rule.",
            "test": "Test rules tables with sample messages.",
            "diff": "Show what differs in meaning between the tables OLD and NEW.",
            "fmt": "Write rules tables in their canonical form; comments are kept.",
            "tables": "List the rules tables that have run: when and by whom.",
        },
        "IBM MQ": {
            "runmqdlq": "Handle one dead-letter queue by the rules table on standard input.",
            "put": "Put a message to QUEUE, as an application does.",
            "browse": "Show the messages of a queue or topic, without removing them.",
            "resolve": "Trace a put to QUEUE step by step, as the job resolves it.",
            "topology": "Show and draw queue managers; create their topics.",
            "channel": "Start, stop and show the channels of a queue manager.",
            "queue": "Enable and disable puts, make dynamic queues, release messages.",
            "trigger": "Send the waiting messages of QM of MQ Everyplace once.",
        },
    }
)
"""The subcommands as the help groups them, each with the first sentence of its own help."""
SUBCOMMANDS: Mapping[str, str] = MappingProxyType(
    {name: text for group in GROUPS.values() for name, text in group.items()}
)

_MODULES: Mapping[str, str] = {
    "init": "command.identify", "resolve": "command.put", "show": "command.history",
    "groups": "command.ls", "ack": "command.ls",
    "queue": "command.channel", "trigger": "command.channel",
    "discard": "command.replay", "parked": "command.replay",
    "console": "console.command", "demo": "demo.command",
}  # fmt: skip
"""The modules of subcommands that have none of their own in ``redrive.command``."""

_REMOVED: Mapping[tuple[str, str], str] = {
    ("plan", "--html"): "use --json, or try the table in the console",
    ("start", "--brokers"): "it starts one broker; several are beyond trials and tests",
    ("ack", "--owner"): "name the owner in --note",
    ("ack", "--include-new"): "acknowledge later messages once they are there",
    ("groups", "--owner"): "redrive ack --list shows who acknowledged what, and why",
}
"""Options that version 0.1.0 was the last to have, by their command, and what to do instead."""

_ERROR = 1


class _CommandLine(click.Group):
    """A group that imports its subcommands late and reports the project's own errors."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(SUBCOMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in SUBCOMMANDS:
            return super().get_command(ctx, cmd_name)
        module = importlib.import_module(f"redrive.{_MODULES.get(cmd_name, f'command.{cmd_name}')}")
        if not gc.isenabled():  # a process of its own, whose modules stay: no need to look at them
            gc.freeze()
            gc.enable()
        command: click.Command = getattr(module, cmd_name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from redrive.diagnostics import did_you_mean  # noqa: PLC0415 - only for this

            hint = did_you_mean(args[0], SUBCOMMANDS)
            raise click.UsageError(f"{error.message} {hint.capitalize()}".strip(), ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's signature
        """Write the list of subcommands without importing them."""
        width = max(map(len, SUBCOMMANDS))
        for title, commands in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), text) for name, text in commands.items()])

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - click's signature
        try:
            return super().invoke(ctx)
        except click.NoSuchOption as error:
            raise _explained(error) from None
        except RedriveError as error:
            if ctx.params["debug"]:
                traceback.print_exception(error)
            report_error(error)
            ctx.exit(error.exit_code)
        except OSError as error:
            if error.errno not in _FILE_ERRORS:
                raise
            if ctx.params["debug"]:
                traceback.print_exception(error)
            place = f"{error.filename}: " if error.filename else ""
            report_error(
                EnvironmentFault(
                    f"{place}{error.strerror}",
                    hint="free disk space, check the permissions, or choose another folder",
                )
            )
            ctx.exit(_ERROR)


def _explained(error: click.NoSuchOption) -> click.UsageError:
    """The error; of an option that was removed, with what to do instead."""
    command = "" if error.ctx is None else error.ctx.info_name or ""
    instead = _REMOVED.get((command, error.option_name))
    if instead is None:
        return error
    message = f"{error.option_name} was removed; 0.1.0 was the last version with it: {instead}"
    return click.UsageError(message, error.ctx)


@click.command(cls=_CommandLine, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="redrive")
@click.option(
    "--debug", is_flag=True, envvar="REDRIVE_DEBUG", help="Show a stack trace with every error."
)
def main(*, debug: bool) -> None:
    """Process the dead letters of Kafka topics again, forward or keep them, exactly once.

    \b
    redrive init orders.dlq --bootstrap-server localhost:9092
    redrive run          handle what is there and what comes, by the rules
    redrive groups       count what waits, by cause

    Exit codes: 0 done, 1 error (for check: findings), 2 usage.
    """  # noqa: D301 - \b keeps click from wrapping the examples
    del debug  # read by the group when an error is reported


def start() -> None:
    """Run the command line in its own process.

    Raises:
        SystemExit: The command has ended, with its exit code.
    """
    gc.disable()  # until the command is imported
    try:
        main(prog_name="redrive")
    except SystemExit as end:
        if abandoned_calls() and isinstance(end.code, int):
            # An abandoned client still runs; the libraries' own clean-up at the end of a
            # process would remove what it uses, and crash the process.
            logging.shutdown()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(end.code)
        raise


if __name__ == "__main__":
    start()
