"""Who may do what in the console: users and their roles."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Final

from fastapi import HTTPException, Request
from starlette.responses import Response

from redrive.operations.process import this_user

_FORBIDDEN: Final = 403


class Role(IntEnum):
    """What somebody may do; each role may do what those before it may."""

    NOBODY = 0
    """Nothing: known, and in no group that has a role."""
    VIEWER = 1
    """Look at everything."""
    OPERATOR = 2
    """Make plans, apply small ones, acknowledge, try rules tables."""
    APPROVER = 3
    """Apply plans that somebody else made, however large."""
    ADMIN = 4
    """Put rules tables live."""


class SignedInBy(StrEnum):
    """How the console knows a user."""

    LOCAL = "local"
    TOKEN = "token"  # noqa: S105 - the name of a way
    SESSION = "session"
    PROXY = "proxy"


@dataclass(frozen=True, slots=True)
class User:
    """Somebody who uses the console."""

    name: str
    """As it stands in plans and in the ledger."""
    role: Role
    by: SignedInBy = SignedInBy.LOCAL


@dataclass(frozen=True, slots=True)
class LocalAccess:
    """Everybody on this machine is who runs the console, and may do everything."""

    name: str = field(default_factory=this_user)

    async def user_of(self, request: Request) -> User | Response:  # noqa: ARG002 - one for all
        """The user of a request."""
        return User(self.name, Role.ADMIN)


def current_user(request: Request) -> User:
    """The user of a request, whom the middleware found."""
    user: User = request.state.user
    return user


def needs(role: Role) -> Callable[[Request], Awaitable[None]]:
    """A dependency that refuses requests of users without a role.

    Args:
        role: The least role.
    """

    async def check(request: Request) -> None:
        user = current_user(request)
        if user.role < role:
            needed = role.name.lower()
            raise HTTPException(
                _FORBIDDEN, f"{user.name} is {user.role.name.lower()}, and this takes {needed}"
            )

    return check
