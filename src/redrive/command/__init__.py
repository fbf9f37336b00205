"""The subcommands of ``redrive``, most of them in the module of their name.

The console imports what it shows as the commands do; no command imports the console.
"""

from __future__ import annotations

import click

from redrive.errors import ConfigurationError, RedriveError
from redrive.printable import printable

__all__ = [
    "channel", "diff", "edits", "explain", "failures", "history", "ls", "message_file", "opening",
    "options", "output", "plan", "put", "record", "replay_work", "report_error", "restart",
    "selection", "status", "tables", "topology"
]  # fmt: skip


def report_error(error: RedriveError) -> None:
    """Print an error and its hint to standard error."""
    if isinstance(error, ConfigurationError):
        for finding in error.diagnostics:
            click.echo(finding.render(), err=True)
    click.echo(f"{click.style('error:', fg='red')} {printable(error.message)}", err=True)
    if error.hint:
        click.echo(f"{click.style('hint:', fg='cyan')} {printable(error.hint)}", err=True)
