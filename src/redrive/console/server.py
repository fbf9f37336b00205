"""The console's application: routes, access, and answers to errors."""

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path

from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.responses import Response

from redrive import __version__
from redrive.console.access import LocalAccess, RefusedError
from redrive.console.action_routes import add_actions
from redrive.console.logins import Logins
from redrive.console.page_routes import add_pages
from redrive.console.routing import Console, as_json, wants_page
from redrive.console.security import Access, Guard
from redrive.console.sign_in import add_sign_in
from redrive.errors import (
    ConfigurationError,
    EnvironmentFault,
    NotFoundError,
    OutcomeUnknown,
    RedriveError,
    TransientFault,
    UsageError,
)
from redrive.listener import Listener

__all__ = ["console_application"]


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
    add_pages(app, console)
    add_actions(app, console)
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

    for kind in (RedriveError, StarletteHTTPException, HTTPException, RequestValidationError):
        app.add_exception_handler(kind, answer)


def _describe(error: Exception) -> tuple[int, str, str]:
    if isinstance(error, StarletteHTTPException):
        return error.status_code, str(error.detail), ""
    if isinstance(error, RequestValidationError):
        names = ", ".join(str(one["loc"][-1]) for one in error.errors())
        return HTTPStatus.BAD_REQUEST, f"missing or wrong: {names}", "complete the form"
    assert isinstance(error, RedriveError)
    return _status(error), error.message, error.hint


def _status(error: RedriveError) -> int:
    match error:
        case RefusedError():
            return HTTPStatus.FORBIDDEN
        case UsageError() | ConfigurationError():
            return HTTPStatus.BAD_REQUEST
        case NotFoundError():
            return HTTPStatus.NOT_FOUND
        case EnvironmentFault() | TransientFault() | OutcomeUnknown():
            return HTTPStatus.SERVICE_UNAVAILABLE
        case _:
            return HTTPStatus.INTERNAL_SERVER_ERROR
