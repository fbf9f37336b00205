"""Options that several subcommands have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from redrive.settings import Option

__all__ = [
    "config_option",
    "instance_options",
    "instance_settings",
    "json_option",
    "network_options",
    "topology_option",
]


def config_option(command: Any) -> Any:  # noqa: ANN401 - a decorator, typed as click's own are
    """Add ``-c FILE`` to a command, which takes it as ``config``."""
    return click.option(
        "-c",
        "--config",
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        help="The job's settings, by default redrive.toml.",
    )(command)


def instance_options(command: Any) -> Any:  # noqa: ANN401 - as above
    """Add what a running job was started with besides its file: see ``instance_settings``."""
    instance = click.option(
        "--instance", metavar="N/M", help="Which of several instances, such as 1/2."
    )
    directory = click.option(
        "--directory", metavar="DIR", help="The job's folder, if it was started with one."
    )
    return instance(directory(command))


def instance_settings(instance: str | None, directory: str | None) -> list[Option]:
    """The settings that the options of ``instance_options`` stand for."""
    given = {"instance": instance, "directory": directory}
    return [
        Option(("application", key), f"--{key}", value) for key, value in given.items() if value
    ]


def json_option(command: Any) -> Any:  # noqa: ANN401 - as above
    """Add ``--json`` to a command, which takes it as ``as_json``."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)


def network_options(command: Any) -> Any:  # noqa: ANN401 - as above
    """Add ``-c FILE``, and the two options that stand for it without a file."""
    server = click.option(
        "--bootstrap-server", default="", metavar="HOST:PORT", help="A broker, without -c."
    )
    topology = click.option(
        "--topology",
        "files",
        multiple=True,
        metavar="[QM=]FILE",
        help="MQSC script (of QM), MQe network or bindings, or a folder of them; without -c.",
    )
    return config_option(server(topology(command)))


def topology_option(command: Any) -> Any:  # noqa: ANN401 - as above
    """Add ``--topology [QM=]FILE`` to a command, which takes it as ``files``."""
    return click.option(
        "--topology",
        "files",
        multiple=True,
        required=True,
        metavar="[QM=]FILE",
        help="MQSC script (of QM), MQe network or bindings; or a folder of them.",
    )(command)
