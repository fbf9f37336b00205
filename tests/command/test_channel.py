"""``redrive channel``, ``queue``, ``trigger``: what operators decide is in the control topic."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from kafka import KafkaConsumer, TopicPartition
from tests.commands import json_of, redrive
from tests.configurations import write_settings
from tests.conftest import KafkaClient, eventually

from redrive.checkpoints.control import ControlTopic
from redrive.checkpoints.states import StatesWriter
from redrive.engine.names import message_retry_topic, remaining_topic, tables_topic
from redrive.kafka.cluster import Cluster
from redrive.topology.names import transmission_topic

Entries: TypeAlias = Callable[[str], dict[str, Any]]

SCRIPT = """\
DEFINE QLOCAL(ORDERS)
DEFINE QALIAS(OLD) TARGET(ORDERS)
DEFINE QLOCAL({0}B) USAGE(XMITQ)
DEFINE QLOCAL({0}C) USAGE(XMITQ)
DEFINE CHANNEL(TO.B) CHLTYPE(SDR) CONNAME('b') XMITQ({0}B)
DEFINE CHANNEL(TO.C) CHLTYPE(SDR) CONNAME('c') XMITQ({0}C)
"""
MOONS = """\
kind: mqe
queue_managers:
  - name: {0}MOON
    connections:
      - {{kind: direct, name: {0}SUN, adapter: Http, address: sun, port: 80}}
    queues:
      - {{kind: remote, name: ORDERS, queue_manager: {0}SUN, mode: async}}
      - {{kind: home_server, name: HOME, queue_manager: {0}SUN}}
      - {{kind: store_and_forward, name: ORDERS, queue_manager: {0}MARS, targets: [{0}MARS]}}
  - name: {0}SUN
    queues:
      - {{kind: local, name: ORDERS}}
      - {{kind: store_and_forward, name: HOME, queue_manager: {0}SUN, targets: [{0}MOON]}}
"""


@pytest.fixture
def name(kafka: KafkaClient, folder: Path) -> str:
    """A queue manager of its own with channels to two others, and two of MQ Everyplace."""
    manager = kafka.queue_manager()
    (folder / f"{manager}.mqsc").write_text(SCRIPT.format(manager))
    for other in "BC":
        script = f"DEFINE QLOCAL(Q)\nDEFINE CHANNEL(TO.{other}) CHLTYPE(RCVR)\n"
        (folder / f"{manager}{other}.mqsc").write_text(script)
    (folder / "moons.yaml").write_text(MOONS.format(manager))
    files = '[topology]\nfiles = ["."]\n'
    write_settings(folder, application=f"app{manager}", servers=kafka.bootstrap_servers, more=files)
    return manager


@pytest.fixture
def entries(kafka: KafkaClient) -> Entries:
    """The entries of what operators decided, as an independent reader finds them."""

    def end(topic: str, isolation_level: str) -> int:
        consumer = KafkaConsumer(
            bootstrap_servers=kafka.bootstrap_servers, isolation_level=isolation_level
        )
        end: int = consumer.end_offsets([TopicPartition(topic, 0)])[TopicPartition(topic, 0)]
        consumer.close()
        return end

    def read(name: str) -> dict[str, Any]:
        topic = tables_topic(f"app{name}")
        # A commit returns before its marker is written, and readers see it then.
        eventually(
            lambda: end(topic, "read_committed") == end(topic, "read_uncommitted"), "markers"
        )
        records = kafka.read(topic)
        return {record.key.decode(): json.loads(record.value) for record in records}

    return read


# channel


def test_a_channel_is_stopped_and_started(name: str, entries: Entries) -> None:
    stopped = redrive("channel", "stop", name, "TO.B")
    assert stopped.stdout == f"TO.B of {name} is stopped\n"
    assert entries(name) == {f"channel/{name}/TO.B": {"running": False}}
    redrive("channel", "start", name, "TO.B", code=0)
    assert entries(name) == {f"channel/{name}/TO.B": {"running": True}}


def test_without_a_name_all_channels_of_the_manager_are_meant(name: str, entries: Entries) -> None:
    result = redrive("channel", "stop", name)
    assert result.stdout.splitlines() == [
        f"TO.B of {name} is stopped",
        f"TO.C of {name} is stopped",
    ]
    assert set(entries(name)) == {f"channel/{name}/TO.B", f"channel/{name}/TO.C"}


def test_status_shows_state_and_what_waits(kafka: KafkaClient, name: str) -> None:
    topic = f"{name}--{name}B"
    kafka.create(topic)
    now = int(time.time() * 1000)
    ages = (9_000, 300, 200)
    kafka.produce(topic, [{"value": b"x", "timestamp_ms": now - age * 1000} for age in ages])
    kafka.commit(f"app{name}", topic, 1)
    redrive("channel", "stop", name, "TO.B", code=0)
    result = redrive("channel", "status", name, "--json", code=0)
    first, second = json.loads(result.stdout)
    assert 300 <= first.pop("oldest_seconds") < 400
    assert first == {
        "queue_manager": name,
        "channel": "TO.B",
        "state": "stopped",
        "to": f"{name}B",
        "queue": f"{name}B",
        "topic": topic,
        "waiting": 2,
        "is_exact": True,
        "retried": 0,
        "remaining": 0,
        "because": "",
    }
    assert (second["state"], second["waiting"]) == ("running", None)
    shown = redrive("channel", "status", name).stdout
    assert "5 min" in shown
    assert "redrive topology apply" in shown


def test_a_channel_is_paused_while_its_receiver_tries_again(kafka: KafkaClient, name: str) -> None:
    """MQ's word for it (CHSTATUS, STATUS); what waits for the next try is counted by itself."""
    topic = f"{name}--{name}B"
    retries = message_retry_topic(f"app{name}", topic)
    kafka.create(topic, retries)
    kafka.produce(topic, [{"value": b"behind"}] * 2)
    kafka.produce(retries, [{"value": b"tried"}])
    first, second = json_of("channel", "status", name)
    assert (first["state"], first["waiting"], first["retried"]) == ("paused", 2, 1)
    assert (second["state"], second["retried"]) == ("running", 0)
    redrive("channel", "stop", name, "TO.B", code=0)
    (first, _) = json_of("channel", "status", name)
    assert (first["state"], first["retried"]) == ("stopped", 1)


def test_what_a_receiver_tries_again_is_on_its_transmission_queue(
    kafka: KafkaClient, name: str
) -> None:
    """As in IBM MQ: browse shows it there until the job took it, and topology show counts it."""
    topic = f"{name}--{name}B"
    retries = message_retry_topic(f"app{name}", topic)
    kafka.create(topic, retries)
    kafka.produce(topic, [{"value": b"taken"}, {"value": b"behind"}])
    kafka.produce(retries, [{"value": b"put at last"}, {"value": b"tried"}])
    kafka.commit(f"app{name}", topic, 1)
    kafka.commit(f"app{name}", retries, 1)
    browsed = json_of("browse", name, f"{name}B")
    shown = {message["body"]: message["is_retried"] for message in browsed}
    assert shown == {"tried": True, "behind": False}
    assert "the receiver retries it" in redrive("browse", name, f"{name}B").stdout
    depths = json_of("topology", "show")["depths"]
    assert depths == {topic: {"messages": 2, "is_exact": True}}
    remaining = redrive("browse", name, "--remaining")
    assert f"retries 1 of {name}B@{name}: redrive browse {name} {name}B" in remaining.stderr
    assert "0 undeliverable messages" in remaining.stdout


def test_the_end_of_a_transaction_is_no_message(kafka: KafkaClient, name: str) -> None:
    topic = f"{name}--{name}B"
    kafka.create(topic)
    with ControlTopic(Cluster(kafka.connection), topic) as control:
        control.write({"x": {}})  # and the format of the topic
    kafka.commit(f"app{name}", topic, 2)
    (first, _) = json_of("channel", "status", name)
    assert (first["waiting"], first["oldest_seconds"]) == (0, None)


@pytest.mark.parametrize(
    ("retries", "state"), [("", "retrying"), ("SHORTRTY(0) LONGRTY(0)", "stopped")]
)
def test_a_channel_without_a_receiver_tries_again(name: str, retries: str, state: str) -> None:
    """As MQ's (CHSTATUS, STATUS): with the reason, until an operator stops it or none may try."""
    script = Path(f"{name}.mqsc")
    lost = (
        f"DEF QL(LOST) USAGE(XMITQ)\nDEF CHL(TO.D) CHLTYPE(SDR) CONNAME('d') XMITQ(LOST) {retries}"
    )
    script.write_text(script.read_text() + lost)
    because = f"no queue manager has a receiver for channel TO.D of {name}; SHORTRTY("
    status = redrive("channel", "status", name, "TO.D")
    assert f"TO.D is {state}: {because}" in status.stdout
    assert f"TO.D of {name} is {state}: {because}" in redrive("topology", "show").stdout
    redrive("channel", "stop", name, "TO.D", code=0)
    (stopped,) = json_of("channel", "status", name, "TO.D")
    assert (stopped["state"], stopped["because"]) == ("stopped", "")


def test_another_writer_is_waited_for(
    kafka: KafkaClient, name: str, entries: Entries, monkeypatch: pytest.MonkeyPatch
) -> None:
    redrive("channel", "stop", name, "TO.B", code=0)
    connection = kafka.connection
    original = StatesWriter.write
    interruptions = [None]

    def interrupted(self: StatesWriter, written: Any) -> None:
        if interruptions:
            interruptions.pop()
            with StatesWriter(Cluster(connection), f"app{name}", "writer"):
                pass
        original(self, written)

    monkeypatch.setattr(StatesWriter, "write", interrupted)
    redrive("channel", "start", name, "TO.B", code=0)
    assert not interruptions
    assert entries(name) == {f"channel/{name}/TO.B": {"running": True}}


# queue


@pytest.mark.parametrize("queue", ["ORDERS", "OLD"])
def test_puts_to_a_queue_are_disabled_and_enabled(name: str, queue: str, entries: Entries) -> None:
    result = redrive("queue", "disable", "put", name, queue)
    assert result.stdout == f"puts to {queue}@{name} are disabled\n"
    assert entries(name) == {f"queue/{name}/{queue}": {"put": False}}
    redrive("queue", "enable", "put", name, queue, code=0)
    assert entries(name) == {f"queue/{name}/{queue}": {"put": True}}


# trigger


def test_what_could_be_put_nowhere_is_released_by_name_or_with_its_channel(
    kafka: KafkaClient, name: str, entries: Entries
) -> None:
    kept = remaining_topic(f"app{name}", f"{name}--{name}B")
    kafka.create(kept)
    assert "0 messages" in redrive("queue", "release", name).stdout
    kafka.produce(kept, [{"key": b"a", "value": b"1"}, {"key": b"b", "value": b"2"}])
    kafka.produce(kept, [{"key": b"a", "value": None}])
    released = redrive("queue", "release", name, f"{name}B")
    assert released.stdout == f"1 message of {name}B@{name} released\n"
    assert entries(name) == {f"release/{kept}/0": {"offset": 3}}
    kafka.produce(kept, [{"key": b"c", "value": b"3"}])
    redrive("channel", "start", name, "TO.B", code=0)
    assert entries(name) == {
        f"release/{kept}/0": {"offset": 4},
        f"channel/{name}/TO.B": {"running": True},
    }
    assert "did you mean" in redrive("queue", "release", name, f"{name}BB").stderr


def test_a_trigger_sets_free_what_waits_now(
    kafka: KafkaClient, name: str, entries: Entries
) -> None:
    sent = transmission_topic(queue="ORDERS", queue_manager=f"{name}MOON", to=f"{name}SUN")
    pulled = transmission_topic(queue="HOME", queue_manager=f"{name}SUN", to=f"{name}MOON")
    kafka.create(sent, pulled)
    kafka.produce(sent, [{"value": b"1"}, {"value": b"2"}])
    kafka.produce(pulled, [{"value": b"3"}])
    result = redrive("trigger", f"{name}MOON")
    assert result.stdout == f"3 messages released at {name}MOON\n"
    assert entries(name) == {
        f"release/{sent}/0": {"offset": 2},
        f"release/{pulled}/0": {"offset": 1},
    }


def test_a_trigger_leaves_out_a_partition_without_a_leader_and_names_it(
    kafka: KafkaClient, name: str, entries: Entries, without_leader: Callable[..., None]
) -> None:
    sent = transmission_topic(queue="ORDERS", queue_manager=f"{name}MOON", to=f"{name}SUN")
    pulled = transmission_topic(queue="HOME", queue_manager=f"{name}SUN", to=f"{name}MOON")
    kept = [remaining_topic(f"app{name}", f"{name}--{name}{other}") for other in "BC"]
    kafka.create(sent, pulled, *kept)
    kafka.produce(sent, [{"value": b"1"}])
    kafka.produce(kept[0], [{"key": b"a", "value": b"2"}])
    without_leader(f"{pulled}:0", f"{kept[1]}:0")
    result = redrive("trigger", f"{name}MOON")
    assert result.stdout == f"1 message released at {name}MOON\n"
    assert f"without a leader: {pulled}:0" in result.stderr
    for command in (["browse", name, "--remaining"], ["queue", "release", name]):
        result = redrive(*command)
        assert result.stdout.startswith("1 ")
        assert f"without a leader: {kept[1]}:0" in result.stderr
    assert set(entries(name)) == {f"release/{sent}/0", f"release/{kept[0]}/0"}


def test_a_stopped_connection_without_a_queue_is_in_every_view(name: str, folder: Path) -> None:
    moons = MOONS.format(name)
    sun = f"  - name: {name}SUN\n"
    direct = f"    connections: [{{kind: direct, name: {name}MOON}}]\n"
    (folder / "moons.yaml").write_text(moons.replace(sun, f"{sun}{direct}"))
    channel = [f"{name}SUN", f"{name}MOON"]
    (shown,) = json_of("channel", "status", *channel)
    assert (shown["state"], shown["waiting"]) == ("running", 0)
    redrive("channel", "stop", *channel, code=0)
    (shown,) = json_of("channel", "status", *channel)
    assert shown["state"] == "stopped"
    lines = " ".join(redrive("status").output.split())
    assert f"connection {channel[1]} of {channel[0]} is stopped" in lines
    assert f"redrive channel start {' '.join(channel)}" in lines


def test_a_home_server_queue_is_pulled_on_trigger_by_default(name: str) -> None:
    result = redrive("channel", "status", f"{name}MOON", "--json")
    states = {(load["queue"], load["channel"]): load["state"] for load in json.loads(result.stdout)}
    assert states == {
        ("ORDERS", f"{name}SUN"): "running",
        ("HOME", f"{name}SUN"): "pulled on trigger",
    }


def test_a_manager_without_channels_says_so(name: str) -> None:
    assert "sends no messages to others" in redrive("channel", "status", f"{name}B", code=2).stderr


def test_a_trigger_with_nothing_to_move_says_so(kafka: KafkaClient, name: str) -> None:
    missing = redrive("trigger", f"{name}MOON", code=1)
    assert "redrive topology apply" in missing.stderr
    kafka.create(
        transmission_topic(queue="ORDERS", queue_manager=f"{name}MOON", to=f"{name}SUN"),
        transmission_topic(queue="HOME", queue_manager=f"{name}SUN", to=f"{name}MOON"),
    )
    result = redrive("trigger", f"{name}MOON")
    assert (result.exit_code, result.stdout) == (0, f"0 messages released at {name}MOON\n")


def test_a_dynamic_queue_has_a_generated_name_and_is_renewed(name: str) -> None:
    model = "SYSTEM.DEFAULT.MODEL.QUEUE"
    made = json_of("queue", "open", name, model, "--name", "APP.*")
    queue = made["queue"]
    assert (made["topic"], queue[:4]) == (f"{name}--{queue}", "APP.")
    assert "closes in 1 d" in redrive("queue", "open", name, queue, "--lease", "1d").output
    assert "has no unread messages" in redrive("browse", name, queue).output
