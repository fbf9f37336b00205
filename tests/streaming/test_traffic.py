"""Puts as traffic: intakes, channels and dead letters of whole networks on a real broker."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from kafka import KafkaAdminClient
from kafka.admin import NewTopic
from tests.conftest import PATIENCE, RawName, eventually
from tests.streaming.conftest import RunningJob

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
from redrive.messages import MQMD, TopicPartition, decode_dead_letter
from redrive.operations.states import write_states
from redrive.topology.files import SourceText
from redrive.topology.layout import topics_of
from redrive.topology.names import put_topic, topic_name, transmission_topic

Configure = Callable[..., JobConfiguration]
StartJob = Callable[[JobConfiguration], RunningJob]

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


@pytest.fixture
def network(admin: KafkaAdminClient) -> Callable[..., tuple[SourceText, ...]]:
    """Make a network of its own, with all its topics: ``network(HUB)``.

    Every name of a manager in the scripts gets a number behind it, so that tests do not meet.
    """

    def make(scripts: dict[str, str]) -> tuple[SourceText, ...]:
        number = next(_numbers)
        sources = tuple(
            SourceText(f"{name}{number}.mqsc", _numbered(text, scripts, number).encode())
            for name, text in scripts.items()
        )
        create_topics_of(sources, admin)
        make.number = number  # type: ignore[attr-defined]
        return sources

    return make


def create_topics_of(sources: tuple[SourceText, ...], admin: KafkaAdminClient) -> None:
    """Creates every topic of a topology."""
    topics = [NewTopic(one.topic, 1, 1) for one in topics_of(topology_of(sources))]
    admin.create_topics(topics, wait_for_metadata=True)


def _numbered(text: str, names: dict[str, str], number: int) -> str:
    for name in names:
        text = text.replace(f"({name})", f"({name}{number})")
    return "\n".join(line.strip() for line in text.strip().splitlines())


MADE = {MQMD[field].header for field in ("MsgId", "PutDate", "PutTime")}
"""What a put adds to a message that has none of it."""


def put(queue: str, body: bytes, queue_manager: str = "", **headers: str) -> dict[str, Any]:
    """A put as a record of an intake."""
    names = [("redrive.oqm", queue_manager.encode())] if queue_manager else []
    names.append(("redrive.oq", queue.encode()))
    fields = [(f"JMS_IBM_MQMD_{name}", value.encode()) for name, value in headers.items()]
    return {"value": body, "key": b"k", "headers": [*names, ("x", b"1"), *fields]}


def set_states(configuration: JobConfiguration, *entries: Entry) -> None:
    """Changes states as an operator does."""
    write_states(configuration, entries)


@dataclass(frozen=True, slots=True)
class StoppedChannel:
    """A job that moves nothing from one manager of a hub to the other, and what waits for it."""

    a: str
    """The manager whose transmission queue holds the messages."""
    b: str
    """The manager where they would go."""
    configuration: JobConfiguration
    job: RunningJob


@pytest.fixture
def stop_channel(
    network: Any, produce: Any, configure: Configure, start_job: StartJob
) -> Callable[[int], StoppedChannel]:
    """Make a hub, stop its channel, and let messages with numbers as bodies come there."""

    def make(count: int) -> StoppedChannel:
        sources = network(HUB)
        a, b = f"A{network.number}", f"B{network.number}"
        configuration = configure({}, topology=sources)
        job = start_job(configuration)
        assert job.is_started.wait(PATIENCE)
        set_states(configuration, channel_entry(a, "A.TO.B", is_running=False))
        produce(put_topic(a), [put("FAR", b"%d" % number) for number in range(count)])
        job.wait_for_records(count)
        return StoppedChannel(a, b, configuration, job)

    return make


@pytest.mark.parametrize("emitter", [EmitterChoice.DRIVER, EmitterChoice.LANES])
def test_a_put_ends_where_its_names_lead(
    emitter: EmitterChoice, network: Any, produce: Any, read_all: Any,
    configure: Configure, start_job: StartJob,
) -> None:  # fmt: skip
    """Local, alias, remote over a channel: body, key and headers as they were, each once."""
    sources = network(HUB)
    a, b = f"A{network.number}", f"B{network.number}"
    produce(put_topic(a), [put(queue, queue.encode()) for queue in ("LOCAL.Q", "AN.ALIAS", "FAR")])
    produce(put_topic(a), [put("ORDERS", b"both names", b)])
    configuration = configure({}, topology=sources, emitter=emitter)
    job = start_job(configuration)
    job.wait_for_records(6)  # two of them twice: at the intake, and over the channel
    local = read_all(topic_name(queue="LOCAL.Q", queue_manager=a))
    assert [record.value for record in local] == [b"LOCAL.Q", b"AN.ALIAS"]
    far = read_all(topic_name(queue="ORDERS", queue_manager=b))
    assert [record.value for record in far] == [b"FAR", b"both names"]
    for record in [*local, *far]:
        assert record.key == b"k"
        names = {name for name, _ in record.headers if not name.startswith("redrive.")}
        assert names == {"x", *MADE}
        assert dict(record.headers)["x"] == b"1"
        assert not {"redrive.oq", "redrive.oqm"} & {name for name, _ in record.headers}
    job.stop()
    outcomes = [json.loads(record.value) for record in read_all(configuration.outcomes_topic)]
    assert [outcome["result"] for outcome in outcomes] == ["routed"] * 6


def test_a_message_with_a_header_name_that_is_not_utf_8_stays_and_holds_no_channel(
    network: Any, produce: Any, read_all: Any, configure: Configure, start_job: StartJob
) -> None:
    """Its copy waits for new definitions, the outcome names the header, those behind it go on."""
    sources = network(HUB)
    a, b = f"A{network.number}", f"B{network.number}"
    odd, even = put("ORDERS", b"odd", b), put("ORDERS", b"even", b)
    odd["headers"].append((RawName(b"caf\xe9"), b"2"))
    queue = topic_name(queue=b, queue_manager=a)
    produce(queue, [odd, even])
    configuration = configure({}, topology=sources)
    job = start_job(configuration)
    job.wait_for_records(2)
    job.stop()
    assert [record.value for record in read_all(topic_name(queue="ORDERS", queue_manager=b))] == [
        b"even"
    ]
    outcomes = [json.loads(record.value) for record in read_all(configuration.outcomes_topic)]
    outcomes.sort(key=lambda one: int(one["offset"]))
    assert [one["result"] for one in outcomes] == ["remains", "routed"]
    assert r"the name of header 4 (caf\xe9) is not UTF-8" in outcomes[0]["detail"]
    (copy,) = read_all(remaining_topic(configuration.application, queue))
    assert copy.value == b"odd"
    assert ("caf\ufffd", b"2") in copy.headers


def test_what_cannot_be_put_becomes_a_dead_letter(
    network: Any, produce: Any, read_all: Any, configure: Configure, start_job: StartJob
) -> None:
    """At the application's manager and at the receiver of a channel, with reason and names."""
    sources = network(HUB)
    a, b = f"A{network.number}", f"B{network.number}"
    produce(
        put_topic(a),
        [
            put("NO.SUCH", b"one", Format="MQSTR"),
            put("NO.SUCH", b"two", b),
            put("NO.SUCH", b"three", Report=str(0x08000000)),
            put("LOCAL.Q", b"late", Expiry="1"),
            {"value": b"no names"},
        ],
    )
    configuration = configure({}, topology=sources)
    job = start_job(configuration)
    job.wait_for_records(6)
    job.stop()
    ((one, nameless), (two,)) = (
        [decode_dead_letter(record.value, record.headers) for record in read_all(topic)]
        for topic in (
            topic_name(queue="DEAD.Q", queue_manager=a),
            topic_name(queue="DEAD.Q", queue_manager=b),
        )
    )
    assert one.header is not None
    assert (one.scheme, one.header.reason, one.header.format) == ("mqdlh", 2085, "MQSTR")
    assert (one.header.dest_q_name, one.header.dest_q_mgr_name) == ("NO.SUCH", a)
    assert two.header is not None
    assert (two.header.reason, two.header.dest_q_mgr_name) == (2085, b)
    assert two.header.put_appl_name == b
    assert nameless.header is not None
    assert nameless.header.reason == 2085
    assert job.results() == {"dead-lettered": 3, "routed": 1, "discarded": 1, "expired": 1}


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


def test_members_of_a_queue_sharing_group_put_on_one_queue(
    network: Any, produce: Any, read_all: Any, configure: Configure, start_job: StartJob
) -> None:
    """Each at its own intake; what is for the own queue of another goes without a channel."""
    sources = network(GROUP)
    a, b = f"A{network.number}", f"B{network.number}"
    produce(put_topic(a), [put("SHARED.IN", b"a"), put("SHARED.IN", b"by b", b)])
    produce(put_topic(a), [put("OWN", b"over", b)])
    produce(put_topic(b), [put("SHARED.IN", b"b")])
    job = start_job(configure({}, topology=sources))
    job.wait_for_records(5)  # one of them twice: at the intake, and on its way
    shared = read_all(topic_name(queue="SHARED.IN", queue_manager="TSQ1"))
    assert sorted(record.value for record in shared) == [b"a", b"b", b"by b"]
    (over,) = read_all(topic_name(queue="OWN", queue_manager=b))
    assert over.value == b"over"
    job.stop()


NEWS = {
    "A": """
        ALTER QMGR DEADQ(DEAD.Q)
        DEFINE QLOCAL(DEAD.Q) DEFPSIST(YES) DEFPRTY(6)
        DEFINE QLOCAL(EDITORS)
        DEFINE TOPIC(SPORT) TOPICSTR('news/sport')
        DEFINE QALIAS(PUBLISH) TARGET(SPORT) TARGTYPE(TOPIC)
        DEFINE SUB(LOCAL) TOPICSTR('news/#') DEST(EDITORS)
        DEFINE SUB(FAR) TOPICSTR('+/sport') DEST(FANS) DESTQMGR(B)
        DEFINE SUB(LOST) TOPICOBJ(SPORT) DEST(NO.SUCH)
        DEFINE QLOCAL(B) USAGE(XMITQ)
        DEFINE CHANNEL(A.TO.B) CHLTYPE(SDR) CONNAME('b') XMITQ(B)
        """,
    "B": """
        DEFINE QLOCAL(FANS)
        DEFINE CHANNEL(A.TO.B) CHLTYPE(RCVR)
        """,
}
"""A topic with three subscriptions, one of which has no queue."""
NEWS_RULES = """\
DESTQ(NO.SUCH) ACTION(DISCARD)
DESTQ(MISSING) PERSIST(MQPER_PERSISTENT) ACTION(FWD) FWDQ(PUBLISH) HEADER(NO)
"""


def test_each_subscription_gets_one_copy_of_a_publication(
    network: Any, produce: Any, read_all: Any, configure: Configure, start_job: StartJob
) -> None:
    """By a put and by a rule; a copy that can't be put is a dead letter, the others arrive.

    A dead letter has the dead-letter queue's defaults where the put left them open, so that
    PERSIST matches.
    """
    sources = network(NEWS)
    a, b = f"A{network.number}", f"B{network.number}"
    dead = topic_name(queue="DEAD.Q", queue_manager=a)
    left_open = {"Persistence": "2", "Priority": "-1"}
    configuration = configure({dead: NEWS_RULES}, topology=sources)
    (handler,) = configuration.handlers
    identity = replace(handler.identity, queue_manager=a, queue="DEAD.Q")
    configuration = replace(configuration, handlers=(replace(handler, identity=identity),))
    produce(put_topic(a), [put("PUBLISH", b"put"), put("MISSING", b"forwarded", **left_open)])
    job = start_job(configuration)
    # One publication, a dead letter that is forwarded to another, and 2 x (3 copies and what
    # follows: a put over the channel, a dead letter that is discarded).
    job.wait_for_records(4 + 2 * 5)
    job.stop()
    near = read_all(topic_name(queue="EDITORS", queue_manager=a))
    far = read_all(topic_name(queue="FANS", queue_manager=b))
    for found in (near, far):
        assert sorted(record.value for record in found) == [b"forwarded", b"put"]
        (one,) = [dict(record.headers) for record in found if record.value == b"forwarded"]
        assert one["JMS_IBM_MQMD_Persistence"] == b"1"
        assert one["JMS_IBM_MQMD_Priority"] == b"6"
    identifiers = {dict(record.headers)["JMS_IBM_MQMD_MsgId"] for record in [*near, *far]}
    assert len(identifiers) == 4
    assert job.results() == {"routed": 8, "dead-lettered": 3, "forwarded": 1, "discarded": 2}


def test_a_stopped_channel_holds_its_messages_in_order(
    stop_channel: Callable[[int], StoppedChannel], produce: Any, read_all: Any, start_job: StartJob
) -> None:
    """Stopped, they wait on the transmission queue; started, they go on; a restart forgets none.

    The order is that of MSGDLVSQ(PRIORITY): the urgent one first, the others as they came.
    """
    stopped = stop_channel(5)
    a, b, configuration = stopped.a, stopped.b, stopped.configuration
    assert [record.value for record in read_all(topic_name(queue=b, queue_manager=a))] == [
        b"0",
        b"1",
        b"2",
        b"3",
        b"4",
    ]
    stopped.job.stop()
    again = start_job(configuration)
    assert again.is_started.wait(PATIENCE)
    urgent = put("FAR", b"urgent", Priority="9")
    produce(put_topic(a), [put("FAR", b"5"), put("LOCAL.Q", b"not held up"), urgent])
    again.wait_for_records(3)
    assert read_all(topic_name(queue="ORDERS", queue_manager=b)) == []
    assert len(read_all(topic_name(queue="LOCAL.Q", queue_manager=a))) == 1
    set_states(configuration, channel_entry(a, "A.TO.B", is_running=True))
    again.wait_for_records(10)
    assert [record.value for record in read_all(topic_name(queue="ORDERS", queue_manager=b))] == [
        b"urgent", *(b"%d" % number for number in range(6))
    ]  # fmt: skip


def test_a_release_moves_what_waits_once(
    stop_channel: Callable[[int], StoppedChannel], read_all: Any
) -> None:
    """A stopped channel moves the messages below the release, and holds those behind it."""
    stopped = stop_channel(3)
    waiting = TopicPartition(topic_name(queue=stopped.b, queue_manager=stopped.a), 0)
    set_states(stopped.configuration, release_entry(waiting, 2))
    stopped.job.wait_for_records(5)
    assert [
        record.value for record in read_all(topic_name(queue="ORDERS", queue_manager=stopped.b))
    ] == [b"0", b"1"]


def test_puts_to_a_disabled_queue_become_dead_letters_until_it_is_enabled(
    network: Any, produce: Any, read_all: Any, configure: Configure, start_job: StartJob
) -> None:
    """Disabling an alias inhibits the puts through it only, with 2051, on the running job."""
    sources = network(HUB)
    a = f"A{network.number}"
    configuration = configure({}, topology=sources)
    job = start_job(configuration)
    assert job.is_started.wait(PATIENCE)
    set_states(configuration, queue_entry(queue="AN.ALIAS", queue_manager=a, put_enabled=False))
    reasons: set[int] = set()

    def is_inhibited() -> bool:
        produce(put_topic(a), [put("AN.ALIAS", b"in vain"), put("LOCAL.Q", b"well")])
        letters = read_all(topic_name(queue="DEAD.Q", queue_manager=a))
        headers = (decode_dead_letter(one.value, one.headers).header for one in letters)
        reasons.update(header.reason for header in headers if header)
        return bool(reasons)

    eventually(is_inhibited, "a put was refused")
    assert reasons == {2051}
    set_states(configuration, queue_entry(queue="AN.ALIAS", queue_manager=a, put_enabled=True))

    def arrives() -> bool:
        produce(put_topic(a), [put("AN.ALIAS", b"enabled")])
        return any(
            record.value == b"enabled"
            for record in read_all(topic_name(queue="LOCAL.Q", queue_manager=a))
        )

    eventually(arrives, "a put passed again")


def test_a_receiver_tries_again_before_it_makes_a_dead_letter(
    network: Any, produce: Any, read_all: Any, configure: Configure, start_job: StartJob
) -> None:
    """Three more tries (MRRTY); what comes behind waits, other intakes and queues do not.

    The job that first tries is stopped meanwhile: the next one goes on with the count.
    """
    sources = network({**HUB, "B": HUB["B"].replace("(ORDERS)", "(ORDERS) PUT(DISABLED)")})
    a, b = f"A{network.number}", f"B{network.number}"
    configuration = configure({}, topology=sources, emitter=EmitterChoice.LANES)
    job = start_job(configuration)
    produce(put_topic(a), [put("FAR", b"in vain")])
    job.wait_for_records(2)  # at the intake, and the first try
    job.stop()
    again = start_job(configuration)
    produce(put_topic(a), [put("OTHER", b"behind", b), put("LOCAL.Q", b"not held up")])
    eventually(lambda: again.results().get("routed") == 3, "the channel went on")
    again.stop()
    (letter,) = read_all(topic_name(queue="DEAD.Q", queue_manager=b))
    assert dict(letter.headers)["redrive.id"] == f"{put_topic(a)}:0:0".encode()
    header = decode_dead_letter(letter.value, letter.headers).header
    assert header is not None
    assert (header.reason, header.dest_q_name) == (2051, "ORDERS")
    (behind,) = read_all(topic_name(queue="OTHER", queue_manager=b))
    assert behind.value == b"behind"
    outcomes = [json.loads(record.value) for record in read_all(configuration.outcomes_topic)]
    mine = [one for one in outcomes if one["message"] == f"{put_topic(a)}:0:0"]
    assert [one["result"] for one in mine] == ["routed", *["parked"] * 3, "dead-lettered"]
    assert [one["attempt"] for one in mine[1:]] == [1, 2, 3, 4]
    times = {one["message"]: one["time"] for one in outcomes if one["target_queue"] == "OTHER"}
    assert max(times.values()) >= mine[-1]["time"]


def test_a_try_that_succeeds_leaves_the_message_as_it_was(
    network: Any, produce: Any, read_all: Any, configure: Configure, start_job: StartJob
) -> None:
    """A queue that is enabled in time gets all messages, each once and in their order."""
    often = HUB["B"].replace("MRRTY(3) MRTMR(300)", "MRRTY(999) MRTMR(100)")
    sources = network({**HUB, "B": often.replace("(ORDERS)", "(ORDERS) PUT(DISABLED)")})
    a, b = f"A{network.number}", f"B{network.number}"
    configuration = configure({}, topology=sources)
    job = start_job(configuration)
    bodies = [b"%d" % number for number in range(5)]
    produce(put_topic(a), [put("FAR", body) for body in bodies[:3]])
    eventually(lambda: job.results().get("parked", 0) >= 6, "each was tried twice")
    produce(put_topic(a), [put("FAR", body) for body in bodies[3:]])
    set_states(configuration, queue_entry(queue="ORDERS", queue_manager=b, put_enabled=True))
    eventually(lambda: job.results()["routed"] == 10, "all are on their queue")
    job.stop()
    orders = read_all(topic_name(queue="ORDERS", queue_manager=b))
    assert [record.value for record in orders] == bodies
    for record in orders:
        assert record.key == b"k"
        names = {name for name, _ in record.headers}
        assert names == {"x", "redrive.id", "redrive.hops", *MADE}
    assert set(job.results()) == {"routed", "parked"}


NO_DEAD_LETTERS = {
    "A": "DEFINE QLOCAL(LOCAL.Q) MAXMSGL(10)",
}


def test_without_a_dead_letter_queue_a_message_remains_until_definitions_change(
    network: Any, produce: Any, read_all: Any, configure: Configure, start_job: StartJob
) -> None:
    """It is kept with its names, and put as soon as new definitions have its queue."""
    (source,) = network(NO_DEAD_LETTERS)
    a = f"A{network.number}"
    produce(put_topic(a), [put("LATER.Q", b"wait for me"), put("LOCAL.Q", b"longer than ten")])
    configuration = configure({}, topology=(source,), application=f"keeps{network.number}")
    job = start_job(configuration)
    job.wait_for_records(2)
    job.stop()
    assert job.results() == {"remains": 2}
    more = SourceText(source.name, source.data + b"\nDEFINE QALIAS(LATER.Q) TARGET(LOCAL.Q)"
                      b"\nALTER QLOCAL(LOCAL.Q) MAXMSGL(12)")  # fmt: skip
    changed = configure({}, topology=(more,), application=configuration.application)
    again = start_job(changed)
    again.wait_for_records(2)
    again.stop()
    assert again.results() == {"routed": 1, "remains": 1}
    (record,) = read_all(topic_name(queue="LOCAL.Q", queue_manager=a))
    assert record.value == b"wait for me"


def test_a_channel_stops_at_what_can_be_put_nowhere_and_goes_on_when_started(
    network: Any, produce: Any, read_all: Any, configure: Configure, start_job: StartJob
) -> None:
    """What comes behind waits on the transmission queue; once the queue is enabled all arrive."""
    sources = network({**HUB, "B": HUB["B"].replace("ALTER QMGR DEADQ(DEAD.Q)", "")})
    a, b = f"A{network.number}", f"B{network.number}"
    channel = (a, "A.TO.B")
    configuration = configure({}, topology=sources)
    job = start_job(configuration)
    assert job.is_started.wait(PATIENCE)
    set_states(configuration, queue_entry(queue="ORDERS", queue_manager=b, put_enabled=False))

    def states() -> States:
        return states_of(
            read_entries(Cluster(configuration.connection), configuration.tables_topic)
        )

    sent = itertools.count()

    def is_stopped() -> bool:
        next(sent)
        produce(put_topic(a), [put("FAR", b"persistent", Persistence="1")])
        return states().running.get(channel) is False

    eventually(is_stopped, "the job stopped the channel", every=1)
    assert states().why_stopped[channel].startswith("2051")
    waiting = topic_name(queue=b, queue_manager=a)
    before = next(sent)
    produce(put_topic(a), [put("FAR", b"behind", Persistence="1")])
    eventually(lambda: len(read_all(waiting)) == before + 1, "a message waits")
    set_states(configuration, queue_entry(queue="ORDERS", queue_manager=b, put_enabled=True))
    kept = TopicPartition(remaining_topic(configuration.application, waiting), 0)
    set_states(
        configuration, channel_entry(*channel, is_running=True), release_entry(kept, 1 << 40)
    )
    orders = topic_name(queue="ORDERS", queue_manager=b)
    eventually(lambda: len(read_all(orders)) == before + 1, "every message arrived")


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


def test_an_everyplace_network_stores_transmits_pulls_and_discovers(
    admin: KafkaAdminClient, produce: Any, read_all: Any,
    configure: Configure, start_job: StartJob,
) -> None:  # fmt: skip
    """Synchronous and asynchronous, discovered, refused; pulled once triggered, as it was."""
    number = next(_numbers)
    client, server = f"Client{number}", f"Server{number}"
    text = MQE.replace("Client", client).replace("Server", server)
    sources = (SourceText("network.yaml", text.encode()),)
    create_topics_of(sources, admin)
    configuration = configure({}, topology=sources)
    job = start_job(configuration)
    assert job.is_started.wait(PATIENCE)
    produce(
        put_topic(client),
        [
            put("Orders", b"synchronous", server),
            put("Slow", b"asynchronous", server),
            put("Found", b"discovered", server),
            put("Nick", b"alias"),
            put("Nothing", b"refused", server),
        ],
    )
    produce(put_topic(server), [put("Nick", b"pulled", client), put("None", b"unknown", client)])
    job.wait_for_records(8)  # the asynchronous one twice
    assert [r.value for r in read_all(topic_name(queue="Orders", queue_manager=server))] == [
        b"synchronous"
    ]
    assert [r.value for r in read_all(topic_name(queue="Slow", queue_manager=server))] == [
        b"asynchronous"
    ]
    assert [r.value for r in read_all(topic_name(queue="Found", queue_manager=server))] == [
        b"discovered"
    ]
    assert [r.value for r in read_all(topic_name(queue="Inbox", queue_manager=client))] == [
        b"alias"
    ]
    (refused,) = read_all(topic_name(queue="Dead", queue_manager=client))
    assert dict(refused.headers)["mqdlh.Reason"] == b"2085"
    stored = transmission_topic(queue="Store", queue_manager=server, to=client)
    assert len(read_all(stored)) == 2
    states = states_of(read_entries(Cluster(configuration.connection), configuration.tables_topic))
    assert states.discovered == {(client, "Found", server)}
    set_states(configuration, release_entry(TopicPartition(stored, 0), 2))
    job.wait_for_records(10)
    assert [r.value for r in read_all(topic_name(queue="Inbox", queue_manager=client))] == [
        b"alias",
        b"pulled",
    ]
    assert len(read_all(topic_name(queue="Dead", queue_manager=client))) == 2
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


def test_what_the_next_manager_refuses_stays_in_its_store(
    admin: KafkaAdminClient, produce: Any, read_all: Any,
    configure: Configure, start_job: StartJob,
) -> None:  # fmt: skip
    """The put succeeded when the message was stored, so that it is no dead letter later."""
    number = next(_numbers)
    client, server = f"Client{number}", f"Server{number}"
    text = STORE.replace("Client", client).replace("Server", server)
    sources = (SourceText("network.yaml", text.encode()),)
    create_topics_of(sources, admin)
    produce(put_topic(client), [put("Short", b"longer than ten", server)])
    job = start_job(configure({}, topology=sources))
    job.wait_for_records(2)
    job.stop()
    assert job.results() == {"routed": 1, "remains": 1}
    assert (
        read_all(
            topic_name(queue="Dead", queue_manager=client),
            topic_name(queue="Short", queue_manager=server),
        )
        == []
    )
