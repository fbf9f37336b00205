"""What a job does, and what waits by the last answers, as metrics; and its health."""

from __future__ import annotations

import time
from collections import Counter as CounterOf
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import accumulate
from typing import Final, NamedTuple

from prometheus_client import CollectorRegistry, Counter, Enum, Gauge, Histogram, Info
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from redrive.checkpoints.protocol import EmissionFigures
from redrive.configuration import JobConfiguration
from redrive.engine.statistics import Ages, Distribution
from redrive.errors import RedriveError
from redrive.masking import NO_MASK, Mask
from redrive.messages.constants import reason_name
from redrive.operations.handlers import HandlerState
from redrive.operations.retention import Waiting
from redrive.operations.supervision import Activity, SupervisionState, problem_of
from redrive.outcomes.causes import Cause
from redrive.outcomes.inventory import Standing, State
from redrive.printable import printable
from redrive.streaming.lifecycle import BatchSummary, Emitted, JobObserver
from redrive.version import __version__

MOST_CAUSES: Final = 500
"""Maximum combinations of handler, cause, destination and group of dead letters to count
separately, and pairs of handler and cause with a first time."""


OTHER: Final = "other"
"""The label of everything above the maximum."""


class Capped:
    """A counter with a maximum of series; above it, all others of a handler share one."""

    def __init__(self, counter: Counter, most: int) -> None:
        self._counter = counter
        self._most = most
        self._known: set[tuple[str, ...]] = set()

    def add(self, handler: str, labels: tuple[str, ...], count: int) -> None:
        """Add to the series of a handler and further labels, or to the shared one."""
        values = (handler, *labels)
        if values not in self._known and len(self._known) >= self._most:
            values = (handler, *(OTHER for _ in labels))
        self._known.add(values)
        self._counter.labels(*values).inc(count)


class WaitingMetrics:
    """What waits, by the last answers of the broker and the ledger."""

    def __init__(self, registry: CollectorRegistry) -> None:
        gauge = partial(Gauge, registry=registry)
        self._backlog = gauge(
            "redrive_backlog_messages", "Records of a topic not read yet.", ["topic"]
        )
        self._retention = gauge(
            "redrive_topic_retention_seconds",
            "How long a topic keeps its records; +Inf for no limit.",
            ["topic"],
        )
        self._expiring = gauge(
            "redrive_expiring_messages",
            "Unhandled messages that their topic deletes within retention_alarm.",
            ["topic"],
        )
        self._handlers = Enum(
            "redrive_handler_state",
            "Whether a handler handles the messages of its dead-letter topic.",
            ["handler"],
            states=[state.value for state in HandlerState],
            registry=registry,
        )
        self._shown_handlers: set[str] = set()
        self.vacant_shares = gauge(
            "redrive_vacant_shares", "Fixed shares of the partitions on which no instance works."
        )
        self.broker_answer = gauge(
            "redrive_broker_answer_timestamp_seconds", "When the broker was last asked."
        )
        states = {
            State.PARKED: "Messages that wait for their next attempt.",
            State.REMAINING: "Messages that no rule could place.",
            State.QUARANTINED: "Messages that no table evaluates any more.",
        }
        self._open = {
            state: gauge(f"redrive_{state}_messages", meaning, ["handler"])
            for state, meaning in states.items()
        }
        self._held = gauge(
            "redrive_held_messages",
            "Parked messages that wait behind an earlier one of their key.",
            ["handler"],
        )
        self._unacknowledged = gauge(
            "redrive_unacknowledged_messages",
            "Remaining messages that no operator acknowledged.",
            ["handler"],
        )
        self._unacknowledged_oldest = gauge(
            "redrive_unacknowledged_oldest_seconds", "Age of the oldest of them.", ["handler"]
        )
        self._further = {
            State.PARKED: (self._held,),
            State.REMAINING: (self._unacknowledged, self._unacknowledged_oldest),
            State.QUARANTINED: (),
        }
        """The other gauges of a state."""
        self._oldest = {
            state: gauge(
                f"redrive_{state}_oldest_seconds", "Age of the oldest of them.", ["handler"]
            )
            for state in states
        }
        self._shown: dict[State, set[str]] = {state: set() for state in states}
        self._dead_letters = Capped(
            Counter(
                "redrive_dead_letters",
                "New dead letters, by the ledger.",
                ["handler", "cause", "destination", "group"],
                registry=registry,
            ),
            MOST_CAUSES,
        )
        self._repeated = Counter(
            "redrive_repeated_dead_letters",
            "New dead letters about a record that an earlier one is about, by the ledger.",
            ["handler"],
            registry=registry,
        )
        self._first_seen = gauge(
            "redrive_cause_first_seen_timestamp_seconds",
            "When the first dead letter of a cause arrived, by the ledger.",
            ["handler", "cause"],
        )
        self._known_causes: dict[tuple[str, str], float] = {}
        self.ledger_answer = gauge(
            "redrive_ledger_answer_timestamp_seconds", "When the ledger was last asked."
        )
        self.ledger_delay = gauge(
            "redrive_ledger_delay_seconds", "Age of the oldest outcome that the ledger lacks."
        )

    def show_topic(self, topic: Waiting) -> None:
        """Show the waiting records of a topic; the job's own topics are not a backlog."""
        if not topic.is_own:
            self._backlog.labels(topic.topic).set(topic.messages)
        if topic.retention is not None:
            self._retention.labels(topic.topic).set(topic.retention)
        self._expiring.labels(topic.topic).set(topic.expiring)

    def show_handlers(self, states: Mapping[str, HandlerState]) -> None:
        """Show the state of each handler, and remove former handlers."""
        for gone in self._shown_handlers - states.keys():
            self._handlers.remove(gone)
        self._shown_handlers = {*states}
        for name, state in states.items():
            self._handlers.labels(name).state(state.value)

    def count_causes(self, causes: Iterable[Cause], mask: Mask = NO_MASK) -> None:
        """Count new dead letters by their cause, and show when each cause was first seen."""
        known = self._known_causes
        for cause in causes:
            texts = (cause.cause, cause.destination, cause.group)
            labels = tuple(printable(mask.text(text)) for text in texts)
            self._dead_letters.add(cause.handler, labels, cause.count)
            key = cause.handler, labels[0]
            if key in known or len(known) < MOST_CAUSES:
                known[key] = min(cause.first, known.get(key, cause.first))
                self._first_seen.labels(*key).set(known[key])

    def count_repeated(self, handlers: Iterable[str], repeated: Mapping[str, int]) -> None:
        """Count new dead letters about a record that an earlier one is about, by handler."""
        for handler in handlers:
            self._repeated.labels(handler).inc(repeated.get(handler, 0))

    def show_open(
        self, handlers: Iterable[str], standing: Mapping[tuple[str, State], Standing]
    ) -> None:
        """Show parked, remaining and quarantined messages; 0 for none."""
        for state, gauge in self._open.items():
            names = {*handlers, *(handler for handler, where in standing if where is state)}
            for gone in self._shown[state] - names:
                for each in (gauge, self._oldest[state], *self._further[state]):
                    each.remove(gone)
            self._shown[state] = names
            for handler in names:
                figures = standing.get((handler, state), Standing())
                gauge.labels(handler).set(figures.count)
                if state is State.PARKED:
                    self._held.labels(handler).set(figures.held)
                if state is State.REMAINING:
                    self._unacknowledged.labels(handler).set(figures.count - figures.acknowledged)
                    self._unacknowledged_oldest.labels(handler).set_function(
                        partial(_age, figures.unacknowledged_since)
                    )
                self._oldest[state].labels(handler).set_function(partial(_age, figures.since))


def _age(since: float | None) -> float:
    return 0.0 if since is None else max(0.0, time.time() - since)


MOST_SERIES: Final = 5_000
"""Maximum combinations of handler, rule, result and reason to count separately."""
MOST_TARGETS: Final = 200
"""Maximum combinations of handler, target and reason of failures to count separately: a message may
name any target."""


_DURATIONS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Upper bounds of the buckets for batches and transactions, in seconds."""


class AgesCollector(Collector):
    """Exports distributions that were counted elsewhere."""

    def __init__(self) -> None:
        self._sums = Ages()

    def add(self, ages: Ages) -> None:
        """Add the ages of some slices."""
        self._sums.add(ages)

    def collect(self) -> Iterator[HistogramMetricFamily]:
        """The two histograms, by handler."""
        for name, text, distributions in (
            (
                "redrive_attempt_age_seconds",
                "Age of dead letters when they were attempted, by their own timestamp.",
                self._sums.ages,
            ),
            (
                "redrive_retry_lateness_seconds",
                "From the time a retry was due to its attempt.",
                self._sums.lateness,
            ),
        ):
            family = HistogramMetricFamily(name, text, labels=["handler"])
            for handler, distribution in list(distributions.items()):
                family.add_metric([handler], list(_buckets(distribution)), distribution.total)
            yield family


def _buckets(distribution: Distribution) -> Iterator[tuple[str, float]]:
    bounds = [*map(str, map(float, distribution.bounds)), "+Inf"]
    return zip(bounds, accumulate(distribution.counts), strict=True)


class InputMetrics:
    """Inputs by their result."""

    def __init__(self, registry: CollectorRegistry) -> None:
        counter = partial(Counter, registry=registry)
        self._inputs = Capped(
            counter(
                "redrive_inputs",
                "Inputs by the result of one attempt.",
                ["handler", "rule", "result", "reason"],
            ),
            MOST_SERIES,
        )
        self._failures = Capped(
            counter(
                "redrive_failed_puts",
                "Puts that failed for another reason than the dead-letter header says.",
                ["handler", "target", "reason"],
            ),
            MOST_TARGETS,
        )
        self._rounds = Capped(
            counter(
                "redrive_rounds",
                "Puts that begin a round, by the round's number for their message.",
                ["handler", "round"],
            ),
            MOST_TARGETS,
        )
        self._invalid = counter(
            "redrive_invalid_inputs", "Inputs without a valid dead-letter header."
        )
        self._rows = counter("redrive_spark_rows", "Rows that Spark read for batches.")
        self._ages = AgesCollector()
        registry.register(self._ages)

    def count(self, emitted: Emitted, mask: Mask) -> None:
        """Count what was committed; targets of failed puts are masked."""
        for kind, count in emitted.inputs.items():
            rule = str(kind.rule_line or "")
            self._inputs.add(kind.handler, (rule, kind.result, _reason(kind.reason)), count)
        self._invalid.inc(emitted.invalid.total())
        self._rows.inc(emitted.rows)
        for failure, count in emitted.failures.items():
            # A message may name any target, and a terminal may show the page.
            target = printable(mask.text(failure.target))
            self._failures.add(failure.handler, (target, _reason(failure.reason)), count)
        self._ages.add(emitted.ages)
        for (handler, number), count in emitted.rounds.items():
            self._rounds.add(handler, (str(number),), count)


class EmissionMetrics:
    """The costs of batches and transactions."""

    def __init__(self, registry: CollectorRegistry) -> None:
        counter = partial(Counter, registry=registry)
        gauge = partial(Gauge, registry=registry)
        histogram = partial(Histogram, registry=registry, buckets=_DURATIONS)
        self.batches = histogram(
            "redrive_batch_duration_seconds",
            "From the start of a batch to its last commit.",
            ["emitter"],
        )
        self.arriving = gauge(
            "redrive_spark_input_rows_per_second", "Spark's rate of rows that arrive."
        )
        self.processed = gauge(
            "redrive_spark_processed_rows_per_second", "Spark's rate of rows while a batch runs."
        )
        self._transactions = histogram(
            "redrive_transaction_duration_seconds",
            "Committed transactions, from their begin to the end of their commit.",
        )
        self._records = counter(
            "redrive_transaction_records", "Records written in committed transactions."
        )
        self._aborted = counter(
            "redrive_transactions_aborted", "Transactions that were aborted or given up."
        )
        self._refused = counter(
            "redrive_refused_records", "Records that the broker refused.", ["reason"]
        )
        self._retries = counter(
            "redrive_emission_retries", "Failed attempts of an emission, which were retried."
        )
        self._opened = counter("redrive_producers_opened", "Transactional producers opened.")

    def count(self, figures: EmissionFigures) -> None:
        """Count what emitting took."""
        for seconds in figures.transactions:
            self._transactions.observe(seconds)
        self._records.inc(figures.records)
        self._aborted.inc(figures.aborted)
        self._retries.inc(figures.retries)
        self._opened.inc(figures.opened)
        for reason, count in figures.refused.items():
            self._refused.labels(_reason(reason)).inc(count)


class StateMetrics:
    """The state of the job."""

    def __init__(self, registry: CollectorRegistry) -> None:
        gauge = partial(Gauge, registry=registry)
        self.epoch = gauge("redrive_epoch", "Number of the run that may emit for this share.")
        self._state = Enum(
            "redrive_state",
            "What the job is doing.",
            states=[activity.value for activity in Activity],
            registry=registry,
        )
        self._stalls = Counter("redrive_stalls", "How often the job stalled.", registry=registry)
        self.stalled = gauge("redrive_stalled_seconds", "How long it has stalled; 0 if it has not.")
        self._breakers = gauge(
            "redrive_open_breakers", "Breakers that are not closed: retries wait.", ["handler"]
        )
        self._forwards = gauge(
            "redrive_cluster_waiting_messages",
            "Messages that wait to be forwarded to another cluster, including transaction markers.",
            ["cluster"],
        )
        self._hidden = gauge(
            "redrive_hidden_messages",
            "Records behind an open transaction, which nobody can read.",
            ["topic"],
        )
        self._hidden_seconds = gauge(
            "redrive_hidden_seconds", "How long the oldest of them has been open.", ["topic"]
        )
        self._hiding: set[str] = set()
        self.restarted = gauge(
            "redrive_last_restart_successful",
            "1 unless the last restart was refused and the job kept its old settings.",
        )
        self.restarted.set(1)
        self._with_breakers: set[str] = set()
        self._reported_at = gauge(
            "redrive_supervision_timestamp_seconds", "When the job last reported its state."
        )

    def show(self, state: SupervisionState, *, is_new: bool) -> None:
        """Show the state of the job; ``is_new`` if it changed.

        A handler that had an open breaker is shown with 0 once it has none, a topic that had hidden
        records once it has none.
        """
        self._state.state(state.state.value)
        if is_new and state.state is Activity.STALLED:
            self._stalls.inc()
        breakers = CounterOf(breaker.handler for breaker in state.breakers)
        self._with_breakers |= {*breakers}
        for handler in self._with_breakers:
            self._breakers.labels(handler).set(breakers[handler])
        for cluster, count in state.forwards.items():
            self._forwards.labels(cluster).set(count)
        self._hiding |= {records.topic for records in state.hidden}
        for topic in self._hiding:
            hidden = [records for records in state.hidden if records.topic == topic]
            oldest = min((records.since for records in hidden), default=state.time)
            self._hidden.labels(topic).set(sum(records.records for records in hidden))
            self._hidden_seconds.labels(topic).set(state.time - oldest)
        self._reported_at.set(state.time)


class _OfApplication(Collector):
    """Exports the metrics of a registry with the label ``application``.

    One Prometheus watches many jobs, and an alert has to name its job.
    """

    def __init__(self, metrics: CollectorRegistry, application: str) -> None:
        self._metrics = metrics
        self._label = {"application": application}

    def collect(self) -> Iterator[Metric]:
        for family in self._metrics.collect():
            family.samples = [
                sample._replace(labels={**self._label, **sample.labels})
                for sample in family.samples
            ]
            yield family


class JobMetrics:
    """All metrics of one job, with names and units by Prometheus' conventions.

    They have a registry of their own. The number of series is bounded: rules and reasons come from
    tables, and values from messages are limited (``MOST_SERIES``, ``MOST_TARGETS``).
    ``docs/watching.md`` lists them, and a test compares the list with the export.
    """

    def __init__(self, *, version: str, application: str, instance: str) -> None:
        """Start with everything at zero; ``instance`` as in the settings, such as ``1/1``."""
        metrics = CollectorRegistry()
        Info("redrive", "Which job this is.", registry=metrics).info(
            {"version": version, "instance": instance}
        )
        self.inputs = InputMetrics(metrics)
        self.emission = EmissionMetrics(metrics)
        self.state = StateMetrics(metrics)
        self.waiting = WaitingMetrics(metrics)
        # Collected once here, so that a reader may ask for single metrics by name.
        self.registry = CollectorRegistry(auto_describe=True)
        self.registry.register(_OfApplication(metrics, application))


def _reason(code: int) -> str:
    return (reason_name(code) or str(code)) if code else ""


class Health(NamedTuple):
    """The health of a job by its checks."""

    is_well: bool
    """Whether it makes progress, has nothing to do, or waits for others."""
    is_live: bool
    """Whether it may recover by itself. False once its watch is silent, which also ends a job that
    stalled for too long; an unreachable broker does not silence it."""
    is_ready: bool
    """Whether it handles dead letters, or would if there were any."""
    state: str
    """What it is doing; ``starting`` before its first report."""
    message: str
    """What is wrong, or what it waits for; empty if it just runs."""


class MetricsObserver(JobObserver):
    """Keeps the metrics of a job, and its last state."""

    def __init__(self, configuration: JobConfiguration, mask: Mask = NO_MASK) -> None:
        self._mask = mask
        self.metrics = JobMetrics(
            version=__version__,
            application=configuration.application,
            instance=configuration.instance,
        )
        self.metrics.state.stalled.set_function(self._stalled)
        self._state: SupervisionState | None = None

    def batch(self, summary: BatchSummary) -> None:
        """Measure how long a committed batch took."""
        self.metrics.emission.batches.labels(summary.emitter.value).observe(summary.seconds)

    def emitted(self, emitted: Emitted) -> None:
        """Count what was committed or tried."""
        self.metrics.inputs.count(emitted, self._mask)
        self.metrics.emission.count(emitted.figures)

    def run_began(self, epoch: int) -> None:
        """Show the number of the run."""
        self.metrics.state.epoch.set(epoch)

    def restarted(self, configuration: JobConfiguration, *, is_new_run: bool) -> None:
        """Show that the job continues with new settings."""
        del configuration, is_new_run
        self.metrics.state.restarted.set(1)

    def restart_refused(self, error: RedriveError) -> None:
        """Show that the job kept its old settings."""
        del error
        self.metrics.state.restarted.set(0)

    def rates(self, arriving: float, processed: float) -> None:
        """Show Spark's rates over its last batches."""
        self.metrics.emission.arriving.set(arriving)
        self.metrics.emission.processed.set(processed)

    def supervised(self, state: SupervisionState) -> None:
        """Show the state of the job."""
        before, self._state = self._state, state.masked(self._mask)
        is_new = before is None or before.state != state.state
        self.metrics.state.show(state, is_new=is_new)

    @property
    def health(self) -> Health:
        """The job's current health, by the rule of ``redrive status --check``.

        A job that waits for a topic or is stopping is healthy; one without a report for a minute is
        not.
        """
        state, now = self._state, time.time()
        if state is None:
            return Health(
                is_well=False,
                is_live=True,
                is_ready=False,
                state="starting",
                message="the job has not started yet",
            )
        problem = problem_of(state, (str(state.pid),), now)
        message = problem or ("" if state.state is Activity.RUNNING else state.describe(now))
        return Health(
            is_well=not problem,
            is_live=not state.is_dead(now),
            is_ready=not problem and state.state in {Activity.RUNNING, Activity.STANDBY},
            state=state.state.value,
            message=message,
        )

    def _stalled(self) -> float:
        state = self._state
        if state is None or state.state is not Activity.STALLED or state.since is None:
            return 0.0
        return time.time() - state.since
