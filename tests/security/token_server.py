"""A small OAuth server: tokens for client credentials, and the key to check them by."""

from __future__ import annotations

import base64
import hashlib
import json
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any
from urllib.parse import parse_qs

CLIENT, SECRET = "oauth-client", "an OAuth secret"
SCOPE = "kafka"
CERTIFICATES = Path(__file__).parent / "certificates"
_KEY = json.loads((CERTIFICATES / "token.jwk").read_text())
_SHA256 = bytes.fromhex("3031300d060960864801650304020105000420")
"""What precedes the hash in a signature (RFC 8017, 9.2)."""


class _Server(ThreadingHTTPServer):
    lifetime: int
    is_down: Event
    issued: list[str]


@contextmanager
def token_server(
    *,
    is_encrypted: bool = False,
    lifetime: int = 3600,
    is_down: Event | None = None,
    issued: list[str] | None = None,
) -> Iterator[str]:
    """Runs one; gives its address, of which ``/token`` is the endpoint.

    Args:
        is_encrypted: Whether it speaks TLS.
        lifetime: Seconds for which its tokens hold.
        is_down: It issues nothing while this is set.
        issued: Takes each token that it issues.
    """
    with _Server(("127.0.0.1", 0), _Handler) as server:
        server.lifetime, server.is_down = lifetime, is_down or Event()
        server.issued = [] if issued is None else issued
        if is_encrypted:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(CERTIFICATES / "server.pem", CERTIFICATES / "server.key")
            server.socket = context.wrap_socket(server.socket, server_side=True)
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http{'s' * is_encrypted}://127.0.0.1:{server.server_port}"
        server.shutdown()


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        self._answer({"keys": [{name: value for name, value in _KEY.items() if name != "d"}]})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        given = {name: value for name, [value] in parse_qs(body).items()}
        wanted = base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode()
        if self.server.is_down.is_set():
            self._answer({"error": "temporarily_unavailable"}, 503)
        elif self.headers["Authorization"] != f"Basic {wanted}":
            self._answer({"error": "invalid_client"}, 401)
        elif given != {"grant_type": "client_credentials", "scope": SCOPE}:
            self._answer({"error": "invalid_request"}, 400)
        else:
            seconds = self.server.lifetime
            token = signed_token(seconds)
            self.server.issued.append(token)
            self._answer({"access_token": token, "token_type": "Bearer", "expires_in": seconds})

    def _answer(self, content: dict[str, Any], status: int = 200) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments: object) -> None:
        """Says nothing."""


def signed_token(seconds: int) -> str:
    """A token that the broker takes for so long."""
    now = int(time.time())
    claims = {"sub": CLIENT, "scope": SCOPE, "iat": now, "exp": now + seconds}
    signed = f"{_part({'alg': 'RS256', 'kid': _KEY['kid']})}.{_part(claims)}"
    return f"{signed}.{_encoded(_signature(signed.encode()))}"


def _signature(data: bytes) -> bytes:
    """By RS256 (RFC 8017, 8.2.1)."""
    modulus, exponent = (_number(_KEY[name]) for name in "nd")
    length = (modulus.bit_length() + 7) // 8
    end = _SHA256 + hashlib.sha256(data).digest()
    padded = b"\0\1" + b"\xff" * (length - len(end) - 3) + b"\0" + end
    return pow(int.from_bytes(padded), exponent, modulus).to_bytes(length)


def _number(text: str) -> int:
    return int.from_bytes(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))


def _part(content: dict[str, Any]) -> str:
    return _encoded(json.dumps(content).encode())


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
