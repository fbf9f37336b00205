"""Routes to sign in, with a token or by an identity provider, and to sign out."""

import logging
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Annotated, Any, Final

from fastapi import Depends, FastAPI, Form, Request
from fastapi.responses import HTMLResponse, RedirectResponse
from starlette.responses import Response

from redrive.console.access import Role, SignedInBy, User, current_user, is_name
from redrive.console.audit import Audit
from redrive.console.logins import SESSION_COOKIE, SESSION_SECONDS, SIGN_IN, Logins
from redrive.console.oidc import CALLBACK, STARTED, SignInRefused
from redrive.console.security import is_secure, refuse_forgery

_log: Final = logging.getLogger(__name__)

_STARTED_COOKIE: Final = "redrive-sign-in"
_SHOWN: Final = 20
"""Maximum groups of a user without a role that the page names."""

Page = Callable[[Request, str, Mapping[str, Any], int], HTMLResponse]


def add_sign_in(app: FastAPI, logins: Logins, audit: Audit, page: Page) -> None:
    """Add the routes to an application, if there is a way to sign in."""
    if not logins.has_sign_in:
        return
    routes = _SignInRoutes(logins, audit, page)
    app.get(SIGN_IN, include_in_schema=False)(routes.form)
    protected: dict[str, Any] = {
        "include_in_schema": False,
        "dependencies": [Depends(refuse_forgery)],
    }
    if logins.tokens:
        app.post(SIGN_IN, **protected)(routes.with_token)
    if logins.provider:
        app.get(f"{SIGN_IN}/start", include_in_schema=False)(routes.start)
        app.get(CALLBACK, include_in_schema=False)(routes.finish)
    app.post("/sign-out", **protected)(routes.sign_out)


class _SignInRoutes:
    def __init__(self, logins: Logins, audit: Audit, page: Page) -> None:
        self._logins = logins
        self._audit = audit
        self._page = page

    def form(self, request: Request) -> Response:
        return self._form(request)

    async def with_token(self, request: Request, token: Annotated[str, Form()]) -> Response:
        user = self._logins.user_of_token(token.strip())
        if user is None:
            if wait := self._logins.guessed(request):
                return self._wait(request, wait)
            return self._form(request, "This token is unknown.", HTTPStatus.UNAUTHORIZED)
        return self._begin_session(request, user)

    async def start(self, request: Request) -> Response:
        """Redirect a browser to the identity provider."""
        assert self._logins.provider is not None
        place, started = await self._logins.provider.start()
        answer = RedirectResponse(place, HTTPStatus.SEE_OTHER)
        # The browser returns from another site, and would not send a strict cookie.
        answer.set_cookie(
            _STARTED_COOKIE,
            self._logins.keep(started, STARTED),
            max_age=int(STARTED),
            path=SIGN_IN,
            httponly=True,
            samesite="lax",
            secure=is_secure(request),
        )
        return answer

    async def finish(self, request: Request) -> Response:
        """Receive a browser's return from the identity provider."""
        assert self._logins.provider is not None
        address = self._logins.address(request)
        started = self._logins.take(request.cookies.get(_STARTED_COOKIE, ""))
        try:
            found = await self._logins.provider.finish(started, dict(request.query_params))
        except SignInRefused as refusal:
            _log.warning("%s: %s", address, refusal.message)
            return self._form(request, refusal.message, HTTPStatus.UNAUTHORIZED)
        user = User(found.name, self._logins.grants.of(found.name, found.groups), SignedInBy.OIDC)
        if user.role is Role.NOBODY:
            _log.warning("%s: %s has no role", address, user.name)
            groups = sorted(one for one in found.groups if is_name(one))[:_SHOWN]
            content = {"name": user.name, "groups": groups}
            return self._page(request, "no_role.html", content, HTTPStatus.FORBIDDEN)
        return self._begin_session(request, user)

    async def sign_out(self, request: Request) -> Response:
        self._audit.write(current_user(request), "sign out")
        self._logins.sessions.end(request.cookies.get(SESSION_COOKIE, ""))
        answer = RedirectResponse(f"{SIGN_IN}?out=1", HTTPStatus.SEE_OTHER)
        answer.delete_cookie(SESSION_COOKIE, httponly=True, samesite="strict")
        return answer

    def _begin_session(self, request: Request, user: User) -> Response:
        """Begin a session, and end an earlier one of this browser."""
        key = f"user {user.name}"
        if wait := self._logins.sign_ins.wait(key):
            return self._wait(request, wait)
        self._logins.sign_ins.count(key)
        self._audit.write(user, "sign in")
        self._logins.sessions.end(request.cookies.get(SESSION_COOKIE, ""))
        # A redirect would count as coming from the identity provider, like the request that it
        # answers, and the browser would not send the strict cookie.
        is_back = user.by is SignedInBy.OIDC
        answer: Response = RedirectResponse("/", HTTPStatus.SEE_OTHER)
        if is_back:
            answer = self._page(request, "signed_in.html", {}, 200)
        answer.set_cookie(
            SESSION_COOKIE,
            self._logins.sessions.begin(user),
            max_age=SESSION_SECONDS,
            httponly=True,
            samesite="strict",
            secure=is_secure(request),
        )
        if is_back:
            answer.delete_cookie(_STARTED_COOKIE, path=SIGN_IN, httponly=True, samesite="lax")
        return answer

    def _wait(self, request: Request, wait: int) -> Response:
        text = "Too many attempts to sign in: try again in a minute."
        answer = self._form(request, text, HTTPStatus.TOO_MANY_REQUESTS)
        answer.headers["Retry-After"] = str(wait)
        return answer

    def _form(self, request: Request, problem: str = "", status: int = 200) -> HTMLResponse:
        provider = self._logins.provider
        is_out = "out" in request.query_params
        content = {
            "problem": problem,
            "has_tokens": bool(self._logins.tokens),
            "provider": provider.settings.issuer if provider else "",
            "is_out": is_out,
            "sign_out": provider.sign_out_address() if provider and is_out else "",
        }
        return self._page(request, "signin.html", content, status)
