"""Options that several subcommands have."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import click

from redrive.command.output import WIDE
from redrive.errors import UsageError
from redrive.settings import Option

_Command = TypeVar("_Command", bound=Callable[..., Any])


class _Decorator(Protocol):
    def __call__(self, command: _Command, /) -> _Command: ...


FILE: Final = click.Path(path_type=Path, dir_okay=False)
"""A file that need not exist."""
EXISTING_FILE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)
STANDARD_INPUT: Final = "-"


def combined(*options: Callable[[Any], Any]) -> _Decorator:
    """Several arguments and options as one decorator, in this order."""

    def add(command: _Command) -> _Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def read_file(name: str) -> bytes:
    """The bytes of a file, or of standard input for ``-``; raises ``UsageError``."""
    try:
        return sys.stdin.buffer.read() if name == STANDARD_INPUT else Path(name).read_bytes()
    except OSError as error:
        raise UsageError(
            f"{name} cannot be read: {error.strerror}", hint="name files that exist, or -"
        ) from error


def number_option(name: str, default: int, most: int | None, help_text: str) -> _Decorator:
    """An option that takes a number from 1."""
    kind = click.IntRange(min=1, max=most)
    return click.option(name, type=kind, default=default, show_default=True, help=help_text)


config_option = click.option(
    "-c", "--config", type=FILE, default="redrive.toml", show_default=True, metavar="FILE",
    help="The job's settings.",
)  # fmt: skip
optional_config_option = click.option(
    "-c", "--config", type=FILE, metavar="FILE", help="The job's settings, by default redrive.toml."
)
"""For commands whose other options may replace the settings."""
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
table_options = combined(
    json_option,
    click.option(
        "--wide", is_flag=True, expose_value=False, help="Show long values whole.",
        callback=lambda context, _, value: context.meta.update({WIDE: value}),
    ),
)  # fmt: skip
"""For commands that print tables: ``as_json``, and whether long values are shown whole."""
because_option = click.option(
    "--because", "purpose", default="", metavar="TEXT", help="Why, for the ledger."
)
yes_option = click.option("--yes", is_flag=True, help="Do not ask.")
mq_option = click.option(
    "--mq", is_flag=True, help="Show MQ's reasons and queues, not exceptions, groups and topics."
)
lenient_option = click.option(
    "--lenient", is_flag=True, help="Accept rules whose clauses are not separated."
)
handler_option = click.option("--handler", metavar="NAME", help="Only of this handler.")
bootstrap_option = click.option(
    "--bootstrap-server", default="", metavar="HOST:PORT", help="A broker, without -c."
)
instance_options = combined(
    click.option("--instance", metavar="N/M", help="Which of several instances, such as 1/2."),
    click.option("--directory", metavar="DIR", help="The job's folder, if not the default."),
)
"""The options of a running job besides its file: see ``instance_settings``."""


def instance_settings(instance: str | None, directory: str | None) -> list[Option]:
    """The settings of ``instance_options``."""
    given = {"instance": instance, "directory": directory}
    return [
        Option(("application", key), f"--{key}", value) for key, value in given.items() if value
    ]


def _topology_option(help_text: str, *, required: bool) -> _Decorator:
    return click.option(
        "--topology", "files", multiple=True, required=required, metavar="[QM=]FILE", help=help_text
    )


topology_option = _topology_option(
    "MQSC script (of QM), MQe network or bindings; or a folder of them.", required=True
)
network_options = combined(
    optional_config_option,
    bootstrap_option,
    _topology_option(
        "MQSC script (of QM), MQe network or bindings, or a folder of them; without -c.",
        required=False,
    ),
)
"""``-c FILE``, and the two options that replace it."""
