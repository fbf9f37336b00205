"""Dead letters for the tests of this package: written by hand from the layout, and arbitrary."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import strategies as st

from redrive.messages import DeadLetterHeader, Headers, Representation

HEADERS_TYPE = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
MQMD = "JMS_IBM_MQMD_"

ASCII_LITTLE = (
    b"DLH \x01\0\0\0\x05\x08\0\0"
    + b"APP.IN".ljust(48)
    + b"QM1".ljust(48)
    + b"\x22\x02\0\0\xb8\x04\0\0MQSTR   \x06\0\0\0"
    + b"amqrmppa".ljust(28)
    + b"2026011512345678"
)
"""APP.IN on QM1, 2053, MQSTR in 546/1208, put by amqrmppa (6) on 2026-01-15 at 12:34:56.78."""

SAMPLE = DeadLetterHeader(
    reason=2053,
    dest_q_name="APP.IN",
    dest_q_mgr_name="QM1",
    encoding=546,
    coded_char_set_id=1208,
    format="MQSTR",
    put_appl_type=6,
    put_appl_name="amqrmppa",
    put_date="20260115",
    put_time="12345678",
)
"""What ``ASCII_LITTLE`` says."""

REPRESENTATIONS = [
    Representation(order, ccsid)
    for order in ("big", "little")
    for ccsid in (819, 850, 1208, 1252, 37, 500, 1047, 1140)
]

BEGINNINGS = [
    eye_catcher + version
    for eye_catcher in (b"DLH ", b"\xc4\xd3\xc8\x40")
    for version in (b"\0\0\0\1", b"\1\0\0\0")
]


def record_batch(values: list[bytes | None], headers: list[Headers | None]) -> pa.RecordBatch:
    """A batch as Spark's Kafka source gives it."""
    count = len(values)
    return pa.record_batch(
        {
            "key": pa.array([b"key"] * count, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "headers": pa.array(headers, HEADERS_TYPE),
            "timestamp": pa.array([1_000_999] * count, pa.timestamp("us", tz="UTC")),
            "offset": pa.array(range(count), pa.int64()),
        }
    )


def mqmd(**fields: str | int) -> Headers:
    return [(MQMD + name, str(value).encode()) for name, value in fields.items()]


valid_headers = st.builds(
    bytes.__add__, st.sampled_from(BEGINNINGS), st.binary(min_size=164, max_size=164)
)
"""Every byte string that is a valid MQDLH: its contents are anything at all."""

longs = st.integers(-(2**31), 2**31 - 1)
ccsids = st.sampled_from([0, -2, 37, 437, 500, 819, 1047, 1140, 1200, 1208, 932, 99_999]) | longs

# Names as queue managers make them, so that every character set of REPRESENTATIONS has them.
names = st.text("ABCDEFGHIJKLMNOPQRSTUVWXYZabcxyz0123456789./_%", max_size=8)

headers_of_names = st.builds(
    DeadLetterHeader,
    reason=longs,
    dest_q_name=names,
    dest_q_mgr_name=names,
    encoding=longs,
    coded_char_set_id=ccsids,
    format=names,
    put_appl_type=longs,
    put_appl_name=names,
    put_date=names,
    put_time=names,
    representation=st.sampled_from(REPRESENTATIONS),
)

_interesting_names = st.sampled_from(
    [
        *(MQMD + name for name in ("Format", "Encoding", "CodedCharSetId", "ReplyToQ", "MsgType")),
        *(
            "mqdlh." + name
            for name in ("Reason", "DestQName", "Format", "CodedCharSetId", "PutTime")
        ),
        "__connect.errors.topic",
        "__connect.errors.exception.class.name",
        "__connect.errors.exception.stacktrace",
        "kafka_dlt-original-topic",
        "kafka_dlt-original-offset",
        "dead-letter-topic",
        "__dlq.errors.topic",
        "original_cluster",
        "x-death",
        "trace",
        "",
    ]
)
_interesting_values = (
    st.none()
    | st.sampled_from(
        [b"", b"0", b"MQSTR   ", b"MQDEAD", b"2053", b" 546 ", b"-2", b"x", b"Q\0junk"]
    )
    | st.sampled_from([b"x\nCaused by: a.B: c", b'[{"queue": "q", "count": 2}]'])
    | st.binary(max_size=6)
)
message_headers: st.SearchStrategy[Headers] = st.lists(
    st.tuples(_interesting_names, _interesting_values), max_size=8
)
"""Headers with what the codecs look at, repeated and malformed as it comes."""

message_values = (
    st.none()
    | st.binary(max_size=12)
    | st.builds(bytes.__add__, valid_headers, st.binary(max_size=4))
    | st.builds(lambda whole, end: whole[:end], valid_headers, st.integers(0, 172))
    | st.builds(bytes.__add__, st.just(b"DLH "), st.binary(max_size=200))
)
"""Values with a header, with a part of one, or with none."""

messages = st.tuples(message_values, message_headers)
