"""``redrive put`` and ``redrive browse`` on a real broker, seen with an independent client."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import NewTopic
from tests.commands import json_of, redrive
from tests.configurations import write_settings
from tests.conftest import KafkaClient

from redrive.checkpoints.control import ControlTopic
from redrive.engine.message import NO_ATTEMPTS, Message
from redrive.engine.names import remaining_topic
from redrive.engine.sources import remaining
from redrive.kafka.cluster import Cluster
from redrive.messages import Headers, TopicPartition
from redrive.settings import read_settings

SCRIPT = """\
DEFINE QLOCAL(ORDERS)
DEFINE QLOCAL(DLQ)
DEFINE QLOCAL({0}B) USAGE(XMITQ)
DEFINE QALIAS(OLD) TARGET(ORDERS)
DEFINE QREMOTE(FAR) RNAME(PAY) RQMNAME({0}B)
DEFINE QALIAS(BROKEN) TARGET(NOWHERE)
DEFINE CHANNEL(TO.B) CHLTYPE(SDR) CONNAME('b') XMITQ({0}B)
ALTER QMGR DEADQ(DLQ)
"""
SECOND = "DEFINE QLOCAL(PAY)\nDEFINE CHANNEL(TO.B) CHLTYPE(RCVR)\n"


@pytest.fixture
def manager(kafka: KafkaClient, folder: Path) -> str:
    """A queue manager of its own with its topics, and a second one that it knows."""
    name = kafka.queue_manager()
    (folder / f"{name}.mqsc").write_text(SCRIPT.format(name))
    (folder / f"{name}B.mqsc").write_text(SECOND)
    files = f'[topology]\nfiles = ["{name}.mqsc", "{name}B.mqsc"]\n'
    write_settings(folder, application=f"app{name}", servers=kafka.bootstrap_servers, more=files)
    kafka.create(*(f"{name}--{topic}" for topic in ("redrive-put", "ORDERS", "DLQ", f"{name}B")))
    return name


browsed = partial(json_of, "browse")
"""The messages that ``browse --json`` shows."""


# put


def test_a_message_is_on_the_intake_as_an_application_writes_it(
    kafka: KafkaClient, manager: str
) -> None:
    words = "--key k --persistent --expiry 600 --bind mine --property colour=blue=ish"
    words += " --property JMS_IBM_MQMD_MsgType=MQMT_REQUEST"
    result = redrive("put", "PAY@OTHER", "--at", manager, "--data", "two chairs", *words.split())
    assert result.exit_code == 0, result.output
    (record,) = kafka.read(f"{manager}--redrive-put")
    assert result.stdout == f"{record.topic}:0:{record.offset}\n"
    assert (record.key, record.value) == (b"k", b"two chairs")
    context = ("UserIdentifier", "PutApplType", "PutApplName")
    fields = {name.removeprefix("JMS_IBM_MQMD_"): value for name, value in record.headers}
    assert fields["PutApplName"] == b"redrive put"
    assert all(fields[name] for name in context)
    assert [pair for pair in record.headers if not pair[0].endswith(context)] == [
        ("redrive.oqm", b"OTHER"),
        ("redrive.oq", b"PAY"),
        ("redrive.bind", b"mine"),
        ("JMS_IBM_MQMD_Persistence", b"1"),
        ("JMS_IBM_MQMD_Priority", b"-1"),
        ("JMS_IBM_MQMD_Expiry", b"600"),
        ("colour", b"blue=ish"),
        ("JMS_IBM_MQMD_MsgType", b"1"),
    ]


def test_a_put_without_options_leaves_everything_to_the_queue(
    kafka: KafkaClient, manager: str
) -> None:
    """ObjectQMgrName is blank, there is no key; persistence and priority are as the queue says."""
    redrive("put", "ORDERS", "--at", manager, typed="from a pipe", code=0)
    (record,) = kafka.read(f"{manager}--redrive-put")
    assert (record.key, record.value) == (None, b"from a pipe")
    assert list(record.headers)[:3] == [
        ("redrive.oq", b"ORDERS"),
        ("JMS_IBM_MQMD_Persistence", b"2"),
        ("JMS_IBM_MQMD_Priority", b"-1"),
    ]


def test_a_file_is_put_byte_by_byte_as_often_as_wanted(kafka: KafkaClient, manager: str) -> None:
    Path("body").write_bytes(b"\xff\x00\r\n")
    result = redrive("put", "ORDERS", "--at", manager, "--file", "body", "--count", "3")
    records = kafka.read(f"{manager}--redrive-put")
    assert [record.value for record in records] == [b"\xff\x00\r\n"] * 3
    assert result.stdout.split() == [f"{record.topic}:0:{record.offset}" for record in records]


def test_a_missing_intake_says_what_creates_it(manager: str, admin: KafkaAdminClient) -> None:
    result = redrive("put", "PAY", "--at", f"{manager}B", "--data", "x", code=1)
    assert f"there is no topic {manager}B--redrive-put" in result.stderr
    assert "redrive topology apply" in result.stderr
    assert f"{manager}B--redrive-put" not in {
        topic.get("name") or topic["topic"] for topic in admin.describe_topics()
    }


def test_a_body_that_the_intake_refuses_is_an_error(manager: str) -> None:
    Path("body").write_bytes(b"x" * 2_000_000)
    result = redrive("put", "ORDERS", "--at", manager, "--file", "body", code=1)
    assert "0 of 1 messages are on" in result.stderr
    assert "MAXMSGL" in result.stderr


# browse


@pytest.mark.parametrize("start", ["waiting", "earliest", "latest"])
def test_a_partition_without_a_leader_is_left_out_and_named(
    kafka: KafkaClient, manager: str, without_leader: Callable[..., None], start: str
) -> None:
    topic = f"{manager}--ORDERS"
    kafka.admin.create_partitions({topic: 2})
    kafka.produce(topic, [{"value": b"here", "partition": 0}])
    without_leader(f"{topic}:1")
    for place in ([manager, "ORDERS"], [topic]):
        result = redrive("browse", *place, "--from", start, "--json")
        assert [load["body"] for load in json.loads(result.stdout)] == ["here"]
        assert f"without a leader: {topic}:1" in result.stderr


def test_what_waits_is_shown_by_priority_then_as_it_came(kafka: KafkaClient, manager: str) -> None:
    """As MQGET would take it; from either end of the topic it is shown by time."""
    priorities = [None, b"3", b"9", b"3", None]
    messages = [
        {
            "value": b"%d" % number,
            "headers": [] if priority is None else [("JMS_IBM_MQMD_Priority", priority)],
        }
        for number, priority in enumerate(priorities)
    ]
    kafka.produce(f"{manager}--ORDERS", messages)
    assert [message["body"] for message in browsed(manager, "ORDERS")] == ["2", "1", "3", "0", "4"]
    assert [message["body"] for message in browsed(manager, "ORDERS", "--count", "2")] == ["2", "1"]
    for start in ("earliest", "latest"):
        shown = browsed(manager, "ORDERS", "--from", start)
        assert [message["body"] for message in shown] == ["0", "1", "2", "3", "4"]


def test_a_long_body_is_cut_with_a_note_but_not_in_json(kafka: KafkaClient, manager: str) -> None:
    kafka.produce(f"{manager}--ORDERS", [{"value": b"x" * 5000}])
    text = redrive("browse", manager, "ORDERS").stdout
    assert "body (5000 bytes)" in text
    assert "cut; --json shows all" in text
    assert len(text) < 1000
    (message,) = browsed(manager, "ORDERS")
    assert message["body"] == "x" * 5000


def test_a_transmission_queue_shows_what_the_job_has_not_taken(
    kafka: KafkaClient, manager: str
) -> None:
    """What the application's group has committed has left; --from earliest shows it still."""
    topic = f"{manager}--{manager}B"
    kafka.produce(topic, [{"value": b"gone"}, {"value": b"waits"}])
    kafka.commit(f"app{manager}", topic, 1)
    name = f"{manager}B"
    assert [message["body"] for message in browsed(manager, name)] == ["waits"]
    assert len(browsed(manager, name, "--from", "earliest")) == 2


def test_a_handled_queue_shows_what_is_left_on_it(
    kafka: KafkaClient, manager: str, folder: Path
) -> None:
    """As in IBM MQ: what is unread, parked or remains; --all shows what was handled too."""
    files = f'[topology]\nfiles = ["{manager}.mqsc", "{manager}B.mqsc"]\n'
    servers, application = kafka.bootstrap_servers, f"app{manager}"
    write_settings(folder, "DLQ", application=application, servers=servers, more=files)
    text = (folder / "redrive.toml").read_text()
    (folder / "redrive.toml").write_text(
        text.replace('queue = "DLQ"', f'queue = "DLQ"\nqueue_manager = "{manager}"')
    )
    topic = f"{manager}--DLQ"
    settings = read_settings(folder / "redrive.toml").job
    identity = settings.handlers[0].identity
    kafka.create(identity.remaining_topic, identity.retry_topic)
    kafka.produce(topic, [{"value": b"forwarded"}, {"value": b"unread"}])
    kafka.produce(identity.retry_topic, [{"value": b"tried again"}, {"value": b"parked"}])
    kept = [("a", b"placed"), ("b", b"remains"), ("a", None)]
    copies = [{"key": key.encode(), "value": value} for key, value in kept]
    kafka.produce(identity.remaining_topic, copies)
    kafka.commit(settings.application, topic, 1)
    kafka.commit(settings.application, identity.retry_topic, 1)
    shown = browsed(manager, "DLQ")
    assert {message["body"] for message in shown} == {"remains", "unread", "parked"}
    assert [message["body"] for message in shown if message["is_remaining"]] == ["remains"]
    assert [message["body"] for message in shown if message["is_retried"]] == ["parked"]
    assert "no rule of the handler placed it" in redrive("browse", manager, "DLQ").stdout
    assert {message["body"] for message in browsed(manager, "DLQ", "--all")} == {
        "forwarded",
        "unread",
    }


# topology show


def test_the_topology_shows_messages_and_not_offsets(kafka: KafkaClient, manager: str) -> None:
    orders, waiting = f"{manager}--ORDERS", f"{manager}--{manager}B"
    for topic in (orders, waiting):
        kafka.produce(topic, [{"value": b"x"}] * 2)
        with ControlTopic(Cluster(kafka.connection), topic) as transaction:
            transaction.write({"x": {}})  # and the format of the topic
    kafka.commit(f"app{manager}", waiting, 1)
    document = json_of("topology", "show")
    assert document["depths"][orders] == {"messages": 4, "is_exact": True}
    assert document["depths"][waiting] == {"messages": 3, "is_exact": True}
    lines = [line.split() for line in redrive("topology", "show").stdout.splitlines()]
    assert [manager, "ORDERS", "QLOCAL", "4", "5000", "4194304", orders] in lines
    assert [manager, "DLQ", "QLOCAL", "0", "5000", "4194304", f"{manager}--DLQ"] in lines


# browse --remaining


@pytest.fixture
def undelivered(manager: str, admin: KafkaAdminClient, bootstrap_servers: str) -> str:
    """Three copies as the job keeps them: one of the intake, one of a channel, one taken away."""
    sources = {"intake": f"{manager}--redrive-put", "channel": f"{manager}--{manager}B"}
    topics = {name: remaining_topic(f"app{manager}", topic) for name, topic in sources.items()}
    admin.create_topics([NewTopic(topic, 1, 1) for topic in topics.values()])
    producer = KafkaProducer(bootstrap_servers=bootstrap_servers)

    def keep(source: str, number: int, queue: str, queue_manager: str) -> None:
        names: Headers = [("redrive.oqm", queue_manager.encode()), ("redrive.oq", queue.encode())]
        origin = f"{sources[source]}:0:{number}"
        record = Message(b"k", b"two chairs", names, number, origin, origin, 1)
        place, now = TopicPartition(topics[source], 0), 1000 + number
        copy = remaining(record, place, table="0" * 16, attempts=NO_ATTEMPTS, now=now)
        producer.send(
            copy.topic, copy.value, copy.key, copy.headers, timestamp_ms=copy.timestamp, partition=0
        )

    keep("channel", 7, "PAY", f"{manager}B")
    keep("intake", 8, "NOWHERE", "")
    keep("intake", 9, "GONE", "")
    origin = f"{sources['intake']}:0:9".encode()
    producer.send(topics["intake"], None, origin, partition=0)
    producer.close()
    return manager


def test_what_could_be_put_nowhere_is_shown_with_where_it_waits(undelivered: str) -> None:
    waiting = browsed(undelivered, "--remaining")
    assert [(message["waits_on"], message["for"]) for message in waiting] == [
        (f"{undelivered}B@{undelivered}", f"PAY@{undelivered}B"),
        (f"the intake of {undelivered}", "NOWHERE"),
    ]
    assert [message["body"] for message in waiting] == ["two chairs"] * 2
    assert len(browsed(undelivered, f"{undelivered}B", "--remaining")) == 1
    assert browsed(f"{undelivered}B", "--remaining") == []
    shown = redrive("browse", undelivered, "--remaining").stdout
    assert f"2 undeliverable messages of {undelivered}" in shown
    assert f"waits on the intake of {undelivered}, for NOWHERE:" in shown


def test_a_channel_shows_what_its_receiver_could_put_nowhere(undelivered: str) -> None:
    queue = f"{undelivered}B"
    status = redrive("channel", "status", undelivered, "--json")
    assert [(load["remaining"], load["waiting"]) for load in json.loads(status.stdout)] == [(1, 1)]
    (head,) = browsed(undelivered, queue)
    assert (head["body"], head["is_undeliverable"]) == ("two chairs", True)
    assert "no queue accepted it" in redrive("browse", undelivered, queue).stdout
    depths = json_of("topology", "show")["depths"]
    assert depths[f"{undelivered}--{queue}"] == {"messages": 1, "is_exact": True}
    shown = redrive("channel", "status", undelivered).stdout
    assert f"redrive browse {undelivered} --remaining shows" in shown


def test_an_expired_message_is_not_shown(kafka: KafkaClient, manager: str) -> None:
    expiries = {b"a": b"1", b"b": b"9999", b"c": None}
    kafka.produce(
        f"{manager}--ORDERS",
        [
            {"value": body, "headers": [("JMS_IBM_MQMD_Expiry", expiry)] if expiry else []}
            for body, expiry in expiries.items()
        ],
    )
    time.sleep(0.2)
    assert [message["body"] for message in browsed(manager, "ORDERS")] == ["b", "c"]
    assert len(browsed(manager, "ORDERS", "--count", "1")) == 1
