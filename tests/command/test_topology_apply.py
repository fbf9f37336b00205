"""``redrive topology apply`` on a real broker, seen with an independent client."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from click.testing import Result
from kafka import KafkaAdminClient
from kafka.admin import ConfigResource, ConfigResourceType
from tests.commands import redrive
from tests.conftest import KafkaClient


@pytest.fixture
def manager(kafka: KafkaClient, folder: Path) -> str:
    """A queue manager of its own, defined in the working directory."""
    name = kafka.queue_manager()
    (folder / f"{name}.mqsc").write_text(
        "DEFINE QLOCAL(DLQ) MAXMSGL(2000000)\nALTER QMGR DEADQ(DLQ)\n"
    )
    return name


@pytest.fixture
def run(bootstrap_servers: str, manager: str) -> Callable[..., Result]:
    """``redrive topology apply`` for that manager."""

    where = ("--bootstrap-server", bootstrap_servers, "--topology", ".")
    return partial(redrive, "topology", "apply", *where)


def ours(admin: KafkaAdminClient, manager: str) -> dict[str, int]:
    """Topics of the manager, with their numbers of partitions."""
    return {
        topic.get("name") or topic["topic"]: len(topic["partitions"])
        for topic in admin.describe_topics()
        if (topic.get("name") or topic["topic"]).startswith(f"{manager}--")
    }


def test_nothing_is_created_unasked(
    run: Callable[..., Result], admin: KafkaAdminClient, manager: str
) -> None:
    """Without a terminal nobody can be asked: --yes has to be said."""
    result = run(code=2)
    assert "--yes" in result.stderr
    assert ours(admin, manager) == {}


def test_what_is_missing_is_created_once(
    run: Callable[..., Result], admin: KafkaAdminClient, manager: str
) -> None:
    first = run("--yes", "--partitions", "2", code=0)
    assert first.stdout.endswith("created 2 topics\n")
    assert ours(admin, manager) == {f"{manager}--redrive-put": 2, f"{manager}--DLQ": 2}
    resource = ConfigResource(ConfigResourceType.TOPIC, f"{manager}--DLQ")
    described = json.dumps(str(admin.describe_configs([resource])))
    assert str(2_000_000 + 65_536) in described
    second = run("--yes", code=0)
    assert second.stdout.endswith("nothing to do\n")
    assert ours(admin, manager) == {f"{manager}--redrive-put": 2, f"{manager}--DLQ": 2}


def test_the_plan_as_json_says_what_was_created(run: Callable[..., Result], manager: str) -> None:
    document = json.loads(run("--yes", "--json").stdout)
    assert document["created"] == [f"{manager}--redrive-put", f"{manager}--DLQ"]
    assert {topic["state"] for topic in document["topics"]} == {"missing"}
    document = json.loads(run("--json").stdout)
    assert document["created"] == []
    assert {topic["state"] for topic in document["topics"]} == {"exists"}


def test_a_binding_to_a_missing_topic_stops_everything(
    run: Callable[..., Result], admin: KafkaAdminClient, manager: str
) -> None:
    Path("bindings.yaml").write_text(
        f"kind: bindings\nqueue_managers: {{{manager}: {{queues: {{DLQ: {{topic: nowhere}}}}}}}}\n"
    )
    result = run("--yes", code=1)
    assert "bindings.yaml:2" in result.stderr
    assert "nowhere" in result.stderr
    assert ours(admin, manager) == {}


def test_what_the_cluster_refuses_is_found_before_anything_is_created(
    run: Callable[..., Result], admin: KafkaAdminClient, manager: str
) -> None:
    result = run("--yes", "--replication-factor", "3", code=1)
    assert "(0 were created)" in result.stderr
    assert ours(admin, manager) == {}


def test_a_bound_topic_is_listed_with_what_differs(
    kafka: KafkaClient, run: Callable[..., Result], manager: str
) -> None:
    topic = kafka.topic("lost", config={"retention.ms": "1000"})
    Path("bindings.yaml").write_text(
        f"kind: bindings\nqueue_managers: {{{manager}: {{queues: {{DLQ: {{topic: {topic}}}}}}}}}\n"
    )
    result = run("--dry-run", code=0)
    assert "retention.ms is 1000 instead of -1" in result.stdout


def test_many_topics_are_created_in_several_requests(
    run: Callable[..., Result],
    admin: KafkaAdminClient,
    manager: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("redrive.kafka.administration._PARTITIONS_AT_ONCE", 3)
    with Path(f"{manager}.mqsc").open("a") as script:
        script.writelines(f"DEFINE QLOCAL(Q{number})\n" for number in range(5))
    result = run("--yes", code=0)
    assert result.stderr.splitlines() == [f"{done} of 7 topics created" for done in (3, 6, 7)]
    assert len(ours(admin, manager)) == 7


def test_of_a_large_topology_numbers_are_told(folder: Path) -> None:
    for number in range(60):
        (folder / f"M{number}.mqsc").write_text("DEF QL(A)\nDEF QA(B) TARGET(A)\n")

    def rows(*words: str) -> list[str]:
        output = redrive("topology", "show", "--topology", ".", *words, code=0).output
        return [" ".join(line.split()) for line in output.splitlines()]

    shown = rows()
    assert shown[0].startswith("60 queue managers, 120 queues")
    assert "queue managers, mq 60" in shown
    assert "QALIAS 60" in shown
    assert len(shown) < 40
    assert "--queue-manager" in shown[-1]
    assert "M7 B QALIAS A@M7" in rows("--queue-manager", "M7")


def test_a_dry_run_shows_the_plan_only(
    run: Callable[..., Result], admin: KafkaAdminClient, manager: str
) -> None:
    result = run("--dry-run", code=0)
    assert f"{manager}--DLQ" in result.stdout
    assert "retention.ms=-1" in result.stdout
    assert ours(admin, manager) == {}
