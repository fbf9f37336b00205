"""The message descriptor as headers: what is read, what is set, what stays."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.messages.samples import message_headers, mqmd

from redrive.messages import MQMD, FieldType, Headers, mqmd_headers, with_mqmd_headers
from redrive.messages.fields import mqmd_fields, parse_long, read_long, read_text


@pytest.mark.parametrize(
    ("name", "offset", "length"),
    [
        ("MsgType", 12, 4),
        ("Format", 32, 8),
        ("MsgId", 48, 24),
        ("ReplyToQ", 100, 48),
        ("UserIdentifier", 196, 12),
        ("ApplIdentityData", 240, 32),
        ("PutApplName", 276, 28),
        ("ApplOriginData", 320, 4),
        ("OriginalLength", 360, 4),
    ],
)
def test_descriptor_layout(name: str, offset: int, length: int) -> None:
    """The fields of the MQMD lie where MQ has them."""
    assert (MQMD[name].offset, MQMD[name].length) == (offset, length)


def test_missing_fields_have_their_default() -> None:
    """Without headers every number is 0, every text blank, every identifier zeros."""
    fields = mqmd_fields([])
    assert set(fields) == set(MQMD) - {"StrucId", "Version"}
    assert fields["MsgType"] == 0
    assert fields["ReplyToQ"] == ""
    assert fields["MsgId"] == "00" * 24


def test_last_of_repeated_headers_counts() -> None:
    assert mqmd_fields([*mqmd(MsgType=1), *mqmd(MsgType=8)])["MsgType"] == 8


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (None, ""),
        (b"", ""),
        (b"QM1", "QM1"),
        (b"QM1   ", "QM1"),
        (b"  QM1", "  QM1"),
        (b"QM1\0\0junk", "QM1"),
        (b"QM1  \0", "QM1"),
        (b"\0QM1", ""),
        (b"Q\tM\t ", "Q\tM\t"),
        (b"Z\xc3\xbcrich", "Zürich"),
        (b"a\xffb", "a\ufffdb"),
    ],
)
def test_text(raw: bytes | None, text: str) -> None:
    """A text ends at the first NUL and has no trailing blanks; odd bytes do not raise."""
    assert read_text(raw) == text


@pytest.mark.parametrize(
    ("raw", "number"),
    [
        (b"2053", 2053),
        (b" 2053 ", 2053),
        (b"0002053", 2053),
        (b"2053\0\0", 2053),
        (b"-1", -1),
        (b"+8", 8),
        (b"2147483647", 2**31 - 1),
        (b"2147483648", None),
        (b"-2147483649", None),
        (b"1" * 5000, None),
        (b"1_000", None),
        (b"8.0", None),
        (b"0x8", None),
        (b"MQMT_REQUEST", None),
        ("٣".encode(), None),
        (b"\xff", None),
        (b" ", None),
        (b"", None),
        (None, None),
    ],
)
def test_number(raw: bytes | None, number: int | None) -> None:
    """A number is decimal digits that fit an MQLONG; anything else counts as 0."""
    assert parse_long(raw) == number
    assert read_long(raw) == (number or 0)


@given(message_headers)
def test_reading_never_raises(headers: Headers) -> None:
    """Whatever the headers contain, every field has a value of its type."""
    for name, value in mqmd_fields(headers).items():
        assert isinstance(value, int if MQMD[name].type is FieldType.LONG else str)


@given(message_headers, st.sampled_from(["", "MQSTR"]), st.sampled_from([0, 546]))
def test_setting_fields(headers: Headers, text: str, number: int) -> None:
    """Set fields read back, everything else stays in its place, the argument is not touched."""
    wanted = mqmd_headers({"Format": text, "Encoding": number})
    before = list(headers)
    after = with_mqmd_headers(headers, wanted)
    assert headers == before
    assert mqmd_fields(after) == {**mqmd_fields(before), "Format": text, "Encoding": number}
    for old, new in zip(before, after, strict=False):
        assert old[0] == new[0]
        assert old == new or new == (old[0], wanted[old[0]])
    assert all(raw == wanted[name] != b"" for name, raw in after[len(before) :])


def test_setting_fields_in_place() -> None:
    headers = [
        ("a", b"1"),
        *mqmd(Format="MQDEAD"),
        ("a", b"2"),
        *mqmd(Encoding="546 "),
        *mqmd(Format=""),
    ]
    wanted = mqmd_headers({"Format": "MQSTR", "Encoding": 546, "CodedCharSetId": 1208})
    assert with_mqmd_headers(headers, wanted) == [
        ("a", b"1"),
        *mqmd(Format="MQSTR"),
        ("a", b"2"),
        *mqmd(Encoding="546 "),
        *mqmd(Format="MQSTR"),
        *mqmd(CodedCharSetId=1208),
    ]


def test_default_is_not_appended() -> None:
    wanted = mqmd_headers({"Format": "", "Encoding": 0})
    assert with_mqmd_headers([("a", b"1")], wanted) == [("a", b"1")]
    assert with_mqmd_headers([], mqmd_headers({"Format": "0"})) == mqmd(Format="0")
