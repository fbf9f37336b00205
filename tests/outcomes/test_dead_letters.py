"""``redrive ls``, ``show`` and ``groups`` on the dead letters of a job."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tests.conftest import KafkaClient
from tests.engine.failed_processing import spring
from tests.outcomes.samples import append
from tests.outcomes.small_job import SmallJob, dead_letter

from redrive.messages import OutputRecord
from redrive.outcomes.rows import row_of
from redrive.settings import read_settings

Produce = Callable[..., None]


def test_dead_letters_are_listed_grouped_and_shown(small_job: SmallJob) -> None:
    now = int(time.time() * 1000)
    letters = [
        dead_letter(1, "2053", small_job.target),
        {**dead_letter(2, "2053", "nowhere"), "value": b'{"chairs": 2}'},
        {**dead_letter(3, "2053", "nowhere"), "value": b"\x1b[2J\x00\xff"},
    ]
    topic = small_job.identity.topic
    assert "No dead letters are parked or remain." in small_job.run("ls").stdout
    small_job.kafka.produce(topic, [{**letter, "partition": 0} for letter in letters])
    assert small_job.json_of("ls")["unread"] == 3
    assert "up to 3 messages may be missing in this list" in small_job.run("groups").stderr
    small_job.step(now - 120_000)
    records = small_job.kafka.read(small_job.configuration.outcomes_topic)
    append(
        small_job.configuration.ledger.path,
        [
            row_of(record.value, record.timestamp, record.partition, record.offset)
            for record in records
        ],
    )
    small_job.step(now)
    listing = small_job.json_of("ls", "--status", "all")
    assert listing["complete"] is True
    assert {letter["message"] for letter in listing["dead_letters"]} == {
        f"{topic}:0:{offset}" for offset in range(3)
    }
    waiting = small_job.json_of("ls")
    assert waiting["total"] == 2
    assert f"{topic}:0:1" in small_job.run("ls").stdout
    assert "No dead letter matches these filters." in small_job.run("ls", "--destq", "x").stdout
    (group,) = small_job.json_of("groups")["groups"]
    assert (group["count"], group["destination"]) == (2, "nowhere")
    assert "100.0 %" in small_job.run("groups").stdout
    assert small_job.json_of("groups")["unread"] == 0
    shown = small_job.run("show", f"{topic}:0:1", code=0)
    assert '"chairs": 2' in shown.stdout
    assert "parked" in shown.stdout
    hexadecimal = small_job.run("show", f"{topic}:0:2")
    assert "1b 5b 32 4a 00 ff" in hexadecimal.stdout
    assert "\x1b" not in small_job.run("show", f"{topic}:0:2", "--body", "text").stdout
    assert bytes.fromhex(small_job.json_of("show", f"{topic}:0:2")["record"]["body_hex"]) == (
        b"\x1b[2J\x00\xff"
    )


def test_quarantined_messages_are_counted_apart_and_replayed_if_asked_for(
    small_job: SmallJob, tmp_path: Path
) -> None:
    (tmp_path / "orders.rul").write_text("DIALECT(KAFKA)\nKEY(key-1) ACTION(QUARANTINE)\n")
    small_job = replace(small_job, configuration=read_settings(Path(small_job.config_file)).job)
    topic = small_job.identity.topic
    small_job.kafka.produce(topic, [dead_letter(number, "2053", partition=0) for number in (1, 2)])
    small_job.step(int(time.time() * 1000))
    handler = small_job.json_of("status")["handlers"][0]
    assert (handler["remaining"]["number"], handler["quarantined"]["number"]) == (1, 1)
    for command, key in (("ls", "dead_letters"), ("groups", "groups")):
        answer = small_job.json_of(command)
        assert (answer["total"], answer["quarantined"]) == (1, 1)
        apart = small_job.json_of(command, "--status", "quarantined")
        assert (apart["total"], apart["quarantined"], len(apart[key])) == (1, 0, 1)
    assert "1 quarantined message is left out" in small_job.run("ls").stderr
    assert "quarantined" in small_job.run("ls", "--status", "all").stdout
    plan = small_job.json_of("replay", "plan", "--to", "rules")
    assert (plan["count"], plan["messages"]["orders"]) == (1, {f"{topic}:0": [1]})
    assert any("1 quarantined message is left out" in note for note in plan["notes"])
    asked = small_job.json_of("replay", "plan", "--to", "rules", "--status", "quarantined")
    assert asked["messages"]["orders"] == {f"{topic}:0": [0]}
    assert asked["notes"] == []


def test_a_plan_to_groups_says_which_topics_are_missing_or_not_read(
    small_job: SmallJob, kafka: KafkaClient
) -> None:
    topics = [kafka.topic("orders"), kafka.topic("bills")]
    missing, existing = (f"{topic}.billing.retry" for topic in topics)
    kafka.create(existing)
    letters = [spring(OutputRecord(topic, None, b"v", [], 0), 0, 0) for topic in topics]
    small_job.produce([{"value": b"v", "headers": letter.headers} for letter in letters])
    small_job.step(int(time.time() * 1000))

    def warnings() -> dict[str, str]:
        plan = small_job.json_of("replay", "plan", "--to", "group")
        assert plan["count"] == 2
        return {warning["code"]: warning["text"] for warning in plan["warnings"]}

    warned = warnings()
    assert warned["group-topic-missing"].startswith(
        f"{missing} does not exist yet: the job creates"
    )
    assert warned["group-topic-unread"].startswith(f"billing has committed no offset on {existing}")
    kafka.commit("billing", existing, 0)
    assert set(warnings()) == {"group-topic-missing"}, "and planning has not created it"
