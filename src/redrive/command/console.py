"""``redrive console``: the web console."""

from __future__ import annotations

import importlib
import importlib.util
import ipaddress
import signal
import ssl
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import click

from redrive.command.options import EXISTING_FILE, config_option, number_option, repeated_option
from redrive.errors import EnvironmentFault, UsageError
from redrive.listener import BACKLOG, Listener
from redrive.settings import read_settings

_NEEDED: Final = (
    "fastapi", "uvicorn", "jinja2", "js_lib_htmx", "python_multipart", "joserfc", "httpx",
)  # fmt: skip
_LAST_PORT: Final = 65_535
_MOST_CONNECTIONS: Final = 500
_LOOPBACK_NAMES: Final = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class Entrance:
    """How users sign in, and the host names and certificate of the console."""

    tokens: Path | None = None
    access: Path | None = None
    proxy_header: str = ""
    proxy_groups_header: str = ""
    proxy_from: tuple[str, ...] = ()
    forwarded_from: tuple[str, ...] = ()
    certificate: Path | None = None
    key: Path | None = None
    names: tuple[str, ...] = ()

    @property
    def has_login(self) -> bool:
        """Whether users have to sign in."""
        return bool(self.tokens or self.access)

    def check(self) -> None:
        """Raises ``UsageError`` for options that do not fit each other."""
        if bool(self.proxy_header) != bool(self.proxy_from):
            raise UsageError(
                "--proxy-header and --proxy-from go together",
                hint="otherwise anyone could send the header: name the proxy's address",
            )
        if self.proxy_groups_header and not self.proxy_header:
            raise UsageError("--proxy-groups-header needs --proxy-header")
        if self.proxy_header and not self.access:
            raise UsageError(
                "--proxy-header needs --access", hint="it assigns the roles of the proxy's users"
            )
        if bool(self.certificate) != bool(self.key):
            raise UsageError("--certificate and --key go together")


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
    way = Entrance(**entrance)
    way.check()
    host, port = _address(listen, way)
    read_settings(config)
    serve_console(config, host, port, four_eyes_above=four_eyes_above, entrance=way)


def check_console() -> None:
    """Raise ``EnvironmentFault`` if packages are missing."""
    missing = [one for one in _NEEDED if importlib.util.find_spec(one) is None]
    if missing:
        raise EnvironmentFault(
            f"the console needs packages that are not installed: {', '.join(missing)}",
            hint="pip install 'redrive[console]'",
        )


def serve_console(
    config: Path,
    host: str,
    port: int,
    *,
    four_eyes_above: int | None = None,
    entrance: Entrance | None = None,
) -> None:
    """Serve the console until SIGINT or SIGTERM; without an entrance nobody has to sign in.

    Plans for more than ``four_eyes_above`` messages need a second person to apply them.
    """
    import uvicorn  # noqa: PLC0415 - only with the extra

    # By name: the console imports the commands, whose views it shows.
    console_application = importlib.import_module("redrive.console.server").console_application
    way = entrance or Entrance()
    if way.certificate and way.key:
        _check_certificate(way.certificate, way.key)
    access, own_name = _access(way)
    shown = f"[{host}]" if ":" in host else host
    with open_listener(host, port) as listener:
        application = console_application(
            config,
            access=access,
            four_eyes_above=four_eyes_above,
            hosts={host, *way.names, *own_name, *_LOOPBACK_NAMES},
            listener=listener,
        )
        server = uvicorn.Server(
            uvicorn.Config(
                application,
                loop="asyncio",
                backlog=BACKLOG,
                log_level="error",  # clients cause its warnings, as many as they like
                server_header=False,
                proxy_headers=False,
                ssl_certfile=way.certificate,
                ssl_keyfile=way.key,
                timeout_graceful_shutdown=3,
            )
        )
        scheme = "https" if way.certificate else "http"
        click.echo(f"{scheme}://{shown}:{port}/  (Ctrl+C ends it)")
        # At a signal the server shuts down cleanly and raises it again: nothing is left to do.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: None)
        server.run(sockets=[listener])


def _access(way: Entrance) -> Any:  # noqa: ANN401 - the console is imported by its name
    """The access (None for everybody on this machine), and the console's own host name if known."""
    if not way.has_login:
        return None, ()
    logins = importlib.import_module("redrive.console.logins")
    files = importlib.import_module("redrive.console.login_files")
    tokens = files.read_tokens(way.tokens) if way.tokens else {}
    grants, oidc = files.read_access(way.access) if way.access else (logins.Grants(), None)
    if way.access and not (oidc or way.proxy_header):
        raise UsageError(
            f"--access {way.access} has no [oidc], and there is no --proxy-header: nothing names"
            " its users and groups",
            hint="add [oidc] or --proxy-header; the roles of tokens are in --tokens",
        )
    proxy = None
    if way.proxy_header:
        networks = _networks("--proxy-from", way.proxy_from)
        proxy = logins.Proxy(way.proxy_header, way.proxy_groups_header, networks, grants)
    forwarded = _networks("--forwarded-from", way.forwarded_from)
    if oidc is None:
        return logins.Logins(tokens, proxy, forwarded_from=forwarded), ()
    provider = importlib.import_module("redrive.console.oidc").IdentityProvider(oidc)
    access = logins.Logins(tokens, proxy, provider, grants, forwarded_from=forwarded)
    return access, (urlsplit(oidc.address).hostname or "",)


def _networks(option: str, values: Collection[str]) -> tuple[Any, ...]:
    try:
        return tuple(ipaddress.ip_network(value) for value in values)
    except ValueError as error:
        raise UsageError(f"{option}: {error}", hint="give 10.0.0.7 or 10.0.0.0/24") from error


def _check_certificate(certificate: Path, key: Path) -> None:
    try:
        # An empty password: without one, an encrypted key would ask at the terminal.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password="")
    except OSError as error:  # among them ssl.SSLError
        raise UsageError(
            f"--certificate {certificate} and --key {key} cannot be used: {error}",
            hint="give PEM files that belong together, the key without a password",
        ) from error


def open_listener(host: str, port: int) -> Listener:
    """A socket that listens on an address; raises ``EnvironmentFault`` if that fails."""
    try:
        return Listener(host, port, most=_MOST_CONNECTIONS)
    except OSError as error:
        raise EnvironmentFault(
            f"{host}:{port} cannot be bound: {error.strerror}",
            hint="stop the other console, or choose another port by --listen",
        ) from error


def _address(listen: str, way: Entrance) -> tuple[str, int]:
    host, _, port = listen.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not port.isdecimal() or not host or int(port) > _LAST_PORT:
        raise UsageError(f"--listen {listen} is not a valid address", hint="give 127.0.0.1:8470")
    if host != "localhost":
        try:
            is_loopback = ipaddress.ip_address(host).is_loopback
        except ValueError:
            is_loopback = False
        if not is_loopback and not way.has_login:
            raise UsageError(
                f"--listen {listen}: others could reach it without signing in",
                hint="add --tokens or --access, or listen on 127.0.0.1 and use ssh -L",
            )
        if not is_loopback and not (way.certificate or way.proxy_header):
            raise UsageError(
                f"--listen {listen}: sign-ins would cross the network in plain text",
                hint="add --certificate and --key, or listen on 127.0.0.1 behind a proxy",
            )
    return host, int(port)
