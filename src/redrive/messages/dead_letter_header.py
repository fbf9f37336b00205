"""The dead-letter header: MQ's structure MQDLH, 172 bytes in front of a message's body.

Its integers may have either byte order and its texts may be ASCII or EBCDIC, which the bytes
themselves show. A decoded header is normalised - texts without padding - and keeps its original
bytes, so that encoding it again gives the same bytes, and changing one field changes only the bytes
of that field.
"""

from __future__ import annotations

import codecs
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, Literal, TypeAlias

from redrive.messages.fields import Field, FieldType, layout, trim

ByteOrder: TypeAlias = Literal["big", "little"]

MQDLH: Final = layout(
    ("StrucId", FieldType.CHAR, 4),
    ("Version", FieldType.LONG, 4),
    ("Reason", FieldType.LONG, 4),
    ("DestQName", FieldType.CHAR, 48),
    ("DestQMgrName", FieldType.CHAR, 48),
    ("Encoding", FieldType.LONG, 4),
    ("CodedCharSetId", FieldType.LONG, 4),
    ("Format", FieldType.CHAR, 8),
    ("PutApplType", FieldType.LONG, 4),
    ("PutApplName", FieldType.CHAR, 28),
    ("PutDate", FieldType.CHAR, 8),
    ("PutTime", FieldType.CHAR, 8),
)
"""The dead-letter header, version 1, by field name."""

MQDLH_LENGTH: Final = 172
"""Bytes of a dead-letter header."""

INHERITED_CCSID: Final = -2
"""MQCCSI_INHERIT: the body has the header's own character set."""

EYE_CATCHERS: Final = {b"DLH ": False, b"\xc4\xd3\xc8\x40": True}
"""The first four bytes of a dead-letter header, and whether they are EBCDIC."""

VERSIONS: Final[dict[bytes, ByteOrder]] = {b"\0\0\0\1": "big", b"\1\0\0\0": "little"}
"""Version 1, the only one, and the byte order in which it is written."""

_STRUCTS: Final = {
    "big": struct.Struct(">4sii48s48sii8si28s8s8s"),
    "little": struct.Struct("<4sii48s48sii8si28s8s8s"),
}

_CODECS: Final = {
    37: "cp037",
    367: "ascii",
    813: "iso8859-7",
    819: "latin-1",
    912: "iso8859-2",
    915: "iso8859-5",
    920: "iso8859-9",
    923: "iso8859-15",
    924: "ibm1047",
    1047: "ibm1047",
    1208: "utf-8",
    5348: "cp1252",
}
"""Character sets with another Python name than "cp" and the number. 924 is 1047 but for accents and
the euro, which names of MQ objects do not contain."""

_SWAPPED: Final = bytes.maketrans(b"\x5f\xad\xbb\xb0\xba\xbd", b"\xb0\xba\xbd\x5f\xad\xbb")
"""Brackets and accents, in which code page 1047 differs from 37."""


def _code_page_1047(name: str) -> codecs.CodecInfo | None:
    """The code page of z/OS UNIX, which Python does not have."""
    if name != "ibm1047":
        return None
    return codecs.CodecInfo(
        lambda text, errors="strict": (text.encode("cp037", errors).translate(_SWAPPED), len(text)),
        lambda raw, errors="strict": (
            bytes(raw).translate(_SWAPPED).decode("cp037", errors),
            len(raw),
        ),
        name=name,
    )


codecs.register(_code_page_1047)


@lru_cache(maxsize=1024)
def _known_codec(ccsid: int) -> tuple[str, bool] | None:
    # The codec of a CCSID and whether it is EBCDIC; None if Python has none for names.
    name = _CODECS.get(ccsid, f"cp{ccsid}")
    try:
        ebcdic = EYE_CATCHERS.get(codecs.encode("DLH ", name))
    except (LookupError, ValueError):
        return None
    return None if ebcdic is None else (name, ebcdic)


def character_set(ccsid: int, *, ebcdic: bool) -> tuple[int, str]:
    """CCSID and Python codec of a header's texts.

    They are the declared ones if they agree with the eye-catcher, else a set in which all
    characters of object names are right, code page 500 or ISO 8859-1.
    """
    known = _known_codec(ccsid)
    if known and known[1] is ebcdic:
        return ccsid, known[0]
    return (500, "cp500") if ebcdic else (819, "latin-1")


@dataclass(frozen=True, slots=True)
class Representation:
    """The encoding of a header's integers and texts."""

    byte_order: ByteOrder = "little"
    ccsid: int = 1208
    """Coded character set identifier; one that Python does not know is written as 819."""

    @property
    def codec(self) -> str:
        """The Python codec of the texts."""
        known = _known_codec(self.ccsid)
        return known[0] if known else "latin-1"

    @property
    def encoding(self) -> int:
        """MQ's numeric encoding: 546 little-endian, 273 big-endian, 785 with EBCDIC (z/OS)."""
        if self.byte_order == "little":
            return 546
        known = _known_codec(self.ccsid)
        return 785 if known and known[1] else 273


UTF8_LITTLE_ENDIAN: Final = Representation("little", 1208)
"""How Redrive writes a header by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterHeader:
    """Why and where a message failed, independent of its written form.

    Texts have no padding: no trailing blanks, nothing from the first NUL on. Two headers are equal
    if they say the same.
    """

    reason: int = 0
    """MQRC_* or MQFB_*."""
    dest_q_name: str = ""
    """Queue that the message was meant for."""
    dest_q_mgr_name: str = ""
    """Queue manager that the message was meant for."""
    encoding: int = 0
    """Numeric encoding of the body."""
    coded_char_set_id: int = 0
    """CCSID of the body; ``INHERITED_CCSID``: the header's own."""
    format: str = ""
    """Format of the body."""
    put_appl_type: int = 0
    """MQAT_* of the program that dead-lettered the message."""
    put_appl_name: str = ""
    """That program."""
    put_date: str = ""
    """YYYYMMDD, UTC."""
    put_time: str = ""
    """HHMMSSTH, UTC, to the hundredth of a second."""
    representation: Representation = field(default=UTF8_LITTLE_ENDIAN, compare=False)
    """The representation of its bytes."""
    source: bytes = field(default=b"", compare=False, repr=False)
    """The 172 bytes it was decoded from; empty otherwise."""

    @classmethod
    def from_fields(
        cls, fields: Mapping[str, str | int], representation: Representation = UTF8_LITTLE_ENDIAN
    ) -> DeadLetterHeader:
        """Make a header from values by MQ's field names; missing ones have defaults."""
        known: dict[str, Any] = {
            attribute: fields[name] for name, attribute in ATTRIBUTES.items() if name in fields
        }
        return cls(**known, representation=representation)

    def fields(self) -> dict[str, str | int]:
        """The values by MQ's field names, in the order of the structure."""
        return {name: getattr(self, attribute) for name, attribute in ATTRIBUTES.items()}


ATTRIBUTES: Final = {
    "Reason": "reason",
    "DestQName": "dest_q_name",
    "DestQMgrName": "dest_q_mgr_name",
    "Encoding": "encoding",
    "CodedCharSetId": "coded_char_set_id",
    "Format": "format",
    "PutApplType": "put_appl_type",
    "PutApplName": "put_appl_name",
    "PutDate": "put_date",
    "PutTime": "put_time",
}
"""MQ's field name -> attribute of ``DeadLetterHeader``."""


def decode_header(data: bytes, ccsid: int = 0) -> DeadLetterHeader | str:
    """Decode the dead-letter header at the start of a message, or say why there is none.

    A valid header has the eye-catcher, version 1 and 172 bytes; the format in the message
    descriptor is ignored.

    Args:
        data: The message, or its first bytes.
        ccsid: The CCSID that the message descriptor declares; 0 if unknown.
    """
    ebcdic = EYE_CATCHERS.get(data[:4])
    if ebcdic is None:
        return "the value does not begin with the eye-catcher DLH of a dead-letter header"
    if len(data) < MQDLH_LENGTH:
        return f"the dead-letter header is cut: {len(data)} of {MQDLH_LENGTH} bytes"
    order = VERSIONS.get(data[4:8])
    if order is None:
        version = min(int.from_bytes(data[4:8], "big"), int.from_bytes(data[4:8], "little"))
        return f"the dead-letter header has version {version}, not 1"
    ccsid, codec = character_set(ccsid, ebcdic=ebcdic)
    return _decode_valid(data[:MQDLH_LENGTH], Representation(order, ccsid), codec)


def _decode_valid(source: bytes, representation: Representation, codec: str) -> DeadLetterHeader:
    # Field by field for speed: every new profile needs this.
    values = _STRUCTS[representation.byte_order].unpack(source)
    _, _, reason, queue, queue_manager, encoding, ccsid, format_, type_, name, date, time = values
    return DeadLetterHeader(
        reason=reason,
        dest_q_name=decode_text(queue, codec),
        dest_q_mgr_name=decode_text(queue_manager, codec),
        encoding=encoding,
        coded_char_set_id=ccsid,
        format=decode_text(format_, codec),
        put_appl_type=type_,
        put_appl_name=decode_text(name, codec),
        put_date=decode_text(date, codec),
        put_time=decode_text(time, codec),
        representation=representation,
        source=source,
    )


def decode_text(raw: bytes, codec: str) -> str:
    """The significant text of a character field; U+FFFD for undecodable bytes."""
    return trim(raw.decode(codec, "replace"))


def read_header_fields(data: bytes, *, ccsid: int = 0, encoding: int = 0) -> dict[str, str | int]:
    """Read the available fields of a dead-letter header, valid or not, for diagnosis.

    The declared CCSID is used if the eye-catcher is invalid, the declared numeric encoding if the
    version is. Values are by MQ's field names, including StrucId and Version: every complete
    integer and every text with at least its first byte.
    """
    known = _known_codec(ccsid)
    ebcdic = EYE_CATCHERS.get(data[:4], bool(known and known[1]))
    order: ByteOrder = VERSIONS.get(data[4:8], "big" if encoding & 0xF == 1 else "little")
    codec = character_set(ccsid, ebcdic=ebcdic)[1]
    raw_values = _STRUCTS[order].unpack(data[:MQDLH_LENGTH].ljust(MQDLH_LENGTH, b"\0"))
    values = {
        name: decode_text(value, codec) if isinstance(value, bytes) else value
        for name, value in zip(MQDLH, raw_values, strict=True)
    }
    values["StrucId"] = data[:4].decode(codec, "replace")  # its blank is significant
    return {
        name: values[name]
        for name, mq_field in MQDLH.items()
        if len(data)
        >= mq_field.offset + (mq_field.length if mq_field.type is FieldType.LONG else 1)
    }


def encode_header(header: DeadLetterHeader) -> bytes:
    """Write a dead-letter header in its representation, 172 bytes.

    If it was decoded from bytes, unchanged fields are written as they were, with their padding.

    Raises:
        ValueError: If a text does not fit its field or the character set, or a number does not fit
            an MQLONG.
    """
    before = decode_header(header.source, header.representation.ccsid)
    kept: dict[str, str | int] = {}
    if isinstance(before, DeadLetterHeader) and before.representation == header.representation:
        kept = {"StrucId": "DLH ", "Version": 1, **before.fields()}
    parts = []
    for name, value in {"StrucId": "DLH ", "Version": 1, **header.fields()}.items():
        mq_field = MQDLH[name]
        if kept.get(name) == value:
            parts.append(header.source[mq_field.offset : mq_field.offset + mq_field.length])
        else:
            parts.append(_encode_value(value, mq_field, header.representation))
    return b"".join(parts)


def _encode_value(value: str | int, mq_field: Field, representation: Representation) -> bytes:
    if isinstance(value, str):
        return encode_text(value, mq_field, representation.codec)
    try:
        return value.to_bytes(mq_field.length, representation.byte_order, signed=True)
    except OverflowError:
        raise ValueError(f"{mq_field.name} {value} is not an MQLONG") from None


def encode_text(text: str, mq_field: Field, codec: str) -> bytes:
    """Encode a text for a character field, padded with blanks.

    Raises:
        ValueError: If the text does not fit the field or the character set.
    """
    raw = text.encode(codec)
    if len(raw) > mq_field.length:
        raise ValueError(
            f"{mq_field.name} {text!r} has {len(raw)} bytes, more than {mq_field.length}"
        )
    return raw + " ".encode(codec) * (mq_field.length - len(raw))
