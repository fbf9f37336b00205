"""Fuzz target: whatever bytes a message begins with, reading its dead-letter header ends well."""

from __future__ import annotations

from redrive.messages import DeadLetterHeader, encode_header
from redrive.messages.dead_letter_header import MQDLH_LENGTH, decode_header, read_header_fields

SEEDS = (
    encode_header(DeadLetterHeader(reason=2053, dest_q_name="APP.IN", format="MQSTR")),
    b"DLH \0\0\0\1" + bytes(164),
    b"DLH \1\0\0\0" + b"\xff" * 164,
    b"\xc4\xd3\xc8\x40\0\0\0\1" + b"\x40" * 164,
)
CCSIDS = (0, 37, 500, 819, 850, 1200, 1208, -1, 99_999)


def check(data: bytes) -> None:
    """Read a header, with each character set that a message descriptor may declare.

    Raises:
        AssertionError: A header is not written as it was read, or one that is none has no reason.
    """
    for ccsid in CCSIDS:
        header = decode_header(data, ccsid)
        if isinstance(header, str):
            assert header
        else:
            assert encode_header(header) == data[:MQDLH_LENGTH]
        read_header_fields(data, ccsid=ccsid, encoding=len(data))
