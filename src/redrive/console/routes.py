"""The routes of the console: pages, each with its document, and actions, which take a form.

Each document is a page and, under ``/api``, JSON; an action answers JSON or redirects a browser.

Annotations are values here, not strings: FastAPI evaluates them, and some are local names.
"""

import asyncio
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from importlib.resources import files
from inspect import signature
from pathlib import Path
from typing import Annotated, Any, Final

import orjson
from fastapi import Depends, FastAPI, Form, Header, Query, Request, params
from fastapi.responses import (
    HTMLResponse,
    PlainTextResponse,
    RedirectResponse,
    StreamingResponse,
)
from fastapi.staticfiles import StaticFiles
from pydantic import BaseModel, Field
from starlette.responses import Response

from redrive.command.edits import patch_of, read_edit
from redrive.command.selection import parse_selection
from redrive.console.access import EVERYTHING, Audit, Role, Seen, current_user, needs
from redrive.console.actions import Actions
from redrive.console.documents import Documents, Live
from redrive.console.logins import LIVE
from redrive.console.rendering import link, page_templates
from redrive.console.security import refuse_forgery
from redrive.console.tables import RulesTables
from redrive.engine.commands import Replay
from redrive.errors import UsageError
from redrive.operations.channel import set_channels
from redrive.operations.network import Network, network_of_settings
from redrive.operations.replay.plan import parse_rate, parse_target
from redrive.operations.states import set_put_enabled
from redrive.outcomes.inventory import Selection, State
from redrive.printable import printable

_log: Final = logging.getLogger(__name__)

_LINE: Final = re.compile("[0-9]{1,9}")


class Console:
    """What the routes of one application share."""

    def __init__(self, config: Path, four_eyes_above: int | None) -> None:
        self.documents = Documents(config)
        self.live = Live(self.documents)
        self.actions = Actions(self.documents, four_eyes_above=four_eyes_above)
        self.tables = RulesTables(self.documents)
        self._templates = page_templates()
        self.audit = Audit(lambda: self.documents.settings(EVERYTHING).job.directory)

    def page(
        self,
        request: Request,
        template: str,
        content: Mapping[str, Any],
        status: int = 200,
        seen: str = "",
    ) -> HTMLResponse:
        """Render a document, with the job's state (``Live.state``) that it shows."""
        text = self._templates.get_template(template).render(
            doc=content,
            user=current_user(request),
            path=request.url.path,
            parameters=dict(request.query_params),
            word=request.state.word,
            seen=seen,
            now=datetime.now(UTC),
        )
        return HTMLResponse(text, status)


def allowed_for(role: Role, *checks: params.Depends, whole_job: bool = False) -> dict[str, Any]:
    """Options of a route for users with a role, which the OpenAPI document names.

    With ``whole_job`` users whose role is limited to some topics are refused.
    """
    return {
        "dependencies": [Depends(needs(role, whole_job=whole_job)), *checks],
        "openapi_extra": {"x-role": role.name.lower(), "x-whole-job": whole_job},
    }


def as_json(content: object, status: int = 200) -> Response:
    """A document as commands print it with ``--json``."""
    return Response(orjson.dumps(content), status, media_type="application/json")


def operators_only(console: Console, action: str) -> dict[str, Any]:
    """Options of an audited route for operators."""
    return allowed_for(Role.OPERATOR, Depends(refuse_forgery), Depends(console.audit.of(action)))


def done(request: Request, content: Mapping[str, Any], page: str) -> Response:
    """The answer to an action: a redirect for a browser, else JSON."""
    if wants_page(request):
        return RedirectResponse(page, HTTPStatus.SEE_OTHER)
    return as_json(content)


def wants_page(request: Request) -> bool:
    """Whether a request is from a browser rather than a script."""
    return "text/html" in request.headers.get("Accept", "")


# -- parameters and forms ----------------------------------------------------------------------


class Chosen(BaseModel):
    """The options of ``redrive ls`` as parameters of a page."""

    status: str = State.OPEN.value
    exception: str = ""
    error_text: str = ""
    group: str = ""
    topic: str = ""
    partition: str = ""
    reason: str = ""
    destq: str = ""
    rule: str = ""
    handler: str = ""
    key: str = ""
    since: str = ""
    older_than: str = ""
    looked_since: str = ""
    body: str = ""
    body_text: str = ""
    where: str = ""
    limit: Annotated[int, Field(ge=1, le=1000)] = 50

    def selection(self) -> Selection:
        """The selection; raises ``UsageError``."""
        if self.status not in {*State}:
            raise UsageError(f"{self.status!r} is not a state", hint=f"give {', '.join(State)}")
        for what, text in (("line", self.rule), ("partition", self.partition)):
            if text and not _LINE.fullmatch(text):
                raise UsageError(f"{text!r} is no number of a {what}", hint="give a whole number")
        names = signature(parse_selection).parameters
        options: dict[str, Any] = {name: getattr(self, name) or None for name in names}
        numbers = {"rule": self.rule, "partition": self.partition}
        options |= {name: int(text) for name, text in numbers.items() if text}
        options["where"] = self.where
        return parse_selection(**options)

    def problems(self) -> dict[str, str]:
        """What is wrong with options, by their names."""
        problems = {}
        for name, text in self.parameters().items():
            try:
                Chosen.model_construct(**{name: text}).selection()
            except UsageError as error:
                message = error.message.removeprefix(f"--{name.replace('_', '-')} ")
                hint = "" if "--" in error.hint else error.hint  # pages have no options
                problems[name] = ": ".join(filter(None, (message, hint)))
        return problems

    def parameters(self) -> dict[str, Any]:
        """Options that differ from the defaults, for links of a list."""
        return self.model_dump(exclude_defaults=True, exclude={"page"})


class ListedPage(Chosen):
    """One page of a list."""

    page: Annotated[int, Field(ge=1, le=1_000_000)] = 1


class Planned(Chosen):
    """The form of a new plan."""

    message: str = ""
    """The identity of one message; the other options are then ignored."""
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

    def selection(self) -> Selection:
        """The selection; raises ``UsageError``."""
        return Selection(message=self.message) if self.message else super().selection()

    def replay(self) -> Replay:
        """What to do with the messages; raises ``UsageError``."""
        wanted = parse_target(self.queue if self.to == "queue" else self.to)
        rate = parse_rate(self.rate) if self.rate else None
        lines = (text.splitlines() for text in (self.set_headers, self.drop_headers))
        headers, dropped = ([name.strip() for name in line if name.strip()] for line in lines)
        patch = self.json_patch.strip()
        read = patch_of(patch.encode(), "the JSON Patch", "it") if patch else None
        edit = read_edit(headers, dropped, read)
        if edit and self.edited:
            raise UsageError("the message is already edited", hint="change headers there too")
        return replace(wanted, keeps_header=self.keeps_header, rate=rate, edit=edit)


class OneMessage(Planned):
    """The form of one message to edit."""

    message: Annotated[str, Field(min_length=1)]


class Because(BaseModel):
    """The form of an action with a reason."""

    because: str = ""


class Acknowledged(Chosen):
    """The form of an acknowledgement."""

    until: str
    note: str


class Named(BaseModel):
    """The form of a channel or a queue of a queue manager."""

    queue_manager: str
    name: str = ""
    """Empty for all channels."""


class TableText(BaseModel):
    """The form of a rules table."""

    text: str


class TriedTable(TableText):
    """The form of a rules table that goes live."""

    confirm: str = ""
    """From the trial of the text."""
    because: Annotated[str, Field(max_length=500)] = ""


def unix(text: str) -> str:
    """A text with Unix line ends; forms send CR LF."""
    return text.replace("\r\n", "\n")


# -- pages --------------------------------------------------------------------------------------


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
    checks = [Depends(console.audit.of(audited))] if audited else []
    allowed = allowed_for(Role.VIEWER, *checks, whole_job=whole_job)
    Content = Annotated[dict[str, Any], Depends(document)]  # noqa: N806 - a type
    Shown = Annotated[dict[str, Any], Depends(on_page or document)]  # noqa: N806 - a type

    async def seen(scope: Seen) -> str:
        return console.live.state(scope)

    # The state before the document is made: events report later changes.
    def page(request: Request, seen: Annotated[str, Depends(seen)], content: Shown) -> HTMLResponse:
        status = HTTPStatus.BAD_REQUEST if content.get("problems") else HTTPStatus.OK
        return console.page(request, template, content, status, seen)

    def script(content: Content) -> Response:
        return as_json(content)

    name, text = document.__name__, document.__doc__
    app.get(f"/api{path}", summary=name, description=text, **allowed)(script)
    shown = "/" if path == "/status" else path
    app.get(shown, **allowed, include_in_schema=False)(page)


def _add_pages(app: FastAPI, console: Console) -> None:
    documents, add = console.documents, partial(_add_document, app, console)

    def completions(chosen: Annotated[Chosen, Query()], scope: Seen) -> dict[str, Any]:
        """Completions of a condition in SQL."""
        others = chosen.model_copy(update=dict.fromkeys(("where", "body", "body_text"), ""))
        return documents.completions(scope, chosen.where, others.selection())

    add("/status", "now.html", console.live.status)
    add("/failures", "failures.html", documents.failures)
    add("/acknowledgements", "acknowledgements.html", documents.acknowledgements)
    add("/completions", "completions.html", completions)
    add("/messages/{identity}", "message.html", documents.message, audited="look at a message")
    add("/network", "network.html", documents.network, whole_job=True)
    add("/resolve", "resolve.html", documents.resolve, whole_job=True)


def _add_lists(app: FastAPI, console: Console) -> None:
    documents, add = console.documents, partial(_add_document, app, console)

    def record(request: Request, chosen: Chosen) -> None:
        if about := f"{chosen.body} {chosen.body_text}".strip():
            console.audit.write(current_user(request), "search bodies", about)

    def groups(chosen: Annotated[Chosen, Query()], scope: Seen, request: Request) -> dict[str, Any]:
        """What ``redrive groups --json`` prints, with the trend of each group."""
        record(request, chosen)
        groups = documents.groups(scope, chosen.selection(), chosen.limit)
        return {**groups, "chosen": chosen.parameters()}

    def messages(
        chosen: Annotated[ListedPage, Query()], scope: Seen, request: Request
    ) -> dict[str, Any]:
        """What ``redrive ls --json`` prints."""
        record(request, chosen)
        messages = documents.messages(scope, chosen.selection(), chosen.limit, chosen.page)
        before = (chosen.page - 1) * chosen.limit
        return {**messages, "page": chosen.page, "before": before, "chosen": chosen.parameters()}

    def list_on_page(document: Callable[..., Any], options: type[Chosen]) -> Callable[..., Any]:
        """A list that may take seconds: its page comes first, and then loads the rows."""

        def outline_or_list(
            chosen: Annotated[Chosen, Depends(options)], scope: Seen, request: Request
        ) -> dict[str, Any]:
            is_script = "HX-Request" in request.headers
            problems = {} if is_script else chosen.problems()
            if is_script or ("whole" in request.query_params and not problems):
                content: dict[str, Any] = document(chosen, scope, request)
                return content
            outline = documents.outline(scope)
            return {**outline, "chosen": chosen.parameters(), "problems": problems}

        return outline_or_list

    add("/groups", "groups.html", groups, on_page=list_on_page(groups, Chosen))
    add("/messages", "messages.html", messages, on_page=list_on_page(messages, ListedPage))


def _add_pages_of_work(app: FastAPI, console: Console) -> None:
    add = partial(_add_document, app, console)

    def plans(request: Request, scope: Seen) -> dict[str, Any]:
        """The plans that are not applied yet, and the replays."""
        waiting = console.actions.waiting_plans(current_user(request))
        return {"plans": waiting, **console.documents.replays(scope)}

    def plan(identity: str, request: Request) -> dict[str, Any]:
        """A plan that is not applied yet, or the progress of an applied one."""
        return console.actions.plan(identity, current_user(request))

    def tables(scope: Seen) -> dict[str, Any]:
        """What ``redrive tables --hits --json`` prints."""
        return console.tables.within(scope).every()

    def table(handler: str, scope: Seen, ran: str = "") -> dict[str, Any]:
        """The table of a handler, or an earlier one, with what ``redrive check`` reports."""
        tables = console.tables.within(scope)
        return tables.ran(handler, ran) if ran else tables.table(handler)

    def difference(old: str, new: str, scope: Seen, handler: str = "") -> dict[str, Any]:
        """What ``redrive diff --json`` prints about two earlier tables."""
        return console.tables.within(scope).difference(old, new, handler)

    add("/plans", "plans.html", plans)
    add("/plans/{identity}", "plan.html", plan)
    add("/tables", "tables.html", tables)
    add("/tables/{handler}", "table.html", table)
    add("/difference", "difference.html", difference)


def _add_others(app: FastAPI, console: Console) -> None:
    @app.get("/live", **allowed_for(Role.VIEWER), include_in_schema=False)
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
        **allowed_for(Role.VIEWER, Depends(console.audit.of("download a body"))),
    )
    def body(identity: str, scope: Seen) -> Response:
        """The body of a message, as a file."""
        content = console.documents.body(identity, scope)
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


# -- actions ------------------------------------------------------------------------------------


def _add_plan_actions(app: FastAPI, console: Console) -> None:
    actions, allowed = console.actions, partial(operators_only, console)

    @app.post("/api/plans", **allowed("plan"))
    def make_plan(request: Request, form: Annotated[Planned, Form()]) -> Response:
        """Make a plan; nothing is done with the messages yet."""
        edited = unix(form.edited)
        plan = actions.make_plan(current_user(request), form.selection(), form.replay(), edited)
        if plan["count"] or not wants_page(request):
            return done(request, plan, f"/plans/{plan['plan']}")
        return console.page(request, "plan.html", {"plan": plan, "replay": None})

    @app.post("/api/plans/text", **allowed_for(Role.OPERATOR, Depends(refuse_forgery)))
    def text(request: Request, form: Annotated[OneMessage, Form()]) -> Response:
        """One message as text to edit, for a plan."""
        console.audit.write(current_user(request), "look at a message", form.message)
        content = actions.text(current_user(request), form.selection(), form.replay())
        if not wants_page(request):
            return as_json(content)
        kept = form.model_dump(exclude_defaults=True, exclude={"edited"})
        return console.page(request, "edit.html", {**content, "chosen": kept})

    @app.post("/api/plans/{identity}/apply", **allowed("apply"))
    def apply_plan(identity: str, request: Request, form: Annotated[Because, Form()]) -> Response:
        """Hands a plan to the job."""
        content = actions.apply_plan(identity, current_user(request), form.because)
        return done(request, content, f"/plans/{identity}")

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
        content = actions.acknowledge(
            current_user(request), form.selection(), until=form.until, note=form.note
        )
        return done(request, content, "/groups")

    @app.post("/api/acknowledgements/{identity}/undo", **allowed("undo an acknowledgement"))
    def take_back(identity: str, request: Request) -> Response:
        """Ends an acknowledgement."""
        actions.take_back(current_user(request), identity)
        return done(request, {"undone": identity}, "/acknowledgements")


def _add_network_actions(app: FastAPI, console: Console) -> None:
    def route(path: str, verb: str, action: Callable[[Network, str, str], object]) -> None:
        def act(request: Request, form: Annotated[Named, Form()]) -> Response:
            user = current_user(request)
            about = f"{form.name or 'all channels'} of {form.queue_manager}"
            console.audit.write(user, verb, about)
            network = network_of_settings(console.documents.path)
            action(network, form.queue_manager, form.name)
            _log.info("%s: %s, %s", user.name, verb, about)
            page = link("/network", {"queue_manager": form.queue_manager})
            return done(request, form.model_dump(), page)

        allowed = allowed_for(Role.OPERATOR, Depends(refuse_forgery), whole_job=True)
        app.post(f"/api/{path}", summary=verb, **allowed)(act)

    for word, turns_on in (("start", True), ("stop", False)):
        route(f"channels/{word}", f"{word} a channel", partial(set_channels, is_running=turns_on))
    for word, turns_on in (("enable", True), ("disable", False)):
        route(f"queues/{word}", f"{word} puts", partial(set_put_enabled, put_enabled=turns_on))


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
        return shown(request, console.tables.within(scope).table(handler, unix(form.text)))

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
        content = console.tables.within(scope).put_live(
            handler,
            unix(form.text),
            confirm=form.confirm,
            operator=f"{user.name} ({because})" if because else "",
        )
        handlers = ", ".join(content["handlers"])
        _log.info("%s activated a table of %s: %s", user.name, handlers, because)
        return done(request, content, "/tables")


def add_routes(app: FastAPI, console: Console) -> None:
    """Adds all pages and actions to an application."""
    for add in (
        _add_pages, _add_lists, _add_pages_of_work, _add_others,
        _add_plan_actions, _add_acknowledgement_actions, _add_network_actions, _add_table_actions,
    ):  # fmt: skip
        add(app, console)
