"""What routes of pages and of actions share: the console of one job, and access checks.

Annotations are values here, not strings: FastAPI evaluates them, and some are local names.
"""

from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any

import orjson
from fastapi import Depends, Request, params
from fastapi.responses import HTMLResponse, RedirectResponse
from starlette.responses import Response

from redrive.console.access import Role, Scope, current_scope, current_user, needs
from redrive.console.actions import Actions
from redrive.console.audit import Audit
from redrive.console.documents import Documents
from redrive.console.live import Live
from redrive.console.rendering import Pages
from redrive.console.security import refuse_forgery
from redrive.console.tables import RulesTables

Seen = Annotated[Scope, Depends(current_scope)]
"""The part of the job that the user may see or change by a route."""


class Console:
    """What the routes of one application share."""

    def __init__(self, config: Path, four_eyes_above: int | None) -> None:
        self.documents = Documents(config)
        self.live = Live(self.documents)
        self.actions = Actions(self.documents, four_eyes_above=four_eyes_above)
        self.tables = RulesTables(config)
        self.pages = Pages()
        self.audit = Audit(lambda: self.documents.settings().job.directory)

    def page(
        self,
        request: Request,
        template: str,
        content: Mapping[str, Any],
        status: int = 200,
        seen: str = "",
    ) -> HTMLResponse:
        """Render a document, with the job's state (``Live.state``) that it shows."""
        parameters = dict(request.query_params)
        text = self.pages.render(
            template,
            current_user(request),
            doc=content,
            path=request.url.path,
            parameters=parameters,
            word=request.state.word,
            seen=seen,
        )
        return HTMLResponse(text, status)


def recorded(console: Console, action: str) -> list[params.Depends]:
    """Record an action in the audit before it is taken, as an option of a route."""
    return [Depends(console.audit.of(action))]


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
    return allowed_for(Role.OPERATOR, Depends(refuse_forgery), *recorded(console, action))


def done(request: Request, content: Mapping[str, Any], page: str) -> Response:
    """The answer to an action: a redirect for a browser, else JSON."""
    if wants_page(request):
        return RedirectResponse(page, HTTPStatus.SEE_OTHER)
    return as_json(content)


def wants_page(request: Request) -> bool:
    """Whether a request is from a browser rather than a script."""
    return "text/html" in request.headers.get("Accept", "")
