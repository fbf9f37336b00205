"""What dead letters of every scheme say, against a naive reading, and whatever is in them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conformance.vectors import load, octets
from tests.messages.samples import messages
from tests.messages.schemes import reference

from redrive.messages import (
    DeadLetterView,
    Headers,
    decode_dead_letter,
    original_key,
    read_view,
    remove_header,
    without_stacks,
)
from redrive.messages.schemes import SCHEME_NAMES, Scheme, known
from redrive.messages.schemes.known import SCHEMES
from redrive.messages.schemes.scheme import ENCODINGS, Origin


def told_by(view: DeadLetterView, part: str) -> Any:
    """A part of a view by the name that the naive reading has for it."""
    prefix, _, rest = part.rpartition(".")
    return getattr(view.origin if prefix else view, rest)


@pytest.mark.parametrize("scheme", sorted(reference.SCHEMES))
@settings(max_examples=30)
@given(data=st.data())
def test_every_part_is_what_a_naive_reading_finds(scheme: str, data: st.DataObject) -> None:
    headers = data.draw(reference.headers_of(scheme))
    view = read_view(b"k", b"v", headers)
    assert view.scheme == scheme
    expected = reference.read(scheme, headers)
    assert {part: told_by(view, part) for part in expected} == expected


@pytest.mark.parametrize("scheme", sorted(reference.SCHEMES))
@settings(max_examples=30)
@given(data=st.data())
def test_the_first_origin_is_that_of_the_oldest_headers(scheme: str, data: st.DataObject) -> None:
    headers = data.draw(reference.headers_of(scheme))
    view = read_view(b"k", b"v", headers)
    oldest = reference.read(scheme, headers, oldest=True)
    parts = ("topic", "partition", "offset", "timestamp")
    expected = Origin(**{part: oldest.get(f"origin.{part}") for part in parts})
    failed_again = view.hop is not None and view.hop > 1 and expected.topic is not None
    assert view.first_origin == (expected if failed_again else view.origin)


@settings(max_examples=30)
@given(st.permutations(sorted({"connect", "spring-dlt", "kafka-streams", "karafka"})), st.data())
def test_the_scheme_that_was_appended_last_counts(order: list[str], data: st.DataObject) -> None:
    sets = [data.draw(reference.headers_of(scheme)) for scheme in order]
    headers = [pair for headers_of_scheme in sets for pair in headers_of_scheme]
    view = read_view(None, None, headers)
    assert view.scheme == order[-1]
    assert view.origin.topic == reference.read(order[-1], sets[-1])["origin.topic"]
    assert view.hop is not None
    assert view.hop >= len(order)


def test_headers_that_are_added_in_front_are_newest_in_front() -> None:
    headers: Headers = [
        ("dead-letter-reason", b"again"),
        ("dead-letter-topic", b"orders.dlq"),
        ("dead-letter-reason", b"boom"),
        ("dead-letter-topic", b"orders"),
        ("delayed-retry-count", b"1"),
        ("delayed-retry-topic", b"earlier"),
        ("delayed-retry-count", b"2"),
    ]
    view = read_view(b"k", b"v", headers)
    assert (view.scheme, view.error_message, view.hop) == ("smallrye-dead-letter", "again", 3)
    assert (view.origin.topic, view.first_origin.topic) == ("orders.dlq", "earlier")
    assert read_view(b"k", b"v", headers[4:]).attempts == 2
    connect = ("__connect.errors.topic", b"jobs")
    assert read_view(b"k", b"v", [*headers, connect]).scheme == "connect"
    assert read_view(b"k", b"v", [connect, *headers[:4]]).scheme == "smallrye-dead-letter"


_UFORWARDER_KEY = (
    b"\x08\x02\x12\x06orders\x18\x03\x28\x80\xc0\xca\xf3\xd0\xa4\xf5\xc2\x18\x32\x02k1"
)


def test_a_key_of_uforwarder_tells_the_origin_and_holds_the_key() -> None:
    """The fields of its protobuf message; one that is left out is 0."""
    headers: Headers = [("original_cluster", b"a")]
    view = read_view(_UFORWARDER_KEY, b"v", headers)
    assert (view.origin.topic, view.origin.partition, view.origin.offset) == ("orders", 3, 0)
    assert view.attempts == 2
    profile = decode_dead_letter(b"v", headers, key=_UFORWARDER_KEY)
    assert original_key(profile, _UFORWARDER_KEY, headers) == b"k1"


@given(st.binary(max_size=30))
def test_any_bytes_may_be_a_key_of_uforwarder(key: bytes) -> None:
    headers: Headers = [("original_cluster", b"a")]
    view = read_view(key, b"v", headers)
    profile = decode_dead_letter(b"v", headers, key=key)
    assert view.scheme == "uforwarder"
    if view.origin.topic is None:
        assert original_key(profile, key, headers) == key


def test_deaths_of_rabbitmq_are_read_from_json() -> None:
    """The newest entry of ``x-death`` tells; text headers tell where there is none."""
    deaths = b'[{"queue":"q2","reason":"rejected","count":3,"time":1767225600},{"queue":"q1"}]'
    headers: Headers = [("x-death", deaths), ("x-first-death-queue", b"q1")]
    view = read_view(None, b"v", headers)
    assert (view.scheme, view.origin.topic, view.attempts) == ("rabbitmq", "q2", 3)
    assert (view.error_message, view.failed_at) == ("rejected", 1_767_225_600_000)
    assert view.first_origin.topic == "q1"
    assert read_view(None, b"v", headers[:1]).first_origin.topic == "q2"
    assert read_view(None, b"v", headers[1:]).origin.topic == "q1"
    for time in (b"true", b"null", b'"soon"', b"1.5"):
        odd: Headers = [("x-death", b'[{"queue":"q","time":%s}]' % time)]
        assert read_view(None, b"v", odd).failed_at is None


def test_the_key_of_karafka_comes_back() -> None:
    cases: list[tuple[Headers, bytes | None]] = [
        ([("source_key", b"k1")], b"k1"),
        ([("source_key", b"")], None),
        ([], b"7"),
    ]
    for rest, expected in cases:
        headers: Headers = [("source_topic", b"t"), ("source_partition", b"7"), *rest]
        profile = decode_dead_letter(b"v", headers, key=b"7")
        assert original_key(profile, b"7", headers) == expected


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda scheme: scheme.name)
def test_all_headers_of_a_scheme_are_its_own(scheme: Scheme) -> None:
    read = {part.header for parts in scheme.parts.values() for part in parts if part.header}
    assert all(map(scheme.owns, read | set(scheme.leading)))
    assert not scheme.owns("traceparent")


@pytest.mark.parametrize("scheme", sorted(reference.SCHEMES))
@settings(max_examples=30)
@given(data=st.data())
def test_going_back_takes_every_header_of_the_scheme_off(scheme: str, data: st.DataObject) -> None:
    headers = data.draw(reference.headers_of(scheme))
    profile = decode_dead_letter(b"v", headers, key=b"k")
    value, kept = remove_header(profile, b"v", headers)
    assert value == b"v"
    assert kept == [pair for pair in headers if pair[0] in {"trace", "content-type"}]


def test_stack_traces_never_travel_on() -> None:
    headers: Headers = [
        ("__connect.errors.topic", b"t"),
        ("__connect.errors.exception.stacktrace", b"x" * 10_000),
        ("kafka_dlt-original-topic", b"u"),
        ("kafka_dlt-exception-stacktrace", b"y" * 10_000),
    ]
    kept = without_stacks(decode_dead_letter(b"v", headers), headers)
    assert [name for name, _ in kept] == ["__connect.errors.topic", "kafka_dlt-original-topic"]


def test_every_scheme_that_is_defined_is_looked_for() -> None:
    defined = [scheme for scheme in vars(known).values() if isinstance(scheme, Scheme)]
    assert {*defined} - {*SCHEMES} == {known.SPRING_CLOUD_STREAM_EMBEDDED}


def test_every_scheme_of_the_specification_is_known() -> None:
    assert set(SCHEME_NAMES) - set(reference.SCHEMES) == {
        "smallrye-delayed-retry",
        "uforwarder",
        "rabbitmq",
        "azure-service-bus",
        "redrive",
        "mqdlh",
    }
    assert set(reference.SCHEMES) < set(SCHEME_NAMES)


@pytest.mark.parametrize(
    ("scheme", "name", "second"),
    [
        ("karafka", "source_topic", "source_partition"),
        ("karafka", "original_topic", "original_offset"),
        ("karafka", "original-topic", "original-partition"),
        ("spring-cloud-stream", "x-original-topic", "x-exception-message"),
        ("wolverine", "exception-type", "exception-message"),
    ],
)
def test_generic_name_alone_is_no_scheme(scheme: str, name: str, second: str) -> None:
    assert read_view(b"k", b"v", [(name, b"orders"), ("error", b"a.B")]).scheme is None
    assert read_view(b"k", b"v", [(name, b"orders"), (name, b"bills")]).scheme is None
    assert read_view(b"k", b"v", [("error", b"a.B"), (second, b"1"), (name, b"t")]).scheme == scheme
    connect: Headers = [("__connect.errors.topic", b"jobs"), (name, b"orders")]
    assert read_view(b"k", b"v", connect).scheme == "connect"


COPIES = [
    ("dead-letter-topic", "deserialization-failure-data"),
    ("dead-letter-topic", "deserialization-failure-value-data"),
    ("delayed-retry-topic", "deserialization-failure-key-data"),
    ("kafka_dlt-original-topic", "springDeserializerExceptionValue"),
    ("kafka_original-topic", "springDeserializerExceptionKey"),
]


@pytest.mark.parametrize(("leading", "copy"), COPIES)
def test_copies_of_what_cannot_be_deserialised_never_travel_on(leading: str, copy: str) -> None:
    headers: Headers = [("trace", b"1"), (copy, b"x" * 10_000), (leading, b"orders")]
    profile = decode_dead_letter(b"v", headers)
    assert remove_header(profile, b"v", headers) == (b"v", [("trace", b"1")])
    assert without_stacks(profile, headers) == [("trace", b"1"), (leading, b"orders")]


def test_what_smallrye_says_of_deserialisation_goes_with_its_headers() -> None:
    names = ("reason", "cause", "key", "topic", "data", "deserializer", "dlq")
    headers: Headers = [
        ("dead-letter-topic", b"t"), *((f"deserialization-failure-{name}", b"") for name in names)
    ]  # fmt: skip
    assert remove_header(decode_dead_letter(b"v", headers), b"v", headers) == (b"v", [])


@pytest.mark.parametrize(
    "name",
    ["__Connect.errors.topic", "__connect.errors.stage", "kafka_dlt-original-consumer-group"],
)
def test_other_headers_are_no_scheme(name: str) -> None:
    assert read_view(b"k", b"v", [(name, b"x")]).scheme is None


@pytest.mark.parametrize(
    ("encoding", "raw", "value"),
    [
        ("text", b"a\xff", "a\ufffd"),
        ("decimal", b" -7 ", -7),
        ("decimal", b"9223372036854775807", 2**63 - 1),
        ("decimal", b"9223372036854775808", None),
        ("decimal", b"99999999999999999999", None),
        ("decimal", b"7 7", None),
        ("decimal", b"", None),
        ("int32be", b"\xff\xff\xff\xfe", -2),
        ("int32be", b"\0\0\1", None),
        ("int64be", b"\0\0\0\0\0\0\1\0", 256),
        ("int64be", b"\0\0\1\0", None),
        ("biginteger", b"\xff", -1),
        ("biginteger", b"\1\0", 256),
        ("biginteger", b"", None),
        ("biginteger", bytes(9), None),
        ("iso8601", b" 2026-01-15T12:34:56.5+01:00 ", 1_768_476_896_500),
        ("iso8601", b"2026-01-15T12:34:56", 1_768_480_496_000),
        ("iso8601", b"1768480496000", None),
        ("time", b"1768480496000", 1_768_480_496_000),
        ("time", b"2026-01-15T12:34:56Z", 1_768_480_496_000),
        ("class", b" a.B : c: d", "a.B"),
        ("class", b": c", None),
        ("class", b"a" * 1025, "a" * 1024),
        ("cause", b"a.B\n\tat x\nCaused by: c.D: e\nCaused by: f.G\n\t... 5 more", "f.G"),
        ("cause", b"a.B\n\tSuppressed: x\n\tCaused by: y", None),
        ("cause", b"a.B: x Caused by: c.D: y", "c.D"),
        ("cause", b"\nCaused by: : y", None),
    ],
)
def test_an_encoding_reads_what_it_can(encoding: str, raw: bytes, value: str | int | None) -> None:
    assert reference.READERS[encoding](raw) == value


@given(st.binary(max_size=40), st.sampled_from(sorted(ENCODINGS)))
def test_nothing_makes_an_encoding_raise(raw: bytes, encoding: str) -> None:
    assert isinstance(ENCODINGS[encoding](raw), str | int | None)


@given(messages, st.none() | st.binary(max_size=12))
def test_nothing_in_a_message_makes_reading_raise(
    message: tuple[bytes | None, Headers], key: bytes | None
) -> None:
    value, headers = message
    view = read_view(key, value, headers)
    profile = decode_dead_letter(value, headers, key=key)
    assert profile.is_dead_letter is (view.scheme is not None)
    assert profile.view == _shared(view)


def _shared(view: DeadLetterView) -> DeadLetterView:
    """A view without what differs in nearly every message."""
    return replace(
        view,
        origin=replace(view.origin, offset=None, timestamp=None),
        first_origin=replace(view.first_origin, offset=None, timestamp=None),
        error_message=None,
        error_stack=None,
        first_failed_at=None,
        failed_at=None,
    )


def _fixtures(directory: Path) -> list[tuple[bytes | None, bytes | None, Headers]]:
    return [
        (
            octets(vector["key"]),
            octets(vector["value"]),
            [(name, octets(content)) for name, content in vector["headers"]],
        )
        for vector in load(directory, "schemes")
    ]


def test_mutated_dead_letters_are_always_read(pytestconfig: pytest.Config) -> None:
    chance = Random(1)
    fixtures = _fixtures(pytestconfig.getoption("vectors"))
    seen = set()
    for _ in range(5_000):
        key, value, headers = chance.choice(fixtures)
        headers = _mutated(list(headers), chance)
        view = read_view(_bytes(key, chance), _bytes(value, chance), headers)
        profile = decode_dead_letter(value, headers, key=key)
        remove_header(profile, value, headers)
        seen.add(view.scheme)
    assert len(seen) > 8


def _mutated(headers: Headers, chance: Random) -> Headers:
    for _ in range(chance.randrange(4)):
        at = chance.randrange(len(headers) + 1)
        other = chance.choice(headers) if headers else ("x", b"")
        match chance.randrange(5):
            case 0:
                headers.insert(at, (other[0], _bytes(other[1], chance)))
            case 1 if headers:
                del headers[at % len(headers)]
            case 2 if headers:
                name, raw = headers[at % len(headers)]
                headers[at % len(headers)] = name, _bytes(raw, chance)
            case 3:
                chance.shuffle(headers)
            case _:
                headers.insert(at, (other[0][:-1], None))
    return headers


def _bytes(raw: bytes | None, chance: Random) -> bytes | None:
    match chance.randrange(4):
        case 0:
            return None
        case 1:
            return (raw or b"")[: chance.randrange(9)]
        case 2:
            return (raw or b"") + chance.randbytes(3)
    return raw


@given(st.integers(0, 4_102_444_800_00), st.text("0123456789 ", max_size=18))
def test_date_and_time_of_an_mqdlh_are_when_it_failed(hundredths: int, other: str) -> None:
    """YYYYMMDD and HHMMSSTH are UTC; what is no such date is absent."""
    moment = datetime.fromtimestamp(hundredths // 100, UTC)
    date, time = f"{moment:%Y%m%d}", f"{moment:%H%M%S}{hundredths % 100:02}"

    def failed_at(date: str, time: str) -> int | None:
        fields = {"Reason": "1", "PutDate": date, "PutTime": time}
        headers: Headers = [(f"mqdlh.{name}", value.encode()) for name, value in fields.items()]
        return read_view(None, b"", headers).failed_at

    assert failed_at(date, time) == 10 * hundredths
    if not (other.isdigit() and len(other) in {14, 16}):
        assert failed_at(other[:8], other[8:]) is None
