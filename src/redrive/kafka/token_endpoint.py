"""A local endpoint that gives this process's clients the tokens of a function.

They use it like an OAuth server for client credentials (RFC 6749, 4.4). It listens on the loopback
interface only; the credentials are random, and never leave this process.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import time
from functools import cache
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer
from threading import Thread
from typing import Any, Final

from redrive.errors import TransientFault
from redrive.kafka.deadline import ONE_TRY
from redrive.kafka.token_function import TokenFunction, token_function


class TokenEndpoint:
    """Answers only the clients of this process."""

    client_id: Final = "redrive"

    def __init__(self, function: TokenFunction) -> None:
        """Listen at a free port, in a thread that ends with the process."""
        self.client_secret = secrets.token_urlsafe(32)
        credentials = f"{self.client_id}:{self.client_secret}".encode()

        class Handler(_Handler):
            pass

        Handler.function = function
        Handler.authorization = f"Basic {base64.b64encode(credentials).decode('ascii')}"
        server = ThreadingTCPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        self.url = f"http://127.0.0.1:{server.server_address[1]}/token"
        Thread(target=server.serve_forever, name="redrive-tokens", daemon=True).start()


class _Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    timeout = ONE_TRY
    function: TokenFunction
    authorization: str

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        credentials = self.headers.get("Authorization", "")
        if not secrets.compare_digest(credentials.encode(), self.authorization.encode()):
            self._answer(HTTPStatus.UNAUTHORIZED, {"error": "invalid_client"})
            return
        try:
            token = self.function.token()
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


def token_endpoint(name: str) -> TokenEndpoint:
    """This process's endpoint for the tokens of a function, ``name``."""
    return _endpoint(name, os.getpid())


@cache
def _endpoint(name: str, _process: int) -> TokenEndpoint:
    """One in each process: a thread does not survive a fork."""
    return TokenEndpoint(token_function(name))
