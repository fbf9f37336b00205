"""``redrive acls``: the rights that a job needs on its cluster."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from redrive.command.options import config_option, json_option, repeated_option
from redrive.command.output import print_json
from redrive.errors import UsageError
from redrive.operations.rights import open_targets, rights_of
from redrive.settings import read_settings


@click.command()
@config_option
@repeated_option(
    "--target",
    "targets",
    metavar="TOPIC",
    help_text="A topic named by messages that rules put to; 'orders.*' for a prefix.",
)
@click.option(
    "--principal",
    metavar="USER",
    help="The user that gets the rights, by default User: and sasl_username of the settings.",
)
@json_option
def acls(config: Path, targets: tuple[str, ...], principal: str | None, *, as_json: bool) -> None:
    """Print the kafka-acls commands for the rights that a job needs.

    The list is complete. A comment says what each right is for, or that it is optional. The cluster
    is not asked.

    \b
    redrive acls --target orders --target 'billing.*'

    Exit codes: 0 done, 1 error, 2 usage.
    """  # noqa: D301 - \b keeps click from wrapping the examples
    job = read_settings(config).job
    if principal is None and not job.connection.sasl_username:
        raise UsageError(
            "the settings name no user of the job", hint="name it with --principal User:NAME"
        )
    principal = principal or f"User:{job.connection.sasl_username}"
    server = job.connection.bootstrap_servers
    rights = rights_of(job, targets)
    if as_json:
        values = [
            {
                "resource": right.resource,
                "name": right.name,
                "pattern": "prefixed" if right.is_prefix else "literal",
                "operation": right.operation,
                "needed": right.is_needed,
                "purpose": right.purpose,
            }
            for right in rights
        ]
        print_json(values, indent=False)
    else:
        for right in sorted(rights, key=lambda right: not right.is_needed):
            click.echo(f"# {'' if right.is_needed else 'optional: '}{right.purpose}")
            click.echo(shlex.join(right.command(server, principal)))
    named = open_targets(job)
    if named and not targets:
        click.echo(
            f"note: {', '.join(named)} put to topics that messages name: list these with --target",
            err=True,
        )
