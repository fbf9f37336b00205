"""The messages behind outcomes: the one that ``show`` shows, and those that bodies select."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.outcomes.small_job import SmallJob

from redrive.kafka.records import StoredRecord
from redrive.messages import DeadLetterHeader, encode_header
from redrive.outcomes import bodies
from redrive.outcomes.bodies import Lost
from redrive.outcomes.history import Archive


def test_a_message_is_found_where_a_broker_leads_a_partition(
    small_job: SmallJob, without_leader: Callable[..., None]
) -> None:
    header = DeadLetterHeader(reason=2053, dest_q_name="NOWHERE", format="MQSTR")
    identity = small_job.identity
    small_job.kafka.produce(
        identity.topic, [{"value": encode_header(header) + b"body", "partition": 0}]
    )
    small_job.step(int(time.time() * 1000))
    archive = Archive(small_job.configuration)
    story = archive.history(f"{identity.topic}:0:0")

    def lane_of(*leaderless: str) -> str:
        without_leader(*leaderless)
        record = archive.record(story.last)
        assert isinstance(record, StoredRecord)
        return str(record.lane)

    elsewhere = [f"{topic}:1" for topic in (identity.topic, *identity.waiting_topics)]
    assert lane_of(*elsewhere) == f"{identity.topic}:0"
    assert lane_of(f"{identity.topic}:0") == f"{identity.retry_topic}:0"
    without_leader(f"{identity.topic}:0", f"{identity.retry_topic}:0")
    lost = archive.record(story.last)
    assert isinstance(lost, Lost)
    assert f"{identity.topic}:0, {identity.retry_topic}:0" in lost.reason


ORDERS = {
    "2053": [b'{"order": {"id": 17, "name": "Ann"}}', b'{"order": {"id": 18, "name": "Bob"}}'],
    "2030": [b'{"order": {"id": 17.0}}', b"<order id='17' name='ANN'/>", b'{"order": {"id": "9"}}'],
}
"""Bodies of dead letters by reason: the first wait for a retry, the others remain."""


@pytest.fixture
def orders(small_job: SmallJob, now: int) -> SmallJob:
    """The job after a look at the orders, and at one more that it put."""
    letters = [
        encode_header(DeadLetterHeader(reason=reason, dest_q_name=queue, format="MQSTR")) + body
        for reason, queue, bodies in (
            (2053, "nowhere", ORDERS["2053"]),
            (2030, "nowhere", ORDERS["2030"]),
            (2053, small_job.target, [b'{"order": {"id": 17}}']),
        )
        for body in bodies
    ]
    small_job.produce([{"value": letter, "partition": 0} for letter in letters])
    small_job.step(now)
    return small_job


def test_messages_that_wait_are_selected_by_their_bodies(orders: SmallJob) -> None:
    def offsets(*options: str) -> list[int]:
        listed = orders.json_of("ls", *options)
        assert listed["bodies"]["matching"] == listed["total"]
        return sorted(int(row["message"].split(":")[2]) for row in listed["dead_letters"])

    by_id = ("--body", "$.order.id == 17")
    assert offsets(*by_id) == [0, 2]
    assert offsets(*by_id, "--status", "remaining") == [2]
    assert offsets("--body-text", "aNN") == [0, 3]
    assert offsets("--body-text", "DLH ") == [], "the header is no part of a body"


def test_every_command_that_selects_says_how_many_bodies_it_looked_at(
    orders: SmallJob, tmp_path: Path
) -> None:
    by_id = ("--body", "$.order.id == 17")
    sentence = "5 bodies were looked at: 2 match; 1 are not JSON"
    assert sentence in orders.run("ls", *by_id, code=0).stderr
    assert sentence in orders.run("groups", *by_id, code=0).stderr
    in_plan = "3 bodies were looked at: 1 matches; 1 are not JSON"
    for action in ("replay", "discard"):
        planned = orders.json_of(action, "plan", *by_id)
        assert [*planned["messages"]["orders"].values()] == [[2]]
        assert in_plan in planned["notes"]
    acked = orders.json_of("ack", *by_id, "--until", "1d", "--note", "kept")
    assert acked["messages"] == 1
    letters = orders.json_of("ls", "--status", "remaining")["dead_letters"]
    assert [row["message"][-1] for row in letters if row["acknowledged"]] == ["2"]
    parked = orders.run("parked", "cancel", *by_id, "-o", str(tmp_path / "plan.json"), code=0)
    assert "2 bodies were looked at: 1 matches" in parked.stderr


def test_a_body_whose_copy_is_lost_is_that_of_the_dead_letter(orders: SmallJob) -> None:
    orders.kafka.admin.delete_topics([orders.identity.remaining_topic])
    listed = orders.json_of("ls", "--body", "$.order.id == 17")
    assert listed["total"] == 2
    assert listed["bodies"]["looked_at"] == 5


def test_more_bodies_than_the_limit_are_left_out(
    orders: SmallJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies, "MOST_BODIES", 3)
    listed = orders.json_of("ls", "--body", "$.order.id == 17")
    assert (listed["total"], listed["bodies"]["looked_at"], listed["complete"]) == (2, 3, False)
    assert listed["notes"][0].startswith("2 messages that failed last were not looked at")


def test_bodies_of_messages_that_do_not_wait_are_not_searched(orders: SmallJob) -> None:
    refused = orders.run("ls", "--body-text", "x", "--status", "retried", code=2)
    assert "are not for --status retried" in refused.stderr
