"""Puts: the result of one record of an intake or a transmission queue, without a broker."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.jobs import DEAD_LETTERS, MemoryJob
from tests.engine.known_cluster import OPEN, KnownCluster
from tests.engine.samples import identity_of, outcomes_in, slice_of

from redrive.configuration.deciders import topology_of
from redrive.engine.commands import states_of
from redrive.engine.facts import NO_LIMIT, Gone, Original, RecordQuestion, TopicFacts
from redrive.engine.message import seed_of
from redrive.engine.put_decider import PutDecider
from redrive.engine.put_record import by_priority
from redrive.engine.slice import Slice
from redrive.engine.sources import SourceKind
from redrive.messages import (
    Form,
    Headers,
    OutputRecord,
    Records,
    Refused,
    add_header,
    decode_dead_letter,
    new_header,
    wire_size,
)
from redrive.messages.fields import mqmd_fields
from redrive.topology.layout import SourceText, Topology, topics_of
from redrive.topology.receiving import receiving_queue_managers

NOW = 1_000_000

SCRIPTS = (
    SourceText(
        "A.mqsc",
        b"ALTER QMGR DEADQ(DEAD.Q)\n"
        b"DEFINE QLOCAL(DEAD.Q) MAXMSGL(300) DEFPSIST(YES) DEFPRTY(4)\n"
        b"DEFINE QLOCAL(SHUT) PUT(DISABLED) DEFPSIST(YES) DEFPRTY(3)\n"
        b"DEFINE QLOCAL(Q) MAXMSGL(50) DEFPSIST(YES) DEFPRTY(7)\n"
        b"DEFINE QREMOTE(ANSWER) RNAME(REPLIES) RQMNAME(C)\n"
        b"DEFINE QREMOTE(FAR) RNAME(Q) RQMNAME(B)\n"
        b"DEFINE QALIAS(SOON) TARGET(Q) CAPEXPRY(600)\n"
        b"DEFINE QLOCAL(B) USAGE(XMITQ)\n"
        b"DEFINE CHANNEL(A.TO.B) CHLTYPE(SDR) CONNAME('b') XMITQ(B) NPMSPEED(FAST)\n",
    ),
    SourceText(
        "B.mqsc", b"DEFINE QLOCAL(Q)\nDEFINE CHANNEL(A.TO.B) CHLTYPE(RCVR) NPMSPEED(FAST)\n"
    ),
)
INTAKE, TRANSMISSION, DEAD = "A--redrive-put", "A--B", "A--DEAD.Q"


def topology() -> Topology:
    """Two managers; the second has no dead-letter queue."""
    return topology_of(SCRIPTS)


def work_on(
    value: bytes | None,
    headers: Headers,
    *,
    source: str = INTAKE,
    hop_limit: int = 25,
    timestamp: int = NOW,
    of: Topology | None = None,
    offset: int = 7,
    channel: tuple[str, str] | None = None,
    kind: SourceKind = SourceKind.PUTS,
    retries: int = 0,
    key: bytes | None = b"k",
    table: str = "0" * 16,
    records: Records | None = None,
) -> Slice:
    definitions = of or topology()
    sources = {topic.topic: topic for topic in topics_of(definitions) if topic.is_read}
    receiver = receiving_queue_managers(definitions, {source: sources[source]})[source]

    router = PutDecider(
        identity_of(source, queue_manager="A"), receiver, lambda answer: answer, table_id=table,
        hop_limit=hop_limit, channel=channel,
        message_retries=retries,
    )  # fmt: skip
    records = records or Records([key], [value], [headers], [timestamp], [offset])
    return slice_of(records, router, kind=kind, topic=source, partition=2, now=NOW)


def results(work: Slice) -> tuple[list[OutputRecord], dict[str, Any]]:
    """What is written besides the outcome, and the outcome."""
    outputs = OPEN.decided(work)
    (outcome,) = outcomes_in(outputs)
    return [record for _, record in outputs if record.topic != "OUT"], outcome


def names(queue: str, queue_manager: str = "", **fields: str) -> Headers:
    mqmd: Headers = [(f"JMS_IBM_MQMD_{name}", text.encode()) for name, text in fields.items()]
    return [("redrive.oqm", queue_manager.encode()), ("redrive.oq", queue.encode()), *mqmd]


NAMED_VALUES = {
    "redrive.oq": (b"Q", b"FAR", b"SOON", b"ANSWER", b"NONE", b"Q   ", None),
    "redrive.oqm": (b"", b"A", b"B", b"C"),
    "redrive.bind": (b"open",),
    "redrive.id": (b"A--redrive-put:0:1", b"x:2:3", b"bad", None),
    "redrive.hops": (b"1", b"25", b"x"),
    "redrive.timestamp": (b"77",),
    "redrive.rule": (b"3",),
    "JMS_IBM_MQMD_Persistence": (b"0", b"1", b"2", b" 2", None),
    "JMS_IBM_MQMD_Priority": (b"-1", b"7", b"odd"),
    "JMS_IBM_MQMD_MsgId": (b"0" * 48, b"a" * 48, None),
    "JMS_IBM_MQMD_PutDate": (b"20260101", b" "),
    "JMS_IBM_MQMD_PutTime": (b"12000000",),
    "JMS_IBM_MQMD_Encoding": (b"273",),
    "JMS_IBM_MQMD_ReplyToQ": (b"ANSWER", b"R"),
    "JMS_IBM_MQMD_ReplyToQMgr": (b"", b"A"),
    "JMS_IBM_MQMD_Expiry": (b"-1", b"600"),
    "JMS_IBM_MQMD_Report": (b"0", b"256"),
    "JMSExpiration": (b"5",),
    "x": (b"1", b"2", None),
}
HEADERS = {INTAKE: ["redrive.oq"], TRANSMISSION: ["redrive.oq", "redrive.id", "redrive.hops"]}
SOURCES = [(INTAKE, None), (TRANSMISSION, None), (TRANSMISSION, ("A", "A.TO.B"))]


@given(st.data(), st.sampled_from(SOURCES), st.lists(st.sampled_from([*NAMED_VALUES]), max_size=9))
def test_prepared_puts_write_what_each_message_does_by_itself(
    data: st.DataObject, source: tuple[str, tuple[str, str] | None], layout: list[str]
) -> None:
    """Records with the same header names in the same order, repeated names too."""
    topic, channel = source
    layout = [*HEADERS[topic], *layout]
    column = st.sampled_from
    row = st.tuples(
        column([b"k", None]),
        column([b"body", bytes(51), None]),
        st.tuples(*(column(NAMED_VALUES[name]) for name in layout)),
        column([NOW, NOW - 5, 0, -1]),
    )
    rows = 3 * data.draw(st.lists(row, min_size=1, max_size=4))  # enough for a prepared put
    topics = {
        "A--Q": TopicFacts(stamps_records=data.draw(st.booleans()), timestamp_before_max=3),
        "B--Q": TopicFacts(max_message_bytes=data.draw(column([20_000, NO_LIMIT]))),
    }

    def decided(*, is_prepared: bool) -> list[tuple[int, OutputRecord]]:
        keys, values, headers, times = map(list, zip(*rows, strict=True))
        pairs = [[*zip(layout, row, strict=True)] for row in headers]
        records = Records(keys, values, pairs, times, [*range(len(rows))])
        if not is_prepared:
            records.grid = None
        work = work_on(None, [], source=topic, channel=channel, records=records)
        return KnownCluster(topics).decided(work)

    assert decided(is_prepared=True) == decided(is_prepared=False)


def test_a_refused_put_becomes_a_dead_letter_and_a_refused_dead_letter_remains() -> None:
    work = work_on(b"body", names("Q"))
    ((entry, put), _) = OPEN.decided(work)
    assert put.topic == "A--Q"
    work.refuse([Refused(entry, 2102, "invalid for the broker")], ["A--Q"])
    ((second, dead), _) = OPEN.decided(work)
    assert dead.topic == DEAD
    header = decode_dead_letter(dead.value, dead.headers or []).header
    assert header is not None
    assert header.reason == 2102
    work.refuse([Refused(second, 2035, "not authorised")], [DEAD])
    (kept,), outcome = results(work)
    assert (kept.topic, kept.partition, kept.key) == ("REMAINING", 2, f"{INTAKE}:2:7".encode())
    assert ("redrive.oq", b"Q") in (kept.headers or [])
    assert (outcome["result"], outcome["reason"]) == ("remains", 2102)
    assert "not authorised" in outcome["detail"]


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({}, ()),
        ({"MsgId": "00" * 24}, ()),
        ({"MsgId": "ab" * 24}, ("MsgId",)),
        ({"MsgId": "ab" * 24, "PutDate": "20200101", "PutTime": "00000000"},
         ("MsgId", "PutDate", "PutTime")),
    ],
)  # fmt: skip
@pytest.mark.parametrize("queue", ["Q", "NONE"])
def test_a_put_has_what_mqput_makes(
    given: dict[str, str], kept: tuple[str, ...], queue: str
) -> None:
    """MQMD, MsgId, PutDate and PutTime; what is given stays, and a channel makes nothing."""
    work = work_on(b"x", names(queue, **given), timestamp=1_768_480_496_789, of=None)
    (put,), _ = results(work)
    fields = mqmd_fields(put.headers or [])
    (again,), _ = results(work_on(b"x", names(queue, **given), timestamp=1_768_480_496_789))
    assert mqmd_fields(again.headers or []) == fields
    (other,), _ = results(work_on(b"x", names(queue, **given), offset=8))
    assert (mqmd_fields(other.headers or [])["MsgId"] == fields["MsgId"]) == ("MsgId" in kept)
    made = {"MsgId": fields["MsgId"], "PutDate": "20260115", "PutTime": "12345678"}
    expected = made | {name: given[name] for name in kept}
    assert {name: fields[name] for name in made} == expected
    assert len(bytes.fromhex(str(fields["MsgId"]))) == 24


@pytest.mark.parametrize("default", ["OPEN", "NOTFIXED", "GROUP"])
def test_puts_of_one_open_or_group_go_one_way(default: str) -> None:
    """``redrive.bind`` names the open, DEFBIND(GROUP) binds groups; other puts choose by each."""
    files = [
        SourceText(
            f"{name}.mqsc",
            f"DEFINE CHANNEL(TO.{name}) CHLTYPE(CLUSRCVR) CLUSTER(C) CONNAME('{name}')\n".encode()
            + (
                b"" if name == "A" else f"DEFINE QLOCAL(I) CLUSTER(C) DEFBIND({default})\n".encode()
            ),
        )
        for name in ("A", "B", "C", "D")
    ]
    topology = topology_of(tuple(files))

    def ways(count: int, *bind: tuple[str, bytes]) -> set[str]:
        written = set()
        for offset in range(count):
            headers = [*names("I"), *bind]
            (put,), _ = results(work_on(b"x", headers, of=topology, offset=offset))
            assert set(dict(bind)) - {"redrive.bind"} <= set(dict(put.headers or []))
            assert "redrive.bind" not in dict(put.headers or [])
            written.add(put.topic)
        return written

    assert len(ways(30)) == 3
    for name in (b"1", b"2", b"3"):
        assert len(ways(10, ("redrive.bind", name))) == 1
        for header in ("JMSXGroupID", "JMS_IBM_MQMD_GroupId"):
            assert (len(ways(30, (header, name))) == 1) is (default == "GROUP")
    groups = ["JMSXGroupID", "JMS_IBM_MQMD_GroupId"] if default == "GROUP" else []
    for header in ("redrive.bind", *groups):
        every = {way for number in range(30) for way in ways(1, (header, b"%d" % number))}
        assert len(every) == 3
    for no_group in (("JMSXGroupID", b" "), ("JMS_IBM_MQMD_GroupId", b"0" * 48)):
        assert len(ways(30, no_group)) == 3


def test_a_refused_report_is_a_dead_letter_and_the_message_is_not_touched() -> None:
    work = work_on(b"body", names("Q", Report="256", ReplyToQ="Q"))
    ((_, put), (report, reported), _) = OPEN.decided(work)
    assert (put.topic, put.value, reported.topic, reported.value) == ("A--Q", b"body", "A--Q", b"")
    work.refuse([Refused(report, 2102, "no room")], ["A--Q"])
    ((_, same), (second, dead), (_, outcome)) = OPEN.decided(work)
    assert (same, dead.topic) == (put, DEAD)
    assert "report of arrival on DEAD.Q@A: 2102 no room" in str(outcome.value)
    work.refuse([Refused(second, 2035, "not authorised")], [DEAD])
    (only,), last = results(work)
    assert (only, last["result"]) == (put, "routed")
    assert last["detail"].startswith("no report of arrival: no room")


def test_a_report_that_is_decided_again_is_the_same() -> None:
    works = [work_on(b"body", names("Q", Report="256", ReplyToQ="Q")) for _ in range(2)]
    first, second = (OPEN.decided(work) for work in works)
    assert first == second


def test_a_put_too_large_to_be_kept_waits_as_a_pointer_and_is_put_whole_when_it_can_be() -> None:
    large = names("Q", "B", Format="MQSTR", Persistence="1")
    large += [("large", b"x" * 600_000)]
    facts = {name: TopicFacts(max_message_bytes=700_000) for name in ("B--Q", "REMAINING")}
    facts["B--Q"] = TopicFacts(max_message_bytes=1_000, is_uncompressed=True)
    outputs = KnownCluster(facts).decided(work_on(b"m", large, source=TRANSMISSION))
    copy, outcome = [record for _, record in outputs]
    assert (copy.topic, json.loads(outcome.value or b"")["result"]) == ("REMAINING", "remains")
    assert wire_size(copy.key, copy.value, copy.headers or []) < 10_000

    place = RecordQuestion(TRANSMISSION, 2, 7)
    for answer, result in (
        (Original(b"k", b"m", large, NOW), "routed"),
        (Original(b"k", b"m", large[:-1], NOW), "remains"),
        (Gone("it has offsets 9 to 40"), "remains"),
    ):
        cluster = KnownCluster(records={place: answer})
        again = work_on(b"m", copy.headers or [], source=TRANSMISSION, kind=SourceKind.UNDELIVERED)
        written = [record for _, record in cluster.decided(again)]
        assert json.loads(written[-1].value or b"")["result"] == result
        if result == "routed":
            assert written[0].topic == "B--Q"
            assert {"JMS_IBM_MQMD_Format", "large"} <= {
                name for name, _ in written[0].headers or []
            }


@pytest.mark.parametrize("kind", [SourceKind.PUTS, SourceKind.UNDELIVERED])
def test_a_channel_stops_at_a_message_that_can_be_put_nowhere(kind: SourceKind) -> None:
    lost = names("NO.SUCH", "B", Persistence="1")
    channel = ("A", "A.TO.B")
    work = work_on(b"x", lost, source=TRANSMISSION, channel=channel, kind=kind)
    written, outcome = results(work)
    (kept,) = [
        record for record in written if record.topic == "REMAINING" and record.value is not None
    ]
    (stopped,) = [record for record in written if record.topic == "TABLES"]
    assert (kept.value, outcome["result"]) == (b"x", "remains")
    states = states_of({(stopped.key or b"").decode(): json.loads(stopped.value or b"")})
    assert states.running == {channel: False}
    assert states.why_stopped[channel] == f"2085 {outcome['detail']}"


@given(
    st.binary(max_size=80) | st.none(),
    st.lists(
        st.tuples(
            st.sampled_from(
                [
                    "redrive.oq", "redrive.oqm", "redrive.id", "redrive.hops", "redrive.next",
                    "JMS_IBM_MQMD_Expiry", "JMS_IBM_MQMD_Persistence", "JMS_IBM_MQMD_Report",
                    "JMS_IBM_MQMD_ReplyToQ", "mqdlh.Reason", "x",
                ]
            ),
            st.binary(max_size=12)
            | st.none()
            | st.sampled_from([b"Q", b"FAR", b"B", b"1", b"%d" % 0x08_000_100, b"%d" % 0xFE0_3F00]),
        ),
        max_size=8,
    ),
    st.sampled_from([INTAKE, TRANSMISSION]),
)  # fmt: skip
def test_every_put_has_one_outcome_and_one_effect_at_most(
    value: bytes | None, headers: Headers, source: str
) -> None:
    """Whatever an application writes on an intake; the body is unchanged or behind its header.

    A report may come with it.
    """
    written, outcome = results(work_on(value, headers, source=source))
    effects = [record for record in written if "redrive.id" in dict(record.headers or [])]
    assert len(effects) == (outcome["result"] not in {"discarded", "expired"})
    assert len(written) - len(effects) <= 1
    for record in effects:
        if outcome["result"] == "routed":
            assert record.value == value
        elif value is not None:
            assert (record.value or b"").endswith(value)


@given(st.lists(st.sampled_from([None, b"", b"-1", b"0", b"3", b"9", b"x"]), max_size=12))
def test_a_channel_takes_its_messages_by_priority_then_as_they_came(
    priorities: list[bytes | None],
) -> None:
    headers: list[Headers] = [
        [*names("Q", "B")]
        if priority is None
        else [*names("Q", "B"), ("JMS_IBM_MQMD_Priority", priority)]
        for priority in priorities
    ]
    numbers = [{b"-1": -1, b"3": 3, b"9": 9}.get(priority or b"", 0) for priority in priorities]
    count = len(numbers)
    records = Records([None] * count, [b"x"] * count, headers, [NOW] * count, list(range(count)))
    expected = [row for level in range(9, -2, -1) for row in range(count) if numbers[row] == level]
    assert by_priority(records, range(count)) == expected
    middle = [row for row in expected if row >= count // 2]
    assert by_priority(records, range(count // 2, count)) == middle


@given(st.lists(st.integers(0, 10**12), unique=True, min_size=200, max_size=200))
def test_seeds_are_stable_and_spread(offsets: list[int]) -> None:
    seeds = [seed_of(f"QM1--redrive-put:0:{offset}") for offset in offsets]
    assert seeds == [seed_of(f"QM1--redrive-put:0:{offset}") for offset in offsets]
    assert len(set(seeds)) > 100


# Message retry of a receiving channel


def disabled(*, with_dead_letters: bool) -> Topology:
    """The two managers, of which the second takes no puts to its queue now."""
    script = SCRIPTS[1].data.replace(b"QLOCAL(Q)", b"QLOCAL(Q) PUT(DISABLED)")
    if with_dead_letters:
        script += b"ALTER QMGR DEADQ(DEAD.Q)\nDEFINE QLOCAL(DEAD.Q)\n"
    return topology_of((SCRIPTS[0], SourceText("B.mqsc", script)))


def tried_again(parked: OutputRecord, retries: int, of: Topology, table: str = "0" * 16) -> Slice:
    """The work on a message that waited for its next try."""
    return work_on(
        parked.value, parked.headers or [], kind=SourceKind.RETRIES, key=parked.key,
        retries=retries, source=TRANSMISSION, timestamp=parked.timestamp, offset=8, of=of,
        table=table,
    )  # fmt: skip


@given(
    retries=st.integers(0, 4),
    enabled_after=st.integers(0, 6),
    value=st.none() | st.binary(max_size=9),
    key=st.none() | st.binary(max_size=9),
    with_dead_letters=st.booleans(),
)
def test_a_receiver_tries_again_as_often_as_mrrty_says(
    *, retries: int, enabled_after: int, value: bytes | None, key: bytes | None,
    with_dead_letters: bool,
) -> None:  # fmt: skip
    """Try by try one copy waits; then the message is put as it was, or is what it would have been.

    What is written in the end is what one try alone would write: nothing of the waiting is left.
    """
    broken = disabled(with_dead_letters=with_dead_letters)
    first = [*names("Q", "B", Persistence="1"), ("colour", b"blue")]
    states = [broken] * enabled_after + [topology()] * 9

    def tried(of: Topology, retries: int = 0) -> Slice:
        return work_on(value, first, source=TRANSMISSION, key=key, of=of, retries=retries)

    work = tried(states[0], retries)
    tries = min(retries, enabled_after)
    for number in range(1, tries + 1):
        ((parked,), outcome) = results(work)
        assert (outcome["result"], outcome["reason"]) == ("parked", 2051)
        assert (outcome["attempt"], parked.topic, parked.partition) == (number, "RETRY", 2)
        work = tried_again(parked, retries, of=states[number])
    written, outcome = results(work)
    expected, alone = results(tried(states[tries]))
    assert written == expected
    assert outcome["attempt"] == tries + 1
    same = ("result", "reason", "message", "origin", "target_topic")
    assert [outcome[name] for name in same] == [alone[name] for name in same]


def test_only_what_may_pass_by_itself_is_tried_again() -> None:
    of = disabled(with_dead_letters=True)
    _, outcome = results(
        work_on(b"b", names("NO.SUCH", "B"), source=TRANSMISSION, of=of, retries=9)
    )
    assert (outcome["result"], outcome["reason"]) == ("dead-lettered", 2085)


def test_changed_definitions_begin_to_count_anew() -> None:
    of = disabled(with_dead_letters=True)
    work = work_on(b"b", names("Q", "B", Expiry="5"), source=TRANSMISSION, of=of, retries=1)
    ((parked,), _) = results(work)
    anew, outcome = results(tried_again(parked, 1, of=of, table="1" * 16))
    assert (outcome["result"], outcome["attempt"]) == ("parked", 1)
    late = parked.headers and [
        (name, b"1" if name == "redrive.timestamp" else raw) for name, raw in parked.headers
    ]
    assert anew
    written, outcome = results(tried_again(parked._replace(headers=late), 1, of=of))
    assert (written, outcome["result"]) == ([], "expired")


# What a rules table puts back

_ASKS = {
    "JMS_IBM_MQMD_Report": b"%d" % 0x100,
    "JMS_IBM_MQMD_ReplyToQ": b"ANSWERS",
    "JMS_IBM_MQMD_ReplyToQMgr": b"QM1",
    "JMS_IBM_MQMD_MsgId": b"0102",
    "JMS_IBM_MQMD_Persistence": b"1",
}


def job_of_rules(rules: str, script: str = "") -> MemoryJob:
    """A job with a rules table for DLQ of QM1, which has Q, ANSWERS, and FAR at QM2."""
    defined = f"DEF QL(Q)\nDEF QL(DLQ)\nALTER QMGR DEADQ(DLQ)\nDEF QL(ANSWERS)\n{script}"
    defined += "DEF QR(FAR) RNAME(Q) RQMNAME(QM2)\nDEF QL(QM2) USAGE(XMITQ)\n"
    return MemoryJob(rules, (SourceText("QM1.mqsc", defined.encode()),))


def returned(job: MemoryJob, queue: str, given: Headers, form: Form) -> list[OutputRecord]:
    """What the job writes for a dead letter with these headers, besides the outcome."""
    header = new_header(given, reason=2053, queue=queue, queue_manager="QM1", timestamp=NOW)
    value, headers = add_header(header, b"an order", given, form=form)
    letter = OutputRecord(DEAD_LETTERS, b"key", value, headers, NOW)
    (decided,) = job.decide(DEAD_LETTERS, [letter])
    return list(decided.written)


@pytest.mark.parametrize("form", Form)
@pytest.mark.parametrize("rule", ["ACTION(RETRY)", "ACTION(FWD) FWDQ(Q) HEADER(NO)"])
def test_what_a_rules_table_puts_on_its_queue_is_reported_as_an_arrival(
    form: Form, rule: str
) -> None:
    """As a put by IBM's handler would be: the report options of the message are still there."""
    message, report = returned(job_of_rules(f"{rule}\n"), "Q", [*_ASKS.items()], form)
    assert (message.topic, message.value, report.topic) == ("QM1--Q", b"an order", "QM1--ANSWERS")
    fields = mqmd_fields(report.headers or [])
    expected = {"MsgType": 4, "Feedback": 259, "CorrelId": "0102", "Persistence": 1, "Report": 0}
    assert {name: fields[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("rule", "queue", "report"),
    [
        ("ACTION(RETRY)", "FAR", 0x100),  # the manager of the queue reports it
        ("ACTION(FWD) FWDQ(Q)", "Q", 0x100),  # it is still a dead letter
        ("ACTION(RETRY)", "Q", 0x800),
    ],
)
@pytest.mark.parametrize("form", Form)
def test_a_rules_table_reports_only_what_arrives(
    rule: str, queue: str, report: int, form: Form
) -> None:
    """Neither what travels on, nor a dead letter, nor what asks for another report (COD)."""
    given: Headers = [*{**_ASKS, "JMS_IBM_MQMD_Report": b"%d" % report}.items()]
    assert len(returned(job_of_rules(f"{rule}\n"), queue, given, form)) == 1


def test_a_report_of_an_arrival_that_no_queue_takes_is_a_dead_letter() -> None:
    job = job_of_rules("ACTION(RETRY)\n", "ALTER QL(ANSWERS) PUT(DISABLED)\n")
    written = returned(job, "Q", [*_ASKS.items()], Form.BINARY)
    assert [record.topic for record in written] == ["QM1--Q", DEAD_LETTERS]


@pytest.mark.parametrize(
    "given",
    [
        [],
        [("JMS_IBM_MQMD_Encoding", b"273"), ("JMS_IBM_MQMD_CodedCharSetId", b"819")],
        [("JMS_IBM_MQMD_Format", b"MQSTR")],
    ],
    ids=["nothing", "a representation", "a format"],
)
def test_a_message_that_comes_back_has_the_descriptor_of_its_first_put(given: Headers) -> None:
    """The intake fills in the representation, and RETRY adds no field that was not there."""

    def put(job: MemoryJob) -> OutputRecord:
        headers: Headers = [("redrive.oq", b"Q"), *given]
        record = OutputRecord("QM1--redrive-put", b"key", b"an order", headers, NOW)
        (decided,) = job.decide(record.topic, [record])
        return decided.written[0]

    def fields(record: OutputRecord) -> dict[str, bytes | None]:
        return {name: raw for name, raw in record.headers or [] if name.startswith("JMS_IBM_MQMD")}

    straight = put(job_of_rules("ACTION(RETRY)\n"))
    letter = put(job_of_rules("ACTION(RETRY)\n", "ALTER QL(Q) PUT(DISABLED)\n"))
    assert (straight.topic, letter.topic) == ("QM1--Q", DEAD_LETTERS)
    (decided,) = job_of_rules("ACTION(RETRY)\n").decide(DEAD_LETTERS, [letter])
    assert fields(decided.written[0]) == fields(straight)
    representation = {"JMS_IBM_MQMD_Encoding": b"546", "JMS_IBM_MQMD_CodedCharSetId": b"1208"}
    assert fields(straight).items() >= (representation | dict(given)).items()


@pytest.mark.parametrize("form", Form)
def test_a_dead_letter_from_elsewhere_gets_no_field_that_it_had_not(form: Form) -> None:
    (message,) = returned(job_of_rules("ACTION(RETRY)\n"), "Q", [], form)
    assert [name for name, _ in message.headers or [] if "MQMD" in name] == []
