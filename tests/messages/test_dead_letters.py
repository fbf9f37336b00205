"""Dead letters in every form: read, by one and by the batch, removed and put on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.messages.samples import (
    ASCII_LITTLE,
    MQMD,
    REPRESENTATIONS,
    SAMPLE,
    headers_of_names,
    message_headers,
    message_values,
    messages,
    mqmd,
    names,
    record_batch,
)

from redrive.messages import (
    PATTERN_KEYWORDS,
    DeadLetterDecoder,
    DeadLetterHeader,
    DeadLetterProfile,
    Form,
    Headers,
    Records,
    Representation,
    add_header,
    decode_dead_letter,
    encode_header,
    new_header,
    remove_header,
)
from redrive.messages.fields import mqmd_fields

DESCRIPTOR = mqmd(
    Format="MQDEAD  ", Encoding=546, CodedCharSetId=819, UserIdentifier="alice", ReplyToQ="R.Q"
)
HEADER_FORM: Headers = [
    ("mqdlh.Reason", b"2053"),
    ("mqdlh.DestQName", b"APP.IN"),
    ("mqdlh.DestQMgrName", b"QM1"),
    ("mqdlh.Encoding", b"546"),
    ("mqdlh.CodedCharSetId", b"1208"),
    ("mqdlh.Format", b"MQSTR"),
    ("mqdlh.PutApplType", b"6"),
    ("mqdlh.PutApplName", b"amqrmppa"),
    ("mqdlh.PutDate", b"20260115"),
    ("mqdlh.PutTime", b"12345678"),
]
CONNECT: Headers = [
    ("__connect.errors.topic", b"orders"),
    ("__connect.errors.partition", b"3"),
    ("__connect.errors.exception.class.name", b"org.apache.kafka.connect.errors.DataException"),
    ("__connect.errors.connector.name", b"orders-sink"),
]
SPRING: Headers = [
    ("kafka_dlt-original-topic", b"orders"),
    ("kafka_dlt-original-partition", b"\0\0\0\3"),
    ("kafka_dlt-exception-fqcn", b"org.springframework.kafka.ListenerExecutionFailedException"),
    ("kafka_dlt-exception-cause-fqcn", b"org.apache.kafka.common.errors.TimeoutException"),
    ("kafka_dlt-original-consumer-group", b"billing"),
]


def same(profile: DeadLetterProfile, other: DeadLetterProfile) -> bool:
    """Whether two profiles agree in all but date and time, which a profile takes from anywhere."""
    return undated(profile) == undated(other)


def undated(profile: DeadLetterProfile) -> DeadLetterProfile:
    """A profile without the date and time in its header."""
    if profile.header is None:
        return profile
    return replace(profile, header=replace(profile.header, put_date="", put_time=""))


def test_binary_form() -> None:
    """An MQDLH in front of the body: rules see its fields and those of the descriptor."""
    profile = decode_dead_letter(ASCII_LITTLE + b"hello", DESCRIPTOR)
    assert (profile.scheme, profile.problem, profile.warning) == ("mqdlh", "", "")
    assert profile.header == SAMPLE
    assert profile.fields == {
        "APPLIDAT": "",
        "APPLNAME": "",
        "APPLTYPE": 0,
        "DESTQ": "APP.IN",
        "DESTQM": "QM1",
        "FEEDBACK": 0,
        "FORMAT": "MQSTR",
        "MSGTYPE": 0,
        "PERSIST": 0,
        "REASON": 2053,
        "REPLYQ": "R.Q",
        "REPLYQM": "",
        "USERID": "alice",
    }


def test_header_form() -> None:
    """The same fields as headers say the same."""
    profile = decode_dead_letter(b"hello", [*DESCRIPTOR, *HEADER_FORM])
    binary = decode_dead_letter(ASCII_LITTLE, DESCRIPTOR)
    assert profile.scheme == "redrive"
    assert (profile.header, profile.fields) == (binary.header, binary.fields)


def test_keywords_come_from_their_fields() -> None:
    headers = mqmd(
        ApplIdentityData="a",
        PutApplName="b",
        PutApplType=28,
        Feedback=260,
        MsgType=4,
        Persistence=1,
        ReplyToQ="c",
        ReplyToQMgr="d",
        UserIdentifier="e",
        Format="MQDEAD",
    )
    fields = decode_dead_letter(ASCII_LITTLE, headers).fields
    assert tuple(sorted(fields)) == PATTERN_KEYWORDS
    assert {"APPLIDAT": "a", "APPLNAME": "b", "APPLTYPE": 28, "FEEDBACK": 260}.items() <= (
        fields.items()
    )
    assert {"MSGTYPE": 4, "PERSIST": 1, "REPLYQ": "c", "REPLYQM": "d", "USERID": "e"}.items() <= (
        fields.items()
    )


@pytest.mark.parametrize("declared", ["MQSTR", "", "MQXMIT"])
def test_format_is_not_required(declared: str) -> None:
    profile = decode_dead_letter(ASCII_LITTLE, mqmd(Format=declared))
    assert profile.scheme == "mqdlh"
    assert repr(declared) in profile.warning


def test_message_without_descriptor() -> None:
    """Without any header of the descriptor a binary header is valid, and nothing is odd."""
    profile = decode_dead_letter(ASCII_LITTLE, [])
    assert (profile.scheme, profile.warning) == ("mqdlh", "")


@pytest.mark.parametrize(
    ("value", "headers", "problem"),
    [
        (None, [], "the value is null"),
        (b"", [], "the value does not begin with"),
        (b"{}", DESCRIPTOR, "the value does not begin with"),
        (ASCII_LITTLE[:100], [], "cut: 100 of 172 bytes"),
        (b"{}", [("mqdlh.DestQName", b"Q")], "the header mqdlh.Reason is missing"),
        (b"{}", [("mqdlh.Reason", b"full")], "the header mqdlh.Reason is not a number: 'full'"),
        (b"{}", [("mqdlh.Reason", None)], "the value does not begin with"),
        (b"{}", [*HEADER_FORM, ("mqdlh.Reason", None)], "the header mqdlh.Reason is missing"),
        (b"{}", [*HEADER_FORM, ("mqdlh.Encoding", b"x")], "mqdlh.Encoding is not a number: 'x'"),
    ],
)
def test_no_valid_header(value: bytes | None, headers: Headers, problem: str) -> None:
    """Without a valid header the form is NONE, and the problem says which form fails and how."""
    profile = decode_dead_letter(value, headers)
    assert (profile.scheme, profile.header) == ("none", None)
    assert problem in profile.problem
    assert profile.fields["REASON"] == 0
    assert remove_header(profile, value, headers) == (value, headers)


def test_headers_are_outside_a_binary_header() -> None:
    headers = [*DESCRIPTOR, *HEADER_FORM]
    outer = decode_dead_letter(ASCII_LITTLE + b"x", headers)
    assert outer.scheme == "redrive"
    value, kept = remove_header(outer, ASCII_LITTLE + b"x", headers)
    assert value == ASCII_LITTLE + b"x"
    assert decode_dead_letter(value, kept).scheme == "mqdlh"


def test_invalid_headers_do_not_hide_a_binary_header() -> None:
    assert decode_dead_letter(ASCII_LITTLE, [("mqdlh.Reason", b"x")]).scheme == "mqdlh"


@pytest.mark.parametrize(
    ("headers", "scheme", "reason", "program"),
    [
        (CONNECT, "connect", 2110, "orders-sink"),
        (CONNECT[:1], "connect", 2195, ""),
        (SPRING, "spring-dlt", 2059, "billing"),
        (SPRING[:3], "spring-dlt", 2195, ""),
    ],
)
def test_other_ecosystems(headers: Headers, scheme: str, reason: int, program: str) -> None:
    """Connect's and Spring's headers name the topic; the exception gives the reason."""
    profile = decode_dead_letter(b"{}", [("a", b"1"), *headers])
    assert profile.scheme == scheme
    assert profile.header == DeadLetterHeader(
        reason=reason, dest_q_name="orders", put_appl_name=program
    )
    assert remove_header(profile, b"{}", [("a", b"1"), *headers, ("b", None)]) == (
        b"{}",
        [("a", b"1"), ("b", None)],
    )


def test_long_topic_name_is_kept_whole() -> None:
    topic = "t" * 249
    profile = decode_dead_letter(b"", [("__connect.errors.topic", topic.encode())])
    assert profile.fields["DESTQ"] == topic


@given(rows=st.lists(messages, max_size=12), has_one_layout=st.booleans())
def test_batches_are_decoded_as_single_messages(
    rows: list[tuple[bytes | None, Headers]], *, has_one_layout: bool
) -> None:
    if has_one_layout:
        names = [name for _, headers in rows[:1] for name, _ in headers]
        raws = [[raw for _, raw in headers] + [None] * len(names) for _, headers in rows]
        rows = [
            (value, list(zip(names, of_row, strict=False)))
            for (value, _), of_row in zip(rows, raws, strict=True)
        ]
    values, headers = [value for value, _ in rows], [headers for _, headers in rows]
    codes, profiles = DeadLetterDecoder().decode(
        Records.from_arrow(record_batch(values, list(headers)))
    )
    assert len(codes) == len(rows)
    assert codes.dtype == np.int32
    for code, (value, pairs) in zip(codes, rows, strict=True):
        assert same(profiles[code], decode_dead_letter(value, pairs, key=b"key"))


@given(st.lists(st.lists(messages, max_size=5), max_size=5), st.integers(1, 6))
def test_memory_is_bounded(batches: list[list[tuple[bytes | None, Headers]]], limit: int) -> None:
    """Profiles are kept over calls up to the limit; then there is a new list."""
    decoder = DeadLetterDecoder(limit)
    seen: list[tuple[object, int]] = []
    for rows in batches:
        values, headers = [value for value, _ in rows], [headers for _, headers in rows]
        codes, profiles = decoder.decode(Records.from_arrow(record_batch(values, list(headers))))
        assert len(profiles) < limit + len(rows)
        assert all(
            same(profiles[c], decode_dead_letter(*row, key=b"key"))
            for c, row in zip(codes, rows, strict=True)
        )
        if seen:
            before, length = seen[-1]
            assert (profiles is before) == (length < limit)
        seen.append((profiles, len(profiles)))


def test_date_and_body_make_no_profile() -> None:
    values = [encode_header(replace(SAMPLE, put_time=f"{i:08}")) + b"x" * i for i in range(50)]
    headers = [[*DESCRIPTOR, *mqmd(MsgId=f"{i:048x}")] for i in range(50)]
    codes, profiles = DeadLetterDecoder().decode(
        Records.from_arrow(record_batch([*values], [*headers]))
    )
    assert len(profiles) == 1
    assert not codes.any()


def test_bodies_without_header_make_one_profile() -> None:
    values = [str(i).encode() * i for i in range(50)]
    _, profiles = DeadLetterDecoder().decode(
        Records.from_arrow(record_batch([*values], [HEADER_FORM] * 50))
    )
    assert len(profiles) == 1


@given(headers_of_names, st.binary(max_size=8), message_headers)
def test_binary_header_removed(header: DeadLetterHeader, body: bytes, headers: Headers) -> None:
    """What follows the 172 bytes stays; exactly three fields of the descriptor are restored."""
    headers = [pair for pair in headers if pair[0].startswith(MQMD) or pair[0] in {"trace", ""}]
    headers += mqmd(CodedCharSetId=header.representation.ccsid)
    value = encode_header(header) + body
    before = (value, list(headers))
    profile = decode_dead_letter(value, headers)
    new_value, new_headers = remove_header(profile, value, headers)
    assert (value, headers) == before
    assert new_value == body
    restored = {"Format": header.format, "Encoding": header.encoding}
    if header.coded_char_set_id != -2:
        restored["CodedCharSetId"] = header.coded_char_set_id
    assert mqmd_fields(new_headers) == {**mqmd_fields(headers), **restored}
    touched = {f"JMS_IBM_MQMD_{name}" for name in restored}
    assert [h for h in new_headers if h[0] not in touched] == [
        h for h in headers if h[0] not in touched
    ]


def test_removal_byte_for_byte() -> None:
    headers: Headers = [
        ("trace", b"1"),
        *DESCRIPTOR,
        ("trace", None),
        ("trace", b"1"),
        *mqmd(Format="MQDEAD"),
        ("", b""),
    ]
    value, after = remove_header(
        decode_dead_letter(ASCII_LITTLE + b"\0\xffbody", headers),
        ASCII_LITTLE + b"\0\xffbody",
        headers,
    )
    assert value == b"\0\xffbody"
    assert after == [
        ("trace", b"1"),
        *mqmd(Format="MQSTR", Encoding="546", CodedCharSetId=1208),
        *DESCRIPTOR[3:],
        ("trace", None),
        ("trace", b"1"),
        *mqmd(Format="MQSTR"),
        ("", b""),
    ]


def test_header_form_removed() -> None:
    """The mqdlh headers go, the three fields are restored, a null value stays null."""
    headers = [("a", b"1"), *HEADER_FORM, *mqmd(Format="MQHRF2"), ("mqdlh.StrucId", b"DLH ")]
    value, after = remove_header(decode_dead_letter(None, headers), None, headers)
    assert value is None
    assert after == [("a", b"1"), *mqmd(Format="MQSTR"), *mqmd(Encoding=546, CodedCharSetId=1208)]


def test_message_dead_lettered_twice_in_headers() -> None:
    first, second = SAMPLE, replace(SAMPLE, reason=2085, dest_q_name="OTHER")
    once = add_header(first, b"x", [("a", b"1")], form=Form.HEADERS)
    twice = add_header(second, *once, form=Form.HEADERS)
    outer = decode_dead_letter(*twice)
    assert outer.header == second
    inner_message = remove_header(outer, *twice)
    assert decode_dead_letter(*inner_message).header == first


dead_letters = st.builds(
    lambda header, value, headers: (header, value, headers),
    headers_of_names,
    message_values,
    message_headers,
)


@given(dead_letters, st.sampled_from([Form.BINARY, Form.HEADERS]))
def test_header_put_on_is_read_back(
    sample: tuple[DeadLetterHeader, bytes | None, Headers], form: Form
) -> None:
    header, value, headers = sample
    before = list(headers)
    written = add_header(header, value, headers, form=form)
    assert headers == before
    assert decode_dead_letter(*written).header == header


@given(dead_letters, names, st.integers(0, 10_000), st.sampled_from([Form.BINARY, Form.HEADERS]))
def test_dead_lettering_and_removing(
    sample: tuple[DeadLetterHeader, bytes | None, Headers], queue: str, reason: int, form: Form
) -> None:
    shape, value, headers = sample
    header = new_header(headers, reason=reason, queue=queue, queue_manager="QM1", timestamp=0)
    header = replace(header, representation=shape.representation)
    dead = add_header(header, value, headers, form=form)
    profile = decode_dead_letter(*dead)
    back_value, back = remove_header(profile, *dead)
    assert back_value == value
    # -2 stands for the CCSID of the dead-letter header, so that it cannot come back as -2.
    described = mqmd_fields(headers)
    if described["CodedCharSetId"] == -2 and profile.scheme == "mqdlh":
        described["CodedCharSetId"] = shape.representation.ccsid
    assert mqmd_fields(back) == described


def test_binary_form_describes_the_header() -> None:
    header = replace(SAMPLE, representation=Representation("big", 500))
    value, headers = add_header(header, b"x", mqmd(Format="MQSTR", MsgId="00"), form=Form.BINARY)
    assert value == encode_header(header) + b"x"
    assert headers == mqmd(Format="MQDEAD", MsgId="00", Encoding=785, CodedCharSetId=500)


def test_header_form_leaves_the_descriptor() -> None:
    headers = mqmd(Format="MQSTR")
    assert add_header(SAMPLE, b"x", headers, form=Form.HEADERS) == (b"x", [*headers, *HEADER_FORM])


@pytest.mark.parametrize(
    ("header", "value", "headers"),
    [
        (SAMPLE, None, []),
        (replace(SAMPLE, dest_q_name="t" * 49), b"x", []),
        (replace(SAMPLE, dest_q_name="Ж", representation=REPRESENTATIONS[0]), b"x", []),
        (SAMPLE, b"x", HEADER_FORM),
        (SAMPLE, b"x", CONNECT),
        (SAMPLE, b"x", SPRING),
    ],
)
def test_binary_form_that_would_be_lost(
    header: DeadLetterHeader, value: bytes | None, headers: Headers
) -> None:
    """Where an MQDLH cannot say it or would not be found, headers are written instead."""
    written = add_header(header, value, headers, form=Form.BINARY)
    assert written[0] == value
    profile = decode_dead_letter(*written)
    assert (profile.scheme, profile.header) == ("redrive", header)
    assert remove_header(profile, *written)[0] == value


def test_new_header() -> None:
    """A new header has the message's triple, the names of the put, and the time to 1/100 s."""
    header = new_header(
        mqmd(Format="MQSTR", Encoding=785, CodedCharSetId=500),
        reason=2085,
        queue="Q",
        queue_manager="QM1",
        timestamp=1_768_480_496_789,
        put_appl_name="router",
        put_appl_type=28,
    )
    assert header == DeadLetterHeader(
        reason=2085,
        dest_q_name="Q",
        dest_q_mgr_name="QM1",
        encoding=785,
        coded_char_set_id=500,
        format="MQSTR",
        put_appl_type=28,
        put_appl_name="router",
        put_date="20260115",
        put_time="12345678",
    )
