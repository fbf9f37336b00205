"""The metrics of a job: their names, their values, and how many there can be."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from tests.configurations import handled, job_of
from tests.observe.conftest import emitted, state

from redrive.configuration import JobConfiguration
from redrive.engine.statistics import Failure, OutcomeKind
from redrive.messages.constants import reason_name
from redrive.observe.observer import MOST_CAUSES, MOST_SERIES, MOST_TARGETS, OTHER, MetricsObserver
from redrive.operations.handlers import HandlerState
from redrive.operations.supervision import Activity
from redrive.outcomes.causes import Cause
from redrive.outcomes.inventory import Standing, State

REFERENCE = Path(__file__).parents[2] / "docs" / "watching.md"
_ENDINGS = {"counter": "_total", "info": "_info"}


def exported(registry: CollectorRegistry) -> Iterator[tuple[str, str, frozenset[str]]]:
    """Name, type and labels of every metric with at least one series, without ``application``."""
    for family in registry.collect():
        kind = "gauge" if family.type == "stateset" else family.type
        for sample in family.samples:
            assert sample.labels["application"] == "shop", sample
        labels = {name for sample in family.samples for name in sample.labels}
        labels -= {"le", "application"}
        yield family.name + _ENDINGS.get(kind, ""), kind, frozenset(labels)


def values(observer: MetricsObserver) -> dict[tuple[str, tuple[str, ...]], float]:
    """Every sample as Prometheus reads it, by its name and its labels in the order of names.

    Without ``application``, which all of them have.
    """
    text = generate_latest(observer.metrics.registry).decode()
    return {
        (
            sample.name,
            tuple(value for name, value in sorted(sample.labels.items()) if name != "application"),
        ): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


def test_the_documentation_lists_every_metric(observer: MetricsObserver) -> None:
    rows = re.findall(r"^\| (`redrive_.*?`) \| (\w+) \| \S", REFERENCE.read_text(), re.MULTILINE)
    documented = [
        (name, kind, frozenset(re.findall(r"\w+", labels)))
        for names, kind in rows
        for name, labels in re.findall(r"`(\w+)(.*?)`", names)
    ]
    assert len(documented) == len(set(documented))
    assert set(documented) == set(exported(observer.metrics.registry))


def test_the_documented_bounds_are_those_of_the_program() -> None:
    said = " ".join(REFERENCE.read_text().split())
    assert f"Beyond {MOST_SERIES:,} combinations of handler, rule, result and reason" in said
    assert f"beyond {MOST_TARGETS:,} combinations of handler, target and reason" in said
    assert f"beyond {MOST_CAUSES:,} combinations of handler, cause, destination and group" in said
    assert f"The first time is shown of {MOST_CAUSES:,} causes" in said


def test_names_follow_the_conventions_of_prometheus(observer: MetricsObserver) -> None:
    """One prefix, base units, and ``_total`` for counters and for nothing else."""
    for name, kind, _ in exported(observer.metrics.registry):
        assert re.fullmatch(r"redrive(_[a-z]+)+", name)
        assert name.endswith("_total") == (kind == "counter")
        assert not re.search(r"milliseconds|minutes|hours|_ms\b|kilo|mega", name)
        assert kind != "histogram" or name.endswith("_seconds")


def test_what_a_batch_did_is_what_is_exported(observer: MetricsObserver) -> None:
    shown = values(observer)
    full = reason_name(2053)
    assert {key: value for key, value in shown.items() if key[0] == "redrive_inputs_total"} == {
        ("redrive_inputs_total", ("orders", "", "forwarded", "3")): 7,
        ("redrive_inputs_total", ("orders", full, "parked", "3")): 2,
        ("redrive_inputs_total", ("orders", "", "remains", "")): 1,
    }
    for name, labels, value in (
        ("redrive_failed_puts_total", ("orders", full, "Q@QM"), 2),
        ("redrive_rounds_total", ("orders", "2"), 5),
        ("redrive_cluster_waiting_messages", ("eu",), 3),
        ("redrive_invalid_inputs_total", (), 1),
        ("redrive_spark_rows_total", (), 12),
        ("redrive_spark_input_rows_per_second", (), 10),
        ("redrive_spark_processed_rows_per_second", (), 20),
        ("redrive_batch_duration_seconds_count", ("lanes",), 1),
        ("redrive_batch_duration_seconds_sum", ("lanes",), 0.5),
        ("redrive_transaction_duration_seconds_count", (), 2),
        ("redrive_transaction_duration_seconds_bucket", ("0.05",), 1),
        ("redrive_transaction_records_total", (), 40),
        ("redrive_transactions_aborted_total", (), 1),
        ("redrive_refused_records_total", (full,), 2),
        ("redrive_emission_retries_total", (), 3),
        ("redrive_producers_opened_total", (), 2),
        ("redrive_epoch", (), 4),
        ("redrive_state", ("running",), 1),
        ("redrive_state", ("stalled",), 0),
        ("redrive_attempt_age_seconds_bucket", ("orders", "0.1"), 1),
        ("redrive_attempt_age_seconds_bucket", ("orders", "5.0"), 2),
        ("redrive_attempt_age_seconds_bucket", ("orders", "604800.0"), 2),
        ("redrive_attempt_age_seconds_bucket", ("orders", "+Inf"), 3),
        ("redrive_attempt_age_seconds_count", ("orders",), 3),
        ("redrive_retry_lateness_seconds_count", ("orders",), 1),
        ("redrive_backlog_messages", ("orders.dlq",), 5),
        ("redrive_topic_retention_seconds", ("orders.dlq",), float("inf")),
        ("redrive_expiring_messages", ("orders.dlq",), 0),
        ("redrive_parked_messages", ("orders",), 0),
        ("redrive_held_messages", ("orders",), 0),
        ("redrive_parked_oldest_seconds", ("orders",), 0),
        ("redrive_remaining_messages", ("orders",), 3),
        ("redrive_unacknowledged_messages", ("orders",), 1),
    ):
        assert shown[name, labels] == value, name
    assert shown["redrive_remaining_oldest_seconds", ("orders",)] == pytest.approx(60, abs=5)
    assert shown["redrive_unacknowledged_oldest_seconds", ("orders",)] == pytest.approx(9, abs=5)


def test_a_reader_may_ask_for_one_metric_by_its_name(observer: MetricsObserver) -> None:
    """As ``/metrics?name[]=redrive_epoch`` does."""
    registry: CollectorRegistry = observer.metrics.registry
    names = [metric.name for metric in registry.restricted_registry(["redrive_epoch"]).collect()]
    assert names == ["redrive_epoch"]


def test_counters_grow_from_batch_to_batch(observer: MetricsObserver) -> None:
    of_ledger = {"redrive_dead_letters_total", "redrive_repeated_dead_letters_total"}
    before = values(observer)
    observer.emitted(emitted())
    after = values(observer)
    for key, value in after.items():
        name = key[0]
        if name.endswith("_total") and name not in of_ledger:
            assert value == 2 * before[key], key
    count = "redrive_attempt_age_seconds_count", ("orders",)
    assert after[count] == 2 * before[count]


def test_two_jobs_in_one_process_share_nothing(configuration: JobConfiguration) -> None:
    first, second = MetricsObserver(configuration), MetricsObserver(configuration)
    first.emitted(emitted())
    assert values(first)["redrive_spark_rows_total", ()] == 12
    assert values(second)["redrive_spark_rows_total", ()] == 0


def test_a_stall_counts_once_however_long_it_lasts(observer: MetricsObserver) -> None:
    activities = (Activity.STALLED, Activity.STALLED, Activity.RUNNING, Activity.STALLED)
    for activity in activities:
        observer.supervised(state(activity, since=30))
    shown = values(observer)
    assert shown["redrive_stalls_total", ()] == 2
    assert shown["redrive_state", ("stalled",)] == 1
    assert shown["redrive_stalled_seconds", ()] == pytest.approx(30, abs=5)
    observer.supervised(state(Activity.RUNNING))
    assert values(observer)["redrive_stalled_seconds", ()] == 0


def test_an_alarm_that_is_over_is_shown_with_nothing(observer: MetricsObserver) -> None:
    assert values(observer)["redrive_open_breakers", ("orders",)] == 1
    observer.supervised(replace(state(Activity.RUNNING), breakers=()))
    assert values(observer)["redrive_open_breakers", ("orders",)] == 0


def test_what_messages_say_makes_no_end_of_series(
    configuration: JobConfiguration, monkeypatch: pytest.MonkeyPatch
) -> None:
    most_targets, most_series = 20, 30
    monkeypatch.setattr("redrive.observe.observer.MOST_TARGETS", most_targets)
    monkeypatch.setattr("redrive.observe.observer.MOST_SERIES", most_series)
    observer = MetricsObserver(configuration)
    targets, lines = most_targets + 50, most_series + 50
    done = emitted()
    done.failures = Counter(
        {Failure("orders", 3, 2085, f"Q{number}", ""): 1 for number in range(targets)}
    )
    done.inputs = Counter(
        {OutcomeKind("orders", line, "retried", 0): 1 for line in range(1, lines + 1)}
    )
    for _ in range(2):
        observer.emitted(done)
    for name, most, total, labels in (
        ("redrive_failed_puts_total", most_targets, targets, ("orders", OTHER, OTHER)),
        ("redrive_inputs_total", most_series, lines, ("orders", OTHER, OTHER, OTHER)),
    ):
        shown = {key: value for key, value in values(observer).items() if key[0] == name}
        assert len(shown) == most + 1
        assert sum(shown.values()) == 2 * total
        assert shown[name, labels] == 2 * 50


def test_causes_beyond_a_number_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("redrive.observe.observer.MOST_CAUSES", 3)
    observer = MetricsObserver(job_of(handled("orders.dlq", name="orders")))
    for first in (200.0, 100.0, 300.0):
        observer.metrics.waiting.count_causes(
            Cause("orders", f"E{number}", "orders", "", 2, first) for number in range(5)
        )
    shown = values(observer)
    name = "redrive_dead_letters_total"
    assert {key[1]: value for key, value in shown.items() if key[0] == name} == {
        ("E0", "orders", "", "orders"): 6,
        ("E1", "orders", "", "orders"): 6,
        ("E2", "orders", "", "orders"): 6,
        (OTHER, OTHER, OTHER, "orders"): 12,
    }
    name = "redrive_cause_first_seen_timestamp_seconds"
    assert {key[1]: value for key, value in shown.items() if key[0] == name} == {
        (f"E{number}", "orders"): 100 for number in range(3)
    }


def test_a_handler_that_is_gone_is_not_shown_any_more(observer: MetricsObserver) -> None:
    observer.metrics.waiting.show_open(["bills"], {("bills", State.PARKED): Standing(2, 0, 0.0, 1)})
    observer.metrics.waiting.show_handlers({"bills": HandlerState.WAITING})
    shown = values(observer)
    assert ("redrive_handler_state", ("orders", "running")) not in shown
    assert shown["redrive_handler_state", ("bills", "waiting")] == 1
    assert ("redrive_remaining_messages", ("orders",)) not in shown
    assert ("redrive_remaining_oldest_seconds", ("orders",)) not in shown
    assert ("redrive_unacknowledged_messages", ("orders",)) not in shown
    assert shown["redrive_parked_messages", ("bills",)] == 2
    assert shown["redrive_held_messages", ("bills",)] == 1
    assert shown["redrive_remaining_messages", ("bills",)] == 0
