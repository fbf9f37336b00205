"""Connections that ask nothing keep nobody out."""

from __future__ import annotations

import http.client
import logging
import os
import resource
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from tests.conftest import PATIENCE, eventually

from redrive import listener as module
from redrive.listener import Listener

MOST = 8


@contextmanager
def serving(listener: Listener, released: threading.Event) -> Iterator[int]:
    """A server whose path /slow answers when it is released; returns its port."""

    class Handler(BaseHTTPRequestHandler):
        timeout = PATIENCE

        def do_GET(self) -> None:
            with listener.answering(self.client_address):
                if self.path == "/slow":
                    released.wait(PATIENCE)
                self.send_response(204)
                self.end_headers()

        def log_message(self, *_: object) -> None: ...

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        block_on_close = False

        def service_actions(self) -> None:
            listener.end_idle()

    with Server(listener.getsockname(), Handler, bind_and_activate=False) as server:
        server.socket.close()
        server.socket = listener
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield int(listener.getsockname()[1])
        finally:
            released.set()
            server.shutdown()
            thread.join()


def flood(port: int, count: int) -> list[socket.socket]:
    """Connections with half a header each."""
    connections = []
    for _ in range(count):
        connection = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        connection.sendall(b"GET / HTTP/1.1\r\nHost:")
        connections.append(connection)
    return connections


def ask(port: int, path: str = "/") -> int:
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    client.request("GET", path)
    status = client.getresponse().status
    client.close()
    return status


def answered(listener: Listener) -> int:
    """How many requests are being answered."""
    return sum(connection.is_answered for connection in listener._open())


def next_descriptor() -> int:
    """The number of the next file that the process opens."""
    number = os.open(os.devnull, os.O_RDONLY)
    os.close(number)
    return number


def test_idle_connections_make_room_for_requests(caplog: pytest.LogCaptureFixture) -> None:
    released, statuses = threading.Event(), []
    with Listener("127.0.0.1", 0, most=MOST) as listener, serving(listener, released) as port:
        slow = threading.Thread(target=lambda: statuses.append(ask(port, "/slow")))
        slow.start()
        eventually(lambda: answered(listener) == 1, "a request is answered")
        connections = flood(port, 10 * MOST)
        assert [ask(port) for _ in range(3)] == [204] * 3
        assert len(listener._open()) <= MOST
        released.set()
        slow.join()
        for connection in connections:
            connection.close()
        assert ask(port) == 204
    assert statuses == [204]
    (line,) = [record.getMessage() for record in caplog.records]
    assert "too many connections, at most 8" in line
    assert "127.0.0.1" in line


def test_requests_being_answered_are_not_ended_for_new_ones() -> None:
    released = threading.Event()
    with Listener("127.0.0.1", 0, most=MOST) as listener, serving(listener, released) as port:
        answers: list[int] = []
        threads = [
            threading.Thread(target=lambda: answers.append(ask(port, "/slow"))) for _ in range(MOST)
        ]
        for thread in threads:
            thread.start()
        eventually(lambda: answered(listener) == MOST, "all requests are answered")
        with pytest.raises((ConnectionError, http.client.RemoteDisconnected)):
            ask(port)
        released.set()
        for thread in threads:
            thread.join()
        assert answers == [204] * MOST
        eventually(lambda: answered(listener) == 0, "all are done")
        assert ask(port) == 204


def test_a_connection_without_a_request_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IDLE", 0.0)
    with (
        Listener("127.0.0.1", 0, most=MOST) as listener,
        serving(listener, threading.Event()) as port,
    ):
        (connection,) = flood(port, 1)
        assert connection.recv(1) == b""
        connection.close()


def test_a_process_without_file_descriptors_refuses_and_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with (
        Listener("127.0.0.1", 0, most=MOST) as listener,
        socket.create_connection(listener.getsockname()) as client,
    ):
        resource.setrlimit(resource.RLIMIT_NOFILE, (next_descriptor(), hard))
        try:
            with pytest.raises(BlockingIOError):
                listener.accept()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        client.settimeout(PATIENCE)
        assert client.recv(1) == b""
        with socket.create_connection(listener.getsockname()):
            listener.accept()[0].close()
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


def test_few_descriptors_allow_few_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_descriptors", lambda: 256)
    with Listener("127.0.0.1", 0, most=500) as listener:
        assert listener.most == 64
