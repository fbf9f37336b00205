"""What every request passes and every answer carries, whatever page it is.

The headers follow the OWASP Secure Headers project; the checks, its cheat sheets on cross-site
request forgery and on DNS rebinding.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Collection
from typing import Annotated, Final, Protocol
from urllib.parse import urlsplit

from fastapi import Form, HTTPException, Request
from starlette.datastructures import MutableHeaders
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from redrive.console.access import SignedInBy, User, current_user

__all__ = ["Access", "Guard", "refuse_forgery"]

_COOKIE: Final = "redrive-form"
"""Holds the word that a form has to repeat."""
_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
        " connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",  # with no-referrer, browsers hide the origin of forms
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
_MISDIRECTED: Final = 421
_FORBIDDEN: Final = 403


class Access(Protocol):
    """Finds out who sent a request."""

    async def user_of(self, request: Request) -> User | Response:
        """The user of a request, or the answer to somebody who is none."""
        ...


class Guard:
    """The outermost layer: hosts, users, headers.

    Args:
        app: The application.
        access: Who may come in.
        hosts: Names in the ``Host`` header that are taken, without ports; empty for all.
    """

    def __init__(self, app: ASGIApp, access: Access, hosts: Collection[str]) -> None:
        self._app = app
        self._access = access
        self._hosts = frozenset(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request, or hands it to the application."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        word = request.cookies.get(_COOKIE, "")
        is_new = not word
        word = word or secrets.token_urlsafe(24)

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
                if "Cache-Control" not in headers:
                    headers["Cache-Control"] = "no-store"
                if is_new:
                    secure = "; Secure" if request.url.scheme == "https" else ""
                    cookie = f"{_COOKIE}={word}; Path=/; HttpOnly; SameSite=Strict{secure}"
                    headers.append("Set-Cookie", cookie)
            await send(message)

        if self._hosts and request.url.hostname not in self._hosts:
            refused = PlainTextResponse("not a name of this console", _MISDIRECTED)
            await refused(scope, receive, answer)
            return
        user = await self._access.user_of(request)
        if isinstance(user, Response):
            await user(scope, receive, answer)
            return
        request.state.user = user
        request.state.word = word
        await self._app(scope, receive, answer)


async def refuse_forgery(request: Request, word: Annotated[str, Form()] = "") -> None:
    """A dependency of every action: another site's page must not send it in the user's name.

    A program that sends a token with each request is in no danger of it: no browser adds one.

    Raises:
        HTTPException: The form is not one of ours.
    """
    # Not by the header alone: browsers and proxies add Authorization of their own.
    if current_user(request).by is SignedInBy.TOKEN:
        return
    origin = request.headers.get("Origin")
    is_foreign = origin is not None and urlsplit(origin).netloc != request.headers.get("Host")
    word = word or request.headers.get("X-Redrive-Form", "")
    cookie = request.cookies.get(_COOKIE, "")
    if is_foreign or not cookie or not hmac.compare_digest(word.encode(), cookie.encode()):
        raise HTTPException(_FORBIDDEN, "this form is out of date: load the page again")
