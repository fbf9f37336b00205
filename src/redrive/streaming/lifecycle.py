"""Control of a running job: stop, restart, and its observers.

``JobControl`` connects the callers (signal handlers, the demo, tests) with the job. Requests wait
in a ``queue.SimpleQueue``, whose ``put`` is reentrant: a signal handler may call it at any time.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Concatenate, Final, ParamSpec, TypeAlias

from redrive.checkpoints.protocol import EmissionFigures
from redrive.engine.statistics import SliceSummary
from redrive.errors import OutcomeUnknown, RedriveError
from redrive.kafka.deadline import unanswered, within

if TYPE_CHECKING:
    from redrive.configuration import EmitterChoice, JobConfiguration
    from redrive.engine.facts import Program
    from redrive.messages import TopicPartition
    from redrive.operations.supervision import SupervisionState

_Arguments = ParamSpec("_Arguments")

_END: Final = 15.0
"""Seconds for the end of a job; a call that still hangs then is abandoned without loss."""
_LOOK: Final = 0.2
"""Seconds between two checks whether the job must end."""
_LAST_LINE: Final = 2.0
"""Seconds for the last log line: the reader of the log may hang too."""


@dataclass(frozen=True, slots=True)
class Stop:
    """The request to end the running batch and then the job."""

    reason: str
    """Why, for the log: ``SIGTERM``, ``nothing left to process (WAIT)``."""


@dataclass(frozen=True, slots=True)
class Restart:
    """The request to reload settings and tables."""

    load: Callable[[], JobConfiguration]
    """Reads and checks them; raises ``RedriveError`` if they are invalid."""


Request: TypeAlias = Stop | Restart


@dataclass(slots=True)
class Emitted(SliceSummary):
    """What one process committed of some Arrow batches."""

    rows: int = 0
    """Rows received, including those already committed."""
    size: int = 0
    """Bytes of these rows."""
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    """The next offset to read of each lane."""
    figures: EmissionFigures = field(default_factory=EmissionFigures)
    """Measurements of the emission, including failed tries."""
    dropping: set[Program] = field(default_factory=set)
    """Programs that drop headers."""

    def merge(self, other: Emitted) -> None:
        """Adds the work of another process."""
        self.add(other)
        self.rows += other.rows
        self.size += other.size
        self.ends.update(other.ends)
        self.figures.add(other.figures)
        self.dropping |= other.dropping


@dataclass(slots=True, kw_only=True)
class BatchSummary(Emitted):
    """What was committed of one micro-batch."""

    batch: int
    """Spark's number of the batch."""
    time: int
    """The batch's own clock: milliseconds since 1970."""
    emitter: EmitterChoice
    """The emitter: ``DRIVER`` or ``LANES``."""
    seconds: float = 0.0
    """From the start of the batch to its last commit."""

    @property
    def records(self) -> int:
        """Inputs, including due retries and messages evaluated again."""
        return self.inputs.total()

    @property
    def by_result(self) -> Counter[str]:
        """Inputs by result, for all handlers and rules."""
        totals: Counter[str] = Counter()
        for kind, count in self.inputs.items():
            totals[kind.result] += count
        return totals


class JobObserver:
    """Observes a job; every method is optional.

    Methods are called in the job's threads, one at a time, and must return quickly: the job waits.
    """

    def started(self, configuration: JobConfiguration) -> None:
        """The query runs: new records are handled."""

    def batch(self, summary: BatchSummary) -> None:
        """A batch with at least one input is fully committed."""

    def emitted(self, emitted: Emitted) -> None:
        """Something was committed or tried, even if its batch did not complete."""

    def run_began(self, epoch: int) -> None:
        """The run of this number begins: only it may emit for its share."""

    def rates(self, arriving: float, processed: float) -> None:
        """Spark's rates over its last batches.

        Args:
            arriving: Rows per second that arrived.
            processed: Rows per second processed while a batch ran.
        """

    def supervised(self, state: SupervisionState) -> None:
        """State of the job, reported every few seconds."""

    def notice(self, message: str, /, **facts: object) -> None:
        """Information for an operator, such as a topic that the job waits for.

        Args:
            message: One sentence, always the same for the same thing.
            facts: Varying details by name.
        """

    def warning(self, message: str, /, **facts: object) -> None:
        """A problem that blocks the job; arguments as for ``notice``."""

    def restarted(self, configuration: JobConfiguration, *, is_new_run: bool) -> None:
        """The job continues with new settings and tables.

        Args:
            configuration: The job from now on.
            is_new_run: Whether its query was restarted; changed tables alone do not need that.
        """

    def resubscribed(self, configuration: JobConfiguration) -> None:
        """The job continues with other handlers, as its subscriptions match other topics."""

    def restart_refused(self, error: RedriveError) -> None:
        """The job continues with the old settings and tables, because of ``error``."""

    def stopped(self, reason: str) -> None:
        """The last batch is committed; nothing follows."""


def _to_observers(
    method: Callable[Concatenate[JobObserver, _Arguments], None],
) -> Callable[Concatenate[JobControl, _Arguments], None]:
    """A ``JobControl`` method that calls the same method of every observer."""

    def call(self: JobControl, /, *arguments: _Arguments.args, **named: _Arguments.kwargs) -> None:
        for observer in self._observers:
            getattr(observer, method.__name__)(*arguments, **named)

    return call


class JobControl:
    """Controls one run of the job from any thread, and notifies its observers.

    Callers use ``request_stop`` and ``request_restart``. The job, in one thread, calls
    ``next_request``, and reports through the methods of ``JobObserver`` of the same names.

    Example of the job's side::

        while not finished:
            match control.next_request(timeout=0.2):
                case Stop(reason):
                    ...
                case Restart() as restart:
                    if (fresh := control.load(restart)) is not None:
                        ...
                        control.restarted(fresh, is_new_run=True)
    """

    def __init__(self, *observers: JobObserver) -> None:
        """Start without requests; observers are notified in this order."""
        self._observers = list(observers)
        self._requests: SimpleQueue[Request] = SimpleQueue()
        self._stop: Stop | None = None
        self.fatal_error: RedriveError | None = None
        """The error of a process that is ended at once; its last words are for who ends it."""

    def add_observer(self, observer: JobObserver) -> None:
        """Adds an observer for later events."""
        self._observers.append(observer)

    def request_stop(self, reason: str) -> None:
        """Asks for an orderly stop; only the first request counts."""
        if self._stop is None:
            self._stop = Stop(reason)
            self._requests.put(self._stop)

    def request_restart(self, load: Callable[[], JobConfiguration]) -> None:
        """Asks to continue with the result of ``load``; ignored once the job stops."""
        if self._stop is None:
            self._requests.put(Restart(load))

    @property
    def is_stopping(self) -> bool:
        """Whether a stop was requested; any thread may ask."""
        return self._stop is not None

    @property
    def stop_reason(self) -> str:
        """Why the job stops; empty if no stop was requested."""
        return self._stop.reason if self._stop else ""

    def next_request(self, timeout: float = 0.0) -> Request | None:
        """The oldest request not taken yet; a stop precedes all others and is permanent.

        Args:
            timeout: Seconds to wait for one; 0 to return at once.
        """
        request: Request | None = None
        with suppress(Empty):
            request = self._stop or self._requests.get(timeout=timeout)
        return self._stop or request  # a stop may have come while this waited

    def load(self, restart: Restart) -> JobConfiguration | None:
        """The configuration to continue with; None if refused, which observers are notified of."""
        try:
            return restart.load()
        except RedriveError as error:
            self.restart_refused(error)
            return None

    started = _to_observers(JobObserver.started)
    batch = _to_observers(JobObserver.batch)
    emitted = _to_observers(JobObserver.emitted)
    run_began = _to_observers(JobObserver.run_began)
    rates = _to_observers(JobObserver.rates)
    supervised = _to_observers(JobObserver.supervised)
    notice = _to_observers(JobObserver.notice)
    warning = _to_observers(JobObserver.warning)
    restarted = _to_observers(JobObserver.restarted)
    resubscribed = _to_observers(JobObserver.resubscribed)
    restart_refused = _to_observers(JobObserver.restart_refused)
    stopped = _to_observers(JobObserver.stopped)


class EndDeadline:
    """Limits the time for the end of a job after a stop request or an end by the job itself.

    This class ends a process that does not end in time, and reports the step that did not answer.
    It has its own thread, as any other may hang.
    """

    def __init__(self, control: JobControl, end_process: Callable[[int], None] | None) -> None:
        """Watch nothing yet; ``end_process`` ends this process at once with an exit code."""
        self._control = control
        self._end_process = end_process
        self._error: RedriveError | None = None
        self._begun: float | None = None
        self._is_met = threading.Event()

    def start(self) -> None:
        """Begins to watch."""
        if self._end_process is not None:
            threading.Thread(target=self._watch, name="redrive-end", daemon=True).start()

    def begin(self, error: RedriveError | None = None) -> None:
        """The job ends by itself; ``error`` is None for WAIT, or for a requested stop."""
        self._error = error
        self._begun = self._begun or time.monotonic()

    def met(self) -> None:
        """The job has ended: stops watching."""
        self._is_met.set()

    def _watch(self) -> None:
        while self._begun is None or time.monotonic() - self._begun < _END:
            if self._is_met.wait(_LOOK):
                return
            if self._begun is None and self._control.is_stopping:
                self._begun = time.monotonic()
        steps = "; ".join(dict.fromkeys(unanswered())) or "unknown"
        with suppress(OutcomeUnknown):
            within("a line in the log", _LAST_LINE, lambda: self._warn(steps))
        if self._end_process is not None:
            self._control.fatal_error = self._error
            self._end_process(self._exit_code)

    @property
    def _exit_code(self) -> int:
        return 0 if self._error is None else self._error.exit_code

    def _warn(self, steps: str) -> None:
        self._control.warning(
            "the process ends although some steps have not; nothing is lost",
            seconds=round(_END),
            unanswered=steps,
            exit_code=self._exit_code,
        )
