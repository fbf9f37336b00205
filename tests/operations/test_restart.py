"""The request to go on with new settings, and the answer that comes back through a file."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from redrive.configuration import JobConfiguration
from redrive.diagnostics import Diagnostic, Severity
from redrive.errors import ConfigurationError, EnvironmentFault, RedriveError
from redrive.operations.process import PidFile
from redrive.operations.restart import RestartAnswer, RestartRecord, restart


@pytest.fixture
def record(job: JobConfiguration) -> RestartRecord:
    """Where the job answers."""
    return RestartRecord(job.directory, job.share)


@pytest.fixture
def on_hangup() -> Iterator[Callable[[Callable[[], object]], None]]:
    """Let this process, which stands for the job, do something when it gets SIGHUP."""
    before = signal.getsignal(signal.SIGHUP)

    def do(action: Callable[[], object]) -> None:
        def handle(*_: Any) -> None:
            action()

        signal.signal(signal.SIGHUP, handle)

    yield do
    signal.signal(signal.SIGHUP, before)


def test_answers_are_counted_and_read_by_others(
    job: JobConfiguration, record: RestartRecord
) -> None:
    reader = RestartRecord(job.directory, job.share)
    assert reader.read() is None
    record.write(None)
    record.write(None)
    assert reader.read() == RestartAnswer(number=2, pid=os.getpid())


def test_a_refusal_comes_with_every_finding(record: RestartRecord) -> None:
    finding = Diagnostic(
        severity=Severity.ERROR, code="BAD", message="it is wrong", file="a.rul", line=3
    )
    record.write(ConfigurationError("no good", hint="mend it", diagnostics=[finding]))
    answer = record.read()
    assert answer is not None
    assert (answer.message, answer.hint) == ("no good", "mend it")
    assert answer.findings == [finding.render()]


def test_what_an_earlier_process_left_is_forgotten(record: RestartRecord) -> None:
    record.forget()
    record.write(None)
    record.forget()
    assert record.read() is None


@pytest.mark.parametrize("text", ["", "{}", '{"number": 1, "restarted": true}'])
def test_a_record_of_another_version_is_no_answer(record: RestartRecord, text: str) -> None:
    record.path.write_text(text)
    assert record.read() is None


@pytest.mark.parametrize("refusal", [None, RedriveError("not now")])
def test_a_job_that_answers_is_heard(
    job: JobConfiguration,
    record: RestartRecord,
    on_hangup: Callable[[Callable[[], object]], None],
    refusal: RedriveError | None,
) -> None:
    record.write(RedriveError("earlier"))
    on_hangup(lambda: record.write(refusal))
    with PidFile.held(job):
        answer = restart(job, timeout=60)
    assert answer.number == 2
    assert answer.message == (refusal.message if refusal else "")


def test_without_a_process_there_is_nobody_to_ask(job: JobConfiguration) -> None:
    with pytest.raises(EnvironmentFault, match=f"no job runs in {job.directory}"):
        restart(job, timeout=0)


def test_a_job_that_does_not_answer_is_not_waited_for_longer_than_asked(
    job: JobConfiguration, on_hangup: Callable[[Callable[[], object]], None]
) -> None:
    on_hangup(lambda: None)
    with PidFile.held(job), pytest.raises(EnvironmentFault, match="has not answered within 1 s"):
        restart(job, timeout=1)


def test_a_job_that_ends_meanwhile_is_told(
    job: JobConfiguration, on_hangup: Callable[[Callable[[], object]], None]
) -> None:
    with PidFile.held(job) as file:
        on_hangup(file._release)
        with pytest.raises(EnvironmentFault, match="the job ended"):
            restart(job, timeout=60)
