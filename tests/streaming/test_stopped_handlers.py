"""A handler that lost its place stops alone, and goes on when an operator lets it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kafka import TopicPartition
from tests.conftest import eventually
from tests.streaming.conftest import Jobs, letter

from redrive.configuration import DataLoss
from redrive.engine.commands import ResumeFrom
from redrive.errors import EnvironmentFault, UsageError
from redrive.operations.handlers import read_topics, resume
from redrive.streaming import query, upkeep

TABLE = "WAIT(%s)\nACTION(RETRY)\n"


@pytest.mark.parametrize("most_partitions", [query._MOST_PARTITIONS, 0])
def test_a_topic_made_anew_stops_its_own_handler_only(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch, most_partitions: int
) -> None:
    """The other one goes on, without a pause; resumed, the handler reads the new topic.

    New dead letters are read by Spark's source, or with those that wait: that is for many
    partitions.
    """
    monkeypatch.setattr(query, "_MOST_PARTITIONS", most_partitions)
    monkeypatch.setattr(upkeep, "_LAYOUT_AGE", 0.5)
    payments, orders, target = jobs.topic("dlq"), jobs.topic("dlq"), jobs.topic("target")
    configuration = jobs.configure(dict.fromkeys((payments, orders), TABLE % "YES"))
    job = jobs.start(configuration)
    jobs.produce(payments, [letter(2053, target, b"old")])
    job.wait_for_records(1)
    jobs.admin.delete_topics([payments])
    eventually(lambda: payments not in jobs.admin.list_topics(), "the topic is gone")
    jobs.create(payments)
    jobs.produce(payments, [letter(2053, target, b"new")])
    eventually(lambda: "a handler is stopped" in str(job.warnings), "the handler stopped")

    def is_stopped() -> dict[str, bool]:
        return {topic.topic: bool(topic.lost) for topic in read_topics(configuration)}

    assert is_stopped() == {payments: True, orders: False}
    jobs.produce(orders, [letter(2053, target, b"other")])
    job.wait_for_records(2)
    with pytest.raises(UsageError, match="is not stopped"):
        resume(configuration, orders, ResumeFrom.OLDEST, "")
    (lost,) = resume(configuration, payments, ResumeFrom.OLDEST, "it was meant").values()
    assert (lost.gone, lost.is_anew) == (0, True)
    job.wait_for_records(3)
    eventually(lambda: not any(is_stopped().values()), "all handlers run")
    job.stop()
    assert sorted(jobs.values(target)) == [b"new", b"old", b"other"]


def test_a_resume_answers_one_loss(jobs: Jobs) -> None:
    payments, orders, target = jobs.topic("dlq"), jobs.topic("dlq"), jobs.topic("target")
    configuration = jobs.configure(dict.fromkeys((payments, orders), TABLE % "NO"))
    jobs.start(configuration).join()

    def cut_off(*, before: int) -> str:
        jobs.produce(payments, [letter(2053, target, b"kept")] * 2)
        jobs.admin.delete_records({TopicPartition(payments, 0): before})
        jobs.produce(orders, [letter(2053, target, b"other")])
        job = jobs.start(configuration)
        eventually(lambda: not job.is_alive, "the job has ended")
        assert isinstance(job.error, EnvironmentFault), job.error
        assert f"redrive handler resume {payments}" in job.error.hint
        assert job.records == 1
        return str(job.error)

    assert "the job stands at 0: offsets 0 to 0 no longer exist" in cut_off(before=1)
    (lost,) = resume(configuration, payments, ResumeFrom.LATEST, "").values()
    assert lost.gone == 1
    assert [topic.is_resumed for topic in read_topics(configuration)] == [True, False]
    job = jobs.start(configuration)
    job.join()
    (resumed,) = [facts for said, facts in job.warnings if said == "a stopped handler resumes"]
    assert (resumed["gone"], resumed["skipped"]) == (1, 1)
    assert "the job stands at 2" in cut_off(before=3)
    handlers = [
        replace(handler, on_data_loss=DataLoss.CONTINUE) for handler in configuration.handlers
    ]
    jobs.start(replace(configuration, handlers=tuple(handlers))).join()
    assert sorted(jobs.values(target)) == [b"kept", b"other", b"other"]
