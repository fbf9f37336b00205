"""A job to watch, and what it tells."""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from tests.configurations import handled, job_of

from redrive.checkpoints.protocol import EmissionFigures
from redrive.configuration import EmitterChoice, JobConfiguration
from redrive.engine.breaker import BreakerState
from redrive.engine.statistics import (
    AGE_BOUNDS,
    LATENESS_BOUNDS,
    Ages,
    Distribution,
    Failure,
    OutcomeKind,
)
from redrive.observe.observer import MetricsObserver
from redrive.operations.handlers import HandlerState
from redrive.operations.retention import Waiting
from redrive.operations.supervision import Activity, HiddenRecords, SupervisionState
from redrive.outcomes.causes import Cause
from redrive.outcomes.inventory import Standing, State
from redrive.streaming.lifecycle import BatchSummary, Emitted


@pytest.fixture
def configuration(tmp_path: Path) -> JobConfiguration:
    """A job with one handler, that no broker knows."""
    return job_of(handled("orders.dlq", name="orders"), directory=tmp_path, listen="127.0.0.1:9464")


def distribution(bounds: tuple[float, ...], *seconds: float) -> Distribution:
    counted = Distribution(bounds)
    counted.count(np.array(seconds))
    return counted


def emitted() -> Emitted:
    """What a batch did in which everything happened."""
    return Emitted(
        rows=12,
        inputs=Counter(
            {
                OutcomeKind("orders", 3, "forwarded", 0): 7,
                OutcomeKind("orders", 3, "parked", 2053): 2,
                OutcomeKind("orders", 0, "remains", 0): 1,
            }
        ),
        failures=Counter({Failure("orders", 3, 2053, "Q@QM", "full"): 2}),
        invalid=Counter(orders=1),
        ages=Ages(
            {"orders": distribution(AGE_BOUNDS, 0.05, 2.0, 1e9)},
            {"orders": distribution(LATENESS_BOUNDS, 0.02)},
        ),
        rounds=Counter({("orders", 2): 5}),
        figures=EmissionFigures([0.03, 0.2], 40, 1, Counter({2053: 2}), 3, 2),
    )


def summary(seconds: float = 0.5) -> BatchSummary:
    """A batch that came to its end a moment ago."""
    return BatchSummary(
        batch=1, time=int(time.time() * 1000), seconds=seconds, emitter=EmitterChoice.LANES
    )  # fmt: skip


def state(activity: Activity, *, age: float = 0.0, since: float | None = None) -> SupervisionState:
    """What a process that lives said of itself so many seconds ago."""
    now = time.time()
    return SupervisionState(
        time=now - age, pid=os.getpid(), state=activity, lane="orders.dlq:2", step="commit",
        since=None if since is None else now - since, cause="no answer in time",
        breakers=(BreakerState("orders", 2, "ORDERS", "", "open", now, "20 of 20 came back"),),
        forwards={"eu": 3},
        hidden=(HiddenRecords(topic="orders.dlq", partition=2, records=30, since=now - 90),),
    )  # fmt: skip


@pytest.fixture
def observer(configuration: JobConfiguration) -> MetricsObserver:
    """One that has heard of everything that there is to hear."""
    observer = MetricsObserver(configuration)
    metrics = observer.metrics
    observer.run_began(4)
    observer.emitted(emitted())
    observer.batch(summary())
    observer.rates(10.0, 20.0)
    observer.supervised(state(Activity.RUNNING))
    metrics.waiting.show_topic(
        Waiting(topic="orders.dlq", is_own=False, messages=5, retention=float("inf"))
    )
    metrics.waiting.count_causes([Cause("orders", "IOException", "orders", "billing", 4, 9.0)])
    metrics.waiting.count_repeated(["orders"], {"orders": 1})
    metrics.waiting.show_handlers({"orders": HandlerState.RUNNING})
    metrics.waiting.show_open(
        ["orders"],
        {
            ("orders", State.REMAINING): Standing(
                3, 0, time.time() - 60, acknowledged=2, unacknowledged_since=time.time() - 9
            )
        },
    )
    return observer
