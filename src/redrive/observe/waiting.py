"""Metrics of waiting and new messages, by the last answers of the broker and the ledger."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Enum, Gauge

from redrive.masking import NO_MASK, Mask
from redrive.operations.handlers import HandlerState
from redrive.operations.retention import Waiting
from redrive.outcomes.causes import Cause
from redrive.outcomes.inventory import Standing, State
from redrive.printable import printable

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
