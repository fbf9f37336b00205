"""Access control of the console: users, roles, the topics of a limited role, and the audit."""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import IntEnum, StrEnum
from fnmatch import fnmatchcase
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Final, TypeAlias

from fastapi import Depends, HTTPException, Request
from starlette.responses import Response

from redrive.configuration import JobConfiguration
from redrive.errors import EnvironmentFault, RedriveError
from redrive.operations.process import this_user
from redrive.printable import printable

_AUDIT: Final = "console-audit.jsonl"
"""Name of the audit: a file with one JSON entry a line."""
_LONGEST_NAME: Final = 200


class Role(IntEnum):
    """The rights of a user; each role includes those before it."""

    NOBODY = 0
    """Nothing: signed in, but without a role."""
    VIEWER = 1
    """View everything."""
    OPERATOR = 2
    """Make plans, apply small ones, acknowledge, try rules tables."""
    APPROVER = 3
    """Apply plans of any size that others made."""
    ADMIN = 4
    """Activate rules tables."""


@dataclass(frozen=True, slots=True)
class Scope:
    """The dead-letter topics to which a role is limited."""

    patterns: frozenset[str] | None = None
    """Names of topics, with ``*`` and ``?``; None for the whole job."""

    @property
    def is_everything(self) -> bool:
        """Whether it is the whole job."""
        return self.patterns is None

    def has(self, topic: str) -> bool:
        """Whether it includes a topic."""
        return self.patterns is None or any(
            fnmatchcase(topic, pattern) for pattern in self.patterns
        )

    def restrict(self, job: JobConfiguration) -> JobConfiguration:
        """The part of a job in it: the handlers all of whose topics it includes."""
        if self.is_everything:
            return job
        outside = {
            handler.identity.name
            for handler in job.handlers
            if not self.has(handler.identity.topic)
        }
        return job.restricted_to(
            frozenset(handler.identity.name for handler in job.handlers) - outside
        )

    def __or__(self, other: Scope) -> Scope:
        if self.patterns is None or other.patterns is None:
            return EVERYTHING
        return Scope(self.patterns | other.patterns)


EVERYTHING: Final = Scope()
_NOTHING: Final = Scope(frozenset())


@dataclass(frozen=True, slots=True)
class Grant:
    """A role, and its limits."""

    role: Role
    scope: Scope = EVERYTHING


@dataclass(frozen=True, slots=True)
class Grants:
    """The roles of users and groups; others have none."""

    users: Mapping[str, tuple[Grant, ...]] = field(default_factory=dict)
    groups: Mapping[str, tuple[Grant, ...]] = field(default_factory=dict)

    def of(self, user: str, groups: frozenset[str]) -> tuple[Grant, ...]:
        """All grants of a user and the user's groups."""
        grants = [
            self.users.get(user, ()),
            *(self.groups.get(group, ()) for group in sorted(groups)),
        ]
        return tuple(dict.fromkeys(grant for granted in grants for grant in granted))


class SignedInBy(StrEnum):
    """How the console knows a user."""

    LOCAL = "local"
    TOKEN = "token"  # noqa: S105 - the name of a way
    SESSION = "session"
    PROXY = "proxy"
    OIDC = "oidc"


@dataclass(frozen=True, slots=True)
class User:
    """A user of the console."""

    name: str
    """The name in plans and in the ledger."""
    grants: tuple[Grant, ...] = ()
    by: SignedInBy = SignedInBy.LOCAL

    @property
    def role(self) -> Role:
        """The highest role, whatever its limits."""
        return max((grant.role for grant in self.grants), default=Role.NOBODY)

    def scope(self, role: Role) -> Scope:
        """The scope in which the user has a role, or a higher one."""
        scope_ = _NOTHING
        for grant in self.grants:
            if grant.role >= role:
                scope_ |= grant.scope
        return scope_


def is_name(text: str) -> bool:
    """Whether a text can be the name of a user or group in a header, a log, a page."""
    return 0 < len(text) <= _LONGEST_NAME and text.isprintable()


@dataclass(frozen=True, slots=True)
class LocalAccess:
    """Everybody on this machine counts as the user who runs the console, with all rights."""

    name: str = field(default_factory=this_user)

    async def user_of(self, request: Request) -> User | Response:  # noqa: ARG002 - one for all
        """The user of a request."""
        return User(self.name, (Grant(Role.ADMIN),))


class RefusedError(RedriveError):
    """This user may not take the action."""


def current_user(request: Request) -> User:
    """The user of a request, as found by the middleware."""
    user: User = request.state.user
    return user


async def current_scope(request: Request) -> Scope:
    """The scope in which the user of a request has the role of the route; set by ``needs``."""
    scope: Scope = request.state.scope
    return scope


Seen: TypeAlias = Annotated[Scope, Depends(current_scope)]
"""The part of the job that the user may see or change by a route."""


def needs(role: Role, *, whole_job: bool = False) -> Callable[[Request], Awaitable[None]]:
    """A dependency that refuses requests of users without a role.

    With ``whole_job`` a role limited to some topics does not suffice.
    """

    async def check(request: Request) -> None:
        user = current_user(request)
        if user.role < role:
            needed = role.name.lower()
            raise HTTPException(
                HTTPStatus.FORBIDDEN,
                f"{user.name} is {user.role.name.lower()}, and this needs {needed}",
            )
        request.state.scope = user.scope(role)
        if whole_job and not request.state.scope.is_everything:
            raise HTTPException(
                HTTPStatus.FORBIDDEN,
                f"{user.name} may see only some topics, and this concerns the whole job",
            )

    return check


@dataclass(frozen=True, slots=True)
class Audit:
    """The audit of one job's console, a file in the folder that ``folder`` returns."""

    folder: Callable[[], Path]

    def write(self, user: User, action: str, about: str = "", because: str = "") -> None:
        """Append an entry; raises ``EnvironmentFault`` if that fails.

        An entry is written before its action, so that no action goes unrecorded.
        """
        entry = {
            "time": datetime.now(UTC).isoformat(),
            "user": printable(user.name),
            "role": user.role.name.lower(),
            "by": user.by.value,
            "action": action,
            "about": printable(about),
            **({"because": printable(because)} if because else {}),
        }
        path = self.folder() / _AUDIT
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            target = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                os.write(target, json.dumps(entry).encode() + b"\n")
            finally:
                os.close(target)
        except OSError as error:
            raise EnvironmentFault(
                f"the audit {path} cannot be written: {error.strerror}",
                hint="run the console as a user who may write to the job's folder",
            ) from error

    def of(self, action: str) -> Callable[[Request], Awaitable[None]]:
        """A dependency that records a request before it is carried out."""

        async def record(request: Request) -> None:
            self.write(current_user(request), action, "/".join(request.path_params.values()))

        return record
