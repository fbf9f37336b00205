"""Checks of every request, and headers of every answer.

The headers follow the OWASP Secure Headers project; the checks follow its cheat sheets on
cross-site request forgery and on DNS rebinding.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import re
import secrets
from collections.abc import Collection
from contextlib import nullcontext
from http import HTTPStatus
from typing import Annotated, Final, Protocol
from urllib.parse import urlsplit

from fastapi import Form, HTTPException, Request
from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from redrive.console.access import SignedInBy, User, current_user
from redrive.listener import Listener

__all__ = ["Access", "Guard", "is_loopback", "is_secure", "refuse_forgery"]

_COOKIE: Final = "redrive-form"
"""The cookie with the token that a form has to repeat."""
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
_HOST: Final = re.compile(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9._-]+))(?::[0-9]{1,5})?")
"""The header ``Host`` of browsers; RFC 9110, 7.2, allows little more."""
BODY_SECONDS: Final = 30.0
"""Seconds to receive a request's body: a plan's edit or a rules table at most."""
LARGEST_BODY: Final = 32 * 1024 * 1024
LARGEST_SIGN_IN: Final = 64 * 1024
"""Maximum bytes of the body of somebody who is not signed in, or has no role."""


class Access(Protocol):
    """Identifies the sender of a request."""

    async def user_of(self, request: Request) -> User | Response:
        """The user of a request, or the answer for anyone else."""
        ...


class Guard:
    """The outermost layer: hosts, users, headers.

    ``hosts`` are the accepted names in the ``Host`` header, without ports; empty for all.
    ``listener`` keeps connections whose requests are answered.
    """

    def __init__(
        self,
        app: ASGIApp,
        access: Access,
        hosts: Collection[str],
        listener: Listener | None = None,
    ) -> None:
        self._listener = listener
        self._app = app
        self._access = access
        self._hosts = frozenset(host.lower() for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it to the application."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        request.state.word = request.cookies.get(_COOKIE, "") or secrets.token_urlsafe(24)
        answer = _with_headers(request, send)
        user = await self._user_of(request)
        if isinstance(user, Response):
            await user(scope, receive, answer)
            return
        request.state.user = user
        try:
            async with asyncio.timeout(BODY_SECONDS):
                body = await _body(receive, LARGEST_BODY if user.role else LARGEST_SIGN_IN)
        except TimeoutError:
            await _refusal("the request took too long", HTTPStatus.REQUEST_TIMEOUT)(
                scope, receive, answer
            )
        except ClientDisconnect:
            return
        else:
            if body is None:
                await _refusal("the request is too large", HTTPStatus.REQUEST_ENTITY_TOO_LARGE)(
                    scope, receive, answer
                )
                return
            with self._listener.answering(scope["client"]) if self._listener else nullcontext():
                await self._app(scope, _replay_body(body, receive), answer)

    async def _user_of(self, request: Request) -> User | Response:
        if self._hosts and _host(request) not in self._hosts:
            return PlainTextResponse("not a name of this console", HTTPStatus.MISDIRECTED_REQUEST)
        return await self._access.user_of(request)


def _with_headers(request: Request, send: Send) -> Send:
    async def answer(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers[name] = value
            if "Cache-Control" not in headers:
                headers["Cache-Control"] = "no-store"
            if not request.cookies.get(_COOKIE):
                secure = "; Secure" if is_secure(request) else ""
                cookie = f"{_COOKIE}={request.state.word}; Path=/; HttpOnly; SameSite=Strict"
                headers.append("Set-Cookie", cookie + secure)
        await send(message)

    return answer


def is_secure(request: Request) -> bool:
    """Whether a browser's connection uses TLS, as far as the console knows.

    Behind a proxy that terminates TLS the scheme is http; only on the loopback is that conclusive.
    """
    return request.url.scheme == "https" or not is_loopback(_host(request))


def is_loopback(host: str) -> bool:
    """Whether a name or an address is that of the loopback."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _host(request: Request) -> str:
    """The name in the header ``Host``; empty if it is invalid, or there are several.

    Read from the header itself: parsed as part of an address, ``evil@here`` would count as
    ``here``.
    """
    values = request.headers.getlist("Host")
    match = _HOST.fullmatch(values[0].lower()) if len(values) == 1 else None
    return (match[1] or match[2]) if match else ""


async def _body(receive: Receive, largest: int) -> bytes | None:
    """The whole body of a request; None if it is too large."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        body += message.get("body", b"")
        if len(body) > largest:
            return None
        if not message.get("more_body", False):
            return bytes(body)


def _replay_body(body: bytes, receive: Receive) -> Receive:
    """Receive a body that was already read, then the rest."""
    is_given = False

    async def give() -> Message:
        nonlocal is_given
        if is_given:
            return await receive()
        is_given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return give


def _refusal(text: str, status: int) -> Response:
    # The rest of the request is not read, so the connection cannot be reused.
    return PlainTextResponse(text, status, {"Connection": "close"})


async def refuse_forgery(request: Request, word: Annotated[str, Form()] = "") -> None:
    """A dependency of every action: another site's page must not send it in the user's name.

    A program that sends a token with each request is safe: no browser adds one. A form that is not
    ours is an ``HTTPException``.
    """
    # Not by the header alone: browsers and proxies may add Authorization themselves.
    if current_user(request).by is SignedInBy.TOKEN:
        return
    origin = request.headers.get("Origin")
    is_foreign = origin is not None and urlsplit(origin).netloc != request.headers.get("Host")
    word = word or request.headers.get("X-Redrive-Form", "")
    cookie = request.cookies.get(_COOKIE, "")
    if is_foreign or not cookie or not hmac.compare_digest(word.encode(), cookie.encode()):
        raise HTTPException(HTTPStatus.FORBIDDEN, "this form has expired: reload the page")
