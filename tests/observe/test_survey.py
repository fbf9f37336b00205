"""What waits is asked for beside the job, and reported once."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
from tests.conftest import PATIENCE, eventually
from tests.observe.conftest import state, summary
from tests.observe.test_metrics import values
from tests.outcomes.samples import append, outcome, rows

from redrive.checkpoints.instances import Share
from redrive.configuration import JobConfiguration
from redrive.engine.commands import NO_STATES, states_of
from redrive.errors import EnvironmentFault, TransientFault
from redrive.observe.observation import Survey
from redrive.observe.observer import MetricsObserver
from redrive.operations.handlers import HandlerState
from redrive.operations.retention import Waiting
from redrive.operations.supervision import Activity
from redrive.outcomes.acknowledgements import Acknowledgement
from redrive.outcomes.rows import moment
from redrive.outcomes.selection import Selection, State
from redrive.streaming.lifecycle import JobControl, JobObserver

SOON = Waiting(
    topic="orders.dlq", is_own=False, messages=9, retention=86_400.0, expiring=4, first=None
)


class Told(JobObserver):
    """Keeps notices and warnings."""

    def __init__(self) -> None:
        self.warnings: list[dict[str, object]] = []
        self.notices: list[dict[str, object]] = []

    def warning(self, message: str, /, **facts: object) -> None:
        self.warnings.append({"message": message, **facts})

    def notice(self, message: str, /, **facts: object) -> None:
        self.notices.append({"message": message, **facts})


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A broker and a clock: what is there and what time it is."""
    world = SimpleNamespace(answer=(SOON,), now=1_800_000_000.0, states=NO_STATES)

    def ask(*_: Any) -> Sequence[Waiting]:
        if isinstance(world.answer, Exception):
            raise world.answer
        return list(world.answer)

    monkeypatch.setattr("redrive.observe.observation.waiting_on_topics", ask)
    follower = SimpleNamespace(states=lambda: world.states, close=lambda: None)
    monkeypatch.setattr("redrive.observe.observation.StatesFollower", lambda *_: follower)
    monkeypatch.setattr(
        "redrive.observe.observation.HandlerWatch.look", lambda *_: {"orders": HandlerState.RUNNING}
    )
    return world


def survey_of(configuration: JobConfiguration) -> tuple[Survey, MetricsObserver, Told]:
    """A survey of a job, the metrics that it fills, and what it tells."""
    control, observer = Told(), MetricsObserver(configuration)
    return Survey(configuration, JobControl(control), observer.metrics.waiting), observer, control


def at(world: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Lets so much time go by."""
    world.now += seconds
    monkeypatch.setattr("redrive.observe.observation.time.time", lambda: world.now)


def test_what_will_be_deleted_is_told_once_an_hour(
    configuration: JobConfiguration, world: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    at(world, monkeypatch, 0)
    survey, observer, control = survey_of(configuration)
    counts = []
    for seconds in (0, 60, 3500, 60):
        at(world, monkeypatch, seconds)
        survey.look()
        counts.append(len(control.warnings))
    assert counts == [1, 1, 1, 2]
    assert control.warnings[0] == {
        "message": "messages are deleted by their topic before they are handled",
        "topic": "orders.dlq",
        "at_most": 4,
        "retention": "1 d",
    }
    world.answer = (replace(SOON, expiring=0),)
    survey.look()
    assert values(observer)["redrive_expiring_messages", ("orders.dlq",)] == 0
    world.answer = (replace(SOON, first=world.now + 7200),)
    survey.look()
    assert len(control.warnings) == 3
    assert control.warnings[2]["first_in"] == "2 h"
    assert values(observer)["redrive_expiring_messages", ("orders.dlq",)] == 4


def test_without_an_answer_the_last_one_stands_with_its_time(
    configuration: JobConfiguration, world: SimpleNamespace
) -> None:
    survey, observer, control = survey_of(configuration)
    survey.look()
    before = values(observer)
    world.answer = TransientFault("no answer in time")
    survey.look()
    survey.look()  # the same answer again is not reported
    after = values(observer)
    for name, label in (
        ("backlog_messages", ("orders.dlq",)),
        ("broker_answer_timestamp_seconds", ()),
        ("handler_state", ("orders", "running")),
    ):
        assert after[f"redrive_{name}", label] == before[f"redrive_{name}", label] > 0
    assert [notice["error"] for notice in control.notices] == ["no answer in time"]


def test_a_ledger_that_does_not_answer_keeps_no_figure_of_the_broker(
    configuration: JobConfiguration, world: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redrive.observe.observation._FIRST", 0.01)
    monkeypatch.setattr("redrive.observe.observation._AGE", 0.01)
    monkeypatch.setattr("redrive.observe.observation._SOON", 0.01)
    released, tries = Event(), list[float]()

    def open_ledger(*_: object) -> None:
        tries.append(time.monotonic())
        assert released.wait(PATIENCE)
        if len(tries) < 3:
            raise EnvironmentFault("the store of the ledger is away")

    monkeypatch.setattr("redrive.observe.observation.LedgerTable.open", open_ledger)
    survey, observer, _ = survey_of(configuration)

    def is_shown(expiring: int) -> bool:
        shown = values(observer)
        return shown.get(("redrive_expiring_messages", ("orders.dlq",))) == expiring

    survey.started(configuration)
    survey.start()
    for expected in (5, 6):
        world.answer = (replace(SOON, expiring=expected),)
        eventually(partial(is_shown, expected), "figures of the broker change")
    released.set()
    eventually(lambda: len(tries) >= 3, "the ledger is asked again")
    survey.end()


def test_a_handler_that_lost_its_place_is_stopped_though_nothing_waits(
    configuration: JobConfiguration, world: SimpleNamespace
) -> None:
    survey, observer, _ = survey_of(configuration)
    figures = []
    for stopped in ({}, {"orders.dlq": "it was recreated"}, {}):
        survey.supervised(replace(state(Activity.RUNNING), stopped=stopped))
        survey.look()
        figures.append(values(observer)["redrive_handler_state", ("orders", "stopped")])
    assert figures == [0, 1, 0]


def test_shares_that_nobody_has_are_counted_until_somebody_has_them(
    configuration: JobConfiguration, world: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[list[Share]] = [[], [Share(2, 3), Share(3, 3)], []]
    monkeypatch.setattr("redrive.observe.observation.vacant_shares", lambda *_: answers.pop(0))
    survey, observer, _ = survey_of(replace(configuration, share=Share(1, 3)))
    figures = []
    while answers:
        survey.look()
        figures.append(values(observer)["redrive_vacant_shares", ()])
    assert figures == [0, 2, 0]


def test_parked_and_remaining_are_those_of_the_ledger(
    configuration: JobConfiguration, world: SimpleNamespace
) -> None:
    """With the age of the oldest, and 0 for a handler that has none."""
    minute = int(time.time() * 1000) - 60_000
    stories = [("d:0:1", "d:0:1", "remains"), ("d:0:2", "d:0:2", "remains")]
    stories += [("d:0:3", "d:0:3", "remains"), ("d:0:3", "x:0:1", "retried")]
    outcomes = [
        outcome(
            number, origin=origin, outcome=place, result=result, handler="orders",
            time=minute + number,
        )
        for number, (origin, place, result) in enumerate(stories)
    ]  # fmt: skip
    survey, observer, _ = survey_of(configuration)
    survey.look()
    assert ("redrive_remaining_messages", ("orders",)) not in values(observer), "no ledger yet"
    append(configuration.ledger.path, rows(outcomes, partitions=1))
    survey.look()
    exported = values(observer)
    assert exported["redrive_remaining_messages", ("orders",)] == 2
    assert exported["redrive_remaining_oldest_seconds", ("orders",)] == pytest.approx(60, abs=20)
    assert exported["redrive_parked_messages", ("orders",)] == 0
    assert exported["redrive_ledger_answer_timestamp_seconds", ()] == pytest.approx(
        time.time(), abs=20
    )


def test_repeated_dead_letters_are_those_since_the_job_began(
    configuration: JobConfiguration, world: SimpleNamespace
) -> None:
    """Each is counted once, and 0 is shown before."""
    survey, observer, _ = survey_of(configuration)
    begun, name = int(time.time() * 1000), "redrive_repeated_dead_letters_total"
    times = [begun - 60_000, begun - 59_000, begun + 1000, begun + 2000]
    outcomes = [
        outcome(
            number, origin=f"d:0:{number}", outcome=f"d:0:{number}", result="retried", hop=0,
            handler="orders", consumer_group="billing", failed_record="orders:0:7", time=when,
        )
        for number, when in enumerate(times)
    ]  # fmt: skip
    written, figures = rows(outcomes, partitions=1), []
    for new in (written[:2], written[2:3], written[3:]):
        append(configuration.ledger.path, new)
        survey.look()
        figures.append(values(observer)[name, ("orders",)])
    assert figures == [0, 1, 2]


def test_an_acknowledgement_counts_until_it_ends_though_no_outcome_comes(
    configuration: JobConfiguration, world: SimpleNamespace
) -> None:
    now = time.time()
    minute = int(now * 1000) - 60_000
    outcomes = [
        outcome(
            number, origin=f"d:0:{number}", outcome=f"d:0:{number}", result="remains",
            handler="orders", rule_line=number, time=minute + 30_000 * number,
        )
        for number in (0, 1)
    ]  # fmt: skip
    append(configuration.ledger.path, rows(outcomes, partitions=1))
    acknowledgement = Acknowledgement(
        id="5f2a",
        operator="ann",
        note="kept",
        made=moment(int(now * 1000)),
        until=moment(int(now * 1000) + 3_600_000),
        selection=Selection(state=State.REMAINING, rule=0),
    )
    survey, observer, _ = survey_of(configuration)
    figures = []
    over = replace(acknowledgement, until=moment(minute))
    for entry in (
        None,
        acknowledgement.entry(),
        acknowledgement.undone("bob"),
        acknowledgement.entry(),
        over.entry(),
    ):
        world.states = NO_STATES if entry is None else states_of(dict([entry]))
        survey.look()
        known = values(observer)
        assert known["redrive_remaining_messages", ("orders",)] == 2
        age = known["redrive_unacknowledged_oldest_seconds", ("orders",)]
        figures.append((known["redrive_unacknowledged_messages", ("orders",)], age > 45))
    assert figures == [(2, True), (1, False), (2, True), (1, False), (2, True)]


def test_the_ledger_is_late_until_it_has_what_the_job_did(
    configuration: JobConfiguration, world: SimpleNamespace
) -> None:
    survey, observer, _ = survey_of(configuration)
    assert values(observer)["redrive_ledger_delay_seconds", ()] == 0
    now = int(time.time() * 1000)
    for age in (50_000, 49_000, 20_000):
        survey.batch(replace(summary(), time=now - age))
    assert values(observer)["redrive_ledger_delay_seconds", ()] == pytest.approx(50, abs=10)
    append(configuration.ledger.path, rows([outcome(1, time=now - 30_000)]))
    survey.look()
    assert values(observer)["redrive_ledger_delay_seconds", ()] == pytest.approx(20, abs=10)
    append(configuration.ledger.path, rows([outcome(2, time=now - 20_000)]))
    survey.look()
    assert values(observer)["redrive_ledger_delay_seconds", ()] == 0


def test_a_survey_ends_although_the_broker_does_not_answer(
    configuration: JobConfiguration, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redrive.observe.observation._FIRST", 0.0)
    asked, go_on = Event(), Event()

    def hang(*_: Any) -> Sequence[Waiting]:
        asked.set()
        go_on.wait(PATIENCE)
        return ()

    monkeypatch.setattr("redrive.observe.observation.waiting_on_topics", hang)
    survey, _, _ = survey_of(configuration)
    survey.started(configuration)
    survey.start()
    assert asked.wait(PATIENCE)
    begun = time.monotonic()
    survey.end()
    seconds = time.monotonic() - begun
    go_on.set()
    assert seconds < PATIENCE / 2
