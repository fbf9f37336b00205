"""Logins: tokens, sessions of browsers, an identity provider, and the headers of a reverse proxy.

Sessions follow the OWASP cheat sheet on session management: their ids are random, they live in the
memory of the console, and they end after a fixed time.
"""

from __future__ import annotations

import hashlib
import ipaddress
import logging
import math
import secrets
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import astuple, dataclass, field, replace
from http import HTTPStatus
from typing import Annotated, Any, Final

import orjson
from fastapi import Depends, FastAPI, Form, Request
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse
from joserfc import jwe
from joserfc.errors import JoseError
from joserfc.jwk import OctKey
from starlette.responses import Response

from redrive.console.access import Audit, Grants, Role, SignedInBy, User, current_user, is_name
from redrive.console.login_files import CALLBACK
from redrive.console.oidc import STARTED, IdentityProvider, SignInRefused, Started
from redrive.console.security import is_secure, refuse_forgery

__all__ = ["Limit", "Logins", "Proxy", "Sessions"]

_log: Final = logging.getLogger(__name__)

_STARTED_COOKIE: Final = "redrive-sign-in"
_SHOWN: Final = 20
"""Maximum groups of a user without a role that the page names."""
SESSION_COOKIE: Final = "redrive-session"
SIGN_IN: Final = "/sign-in"
LIVE: Final = "/livez"
SESSION_SECONDS: Final = 8 * 3600
_WITHOUT_LOGIN: Final = (SIGN_IN, LIVE, "/static/", "/htmx/")
"""Paths of probes, and those that the sign-in page needs."""
_MOST_SESSIONS: Final = 1_000
_MOST_FAILURES: Final = 20
"""Maximum failed sign-ins of an address in a minute."""
_MOST_SIGN_INS: Final = 30
"""Maximum sign-ins of a user in a minute: each may displace a session."""
_MOST_COUNTED: Final = 10_000
_ENCRYPTION: Final = {"alg": "dir", "enc": "A256GCM"}
_IPV6_NETWORK: Final = 64
"""Bits of an IPv6 address that identify one customer."""

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True)
class Proxy:
    """A reverse proxy that signs users in and names them in a header."""

    header: str
    groups_header: str
    networks: tuple[Network, ...]
    """Its own addresses; its headers are trusted only from there."""
    grants: Grants

    def user(self, request: Request) -> User | None:
        """The user in the proxy's header; None without one, or if the header is not trusted."""
        if not _is_in(request.client.host if request.client else "", self.networks):
            return None
        names = request.headers.getlist(self.header)
        # With two headers, one may be the browser's own.
        if len(names) != 1 or not is_name(names[0]):
            return None
        groups: frozenset[str] = frozenset()
        if self.groups_header:
            values = request.headers.getlist(self.groups_header)
            if len(values) > 1:
                return None
            groups = frozenset(name.strip() for text in values for name in text.split(","))
        return User(names[0], self.grants.of(names[0], groups), SignedInBy.PROXY)


def _is_in(peer: str, networks: Collection[Network]) -> bool:
    try:
        address = ipaddress.ip_address(peer)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return any((mapped or address) in network for network in networks)


@dataclass(slots=True)
class Sessions:
    """The sessions of signed-in browsers."""

    clock: Callable[[], float] = time.monotonic
    _users: dict[str, tuple[User, float]] = field(default_factory=dict)
    """User and end of each session, the oldest first."""

    def begin(self, user: User) -> str:
        """A new session; returns its id."""
        now = self.clock()
        for session in [session for session, (_, end) in self._users.items() if end <= now]:
            del self._users[session]
        while len(self._users) >= _MOST_SESSIONS:
            del self._users[next(iter(self._users))]
        identity = secrets.token_urlsafe(32)
        self._users[identity] = (replace(user, by=SignedInBy.SESSION), now + SESSION_SECONDS)
        return identity

    def user(self, identity: str) -> User | None:
        """The user of a session; None if it has ended."""
        user, end = self._users.get(identity, (None, 0.0))
        return user if self.clock() < end else None

    def end(self, identity: str) -> None:
        """Ends a session."""
        self._users.pop(identity, None)


@dataclass(slots=True)
class Limit:
    """Counts events, and returns how long to wait after too many in a minute."""

    most: int
    clock: Callable[[], float] = time.monotonic
    seconds: float = 60.0
    _times: dict[str, deque[float]] = field(default_factory=dict)

    def count(self, key: str) -> None:
        """Count one event."""
        self._times.setdefault(key, deque(maxlen=self.most)).append(self.clock())
        if len(self._times) > _MOST_COUNTED:
            since = self.clock() - self.seconds
            self._times = {name: times for name, times in self._times.items() if times[-1] > since}
        while len(self._times) > _MOST_COUNTED:
            del self._times[next(iter(self._times))]

    def wait(self, key: str) -> int:
        """Seconds until another one is allowed; 0 if allowed now."""
        times = self._times.get(key)
        if times is None or len(times) < self.most:
            return 0
        return max(0, math.ceil(times[0] + self.seconds - self.clock()))


@dataclass(slots=True)
class Logins:
    """Finds users by token, session, or proxy.

    Args:
        tokens: Users by the SHA-256 of their tokens.
        proxy: The trusted proxy; None for none.
        provider: An identity provider; None for none.
        grants: The roles of the provider's users.
    """

    tokens: Mapping[str, User]
    proxy: Proxy | None = None
    provider: IdentityProvider | None = None
    grants: Grants = field(default_factory=Grants)
    sessions: Sessions = field(default_factory=Sessions)
    failures: Limit = field(default_factory=lambda: Limit(_MOST_FAILURES))
    sign_ins: Limit = field(default_factory=lambda: Limit(_MOST_SIGN_INS))
    forwarded_from: tuple[Network, ...] = ()
    """Addresses of proxies that name the client's address in ``X-Forwarded-For``."""
    _key: OctKey = field(default_factory=lambda: OctKey.generate_key(256))
    _taken: dict[str, float] = field(default_factory=dict)
    """Until when the state of an answered sign-in could come again."""

    @property
    def has_sign_in(self) -> bool:
        """Whether there is a way to sign in."""
        return bool(self.tokens or self.provider)

    async def user_of(self, request: Request) -> User | Response:
        """The user of a request, or a redirect to the sign-in."""
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if self.tokens and scheme.lower() == "bearer":
            user = self.user_of_token(token.strip())
            if user is None and (wait := self.guessed(request)):
                content = {"error": "too many attempts to sign in", "hint": f"wait {wait} s"}
                headers = {"Retry-After": str(wait)}
                return JSONResponse(content, HTTPStatus.TOO_MANY_REQUESTS, headers)
        else:
            user = self.sessions.user(request.cookies.get(SESSION_COOKIE, ""))
            user = user or (self.proxy.user(request) if self.proxy else None)
        if user is not None:
            return user
        if request.url.path.startswith(_WITHOUT_LOGIN):
            return User("")
        if self.has_sign_in and "text/html" in request.headers.get("Accept", ""):
            return RedirectResponse(SIGN_IN, HTTPStatus.SEE_OTHER)
        content = {"error": "this needs a login", "hint": ""}
        return JSONResponse(content, HTTPStatus.UNAUTHORIZED, {"WWW-Authenticate": "Bearer"})

    def guessed(self, request: Request) -> int:
        """Count a wrong token; returns the seconds until the next guess, 0 for none.

        Right tokens are never held up: others may have the address of those who guess.
        """
        address = self.address(request)
        wait = self.failures.wait(address)
        self.failures.count(address)
        return wait

    def user_of_token(self, token: str) -> User | None:
        """The user of a token; None if it is wrong."""
        # A lookup by a digest, so that its time reveals nothing about a token.
        return self.tokens.get(hashlib.sha256(token.encode()).hexdigest())

    def address(self, request: Request) -> str:
        """The client's address of a request, for limits; behind a proxy, the forwarded one."""
        peer = request.client.host if request.client else ""
        values = request.headers.getlist("X-Forwarded-For")
        networks = (*self.forwarded_from, *(self.proxy.networks if self.proxy else ()))
        text = values[-1].rpartition(",")[2].strip() if values and _is_in(peer, networks) else peer
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            return peer
        if isinstance(address, ipaddress.IPv4Address):
            return str(address)
        if address.ipv4_mapped:
            return str(address.ipv4_mapped)
        return str(ipaddress.ip_network(f"{address}/{_IPV6_NETWORK}", strict=False))

    def keep(self, started: Started, seconds: float) -> str:
        """A pending sign-in as an encrypted text for its browser, which ``take`` takes once.

        Nothing is kept here until then: nobody's sign-ins displace those of others.
        """
        content = orjson.dumps([*astuple(started), self.sessions.clock() + seconds])
        return jwe.encrypt_compact(_ENCRYPTION, content, self._key)

    def take(self, text: str) -> Started | None:
        """The pending sign-in of a text; None if it is not one, was taken before, or is too old."""
        try:
            content = jwe.decrypt_compact(text, self._key).plaintext
        except (JoseError, ValueError):
            return None
        *parts, end = orjson.loads(content or b"")
        started, now = Started(*parts), self.sessions.clock()
        if end <= now or started.state in self._taken:
            return None
        self._taken = {state: until for state, until in self._taken.items() if until > now}
        self._taken[started.state] = end
        return started


# -- routes to sign in and out --------------------------------------------------------------------

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


@dataclass(frozen=True, slots=True)
class _SignInRoutes:
    logins: Logins
    audit: Audit
    page: Page

    def form(self, request: Request) -> Response:
        return self._form(request)

    async def with_token(self, request: Request, token: Annotated[str, Form()]) -> Response:
        user = self.logins.user_of_token(token.strip())
        if user is None:
            if wait := self.logins.guessed(request):
                return self._wait(request, wait)
            return self._form(request, "This token is unknown.", HTTPStatus.UNAUTHORIZED)
        return self._begin_session(request, user)

    async def start(self, request: Request) -> Response:
        """Redirect a browser to the identity provider."""
        assert self.logins.provider is not None
        place, started = await self.logins.provider.start()
        answer = RedirectResponse(place, HTTPStatus.SEE_OTHER)
        # The browser returns from another site, and would not send a strict cookie.
        answer.set_cookie(
            _STARTED_COOKIE,
            self.logins.keep(started, STARTED),
            max_age=int(STARTED),
            path=SIGN_IN,
            httponly=True,
            samesite="lax",
            secure=is_secure(request),
        )
        return answer

    async def finish(self, request: Request) -> Response:
        """Receive a browser's return from the identity provider."""
        assert self.logins.provider is not None
        address = self.logins.address(request)
        started = self.logins.take(request.cookies.get(_STARTED_COOKIE, ""))
        try:
            identified = await self.logins.provider.finish(started, dict(request.query_params))
        except SignInRefused as refusal:
            _log.warning("%s: %s", address, refusal.message)
            return self._form(request, refusal.message, HTTPStatus.UNAUTHORIZED)
        user = User(
            identified.name,
            self.logins.grants.of(identified.name, identified.groups),
            SignedInBy.OIDC,
        )
        if user.role is Role.NOBODY:
            _log.warning("%s: %s has no role", address, user.name)
            groups = sorted(group for group in identified.groups if is_name(group))[:_SHOWN]
            content = {"name": user.name, "groups": groups}
            return self.page(request, "no_role.html", content, HTTPStatus.FORBIDDEN)
        return self._begin_session(request, user)

    async def sign_out(self, request: Request) -> Response:
        self.audit.write(current_user(request), "sign out")
        self.logins.sessions.end(request.cookies.get(SESSION_COOKIE, ""))
        answer = RedirectResponse(f"{SIGN_IN}?out=1", HTTPStatus.SEE_OTHER)
        answer.delete_cookie(SESSION_COOKIE, httponly=True, samesite="strict")
        return answer

    def _begin_session(self, request: Request, user: User) -> Response:
        """Begin a session, and end an earlier one of this browser."""
        key = f"user {user.name}"
        if wait := self.logins.sign_ins.wait(key):
            return self._wait(request, wait)
        self.logins.sign_ins.count(key)
        self.audit.write(user, "sign in")
        self.logins.sessions.end(request.cookies.get(SESSION_COOKIE, ""))
        # A redirect would count as coming from the identity provider, like the request that it
        # answers, and the browser would not send the strict cookie.
        is_back = user.by is SignedInBy.OIDC
        answer: Response = RedirectResponse("/", HTTPStatus.SEE_OTHER)
        if is_back:
            answer = self.page(request, "signed_in.html", {}, 200)
        answer.set_cookie(
            SESSION_COOKIE,
            self.logins.sessions.begin(user),
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
        provider = self.logins.provider
        is_out = "out" in request.query_params
        content = {
            "problem": problem,
            "has_tokens": bool(self.logins.tokens),
            "provider": provider.settings.issuer if provider else "",
            "is_out": is_out,
            "sign_out": provider.sign_out_address() if provider and is_out else "",
        }
        return self.page(request, "signin.html", content, status)
