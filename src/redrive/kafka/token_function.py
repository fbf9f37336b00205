"""Tokens from a user's function, such as the signer of a cloud provider.

Each process calls the function itself, and shares a token among its clients.
"""

from __future__ import annotations

import logging
import re
import time
from dataclasses import dataclass, field
from functools import cache
from threading import Lock
from typing import Final

from redrive.entry_point import imported
from redrive.errors import ConfigurationError, TransientFault

_USED: Final = 0.75
"""Share of a token's lifetime after which it is renewed. Clients ask again after 0.8 of it."""
_PAUSE: Final = 2.0
"""Seconds after a failure for which the function is not called again."""
_LONGEST: Final = 10 * 365 * 86_400.0
"""Seconds above any real lifetime: such an expiry is in milliseconds."""
_LONGEST_REASON: Final = 200
"""Maximum characters of an exception's text in a message."""
_TOKEN: Final = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*")
"""The compact form of a JSON Web Token (RFC 7515, 7.1)."""
_REMINDER: Final = 60.0
"""Seconds between two warnings, and for which a failure explains others."""
_LOGGER: Final = logging.getLogger(__name__)
_HINT: Final = "see oauth_token_function in [kafka]; it will be called again"
_EXAMPLE: Final = "it takes no arguments and returns (token, expiry in seconds since 1970)"


@dataclass(frozen=True, slots=True)
class Token:
    """A token, which is a secret."""

    value: str = field(repr=False)
    expires: float
    """Seconds since 1970."""


class TokenFunction:
    """Calls one function, from any thread.

    It limits how often the function is called, checks what it returns, and keeps the sentence that
    says why there is no token.
    """

    def __init__(self, name: str) -> None:
        """Name the function, as ``package.module:function``; nothing is called yet."""
        self._name = name
        self._lock = Lock()
        self._token: Token | None = None
        self._next_call = 0.0
        self._problem = ""
        self._failed_at = self._next_warning = 0.0

    @property
    def problem(self) -> str:
        """Why there is no valid token, if one was requested in the last minute; else empty."""
        is_recent = time.time() < self._failed_at + _REMINDER
        return self._problem if is_recent and not self._is_valid() else ""

    def token(self) -> Token:
        """A valid token: the last one, or a new one if most of its lifetime is over.

        Raises:
            TransientFault: The function fails, and the last token is no longer valid.
        """
        with self._lock:
            if time.time() >= self._next_call:
                self._call()
            if self._token is None or not self._is_valid():
                raise TransientFault(self._problem, hint=_HINT)
            return self._token

    def _is_valid(self) -> bool:
        return self._token is not None and time.time() < self._token.expires

    def _call(self) -> None:
        try:
            token = _token_of(imported(self._name)())
        except ConfigurationError as error:
            self._failed(error.message.removeprefix(f"{self._name} "))
        except _WrongAnswerError as error:
            self._failed(str(error))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - it is not ours
            reason = f"{type(error).__name__}: {error}".split("\n", maxsplit=1)[0]
            self._failed(f"raised {reason[:_LONGEST_REASON]}")
        else:
            now = time.time()
            self._token = token
            self._next_call = now + _USED * (token.expires - now)

    def _failed(self, problem: str) -> None:
        now = time.time()
        self._problem = f"the token function {self._name} {problem}"
        self._failed_at, self._next_call = now, now + _PAUSE
        if now >= self._next_warning:
            self._next_warning = now + _REMINDER
            left = max(0, round(self._token.expires - now)) if self._token else 0
            facts = {"error": self._problem, "token_valid_seconds": left}
            _LOGGER.warning("no new token for Kafka", extra={"facts": facts})


class _WrongAnswerError(Exception):
    """The error about a returned non-token, without its value, which may be secret."""


def _token_of(answer: object) -> Token:
    match answer:
        case (str() as value, int() | float() as expires):
            pass
        case tuple():
            kinds = ", ".join(type(member).__name__ for member in answer)
            raise _WrongAnswerError(f"returned ({kinds}): {_EXAMPLE}")
        case _:
            raise _WrongAnswerError(f"returned {type(answer).__name__}: {_EXAMPLE}")
    if not _TOKEN.fullmatch(value):
        raise _WrongAnswerError(
            "returned a text that is not a JSON Web Token, which Kafka's Java client in Spark"
            " requires"
        )
    left = expires - time.time()
    if left > _LONGEST:
        raise _WrongAnswerError(f"returned an expiry that looks like milliseconds: {_EXAMPLE}")
    if not left > 0:
        raise _WrongAnswerError(f"returned a token that expired {-left:.0f} s ago")
    return Token(value, float(expires))


@cache
def token_function(name: str) -> TokenFunction:
    """This process's only object for a function, ``name``."""
    function = TokenFunction(name)
    _functions.append(function)
    return function


def note_endpoint(url: str) -> None:
    """Note that clients of this process get their tokens from an OAuth server."""
    _endpoints.add(url)


def tokens_are_used() -> bool:
    """Whether clients of this process sign in with tokens, which may expire."""
    return bool(_functions or _endpoints)


def token_problem() -> str:
    """Why the clients of this process have no token, as far as known; empty if nothing is wrong.

    Clients report a missing token only as a broker that does not answer.
    """
    return next(filter(None, (function.problem for function in _functions)), "")


_functions: Final[list[TokenFunction]] = []
_endpoints: Final[set[str]] = set()
