"""Routes by which people sign in with a token, and sign out."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final

from fastapi import Depends, FastAPI, Form, Request
from fastapi.responses import HTMLResponse, RedirectResponse
from starlette.responses import Response

from redrive.console.access import current_user
from redrive.console.audit import Audit
from redrive.console.logins import SESSION_COOKIE, SESSION_SECONDS, SIGN_IN, Logins
from redrive.console.security import refuse_forgery

_SEE_OTHER: Final = 303
_UNAUTHORIZED: Final = 401
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")

Page = Callable[[Request, str, Mapping[str, Any], int], HTMLResponse]


def add_sign_in(app: FastAPI, logins: Logins, audit: Audit, page: Page) -> None:
    """Adds the routes to an application; without tokens there is nothing to sign in with."""
    if not logins.tokens:
        return

    @app.get(SIGN_IN, include_in_schema=False)
    def form(request: Request) -> Response:
        return page(request, "signin.html", {"is_wrong": False}, 200)

    @app.post(SIGN_IN, include_in_schema=False, dependencies=[Depends(refuse_forgery)])
    async def sign_in(request: Request, token: Annotated[str, Form()]) -> Response:
        user = logins.user_of_token(token.strip())
        if user is None:
            return page(request, "signin.html", {"is_wrong": True}, _UNAUTHORIZED)
        audit.write(user, "sign in")
        logins.sessions.end(request.cookies.get(SESSION_COOKIE, ""))
        answer = RedirectResponse("/", _SEE_OTHER)
        # Behind a proxy that ends TLS the scheme is http; only on the loopback is it really so.
        secure = request.url.scheme == "https" or request.url.hostname not in _LOOPBACK
        answer.set_cookie(
            SESSION_COOKIE,
            logins.sessions.begin(user),
            max_age=SESSION_SECONDS,
            httponly=True,
            samesite="strict",
            secure=secure,
        )
        return answer

    @app.post("/sign-out", include_in_schema=False, dependencies=[Depends(refuse_forgery)])
    async def sign_out(request: Request) -> Response:
        audit.write(current_user(request), "sign out")
        logins.sessions.end(request.cookies.get(SESSION_COOKIE, ""))
        answer = RedirectResponse(SIGN_IN, _SEE_OTHER)
        answer.delete_cookie(SESSION_COOKIE, httponly=True, samesite="strict")
        return answer
