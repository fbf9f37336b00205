"""What ``redrive run --dry-run`` tells is what the job then does, and it does nothing itself.

``redrive explain --topic`` tells the same of any table.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient
from tests.commands import redrive
from tests.configurations import write_settings
from tests.outcomes.small_job import SmallJob, dead_letter
from tests.what_if.test_tally import NEW, answer_of

from redrive.what_if.answer import document_of_table
from redrive.what_if.text import lines_of_table

dry_run = partial(redrive, "run", "--dry-run")

explain = partial(redrive, "explain")


def test_what_is_told_is_what_the_job_then_does(small_job: SmallJob, tmp_path: Path) -> None:
    topic = small_job.identity.topic
    empty = dry_run("-c", small_job.config_file, code=0)
    assert "no messages are waiting" in empty.stdout
    small_job.kafka.produce(
        topic,
        [
            *(dead_letter(n, "2053", "GONE", partition=n % 2) for n in range(4)),
            *(dead_letter(n, "2085", "Q", partition=n % 2) for n in range(4, 9)),
            dead_letter(9, "2051", partition=0),
            {"value": b"no header", "partition": 0},
        ],
    )
    before = _everything(small_job.kafka.admin)
    answer = json.loads(dry_run("-c", small_job.config_file, "--json").stdout)["handlers"][0]
    shown = dry_run("-c", small_job.config_file)
    (tmp_path / "same.rul").write_text(small_job.configuration.handlers[0].rules)
    (tmp_path / "other.rul").write_text("DIALECT(KAFKA)\nACTION(DISCARD)\n")
    here = ("-c", small_job.config_file, "--topic", topic, "--json")
    same, other = (
        json.loads(explain(tmp_path / name, *here).stdout)["handlers"][0]
        for name in ("same.rul", "other.rul")
    )
    servers = small_job.configuration.connection.bootstrap_servers
    unknown = explain(tmp_path / "other.rul", "--topic", topic, "--bootstrap-server", servers)
    assert _everything(small_job.kafka.admin) == before
    assert small_job.committed() == {}
    assert same["actions"] == answer["actions"]
    assert same["targets"] == answer["targets"]
    assert other["actions"] == {"DISCARD": 10, "REMAINS": 1}
    assert "would be: 10 thrown away, 1 left" in unknown.stdout, unknown.output

    assert answer["messages"] == {"remaining": 0, "parked": 0, "backlog": 11, "total": 11}
    assert answer["actions"] == {"DISCARD": 1, "RETRY": 4, "FWD": 5, "REMAINS": 1}
    assert {"action": "FWD", "target": small_job.target, "count": 5} in answer["targets"]
    [failing] = answer["failing_now"]
    assert (failing["reason"], failing["target"], failing["count"]) == (2085, "GONE", 4)
    assert "4 retried, 5 forwarded" in shown.stdout
    assert "nothing was put, and all positions are unchanged" in shown.stdout

    small_job.step(int(time.time() * 1000))
    written = small_job.kafka.read(small_job.configuration.outcomes_topic)
    done = [json.loads(record.value) for record in written]
    assert answer["actions"] == Counter(outcome["action"] or "REMAINS" for outcome in done)
    counted = {rule["line"]: rule["count"] for rule in answer["rules"]}
    assert counted == Counter(outcome["rule_line"] for outcome in done if outcome["rule_line"])

    later = json.loads(dry_run("-c", small_job.config_file, "--json").stdout)["handlers"][0]
    assert later["messages"] == {"remaining": 1, "parked": 4, "backlog": 0, "total": 5}
    assert later["actions"] == {"RETRY": 4, "REMAINS": 1}


def _everything(admin: KafkaAdminClient) -> Any:
    return sorted(admin.list_topics())


def test_one_table_is_told_by_rule_and_target() -> None:
    rows = [(2053, "ORDERS")] * 3 + [(2035, "ORDERS")] + [(2085, "X")] * 2
    answer = answer_of(rows, old=NEW, new=NEW)
    text = "\n".join(lines_of_table(answer))
    assert "would be: 3 retried, 1 forwarded, 2 left, as no rule applies" in text
    assert "   -         2  no rule applies" in text
    assert "rule that matches none of them" in text
    document = document_of_table(answer)
    assert document["actions"] == {"RETRY": 3, "FWD": 1, "REMAINS": 2}
    assert sum(rule["count"] for rule in document["rules"]) == 4
    assert [rule["line"] for rule in document["never_matched"]] == [2, 5, 6]


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    """Settings of a job on a broker that is not there."""
    return write_settings(tmp_path, "orders.dlq", rules="REASON(2053) ACTION(RETRY)\n")


def test_what_cannot_be_tried_is_an_error(settings: Path) -> None:
    result = dry_run("-c", settings)
    assert (result.exit_code, "no broker can be reached" in result.output) == (1, True), (
        result.output
    )
    settings.with_name("orders.rul").write_text("REASON(2053) ACTION(\n")
    dry_run("-c", settings, code=1)
    result = redrive("run", "-c", settings, "--json", code=2)
    assert "--json is for --dry-run" in result.output


def test_what_cannot_be_explained_of_a_topic_is_an_error(settings: Path) -> None:
    table = settings.with_name("orders.rul")
    output = explain(table, "--topic", "orders.dlp", "-c", settings, code=2)
    assert "no handler for orders.dlp" in output.output
    output = explain(table, "--topic", "orders.dlq", "-c", settings, "--field", "REASON=1", code=2)
    output = explain(table, "--topic", "orders.dlq", "-c", settings)
    assert (output.exit_code, "no broker can be reached" in output.output) == (1, True)
    (settings.parent / "new.rul").write_text("REASON(\n")
    output = explain(settings.parent / "new.rul", "--topic", "q", "--bootstrap-server", "h:1")
    assert (output.exit_code, "new.rul:1" in output.output) == (1, True), output.output


def test_a_topic_that_is_not_there_is_told(small_job: SmallJob, tmp_path: Path) -> None:
    topic = small_job.identity.topic
    config = Path(small_job.config_file)
    other = tmp_path / "other.toml"
    other.write_text(config.read_text().replace(f'"{topic}"', f'"{topic}x"'))
    result = dry_run("-c", other, code=1)
    assert f"there is no topic {topic}x" in result.output
    assert topic in result.output
