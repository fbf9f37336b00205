"""Sign-in by an identity provider: OpenID Connect, the authorization code flow with PKCE.

See OpenID Connect Core 1.0 (3.1) and Discovery 1.0, RFC 7636 (PKCE), RFC 9207 (``iss`` in answers)
and RFC 9700, the best current practice of OAuth security. Tokens are verified and discarded: none
reaches a page, a log, the audit or a session.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import math
import secrets
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote_plus, urlencode, urlsplit

import httpx
import orjson
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from redrive.console.access import is_name
from redrive.console.login_files import OidcSettings
from redrive.console.security import is_loopback
from redrive.errors import EnvironmentFault, RedriveError
from redrive.printable import printable

__all__ = ["Identified", "IdentityProvider", "SignInRefused", "Started"]

ALGORITHMS: Final = (
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "Ed25519",
)  # fmt: skip
"""Accepted signatures. All have a public key: with a shared one, anyone who knows the client secret
could sign, and a public key could be mistaken for the secret."""
ANSWER: Final = 10.0
"""Seconds that the identity provider has to answer a request."""
STARTED: Final = 600.0
"""Seconds that a user has to sign in there."""
_KEPT: Final = 3600.0
"""Seconds for which the identity provider's metadata and keys are cached."""
_LARGEST: Final = 1024 * 1024
"""Maximum bytes of an answer."""
_ENDPOINTS: Final = ("authorization_endpoint", "token_endpoint", "jwks_uri")
_LONGEST: Final = 200
"""Maximum shown characters of a text from the identity provider."""


class SignInRefused(RedriveError):
    """The identity provider's answer does not prove who the user is."""


@dataclass(frozen=True, slots=True)
class Started:
    """A sign-in started by a browser."""

    state: str
    nonce: str
    verifier: str = field(repr=False)


_MOST_EXCHANGES: Final = 8
"""Codes that the identity provider is asked about at the same time, whoever sends them."""


@dataclass(frozen=True, slots=True)
class Identified:
    """A user identified by the identity provider."""

    name: str
    groups: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Metadata:
    document: Mapping[str, Any]
    keys: KeySet
    at: float

    def address(self, name: str) -> str:
        """One of its addresses; empty if it has none."""
        value = self.document.get(name)
        return value if isinstance(value, str) else ""


class IdentityProvider:
    """An identity provider; it gets no request before someone signs in."""

    def __init__(self, settings: OidcSettings, clock: Callable[[], float] = time.time) -> None:
        self.settings = settings
        self._clock = clock
        self._metadata: _Metadata | None = None
        self._exchanges = asyncio.Semaphore(_MOST_EXCHANGES)

    async def start(self) -> tuple[str, Started]:
        """The address for the browser's redirect, and what its return is checked against.

        It raises ``EnvironmentFault`` if the identity provider's answer is not usable.
        """
        metadata = await self._current_metadata()
        started = Started(*(secrets.token_urlsafe(32) for _ in range(3)))
        digest = hashlib.sha256(started.verifier.encode()).digest()
        asked = {
            "response_type": "code",
            "client_id": self.settings.client_id,
            "redirect_uri": self.settings.redirect_uri,
            "scope": " ".join(dict.fromkeys(("openid", *self.settings.scopes))),
            "state": started.state,
            "nonce": started.nonce,
            "code_challenge": urlsafe_b64encode(digest).rstrip(b"=").decode(),
            "code_challenge_method": "S256",
        }
        return _with_query(metadata.address("authorization_endpoint"), asked), started

    async def finish(self, started: Started | None, answer: Mapping[str, str]) -> Identified:
        """The user who returned with some parameters.

        ``started`` is what ``start`` returned for this browser; None if it is unknown or too old.

        Raises:
            SignInRefused: The parameters do not prove who the user is.
            EnvironmentFault: The identity provider's answer is not usable.
        """
        if started is None:
            raise _refusal("this browser did not start the sign-in, or it took too long")
        if not hmac.compare_digest(answer.get("state", "").encode(), started.state.encode()):
            raise _refusal("the state is not that of this browser's sign-in")
        metadata = await self._current_metadata()
        needs_issuer = metadata.document.get("authorization_response_iss_parameter_supported")
        if answer.get("iss", "" if needs_issuer is True else self.settings.issuer) != (
            self.settings.issuer
        ):
            raise _refusal("the answer is from another identity provider")
        if error := answer.get("error"):
            raise _refusal(f"the identity provider says {_excerpt(error)}")
        if not answer.get("code"):
            raise _refusal("the answer has no code")
        async with self._exchanges:
            token = await self._token(metadata, answer["code"], started.verifier)
        claims = await self._verify(metadata, token)
        self._check(claims, started.nonce)
        return Identified(self._name(claims), self._groups(claims))

    def sign_out_address(self) -> str:
        """The address to sign out at the identity provider; empty if unknown."""
        address = self._metadata.address("end_session_endpoint") if self._metadata else ""
        if not self._is_safe(address):
            return ""
        return _with_query(
            address,
            {
                "client_id": self.settings.client_id,
                "post_logout_redirect_uri": f"{self.settings.address}/sign-in",
            },
        )

    async def _current_metadata(self) -> _Metadata:
        metadata = self._metadata
        if metadata is None or self._clock() - metadata.at > _KEPT:
            metadata = self._metadata = await self._discover()
        return metadata

    async def _discover(self) -> _Metadata:
        issuer = self.settings.issuer
        place = f"{issuer.rstrip('/')}/.well-known/openid-configuration"
        status, document = await self._request("GET", place)
        if status != HTTPStatus.OK or not document:
            raise self._fault(f"{place} answers {status} without a JSON object", "check the issuer")
        if document.get("issuer") != issuer:
            raise self._fault(
                f"it calls itself {_excerpt(document.get('issuer'))}",
                "write the issuer in --access exactly as the provider does",
            )
        for name in _ENDPOINTS:
            if not self._is_safe(document.get(name)):
                raise self._fault(f"its {name} is not an https address", "check its configuration")
        return _Metadata(document, await self._keys(document["jwks_uri"]), self._clock())

    def _is_safe(self, address: object) -> bool:
        """Whether an address is as protected as the issuer's: by TLS, or on the loopback."""
        try:
            parts = urlsplit(address if isinstance(address, str) else "")
        except ValueError:
            return False
        is_plain = parts.scheme == "http" and is_loopback(parts.hostname or "")
        return bool(parts.hostname) and (parts.scheme == "https" or is_plain)

    async def _keys(self, place: str) -> KeySet:
        _, document = await self._request("GET", place)
        try:
            return KeySet.import_key_set({"keys": document["keys"]})
        except (JoseError, ValueError, LookupError, TypeError, AttributeError) as error:
            raise self._fault("its keys cannot be read", "check its jwks_uri") from error

    async def _token(self, metadata: _Metadata, code: str, verifier: str) -> str:
        """The ID token for a code."""
        settings = self.settings
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": settings.redirect_uri,
            "code_verifier": verifier,
        }
        methods = metadata.document.get("token_endpoint_auth_methods_supported")
        takes_basic = not isinstance(methods, list) or "client_secret_basic" in methods
        basic = None
        if settings.client_secret and takes_basic:
            # RFC 6749, 2.3.1: both are encoded as in a form first.
            basic = httpx.BasicAuth(
                quote_plus(settings.client_id), quote_plus(settings.client_secret)
            )
        else:
            form["client_id"] = settings.client_id
            if settings.client_secret:
                form["client_secret"] = settings.client_secret
        place = metadata.address("token_endpoint")
        status, document = await self._request("POST", place, data=form, auth=basic)
        if HTTPStatus.BAD_REQUEST <= status < HTTPStatus.INTERNAL_SERVER_ERROR:
            error = _excerpt(document.get("error", status))
            if error in {"invalid_client", "unauthorized_client"}:
                raise self._fault(f"it says {error}", "check client_id and client_secret")
            raise _refusal(f"the identity provider says {error}")
        token = document.get("id_token")
        if status != HTTPStatus.OK or not isinstance(token, str):
            raise self._fault(f"it answers {status} without an ID token", "check its log")
        return token

    async def _verify(self, metadata: _Metadata, token: str) -> Mapping[str, Any]:
        """The claims of a token with a valid signature."""
        for is_last in (False, True):
            try:
                return jwt.decode(token, metadata.keys, algorithms=ALGORITHMS).claims
            except (JoseError, ValueError, TypeError, LookupError, AttributeError) as error:
                if is_last:
                    raise _refusal("the signature of the ID token is wrong") from error
            # The keys may have been rotated since.
            metadata = self._metadata = await self._discover()
        raise AssertionError("the last attempt raises")

    def _check(self, claims: Mapping[str, Any], nonce: str) -> None:
        settings, now = self.settings, self._clock()
        audience = claims.get("aud")
        audiences = audience if isinstance(audience, list) else [audience]
        party = claims.get("azp", settings.client_id if len(audiences) == 1 else None)
        wrong = {
            "issuer": claims.get("iss") != settings.issuer,
            "audience": settings.client_id not in audiences or party != settings.client_id,
            "subject": not isinstance(claims.get("sub"), str) or not claims["sub"],
            "nonce": claims.get("nonce") != nonce,
            "time": not _is_time(claims.get("iat")) or claims["iat"] > now + settings.clock_skew,
            "beginning": _is_time(claims.get("nbf", now)) is False
            or claims.get("nbf", now) > now + settings.clock_skew,
            "end": not _is_time(claims.get("exp")) or claims["exp"] <= now - settings.clock_skew,
        }
        for what, is_wrong in wrong.items():
            if is_wrong:
                raise _refusal(f"the {what} of the ID token is wrong")

    def _name(self, claims: Mapping[str, Any]) -> str:
        claim = self.settings.user_claim
        name = claims.get(claim)
        if claim == "email" and claims.get("email_verified") is False:
            raise _refusal("the identity provider has not verified the address in email")
        if not isinstance(name, str) or not name.strip() or not is_name(name):
            raise _refusal(f"the ID token has no {claim} that could name the user")
        return name

    def _groups(self, claims: Mapping[str, Any]) -> frozenset[str]:
        claimed = claims.get(self.settings.groups_claim, [])
        groups = [claimed] if isinstance(claimed, str) else claimed
        if not isinstance(groups, list) or not all(isinstance(group, str) for group in groups):
            raise _refusal(f"{self.settings.groups_claim} of the ID token is not a list of names")
        return frozenset(groups)

    async def _request(
        self,
        method: str,
        place: str,
        **more: Any,  # noqa: ANN401 - what httpx takes
    ) -> tuple[int, Mapping[str, Any]]:
        """Status and JSON object of an answer; the object is empty if there is none."""
        content = b""
        try:
            # The client's timeout is for each packet: a trickling answer would never end.
            async with (
                asyncio.timeout(ANSWER),
                httpx.AsyncClient(timeout=ANSWER) as client,
                client.stream(
                    method, place, headers={"Accept": "application/json"}, **more
                ) as answer,
            ):
                async for part in answer.aiter_bytes():
                    content += part
                    if len(content) > _LARGEST:
                        raise self._fault("its answer does not end", "check its log")
        except TimeoutError as error:
            raise self._fault(f"it does not answer in {ANSWER:.0f} s", _AWAY) from error
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            raise self._fault(f"it cannot be reached ({type(error).__name__})", _AWAY) from error
        try:
            document = orjson.loads(content)
        except ValueError:
            document = None
        return answer.status_code, document if isinstance(document, dict) else {}

    def _fault(self, what: str, hint: str) -> EnvironmentFault:
        return EnvironmentFault(
            f"sign-in by the identity provider {self.settings.issuer} fails: {what}", hint=hint
        )


_AWAY: Final = "try again in a minute; existing sessions continue"


def _refusal(why: str) -> SignInRefused:
    return SignInRefused(f"not signed in: {why}", hint="sign in again")


def _excerpt(text: object) -> str:
    return printable(str(text))[:_LONGEST]


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _with_query(address: str, parameters: Mapping[str, str]) -> str:
    return f"{address}{'&' if '?' in address else '?'}{urlencode(parameters)}"
