"""Routes of actions: they take a form, and answer JSON or redirect a browser.

Annotations are values here, not strings: FastAPI evaluates them, and some are local names.
"""

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any, Final

from fastapi import Depends, FastAPI, Form, Request
from starlette.responses import Response

from redrive.console.access import Role, User, current_user
from redrive.console.forms import (
    Acknowledged,
    Because,
    Named,
    OneMessage,
    Planned,
    TableText,
    TriedTable,
    unix,
)
from redrive.console.rendering import link
from redrive.console.routing import (
    Console,
    Seen,
    allowed_for,
    as_json,
    done,
    operators_only,
    wants_page,
)
from redrive.console.security import refuse_forgery
from redrive.printable import printable

_log: Final = logging.getLogger(__name__)


def add_actions(app: FastAPI, console: Console) -> None:
    """Adds the routes to an application."""
    _add_plan_actions(app, console)
    _add_acknowledgement_actions(app, console)
    _add_network_actions(app, console)
    _add_table_actions(app, console)


def _add_plan_actions(app: FastAPI, console: Console) -> None:
    actions, allowed = console.actions, partial(operators_only, console)

    @app.post("/api/plans", **allowed("plan"))
    def make_plan(request: Request, form: Annotated[Planned, Form()]) -> Response:
        """Make a plan; nothing is done with the messages yet."""
        edited = unix(form.edited)
        found = actions.make_plan(current_user(request), form.selection(), form.order(), edited)
        if found["count"] or not wants_page(request):
            return done(request, found, f"/plans/{found['plan']}")
        return console.page(request, "plan.html", {"plan": found, "replay": None})

    @app.post("/api/plans/text", **allowed_for(Role.OPERATOR, Depends(refuse_forgery)))
    def text(request: Request, form: Annotated[OneMessage, Form()]) -> Response:
        """One message as text to edit, for a plan."""
        console.audit.write(current_user(request), "look at a message", form.message)
        found = actions.text(current_user(request), form.selection(), form.order())
        if not wants_page(request):
            return as_json(found)
        kept = form.model_dump(exclude_defaults=True, exclude={"edited"})
        return console.page(request, "edit.html", {**found, "chosen": kept})

    @app.post("/api/plans/{identity}/apply", **allowed("apply"))
    def apply_plan(identity: str, request: Request, form: Annotated[Because, Form()]) -> Response:
        """Hands a plan to the job."""
        found = actions.apply_plan(identity, current_user(request), form.because)
        return done(request, found, f"/plans/{identity}")

    @app.post("/api/plans/{identity}/discard", **allowed("discard"))
    def discard_plan(identity: str, request: Request) -> Response:
        """Removes a plan that nobody applied."""
        actions.discard_plan(identity, current_user(request))
        return done(request, {"plan": identity}, "/plans")

    @app.post("/api/plans/{identity}/cancel", **allowed("cancel"))
    def cancel_replay(
        identity: str, request: Request, form: Annotated[Because, Form()]
    ) -> Response:
        """Cancel the rest of a replay."""
        actions.cancel_replay(identity, current_user(request), form.because)
        return done(request, {"plan": identity}, f"/plans/{identity}")


def _add_acknowledgement_actions(app: FastAPI, console: Console) -> None:
    actions, allowed = console.actions, partial(operators_only, console)

    @app.post("/api/acknowledgements", **allowed("acknowledge"))
    def acknowledge(request: Request, form: Annotated[Acknowledged, Form()]) -> Response:
        """Acknowledge remaining messages, to suppress alerts about them."""
        found = actions.acknowledge(
            current_user(request), form.selection(), until=form.until, note=form.note
        )
        return done(request, found, "/groups")

    @app.post("/api/acknowledgements/{identity}/undo", **allowed("undo an acknowledgement"))
    def take_back(identity: str, request: Request) -> Response:
        """Ends an acknowledgement."""
        actions.take_back(current_user(request), identity)
        return done(request, {"undone": identity}, "/acknowledgements")


def _add_network_actions(app: FastAPI, console: Console) -> None:
    def route(path: str, verb: str, action: Callable[[User, str, str], None]) -> None:
        def act(request: Request, form: Annotated[Named, Form()]) -> Response:
            user, name = current_user(request), form.name or "all channels"
            console.audit.write(user, verb, f"{name} of {form.queue_manager}")
            action(user, form.queue_manager, form.name)
            page = link("/network", {"queue_manager": form.queue_manager})
            return done(request, form.model_dump(), page)

        allowed = allowed_for(Role.OPERATOR, Depends(refuse_forgery), whole_job=True)
        app.post(f"/api/{path}", summary=verb, **allowed)(act)

    actions = console.actions
    for word, turns_on in (("start", True), ("stop", False)):
        set_channel = partial(actions.set_channel, is_running=turns_on)
        route(f"channels/{word}", f"{word} a channel", set_channel)
    for word, turns_on in (("enable", True), ("disable", False)):
        set_puts = partial(actions.set_puts, put_enabled=turns_on)
        route(f"queues/{word}", f"{word} puts", set_puts)


def _add_table_actions(app: FastAPI, console: Console) -> None:
    tried = allowed_for(Role.OPERATOR, Depends(refuse_forgery))
    live = allowed_for(Role.ADMIN, Depends(refuse_forgery))

    def shown(request: Request, content: Mapping[str, Any]) -> Response:
        if "HX-Request" in request.headers or wants_page(request):
            return console.page(request, "trial.html", content)
        return as_json(content)

    @app.post("/api/tables/{handler}/check", **tried)
    def check(
        handler: str, request: Request, form: Annotated[TableText, Form()], scope: Seen
    ) -> Response:
        """What ``redrive check`` says of a text."""
        return shown(request, console.tables.within(scope).one(handler, unix(form.text)))

    @app.post("/api/tables/{handler}/try", **tried)
    def try_table(
        handler: str, request: Request, form: Annotated[TableText, Form()], scope: Seen
    ) -> Response:
        """What ``redrive diff`` and ``redrive plan`` say, for each handler of the file."""
        return shown(request, console.tables.within(scope).trial(handler, unix(form.text)))

    @app.post("/api/tables/{handler}/live", **live)
    def put_live(
        handler: str, request: Request, form: Annotated[TriedTable, Form()], scope: Seen
    ) -> Response:
        """Activate a table by a reload of the job; its trial returns ``confirm``."""
        user, because = current_user(request), printable(form.because.strip())
        console.audit.write(user, "put live", handler, because)
        found = console.tables.within(scope).put_live(
            handler,
            unix(form.text),
            confirm=form.confirm,
            operator=f"{user.name} ({because})" if because else "",
        )
        handlers = ", ".join(found["handlers"])
        _log.info("%s activated a table of %s: %s", user.name, handlers, because)
        return done(request, found, "/tables")
