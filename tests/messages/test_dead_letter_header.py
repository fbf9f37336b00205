"""The MQDLH: what its bytes mean in every representation, and that they come back unchanged."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.messages.samples import (
    ASCII_LITTLE,
    REPRESENTATIONS,
    SAMPLE,
    ccsids,
    headers_of_names,
    longs,
    valid_headers,
)

from redrive.messages import DeadLetterHeader, Representation, encode_header
from redrive.messages.dead_letter_header import (
    MQDLH,
    MQDLH_LENGTH,
    decode_header,
    read_header_fields,
)

SPECIMEN = (
    b"\xc4\xd3\xc8\x40\0\0\0\1\0\0\x07\xf3"
    + "AMQ.D6752F9683A49DE0".ljust(48).encode("cp500")
    + "CSQ2".ljust(12).encode("cp500")
)
"""The first 72 bytes of a header as z/OS wrote it (rules-table specification 8.5)."""


def decoded(data: bytes, ccsid: int = 0) -> DeadLetterHeader:
    header = decode_header(data, ccsid)
    assert isinstance(header, DeadLetterHeader)
    return header


@pytest.mark.parametrize(
    ("name", "offset", "length"),
    [
        ("Reason", 8, 4),
        ("DestQName", 12, 48),
        ("DestQMgrName", 60, 48),
        ("Encoding", 108, 4),
        ("Format", 116, 8),
        ("PutApplName", 128, 28),
        ("PutTime", 164, 8),
    ],
)
def test_layout(name: str, offset: int, length: int) -> None:
    """The fields of the MQDLH lie where MQ has them."""
    assert (MQDLH[name].offset, MQDLH[name].length) == (offset, length)


@pytest.mark.parametrize("representation", REPRESENTATIONS, ids=str)
@pytest.mark.parametrize("declared", [True, False])
def test_every_representation(representation: Representation, *, declared: bool) -> None:
    """Either byte order and ASCII as well as EBCDIC are recognised, declared or not."""
    data = encode_header(replace(SAMPLE, representation=representation))
    assert decoded(data, representation.ccsid if declared else 0) == SAMPLE
    assert data[:4] == "DLH ".encode(representation.codec)
    assert data[8:12] == (2053).to_bytes(4, representation.byte_order)


@pytest.mark.parametrize("ccsid", [0, -2, 1200, 500, 12345, 10**30])
def test_declared_ccsid_that_cannot_be(ccsid: int) -> None:
    """Where the declared CCSID is unknown or contradicts the eye-catcher, the eye-catcher wins."""
    header = decoded(ASCII_LITTLE, ccsid)
    assert header == SAMPLE
    assert header.representation.ccsid == 819


@pytest.mark.parametrize(
    ("ccsid", "left", "right"), [(37, 186, 187), (500, 74, 90), (1047, 173, 189)]
)
def test_declared_ccsid_reads_brackets_in_ebcdic(ccsid: int, left: int, right: int) -> None:
    data = encode_header(replace(SAMPLE, representation=Representation("big", 500)))
    name = bytes([0x81, left, 0x82, right]).ljust(28, b"\x40")
    header = decoded(data[:128] + name + data[156:], ccsid)
    assert header.put_appl_name == "a[b]"
    assert encode_header(header)[128:156] == name
    assert Representation("big", ccsid).encoding == 785


def test_declared_ccsid_reads_accents() -> None:
    text = "Zürich"
    for ccsid in (37, 819, 850, 1047, 1208, 1140):
        data = encode_header(
            replace(SAMPLE, put_appl_name=text, representation=Representation("big", ccsid))
        )
        assert decoded(data, ccsid).put_appl_name == text


@pytest.mark.parametrize(
    ("raw", "name"),
    [
        (b"Q1" + bytes(46), "Q1"),
        (b"Q1\0garbage".ljust(48), "Q1"),
        (b"Q1  \0".ljust(48), "Q1"),
        (bytes(48), ""),
        (b" " * 48, ""),
        (b"A B".ljust(48), "A B"),
        (b"Q" * 48, "Q" * 48),
        (b"Q\xff".ljust(48), "Q\xff"),
    ],
)
def test_padding(raw: bytes, name: str) -> None:
    """A name ends at its first NUL and has no trailing blanks; its bytes still come back."""
    data = ASCII_LITTLE[:12] + raw + ASCII_LITTLE[60:]
    header = decoded(data, 819)
    assert header.dest_q_name == name
    assert encode_header(header) == data


@given(valid_headers, ccsids)
def test_decoded_header_encodes_to_the_same_bytes(data: bytes, ccsid: int) -> None:
    assert encode_header(decoded(data + b"body", ccsid)) == data


@given(valid_headers, ccsids, longs, st.sampled_from(["", "NEW.QUEUE"]))
def test_changed_field_changes_its_bytes_only(
    data: bytes, ccsid: int, reason: int, queue: str
) -> None:
    header = replace(decoded(data, ccsid), reason=reason, dest_q_name=queue)
    written = encode_header(header)
    assert decoded(written, ccsid) == header
    assert (written[:8], written[60:]) == (data[:8], data[60:])


@given(headers_of_names)
def test_header_made_from_values(header: DeadLetterHeader) -> None:
    data = encode_header(header)
    assert len(data) == MQDLH_LENGTH
    assert decoded(data, header.representation.ccsid) == header


@given(headers_of_names, st.sampled_from(REPRESENTATIONS))
def test_new_representation(header: DeadLetterHeader, other: Representation) -> None:
    """A header can be written in another representation than the one it came in."""
    first = decoded(encode_header(header), header.representation.ccsid)
    second = encode_header(replace(first, representation=other))
    assert decoded(second, other.ccsid) == header


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "does not begin with the eye-catcher"),
        (b"hello", "does not begin with the eye-catcher"),
        (b"dlh " + ASCII_LITTLE[4:], "does not begin with the eye-catcher"),
        (b"DLH ", "cut: 4 of 172 bytes"),
        (ASCII_LITTLE[:171], "cut: 171 of 172 bytes"),
        (SPECIMEN, "cut: 72 of 172 bytes"),
        (ASCII_LITTLE[:4] + b"\2\0\0\0" + ASCII_LITTLE[8:], "version 2, not 1"),
        (ASCII_LITTLE[:4] + b"\0\0\0\2" + ASCII_LITTLE[8:], "version 2, not 1"),
        (ASCII_LITTLE[:4] + b"\0\0\0\0" + ASCII_LITTLE[8:], "version 0, not 1"),
    ],
)
def test_invalid_header(data: bytes, problem: str) -> None:
    """The error of an invalid header says what is wrong."""
    refusal = decode_header(data)
    assert isinstance(refusal, str)
    assert problem in refusal


@given(st.binary(max_size=200), ccsids)
def test_decoding_never_raises(data: bytes, ccsid: int) -> None:
    """Any bytes give a header or a sentence."""
    assert isinstance(decode_header(data, ccsid), DeadLetterHeader | str)


def test_reading_a_header_of_unknown_version() -> None:
    data = b"DLH " + (2).to_bytes(4, "big") + (2053).to_bytes(4, "big")
    assert read_header_fields(data, encoding=273)["Reason"] == 2053
    assert read_header_fields(data[:10], encoding=273) == {"StrucId": "DLH ", "Version": 2}


@given(st.binary(max_size=200), ccsids, longs)
def test_reading_never_raises(data: bytes, ccsid: int, encoding: int) -> None:
    """Reading any bytes gives fields of the structure, and all of them if it is complete."""
    fields = read_header_fields(data, ccsid=ccsid, encoding=encoding)
    assert fields.keys() <= MQDLH.keys()
    assert len(data) < MQDLH_LENGTH or fields.keys() == MQDLH.keys()


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (replace(SAMPLE, dest_q_name="Q" * 49), "DestQName 'Q+' has 49 bytes, more than 48"),
        (replace(SAMPLE, format="Ü" * 5), "Format 'Ü+' has 10 bytes, more than 8"),
        (replace(SAMPLE, reason=2**31), "not an MQLONG"),
        (
            replace(SAMPLE, dest_q_name="Ж", representation=Representation("big", 819)),
            "can't encode",
        ),
    ],
)
def test_value_that_cannot_be_written(header: DeadLetterHeader, message: str) -> None:
    """A value that has no place in an MQDLH is refused, not cut."""
    with pytest.raises(ValueError, match=message):
        encode_header(header)


@pytest.mark.parametrize(
    ("representation", "encoding"),
    [
        (Representation("little", 819), 546),
        (Representation("big", 819), 273),
        (Representation("big", 500), 785),
        (Representation("big", 99_999), 273),
    ],
)
def test_numeric_encoding(representation: Representation, encoding: int) -> None:
    """The numeric encoding is that of the platforms that write so."""
    assert representation.encoding == encoding
