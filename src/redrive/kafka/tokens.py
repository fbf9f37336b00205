"""Tokens of an OAuth server for kafka-python; the other clients request them themselves.

Source: RFC 6749, 4.4 (client credentials).
"""

from __future__ import annotations

import base64
import json
import ssl
from typing import Final
from urllib.parse import urlencode
from urllib.request import Request, urlopen

from kafka.net.sasl.oauth import AbstractTokenProvider

_TIMEOUT: Final = 10.0
"""Seconds to wait for a token."""


class TokenProvider(AbstractTokenProvider):  # type: ignore[misc]  # it is untyped
    """Requests a token by client credentials whenever a connection needs one."""

    def __init__(
        self, endpoint: str, client_id: str, client_secret: str, *, scope: str, ca_file: str
    ) -> None:
        """Prepare the request of a token; the arguments are fields of ``Connection``."""
        body = {"grant_type": "client_credentials", **({"scope": scope} if scope else {})}
        credentials = base64.b64encode(f"{client_id}:{client_secret}".encode()).decode("ascii")
        self._request = Request(  # noqa: S310 - the settings take only http and https
            endpoint,
            data=urlencode(body).encode("ascii"),
            headers={"Authorization": f"Basic {credentials}", "Accept": "application/json"},
        )
        self._ca_file = ca_file or None

    def token(self) -> str:
        """A token, for kafka-python.

        Raises:
            OSError: The endpoint did not answer, or refused.
            ValueError: Its answer is not a token.
        """
        context = ssl.create_default_context(cafile=self._ca_file)
        with urlopen(self._request, timeout=_TIMEOUT, context=context) as answer:  # noqa: S310 - as above
            document = json.load(answer)
        try:
            return str(document["access_token"])
        except (KeyError, TypeError) as error:
            raise ValueError("the answer of the OAuth server has no access_token") from error
