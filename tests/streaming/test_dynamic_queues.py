"""Dynamic queues as traffic: request and reply over two managers, and the end of a lease."""

from __future__ import annotations

import pytest
from tests.conftest import eventually
from tests.streaming.conftest import Jobs
from tests.streaming.test_traffic import networked, put

from redrive.configuration.deciders import topology_of
from redrive.errors import UsageError
from redrive.messages import decode_dead_letter
from redrive.operations import dynamic_queues
from redrive.operations.dynamic_queues import close_dynamic_queue, open_dynamic_queue
from redrive.operations.network import Network
from redrive.operations.states import with_states
from redrive.topology.layout import SourceText
from redrive.topology.names import put_topic

ASKING = b"""ALTER QMGR DEADQ(DEAD.Q)
DEFINE QLOCAL(DEAD.Q)
DEFINE QMODEL(REPLY.MODEL) MAXMSGL(1000)
DEFINE QMODEL(KEPT.MODEL) DEFTYPE(PERMDYN)
DEFINE QREMOTE(ASK) RNAME(REQUESTS) RQMNAME(DYN.B)
DEFINE QLOCAL(DYN.B) USAGE(XMITQ)
DEFINE CHANNEL(A.TO.B) CHLTYPE(SDR) CONNAME('b') XMITQ(DYN.B)
DEFINE CHANNEL(B.TO.A) CHLTYPE(RCVR) MRRTY(0)
"""
ANSWERING = b"""ALTER QMGR DEADQ(DEAD.Q)
DEFINE QLOCAL(DEAD.Q)
DEFINE QLOCAL(REQUESTS)
DEFINE QLOCAL(DYN.A) USAGE(XMITQ)
DEFINE CHANNEL(B.TO.A) CHLTYPE(SDR) CONNAME('a') XMITQ(DYN.A)
DEFINE CHANNEL(A.TO.B) CHLTYPE(RCVR)
"""
MQMD = "JMS_IBM_MQMD_"


def test_replies_come_to_a_dynamic_queue_until_its_lease_ends(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reply correlates; a persistent one is 2048, one after the lease 2085; the topic goes."""
    sources = (SourceText("DYN.A.mqsc", ASKING), SourceText("DYN.B.mqsc", ANSWERING))
    configuration = networked(jobs, sources)
    network = Network(configuration.connection, topology_of(sources), configuration)

    def opened(queue: str, lease: float = 3600.0) -> dynamic_queues.OpenedQueue:
        return open_dynamic_queue(network, "DYN.A", queue, dynamic_name="APP.*", lease=lease)

    one, other = opened("REPLY.MODEL"), opened("REPLY.MODEL")
    assert one.queue.queue != other.queue.queue
    job = jobs.start(configuration)
    jobs.produce(put_topic("DYN.A"), [put("ASK", b"what?", ReplyToQ=one.queue.queue)])
    job.wait_for_records(2)
    (request,) = jobs.read("DYN.B--REQUESTS")
    asked = {name.removeprefix(MQMD): raw.decode() for name, raw in request.headers}
    assert asked["ReplyToQMgr"] == "DYN.A"

    def reply(**fields: str) -> None:
        answer = put(asked["ReplyToQ"], b"that", asked["ReplyToQMgr"], **fields)
        jobs.produce(put_topic("DYN.B"), [answer])

    reply(CorrelId=asked["MsgId"])
    reply(CorrelId=asked["MsgId"], Persistence="1")
    job.wait_for_records(6)
    (answer,) = jobs.read(one.topic)
    headers = dict(answer.headers)
    assert headers[f"{MQMD}CorrelId"] == asked["MsgId"].encode()
    assert headers[f"{MQMD}MsgId"] != headers[f"{MQMD}CorrelId"]

    def reasons() -> list[int]:
        letters = jobs.read("DYN.A--DEAD.Q")
        headers = [decode_dead_letter(letter.value, letter.headers).header for letter in letters]
        return [header.reason for header in headers if header]

    assert reasons() == [2048]

    renewed = opened(one.queue.queue, lease=2.0)
    assert (renewed.queue.queue, renewed.topic) == (one.queue.queue, one.topic)
    name = one.queue.queue

    def is_closed() -> bool:
        return name not in with_states(network).topology.mq.queue_managers["DYN.A"].queues

    eventually(is_closed, "the lease ended")
    reply()
    job.wait_for_records(8)
    assert reasons() == [2048, 2085]
    with pytest.raises(UsageError, match="has ended"):
        opened(name)
    assert one.topic in jobs.admin.list_topics()
    monkeypatch.setattr(dynamic_queues, "DELETED_AFTER", 0.0)
    eventually(
        lambda: one.topic not in jobs.admin.list_topics(), "the job deleted the topic", every=1
    )

    def left() -> list[str]:
        return [known.queue.queue for known in dynamic_queues.dynamic_queues(network, "DYN.A")]

    eventually(lambda: left() == [other.queue.queue], "the queue is forgotten", every=1)
    job.stop()


def test_a_permanent_queue_is_deleted_by_its_user_only(jobs: Jobs) -> None:
    """It has no lease, takes persistent messages, and goes with them only if that is said."""
    sources = (SourceText("PERM.A.mqsc", ASKING),)
    configuration = networked(jobs, sources)
    network = Network(configuration.connection, topology_of(sources), configuration)
    job = jobs.start(configuration)
    # The job runs already: it follows.
    open_dynamic_queue(network, "PERM.A", "KEPT.MODEL", dynamic_name="KEPT", lease=1.0)
    with pytest.raises(UsageError, match="2100"):
        open_dynamic_queue(network, "PERM.A", "KEPT.MODEL", dynamic_name="KEPT", lease=1.0)
    with pytest.raises(UsageError, match="is not a model queue"):
        open_dynamic_queue(network, "PERM.A", "DEAD.Q", dynamic_name="KEPT", lease=1.0)

    def is_followed() -> bool:
        jobs.produce(put_topic("PERM.A"), [put("KEPT", b"stays", Persistence="1")])
        return bool(jobs.read("PERM.A--KEPT"))

    eventually(is_followed, "the job knows the queue", every=1)
    with pytest.raises(UsageError, match="2055"):
        close_dynamic_queue(network, "PERM.A", "KEPT", purges=False)
    close_dynamic_queue(network, "PERM.A", "KEPT", purges=True)
    with pytest.raises(UsageError, match="no dynamic queue KEPT"):
        close_dynamic_queue(network, "PERM.A", "KEPT", purges=True)
    before = len(jobs.read("PERM.A--DEAD.Q"))
    jobs.produce(put_topic("PERM.A"), [put("KEPT", b"late")])
    eventually(lambda: len(jobs.read("PERM.A--DEAD.Q")) == before + 1, "it is unknown again")
    job.stop()
