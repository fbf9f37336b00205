"""Trigger messages as traffic: over a channel, by depth of a real consumer group, exactly once."""

from __future__ import annotations

from typing import Any

from kafka import KafkaConsumer
from kafka.structs import OffsetAndMetadata, TopicPartition
from tests.streaming.conftest import Jobs
from tests.streaming.test_traffic import networked, put

from redrive.topology.files import SourceText
from redrive.topology.names import put_topic

SHOP = b"""DEFINE QREMOTE(FAR) RNAME(ORDERS) RQMNAME(TRIG.B)
DEFINE QLOCAL(TRIG.B) USAGE(XMITQ)
DEFINE CHANNEL(A.TO.B) CHLTYPE(SDR) CONNAME('b') XMITQ(TRIG.B)
"""
OFFICE = b"""DEFINE CHANNEL(A.TO.B) CHLTYPE(RCVR)
DEFINE QLOCAL(INIT)
DEFINE PROCESS(PAY) APPLICID('/usr/bin/pay') USERDATA('now')
DEFINE QLOCAL(ORDERS) TRIGGER INITQ(INIT) PROCESS(PAY)
DEFINE QLOCAL(EACH) TRIGGER TRIGTYPE(EVERY) INITQ(INIT) PROCESS(PAY)
DEFINE QLOCAL(FIVE) TRIGGER TRIGTYPE(DEPTH) TRIGDPTH(5) INITQ(INIT) PROCESS(PAY)
"""
BINDINGS = b"""kind: bindings
queue_managers:
  TRIG.B:
    queues:
      ORDERS: {consumer_group: trigger-billing}
      FIVE: {consumer_group: trigger-billing}
"""


def test_trigger_messages_come_with_the_messages_that_cause_them(jobs: Jobs) -> None:
    """FIRST once until the group has read the queue, EVERY each time, DEPTH at the fifth."""
    sources = (
        SourceText("TRIG.A.mqsc", SHOP),
        SourceText("TRIG.B.mqsc", OFFICE),
        SourceText("bindings.yaml", BINDINGS),
    )
    job = jobs.start(networked(jobs, sources))

    def triggered() -> list[str]:
        return sorted(record.key.decode() for record in jobs.read("TRIG.B--INIT"))

    jobs.produce(put_topic("TRIG.A"), [put("FAR", b"%d" % number) for number in range(3)])
    job.wait_for_records(6)
    assert triggered() == ["ORDERS"]
    # The group reads all but one; the queue is not empty, and then it is.
    for offset, expected in ((2, ["ORDERS"]), (4, ["ORDERS", "ORDERS"])):
        _commit(jobs.bootstrap_servers, "TRIG.B--ORDERS", read_to=offset)
        jobs.produce(put_topic("TRIG.A"), [put("FAR", b"more")])
        job.wait_for_records(8 if offset == 2 else 10)
        assert triggered() == expected
    jobs.produce(put_topic("TRIG.B"), [put("FIVE", b"%d" % number) for number in range(4)])
    job.wait_for_records(14)
    assert "FIVE" not in triggered()
    jobs.produce(
        put_topic("TRIG.B"), [put("FIVE", b"4"), put("FIVE", b"5"), *[put("EACH", b"x")] * 3]
    )
    job.wait_for_records(19)
    job.stop()
    assert triggered() == [*["EACH"] * 3, "FIVE", "ORDERS", "ORDERS"]
    for record in jobs.read("TRIG.B--INIT"):
        assert record.value[:4] == b"TM  "
        assert record.value[172:].startswith(b"/usr/bin/pay "), record.value
    assert len(jobs.read("TRIG.B--ORDERS")) == 5
    details = [outcome["detail"] for outcome in jobs.outcomes(job.configuration)]
    assert details.count("trigger message on INIT@TRIG.B") == 6


def _commit(bootstrap_servers: str, topic: str, *, read_to: int) -> None:
    """Let the consumer group have read the first messages of a queue, markers between them."""
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap_servers,
        group_id="trigger-billing",
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    lane = TopicPartition(topic, 0)
    try:
        consumer.assign([lane])
        consumer.seek_to_beginning(lane)
        records: list[Any] = []
        while len(records) < read_to:
            records += consumer.poll(timeout_ms=1000).get(lane, [])
        consumer.commit({lane: OffsetAndMetadata(records[read_to - 1].offset + 1, "", -1)})
    finally:
        consumer.close()
