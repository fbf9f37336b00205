"""Puts as traffic: intakes, channels and dead letters of whole networks on a real broker."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from inspect import cleandoc
from typing import Any

import pytest
from kafka.admin import NewTopic
from tests.conftest import PATIENCE, RawName, eventually
from tests.streaming.conftest import Jobs, RunningJob

from redrive.checkpoints.control import read_entries
from redrive.configuration import EmitterChoice, JobConfiguration
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
from redrive.kafka.cluster import Cluster
from redrive.messages import MQMD, DeadLetterHeader, TopicPartition, decode_dead_letter
from redrive.operations.states import write_states
from redrive.topology.layout import SourceText, topics_of
from redrive.topology.names import put_topic, topic_name, transmission_topic

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


_MADE = ("MsgId", "PutDate", "PutTime", "Encoding", "CodedCharSetId")
MADE = {MQMD[field].header for field in _MADE}
"""What a put adds to a message that has none of it."""


def put(queue: str, body: bytes, queue_manager: str = "", **headers: str) -> dict[str, Any]:
    """A put as a record of an intake."""
    names = [("redrive.oqm", queue_manager.encode())] if queue_manager else []
    names.append(("redrive.oq", queue.encode()))
    fields = [(f"JMS_IBM_MQMD_{name}", value.encode()) for name, value in headers.items()]
    return {"value": body, "key": b"k", "headers": [*names, ("x", b"1"), *fields]}


def networked(jobs: Jobs, sources: tuple[SourceText, ...], **settings: Any) -> JobConfiguration:
    """The configuration of a job on a network, every topic of which is created."""
    topics = [NewTopic(one.topic, 1, 1) for one in topics_of(topology_of(sources))]
    jobs.admin.create_topics(topics, wait_for_metadata=True)
    return jobs.configure({}, topology=sources, **settings)


@dataclass
class Traffic:
    """A network of two queue managers, whose names and topics no other test has, and a job on it.

    Every name of a manager in the scripts gets a number behind it.
    """

    jobs: Jobs
    scripts: dict[str, str]
    """By queue manager; or one text by the name of its file, which tells of both managers."""
    managers: tuple[str, str] = ("A", "B")
    settings: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.number = next(_numbers)
        self.a, self.b = (f"{name}{self.number}" for name in self.managers)
        self.configuration = networked(self.jobs, self.sources(), **self.settings)

    def sources(self) -> tuple[SourceText, ...]:
        """The definitions."""
        return tuple(
            SourceText(
                name if "." in name else f"{name}{self.number}.mqsc", self._numbered(text).encode()
            )
            for name, text in self.scripts.items()
        )

    def _numbered(self, text: str) -> str:
        for name in self.managers:
            text = re.sub(rf"(?<=[( \[]){name}(?=[)\],}}\n])", f"{name}{self.number}", text)
        return cleandoc(text)

    def start(self) -> RunningJob:
        """Starts the job, which then handles what comes."""
        self.job = self.jobs.start(self.configuration)
        assert self.job.is_started.wait(PATIENCE)
        return self.job

    def run(self, count: int) -> None:
        """Runs the job until it has handled so many inputs."""
        self.start().wait_for_records(count)
        self.job.stop()

    def put(self, at: str, *puts: dict[str, Any]) -> None:
        """Puts messages at a queue manager."""
        self.jobs.produce(put_topic(at), puts)

    def on(self, queue: str, at: str = "") -> list[Any]:
        """What lies on a queue."""
        return self.jobs.read(topic_name(queue=queue, queue_manager=at))

    def bodies(self, queue: str, at: str = "") -> list[bytes]:
        """The bodies of what lies on a queue."""
        return [record.value for record in self.on(queue, at)]

    def dead_letters(self, at: str) -> list[DeadLetterHeader]:
        """The headers of the dead letters of a queue manager."""
        found = [decode_dead_letter(one.value, one.headers).header for one in self.on("DEAD.Q", at)]
        return [header for header in found if header is not None]

    def outcomes(self) -> list[dict[str, Any]]:
        """Every outcome."""
        return self.jobs.outcomes(self.configuration)

    def change(self, *entries: Entry) -> None:
        """Changes states as an operator does."""
        write_states(self.configuration, entries)

    def states(self) -> States:
        """The states as they are."""
        cluster = Cluster(self.configuration.connection)
        return states_of(read_entries(cluster, self.configuration.tables_topic))


Network = Callable[..., Traffic]


@pytest.fixture
def network(jobs: Jobs) -> Network:
    """Make a network: ``network(HUB, emitter=EmitterChoice.LANES)``."""
    return lambda scripts, **settings: Traffic(jobs, scripts, settings=settings)


@pytest.fixture
def stop_channel(network: Network) -> Callable[[int], Traffic]:
    """Make a hub, stop its channel, and let messages with numbers as bodies come there."""

    def make(count: int) -> Traffic:
        traffic = network(HUB)
        job = traffic.start()
        traffic.change(channel_entry(traffic.a, "A.TO.B", is_running=False))
        traffic.put(traffic.a, *(put("FAR", b"%d" % number) for number in range(count)))
        job.wait_for_records(count)
        return traffic

    return make


@pytest.mark.parametrize("emitter", [EmitterChoice.DRIVER, EmitterChoice.LANES])
def test_a_put_ends_where_its_names_lead(emitter: EmitterChoice, network: Network) -> None:
    """Local, alias, remote over a channel: body, key and headers as they were, each once."""
    traffic = network(HUB, emitter=emitter)
    a, b = traffic.a, traffic.b
    traffic.put(a, *(put(queue, queue.encode()) for queue in ("LOCAL.Q", "AN.ALIAS", "FAR")))
    traffic.put(a, put("ORDERS", b"both names", b))
    traffic.run(6)  # two of them twice: at the intake, and over the channel
    assert traffic.bodies("LOCAL.Q", a) == [b"LOCAL.Q", b"AN.ALIAS"]
    assert traffic.bodies("ORDERS", b) == [b"FAR", b"both names"]
    for record in [*traffic.on("LOCAL.Q", a), *traffic.on("ORDERS", b)]:
        assert record.key == b"k"
        names = {name for name, _ in record.headers if not name.startswith("redrive.")}
        assert names == {"x", *MADE}
        assert dict(record.headers)["x"] == b"1"
        assert not {"redrive.oq", "redrive.oqm"} & {name for name, _ in record.headers}
    assert [outcome["result"] for outcome in traffic.outcomes()] == ["routed"] * 6


def test_a_message_with_a_header_name_that_is_not_utf_8_stays_and_holds_no_channel(
    jobs: Jobs, network: Network
) -> None:
    """Its copy waits for new definitions, the outcome names the header, those behind it go on."""
    traffic = network(HUB)
    b = traffic.b
    odd, even = put("ORDERS", b"odd", b), put("ORDERS", b"even", b)
    odd["headers"].append((RawName(b"caf\xe9"), b"2"))
    queue = topic_name(queue=b, queue_manager=traffic.a)
    jobs.produce(queue, [odd, even])
    traffic.run(2)
    assert traffic.bodies("ORDERS", b) == [b"even"]
    outcomes = sorted(traffic.outcomes(), key=lambda outcome: int(outcome["offset"]))
    assert [outcome["result"] for outcome in outcomes] == ["remains", "routed"]
    assert r"the name of header 4 (caf\xe9) is not UTF-8" in outcomes[0]["detail"]
    (copy,) = jobs.read(remaining_topic(traffic.configuration.application, queue))
    assert copy.value == b"odd"
    assert ("caf\ufffd", b"2") in copy.headers


def test_what_cannot_be_put_becomes_a_dead_letter(network: Network) -> None:
    """At the application's manager and at the receiver of a channel, with reason and names."""
    traffic = network(HUB)
    a, b = traffic.a, traffic.b
    traffic.put(
        a,
        put("NO.SUCH", b"one", Format="MQSTR"),
        put("NO.SUCH", b"two", b),
        put("NO.SUCH", b"three", Report=str(0x08000000)),
        put("LOCAL.Q", b"late", Expiry="1"),
        {"value": b"no names"},
    )
    traffic.run(6)
    assert traffic.job.results() == {
        "dead-lettered": 3, "routed": 1, "discarded": 1, "expired": 1,
    }  # fmt: skip
    first = traffic.on("DEAD.Q", a)[0]
    assert decode_dead_letter(first.value, first.headers).scheme == "mqdlh"
    (one, nameless), (two,) = traffic.dead_letters(a), traffic.dead_letters(b)
    assert (one.reason, one.format) == (2085, "MQSTR")
    assert (one.dest_q_name, one.dest_q_mgr_name) == ("NO.SUCH", a)
    assert (two.reason, two.dest_q_mgr_name, two.put_appl_name) == (2085, b, b)
    assert nameless.reason == 2085


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


def test_members_of_a_queue_sharing_group_put_on_one_queue(network: Network) -> None:
    """Each at its own intake; what is for the own queue of another goes without a channel."""
    traffic = network(GROUP)
    a, b = traffic.a, traffic.b
    traffic.put(a, put("SHARED.IN", b"a"), put("SHARED.IN", b"by b", b), put("OWN", b"over", b))
    traffic.put(b, put("SHARED.IN", b"b"))
    traffic.run(5)  # one of them twice: at the intake, and on its way
    assert sorted(traffic.bodies("SHARED.IN", "TSQ1")) == [b"a", b"b", b"by b"]
    assert traffic.bodies("OWN", b) == [b"over"]


def test_a_stopped_channel_holds_its_messages_in_order(
    stop_channel: Callable[[int], Traffic],
) -> None:
    """Stopped, they wait on the transmission queue; started, they go on; a restart forgets none.

    The order is that of MSGDLVSQ(PRIORITY): the urgent one first, the others as they came.
    """
    stopped = stop_channel(5)
    a, b = stopped.a, stopped.b
    numbers = [b"%d" % number for number in range(6)]
    assert stopped.bodies(b, a) == numbers[:5]
    stopped.job.stop()
    again = stopped.start()
    urgent = put("FAR", b"urgent", Priority="9")
    stopped.put(a, put("FAR", b"5"), put("LOCAL.Q", b"not held up"), urgent)
    again.wait_for_records(3)
    assert stopped.on("ORDERS", b) == []
    assert len(stopped.on("LOCAL.Q", a)) == 1
    stopped.change(channel_entry(a, "A.TO.B", is_running=True))
    again.wait_for_records(10)
    assert stopped.bodies("ORDERS", b) == [b"urgent", *numbers]


def test_a_release_moves_what_waits_once(stop_channel: Callable[[int], Traffic]) -> None:
    """A stopped channel moves the messages below the release, and holds those behind it."""
    stopped = stop_channel(3)
    waiting = TopicPartition(topic_name(queue=stopped.b, queue_manager=stopped.a), 0)
    stopped.change(release_entry(waiting, 2))
    stopped.job.wait_for_records(5)
    assert stopped.bodies("ORDERS", stopped.b) == [b"0", b"1"]


def test_puts_to_a_disabled_queue_become_dead_letters_until_it_is_enabled(network: Network) -> None:
    """Disabling an alias inhibits the puts through it only, with 2051, on the running job."""
    traffic = network(HUB)
    a = traffic.a
    traffic.start()
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


def test_a_receiver_tries_again_before_it_makes_a_dead_letter(network: Network) -> None:
    """Three more tries (MRRTY); what comes behind waits, other intakes and queues do not.

    The job that first tries is stopped meanwhile: the next one goes on with the count.
    """
    closed = HUB["B"].replace("(ORDERS)", "(ORDERS) PUT(DISABLED)")
    traffic = network({**HUB, "B": closed}, emitter=EmitterChoice.LANES)
    a, b = traffic.a, traffic.b
    traffic.put(a, put("FAR", b"in vain"))
    traffic.run(2)  # at the intake, and the first try
    again = traffic.start()
    traffic.put(a, put("OTHER", b"behind", b), put("LOCAL.Q", b"not held up"))
    eventually(lambda: again.results().get("routed") == 3, "the channel went on")
    again.stop()
    (letter,) = traffic.on("DEAD.Q", b)
    assert dict(letter.headers)["redrive.id"] == f"{put_topic(a)}:0:0".encode()
    (header,) = traffic.dead_letters(b)
    assert (header.reason, header.dest_q_name) == (2051, "ORDERS")
    assert traffic.bodies("OTHER", b) == [b"behind"]
    outcomes = traffic.outcomes()
    mine = [outcome for outcome in outcomes if outcome["message"] == f"{put_topic(a)}:0:0"]
    assert [one["result"] for one in mine] == ["routed", *["parked"] * 3, "dead-lettered"]
    assert [one["attempt"] for one in mine[1:]] == [1, 2, 3, 4]
    times = {
        outcome["message"]: outcome["time"]
        for outcome in outcomes
        if outcome["target_queue"] == "OTHER"
    }
    assert max(times.values()) >= mine[-1]["time"]


def test_a_try_that_succeeds_leaves_the_message_as_it_was(network: Network) -> None:
    """A queue that is enabled in time gets all messages, each once and in their order."""
    often = HUB["B"].replace("MRRTY(3) MRTMR(300)", "MRRTY(999) MRTMR(100)")
    traffic = network({**HUB, "B": often.replace("(ORDERS)", "(ORDERS) PUT(DISABLED)")})
    a, b = traffic.a, traffic.b
    job = traffic.start()
    bodies = [b"%d" % number for number in range(5)]
    traffic.put(a, *(put("FAR", body) for body in bodies[:3]))
    eventually(lambda: job.results().get("parked", 0) >= 6, "each was tried twice")
    traffic.put(a, *(put("FAR", body) for body in bodies[3:]))
    traffic.change(queue_entry(queue="ORDERS", queue_manager=b, put_enabled=True))
    eventually(lambda: job.results()["routed"] == 10, "all are on their queue")
    job.stop()
    assert traffic.bodies("ORDERS", b) == bodies
    for record in traffic.on("ORDERS", b):
        assert record.key == b"k"
        names = {name for name, _ in record.headers}
        assert names == {"x", "redrive.id", "redrive.hops", *MADE}
    assert set(job.results()) == {"routed", "parked"}


def test_without_a_dead_letter_queue_a_message_remains_until_definitions_change(
    network: Network,
) -> None:
    """It is kept with its names, and put as soon as new definitions have its queue."""
    traffic = network({"A": "DEFINE QLOCAL(LOCAL.Q) MAXMSGL(10)"})
    a = traffic.a
    traffic.put(a, put("LATER.Q", b"wait for me"), put("LOCAL.Q", b"longer than ten"))
    traffic.run(2)
    assert traffic.job.results() == {"remains": 2}
    traffic.scripts["A"] += (
        "\nDEFINE QALIAS(LATER.Q) TARGET(LOCAL.Q)\nALTER QLOCAL(LOCAL.Q) MAXMSGL(12)"
    )
    traffic.configuration = replace(traffic.configuration, topology=traffic.sources())
    traffic.run(2)
    assert traffic.job.results() == {"routed": 1, "remains": 1}
    assert traffic.bodies("LOCAL.Q", a) == [b"wait for me"]


def test_a_channel_stops_at_what_can_be_put_nowhere_and_goes_on_when_started(
    network: Network,
) -> None:
    """What comes behind waits on the transmission queue; once the queue is enabled all arrive."""
    traffic = network({**HUB, "B": HUB["B"].replace("ALTER QMGR DEADQ(DEAD.Q)", "")})
    a, b = traffic.a, traffic.b
    channel = (a, "A.TO.B")
    traffic.start()
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
    kept = TopicPartition(remaining_topic(traffic.configuration.application, waiting), 0)
    traffic.change(channel_entry(*channel, is_running=True), release_entry(kept, 1 << 40))
    eventually(lambda: len(traffic.on("ORDERS", b)) == before + 1, "every message arrived")


MQE = """
kind: mqe
queue_managers:
- name: Client
  queues:
  - {kind: local, name: Inbox, aliases: [Nick]}
  - {kind: local, name: Dead, role: dead_letter}
  - {kind: remote, name: Orders, queue_manager: Server, mode: sync}
  - {kind: remote, name: Slow, queue_manager: Server, mode: async}
  - {kind: home_server, name: Home, queue_manager: Server}
  connections:
  - {kind: direct, name: Server}
- name: Server
  queues:
  - {kind: local, name: Orders}
  - {kind: local, name: Slow}
  - {kind: local, name: Found}
  - {kind: local, name: Dead, role: dead_letter}
  - {kind: store_and_forward, name: Store, queue_manager: Nobody, targets: [Client]}
"""
"""A client of a server that it pulls from."""


def test_an_everyplace_network_stores_transmits_pulls_and_discovers(jobs: Jobs) -> None:
    """Synchronous and asynchronous, discovered, refused; pulled once triggered, as it was."""
    traffic = Traffic(jobs, {"network.yaml": MQE}, ("Client", "Server"))
    client, server = traffic.a, traffic.b
    job = traffic.start()
    traffic.put(
        client,
        put("Orders", b"synchronous", server),
        put("Slow", b"asynchronous", server),
        put("Found", b"discovered", server),
        put("Nick", b"alias"),
        put("Nothing", b"refused", server),
    )
    traffic.put(server, put("Nick", b"pulled", client), put("None", b"unknown", client))
    job.wait_for_records(8)  # the asynchronous one twice
    assert traffic.bodies("Orders", server) == [b"synchronous"]
    assert traffic.bodies("Slow", server) == [b"asynchronous"]
    assert traffic.bodies("Found", server) == [b"discovered"]
    assert traffic.bodies("Inbox", client) == [b"alias"]
    (refused,) = traffic.on("Dead", client)
    assert dict(refused.headers)["mqdlh.Reason"] == b"2085"
    stored = transmission_topic(queue="Store", queue_manager=server, to=client)
    assert len(jobs.read(stored)) == 2
    assert traffic.states().discovered == {(client, "Found", server)}
    traffic.change(release_entry(TopicPartition(stored, 0), 2))
    job.wait_for_records(10)
    assert traffic.bodies("Inbox", client) == [b"alias", b"pulled"]
    assert len(traffic.on("Dead", client)) == 2
    job.stop()
    assert job.results() == {"routed": 8, "dead-lettered": 2}


STORE = """
kind: mqe
queue_managers:
- name: Client
  queues:
  - {kind: local, name: Dead, role: dead_letter}
  - {kind: remote, name: Short, queue_manager: Server, mode: async}
  connections:
  - {kind: direct, name: Server}
- name: Server
  queues:
  - {kind: local, name: Short, maximum_message_size: 10}
"""
"""An asynchronous definition that admits longer messages than its queue."""


def test_what_the_next_manager_refuses_stays_in_its_store(jobs: Jobs) -> None:
    """The put succeeded when the message was stored, so that it is no dead letter later."""
    traffic = Traffic(jobs, {"network.yaml": STORE}, ("Client", "Server"))
    client, server = traffic.a, traffic.b
    traffic.put(client, put("Short", b"longer than ten", server))
    traffic.run(2)
    assert traffic.job.results() == {"routed": 1, "remains": 1}
    assert traffic.on("Dead", client) == traffic.on("Short", server) == []
