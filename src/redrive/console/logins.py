"""Logins: tokens, sessions of browsers, and the headers of a reverse proxy.

Sessions follow the OWASP cheat sheet on session management: their ids are random, they live in the
memory of the console, and they end after a fixed time.
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
import re
import secrets
import stat
import time
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from fastapi import Request
from starlette.responses import RedirectResponse, Response

from redrive.console.access import Role, SignedInBy, User
from redrive.errors import EnvironmentFault, UsageError

__all__ = ["Grants", "Logins", "Proxy", "Sessions", "read_grants", "read_tokens"]

SESSION_COOKIE: Final = "redrive-session"
SIGN_IN: Final = "/sign-in"
SESSION_SECONDS: Final = 8 * 3600
_WITHOUT_LOGIN: Final = (SIGN_IN, "/static/", "/htmx/")
"""Paths that the sign-in page needs."""
_MOST_SESSIONS: Final = 1_000
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_LONGEST_NAME: Final = 200
_SEE_OTHER: Final = 303
_UNAUTHORIZED: Final = 401
_READABLE_BY_OTHERS: Final = stat.S_IRGRP | stat.S_IROTH | stat.S_IWGRP | stat.S_IWOTH

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True)
class Grants:
    """The roles of users and groups; who is in none of them may do nothing."""

    users: Mapping[str, Role] = field(default_factory=dict)
    groups: Mapping[str, Role] = field(default_factory=dict)

    def role(self, user: str, groups: frozenset[str]) -> Role:
        """The highest role of a user and the user's groups."""
        found = [self.groups[one] for one in groups if one in self.groups]
        return max([self.users.get(user, Role.NOBODY), *found])


@dataclass(frozen=True, slots=True)
class Proxy:
    """A reverse proxy that signs users in and names them in a header."""

    header: str
    groups_header: str
    networks: tuple[Network, ...]
    """Where it connects from; from elsewhere its headers are not believed."""
    grants: Grants

    def user(self, request: Request) -> User | None:
        """The user whom the proxy names; None without one, or if the header is not credible."""
        if not self._is_peer(request):
            return None
        names = request.headers.getlist(self.header)
        # Two headers: one of them may be the browser's own.
        if len(names) != 1 or not _is_name(names[0]):
            return None
        groups: frozenset[str] = frozenset()
        if self.groups_header:
            told = request.headers.getlist(self.groups_header)
            if len(told) > 1:
                return None
            groups = frozenset(one.strip() for text in told for one in text.split(","))
        return User(names[0], self.grants.role(names[0], groups), SignedInBy.PROXY)

    def _is_peer(self, request: Request) -> bool:
        try:
            address = ipaddress.ip_address(request.client.host if request.client else "")
        except ValueError:
            return False
        mapped = getattr(address, "ipv4_mapped", None)
        return any((mapped or address) in one for one in self.networks)


@dataclass(slots=True)
class Sessions:
    """Browsers that are signed in."""

    clock: Callable[[], float] = time.monotonic
    _found: dict[str, tuple[User, float]] = field(default_factory=dict)
    """User and end of each session, the oldest first."""

    def begin(self, user: User) -> str:
        """A new session; returns its id."""
        now = self.clock()
        for one in [one for one, (_, end) in self._found.items() if end <= now]:
            del self._found[one]
        while len(self._found) >= _MOST_SESSIONS:
            del self._found[next(iter(self._found))]
        identity = secrets.token_urlsafe(32)
        self._found[identity] = (replace(user, by=SignedInBy.SESSION), now + SESSION_SECONDS)
        return identity

    def user(self, identity: str) -> User | None:
        """The user of a session; None if it has ended."""
        user, end = self._found.get(identity, (None, 0.0))
        return user if self.clock() < end else None

    def end(self, identity: str) -> None:
        """Ends a session."""
        self._found.pop(identity, None)


@dataclass(slots=True)
class Logins:
    """Finds users by token, session, or proxy.

    Args:
        tokens: Users by the SHA-256 of their tokens.
        proxy: The proxy whose headers are believed; None for none.
    """

    tokens: Mapping[str, User]
    proxy: Proxy | None = None
    sessions: Sessions = field(default_factory=Sessions)

    async def user_of(self, request: Request) -> User | Response:
        """The user of a request, or the way to the sign-in."""
        user = self._found(request)
        if user is not None:
            return user
        if request.url.path.startswith(_WITHOUT_LOGIN):
            return User("", Role.NOBODY)
        if self.tokens and "text/html" in request.headers.get("Accept", ""):
            return RedirectResponse(SIGN_IN, _SEE_OTHER)
        content = json.dumps({"error": "this takes a login", "hint": ""})
        headers = {"WWW-Authenticate": "Bearer"}
        return Response(content, _UNAUTHORIZED, headers, media_type="application/json")

    def user_of_token(self, token: str) -> User | None:
        """The user of a token; None for a wrong one."""
        # A look-up by a digest: its time says nothing about a token.
        return self.tokens.get(hashlib.sha256(token.encode()).hexdigest())

    def _found(self, request: Request) -> User | None:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if self.tokens and scheme.lower() == "bearer":
            return self.user_of_token(token.strip())
        if user := self.sessions.user(request.cookies.get(SESSION_COOKIE, "")):
            return user
        return self.proxy.user(request) if self.proxy else None


def read_tokens(path: Path) -> dict[str, User]:
    """Reads a file of tokens: users by the SHA-256 of their tokens.

    Raises:
        EnvironmentFault: The file can't be read.
        UsageError: Others may read it, or an entry is wrong.
    """
    content = _read(path)
    if path.stat().st_mode & _READABLE_BY_OTHERS:
        raise UsageError(
            f"--tokens {path}: other users of this machine may read or change it",
            hint=f"chmod 600 {path}",
        )
    users: dict[str, User] = {}
    for place, entry in _entries(path, content, "tokens", {"name", "role", "sha256"}):
        name, digest = entry.get("name"), entry.get("sha256")
        if not isinstance(name, str) or not _is_name(name):
            raise UsageError(f"{place} has no name", hint='give name = "ann"')
        if not isinstance(digest, str) or not _SHA256.fullmatch(digest):
            raise UsageError(
                f"{place}: sha256 is not 64 hexadecimal digits in lower case",
                hint="printf %s TOKEN | sha256sum",
            )
        if digest in users:
            raise UsageError(f"{place} has the token of {users[digest].name}")
        users[digest] = User(name, _role(place, entry), SignedInBy.TOKEN)
    if not users:
        raise UsageError(f"{path} holds no token", hint="add [[tokens]] with name, role, sha256")
    return users


def read_grants(path: Path) -> Grants:
    """Reads a file of roles by user and by group.

    Raises:
        EnvironmentFault: The file can't be read.
        UsageError: An entry is wrong.
    """
    found: dict[str, dict[str, Role]] = {"users": {}, "groups": {}}
    for place, entry in _entries(path, _read(path), "roles", {"role", "users", "groups"}):
        role = _role(place, entry)
        if not entry.keys() & found.keys():
            raise UsageError(f"{place} is for nobody", hint="add users or groups")
        for kind, roles in found.items():
            names = entry.get(kind, [])
            if not isinstance(names, list) or not all(
                isinstance(one, str) and _is_name(one) for one in names
            ):
                raise UsageError(f"{place}: {kind} is not a list of names")
            for name in names:
                roles[name] = max(role, roles.get(name, role))
    return Grants(**found)


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise EnvironmentFault(f"{path} can't be read: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"{path} is not TOML: {error}") from error


def _entries(
    path: Path, content: dict[str, Any], name: str, keys: set[str]
) -> list[tuple[str, dict[str, Any]]]:
    """The entries of a file with their places in words; unknown keys are refused."""
    entries = content.get(name, [])
    if set(content) - {name} or not isinstance(entries, list):
        raise UsageError(f"{path} may hold [[{name}]] only")
    found = []
    for number, entry in enumerate(entries, 1):
        place = f"{path}, entry {number} of [[{name}]]"
        if not isinstance(entry, dict) or (set(entry) - keys):
            raise UsageError(f"{place} may have {', '.join(sorted(keys))} only")
        found.append((place, entry))
    return found


def _role(place: str, entry: Mapping[str, Any]) -> Role:
    names = [one.name.lower() for one in Role if one]
    if entry.get("role") not in names:
        raise UsageError(f"{place} has no role", hint=f"give one of {', '.join(names)}")
    return Role[entry["role"].upper()]


def _is_name(text: str) -> bool:
    return 0 < len(text) <= _LONGEST_NAME and text.isprintable()
