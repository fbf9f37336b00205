"""A small S3: what a Delta table needs of one, and faults that a test asks for.

Objects are kept in memory. A conditional put (``If-None-Match: *``) is atomic, as S3 has it.
Signatures are not checked, but there has to be one: who has no credentials is refused.
"""

from __future__ import annotations

import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import md5
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final, Self
from urllib.parse import parse_qs, unquote, urlsplit
from xml.etree import ElementTree as ET
from xml.sax.saxutils import escape

import pytest

from redrive.configuration import RemoteFolder

BUCKET: Final = "ledgers"
SECRET: Final = "of-a-test"  # noqa: S105 - what must be shown nowhere
_NAMESPACE: Final = "http://s3.amazonaws.com/doc/2006-03-01/"


@dataclass
class S3:
    """The store behind the server, and its faults."""

    objects: dict[str, bytes] = field(default_factory=dict)
    """By key, all in one bucket."""
    uploads: dict[str, dict[int, bytes]] = field(default_factory=dict)
    asked: Counter[str] = field(default_factory=Counter)
    """Requests by method."""
    lost: Callable[[str, str], bool] = lambda _method, _key: False
    """Whether the answer of a request that was carried out is lost."""
    dropped: Callable[[str, str], bool] = lambda _method, _key: False
    """Whether a request is not carried out, and its connection closed."""
    unavailable_until: float = 0.0
    """Monotonic time until which it answers 503."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def folder(self, name: str, beside: Path) -> RemoteFolder:
        """A place for a ledger, with a local folder for the process that writes it."""
        options = {"endpoint": self.url, "region": "us-east-1", "allow_http": "true"}
        return RemoteFolder(url=f"s3://{BUCKET}/{name}", beside=beside, options=options)

    def unavailable(self, seconds: float) -> None:
        """Answers 503 from now on for some seconds."""
        self.unavailable_until = time.monotonic() + seconds

    @classmethod
    @contextmanager
    def running(cls, monkeypatch: pytest.MonkeyPatch) -> Iterator[Self]:
        """A server of this machine, empty, and credentials for it in the environment."""
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "writer")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        store = cls()
        handler = type("Handler", (_Handler,), {"store": store})
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        server.daemon_threads = True
        store.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield store
        finally:
            server.shutdown()
            server.server_close()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    """Answers one client; the path is ``/bucket/key``."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    """Else a body waits for the acknowledgement of its headers, which clients delay by 40 ms."""
    store: S3

    def log_message(self, *_: object) -> None:
        """Says nothing."""

    def _begin(self) -> tuple[str, dict[str, str], bytes] | None:
        """Key, parameters and body of the request; None if it is refused."""
        parts = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        query = {
            name: values[0]
            for name, values in parse_qs(parts.query, keep_blank_values=True).items()
        }
        bucket, _, key = unquote(parts.path).lstrip("/").partition("/")
        self.store.asked[self.command] += 1
        if self.store.dropped(self.command, key):
            self._hang_up()
        elif time.monotonic() < self.store.unavailable_until:
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE)
        elif not self.headers.get("Authorization", "").startswith("AWS4-HMAC-SHA256 "):
            self._answer(HTTPStatus.FORBIDDEN, b"<Error><Code>AccessDenied</Code></Error>")
        elif bucket != BUCKET:
            self._answer(HTTPStatus.NOT_FOUND, b"<Error><Code>NoSuchBucket</Code></Error>")
        else:
            return key, query, body
        return None

    def _answer(self, status: HTTPStatus, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _hang_up(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        if (begun := self._begin()) is None:
            return
        key, query, _ = begun
        if "list-type" in query:
            self._list(query)
            return
        with self.store.lock:
            data = self.store.objects.get(key)
        if data is None:
            self._answer(HTTPStatus.NOT_FOUND, b"<Error><Code>NoSuchKey</Code></Error>")
            return
        headers = {"ETag": _tag(data), "Last-Modified": "Sun, 01 Mar 2026 00:00:00 GMT"}
        asked = self.headers.get("Range", "").removeprefix("bytes=")
        if asked:
            first, _, last = asked.partition("-")
            start = int(first) if first else max(0, len(data) - int(last))
            end = min(int(last) + 1, len(data)) if first and last else len(data)
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(data)}"
            self._answer(HTTPStatus.PARTIAL_CONTENT, data[start:end], **headers)
        else:
            self._answer(HTTPStatus.OK, data, **headers)

    def _list(self, query: dict[str, str]) -> None:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        after = query.get("start-after", "")
        with self.store.lock:
            sizes = {key: len(data) for key, data in sorted(self.store.objects.items())}
        parts, folders = [], set[str]()
        for key, size in sizes.items():
            if not key.startswith(prefix) or key <= after:
                continue
            rest = key[len(prefix) :]
            if delimiter and delimiter in rest:
                folders.add(prefix + rest[: rest.index(delimiter) + 1])
                continue
            parts.append(
                f"<Contents><Key>{escape(key)}</Key><Size>{size}</Size>"
                "<LastModified>2026-03-01T00:00:00.000Z</LastModified>"
                '<ETag>"x"</ETag></Contents>'
            )
        parts += [
            f"<CommonPrefixes><Prefix>{escape(folder)}</Prefix></CommonPrefixes>"
            for folder in folders
        ]
        text = f'<ListBucketResult xmlns="{_NAMESPACE}">{"".join(parts)}'
        self._answer(
            HTTPStatus.OK, f"{text}<IsTruncated>false</IsTruncated></ListBucketResult>".encode()
        )

    def do_PUT(self) -> None:
        if (begun := self._begin()) is None:
            return
        key, query, body = begun
        with self.store.lock:
            if "uploadId" in query:
                self.store.uploads[query["uploadId"]][int(query["partNumber"])] = body
            elif self.headers.get("If-None-Match") == "*" and key in self.store.objects:
                self._answer(HTTPStatus.PRECONDITION_FAILED, b"<Error/>")
                return
            else:
                self.store.objects[key] = body
        self._carried_out(key, HTTPStatus.OK, ETag=_tag(body))

    def _carried_out(self, key: str, status: HTTPStatus, **headers: str) -> None:
        """Answers a request that changed something, unless its answer gets lost."""
        if self.store.lost(self.command, key):
            self._hang_up()
            return
        self._answer(status, b"", **headers)

    def do_POST(self) -> None:
        if (begun := self._begin()) is None:
            return
        key, query, body = begun
        if "delete" in query:
            named = ET.fromstring(body).iter()  # noqa: S314 - our own client's
            keys = [
                element.text or "" for element in named if element.tag.rpartition("}")[2] == "Key"
            ]
            with self.store.lock:
                for name in keys:
                    self.store.objects.pop(name, None)
            done = "".join(f"<Deleted><Key>{escape(name)}</Key></Deleted>" for name in keys)
            text = f'<DeleteResult xmlns="{_NAMESPACE}">{done}</DeleteResult>'
        elif "uploads" in query:
            with self.store.lock:
                upload = str(len(self.store.uploads))
                self.store.uploads[upload] = {}
            text = f"<InitiateMultipartUploadResult><UploadId>{upload}</UploadId>"
            text += "</InitiateMultipartUploadResult>"
        else:
            with self.store.lock:
                parts = self.store.uploads.pop(query["uploadId"])
                self.store.objects[key] = b"".join(part for _, part in sorted(parts.items()))
            text = '<CompleteMultipartUploadResult><ETag>"x"</ETag></CompleteMultipartUploadResult>'
        self._answer(HTTPStatus.OK, text.encode())

    def do_DELETE(self) -> None:
        if (begun := self._begin()) is None:
            return
        with self.store.lock:
            self.store.objects.pop(begun[0], None)
        self._answer(HTTPStatus.NO_CONTENT)


def _tag(data: bytes) -> str:
    return f'"{md5(data, usedforsecurity=False).hexdigest()}"'
