"""Schemes of a user's own: headers, paths in JSON values, envelopes and what is assumed."""

from __future__ import annotations

import pickle
from base64 import b64encode
from dataclasses import replace
from typing import Any, get_args, get_type_hints

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.messages import (
    DeadLetterDecoder,
    DeadLetterProfile,
    DeadLetterView,
    Headers,
    Records,
    SchemeTable,
    decode_dead_letter,
    read_view,
    remove_header,
)
from redrive.messages.schemes import OwnScheme, PlaceError, schemes_id
from redrive.messages.schemes.scheme import NAMES

BY_HEADERS = OwnScheme(
    name="legacy",
    recognise="x-error",
    parts={
        "origin.topic": "x-topic",
        "origin.partition": "x-partition as int32be",
        "origin.timestamp": "x-time as iso8601",
        "error.class": "x-error as class",
        "attempts": "x-attempts",
    },
)
ENVELOPE = OwnScheme(
    name="envelope",
    recognise="$.error.type",
    payload="$.payload",
    parts={
        "origin.topic": "$.source['topic name']",
        "origin.partition": "$.source.partition",
        "error.class": "$.error.type",
        "error.root_class": "$.error.causes[1]",
        "failed_at": "$.at",
    },
)
ASSUMED = OwnScheme(name="anything", is_assumed=True, parts={"origin.topic": "topic"})
TABLE = SchemeTable(scheme.scheme() for scheme in (BY_HEADERS, ENVELOPE, ASSUMED))


def view(value: bytes | None, headers: Headers) -> DeadLetterView:
    """What a message says with these schemes."""
    return read_view(b"k", value, headers, schemes=TABLE)


def profile(value: bytes | None, headers: Headers) -> DeadLetterProfile:
    return decode_dead_letter(value, headers, key=b"k", schemes=TABLE)


def envelope(**more: Any) -> bytes:
    """A dead letter with its payload inside."""
    return orjson.dumps(
        {
            "source": {"topic name": "orders", "partition": 3},
            "error": {"type": "a.B", "causes": ["c.D", "e.F"]},
            "at": "2026-01-15T12:34:56Z",
            **more,
        }
    )


def test_headers_are_read_in_their_encodings() -> None:
    headers: Headers = [
        ("x-error", b"a.B: boom"),
        ("x-topic", b"orders"),
        ("x-partition", b"\0\0\0\7"),
        ("x-time", b"2026-01-15T12:34:56Z"),
        ("x-attempts", b"3"),
        ("trace", b"1"),
    ]
    seen = view(b"x", headers)
    assert (seen.scheme, seen.origin.topic, seen.origin.partition) == ("legacy", "orders", 7)
    assert seen.origin.timestamp == 1_768_480_496_000
    assert (seen.error_class, seen.error_root_class, seen.attempts) == ("a.B", "a.B", 3)
    assert remove_header(profile(b"x", headers), b"x", headers) == (b"x", [("trace", b"1")])
    assert profile(b"x", headers).fields["DESTQ"] == "orders"


@pytest.mark.parametrize(
    ("payload", "original"),
    [({"a": [1]}, b'{"a":[1]}'), ("plain", b"plain"), (None, None), (7, b"7")],
)
def test_an_envelope_gives_its_payload_back(payload: Any, original: bytes | None) -> None:
    """A text is the value itself, anything else its JSON."""
    value = envelope(payload=payload)
    seen = view(value, [])
    assert (seen.scheme, seen.origin.topic, seen.origin.partition) == ("envelope", "orders", 3)
    assert (seen.error_class, seen.error_root_class) == ("a.B", "e.F")
    assert (seen.failed_at, seen.pointer) == (1_768_480_496_000, False)
    assert remove_header(profile(value, []), value, []) == (original, [])


@given(st.binary(max_size=20))
def test_a_payload_in_base64_is_bytes(payload: bytes) -> None:
    """Any value can be in an envelope; one that is no base64 is no payload."""
    scheme = OwnScheme(name="e", recognise="$.payload", payload="$.payload as base64").scheme()
    value = orjson.dumps({"payload": b64encode(payload).decode()})
    letter = decode_dead_letter(value, [], schemes=SchemeTable([scheme]))
    assert remove_header(letter, value, []) == (payload, [])
    broken = read_view(None, b'{"payload": "!"}', [], schemes=SchemeTable([scheme]))
    assert broken.pointer


def test_an_envelope_without_its_payload_is_a_pointer() -> None:
    value = envelope()
    assert view(value, []).pointer
    assert remove_header(profile(value, []), value, []) == (value, [])


def test_a_program_that_drops_headers_is_known_by_its_setting() -> None:
    keeps = OwnScheme(name="mine", recognise="x-why")
    drops = replace(keeps, drops_headers=True)
    for scheme in (keeps, drops):
        letter = decode_dead_letter(b"", [("x-why", b"")], schemes=SchemeTable([scheme.scheme()]))
        assert letter.drops_headers == scheme.drops_headers
    assert schemes_id([keeps]) == schemes_id([drops])


def test_what_is_of_no_scheme_is_what_is_assumed() -> None:
    letter = profile(b"anything", [("topic", b"orders")])
    assert (letter.scheme, letter.fields["DESTQ"]) == ("anything", "orders")
    assert profile(None, []).is_dead_letter
    assert view(b"x", [("__connect.errors.topic", b"t")]).scheme == "connect"


def test_an_own_scheme_takes_the_place_of_a_known_one_with_its_header() -> None:
    own = OwnScheme(name="mine", recognise="exception-type").scheme()
    headers: Headers = [("exception-type", b"a.B"), ("failed-at", b"0")]
    assert read_view(None, b"", headers, schemes=SchemeTable([own])).scheme == "mine"
    assert read_view(None, b"", headers).scheme == "wolverine"


KNOWN_HEADERS = [
    *(("__connect.errors.topic", b"a"), ("kafka_dlt-original-topic", b"b")),
    *(("source_topic", b"c"), ("source_partition", b"0"), ("dead-letter-topic", b"d")),
]


@given(st.permutations([*KNOWN_HEADERS, ("x-error", b"e.F"), ("x-topic", b"orders")]))
def test_own_scheme_precedes_all_known_ones_in_any_order_of_headers(headers: Headers) -> None:
    shown = view(b"x", headers)
    assert (shown.scheme, shown.origin.topic, shown.hop) == ("legacy", "orders", 5)
    assert remove_header(profile(b"x", headers), b"x", headers) == (b"x", [])


def test_envelope_precedes_known_headers_beside_it() -> None:
    headers: Headers = [*KNOWN_HEADERS]
    shown, value = view(envelope(payload="p"), headers), envelope(payload="p")
    assert (shown.scheme, shown.origin.topic, shown.hop) == ("envelope", "orders", 5)
    assert shown.first_origin.topic in {"a", "b", "c", "d"}
    assert profile(value, headers).origins[-1] == "orders"
    assert remove_header(profile(value, headers), value, headers) == (b"p", [])
    assert view(b"{}", headers).scheme not in {"envelope", "anything"}
    forwarded: Headers = [("mqdlh.Reason", b"2053"), ("mqdlh.DestQName", b"Q")]
    assert view(value, forwarded).scheme == "redrive"


_json = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["error", "type", "source", "payload"]), inner, max_size=3
        )
    ),
    max_leaves=8,
)


@given(st.lists(_json.map(orjson.dumps) | st.binary(max_size=8), min_size=1, max_size=8))
def test_any_value_is_read_alone_as_in_a_batch(values: list[bytes]) -> None:
    """Whatever JSON, or none: never an exception, and the profile is the message's own."""
    keys: list[bytes | None] = [b"k"] * len(values)
    headers: list[Headers] = [[] for _ in values]
    records = Records(keys, [*values], headers, [0] * len(values), [*range(len(values))])
    codes, profiles = DeadLetterDecoder().decode(records, TABLE)
    for code, value in zip(codes, values, strict=True):
        assert profiles[code] == profile(value, [])


def test_a_topic_stands_for_the_origin_that_its_dead_letters_do_not_name() -> None:
    schemes = SchemeTable([BY_HEADERS.scheme()], [("orders.dlq", "orders")])
    kinds: dict[str, Headers] = {
        "bare": [("x", b"y")],
        "legacy": [("x-error", b"a.B"), ("x-partition", bytes([0, 0, 0, 3]))],
        "connect": [("__connect.errors.topic", b"bills"), ("__connect.errors.stage", b"S")],
    }
    count, headers = len(kinds), [*kinds.values()]
    records = Records([None] * count, [None] * count, headers, [0] * count, [*range(count)])
    decoder = DeadLetterDecoder()
    for topic, expected in (
        ("orders.dlq", [("bare", "orders"), ("legacy", "orders"), ("connect", "bills")]),
        ("else.dlq", [("none", None), ("legacy", None), ("connect", "bills")]),
    ):
        codes, profiles = decoder.decode(records, schemes.at(topic))
        read = [(profiles[code].scheme, profiles[code].view.origin.topic) for code in codes]
        assert read == expected
        assert [profiles[code] for code in codes] == [
            decode_dead_letter(None, pairs, schemes=schemes.at(topic)) for pairs in headers
        ]
    bare = decode_dead_letter(b"v", kinds["bare"], schemes=schemes.at("orders.dlq"))
    assert bare.fields["DESTQ"] == "orders"
    assert remove_header(bare, b"v", kinds["bare"]) == (b"v", kinds["bare"])


@pytest.mark.parametrize(
    ("name", "words", "message"),
    [
        ("attempts", "x as text", "not an encoding of a number in a header"),
        ("error.class", "x as int32be", "not an encoding of a text in a header"),
        ("attempts", "$.x as int32be", "not an encoding of a number in a JSON value"),
        ("attempts", "$", "the path $ is the whole value"),
        ("attempts", "$.a b", "cannot be read:  b is neither"),
        ("attempts", "$..a", "cannot be read"),
    ],
)
def test_a_place_that_can_not_be_understood_says_why(name: str, words: str, message: str) -> None:
    with pytest.raises(PlaceError) as refused:
        OwnScheme(name="x", recognise="x", parts={name: words}).scheme()
    assert message in str(refused.value)
    assert refused.value.expected


def test_each_part_is_read_with_the_type_of_its_attribute() -> None:
    scheme = OwnScheme(name="own", recognise="x", parts={part: f"x-{part}" for part in NAMES})
    headers: Headers = [("x", b""), *((f"x-{part}", b"7") for part in NAMES)]
    view = read_view(None, None, headers, schemes=SchemeTable([scheme.scheme()]))
    for part in NAMES:
        is_origin = part.startswith("origin.")
        owner = view.origin if is_origin else view
        name = part.removeprefix("origin.").replace(".", "_")
        (kind, _) = get_args(get_type_hints(type(owner))[name])
        assert getattr(owner, name) == kind("7"), part


def test_own_schemes_travel_to_other_processes() -> None:
    assert pickle.loads(pickle.dumps(ENVELOPE)) == ENVELOPE  # noqa: S301 - our own bytes
