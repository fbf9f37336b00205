"""``Outcome`` defines what is written, what is read, and what is documented."""

from __future__ import annotations

from base64 import b64decode
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.engine.failed_processing import (
    ENVELOPE,
    EVERY,
    NAMELESS,
    Fail,
    azure,
    mqdlh,
    mqdlh_headers,
    nameless,
    rabbitmq,
    spring,
    spring_retry_topic,
    watermill,
    wolverine,
)
from tests.engine.samples import NOW, dead_letter, handler_of, outcomes_in, record, written
from tests.engine.test_attempts import outputs_of
from tests.engine.test_replays import ORIGINS, carried_out, instructions

from redrive.engine.commands import Replay
from redrive.engine.edits import Edit, SetHeader
from redrive.engine.outcome import (
    COLUMNS,
    LONGEST_KEY,
    LONGEST_TEXT,
    Outcome,
    Result,
    replay_members,
)
from redrive.engine.sources import SourceKind
from redrive.messages import (
    DeadLetterDecoder,
    DeadLetterHeader,
    Headers,
    OutputRecord,
    Records,
    Representation,
    encode_header,
    read_view,
)
from redrive.messages.dead_letter_header import UTF8_LITTLE_ENDIAN
from redrive.messages.own_headers import GROUP_TOPIC, GroupTopic
from redrive.messages.schemes import SCHEME_NAMES, SchemeTable
from redrive.outcomes.rows import row_of

TRACE: Headers = [("traceparent", b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")]
FAILED: Headers = [
    ("__connect.errors.topic", b"orders"), ("__connect.errors.partition", b"0"),
    ("__connect.errors.offset", b"7"), ("__connect.errors.exception.class.name", b"java.io.X"),
    ("__connect.errors.connector.name", b"billing"),
]  # fmt: skip


def members_of(text: str) -> dict[str, Any]:
    """Members without the braces, as values."""
    members: dict[str, Any] = orjson.loads(f"{{{text}}}")
    return members


def decided(**facts: Any) -> dict[str, Any]:
    """The members of a decision of which only some matter."""
    facts = {
        "handler": "dlq", "queue_manager": "", "queue": "DLQ", "table": "0123456789abcdef",
        "attempt": 1, "result": Result.PARKED, "reason": 0, "detail": "", "form": "headers",
        "target_queue_manager": "", "target_queue": "", "target_topic": "", "fields": {}, **facts,
    }  # fmt: skip
    return members_of(Outcome(**facts).members)


@pytest.mark.parametrize(
    "records",
    [
        record(b"x", dead_letter(2053, "Q1")),
        record(b"x", [*dead_letter(2035), *TRACE]),
        record(None, dead_letter(2051), key=None),
        record(b"no dead letter", [], key=b""),
        record(b"x", FAILED, key=b"k" * (LONGEST_KEY + 1)),
    ],
    ids=["put", "with a trace", "without a key", "no dead letter", "a long key"],
)
def test_what_is_written_for_a_message_is_an_outcome(records: Records) -> None:
    [output] = written(outputs_of(records, handler_of()), "OUT")
    outcome = orjson.loads(output.value or b"")
    key = outcome.pop("key")
    assert members_of(Outcome(**outcome).members) == outcome
    row = row_of(output.value, 0, 0, 0)
    assert row.malformed is None
    assert row.source_incarnation == outcome["incarnation"]
    assert row.message_key == (None if key is None else b64decode(key))


def test_each_column_has_a_value_in_some_outcome() -> None:
    message = ("__connect.errors.exception.message", b"denied")
    letter = record(b"x", [*FAILED, message, *TRACE])
    timed = spring(OutputRecord("orders", b"k", b"x", [], 5), 7, NOW)
    replay = Replay(plan="p", operator="ann", purpose="why", edit=Edit((SetHeader("a", b"1"),)))
    outputs = [
        *written(outputs_of(letter, handler_of("ACTION(FWD) FWDQ(Q)")), "OUT"),
        *written(outputs_of(record(b"x", dead_letter(2053, "Q1")), handler_of()), "OUT"),
        *written(outputs_of(record(b"x", timed.headers or []), handler_of()), "OUT"),
        *written(carried_out(instructions((ORIGINS[0], "p")), replay), "OUT"),
        OutputRecord("OUT", None, b"no outcome", [], NOW),
    ]
    rows = [row_of(output.value, NOW, 0, 0)._asdict() for output in outputs]
    filled = {name for row in rows for name, value in row.items() if value is not None}
    assert {column.name for column in COLUMNS} - filled == set()


def test_every_scheme_has_a_dead_letter_here() -> None:
    """``EVERY`` is what the tests of rounds, puts and outcomes go through."""
    schemes = SchemeTable([ENVELOPE.scheme(), NAMELESS.scheme()])
    letters = [fail(OutputRecord("orders", b"k", b"x", [], 5), 7, NOW) for fail in EVERY]
    named = {
        read_view(letter.key, letter.value, letter.headers or [], schemes=schemes).scheme
        for letter in letters
    }
    assert named == {*SCHEME_NAMES, ENVELOPE.name, NAMELESS.name}


def test_an_outcome_names_the_replay_that_asked_for_it() -> None:
    replay = Replay(plan="5f2ac9d01b7e", operator="ann@host", purpose="ticket 4711")
    members = members_of(replay_members(replay))
    assert members == {"replay": "5f2ac9d01b7e", "operator": "ann@host", "purpose": "ticket 4711"}
    assert members.items() <= decided(**members).items()


def test_what_an_earlier_version_did_not_know_is_left_out_where_it_is_empty() -> None:
    row = decided(error_class="", consumer_group="", action="")
    assert row["action"] == ""
    assert {"error_class", "consumer_group", "incarnation", "replay"}.isdisjoint(row)
    assert decided(error_class="java.io.X")["error_class"] == "java.io.X"


def test_a_reason_is_named() -> None:
    assert decided(reason=2053)["reason_name"] == "MQRC_Q_FULL"
    assert decided(reason=0)["reason_name"] == ""


@pytest.mark.parametrize("length", [LONGEST_TEXT, LONGEST_TEXT + 1])
def test_a_text_is_cut_only_where_it_is_too_long(length: int) -> None:
    text = "ä" * length
    row = decided(detail=text, fields={"DESTQ": text, "REASON": 2053})
    for shown in (row["detail"], row["fields"]["DESTQ"]):
        assert (shown == text) == (length == LONGEST_TEXT)
        assert shown.startswith("ä" * LONGEST_TEXT)
    assert row["fields"]["REASON"] == 2053


def test_the_documentation_lists_every_column() -> None:
    text = (Path(__file__).parents[2] / "docs" / "ledger.md").read_text()
    rows = "\n".join(
        f"| `{column.name}` | {column.kind} | {column.meaning} |" for column in COLUMNS
    )
    assert f"\n\n| column | type | meaning |\n|---|---|---|\n{rows}\n\n" in text


NAMING_NONE = (azure, mqdlh, mqdlh_headers, nameless, rabbitmq, watermill, wolverine)
"""Dead letters that do not say which record failed."""


@pytest.mark.parametrize("fail", EVERY)
@pytest.mark.parametrize("is_prepared", [True, False])
def test_outcome_names_the_record_that_failed(fail: Fail, *, is_prepared: bool) -> None:
    letters = [fail(OutputRecord("orders", b"k", b"x", [], 5), offset, NOW) for offset in (7, 8)]
    headers = [letter.headers or [] for letter in letters]
    if not is_prepared:
        headers[1] = [*headers[1], ("x", b"1")]
    keys, values = [letter.key for letter in letters], [letter.value for letter in letters]
    table = SchemeTable([ENVELOPE.scheme(), NAMELESS.scheme()])
    outputs = outputs_of(
        Records(keys, values, headers, [NOW, NOW], [3, 4]),
        handler_of("DIALECT(KAFKA)\nACTION(RETRY)", schemes=table),
        decoder=DeadLetterDecoder(),
    )
    named = [outcome.get("failed_record") for outcome in outcomes_in(outputs)]
    assert named == ([None, None] if fail in NAMING_NONE else ["orders:0:7", "orders:0:8"])


def stamped(fail: Fail, failed: int, record_time: int) -> OutputRecord:
    """A dead letter whose header, where its scheme has one, says when it failed."""
    letter = fail(OutputRecord("orders", b"k", b"x", [], record_time), 7, NOW - 10)
    headers = letter.headers or []
    text = datetime.fromtimestamp(failed / 1000, UTC)
    match fail:
        case _ if fail is wolverine:
            headers = [*headers, ("failed-at", b"%d" % failed)]
        case _ if fail is rabbitmq:
            headers = [*headers, ("x-death", orjson.dumps([{"time": text.isoformat()}]))]
        case _ if fail is mqdlh_headers:
            date, time = f"{text:%Y%m%d}".encode(), f"{text:%H%M%S}".encode()
            headers = [*headers, ("mqdlh.PutDate", date), ("mqdlh.PutTime", time)]
    return letter._replace(headers=headers)


NAMING_FAILURE = (wolverine, rabbitmq, mqdlh_headers)
"""Dead letters whose headers say when the processing failed."""
NAMING_RECORD_TIME = (spring, spring_retry_topic)
"""Dead letters that name the timestamp of the record."""


@pytest.mark.parametrize("fail", EVERY)
@pytest.mark.parametrize("is_prepared", [True, False])
@pytest.mark.parametrize("rule", ["ACTION(RETRY)", "ACTION(DISCARD)", "TOPIC(a) ACTION(RETRY)"])
def test_outcome_has_the_time_of_the_failure(fail: Fail, rule: str, *, is_prepared: bool) -> None:
    failed, record_time = NOW - 60_000, NOW - 80_000
    letter = stamped(fail, failed, record_time)
    headers = [letter.headers or [], letter.headers or []]
    if not is_prepared:
        headers[1] = [*headers[1], ("x", b"1")]
    table = SchemeTable([ENVELOPE.scheme(), NAMELESS.scheme()])
    outputs = outputs_of(
        Records([letter.key] * 2, [letter.value] * 2, headers, [letter.timestamp] * 2, [3, 4]),
        handler_of(f"DIALECT(KAFKA)\n{rule}", schemes=table),
        decoder=DeadLetterDecoder(),
    )
    expected = failed if fail in NAMING_FAILURE else letter.timestamp
    outcomes = outcomes_in(outputs)
    assert [outcome["failed_at"] for outcome in outcomes] == [expected] * 2
    named = record_time if fail in NAMING_RECORD_TIME else None
    assert [outcome.get("record_time") for outcome in outcomes] == [named] * 2


@pytest.mark.parametrize("representation", [UTF8_LITTLE_ENDIAN, Representation("big", 500)])
def test_failure_in_front_of_a_body_has_its_hundredths(representation: Representation) -> None:
    header = DeadLetterHeader(
        reason=2053, put_date="19700101", put_time="00010207", representation=representation
    )
    [outcome] = outcomes_in(outputs_of(record(encode_header(header) + b"x", []), handler_of()))
    assert (outcome["form"], outcome["failed_at"]) == ("mqdlh", 62_070)


@pytest.mark.parametrize("timestamp", [-1, 0])
def test_dead_letter_without_a_time_has_none_of_a_failure(timestamp: int) -> None:
    records = Records([b"k"], [b"x"], [dead_letter(2053, "Q1")], [timestamp], [3])
    [outcome] = outcomes_in(outputs_of(records, handler_of()))
    assert "failed_at" not in outcome


def test_failure_is_never_later_than_the_attempt() -> None:
    letter = stamped(wolverine, NOW + 60_000, NOW)
    [outcome] = outcomes_in(outputs_of(record(b"x", letter.headers or []), handler_of()))
    assert outcome["failed_at"] == outcome["time"] == NOW


@pytest.mark.parametrize("kind", [SourceKind.RETRIES, SourceKind.REMAINING])
def test_copy_failed_when_its_dead_letter_did(kind: SourceKind) -> None:
    letter = spring(OutputRecord("orders", b"k", b"x", [], 5), 7, NOW)
    more: Headers = [
        ("redrive.id", b"DLQ:0:3"), ("redrive.origin", b"DLQ:0:3"), ("redrive.timestamp", b"9"),
    ]  # fmt: skip
    copy = record(b"x", [*(letter.headers or []), *more])
    [outcome] = outcomes_in(outputs_of(copy, handler_of(), kind=kind))
    assert (outcome["failed_at"], outcome["record_time"]) == (9, 5)


@pytest.mark.parametrize("kind", [SourceKind.RETRIES, SourceKind.REMAINING])
def test_outcome_of_a_copy_names_the_record_that_failed(kind: SourceKind) -> None:
    letter = spring(OutputRecord("orders", b"k", b"x", [], 5), 7, NOW)
    more: Headers = [("redrive.id", b"DLQ:0:3"), ("redrive.origin", b"DLQ:0:3")]
    copy = record(b"x", [*(letter.headers or []), *more])
    [outcome] = outcomes_in(outputs_of(copy, handler_of(), kind=kind))
    assert outcome["failed_record"] == "orders:0:7"


def test_record_that_failed_on_a_groups_topic_has_its_place_there() -> None:
    letter = spring(OutputRecord("orders.billing", b"k", b"x", [], 5), 7, NOW)
    back = GroupTopic("orders.billing", "orders", 2)
    headers: Headers = [*(letter.headers or []), (GROUP_TOPIC, back.value)]
    [outcome] = outcomes_in(outputs_of(record(b"x", headers), handler_of()))
    assert outcome["failed_record"] == "orders.billing:0:7"
    assert outcome["fields"]["DESTQ"] == "orders"


@pytest.mark.parametrize(
    ("name", "raw"),
    [
        ("original-topic", b'x","result":"retried'), ("original-topic", b""),
        ("original-topic", b"a" * 250), ("original-partition", b"\xff" * 4),
        ("original-partition", b"1"), ("original-offset", b"\xff" * 8), ("original-offset", b""),
    ],
)  # fmt: skip
def test_invalid_place_of_a_record_is_left_out(name: str, raw: bytes) -> None:
    """Anybody may write a header, and the text goes into JSON as it is."""
    letter = spring(OutputRecord("orders", b"k", b"x", [], 5), 7, NOW)
    headers = [
        (header, raw if header == f"kafka_dlt-{name}" else was)
        for header, was in letter.headers or []
    ]
    [outcome] = outcomes_in(outputs_of(record(b"x", headers), handler_of()))
    assert "failed_record" not in outcome
