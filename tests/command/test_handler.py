"""``redrive handler``: what is stopped, and how it goes on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.commands import redrive
from tests.configurations import write_settings
from tests.conftest import KafkaClient

from redrive.checkpoints.control import ControlTopic, LostPosition
from redrive.kafka.cluster import Cluster
from redrive.messages import TopicPartition
from redrive.operations.states import ensure_topics, read_states
from redrive.settings import read_settings


def handler(*arguments: str, code: int = 0) -> str:
    """What ``redrive handler`` says, which ends with an exit code."""
    return redrive("handler", *arguments, code=code).output


def test_a_stopped_handler_is_listed_and_resumed(kafka: KafkaClient, folder: Path) -> None:
    name, queues = kafka.unique_name("app"), ("orders.dlq", "payments.dlq")
    path = write_settings(folder, *queues, application=name, servers=kafka.bootstrap_servers)
    job = read_settings(path).job
    assert "stopped" not in handler("list")  # the job never ran
    ensure_topics(job)
    lost = LostPosition(
        source="payments.dlq", found=17, identity="", committed=3, first=10, end=15,
        is_anew=False, problem="it is gone", hint="find out why",
    )  # fmt: skip
    lane = TopicPartition("payments.dlq", 0)
    cluster = Cluster(job.connection)
    with ControlTopic(cluster, job.control_topic) as entries:
        entries.set_lost({lane: lost})
    assert "payments is stopped: it is gone\nhint: find out why" in handler("list")
    states = {load["handler"]: load["is_stopped"] for load in json.loads(handler("list", "--json"))}
    assert states == {"orders": False, "payments": True}
    assert "is not stopped" in handler("resume", "orders", code=2)
    assert "did you mean payments" in handler("resume", "payment", code=2)
    said = handler("resume", "payments", "--from", "latest", "--because", "too late")
    assert (
        said
        == f"{lane} goes on from the latest: 7 offsets deleted unread, 5 offsets or more skipped\n"
    )
    answer = read_states(job, cluster).resumes["payments.dlq"]
    assert answer.answers(lane, 17)
    assert not answer.answers(lane, 18)
    assert (answer.begin.value, answer.purpose) == ("latest", "too late")
    assert "is about to go on" in handler("list")


def test_a_handler_whose_topic_may_not_be_read_is_stopped_with_what_to_do(
    kafka: KafkaClient, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Cluster, "unreadable", lambda *_: frozenset({"orders.dlq"}))
    name = kafka.unique_name("a")
    write_settings(folder, "orders.dlq", application=name, servers=kafka.bootstrap_servers)
    said = handler("list")
    assert "orders is stopped: this user may not read topic orders.dlq\nhint: grant Read" in said
    (handler_listed,) = json.loads(handler("list", "--json"))
    assert (handler_listed["is_stopped"], handler_listed["is_denied"]) == (True, True)
