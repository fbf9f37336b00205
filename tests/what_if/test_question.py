"""What is asked of a real cluster is what the job then does."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.commands import python, redrive
from tests.configurations import write_settings
from tests.outcomes.samples import START
from tests.outcomes.small_job import SmallJob, dead_letter

from redrive.engine.ordering import Round
from redrive.messages import Headers, Records, TopicPartition
from redrive.outcomes.rows import Row, row_of
from redrive.outcomes.table import LedgerTable, arrow_of
from redrive.settings import read_settings
from redrive.what_if import Over, Question, ask, question

NEW = """\
RETRYINT(60)
REASON(MQRC_Q_FULL) DESTQ(GONE) ACTION(DISCARD)
REASON(MQRC_Q_FULL) ACTION(FWD) FWDQ('{target}') HEADER(YES)
REASON(MQRC_UNKNOWN_OBJECT_NAME) ACTION(RETRY) RETRY(2)
REASON(MQRC_NOT_AUTHORIZED) ACTION(DISCARD)
"""
NEW_OF_KAFKA = """\
DIALECT(KAFKA) RETRYINT(60)
REASON(MQRC_Q_FULL) HEADER('mqdlh.DestQName',/^GON/) KEY(key-?) ACTION(DISCARD)
REASON(MQRC_Q_FULL) SIZE(<9) ACTION(FWD) FWDT('{target}') HEADER(YES)
REASON(MQRC_UNKNOWN_OBJECT_NAME) AGE(>=0s) ACTION(RETRY) RETRY(2)
SCHEME(redrive) REASON(MQRC_NOT_AUTHORIZED) ACTION(DISCARD)
"""


plan = partial(redrive, "plan")


def test_notes_of_rounds_are_no_messages() -> None:
    note = Round("orders", 0, "billing", 5, TopicPartition("DLQ", 0)).value
    headers: list[Headers] = [[], [("redrive.in-round", note)], [("a", b"b")]]
    records = Records([b"k"] * 3, [b"v", None, None], headers, [5] * 3, [7, 8, 9])
    assert list(question._without_notes(records).offsets) == [7, 9]


@pytest.mark.parametrize("new", [NEW, NEW_OF_KAFKA], ids=["IBM", "KAFKA"])
def test_the_answer_is_what_the_job_then_does(
    new: str, small_job: SmallJob, tmp_path: Path
) -> None:
    topic = small_job.identity.topic
    small_job.kafka.produce(
        topic,
        [
            *(dead_letter(n, "2053", "GONE", partition=n % 2) for n in range(4)),
            *(dead_letter(n, "2035", "Q", partition=n % 2) for n in range(4, 9)),
            {"value": b"no header", "partition": 0},
        ],
    )
    small_job.step(START)
    small_job.kafka.produce(
        topic,
        [
            *(dead_letter(n, "2053", "ELSEWHERE", partition=0) for n in range(3)),
            dead_letter(9, "2085", "NOWHERE", partition=1),
        ],
    )
    text = new.format(target=small_job.target)
    (tmp_path / "new.rul").write_text(text)

    output = plan(tmp_path / "new.rul", "-c", small_job.config_file, "--json", code=2)
    answer = json.loads(output.stdout)
    assert answer["messages"] == {"remaining": 6, "parked": 4, "backlog": 4, "total": 14}
    assert answer["newly_discarded"] == 9
    assert [change["loss"] for change in answer["changes"]][:2] == ["newly discarded"] * 2

    before = len(small_job.kafka.read(small_job.configuration.outcomes_topic))
    [handler] = small_job.configuration.handlers
    changed = replace(small_job.configuration, handlers=(replace(handler, rules=text),))
    small_job.close()
    other = SmallJob(changed, small_job.target, "", small_job.kafka)
    try:
        other.step(START + 60_000, evaluate_remaining=True)
    finally:
        other.close()
    outcomes = small_job.kafka.read(changed.outcomes_topic)
    done = [
        json.loads(outcome.value)
        for outcome in sorted(outcomes, key=lambda outcome: outcome.timestamp)
    ]
    done = [outcome for outcome in done if outcome["table"] == answer["new"]["hash"][:16]]
    assert len(outcomes) - before == len(done) == 14
    said = Counter[str]()
    for cell in answer["matrix"]:
        said[cell["new"]] += cell["count"]
    assert said == Counter(outcome["action"] or "REMAINS" for outcome in done)
    assert {line["line"]: line["count"] for line in lines_of(answer)} == Counter(
        outcome["rule_line"] for outcome in done if outcome["rule_line"]
    )
    [failing] = answer["failing_now"]
    assert (failing["reason"], failing["count"]) == (2085, 1)

    again = plan(tmp_path / "new.rul", "-c", small_job.config_file, "--old", tmp_path / "new.rul")
    assert again.exit_code == 0, again.output
    if new == NEW:  # the ledger does not have what the other table asks for
        history = ask(
            Question(
                old=small_job.configuration, new=changed, handler="orders", over=[Over.HISTORY]
            )
        )
        assert history.messages == {"history": 14, "total": 14}


def counts(answer: dict[str, Any]) -> dict[str, Any]:
    """What does not depend on which messages come first."""
    names = ("messages", "matrix", "rules", "never_matched", "failing_now", "newly_discarded")
    return {name: answer[name] for name in names}


def lines_of(answer: dict[str, Any]) -> list[dict[str, int]]:
    """To how many messages each rule of the new table applies."""
    return [
        {"line": rule["new_line"], "count": rule["new"]} for rule in answer["rules"] if rule["new"]
    ]


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    """Settings of a job on a broker that is not there."""
    table = "REASON(2053) ACTION(RETRY)\n"
    (tmp_path / "new.rul").write_text(table)
    return write_settings(tmp_path, "orders.dlq", "bills.dlq", rules=table)


def test_what_cannot_be_asked_is_told(settings: Path, tmp_path: Path) -> None:
    new = tmp_path / "new.rul"
    result = plan(new, "-c", settings)
    assert (result.exit_code, "has 2 handlers" in result.output or "have 2" in result.output) == (
        2,
        True,
    )
    result = plan(new, "-c", settings, "--handler", "orders", "--since", "1d", code=2)
    assert "--over history" in result.output
    result = plan(new, "-c", settings, "--html", "report.html", code=2)
    assert "--html was removed; 0.1.0 was the last version with it" in result.output
    result = plan(new, "-c", settings, "--handler", "orders", code=1)
    assert "cannot be reached" in result.output
    new.write_text("DIALECT(KAFKA)\nERRCLASS(*Timeout*) ACTION(RETRY)\n")
    result = plan(new, "-c", settings, "--handler", "orders", "--over", "history", code=2)
    assert "the ledger does not have ERRCLASS" in result.output
    new.write_text("REASON(2053) ACTION(\n")
    result = plan(new, "-c", settings, "--handler", "orders", code=1)


def test_spark_and_the_embedded_engine_read_the_same_history(
    settings: Path, tmp_path: Path
) -> None:
    table = LedgerTable.create(read_settings(settings).job.ledger.path)
    rows = [_known(number) for number in range(200)]
    table.append([arrow_of(rows[:120]), arrow_of(rows[120:])])
    new = tmp_path / "new.rul"
    new.write_text("REASON(2053) ACTION(DISCARD)\nDESTQ('A*') ACTION(FWD) FWDQ('B')\n")
    asked = ["plan", str(new), "-c", str(settings), "--handler", "orders", "--over", "history"]
    asked += ["--since", "2026-03-02T10:00:00", "--json"]
    embedded = counts(json.loads(redrive(*asked, "--no-spark", code=2).stdout))
    # In a process of its own: it ends its Spark.
    by_spark = python("-m", "redrive", *asked, "--spark", code=2)
    assert counts(json.loads(by_spark.stdout)) == embedded
    assert embedded["messages"]["history"] == 100


def test_history_knows_scheme_root_class_group_and_topic(settings: Path, tmp_path: Path) -> None:
    failure = {"form": "spring-dlt", "consumer_group": "billing", "error_class": "java.io.Timeout"}
    connect = {"form": "connect", "consumer_group": "connect-billing", "error_class": "a.B"}
    rows = [_known(number, **failure) for number in range(8)]
    rows += [_known(number, **connect) for number in range(8, 12)]
    LedgerTable.create(read_settings(settings).job.ledger.path).append([arrow_of(rows)])
    new = tmp_path / "new.rul"
    new.write_text(
        "DIALECT(KAFKA)\n"
        "TOPIC(C) ROOTCLASS('*.Timeout') ACTION(DISCARD)\n"
        "SCHEME(spring-dlt) GROUP(billing) ACTION(FWD) FWDT('&TOPIC.&GROUP')\n"
        "GROUP(connect-billing) ACTION(IGNORE)\n"
        "TOPIC(C) ACTION(RETRY) TO(GROUP)\n"
    )
    asked = ["plan", str(new), "-c", str(settings), "--handler", "orders", "--over", "history"]
    answer = json.loads(redrive(*asked, "--no-spark", "--json", code=2).stdout)
    assert {line["line"]: line["count"] for line in lines_of(answer)} == {2: 2, 3: 6, 5: 1}
    targets = {row["target"]: row["new"] for row in answer["targets"] if row["new"]}
    assert targets["A'B.billing"] == targets["A\\.billing"] == 2
    assert targets["C.connect-billing.retry"] == 1


def _known(number: int, **more: str) -> Row:
    """The first outcome of a dead letter, every half second from 09:59:10 on."""
    place, time = f"orders.dlq:0:{number}", 1_772_445_550_000 + 500 * number
    record = {
        "outcome": place, "message": place, "origin": place, "topic": "orders.dlq", "partition": 0,
        "offset": number, "handler": "orders", "result": "remains", "form": "mqdlh",
        "time": time,
        "fields": {
            "REASON": (2053, 2085, 2051)[number % 3],
            "DESTQ": (None, "A'B", "A\\", "C")[number % 4],
        },
        **more,
    }  # fmt: skip
    return row_of(orjson.dumps(record), time, 0, number)
