"""Options that several subcommands have."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import partial, wraps
from inspect import signature
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import click

from redrive.command.output import WIDE
from redrive.errors import UsageError
from redrive.settings import Option, default_file

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


def parsed(name: str, parse: Callable[..., object], *options: Callable[[Any], Any]) -> _Decorator:
    """Options that a command gets as one argument, ``name``: what ``parse`` makes of them."""

    def add(command: Callable[..., Any]) -> Any:  # noqa: ANN401 - what a decorator of click takes
        @wraps(command)
        def with_parsed(**given: Any) -> Any:  # noqa: ANN401 - the options, and the command's own
            chosen = {option: given.pop(option) for option in signature(parse).parameters}
            return command(**{name: parse(**chosen)}, **given)

        return combined(*options)(with_parsed)

    return add


def read_file(name: str) -> bytes:
    """The bytes of a file, or of standard input for ``-``; raises ``UsageError``."""
    try:
        return sys.stdin.buffer.read() if name == STANDARD_INPUT else Path(name).read_bytes()
    except OSError as error:
        raise UsageError(
            f"{name} cannot be read: {error.strerror}", hint="name files that exist, or -"
        ) from error


def number_option(
    name: str,
    help_text: str,
    *,
    default: int | None = None,
    least: int = 1,
    most: int | None = None,
    metavar: str = "N",
) -> _Decorator:
    """An option that takes a whole number within limits."""
    kind, shows = click.IntRange(least, most), default is not None
    return click.option(
        name, type=kind, default=default, show_default=shows, metavar=metavar, help=help_text
    )


def choice_option(
    *names: str, values: Iterable[str], help_text: str, default: str | None = None
) -> _Decorator:
    """An option that takes one of some words."""
    kind, word = click.Choice([*map(str, values)]), default and str(default)
    return click.option(*names, type=kind, default=word, show_default=bool(word), help=help_text)


def repeated_option(
    *names: str, metavar: str, help_text: str, required: bool = False
) -> _Decorator:
    """An option that may be given several times."""
    text = f"{help_text} May be repeated."
    return click.option(*names, multiple=True, required=required, metavar=metavar, help=text)


config_option = click.option(
    "-c", "--config", type=FILE, metavar="FILE",
    help="The job's settings, by default redrive.toml.",
    callback=lambda _context, _option, path: path or default_file(),
)  # fmt: skip
optional_config_option = click.option(
    "-c", "--config", type=FILE, metavar="FILE", help="The job's settings, by default redrive.toml."
)
"""For commands whose other options may replace the settings."""
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
table_options = combined(
    json_option,
    click.option(
        "--wide", is_flag=True, expose_value=False, help="Show long values in full.",
        callback=lambda context, _, value: context.meta.update({WIDE: value}),
    ),
)  # fmt: skip
"""For commands that print tables: ``as_json``, and whether to show long values in full."""
because_option = click.option(
    "--because", "purpose", default="", metavar="TEXT", help="The reason, for the ledger."
)
yes_option = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
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


def _settings_of_instance(instance: str | None, directory: str | None) -> list[Option]:
    given = {"instance": instance, "directory": directory}
    return [
        Option(("application", key), f"--{key}", value) for key, value in given.items() if value
    ]


instance_options = parsed(
    "options",
    _settings_of_instance,
    click.option("--instance", metavar="N/M", help="Which of several instances, such as 1/2."),
    click.option("--directory", metavar="DIR", help="The job's folder, if not the default."),
)
"""The options of a running job besides its file, as settings."""
_topology = partial(repeated_option, "--topology", "files", metavar="[QM=]FILE")
_DEFINITIONS: Final = "MQSC script (of QM), MQe network or bindings, or a folder of them"

topology_option = _topology(help_text=f"{_DEFINITIONS}.", required=True)
network_options = combined(
    optional_config_option,
    bootstrap_option,
    _topology(help_text=f"{_DEFINITIONS}; without -c."),
)
"""``-c FILE``, and the two options that replace it."""
