"""Requests reach the job, and what the job does reaches whoever watches."""

import signal
import threading
from collections import Counter
from queue import SimpleQueue

import pytest
from tests.configurations import job_of
from tests.conftest import PATIENCE

from redrive.configuration import EmitterChoice, JobConfiguration
from redrive.engine.statistics import OutcomeKind
from redrive.errors import EXIT_STALLED, ConfigurationError, RedriveError, RestartRequired
from redrive.kafka.deadline import under_way
from redrive.streaming import lifecycle
from redrive.streaming.lifecycle import (
    BatchSummary,
    EndDeadline,
    JobControl,
    JobObserver,
    Restart,
    Stop,
)

CONFIGURATION = job_of()
SUMMARY = BatchSummary(
    batch=1,
    time=0,
    inputs=Counter({OutcomeKind("h", 1, "retried", 0): 3, OutcomeKind("g", 0, "remains", 0): 4}),
    seconds=0.5,
    emitter=EmitterChoice.DRIVER,
)


def load() -> JobConfiguration:
    return CONFIGURATION


def refuse() -> JobConfiguration:
    raise ConfigurationError("a key is wrong")


class Heard(JobObserver):
    """Keeps every event."""

    def __init__(self) -> None:
        self.events: list[object] = []

    def started(self, configuration: JobConfiguration) -> None:
        self.events.append(("started", configuration))

    def batch(self, summary: BatchSummary) -> None:
        self.events.append(("batch", summary))

    def notice(self, message: str, /, **facts: object) -> None:
        self.events.append((message, facts))

    def restarted(self, configuration: JobConfiguration, *, is_new_run: bool) -> None:
        del is_new_run
        self.events.append(("restarted", configuration))

    def restart_refused(self, error: RedriveError) -> None:
        self.events.append(("refused", error.message))

    def stopped(self, reason: str) -> None:
        self.events.append(("stopped", reason))


def test_requests_come_one_after_the_other() -> None:
    control = JobControl()
    control.request_restart(load)
    control.request_restart(refuse)
    assert control.next_request() == Restart(load)
    assert control.next_request() == Restart(refuse)
    assert control.next_request() is None


def test_a_stop_overtakes_everything_and_stays() -> None:
    control = JobControl()
    control.request_restart(load)
    control.request_stop("SIGTERM")
    control.request_stop("SIGINT")
    control.request_restart(load)
    assert [control.next_request(), control.next_request()] == [Stop("SIGTERM")] * 2
    assert control.is_stopping
    assert control.stop_reason == "SIGTERM"


def test_nobody_asked_to_stop() -> None:
    control = JobControl()
    assert (control.is_stopping, control.stop_reason) == (False, "")


def test_a_waiting_job_wakes_up_for_a_request() -> None:
    control = JobControl()
    threading.Timer(0.05, control.request_stop, ["SIGTERM"]).start()
    assert control.next_request(timeout=60) == Stop("SIGTERM")


def test_a_signal_handler_may_interrupt_the_job_that_waits() -> None:
    control = JobControl()
    before = signal.signal(signal.SIGALRM, lambda *_: control.request_restart(load))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        assert control.next_request(timeout=60) == Restart(load)
    finally:
        signal.signal(signal.SIGALRM, before)


def test_settings_with_errors_are_refused_and_told() -> None:
    heard = Heard()
    control = JobControl(heard)
    assert control.load(Restart(refuse)) is None
    assert control.load(Restart(load)) == CONFIGURATION
    assert heard.events == [("refused", "a key is wrong")]


def test_every_observer_hears_everything_in_order() -> None:
    first, second = Heard(), Heard()
    control = JobControl(first)
    control.started(CONFIGURATION)
    control.add_observer(second)
    control.batch(SUMMARY)
    control.notice("waiting for a topic", topic="t")
    control.restarted(CONFIGURATION, is_new_run=True)
    control.stopped("SIGTERM")
    assert second.events == [
        ("batch", SUMMARY),
        ("waiting for a topic", {"topic": "t"}),
        ("restarted", CONFIGURATION),
        ("stopped", "SIGTERM"),
    ]
    assert first.events == [("started", CONFIGURATION), *second.events]


def test_an_observer_need_not_listen_to_everything() -> None:
    control = JobControl(JobObserver())
    control.started(CONFIGURATION)
    control.batch(SUMMARY)
    control.notice("x")
    control.restarted(CONFIGURATION, is_new_run=True)
    control.restart_refused(RedriveError("x"))
    control.stopped("x")


@pytest.mark.parametrize(("result", "count"), [("retried", 3), ("remains", 4)])
def test_results_add_up_over_handlers_and_rules(result: str, count: int) -> None:
    assert SUMMARY.by_result[result] == count


@pytest.mark.parametrize(
    ("error", "code"), [(None, 0), (RedriveError("no"), 1), (RestartRequired("gone"), EXIT_STALLED)]
)
def test_a_process_whose_job_does_not_end_in_time_is_ended(
    error: RedriveError | None, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifecycle, "_END", 0.1)
    warnings: list[dict[str, object]] = []

    class Log(JobObserver):
        def warning(self, message: str, /, **facts: object) -> None:
            del message
            warnings.append(facts)

    codes: SimpleQueue[int] = SimpleQueue()
    control = JobControl(Log())
    end = EndDeadline(control, codes.put)
    end.start()
    with under_way("stop of the query"):
        if error is None:
            control.request_stop("SIGTERM")
        else:
            end.begin(error)
        assert codes.get(timeout=PATIENCE) == code
    assert warnings[0]["unanswered"] == "stop of the query"
    assert warnings[0]["exit_code"] == code
    assert control.fatal_error is error
