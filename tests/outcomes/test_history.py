"""``redrive history`` tells every outcome of a message, from the ledger and from beyond it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.conftest import KafkaClient
from tests.outcomes.samples import append
from tests.outcomes.small_job import SmallJob, dead_letter

from redrive.outcomes.history import Archive, NoOutcomeError
from redrive.outcomes.rows import moment, row_of

Produce = Callable[..., None]


def _project(job: SmallJob) -> None:
    """Appends what is on the outcomes topic to a new ledger, as the projection would."""
    records = job.kafka.read(job.configuration.outcomes_topic)
    path = job.configuration.ledger.path
    append(
        path,
        [
            row_of(record.value, record.timestamp, record.partition, record.offset)
            for record in records
        ],
    )


def _histories(job: SmallJob) -> dict[str, list[dict[str, Any]]]:
    """Every outcome by message, in the order of the topic."""
    histories = defaultdict(list)
    for record in job.kafka.read(job.configuration.outcomes_topic):
        outcome = orjson.loads(record.value)
        histories[outcome["message"]].append(outcome)
    return histories


@pytest.fixture
def job(small_job: SmallJob, now: int) -> SmallJob:
    """A job that has tried four dead letters; the ledger has what happened two minutes ago."""
    letters = [
        dead_letter(1, "2053", small_job.target),
        dead_letter(2, "2053", "nowhere"),
        dead_letter(3, "2085"),
        {"key": b"\xff\x00", "value": b"no header"},
    ]
    small_job.produce([{**letter, "partition": 0} for letter in letters])
    small_job.step(now - 120_000)
    _project(small_job)
    small_job.step(now)
    return small_job


def test_a_history_is_what_the_topic_holds_of_the_message(job: SmallJob) -> None:
    histories = _histories(job)
    assert sorted(map(len, histories.values())) == [1, 1, 1, 2]
    archive = Archive(job.configuration)
    for message, outcomes in histories.items():
        answer = archive.history(message)
        assert [row.outcome for row in answer.outcomes] == [
            outcome["outcome"] for outcome in outcomes
        ]
        assert [row.result for row in answer.outcomes] == [
            outcome["result"] for outcome in outcomes
        ]
        assert answer.notes == ()


def test_a_parked_message_says_when_and_by_which_rule_it_is_tried_again(
    job: SmallJob, now: int
) -> None:
    message = f"{job.identity.topic}:0:1"
    answer = Archive(job.configuration).history(message)
    assert answer.next.due == moment(now + job.interval)
    assert answer.next.rule_line == 2
    assert "attempt 3" in answer.next.text
    shown = job.run("history", message).stdout
    assert "next: attempt 3 by the rule at line 2: RETRY to nowhere, due " in shown
    assert "2085 MQRC_UNKNOWN_OBJECT_NAME" in shown


def test_what_comes_next_depends_on_the_last_outcome(job: SmallJob) -> None:
    archive = Archive(job.configuration)
    texts = {}
    for number in (0, 2, 3):
        answer = archive.history(f"{job.identity.topic}:0:{number}")
        texts[number] = answer.next.text
    assert texts == {
        0: "nothing: it was retried",
        2: "nothing: it was forwarded",
        3: "it stays until the rules table changes or an operator handles it",
    }


def test_the_place_of_a_copy_leads_to_the_message(job: SmallJob) -> None:
    histories = _histories(job)
    message = f"{job.identity.topic}:0:1"
    copy = histories[message][1]["outcome"]
    assert copy.startswith(job.identity.retry_topic)
    answer = Archive(job.configuration).history(copy)
    assert answer.message == message
    assert len(answer.outcomes) == 2
    assert answer.notes == (f"{copy} is a record of the message {message}",)


@pytest.mark.parametrize(
    ("asked", "hint"),
    [
        ("{topic}:0:7", "{topic}:0 ends at offset 3; did you mean {topic}:0:3?"),
        ("{topic}:1:0", "it waits on its dead-letter queue"),
        ("{topic}:9:0", "there is no partition {topic}:9"),
        ("{topic}/0/2", "did you mean {topic}:0:2?"),
        ("x{topic}:0:2", "did you mean {topic}:0:2?"),
        ("nonsense", "an ID has the form topic:partition:offset"),
        ("'; DROP TABLE ledger; --:0:1", "an ID has the form topic:partition:offset"),
    ],
)
def test_a_message_without_outcome_is_explained(
    kafka: KafkaClient, job: SmallJob, asked: str, hint: str
) -> None:
    """Not there (yet), or another one was meant."""
    topic = job.identity.topic
    kafka.produce(topic, [{**dead_letter(1, "2053"), "partition": 1}])
    with pytest.raises(NoOutcomeError) as error:
        Archive(job.configuration).history(asked.format(topic=topic))
    assert hint.format(topic=topic) in error.value.hint
    result = job.run("history", asked.format(topic=topic), code=1)
    assert "no outcome of" in result.stderr


def test_a_search_finds_by_key_reason_result_and_time(job: SmallJob, now: int) -> None:
    everything = [outcome for history in _histories(job).values() for outcome in history]
    searches: list[tuple[list[str], Callable[[dict[str, Any]], bool]]] = [
        ([], lambda _: True),
        (["--key", "key-2"], lambda outcome: outcome["key"] == "a2V5LTI="),
        (["--key", "0xff00"], lambda outcome: outcome["key"] == "/wA="),
        (["--reason", "MQRC_Q_FULL"], lambda outcome: outcome["fields"].get("REASON") == 2053),
        (
            ["--reason", "2085"],
            lambda outcome: 2085 in (outcome["reason"], outcome["fields"].get("REASON")),
        ),
        (["--result", "remains"], lambda outcome: outcome["result"] == "remains"),
        (["--since", "1m"], lambda outcome: outcome["time"] >= now - 60_000),
    ]
    for options, fits in searches:
        answer = job.json_of("history", *options)
        outcomes_found = sorted(row["outcome"] for row in answer["outcomes"])
        assert outcomes_found == sorted(
            outcome["outcome"] for outcome in everything if fits(outcome)
        ), options


def test_the_limit_keeps_the_newest(job: SmallJob, now: int) -> None:
    [row] = job.json_of("history", "--limit", "1")["outcomes"]
    assert row["time"].startswith(moment(now).isoformat()[:19])


def test_without_a_broker_the_ledger_answers_and_says_what_may_be_missing(job: SmallJob) -> None:
    config = Path(job.config_file)
    servers = job.configuration.connection.bootstrap_servers
    config.write_text(config.read_text().replace(servers, "localhost:1"))
    result = job.run("history", f"{job.identity.topic}:0:1", "--json", code=0)
    answer = orjson.loads(result.stdout)
    assert len(answer["outcomes"]) == 1
    assert "localhost:1" in answer["notes"][0]
