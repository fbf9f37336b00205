"""Puts as traffic: intakes, channels and dead letters of whole networks on a real broker.

One job works on the networks of most tests, which share nothing else. Another one is stopped in the
middle of what it does, and goes on with other definitions.
"""

from __future__ import annotations

import itertools
import json
import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from inspect import cleandoc
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from kafka import KafkaAdminClient
from tests.conftest import PATIENCE, KafkaClient, RawName, eventually
from tests.streaming.conftest import RunningJob, configuration_of

from redrive.checkpoints.control import read_entries
from redrive.configuration import EmitterChoice
from redrive.configuration.deciders import topology_of
from redrive.engine.commands import (
    Entry,
    States,
    channel_entry,
    queue_entry,
    release_entry,
    states_of,
)
from redrive.engine.names import remaining_topic
from redrive.errors import UsageError
from redrive.kafka.cluster import Cluster
from redrive.messages import MQMD, DeadLetterHeader, TopicPartition, decode_dead_letter
from redrive.operations import dynamic_queues
from redrive.operations.dynamic_queues import close_dynamic_queue, open_dynamic_queue
from redrive.operations.network import Network
from redrive.operations.states import with_states, write_states
from redrive.topology.layout import SourceText, topics_of
from redrive.topology.names import put_topic, topic_name, transmission_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_numbers = itertools.count(1)

HUB = {
    "A": """
        ALTER QMGR DEADQ(DEAD.Q)
        DEFINE QLOCAL(DEAD.Q)
        DEFINE QLOCAL(LOCAL.Q)
        DEFINE QALIAS(AN.ALIAS) TARGET(LOCAL.Q)
        DEFINE QREMOTE(FAR) RNAME(ORDERS) RQMNAME(B)
        DEFINE QLOCAL(B) USAGE(XMITQ)
        DEFINE CHANNEL(A.TO.B) CHLTYPE(SDR) CONNAME('b') XMITQ(B)
        """,
    "B": """
        ALTER QMGR DEADQ(DEAD.Q)
        DEFINE QLOCAL(DEAD.Q)
        DEFINE QLOCAL(ORDERS)
        DEFINE QLOCAL(OTHER)
        DEFINE CHANNEL(A.TO.B) CHLTYPE(RCVR) MRRTY(3) MRTMR(300)
        """,
}
"""Two managers and one channel."""


MODELS = {
    "A": """
        ALTER QMGR DEADQ(DEAD.Q)
        DEFINE QLOCAL(DEAD.Q)
        DEFINE QMODEL(REPLY.MODEL) MAXMSGL(1000)
        DEFINE QMODEL(KEPT.MODEL) DEFTYPE(PERMDYN)
        DEFINE QREMOTE(ASK) RNAME(REQUESTS) RQMNAME(B)
        DEFINE QLOCAL(B) USAGE(XMITQ)
        DEFINE CHANNEL(A.TO.B) CHLTYPE(SDR) CONNAME('b') XMITQ(B)
        DEFINE CHANNEL(B.TO.A) CHLTYPE(RCVR) MRRTY(0)
        """,
    "B": """
        ALTER QMGR DEADQ(DEAD.Q)
        DEFINE QLOCAL(DEAD.Q)
        DEFINE QLOCAL(REQUESTS)
        DEFINE QLOCAL(A) USAGE(XMITQ)
        DEFINE CHANNEL(B.TO.A) CHLTYPE(SDR) CONNAME('a') XMITQ(A)
        DEFINE CHANNEL(A.TO.B) CHLTYPE(RCVR)
        """,
}
"""One manager asks, the other one answers; queues are made from models."""

CLOSED = {**HUB, "B": HUB["B"].replace("(ORDERS)", "(ORDERS) PUT(DISABLED)")}
"""A hub whose remote queue takes nothing."""

GROUP = {
    "A": """
        ALTER QMGR QSGNAME(TSQ1) IGQ(ENABLED)
        DEFINE QLOCAL(SHARED.IN) QSGDISP(SHARED)
        """,
    "B": """
        ALTER QMGR QSGNAME(TSQ1)
        DEFINE QLOCAL(OWN)
        """,
}
"""Two members of a queue-sharing group."""

MQE = """
kind: mqe
queue_managers:
- name: Client
  queues:
  - {kind: local, name: Inbox, aliases: [Nick]}
  - {kind: local, name: Dead, role: dead_letter}
  - {kind: remote, name: Orders, queue_manager: Server, mode: sync}
  - {kind: remote, name: Slow, queue_manager: Server, mode: async}
  - {kind: remote, name: Short, queue_manager: Server, mode: async}
  - {kind: home_server, name: Home, queue_manager: Server}
  connections:
  - {kind: direct, name: Server}
- name: Server
  queues:
  - {kind: local, name: Orders}
  - {kind: local, name: Slow}
  - {kind: local, name: Short, maximum_message_size: 10}
  - {kind: local, name: Found}
  - {kind: local, name: Dead, role: dead_letter}
  - {kind: store_and_forward, name: Store, queue_manager: Nobody, targets: [Client]}
"""
"""A client of a server that it pulls from, and whose queue Short takes less than its store."""

_MADE = ("MsgId", "PutDate", "PutTime", "Encoding", "CodedCharSetId")
MADE = {MQMD[field].header for field in _MADE}
"""What a put adds to a message that has none of it."""


def put(queue: str, body: bytes, queue_manager: str = "", **headers: str) -> dict[str, Any]:
    """A put as a record of an intake."""
    names = [("redrive.oqm", queue_manager.encode())] if queue_manager else []
    names.append(("redrive.oq", queue.encode()))
    fields = [(f"JMS_IBM_MQMD_{name}", value.encode()) for name, value in headers.items()]
    return {"value": body, "key": b"k", "headers": [*names, ("x", b"1"), *fields]}


def assert_unchanged(*records: Any) -> None:
    """Messages on a queue have what was put, what a put adds, and no names of a queue."""
    for record in records:
        assert record.key == b"k"
        names = {name for name, _ in record.headers if not name.startswith("redrive.")}
        assert names == {"x", *MADE}
        assert dict(record.headers)["x"] == b"1"
        assert not {"redrive.oq", "redrive.oqm"} & {name for name, _ in record.headers}


@dataclass
class Traffic:
    """A network of queue managers, whose names and topics no other test has.

    Every name of a manager in the scripts gets a number behind it.
    """

    kafka: KafkaClient
    scripts: dict[str, str]
    """By queue manager; or one text by the name of its file, which tells of all managers."""
    managers: tuple[str, str] = ("A", "B")
    job: RunningJob = field(init=False)
    """The one that works on it."""

    def __post_init__(self) -> None:
        self.number = next(_numbers)
        self.a, self.b = (f"{name}{self.number}" for name in self.managers)
        self.topics = {layout.topic for layout in topics_of(topology_of(self.sources()))}
        self.kafka.create(*self.topics)

    def sources(self) -> tuple[SourceText, ...]:
        return tuple(
            SourceText(
                name if "." in name else f"{name}{self.number}.mqsc",
                self._numbered(text).encode(),
            )
            for name, text in self.scripts.items()
        )

    def _numbered(self, text: str) -> str:
        for name in self.managers:
            text = re.sub(rf"(?<=[( \[]){name}(?=[)\],}}\n])", f"{name}{self.number}", text)
        return cleandoc(text)

    def wait_for(self, count: int) -> None:
        """Waits until the job has handled so many inputs of this network."""
        eventually(
            lambda: len(self.outcomes()) >= count or self.job.error,
            f"{count} are handled",
            every=0.3,
        )
        self.job.check()

    def put(self, at: str, *puts: dict[str, Any]) -> None:
        """Puts messages at a queue manager."""
        self.kafka.produce(put_topic(at), puts)

    def on(self, queue: str, at: str = "") -> list[Any]:
        """What lies on a queue."""
        return self.kafka.read(topic_name(queue=queue, queue_manager=at))

    def bodies(self, queue: str, at: str = "") -> list[bytes]:
        return [record.value for record in self.on(queue, at)]

    def dead_letters(self, at: str) -> list[DeadLetterHeader]:
        """The headers of the dead letters of a queue manager."""
        letters = self.on("DEAD.Q", at)
        headers = [decode_dead_letter(letter.value, letter.headers).header for letter in letters]
        return [header for header in headers if header is not None]

    def outcomes(self) -> list[dict[str, Any]]:
        """Every outcome of a message of this network; those of one message in their order."""
        values = self.kafka.values(self.job.configuration.outcomes_topic)
        outcomes = [json.loads(value) for value in values]
        return [
            outcome for outcome in outcomes if outcome["message"].rsplit(":", 2)[0] in self.topics
        ]

    def results(self) -> Counter[str]:
        return Counter(outcome["result"] for outcome in self.outcomes())

    def change(self, *entries: Entry) -> None:
        """Changes states as an operator does."""
        write_states(self.job.configuration, entries)

    def states(self) -> States:
        configuration = self.job.configuration
        cluster = Cluster(configuration.connection)
        return states_of(read_entries(cluster, configuration.tables_topic))


def start(folder: Path, spark: SparkSession, *networks: Traffic, **settings: Any) -> RunningJob:
    sources = tuple(source for network in networks for source in network.sources())
    configuration = configuration_of(
        folder, networks[0].kafka.bootstrap_servers, {}, topology=sources, **settings
    )
    job = RunningJob(configuration, spark).start()
    for network in networks:
        network.job = job
    assert job.is_started.wait(PATIENCE)
    return job


@pytest.fixture(scope="module")
def kafka(bootstrap_servers: str, admin: KafkaAdminClient) -> KafkaClient:
    return KafkaClient(bootstrap_servers, admin, "")


@pytest.fixture(scope="module")
def networks(
    kafka: KafkaClient, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mapping[str, Traffic]]:
    """Networks on one job, each for the test that asks for its name."""
    often = CLOSED["B"].replace("MRRTY(3) MRTMR(300)", "MRRTY(999) MRTMR(100)")
    without_queue = HUB["B"].replace("ALTER QMGR DEADQ(DEAD.Q)", "")
    scripts = {
        **dict.fromkeys(("names", "odd header", "dead letters", "release", "inhibited"), HUB),
        "group": GROUP,
        "many tries": {**CLOSED, "B": often},
        "no dead-letter queue": {**HUB, "B": without_queue},
        "undefined": {"A": "DEFINE QLOCAL(LOCAL.Q) MAXMSGL(10)"},
        **dict.fromkeys(("replies", "permanent queue"), MODELS),
    }
    every = {name: Traffic(kafka, texts) for name, texts in scripts.items()}
    every["everyplace"] = Traffic(kafka, {"network.yaml": MQE}, ("Client", "Server"))
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr("redrive.streaming.upkeep._DYNAMIC_AGE", 1.0)
        job = start(tmp_path_factory.mktemp("networks"), spark, *every.values())
        yield every
        job.stop()


@pytest.fixture(scope="module")
def restarted(
    kafka: KafkaClient, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mapping[str, Traffic]]:
    """Networks on the workers of a job that was stopped and goes on: a channel is stopped, and a
    receiver has tried a put for the first time."""
    stopped, closed = Traffic(kafka, HUB), Traffic(kafka, CLOSED)
    folder = tmp_path_factory.mktemp("restarted")
    job = start(folder, spark, stopped, closed, emitter=EmitterChoice.LANES)
    stopped.change(channel_entry(stopped.a, "A.TO.B", is_running=False))
    stopped.put(stopped.a, *(put("FAR", b"%d" % number) for number in range(5)))
    stopped.wait_for(5)
    closed.put(closed.a, put("FAR", b"in vain"))
    closed.wait_for(2)  # at the intake, and the first try
    job.stop()
    stopped.job = closed.job = RunningJob(job.configuration, spark).start()
    assert closed.job.is_started.wait(PATIENCE)
    yield {"stopped": stopped, "closed": closed}
    closed.job.stop()


def test_a_put_ends_where_its_names_lead(networks: Mapping[str, Traffic]) -> None:
    traffic = networks["names"]
    a, b = traffic.a, traffic.b
    traffic.put(a, *(put(queue, queue.encode()) for queue in ("LOCAL.Q", "AN.ALIAS", "FAR")))
    traffic.put(a, put("ORDERS", b"both names", b))
    traffic.wait_for(6)  # two of them twice: at the intake, and over the channel
    assert traffic.bodies("LOCAL.Q", a) == [b"LOCAL.Q", b"AN.ALIAS"]
    assert traffic.bodies("ORDERS", b) == [b"FAR", b"both names"]
    assert_unchanged(*traffic.on("LOCAL.Q", a), *traffic.on("ORDERS", b))
    assert traffic.results() == {"routed": 6}


def test_a_message_with_a_header_name_that_is_not_utf_8_stays_and_holds_no_channel(
    networks: Mapping[str, Traffic],
) -> None:
    traffic = networks["odd header"]
    b = traffic.b
    odd, even = put("ORDERS", b"odd", b), put("ORDERS", b"even", b)
    odd["headers"].append((RawName(b"caf\xe9"), b"2"))
    queue = topic_name(queue=b, queue_manager=traffic.a)
    traffic.kafka.produce(queue, [odd, even])
    traffic.wait_for(2)
    assert traffic.bodies("ORDERS", b) == [b"even"]
    first, second = sorted(traffic.outcomes(), key=lambda outcome: int(outcome["offset"]))
    assert (first["result"], second["result"]) == ("remains", "routed")
    assert r"the name of header 4 (caf\xe9) is not UTF-8" in first["detail"]
    (copy,) = traffic.kafka.read(remaining_topic(traffic.job.configuration.application, queue))
    assert copy.value == b"odd"
    assert ("caf\ufffd", b"2") in copy.headers


def test_what_cannot_be_put_becomes_a_dead_letter(networks: Mapping[str, Traffic]) -> None:
    traffic = networks["dead letters"]
    a, b = traffic.a, traffic.b
    minute_ago = int(time.time() * 1000) - 60_000
    traffic.put(
        a,
        put("NO.SUCH", b"one", Format="MQSTR"),
        put("NO.SUCH", b"two", b),
        put("NO.SUCH", b"three", Report=str(0x08000000)),
        {**put("LOCAL.Q", b"late", Expiry="1"), "timestamp_ms": minute_ago},
        {"value": b"no names"},
    )
    traffic.wait_for(6)
    assert traffic.results() == {"dead-lettered": 3, "routed": 1, "discarded": 1, "expired": 1}
    first = traffic.on("DEAD.Q", a)[0]
    assert decode_dead_letter(first.value, first.headers).scheme == "mqdlh"
    (named, nameless), (far,) = traffic.dead_letters(a), traffic.dead_letters(b)
    assert (named.reason, named.format) == (2085, "MQSTR")
    assert (named.dest_q_name, named.dest_q_mgr_name) == ("NO.SUCH", a)
    assert (far.reason, far.dest_q_mgr_name, far.put_appl_name) == (2085, b, b)
    assert nameless.reason == 2085


def test_members_of_a_queue_sharing_group_put_on_one_queue(
    networks: Mapping[str, Traffic],
) -> None:
    traffic = networks["group"]
    a, b = traffic.a, traffic.b
    traffic.put(a, put("SHARED.IN", b"a"), put("SHARED.IN", b"by b", b), put("OWN", b"over", b))
    traffic.put(b, put("SHARED.IN", b"b"))
    traffic.wait_for(5)  # one of them twice: at the intake, and on its way
    assert sorted(traffic.bodies("SHARED.IN", "TSQ1")) == [b"a", b"b", b"by b"]
    assert traffic.bodies("OWN", b) == [b"over"]


def test_a_stopped_channel_holds_its_messages_in_order(restarted: Mapping[str, Traffic]) -> None:
    """Stopped, they wait on the transmission queue; started, they go on; a restart forgets none.

    The order is that of MSGDLVSQ(PRIORITY): the urgent one first, the others as they came.
    """
    traffic = restarted["stopped"]
    a, b = traffic.a, traffic.b
    numbers = [b"%d" % number for number in range(6)]
    assert traffic.bodies(b, a) == numbers[:5]
    urgent = put("FAR", b"urgent", Priority="9")
    traffic.put(a, put("FAR", b"5"), put("LOCAL.Q", b"not held up"), urgent)
    traffic.wait_for(5 + 3)
    assert traffic.on("ORDERS", b) == []
    (local,) = traffic.on("LOCAL.Q", a)
    assert_unchanged(local)
    traffic.change(channel_entry(a, "A.TO.B", is_running=True))
    traffic.wait_for(5 + 10)
    assert traffic.bodies("ORDERS", b) == [b"urgent", *numbers]


def test_a_release_moves_what_waits_once(networks: Mapping[str, Traffic]) -> None:
    traffic = networks["release"]
    a, b = traffic.a, traffic.b
    traffic.change(channel_entry(a, "A.TO.B", is_running=False))
    traffic.put(a, *(put("FAR", b"%d" % number) for number in range(3)))
    traffic.wait_for(3)
    traffic.change(release_entry(TopicPartition(topic_name(queue=b, queue_manager=a), 0), 2))
    traffic.wait_for(5)
    assert traffic.bodies("ORDERS", b) == [b"0", b"1"]


def test_puts_to_a_disabled_queue_become_dead_letters_until_it_is_enabled(
    networks: Mapping[str, Traffic],
) -> None:
    """Disabling an alias inhibits the puts through it only, with 2051, on the running job."""
    traffic = networks["inhibited"]
    a = traffic.a
    traffic.change(queue_entry(queue="AN.ALIAS", queue_manager=a, put_enabled=False))

    def is_inhibited() -> bool:
        traffic.put(a, put("AN.ALIAS", b"in vain"), put("LOCAL.Q", b"well"))
        return bool(traffic.dead_letters(a))

    eventually(is_inhibited, "a put was refused")
    assert {header.reason for header in traffic.dead_letters(a)} == {2051}
    traffic.change(queue_entry(queue="AN.ALIAS", queue_manager=a, put_enabled=True))

    def arrives() -> bool:
        traffic.put(a, put("AN.ALIAS", b"enabled"))
        return b"enabled" in traffic.bodies("LOCAL.Q", a)

    eventually(arrives, "a put passed again")


def test_a_receiver_tries_again_before_it_makes_a_dead_letter(
    restarted: Mapping[str, Traffic],
) -> None:
    """Three more tries (MRRTY); what comes behind waits, other intakes and queues do not.

    The job that first tries is stopped meanwhile: the next one goes on with the count.
    """
    traffic = restarted["closed"]
    a, b = traffic.a, traffic.b
    traffic.put(a, put("OTHER", b"behind", b), put("LOCAL.Q", b"not held up"))
    eventually(lambda: traffic.results()["routed"] == 4, "the channel went on", every=0.3)
    (letter,) = traffic.on("DEAD.Q", b)
    assert dict(letter.headers)["redrive.id"] == f"{put_topic(a)}:0:0".encode()
    (header,) = traffic.dead_letters(b)
    assert (header.reason, header.dest_q_name) == (2051, "ORDERS")
    assert traffic.bodies("OTHER", b) == [b"behind"]
    assert_unchanged(*traffic.on("OTHER", b), *traffic.on("LOCAL.Q", a))
    outcomes = traffic.outcomes()
    tries = [outcome for outcome in outcomes if outcome["message"] == f"{put_topic(a)}:0:0"]
    assert [outcome["result"] for outcome in tries] == [
        "routed", *["parked"] * 3, "dead-lettered",
    ]  # fmt: skip
    assert [outcome["attempt"] for outcome in tries[1:]] == [1, 2, 3, 4]
    times = [outcome["time"] for outcome in outcomes if outcome["target_queue"] == "OTHER"]
    assert max(times) >= tries[-1]["time"]


def test_a_try_that_succeeds_leaves_the_message_as_it_was(networks: Mapping[str, Traffic]) -> None:
    traffic = networks["many tries"]
    a, b = traffic.a, traffic.b
    bodies = [b"%d" % number for number in range(5)]
    traffic.put(a, *(put("FAR", body) for body in bodies[:3]))
    eventually(lambda: traffic.results()["parked"] >= 6, "each was tried twice", every=0.3)
    traffic.put(a, *(put("FAR", body) for body in bodies[3:]))
    traffic.change(queue_entry(queue="ORDERS", queue_manager=b, put_enabled=True))
    eventually(lambda: traffic.results()["routed"] == 10, "all are on their queue", every=0.3)
    assert traffic.bodies("ORDERS", b) == bodies
    for record in traffic.on("ORDERS", b):
        assert record.key == b"k"
        assert {name for name, _ in record.headers} == {"x", "redrive.id", "redrive.hops", *MADE}
    assert set(traffic.results()) == {"routed", "parked"}


def test_without_a_dead_letter_queue_a_message_remains_until_definitions_change(
    networks: Mapping[str, Traffic],
) -> None:
    traffic = networks["undefined"]
    traffic.put(traffic.a, put("LATER.Q", b"wait for me"), put("LOCAL.Q", b"longer than ten"))
    traffic.wait_for(2)
    assert traffic.results() == {"remains": 2}
    traffic.scripts["A"] += (
        "\nDEFINE QALIAS(LATER.Q) TARGET(LOCAL.Q)\nALTER QLOCAL(LOCAL.Q) MAXMSGL(12)"
    )
    sources = tuple(source for network in networks.values() for source in network.sources())
    changed = replace(traffic.job.configuration, topology=sources)
    traffic.job.control.request_restart(lambda: changed)
    traffic.wait_for(2 + 2)
    assert traffic.results() == {"routed": 1, "remains": 3}
    assert traffic.bodies("LOCAL.Q", traffic.a) == [b"wait for me"]


def test_a_channel_stops_at_what_can_be_put_nowhere_and_goes_on_when_started(
    networks: Mapping[str, Traffic],
) -> None:
    traffic = networks["no dead-letter queue"]
    a, b = traffic.a, traffic.b
    channel = (a, "A.TO.B")
    traffic.change(queue_entry(queue="ORDERS", queue_manager=b, put_enabled=False))
    sent = itertools.count()

    def is_stopped() -> bool:
        next(sent)
        traffic.put(a, put("FAR", b"persistent", Persistence="1"))
        return traffic.states().running.get(channel) is False

    eventually(is_stopped, "the job stopped the channel", every=1)
    assert traffic.states().why_stopped[channel].startswith("2051")
    before = next(sent)
    traffic.put(a, put("FAR", b"behind", Persistence="1"))
    eventually(lambda: len(traffic.on(b, a)) == before + 1, "a message waits")
    traffic.change(queue_entry(queue="ORDERS", queue_manager=b, put_enabled=True))
    waiting = topic_name(queue=b, queue_manager=a)
    kept = TopicPartition(remaining_topic(traffic.job.configuration.application, waiting), 0)
    traffic.change(channel_entry(*channel, is_running=True), release_entry(kept, 1 << 40))
    eventually(lambda: len(traffic.on("ORDERS", b)) == before + 1, "every message arrived")


def test_an_everyplace_network_stores_transmits_pulls_and_discovers(
    networks: Mapping[str, Traffic],
) -> None:
    """Synchronous and asynchronous, discovered, refused; pulled once triggered, as it was.

    What the next manager refuses stays in its store: the put succeeded when it was stored.
    """
    traffic = networks["everyplace"]
    client, server = traffic.a, traffic.b
    traffic.put(
        client,
        put("Orders", b"synchronous", server),
        put("Slow", b"asynchronous", server),
        put("Short", b"longer than ten", server),
        put("Found", b"discovered", server),
        put("Nick", b"alias"),
        put("Nothing", b"refused", server),
    )
    traffic.put(server, put("Nick", b"pulled", client), put("None", b"unknown", client))
    traffic.wait_for(10)  # the asynchronous ones twice
    assert traffic.bodies("Orders", server) == [b"synchronous"]
    assert traffic.bodies("Slow", server) == [b"asynchronous"]
    assert traffic.bodies("Found", server) == [b"discovered"]
    assert traffic.bodies("Inbox", client) == [b"alias"]
    (refused,) = traffic.on("Dead", client)
    assert dict(refused.headers)["mqdlh.Reason"] == b"2085"
    stored = transmission_topic(queue="Store", queue_manager=server, to=client)
    assert len(traffic.kafka.read(stored)) == 2
    assert traffic.states().discovered == {(client, "Found", server)}
    traffic.change(release_entry(TopicPartition(stored, 0), 2))
    traffic.wait_for(12)
    assert traffic.bodies("Inbox", client) == [b"alias", b"pulled"]
    assert len(traffic.on("Dead", client)) == 2
    assert traffic.results() == {"routed": 9, "dead-lettered": 2, "remains": 1}
    assert traffic.on("Short", server) == []


def network_of(traffic: Traffic) -> Network:
    """What an operator's commands ask."""
    configuration = traffic.job.configuration
    return Network(configuration.connection, topology_of(configuration.topology), configuration)


def test_replies_come_to_a_dynamic_queue_until_its_lease_ends(
    networks: Mapping[str, Traffic], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reply correlates; a persistent one is 2048, one after the lease 2085; the topic goes."""
    traffic = networks["replies"]
    a, b, kafka, network = traffic.a, traffic.b, traffic.kafka, network_of(traffic)

    def opened(queue: str, lease: float = 3600.0) -> dynamic_queues.OpenedQueue:
        return open_dynamic_queue(network, a, queue, dynamic_name="APP.*", lease=lease)

    first, other = opened("REPLY.MODEL"), opened("REPLY.MODEL")
    name = first.queue.queue
    assert name != other.queue.queue
    traffic.put(a, put("ASK", b"what?", ReplyToQ=name))
    traffic.wait_for(2)
    (request,) = traffic.on("REQUESTS", b)
    asked = {header.removeprefix("JMS_IBM_MQMD_"): raw.decode() for header, raw in request.headers}
    assert asked["ReplyToQMgr"] == a

    def reply(**fields: str) -> None:
        traffic.put(b, put(asked["ReplyToQ"], b"that", asked["ReplyToQMgr"], **fields))

    reply(CorrelId=asked["MsgId"])
    reply(CorrelId=asked["MsgId"], Persistence="1")
    traffic.wait_for(6)
    (answer,) = kafka.read(first.topic)
    headers = dict(answer.headers)
    assert headers[MQMD["CorrelId"].header] == asked["MsgId"].encode()
    assert headers[MQMD["MsgId"].header] != headers[MQMD["CorrelId"].header]

    def reasons() -> list[int]:
        return [header.reason for header in traffic.dead_letters(a)]

    assert reasons() == [2048]

    renewed = opened(name, lease=2.0)
    assert (renewed.queue.queue, renewed.topic) == (name, first.topic)

    def is_closed() -> bool:
        return name not in with_states(network).topology.mq.queue_managers[a].queues

    eventually(is_closed, "the lease ended")
    reply()
    traffic.wait_for(8)
    assert reasons() == [2048, 2085]
    with pytest.raises(UsageError, match="has ended"):
        opened(name)
    assert first.topic in kafka.admin.list_topics()
    monkeypatch.setattr(dynamic_queues, "DELETED_AFTER", 0.0)
    eventually(
        lambda: first.topic not in kafka.admin.list_topics(), "the job deleted the topic", every=1
    )

    def left() -> list[str]:
        return [known.queue.queue for known in dynamic_queues.dynamic_queues(network, a)]

    eventually(lambda: left() == [other.queue.queue], "the queue is forgotten", every=1)


def test_a_permanent_queue_is_deleted_by_its_user_only(networks: Mapping[str, Traffic]) -> None:
    traffic = networks["permanent queue"]
    a, network = traffic.a, network_of(traffic)
    # The job runs already: it follows.
    open_dynamic_queue(network, a, "KEPT.MODEL", dynamic_name="KEPT", lease=1.0)
    with pytest.raises(UsageError, match="2100"):
        open_dynamic_queue(network, a, "KEPT.MODEL", dynamic_name="KEPT", lease=1.0)
    with pytest.raises(UsageError, match="is not a model queue"):
        open_dynamic_queue(network, a, "DEAD.Q", dynamic_name="KEPT", lease=1.0)

    def is_followed() -> bool:
        traffic.put(a, put("KEPT", b"stays", Persistence="1"))
        return bool(traffic.on("KEPT", a))

    eventually(is_followed, "the job knows the queue", every=1)
    with pytest.raises(UsageError, match="2055"):
        close_dynamic_queue(network, a, "KEPT", purges=False)
    close_dynamic_queue(network, a, "KEPT", purges=True)
    with pytest.raises(UsageError, match="no dynamic queue KEPT"):
        close_dynamic_queue(network, a, "KEPT", purges=True)
    before = len(traffic.on("DEAD.Q", a))
    traffic.put(a, put("KEPT", b"late"))
    eventually(lambda: len(traffic.on("DEAD.Q", a)) == before + 1, "it is unknown again")
