"""Everything that observes a job from outside, while its process runs it."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from http import HTTPStatus
from http.server import ThreadingHTTPServer
from threading import Thread
from typing import Any, Final, Self
from urllib.parse import urlsplit

import orjson
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import MetricsHandler

from redrive.checkpoints.registry import vacant_shares
from redrive.checkpoints.states import StatesFollower
from redrive.configuration import JobConfiguration
from redrive.errors import ConfigurationError, OutcomeUnknown, RedriveError
from redrive.kafka.cluster import Cluster
from redrive.kafka.deadline import AGAIN, CLOSE, ONE_TRY, PAUSE, under_way, within
from redrive.listener import Listener
from redrive.masking import NO_MASK, Mask
from redrive.observe.observer import Health, MetricsObserver, WaitingMetrics
from redrive.operations.durations import duration
from redrive.operations.handlers import HandlerState, HandlerWatch
from redrive.operations.retention import Waiting, waiting_on_topics
from redrive.operations.supervision import SupervisionState
from redrive.outcomes.acknowledgements import Acknowledgement, acknowledgements_of
from redrive.outcomes.causes import CauseCounter, RepeatCounter
from redrive.outcomes.inventory import Inventory
from redrive.outcomes.ledger import Ledger
from redrive.outcomes.table import LedgerTable
from redrive.streaming.lifecycle import BatchSummary, JobControl, JobObserver

_FIRST: Final = 15.0
"""Seconds from the start of the job to the first survey, which must not delay it."""
_AGE: Final = 30.0
"""Seconds between two surveys while metrics are read."""
_ALARM_AGE: Final = 300.0
"""Seconds between two surveys that only serve the alarm."""
_SOON: Final = 5.0
"""Seconds after which a question without an answer is repeated."""
_REMINDER: Final = 3600.0
"""Seconds between two warnings about one topic."""
_STEP: Final = 5.0
"""Seconds between two batches whose outcomes are searched in the ledger."""
_MOST_STEPS: Final = 20_000
"""Maximum batches to search for: a day of them."""


class Survey(JobObserver):
    """Reads what waits, shows it as metrics, and warns of what will be deleted.

    Threads of its own ask the broker and the ledger, so that neither the job nor a reader of its
    metrics waits for an answer: they get the last one, with its time. There are two, because the
    store of a ledger may take minutes to fail. The rate of warnings is limited.
    """

    def __init__(
        self,
        configuration: JobConfiguration,
        control: JobControl,
        metrics: WaitingMetrics,
        mask: Mask = NO_MASK,
    ) -> None:
        self._configuration = configuration
        self._mask = mask
        self._causes = CauseCounter()
        self._repeats = RepeatCounter(datetime.now(UTC))
        self._control = control
        self._metrics = metrics
        self._cluster = Cluster(configuration.connection, timeout=ONE_TRY)
        self._watch = HandlerWatch(self._cluster)
        self._stopped: Collection[str] = ()
        self._warned: dict[str, float] = {}
        self._reported: dict[str, str] = {}
        self._follower: StatesFollower | None = None
        self._acknowledged: Mapping[str, Mapping[str, Any]] = {}
        self._shown: tuple[int, Sequence[Acknowledgement]] | None = None
        self._batches: deque[float] = deque(maxlen=_MOST_STEPS)
        self._ended, self._may_begin = threading.Event(), threading.Event()
        self._questions: Mapping[str, Sequence[Callable[[], None]]] = {
            "broker": (self._ask_broker, self._ask_operators),
            "ledger": (self._ask_ledger,),
        }
        self._threads = [
            threading.Thread(
                target=self._run, args=(source,), name=f"redrive-survey-{source}", daemon=True
            )
            for source in self._questions
        ]
        metrics.ledger_delay.set_function(self._ledger_delay)

    def start(self) -> None:
        """Begin to ask."""
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """Ends; a pending question stays with its thread, which delays nothing."""
        self._ended.set()
        self._may_begin.set()
        deadline = time.monotonic() + AGAIN
        with under_way("end of the survey of what waits"):
            for thread in self._threads:
                if thread.is_alive():
                    thread.join(timeout=max(0.0, deadline - time.monotonic()))

    def started(self, configuration: JobConfiguration) -> None:
        """Begin to ask soon."""
        self._configuration = configuration
        self._may_begin.set()

    def restarted(self, configuration: JobConfiguration, *, is_new_run: bool) -> None:
        """Survey with the new settings from now on."""
        del is_new_run
        self._configuration = configuration

    def resubscribed(self, configuration: JobConfiguration) -> None:
        """Survey the new handlers from now on."""
        self._configuration = configuration

    def supervised(self, state: SupervisionState) -> None:
        """Remember which handlers are stopped."""
        self._stopped = state.stopped

    def batch(self, summary: BatchSummary) -> None:
        """Note a committed batch."""
        when = summary.time / 1000
        if not self._batches or when - self._batches[-1] >= _STEP:
            self._batches.append(when)

    def look(self) -> None:
        """Ask now; questions without an answer are repeated the next time."""
        for source in self._questions:
            self._look(source)

    def _look(self, source: str) -> bool:
        """Ask the broker or the ledger; returns whether every question has an answer."""
        questions = self._questions[source]
        problems = "; ".join(
            filter(None, [_problem(ask) for ask in questions if not self._ended.is_set()])
        )
        if problems and problems != self._reported.get(source):  # report only changes
            self._control.notice("the number of waiting messages is unknown", error=problems)
        self._reported[source] = problems
        return not problems

    def _run(self, source: str) -> None:
        wait = _FIRST
        self._may_begin.wait(_ALARM_AGE)
        while not self._ended.wait(wait):
            is_answered = self._look(source)
            age = _AGE if self._configuration.listen else _ALARM_AGE
            wait = age if is_answered else _SOON
        if source == "broker" and self._follower is not None:
            self._follower.close()

    def _ask_broker(self) -> None:
        now = time.time()
        for topic in waiting_on_topics(self._configuration, self._cluster, now):
            self._metrics.show_topic(topic)
            self._warn(topic, now)
        if self._configuration.listen:
            states = self._watch.look(self._configuration, now)
            for handler in self._configuration.handlers:
                if handler.identity.topic in self._stopped:  # its work may be invisible
                    states[handler.identity.name] = HandlerState.STOPPED
            self._metrics.show_handlers(states)
            job, vacant = self._configuration, 0
            if job.share.total > 1 and not job.rebalances:
                names = job.application, job.control_topic
                vacant = len(vacant_shares(self._cluster, *names, job.share))
            self._metrics.vacant_shares.set(vacant)
        self._metrics.broker_answer.set(now)

    def _warn(self, topic: Waiting, now: float) -> None:
        if not topic.expiring:
            self._warned.pop(topic.topic, None)
        elif now - self._warned.get(topic.topic, -_REMINDER) >= _REMINDER:
            self._warned[topic.topic] = now
            first = {} if topic.first is None else {"first_in": duration(topic.first - now)}
            self._control.warning(
                "messages are deleted by their topic before they are handled",
                topic=topic.topic,
                at_most=topic.expiring,
                **first,
                retention=duration(topic.retention or 0),
            )

    def _ask_operators(self) -> None:
        """Follow the acknowledgements; without an answer the last ones stay."""
        if not self._configuration.listen:
            return
        if self._follower is None:
            self._follower = StatesFollower(self._cluster, self._configuration.application)
        self._acknowledged = self._follower.states().acknowledged

    def _ask_ledger(self) -> None:
        configuration = self._configuration
        if not configuration.listen or not configuration.ledger.enabled:
            return
        table = LedgerTable.open(configuration.ledger.path)
        if table is None:
            return
        now = time.time()
        acknowledgements = acknowledgements_of(self._acknowledged, datetime.now(UTC))
        if self._shown != (table.version, acknowledgements):
            handlers = [handler.identity.name for handler in configuration.handlers]
            with Inventory(Ledger(table), acknowledgements, self._mask) as inventory:
                self._metrics.show_open(handlers, inventory.standing())
            self._metrics.count_causes(self._causes.count_new(table, handlers), self._mask)
            repeated = self._repeats.count_new(table, handlers, datetime.now(UTC))
            self._metrics.count_repeated(handlers, repeated)
            newest = table.newest()
            while self._batches and self._batches[0] <= newest:
                self._batches.popleft()
            self._shown = table.version, acknowledgements
        self._metrics.ledger_answer.set(now)

    def _ledger_delay(self) -> float:
        """Seconds since the first batch of which the ledger lacks outcomes."""
        return max(0.0, time.time() - self._batches[0]) if self._batches else 0.0


def _problem(ask: Callable[[], None]) -> str:
    try:
        ask()
    except RedriveError as error:
        return error.message
    return ""


_MOST_CONNECTIONS: Final = 32
"""Each has a thread."""


class Page:
    """A small web server of a job: ``/metrics`` for Prometheus, the others for what restarts it.

    ``/livez`` fails if only a restart can help, ``/readyz`` while no dead letters are handled, and
    ``/healthz`` when ``redrive status --check`` does for the job as a whole. It answers at once,
    from what is known, and ends with the job, whatever its clients do.
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
