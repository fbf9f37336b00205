"""What a job does, as metrics, and its health."""

from __future__ import annotations

import time
from collections import Counter as CounterOf
from collections.abc import Iterator
from functools import partial
from itertools import accumulate
from typing import Final, NamedTuple

from prometheus_client import CollectorRegistry, Counter, Enum, Gauge, Histogram, Info
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

import redrive
from redrive.checkpoints.protocol import EmissionFigures
from redrive.configuration import JobConfiguration
from redrive.engine.statistics import Ages, Distribution
from redrive.errors import RedriveError
from redrive.masking import NO_MASK, Mask
from redrive.messages.constants import reason_name
from redrive.observe.waiting import Capped, WaitingMetrics
from redrive.operations.supervision import Activity, SupervisionState, problem_of
from redrive.printable import printable
from redrive.streaming.lifecycle import BatchSummary, Emitted, JobObserver

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
        self._invalid.inc(emitted.invalid)
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

        A handler that had an open breaker is shown with 0 once it has none.
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
        self._show_hidden(state)
        self._reported_at.set(state.time)

    def _show_hidden(self, state: SupervisionState) -> None:
        """Show hidden records by topic; a topic that had some is shown with 0 without any."""
        self._hiding |= {records.topic for records in state.hidden}
        for topic in self._hiding:
            hidden = [records for records in state.hidden if records.topic == topic]
            oldest = min((records.since for records in hidden), default=state.time)
            self._hidden.labels(topic).set(sum(records.records for records in hidden))
            self._hidden_seconds.labels(topic).set(state.time - oldest)


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
    ``docs/operations.md`` lists them, and a test compares the list with the export.
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
            version=redrive.__version__,
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
