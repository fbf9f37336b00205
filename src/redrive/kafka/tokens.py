"""Tokens from a user's function, such as the signer of a cloud provider.

Each process calls the function itself, shares a token among its clients, and gives it to them by an
endpoint of its own: Java cannot call Python, and librdkafka's callback would delay each new client
by a second.
"""

from __future__ import annotations

import base64
import json
import logging
import os
import re
import secrets
import time
from dataclasses import dataclass, field
from functools import cache
from http import HTTPStatus
from threading import Lock, Thread
from typing import Any, Final

from redrive.entry_point import imported
from redrive.errors import ConfigurationError, TransientFault
from redrive.kafka.deadline import ONE_TRY

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
        """``name`` is ``package.module:function``; nothing is called yet."""
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


@dataclass(frozen=True, slots=True)
class TokenEndpoint:
    """The address and credentials of a local endpoint that gives out the tokens of a function.

    Clients use it like an OAuth server for client credentials (RFC 6749, 4.4). It listens on the
    loopback interface only; the credentials are random, and never leave this process.
    """

    url: str
    client_id: str
    client_secret: str = field(repr=False)


def token_endpoint(name: str) -> TokenEndpoint:
    """This process's endpoint for the tokens of a function, ``name``."""
    return _endpoint(name, os.getpid())


@cache
def _endpoint(name: str, _process: int) -> TokenEndpoint:
    """One in each process: a thread does not survive a fork."""
    from http.server import BaseHTTPRequestHandler  # noqa: PLC0415 - few need it
    from socketserver import ThreadingTCPServer  # noqa: PLC0415 - as above

    client_id, client_secret = "redrive", secrets.token_urlsafe(32)
    authorization = basic_authorization(client_id, client_secret)
    function = token_function(name)

    class TokenHandler(BaseHTTPRequestHandler):
        """Answers one request."""

        timeout = ONE_TRY

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            credentials = self.headers.get("Authorization", "")
            if not secrets.compare_digest(credentials.encode(), authorization.encode()):
                self._answer(HTTPStatus.UNAUTHORIZED, {"error": "invalid_client"})
                return
            try:
                token = function.token()
            except TransientFault as fault:
                # Not 503: clients would retry silently and report nothing for half a minute.
                refusal = {"error": "invalid_grant", "error_description": fault.message}
                self._answer(HTTPStatus.BAD_REQUEST, refusal)
                return
            left = max(1, int(token.expires - time.time()))
            answer = {"access_token": token.value, "token_type": "Bearer", "expires_in": left}
            self._answer(HTTPStatus.OK, answer)

        def _answer(self, status: HTTPStatus, content: dict[str, Any]) -> None:
            body = json.dumps(content).encode("ascii")
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Cache-Control", "no-store")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_arguments: object) -> None:
            """Log nothing."""

    # Not HTTPServer, which looks up the name of the machine.
    server = ThreadingTCPServer(("127.0.0.1", 0), TokenHandler)
    server.daemon_threads = True
    Thread(target=server.serve_forever, name="redrive-tokens", daemon=True).start()
    url = f"http://127.0.0.1:{server.server_address[1]}/token"
    return TokenEndpoint(url, client_id, client_secret)


def basic_authorization(name: str, password: str) -> str:
    """The header ``Authorization`` for a name and a password (RFC 7617)."""
    return f"Basic {base64.b64encode(f'{name}:{password}'.encode()).decode('ascii')}"
