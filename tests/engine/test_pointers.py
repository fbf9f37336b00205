"""Dead letters without their payload: it is fetched from the origin before it is put anywhere."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest
from tests.conformance.rules_driver import IDENTITY
from tests.engine.known_cluster import KnownCluster
from tests.engine.samples import handler_of, outcomes_in, record, slice_of, written

from redrive.engine.attempts import Resolvers
from redrive.engine.facts import Answers, Gone, Original, RecordQuestion, TopicFacts
from redrive.engine.rules_decider import RulesDecider
from redrive.engine.slice import Slice
from redrive.engine.sources import SourceKind
from redrive.messages import (
    DeadLetterDecoder,
    Headers,
    Records,
    SchemeTable,
    wire_size,
)
from redrive.messages import own_headers as own
from redrive.messages.schemes.own import OwnScheme
from redrive.rules import RulesTable, parse
from redrive.topology.put import Destination

PLACE = RecordQuestion("jobs", 2, 9)
TOLD: Headers = [
    ("__dlq.errors.topic", b"jobs"), ("__dlq.errors.partition", b"2"),
    ("__dlq.errors.offset", b"9"), ("__dlq.errors.group", b"workers"),
]  # fmt: skip
"""What a share group says of a record that it rejected."""
FOUND = Original(b"k9", b"payload", [("trace", b"1"), ("redrive.hops", b"3")], 1_234)
BACK = "ACTION(RETRY) RETRY(2)"


def pointing(handler: RulesDecider, headers: Headers = TOLD, value: bytes | None = None) -> Slice:
    """One attempt on one dead letter that points at its payload."""
    decoder = DeadLetterDecoder()
    return slice_of(record(value, headers, key=None), handler, partition=0, decoder=decoder)


SMALL = {name: TopicFacts(max_message_bytes=700_000) for name in ("RETRY", "REMAINING")}
"""Topics that do not take a copy of what comes."""
NOISE = random.Random(1).randbytes(600_000)


@pytest.mark.parametrize(
    ("large", "part"),
    [
        (Original(b"k", NOISE, [("a", b"1")], 77), "value"),
        (Original(NOISE, b"v", [("a", b"1")], 77), "key"),
        (Original(b"k", b"v", [("a", b"1"), ("large", NOISE)], 77), "headers"),
        (Original(b"k", b"v", [(f"{n:03}" * 1000, None) for n in range(200)], 77), "headers"),
    ],
)
@pytest.mark.parametrize("kind", [SourceKind.REMAINING, SourceKind.RETRIES])
def test_what_is_too_large_to_be_copied_waits_as_a_pointer_to_its_original(
    kind: SourceKind, large: Original, part: str
) -> None:
    mqdlh = ("mqdlh.Reason", b"2053"), ("mqdlh.DestQName", b"Q")
    pointer = replace(large, headers=[*mqdlh, *large.headers])
    table = "ACTION(IGNORE)" if kind is SourceKind.REMAINING else BACK
    facts = SMALL | {"Q": TopicFacts(max_message_bytes=1_000)}
    topic = "REMAINING" if kind is SourceKind.REMAINING else "RETRY"
    cluster = KnownCluster(facts)
    outputs = cluster.decided(work_on(table, SourceKind.DEAD_LETTERS, pointer))
    (outcome,) = written(outputs, "OUT")
    (copy,) = written(outputs, topic)
    assert wire_size(copy.key, copy.value, copy.headers or []) < 700_000 - 100_000
    detail = json.loads(outcome.value or b"")["detail"]
    assert f"cut from the copy: {part} (" in detail
    assert detail.endswith("the original is at DLQ:0:0")

    cluster = KnownCluster(records={RecordQuestion("DLQ", 0, 0): pointer})
    kept = Original(copy.key, copy.value, copy.headers or [], 77)
    (put,) = written(cluster.decided(work_on(BACK, kind, kept)), "Q")
    assert (put.key, put.value) == (large.key, large.value)
    assert (put.headers or [])[: len(large.headers)] == large.headers
    again = cluster.decided(work_on("ACTION(IGNORE)", kind, kept))
    assert own.CUT not in dict(written(again, "REMAINING")[0].headers or [])

    for original, why in (
        (replace(pointer, value=b"another"), "another record"),
        (Gone("it has offsets 12 to 40"), "12 to 40"),
    ):
        if part != "value" and isinstance(original, Original):
            continue
        gone = KnownCluster(SMALL, records={RecordQuestion("DLQ", 0, 0): original})
        outputs = gone.decided(work_on(BACK, kind, kept))
        (became,) = outcomes_in(outputs)
        assert (became["result"], why in became["detail"]) == ("remains", True)
        assert own.CUT in dict(written(outputs, "REMAINING")[0].headers or [])


def test_an_outcome_is_small_whatever_the_record_says() -> None:
    text = "\u2603\u0000" * 500_000
    headers: Headers = [
        *(
            (f"mqdlh.{name}", text.encode())
            for name in ("DestQName", "DestQMgrName", "PutApplName")
        ),
        ("mqdlh.Reason", b"2053"),
        *((f"JMS_IBM_MQMD_{name}", text.encode()) for name in ("UserIdentifier", "ReplyToQ")),
        ("traceparent", text.encode()),
    ]
    for table in (BACK, "ACTION(FWD) FWDQ(&REPLYQ)", "ACTION(IGNORE)"):
        work = work_on(table, SourceKind.DEAD_LETTERS, Original(NOISE, NOISE, headers, 77))
        (outcome,) = written(KnownCluster(SMALL).decided(work), "OUT")
        assert len(outcome.value or b"") < 200_000


def work_on(table: str, kind: SourceKind, original: Original) -> Slice:
    """One attempt on one record, whatever it is."""
    rows = Records([original.key], [original.value], [original.headers], [original.timestamp], [0])
    return slice_of(rows, handler_of(table), kind=kind, topic="DLQ", partition=0)


def test_a_rule_that_puts_nothing_asks_for_nothing() -> None:
    for action in ("DISCARD", "IGNORE"):
        assert not pointing(handler_of(f"ACTION({action})")).decide().records


def test_an_envelope_of_ones_own_may_point_too() -> None:
    scheme = OwnScheme(
        name="envelope",
        recognise="$.failed",
        payload="$.payload",
        parts={"origin.topic": "$.t", "origin.partition": "$.p", "origin.offset": "$.o"},
    )
    text = "DIALECT(KAFKA)\nACTION(FWD) FWDT('&TOPIC') HEADER(NO)"
    table: RulesTable = parse(text).required()
    handler = RulesDecider(
        IDENTITY,
        table,
        Resolvers(lambda _, queue, __: Destination(topic=queue, queue=queue, queue_manager="")),
        hop_limit=25,
        schemes=SchemeTable([scheme.scheme()]),
    )
    value = b'{"failed": "x", "t": "jobs", "p": 2, "o": 9}'
    outputs = KnownCluster(records={PLACE: FOUND}).decided(pointing(handler, [], value))
    (put,) = written(outputs, "jobs")
    assert (put.key, put.value) == (b"k9", b"payload")


def test_a_slice_whose_payloads_are_too_large_together_is_split() -> None:
    work = pointing(handler_of(BACK))
    questions = work.decide()
    assert questions.records == {PLACE}
    work.learn(Answers(records={}))
    assert work.has_to_be_split
    work.resume({})
    work.decide()
    work.learn(Answers(records={PLACE: FOUND}))
    assert not work.has_to_be_split
