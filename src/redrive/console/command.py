"""``redrive console``: the web console."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any, Final

import click

from redrive.command.options import EXISTING_FILE, config_option, number_option, repeated_option
from redrive.errors import EnvironmentFault
from redrive.settings import read_settings

_NEEDED: Final = (
    "fastapi", "uvicorn", "jinja2", "js_lib_htmx", "python_multipart", "joserfc", "httpx",
)  # fmt: skip


@click.command(name="console")
@config_option
@click.option(
    "--listen", default="127.0.0.1:8470", show_default=True, metavar="HOST:PORT", help="Where."
)
@number_option(
    "--four-eyes-above",
    "Plans for more messages need a second person to apply them.",
    least=0,
)
@click.option(
    "--tokens", type=EXISTING_FILE, help="File of users and their tokens; users must sign in."
)
@click.option(
    "--access",
    type=EXISTING_FILE,
    help="Roles of users and groups, and [oidc], the provider to sign in with.",
)
@click.option("--proxy-header", default="", metavar="NAME", help="Header with the user's name.")
@click.option(
    "--proxy-groups-header", default="", metavar="NAME", help="Header with the user's groups."
)
@repeated_option("--proxy-from", metavar="NET", help_text="Address that the proxy connects from.")
@repeated_option(
    "--forwarded-from",
    metavar="NET",
    help_text="Address of an ingress that names clients' addresses in X-Forwarded-For.",
)
@click.option("--certificate", type=EXISTING_FILE, help="TLS: the certificate, PEM.")
@click.option("--key", type=EXISTING_FILE, help="TLS: the key, PEM, without a password.")
@repeated_option("--name", "names", metavar="HOST", help_text="A host name of the console.")
def console(
    *,
    config: Path,
    listen: str,
    four_eyes_above: int | None,
    **entrance: Any,  # noqa: ANN401 - the options of Entrance
) -> None:
    """Serve a web console: browse groups, inspect messages, replay them.

    \b
    redrive console
    redrive console -c redrive.toml --listen 127.0.0.1:9000

    It runs beside the job and offers what the other commands do. Without --tokens or --access it
    listens on this machine only, without a login: everyone on it acts as the user who started it.
    The same as JSON is under /api, described in /api/openapi.json.

    It needs more packages: pip install 'redrive[console]'.

    Exit codes: 0 ended by SIGINT or SIGTERM; 1 error, 2 usage.
    """  # noqa: D301 - \b keeps click from wrapping the examples
    check_console()
    from redrive.console.server import Entrance, serve_console  # noqa: PLC0415 - only with the extra

    way = Entrance(**entrance)
    way.check()
    host, port = way.address(listen)
    read_settings(config)
    serve_console(config, host, port, four_eyes_above=four_eyes_above, entrance=way)


def check_console() -> None:
    """Raise ``EnvironmentFault`` if packages are missing."""
    missing = [package for package in _NEEDED if importlib.util.find_spec(package) is None]
    if missing:
        raise EnvironmentFault(
            f"the console needs packages that are not installed: {', '.join(missing)}",
            hint="pip install 'redrive[console]'",
        )
