"""The console's server: a route for each document, as a page and as JSON, and one for each action.

Annotations are values here, not texts: FastAPI reads them, and some name what a call is given.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Final

import orjson
from fastapi import Depends, FastAPI, Form, HTTPException, Query, Request, params
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, RedirectResponse, StreamingResponse
from fastapi.staticfiles import StaticFiles
from pydantic import BaseModel, PositiveInt
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.responses import Response

from redrive import __version__
from redrive.command.edits import patch_of, read_edit
from redrive.command.selection import parse_selection
from redrive.console.access import (
    LocalAccess,
    RefusedError,
    Role,
    Scope,
    User,
    current_scope,
    current_user,
    needs,
)
from redrive.console.actions import Actions
from redrive.console.audit import Audit
from redrive.console.documents import Documents
from redrive.console.live import Live
from redrive.console.logins import Logins
from redrive.console.rendering import LANGUAGES, Pages, language_of, link
from redrive.console.security import Access, Guard, is_secure, refuse_forgery
from redrive.console.sign_in import add_sign_in
from redrive.console.tables import RulesTables
from redrive.errors import (
    EnvironmentFault,
    NotFoundError,
    OutcomeUnknown,
    RedriveError,
    TransientFault,
    UsageError,
)
from redrive.operations.replay.plan import Order, parse_rate, parse_target
from redrive.outcomes.inventory import Selection, State

__all__ = ["console_application"]

_log: Final = logging.getLogger(__name__)

_SEE_OTHER: Final = 303
_BAD_REQUEST: Final = 400
_NOT_FOUND: Final = 404
_FORBIDDEN: Final = 403
_INTERNAL: Final = 500
_UNAVAILABLE: Final = 503
_YEAR: Final = 365 * 24 * 3600
"""Seconds for which a browser keeps the language that was chosen."""


Seen = Annotated[Scope, Depends(current_scope)]
"""What of the job the user may see or change by a route."""


class Chosen(BaseModel):
    """The options of ``redrive ls`` as parameters of a page."""

    status: str = State.OPEN.value
    reason: str = ""
    destq: str = ""
    rule: str = ""
    handler: str = ""
    key: str = ""
    since: str = ""
    older_than: str = ""
    where: str = ""
    limit: int = 50

    def selection(self) -> Selection:
        """The selection; raises ``UsageError``."""
        if self.status not in {*State}:
            raise UsageError(f"{self.status!r} is not a state", hint=f"give {', '.join(State)}")
        if self.rule and not self.rule.isdecimal():
            raise UsageError(f"{self.rule!r} is not a line", hint="give the line of a rule")
        return parse_selection(
            status=self.status,
            reason=self.reason or None,
            destq=self.destq or None,
            rule=int(self.rule) if self.rule else None,
            handler=self.handler or None,
            key=self.key or None,
            since=self.since or None,
            older_than=self.older_than or None,
            where=self.where,
        )

    def parameters(self) -> dict[str, Any]:
        """What differs from the defaults, on each page of a list."""
        return self.model_dump(exclude_defaults=True, exclude={"page"})


class ListedPage(Chosen):
    """One page of a list."""

    page: PositiveInt = 1


class Planned(Chosen):
    """The form of a new plan."""

    message: str = ""
    """Of one message: its identity. The other options are then without meaning."""
    to: str = "original"
    queue: str = ""
    rate: str = ""
    keeps_header: bool = False
    set_headers: str = ""
    """``NAME=VALUE``, one a line."""
    drop_headers: str = ""
    """Names, one a line."""
    json_patch: str = ""
    edited: str = ""
    """Of one message: its text, edited."""

    def selection(self) -> Selection:
        """The selection; raises ``UsageError``."""
        return Selection(message=self.message) if self.message else super().selection()

    def order(self) -> Order:
        """What to do; raises ``UsageError``."""
        to, target = parse_target(self.queue if self.to == "queue" else self.to)
        rate = parse_rate(self.rate) if self.rate else None
        lines = (text.splitlines() for text in (self.set_headers, self.drop_headers))
        headers, dropped = ([one.strip() for one in it if one.strip()] for it in lines)
        patch = self.json_patch.strip()
        read = patch_of(patch.encode(), "the JSON Patch", "it") if patch else None
        edit = read_edit(headers, dropped, read)
        if edit and self.edited:
            raise UsageError("the message is edited already", hint="change headers there too")
        return Order(to=to, target=target, keeps_header=self.keeps_header, rate=rate, edit=edit)


class Because(BaseModel):
    """The form of what is done for a reason."""

    because: str = ""


class Acknowledged(Chosen):
    """The form of an acknowledgement."""

    until: str
    note: str
    covers_new: bool = False


class Named(BaseModel):
    """The form of a channel or a queue of a queue manager."""

    queue_manager: str
    name: str = ""
    """Empty for all channels."""


class KeptTable(BaseModel):
    """The form of a table that ran."""

    table: str


class TableText(BaseModel):
    """The form of a rules table."""

    text: str

    def unix(self) -> str:
        """The text as files have it."""
        return _unix(self.text)


def _unix(text: str) -> str:
    """A text as files have it: forms send CR LF."""
    return text.replace("\r\n", "\n")


class _Console:
    """What the routes of one application share."""

    def __init__(self, config: Path, four_eyes_above: int | None) -> None:
        self.documents = Documents(config)
        self.live = Live(self.documents)
        self.actions = Actions(self.documents, four_eyes_above=four_eyes_above)
        self.tables = RulesTables(config)
        self.pages = Pages()
        self.audit = Audit(lambda: self.documents.settings().job.directory)

    def page(
        self, request: Request, template: str, content: Mapping[str, Any], status: int = 200
    ) -> HTMLResponse:
        """Renders a document."""
        accepted = request.headers.get("Accept-Language", "")
        language = language_of(request.cookies.get("redrive-language"), accepted)
        parameters = dict(request.query_params)
        text = self.pages.render(
            template,
            language,
            current_user(request),
            doc=content,
            path=request.url.path,
            parameters=parameters,
            word=request.state.word,
        )
        return HTMLResponse(text, status)


def console_application(
    config: Path,
    *,
    access: Access | None = None,
    four_eyes_above: int | None = None,
    hosts: Collection[str] = (),
) -> FastAPI:
    """The console of one job, an ASGI application.

    Args:
        config: The file of the job's settings.
        access: Who may come in; by default everybody, as who runs the process.
        four_eyes_above: Messages of a plan above which somebody else has to apply it; None
            for no limit.
        hosts: Names under which it is reached; empty for any.
    """
    app = FastAPI(
        title="Redrive console",
        version=__version__,
        docs_url=None,  # its page loads scripts from another host
        redoc_url=None,
        openapi_url="/api/openapi.json",
    )
    console = _Console(config, four_eyes_above)
    _add_pages(app, console)
    _add_pages_of_network(app, console)
    _add_pages_of_work(app, console)
    _add_actions(app, console)
    _add_acknowledgement_actions(app, console)
    _add_network_actions(app, console)
    _add_table_actions(app, console)
    _add_others(app, console)
    _add_errors(app, console)
    if isinstance(access, Logins):
        add_sign_in(app, access, console.audit, console.page)
    app.add_middleware(Guard, access=access or LocalAccess(), hosts=hosts)
    return app


def _audited(console: _Console, action: str) -> list[params.Depends]:
    return [Depends(console.audit.of(action))]


def _for(role: Role, *checks: params.Depends, whole_job: bool = False) -> dict[str, Any]:
    """Options of a route for users with a role, which the OpenAPI document names.

    Args:
        role: The least role.
        checks: What else is checked, after the role.
        whole_job: Whether it refuses users whose role is limited to some topics.
    """
    return {
        "dependencies": [Depends(needs(role, whole_job=whole_job)), *checks],
        "openapi_extra": {"x-role": role.name.lower(), "x-whole-job": whole_job},
    }


def _json(content: object, status: int = 200) -> Response:
    """A document as commands print it with ``--json``."""
    return Response(orjson.dumps(content), status, media_type="application/json")


def _add_document(
    app: FastAPI,
    console: _Console,
    path: str,
    template: str,
    document: Callable[..., Any],
    *,
    audited: str = "",
    whole_job: bool = False,
) -> None:
    """Routes of a document: ``/api/PATH`` is JSON, ``/PATH`` the same as a page."""
    checks = _audited(console, audited) if audited else []
    allowed = _for(Role.VIEWER, *checks, whole_job=whole_job)
    Content = Annotated[dict[str, Any], Depends(document)]  # noqa: N806 - a type

    def page(request: Request, content: Content) -> HTMLResponse:
        return console.page(request, template, content)

    def script(content: Content) -> Response:
        return _json(content)

    name, text = document.__name__, document.__doc__
    app.get(f"/api{path}", summary=name, description=text, **allowed)(script)
    shown = "/" if path == "/status" else path
    app.get(shown, **allowed, include_in_schema=False)(page)


def _add_pages(app: FastAPI, console: _Console) -> None:
    """Routes of what there is to look at."""
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
        """Ways to go on with a condition in SQL."""
        return within(scope).completions(chosen.selection())

    def message(identity: str, scope: Seen) -> dict[str, Any]:
        """What ``redrive show --json`` prints, and what each rule says of it."""
        return within(scope).message(identity)

    add("/status", "now.html", status)
    add("/groups", "groups.html", groups)
    add("/messages", "messages.html", messages)
    add("/acknowledgements", "acknowledgements.html", acknowledgements)
    add("/completions", "completions.html", completions)
    add("/messages/{identity}", "message.html", message, audited="look at a message")


def _add_pages_of_network(app: FastAPI, console: _Console) -> None:
    """Routes of queue managers, and of the way of a put."""
    add = partial(_add_document, app, console, whole_job=True)

    def network(queue_manager: str = "") -> dict[str, Any]:
        """What ``redrive topology show --json`` prints, and of one queue manager its channels."""
        return console.documents.network(queue_manager)

    def resolve(put: str, at: str = "") -> dict[str, Any]:
        """What ``redrive resolve --json`` prints."""
        return console.documents.resolve(put, at)

    add("/network", "network.html", network)
    add("/resolve", "resolve.html", resolve)


def _add_pages_of_work(app: FastAPI, console: _Console) -> None:
    """Routes of plans and rules tables, which people come to change."""
    add = partial(_add_document, app, console)

    def plans(request: Request) -> dict[str, Any]:
        """The plans that wait for somebody to apply them, and the replays."""
        waiting = console.actions.waiting_plans(current_user(request))
        return {"plans": waiting, **console.documents.within(request.state.scope).replays()}

    def plan(identity: str, request: Request) -> dict[str, Any]:
        """A plan that waits, or the progress of one that was applied."""
        return console.actions.plan(identity, current_user(request))

    def tables(scope: Seen) -> dict[str, Any]:
        """What ``redrive tables --hits --json`` prints."""
        return console.tables.within(scope).every()

    def table(handler: str, scope: Seen, ran: str = "") -> dict[str, Any]:
        """The table of a handler, or one that ran, with what ``redrive check`` says of it."""
        found = console.tables.within(scope)
        return found.ran(handler, ran) if ran else found.one(handler)

    def difference(old: str, new: str, scope: Seen, handler: str = "") -> dict[str, Any]:
        """What ``redrive diff --json`` prints of two tables that ran."""
        return console.tables.within(scope).difference(old, new, handler)

    add("/plans", "plans.html", plans)
    add("/plans/{identity}", "plan.html", plan)
    add("/tables", "tables.html", tables)
    add("/tables/{handler}", "table.html", table)
    add("/difference", "difference.html", difference)


def _add_actions(app: FastAPI, console: _Console) -> None:
    """Routes of actions: they take a form, and answer JSON, or lead a browser to the next page."""
    actions, allowed = console.actions, partial(_allowed, console)

    @app.post("/api/plans", **allowed("plan"))
    def make_plan(request: Request, form: Annotated[Planned, Form()]) -> Response:
        """Makes a plan; nothing is done with the messages yet."""
        edited = _unix(form.edited)
        found = actions.make_plan(current_user(request), form.selection(), form.order(), edited)
        if found["count"] or not _wants_page(request):
            return _done(request, found, f"/plans/{found['plan']}")
        return console.page(request, "plan.html", {"plan": found, "replay": None})

    @app.post("/api/plans/text", **_for(Role.OPERATOR, Depends(refuse_forgery)))
    def text(request: Request, form: Annotated[Planned, Form()]) -> Response:
        """One message as a text to edit, which a plan then takes."""
        console.audit.write(current_user(request), "look at a message", form.message)
        found = actions.text(current_user(request), form.selection(), form.order())
        if not _wants_page(request):
            return _json(found)
        kept = form.model_dump(exclude_defaults=True, exclude={"edited"})
        return console.page(request, "edit.html", {**found, "chosen": kept})

    @app.post("/api/plans/{identity}/apply", **allowed("apply"))
    def apply_plan(identity: str, request: Request, form: Annotated[Because, Form()]) -> Response:
        """Hands a plan to the job."""
        found = actions.apply_plan(identity, current_user(request), form.because)
        return _done(request, found, f"/plans/{identity}")

    @app.post("/api/plans/{identity}/discard", **allowed("discard"))
    def discard_plan(identity: str, request: Request) -> Response:
        """Removes a plan that nobody applied."""
        actions.discard_plan(identity, current_user(request))
        return _done(request, {"plan": identity}, "/plans")

    @app.post("/api/plans/{identity}/cancel", **allowed("cancel"))
    def cancel_replay(
        identity: str, request: Request, form: Annotated[Because, Form()]
    ) -> Response:
        """Cancels what is left of a replay."""
        actions.cancel_replay(identity, current_user(request), form.because)
        return _done(request, {"plan": identity}, f"/plans/{identity}")


def _add_acknowledgement_actions(app: FastAPI, console: _Console) -> None:
    actions, allowed = console.actions, partial(_allowed, console)

    @app.post("/api/acknowledgements", **allowed("acknowledge"))
    def acknowledge(request: Request, form: Annotated[Acknowledged, Form()]) -> Response:
        """Acknowledges remaining messages, so that no alert is about them."""
        found = actions.acknowledge(
            current_user(request),
            form.selection(),
            until=form.until,
            note=form.note,
            covers_new=form.covers_new,
        )
        return _done(request, found, "/groups")

    @app.post("/api/acknowledgements/{identity}/undo", **allowed("undo an acknowledgement"))
    def take_back(identity: str, request: Request) -> Response:
        """Ends an acknowledgement."""
        actions.take_back(current_user(request), identity)
        return _done(request, {"undone": identity}, "/acknowledgements")


def _allowed(console: _Console, action: str) -> dict[str, Any]:
    """Options of an audited route for operators."""
    return _for(Role.OPERATOR, Depends(refuse_forgery), *_audited(console, action))


def _done(request: Request, content: Mapping[str, Any], page: str) -> Response:
    if _wants_page(request):
        return RedirectResponse(page, _SEE_OTHER)
    return _json(content)


def _add_network_actions(app: FastAPI, console: _Console) -> None:
    """Routes that start and stop channels, and enable and disable puts."""

    def route(path: str, verb: str, action: Callable[[User, Named], Any]) -> None:
        def act(request: Request, form: Annotated[Named, Form()]) -> Response:
            user, name = current_user(request), form.name or "all channels"
            console.audit.write(user, verb, f"{name} of {form.queue_manager}")
            action(user, form)
            page = link("/network", {"queue_manager": form.queue_manager})
            return _done(request, form.model_dump(), page)

        allowed = _for(Role.OPERATOR, Depends(refuse_forgery), whole_job=True)
        app.post(f"/api/{path}", summary=verb, **allowed)(act)

    for word, turns_on in (("start", True), ("stop", False)):
        route(f"channels/{word}", f"{word} a channel", partial(_set_channel, console, turns_on))
    for word, turns_on in (("enable", True), ("disable", False)):
        route(f"queues/{word}", f"{word} puts", partial(_set_puts, console, turns_on))


def _set_channel(console: _Console, is_running: bool, user: User, form: Named) -> None:  # noqa: FBT001
    console.actions.set_channel(user, form.queue_manager, form.name, is_running=is_running)


def _set_puts(console: _Console, put_enabled: bool, user: User, form: Named) -> None:  # noqa: FBT001
    console.actions.set_puts(user, form.queue_manager, form.name, put_enabled=put_enabled)


def _add_table_actions(app: FastAPI, console: _Console) -> None:
    """Routes about another text for a table; a browser gets them as a part of the page."""
    tried = _for(Role.OPERATOR, Depends(refuse_forgery))
    live = _for(Role.ADMIN, Depends(refuse_forgery), *_audited(console, "put live"))

    def shown(request: Request, content: Mapping[str, Any]) -> Response:
        if "HX-Request" in request.headers or _wants_page(request):
            return console.page(request, "trial.html", content)
        return _json(content)

    @app.post("/api/tables/{handler}/check", **tried)
    def check(
        handler: str, request: Request, form: Annotated[TableText, Form()], scope: Seen
    ) -> Response:
        """What ``redrive check`` says of a text."""
        return shown(request, console.tables.within(scope).one(handler, form.unix()))

    @app.post("/api/tables/{handler}/try", **tried)
    def try_table(
        handler: str, request: Request, form: Annotated[TableText, Form()], scope: Seen
    ) -> Response:
        """What ``redrive diff`` and ``redrive plan`` say of a text."""
        return shown(request, console.tables.within(scope).trial(handler, form.unix()))

    @app.post("/api/tables/{handler}/live", **live)
    def put_live(
        handler: str, request: Request, form: Annotated[TableText, Form()], scope: Seen
    ) -> Response:
        """Puts a table live by a restart of the job."""
        found = console.tables.within(scope).put_live(handler, form.unix())
        _log.info("%s put a table of %s live", current_user(request).name, handler)
        return RedirectResponse("/tables", _SEE_OTHER) if _wants_page(request) else _json(found)

    @app.post("/api/tables/{handler}/back", **live)
    def go_back(
        handler: str, request: Request, form: Annotated[KeptTable, Form()], scope: Seen
    ) -> Response:
        """Restarts the job with a table that ran before."""
        found = console.tables.within(scope).go_back(handler, form.table)
        _log.info("%s went back to table %s", current_user(request).name, form.table)
        return RedirectResponse("/tables", _SEE_OTHER) if _wants_page(request) else _json(found)


def _add_others(app: FastAPI, console: _Console) -> None:
    viewer = _for(Role.VIEWER)

    @app.get("/live", **viewer, include_in_schema=False)
    async def events(scope: Seen) -> StreamingResponse:
        return StreamingResponse(
            console.live.events(scope),
            media_type="text/event-stream",
            headers={"X-Accel-Buffering": "no"},
        )

    @app.get(
        "/api/messages/{identity}/body",
        **_for(Role.VIEWER, *_audited(console, "download a body")),
    )
    def body(identity: str, scope: Seen) -> Response:
        """The body of a message, as a file."""
        content = console.documents.within(scope).body(identity)
        return Response(
            content,
            media_type="application/octet-stream",
            headers={"Content-Disposition": 'attachment; filename="body"'},
        )

    @app.get("/language/{language}", **viewer, include_in_schema=False)
    def choose_language(language: str, request: Request) -> Response:
        answer = RedirectResponse("/", _SEE_OTHER)
        if language in LANGUAGES:
            answer.set_cookie(
                "redrive-language",
                language,
                max_age=_YEAR,
                httponly=True,
                samesite="strict",
                secure=is_secure(request),
            )
        return answer

    static = files("redrive.console").joinpath("static")
    app.mount("/static", StaticFiles(directory=str(static)), name="static")
    htmx = files("js_lib_htmx").joinpath("static", "htmx")
    app.mount("/htmx", StaticFiles(directory=str(htmx)), name="htmx")


def _add_errors(app: FastAPI, console: _Console) -> None:
    """Every error as a page or as JSON, with what to do next."""

    def answer(request: Request, status: int, message: str, hint: str) -> Response:
        content = {"error": message, "hint": hint}
        is_known = hasattr(request.state, "user")
        is_script = request.url.path.startswith("/api/") and not _wants_page(request)
        if is_script or not is_known:
            return _json(content, status)
        return console.page(request, "error.html", {"status": status, **content}, status)

    async def of_redrive(request: Request, error: Exception) -> Response:
        assert isinstance(error, RedriveError)
        await asyncio.sleep(0)
        return answer(request, _status(error), error.message, error.hint)

    async def of_http(request: Request, error: Exception) -> Response:
        assert isinstance(error, StarletteHTTPException)
        await asyncio.sleep(0)
        return answer(request, error.status_code, str(error.detail), "")

    async def of_form(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        await asyncio.sleep(0)
        names = ", ".join(str(one["loc"][-1]) for one in error.errors())
        return answer(request, _BAD_REQUEST, f"missing or wrong: {names}", "fill the form again")

    handlers: dict[type[Exception], Callable[[Request, Exception], Awaitable[Response]]] = {
        RedriveError: of_redrive,
        StarletteHTTPException: of_http,
        HTTPException: of_http,
        RequestValidationError: of_form,
    }
    for kind, handler in handlers.items():
        app.add_exception_handler(kind, handler)


def _wants_page(request: Request) -> bool:
    return "text/html" in request.headers.get("Accept", "")


def _status(error: RedriveError) -> int:
    match error:
        case RefusedError():
            return _FORBIDDEN
        case UsageError():
            return _BAD_REQUEST
        case NotFoundError():
            return _NOT_FOUND
        case EnvironmentFault() | TransientFault() | OutcomeUnknown():
            return _UNAVAILABLE
        case _:
            return _INTERNAL
