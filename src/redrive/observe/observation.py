"""Everything that observes a job from outside, while its process runs it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from http.server import ThreadingHTTPServer
from threading import Thread
from typing import Final, Self
from urllib.parse import urlsplit

import orjson
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import MetricsHandler

from redrive.configuration import JobConfiguration
from redrive.errors import ConfigurationError, OutcomeUnknown
from redrive.kafka.deadline import CLOSE, ONE_TRY, PAUSE, within
from redrive.listener import Listener
from redrive.masking import NO_MASK, Mask
from redrive.observe.observer import Health, MetricsObserver
from redrive.observe.survey import Survey
from redrive.streaming.lifecycle import JobControl

_MOST_CONNECTIONS: Final = 32
"""Each has a thread."""


class Page:
    """A small web server of a job.

    It answers at once, from what is known, and ends with the job, whatever its clients do.
    """

    def __init__(
        self, listen: str, registry: CollectorRegistry, health: Callable[[], Health]
    ) -> None:
        """Bind the address.

        Args:
            listen: ``host:port``, as the settings have it.
            registry: The metrics.
            health: Returns the job's health.

        Raises:
            ConfigurationError: The address cannot be bound, because it is in use or not of this
                machine.
        """
        host, _, port = listen.rpartition(":")
        host = host.strip("[]")

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            block_on_close = False
            socket: Listener

            def service_actions(self) -> None:
                self.socket.end_idle()

        class Handler(_Handler):
            pass

        Handler.registry, Handler.health = registry, staticmethod(health)
        try:
            listener = Listener(host, int(port), most=_MOST_CONNECTIONS)
        except OSError as error:
            raise ConfigurationError(
                f"[observe] listen = {listen!r} cannot be bound:"
                f" {(error.strerror or str(error)).lower()}",
                hint="choose a free port of this machine, or leave listen out; each job of"
                " a machine needs its own port",
            ) from error
        self._server = Server(listener.getsockname(), Handler, bind_and_activate=False)
        self._server.socket.close()
        self._server.socket = listener
        self._thread = Thread(
            target=self._server.serve_forever,
            kwargs={"poll_interval": PAUSE},
            name="redrive-observe",
            daemon=True,
        )

    @property
    def port(self) -> int:
        """The bound port."""
        return int(self._server.server_address[1])

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def close(self) -> None:
        """End; a pending answer stays with its thread, which delays nothing."""
        if self._thread.is_alive():
            with suppress(OutcomeUnknown):
                within("end of the page of metrics", CLOSE, self._server.shutdown)
        self._server.server_close()


_CHECKS: dict[str, Callable[[Health], bool]] = {
    "/livez": lambda health: health.is_live,
    "/readyz": lambda health: health.is_ready,
    "/healthz": lambda health: health.is_well,
}
"""Path -> whether a health passes its check."""


class _Handler(MetricsHandler):
    """Answers one client."""

    timeout = ONE_TRY
    health: Callable[[], Health]

    def do_GET(self) -> None:  # noqa: N802 - the name that the server calls
        assert isinstance(self.server, ThreadingHTTPServer)
        listener = self.server.socket
        assert isinstance(listener, Listener), "the page has its own"
        with listener.answering(self.client_address):
            self._get()

    def _get(self) -> None:
        path = urlsplit(self.path).path
        if path == "/metrics":
            super().do_GET()
        elif path in _CHECKS:
            health = self.health()
            self._answer(health, passes=_CHECKS[path](health))
        else:
            self.send_error(HTTPStatus.NOT_FOUND, f"there are /metrics, {', '.join(_CHECKS)}")

    def _answer(self, health: Health, *, passes: bool) -> None:
        body = orjson.dumps(health._asdict())
        self.send_response(HTTPStatus.OK if passes else HTTPStatus.SERVICE_UNAVAILABLE)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class Observation:
    """The metrics of a job, their page and the survey; a context."""

    def __init__(self, configuration: JobConfiguration, mask: Mask = NO_MASK) -> None:
        self._configuration = configuration
        self._mask = mask
        self.observer = MetricsObserver(configuration, mask)
        self.page: Page | None = None
        self._survey: Survey | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._survey is not None:
            self._survey.end()
        if self.page is not None:
            self.page.close()

    def listen(self) -> None:
        """Bind the address of the settings, if there is one.

        Raises:
            ConfigurationError: It cannot be bound.
        """
        if self._configuration.listen:
            metrics = self.observer.metrics
            self.page = Page(
                self._configuration.listen, metrics.registry, lambda: self.observer.health
            )

    def start(self, control: JobControl) -> None:
        """Begin to observe the job, to serve pages, and to ask for backlogs."""
        self._survey = Survey(
            self._configuration, control, self.observer.metrics.waiting, self._mask
        )
        control.add_observer(self.observer)
        control.add_observer(self._survey)
        if self.page is not None:
            self.page.start()
        self._survey.start()
