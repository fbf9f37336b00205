"""The least set of rights is enough, and without each one of them the error names it."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from benchmarks.clients import create
from kafka.admin import NewTopic
from tests.conftest import eventually, read_records, send_records
from tests.security.secure_broker import SecureBroker
from tests.streaming.conftest import RunningJob, configuration_of, letter

from redrive.configuration import EmitterChoice, JobConfiguration
from redrive.errors import RedriveError
from redrive.kafka.access import check_access
from redrive.operations.rights import rights_of, rights_to_read, rights_to_start

StartJob = Callable[[JobConfiguration], RunningJob]

TABLE = "RETRYINT(1)\nREASON(2053) ACTION(RETRY) RETRY(2)\nREASON(1) ACTION(FWD) FWDQ({})\n"


def job_of(user: str, secure: SecureBroker, folder: Path) -> JobConfiguration:
    """A job that signs in as a user of its own, with a queue and a target of its own."""
    table = TABLE.format(f"'{user}.target'")
    return configuration_of(
        folder,
        secure.secure_servers,
        {f"{user}.dlq": table},
        application=user,
        connection=replace(secure.connection(user), group=user),
        emitter=EmitterChoice.DRIVER,
    )


def prepare(job: JobConfiguration, secure: SecureBroker) -> None:
    """Makes the queue and the target, and writes three dead letters."""
    user = job.application
    create(secure.open_servers, *(NewTopic(f"{user}.{name}", 1, 1) for name in ("dlq", "target")))
    letters = [
        letter(1, "x", b"forwarded"),
        letter(2053, "nowhere", b"tried twice"),
        letter(9, "x", b"kept"),
    ]
    send_records(secure.open_servers, f"{user}.dlq", letters)


def what_is_said(job: JobConfiguration, start_job: StartJob) -> str:
    """Everything that a start says, up to the first failure or until all is done."""
    try:
        check_access(job.connection, rights_to_start(job), any_of=rights_to_read(job))
    except RedriveError as error:
        return f"{error.message}; {error.hint}"
    running = start_job(job)
    eventually(lambda: running.error or running.warnings or running.records >= 4, "an end")
    running.control.request_stop("the test is over")
    eventually(lambda: not running.is_alive, "the job ended")
    hint = running.error.hint if isinstance(running.error, RedriveError) else ""
    return f"{running.error}; {hint}; {running.warnings}"


def outcomes_of(
    job: JobConfiguration, secure: SecureBroker, start_job: StartJob
) -> list[dict[str, Any]]:
    """Run a job until it has handled its messages; every outcome that it committed."""
    running = start_job(job)
    running.wait_for_records(4)
    running.stop()
    return [
        json.loads(record.value) for record in read_records(secure.open_servers, job.outcomes_topic)
    ]


def test_with_the_least_rights_a_job_does_its_work_once(
    secure: SecureBroker, tmp_path: Path, start_job: StartJob
) -> None:
    job = job_of("least", secure, tmp_path)
    prepare(job, secure)
    secure.add_user("least", (right for right in rights_of(job) if right.is_needed))
    check_access(job.connection, rights_to_start(job), any_of=rights_to_read(job))
    outcomes = outcomes_of(job, secure, start_job)
    results = Counter((outcome["attempt"], outcome["result"]) for outcome in outcomes)
    assert results == {(1, "forwarded"): 1, (1, "parked"): 1, (2, "remains"): 1, (0, "remains"): 1}
    (record,) = read_records(secure.open_servers, "least.target")
    assert record.value.endswith(b"forwarded")


NEEDED = 8
"""Rights that a job with one queue and one target needs; the last is the target's."""
SAID = {"Create": "creat(e|ion)", "Read": "[Rr]ead", "Write": "[Ww]rit"}
"""How an error tells of an operation."""


@pytest.mark.parametrize("number", range(NEEDED - 1))
def test_without_each_of_them_the_error_names_it(
    number: int, secure: SecureBroker, tmp_path: Path, start_job: StartJob
) -> None:
    job = job_of(f"without{number}", secure, tmp_path)
    prepare(job, secure)
    needed = [right for right in rights_of(job) if right.is_needed]
    assert len(needed) == NEEDED
    assert needed[-1].name == f"{job.application}.target"
    secure.add_user(job.application, (right for right in needed if right != needed[number]))
    said = what_is_said(job, start_job)
    assert needed[number].name in said
    assert re.search(SAID[needed[number].operation], said), said
    assert read_records(secure.open_servers, f"{job.application}.target") == []


def test_without_the_right_on_a_target_only_its_own_messages_fail(
    secure: SecureBroker, tmp_path: Path, start_job: StartJob
) -> None:
    """With Describe alone the attempt fails with MQRC_NOT_AUTHORIZED, and the job goes on."""
    job = job_of("describer", secure, tmp_path)
    prepare(job, secure)
    needed = [right for right in rights_of(job) if right.is_needed]
    secure.add_user("describer", [*needed[:-1], replace(needed[-1], operation="Describe")])
    outcomes = outcomes_of(job, secure, start_job)
    (failed,) = (outcome for outcome in outcomes if outcome["target_queue"] == "describer.target")
    assert (failed["reason"], failed["result"]) == (2035, "remains")
