"""The console's server: who may come in, routes, and answers to errors."""

import asyncio
import ipaddress
import signal
import ssl
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import click
import uvicorn
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.responses import Response

from redrive.console.access import Grants, LocalAccess, RefusedError
from redrive.console.login_files import read_access, read_tokens
from redrive.console.logins import Logins, Network, Proxy, add_sign_in
from redrive.console.oidc import IdentityProvider
from redrive.console.routes import Console, add_routes, as_json, wants_page
from redrive.console.security import Access, Guard, is_loopback
from redrive.errors import (
    ConfigurationError,
    EnvironmentFault,
    NotFoundError,
    OutcomeUnknown,
    RedriveError,
    TransientFault,
    UsageError,
)
from redrive.listener import BACKLOG, Listener
from redrive.version import __version__

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

    def address(self, listen: str) -> tuple[str, int]:
        """Host and port of ``--listen``; raises ``UsageError`` if they are not safe."""
        host, _, port = listen.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not port.isdecimal() or not host or int(port) > _LAST_PORT:
            raise UsageError(
                f"--listen {listen} is not a valid address", hint="give 127.0.0.1:8470"
            )
        if not is_loopback(host):
            if not self.has_login:
                raise UsageError(
                    f"--listen {listen}: others could reach it without signing in",
                    hint="add --tokens or --access, or listen on 127.0.0.1 and use ssh -L",
                )
            if not (self.certificate or self.proxy_header):
                raise UsageError(
                    f"--listen {listen}: sign-ins would cross the network in plain text",
                    hint="add --certificate and --key, or listen on 127.0.0.1 behind a proxy",
                )
        return host, int(port)

    def logins(self) -> tuple[Logins | None, Sequence[str]]:
        """The access, None for everybody on this machine, and the console's own host name."""
        if not self.has_login:
            return None, ()
        tokens = read_tokens(self.tokens) if self.tokens else {}
        grants, oidc = read_access(self.access) if self.access else (Grants(), None)
        if self.access and not (oidc or self.proxy_header):
            raise UsageError(
                f"--access {self.access} has no [oidc], and there is no --proxy-header: nothing"
                " names its users and groups",
                hint="add [oidc] or --proxy-header; the roles of tokens are in --tokens",
            )
        proxy = None
        if self.proxy_header:
            networks = _networks("--proxy-from", self.proxy_from)
            proxy = Proxy(self.proxy_header, self.proxy_groups_header, networks, grants)
        forwarded = _networks("--forwarded-from", self.forwarded_from)
        if oidc is None:
            return Logins(tokens, proxy, forwarded_from=forwarded), ()
        provider = IdentityProvider(oidc)
        logins = Logins(tokens, proxy, provider, grants, forwarded_from=forwarded)
        return logins, (urlsplit(oidc.address).hostname or "",)


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
    way = entrance or Entrance()
    if way.certificate and way.key:
        _check_certificate(way.certificate, way.key)
    access, own_name = way.logins()
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


def _networks(option: str, values: Collection[str]) -> tuple[Network, ...]:
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


def console_application(
    config: Path,
    *,
    access: Access | None = None,
    four_eyes_above: int | None = None,
    hosts: Collection[str] = (),
    listener: Listener | None = None,
) -> FastAPI:
    """The console of one job, an ASGI application; by default without a login.

    Plans for more than ``four_eyes_above`` messages need a second person to apply them. ``hosts``
    are the console's host names; empty for any. ``listener`` bounds the connections.
    """

    @asynccontextmanager
    async def ending_idle(_: FastAPI) -> AsyncIterator[None]:
        task = asyncio.create_task(_end_idle(listener)) if listener else None
        yield
        if task:
            task.cancel()

    app = FastAPI(
        lifespan=ending_idle,
        title="Redrive console",
        version=__version__,
        docs_url=None,  # its page loads scripts from another host
        redoc_url=None,
        openapi_url="/api/openapi.json",
    )
    console = Console(config, four_eyes_above)
    add_routes(app, console)
    _add_errors(app, console)
    if isinstance(access, Logins):
        add_sign_in(app, access, console.audit, console.page)
    app.add_middleware(Guard, access=access or LocalAccess(), hosts=hosts, listener=listener)
    return app


async def _end_idle(listener: Listener) -> None:
    while True:
        await asyncio.sleep(1)
        listener.end_idle()


def _add_errors(app: FastAPI, console: Console) -> None:
    async def answer(request: Request, error: Exception) -> Response:
        await asyncio.sleep(0)
        status, message, hint = _describe(error)
        content = {"error": message, "hint": hint}
        is_known = hasattr(request.state, "user")
        is_script = request.url.path.startswith("/api/") and not wants_page(request)
        if is_script or not is_known:
            return as_json(content, status)
        return console.page(request, "error.html", {"status": status, **content}, status)

    for kind in (RedriveError, StarletteHTTPException, RequestValidationError):
        app.add_exception_handler(kind, answer)


def _describe(error: Exception) -> tuple[int, str, str]:
    match error:
        case StarletteHTTPException():
            return error.status_code, str(error.detail), ""
        case RequestValidationError():
            names = ", ".join(str(detail["loc"][-1]) for detail in error.errors())
            return HTTPStatus.BAD_REQUEST, f"missing or wrong: {names}", "complete the form"
        case RefusedError():
            status = HTTPStatus.FORBIDDEN
        case UsageError() | ConfigurationError():
            status = HTTPStatus.BAD_REQUEST
        case NotFoundError():
            status = HTTPStatus.NOT_FOUND
        case EnvironmentFault() | TransientFault() | OutcomeUnknown():
            status = HTTPStatus.SERVICE_UNAVAILABLE
        case _:
            status = HTTPStatus.INTERNAL_SERVER_ERROR
    assert isinstance(error, RedriveError)
    return status, error.message, error.hint
