"""Every metric of a job, with its names and units by Prometheus' conventions.

The registry is the job's own: nothing here is shared with other users of the library. How many
series there can be is bounded: rules and reasons come from tables, and what comes from messages is
cut off (``MOST_SERIES``, ``MOST_TARGETS``).
"""

from __future__ import annotations

import time
from collections import Counter as CounterOf
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Final, Protocol

from prometheus_client import CollectorRegistry, Counter, Enum, Gauge, Histogram, Info
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from redrive.engine.statistics import Ages, Distribution
from redrive.messages.constants import reason_name
from redrive.operations.handler_states import HandlerState
from redrive.operations.supervision import Activity
from redrive.outcomes.inventory import Standing, State
from redrive.printable import printable

if TYPE_CHECKING:
    from redrive.checkpoints.figures import EmissionFigures
    from redrive.engine.breaker import BreakerState
    from redrive.engine.flood import FloodState
    from redrive.engine.statistics import Failure, OutcomeKind
    from redrive.outcomes.causes import Cause

__all__ = ["MOST_CAUSES", "MOST_SERIES", "MOST_TARGETS", "OTHER", "JobMetrics", "WaitingMetrics"]

MOST_SERIES: Final = 5_000
"""Combinations of handler, rule, result and reason that are counted apart."""
MOST_TARGETS: Final = 200
"""Combinations of handler, target and reason of failures that are counted apart: a message may name
any target."""
MOST_CAUSES: Final = 500
"""Combinations of handler, cause, destination and group of dead letters that are counted apart, and
pairs of handler and cause of which the first time is shown."""
OTHER: Final = "other"
"""The label of what is not counted apart any more."""

_DURATIONS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Upper bounds of the buckets for batches and transactions, in seconds."""


class _Labelled(Protocol):
    """A metric with labels, as far as it is used here."""

    def labels(self, *values: str) -> Counter: ...


class _Capped:
    """A counter whose series are bounded: from the last on, they share one for each handler."""

    def __init__(self, counter: _Labelled, most: int) -> None:
        self._counter = counter
        self._most = most
        self._known: set[tuple[str, ...]] = set()

    def add(self, handler: str, labels: tuple[str, ...], count: int) -> None:
        values = (handler, *labels)
        if values not in self._known and len(self._known) >= self._most:
            values = (handler, *(OTHER for _ in labels))
        self._known.add(values)
        self._counter.labels(*values).inc(count)


class AgesCollector(Collector):
    """Exports distributions that were counted elsewhere."""

    def __init__(self) -> None:
        self._sums = Ages()

    def add(self, ages: Ages) -> None:
        """Takes in what some slices noted."""
        self._sums.add(ages)

    def collect(self) -> Iterator[HistogramMetricFamily]:
        """The two histograms, by handler."""
        for name, text, found in (
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
            for handler, distribution in list(found.items()):
                family.add_metric([handler], list(_buckets(distribution)), distribution.total)
            yield family


def _buckets(distribution: Distribution) -> Iterator[tuple[str, float]]:
    """Upper bounds with the counts up to them, as the exposition format has them."""
    bounds = [*map(str, map(float, distribution.bounds)), "+Inf"]
    return zip(bounds, accumulate(distribution.counts), strict=True)


class InputMetrics:
    """Inputs by their result."""

    def __init__(self, registry: CollectorRegistry) -> None:
        counter = partial(Counter, registry=registry)
        self._inputs = _Capped(
            counter(
                "redrive_inputs",
                "Inputs by what became of them in one attempt.",
                ["handler", "rule", "result", "reason"],
            ),
            MOST_SERIES,
        )
        self._failures = _Capped(
            counter(
                "redrive_failed_puts",
                "Puts that failed for another reason than the dead-letter header tells.",
                ["handler", "target", "reason"],
            ),
            MOST_TARGETS,
        )
        self._rounds = _Capped(
            counter(
                "redrive_rounds",
                "Puts that begin a round, by the number of the round for their message.",
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

    def count(self, inputs: Mapping[OutcomeKind, int], *, invalid: int, rows: int) -> None:
        """Counts inputs.

        Args:
            inputs: Inputs by their result.
            invalid: Those without a valid dead-letter header.
            rows: Rows that Spark read for them.
        """
        for kind, count in inputs.items():
            rule = str(kind.rule_line or "")
            self._inputs.add(kind.handler, (rule, kind.result, _reason(kind.reason)), count)
        self._invalid.inc(invalid)
        self._rows.inc(rows)

    def count_rounds(self, rounds: Mapping[tuple[str, int], int]) -> None:
        """Counts puts that begin a round, by handler and number of the round."""
        for (handler, number), count in rounds.items():
            self._rounds.add(handler, (str(number),), count)

    def count_failures(self, failures: Mapping[Failure, int]) -> None:
        """Counts failed puts by their target."""
        for failure, count in failures.items():
            # A message may name any target, and a terminal may show the page.
            target = printable(failure.target)
            self._failures.add(failure.handler, (target, _reason(failure.reason)), count)

    def count_ages(self, ages: Ages) -> None:
        """Counts ages of dead letters, and how late retries came."""
        self._ages.add(ages)


class EmissionMetrics:
    """What batches and transactions took."""

    def __init__(self, registry: CollectorRegistry) -> None:
        counter = partial(Counter, registry=registry)
        gauge = partial(Gauge, registry=registry)
        histogram = partial(Histogram, registry=registry, buckets=_DURATIONS)
        self._batches = histogram(
            "redrive_batch_duration_seconds",
            "From the start of a batch to its last commit.",
            ["emitter"],
        )
        self._arriving = gauge(
            "redrive_spark_input_rows_per_second", "Spark's rate of rows that arrive."
        )
        self._processed = gauge(
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
            "redrive_emission_retries", "Failed tries of an emission, begun again."
        )
        self._opened = counter("redrive_producers_opened", "Transactional producers opened.")

    def count(self, figures: EmissionFigures) -> None:
        """Counts what emitting took."""
        for seconds in figures.transactions:
            self._transactions.observe(seconds)
        self._records.inc(figures.records)
        self._aborted.inc(figures.aborted)
        self._retries.inc(figures.retries)
        self._opened.inc(figures.opened)
        for reason, count in figures.refused.items():
            self._refused.labels(_reason(reason)).inc(count)

    def count_batch(self, emitter: str, seconds: float) -> None:
        """Counts a batch that came to its end."""
        self._batches.labels(emitter).observe(seconds)

    def show_rates(self, arriving: float, processed: float) -> None:
        """Shows Spark's rates, in rows a second."""
        self._arriving.set(arriving)
        self._processed.set(processed)


class StateMetrics:
    """How the job is."""

    def __init__(self, registry: CollectorRegistry) -> None:
        gauge = partial(Gauge, registry=registry)
        self._epoch = gauge("redrive_epoch", "Number of the run that may emit for this share.")
        self._state = Enum(
            "redrive_state",
            "What the job is at.",
            states=[one.value for one in Activity],
            registry=registry,
        )
        self._stalls = Counter("redrive_stalls", "How often the job stalled.", registry=registry)
        self.stalled = gauge("redrive_stalled_seconds", "How long it has stalled; 0 if it has not.")
        self._breakers = gauge(
            "redrive_open_breakers", "Breakers that are not closed: retries wait.", ["handler"]
        )
        self._floods = gauge(
            "redrive_flood_messages",
            "Dead letters that remain because of a flood that lasts.",
            ["handler"],
        )
        self._forwards = gauge(
            "redrive_cluster_waiting_messages",
            "Messages that wait to be forwarded to another cluster, markers among them.",
            ["cluster"],
        )
        self._alarmed: set[str] = set()
        self.told = gauge(
            "redrive_supervision_timestamp_seconds", "When the job last said how it is."
        )

    def show_epoch(self, epoch: int) -> None:
        """Shows the number of the run."""
        self._epoch.set(epoch)

    def show_state(self, state: Activity, *, is_new: bool) -> None:
        """Shows what the job is at; ``is_new`` if it was at something else before."""
        self._state.state(state.value)
        if is_new and state is Activity.STALLED:
            self._stalls.inc()

    def show_forwards(self, waiting: Mapping[str, int]) -> None:
        """Shows how many messages wait for each other cluster."""
        for cluster, count in waiting.items():
            self._forwards.labels(cluster).set(count)

    def show_alarms(self, breakers: Iterable[BreakerState], floods: Iterable[FloodState]) -> None:
        """Shows open breakers and floods; a handler that had one is shown with 0."""
        counts = CounterOf(one.handler for one in breakers)
        kept = {one.handler: one.kept for one in floods}
        self._alarmed |= {*counts, *kept}
        for handler in self._alarmed:
            self._breakers.labels(handler).set(counts[handler])
            self._floods.labels(handler).set(kept.get(handler, 0))


class WaitingMetrics:
    """What waits, by the last answers of the broker and the ledger."""

    def __init__(self, registry: CollectorRegistry) -> None:
        gauge = partial(Gauge, registry=registry)
        self._backlog = gauge(
            "redrive_backlog_messages", "Records of a topic that were not read yet.", ["topic"]
        )
        self._retention = gauge(
            "redrive_topic_retention_seconds",
            "How long a topic keeps its records; +Inf for ever.",
            ["topic"],
        )
        self._expiring = gauge(
            "redrive_expiring_messages",
            "Messages not handled that their topic deletes within retention_alarm.",
            ["topic"],
        )
        self._handlers = Enum(
            "redrive_handler_state",
            "Whether a handler handles what is on its dead-letter topic.",
            ["handler"],
            states=[one.value for one in HandlerState],
            registry=registry,
        )
        self._shown_handlers: set[str] = set()
        self.broker_answer = gauge(
            "redrive_broker_answer_timestamp_seconds", "When the broker was last asked."
        )
        states = {
            State.PARKED: "Messages that wait for their next attempt.",
            State.REMAINING: "Messages that no rule can place.",
            State.QUARANTINED: "Messages that no table looks at any more.",
        }
        self._open = {
            state: gauge(f"redrive_{state}_messages", meaning, ["handler"])
            for state, meaning in states.items()
        }
        self._held = gauge(
            "redrive_held_messages",
            "Of the parked messages, those that wait behind an earlier one of their key.",
            ["handler"],
        )
        self._oldest = {
            state: gauge(
                f"redrive_{state}_oldest_seconds", "Age of the oldest of them.", ["handler"]
            )
            for state in states
        }
        self._shown: dict[State, set[str]] = {state: set() for state in states}
        self._letters = _Capped(
            Counter(
                "redrive_dead_letters",
                "Dead letters that came, by the ledger.",
                ["handler", "cause", "destination", "group"],
                registry=registry,
            ),
            MOST_CAUSES,
        )
        self._first_seen = gauge(
            "redrive_cause_first_seen_timestamp_seconds",
            "When the first dead letter of a cause came, by the ledger.",
            ["handler", "cause"],
        )
        self._known_causes: dict[tuple[str, str], float] = {}
        self.ledger_answer = gauge(
            "redrive_ledger_answer_timestamp_seconds", "When the ledger was last asked."
        )
        self.ledger_delay = gauge(
            "redrive_ledger_delay_seconds", "Age of the oldest outcome that the ledger lacks."
        )

    def show_topic(
        self, topic: str, *, waiting: int | None, retention: float | None, expiring: int
    ) -> None:
        """Shows what waits on a topic.

        Args:
            topic: Its name.
            waiting: Records not read yet; None where that is not counted.
            retention: Seconds that it keeps records; None if that is not known.
            expiring: Messages that it will delete soon.
        """
        if waiting is not None:
            self._backlog.labels(topic).set(waiting)
        if retention is not None:
            self._retention.labels(topic).set(retention)
        self._expiring.labels(topic).set(expiring)

    def show_handlers(self, states: Mapping[str, HandlerState]) -> None:
        """Shows the state of each handler; those that are gone are not shown any more."""
        for gone in self._shown_handlers - states.keys():
            self._handlers.remove(gone)
        self._shown_handlers = {*states}
        for name, state in states.items():
            self._handlers.labels(name).state(state.value)

    def count_causes(self, causes: Iterable[Cause]) -> None:
        """Counts new dead letters by their cause, and shows when each cause was first seen."""
        known = self._known_causes
        for one in causes:
            cause = printable(one.cause)
            labels = cause, printable(one.destination), printable(one.group)
            self._letters.add(one.handler, labels, one.count)
            key = one.handler, cause
            if key in known or len(known) < MOST_CAUSES:
                known[key] = min(one.first, known.get(key, one.first))
                self._first_seen.labels(*key).set(known[key])

    def show_open(
        self, handlers: Iterable[str], found: Mapping[tuple[str, State], Standing]
    ) -> None:
        """Shows what is parked, what remains, and what is in quarantine.

        Args:
            handlers: The handlers of the job; those without anything are shown with 0.
            found: What stands where, by handler and state.
        """
        for state, gauge in self._open.items():
            ours = {*handlers, *(handler for handler, where in found if where is state)}
            for gone in self._shown[state] - ours:
                gauge.remove(gone)
                if state is State.PARKED:
                    self._held.remove(gone)
                self._oldest[state].remove(gone)
            self._shown[state] = ours
            for handler in ours:
                one = found.get((handler, state))
                gauge.labels(handler).set(one.count if one else 0)
                if state is State.PARKED:
                    self._held.labels(handler).set(one.held if one else 0)
                since = one.since if one else None
                self._oldest[state].labels(handler).set_function(partial(_age, since))


class _OfApplication(Collector):
    """Exports the metrics of a registry with the label ``application``.

    One Prometheus watches many jobs, and an alert has to name the one that it is about.
    """

    def __init__(self, metrics: CollectorRegistry, application: str) -> None:
        self._metrics = metrics
        self._label = {"application": application}

    def collect(self) -> Iterator[Metric]:
        """All metrics, with the label on every sample."""
        for family in self._metrics.collect():
            family.samples = [
                one._replace(labels={**self._label, **one.labels}) for one in family.samples
            ]
            yield family


class JobMetrics:
    """All metrics of one job, in a registry of their own.

    ``docs/operations.md`` lists them, and a test holds the list against what is exported.
    """

    def __init__(self, *, version: str, application: str, instance: str) -> None:
        """Start with everything at zero; the instance is its share, such as ``1/1``."""
        metrics = CollectorRegistry()
        Info("redrive", "Which job this is.", registry=metrics).info(
            {"version": version, "instance": instance}
        )
        self.inputs = InputMetrics(metrics)
        self.emission = EmissionMetrics(metrics)
        self.state = StateMetrics(metrics)
        self.waiting = WaitingMetrics(metrics)
        # Collected once here, so that a reader may ask for single metrics by their names.
        self.registry = CollectorRegistry(auto_describe=True)
        self.registry.register(_OfApplication(metrics, application))


def _age(since: float | None) -> float:
    return 0.0 if since is None else max(0.0, time.time() - since)


def _reason(code: int) -> str:
    return (reason_name(code) or str(code)) if code else ""
