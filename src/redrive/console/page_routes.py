"""Routes of the views: each document is a page and, under ``/api``, JSON.

Annotations are values here, not strings: FastAPI evaluates them, and some are local names.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from importlib.resources import files
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Header, Query, Request
from fastapi.responses import (
    HTMLResponse,
    PlainTextResponse,
    StreamingResponse,
)
from fastapi.staticfiles import StaticFiles
from starlette.responses import Response

from redrive.console.access import Role, current_user
from redrive.console.forms import Chosen, ListedPage
from redrive.console.logins import LIVE
from redrive.console.routing import Console, Seen, allowed_for, as_json, recorded


def add_pages(app: FastAPI, console: Console) -> None:
    """Adds the routes to an application."""
    _add_pages(app, console)
    _add_pages_of_network(app, console)
    _add_pages_of_work(app, console)
    _add_others(app, console)


def _add_document(
    app: FastAPI,
    console: Console,
    path: str,
    template: str,
    document: Callable[..., Any],
    *,
    audited: str = "",
    whole_job: bool = False,
    on_page: Callable[..., Any] | None = None,
) -> None:
    """Routes of a document: ``/api/PATH`` is JSON, ``/PATH`` the same as a page.

    ``audited`` is the audit's name of a view of it; ``on_page`` makes what the page shows, if that
    is not always the whole document.
    """
    checks = recorded(console, audited) if audited else []
    allowed = allowed_for(Role.VIEWER, *checks, whole_job=whole_job)
    Content = Annotated[dict[str, Any], Depends(document)]  # noqa: N806 - a type
    Shown = Annotated[dict[str, Any], Depends(on_page or document)]  # noqa: N806 - a type

    async def seen(scope: Seen) -> str:
        return console.live.state(scope)

    # The state before the document is made: events report later changes.
    def page(request: Request, seen: Annotated[str, Depends(seen)], content: Shown) -> HTMLResponse:
        return console.page(request, template, content, seen=seen)

    def script(content: Content) -> Response:
        return as_json(content)

    name, text = document.__name__, document.__doc__
    app.get(f"/api{path}", summary=name, description=text, **allowed)(script)
    shown = "/" if path == "/status" else path
    app.get(shown, **allowed, include_in_schema=False)(page)


def _add_pages(app: FastAPI, console: Console) -> None:
    within, live, add = console.documents.within, console.live, partial(_add_document, app, console)

    async def status(scope: Seen) -> dict[str, Any]:
        """What ``redrive status --json`` prints, with the rates of the last hour and day."""
        return await live.status(scope)

    def groups(chosen: Annotated[Chosen, Query()], scope: Seen) -> dict[str, Any]:
        """What ``redrive groups --json`` prints, with the trend of each group."""
        found = within(scope).groups(chosen.selection(), chosen.limit)
        return {**found, "chosen": chosen.parameters()}

    def messages(chosen: Annotated[ListedPage, Query()], scope: Seen) -> dict[str, Any]:
        """What ``redrive ls --json`` prints."""
        found = within(scope).messages(chosen.selection(), chosen.limit, chosen.page)
        before = (chosen.page - 1) * chosen.limit
        return {**found, "page": chosen.page, "before": before, "chosen": chosen.parameters()}

    def acknowledgements(scope: Seen) -> dict[str, Any]:
        """What ``redrive ack --list --json`` prints."""
        return within(scope).acknowledgements()

    def completions(chosen: Annotated[Chosen, Query()], scope: Seen) -> dict[str, Any]:
        """Completions of a condition in SQL."""
        return within(scope).completions(chosen.selection())

    def message(identity: str, scope: Seen) -> dict[str, Any]:
        """What ``redrive show --json`` prints, with each rule's verdict."""
        return within(scope).message(identity)

    def list_on_page(document: Callable[..., Any], options: type[Chosen]) -> Callable[..., Any]:
        """A list that may take seconds: its page comes first, and then loads the rows."""

        def outline_or_list(
            chosen: Annotated[Chosen, Depends(options)], scope: Seen, request: Request
        ) -> dict[str, Any]:
            if "HX-Request" in request.headers or "whole" in request.query_params:
                found: dict[str, Any] = document(chosen, scope)
                return found
            return {**within(scope).outline(), "chosen": chosen.parameters()}

        return outline_or_list

    add("/status", "now.html", status)
    add("/groups", "groups.html", groups, on_page=list_on_page(groups, Chosen))
    add("/messages", "messages.html", messages, on_page=list_on_page(messages, ListedPage))
    add("/acknowledgements", "acknowledgements.html", acknowledgements)
    add("/completions", "completions.html", completions)
    add("/messages/{identity}", "message.html", message, audited="look at a message")


def _add_pages_of_network(app: FastAPI, console: Console) -> None:
    add = partial(_add_document, app, console, whole_job=True)

    def network(queue_manager: str = "") -> dict[str, Any]:
        """What ``redrive topology show --json`` prints, and the channels of one queue manager."""
        return console.documents.network(queue_manager)

    def resolve(put: str, at: str = "") -> dict[str, Any]:
        """What ``redrive resolve --json`` prints."""
        return console.documents.resolve(put, at)

    add("/network", "network.html", network)
    add("/resolve", "resolve.html", resolve)


def _add_pages_of_work(app: FastAPI, console: Console) -> None:
    add = partial(_add_document, app, console)

    def plans(request: Request) -> dict[str, Any]:
        """The plans that are not applied yet, and the replays."""
        waiting = console.actions.waiting_plans(current_user(request))
        return {"plans": waiting, **console.documents.within(request.state.scope).replays()}

    def plan(identity: str, request: Request) -> dict[str, Any]:
        """A plan that is not applied yet, or the progress of an applied one."""
        return console.actions.plan(identity, current_user(request))

    def tables(scope: Seen) -> dict[str, Any]:
        """What ``redrive tables --hits --json`` prints."""
        return console.tables.within(scope).every()

    def table(handler: str, scope: Seen, ran: str = "") -> dict[str, Any]:
        """The table of a handler, or an earlier one, with what ``redrive check`` reports."""
        found = console.tables.within(scope)
        return found.ran(handler, ran) if ran else found.one(handler)

    def difference(old: str, new: str, scope: Seen, handler: str = "") -> dict[str, Any]:
        """What ``redrive diff --json`` prints about two earlier tables."""
        return console.tables.within(scope).difference(old, new, handler)

    add("/plans", "plans.html", plans)
    add("/plans/{identity}", "plan.html", plan)
    add("/tables", "tables.html", tables)
    add("/tables/{handler}", "table.html", table)
    add("/difference", "difference.html", difference)


def _add_others(app: FastAPI, console: Console) -> None:
    viewer = allowed_for(Role.VIEWER)

    @app.get("/live", **viewer, include_in_schema=False)
    async def events(
        scope: Seen, seen: str = "", last_event_id: Annotated[str, Header()] = ""
    ) -> StreamingResponse:
        return StreamingResponse(
            console.live.events(scope, last_event_id or seen),
            media_type="text/event-stream",
            headers={"X-Accel-Buffering": "no"},
        )

    @app.get(
        "/api/messages/{identity}/body",
        **allowed_for(Role.VIEWER, *recorded(console, "download a body")),
    )
    def body(identity: str, scope: Seen) -> Response:
        """The body of a message, as a file."""
        content = console.documents.within(scope).body(identity)
        return Response(
            content,
            media_type="application/octet-stream",
            headers={"Content-Disposition": 'attachment; filename="body"'},
        )

    @app.get(LIVE, include_in_schema=False)
    async def is_live() -> Response:
        """What probes ask: answered by the event loop, however long others look at the ledger."""
        await asyncio.sleep(0)
        return PlainTextResponse("ok")

    static = files("redrive.console").joinpath("static")
    app.mount("/static", StaticFiles(directory=str(static)), name="static")
    htmx = files("js_lib_htmx").joinpath("static", "htmx")
    app.mount("/htmx", StaticFiles(directory=str(htmx)), name="htmx")
