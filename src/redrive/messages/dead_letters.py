"""Dead letters: read the header in whatever form it has, take it away, or put one on.

What rules look at is the same for many messages: header fields repeat, bodies and times do not.
So messages are decoded into *profiles*, one for all messages with equal header fields, and whatever
is decided for a profile holds for all its messages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

import numpy as np
import numpy.typing as npt

from redrive.messages.dead_letter_codecs import (
    CODECS,
    DLH_PREFIX,
    Form,
    LastHeaders,
    Message,
)
from redrive.messages.dead_letter_header import (
    EYE_CATCHERS,
    MQDLH,
    MQDLH_LENGTH,
    DeadLetterHeader,
    encode_header,
)
from redrive.messages.fields import (
    MQMD,
    FieldType,
    Headers,
    mqmd_fields,
    mqmd_headers,
    read_long,
    read_text,
    with_mqmd_headers,
)
from redrive.messages.records import HeaderGrid, Records

__all__ = [
    "PATTERN_KEYWORDS",
    "DeadLetterDecoder",
    "DeadLetterProfile",
    "add_header",
    "decode_dead_letter",
    "new_header",
    "remove_header",
]

DEAD_LETTER_FORMAT: Final = "MQDEAD"
"""MQFMT_DEAD_LETTER_HEADER: the format of a message that begins with an MQDLH."""

_MQMD_PATTERNS: Final = {
    "APPLIDAT": MQMD["ApplIdentityData"],
    "APPLNAME": MQMD["PutApplName"],
    "APPLTYPE": MQMD["PutApplType"],
    "FEEDBACK": MQMD["Feedback"],
    "MSGTYPE": MQMD["MsgType"],
    "PERSIST": MQMD["Persistence"],
    "REPLYQ": MQMD["ReplyToQ"],
    "REPLYQM": MQMD["ReplyToQMgr"],
    "USERID": MQMD["UserIdentifier"],
}

PATTERN_KEYWORDS: Final = tuple(
    sorted([*_MQMD_PATTERNS, "DESTQ", "DESTQM", "FORMAT", "REASON"]),
)
"""The keywords of patterns: what a rule can ask of a dead letter (rules-table spec. 3)."""

_MQMD_READERS: Final = [
    (keyword, it.header, read_long if it.type is FieldType.LONG else read_text)
    for keyword, it in _MQMD_PATTERNS.items()
]
_FORMAT_HEADER: Final = MQMD["Format"].header

# The headers that decide a profile. Dates and times are left out: they differ in every message.
_PROFILE_HEADERS: Final = tuple(
    dict.fromkeys(
        [
            *(it.header for it in _MQMD_PATTERNS.values()),
            _FORMAT_HEADER,
            *(name for codec in CODECS for name in codec.headers),
        ]
    )
)
_PUT_DATE: Final = MQDLH["PutDate"].offset
_LAYOUTS: Final = 64
"""Layouts of headers whose profiles a decoder finds the quick way."""
_CODEC_OF_FORM: Final = {codec.form: codec for codec in CODECS}


@dataclass(frozen=True, slots=True)
class DeadLetterProfile:
    """A profile: what all dead letters with equal header fields share."""

    form: Form
    """The form of the header; ``NONE`` if there is no valid one."""
    problem: str
    """Why there is no valid header; empty if there is one."""
    fields: Mapping[str, str | int]
    """Keyword of patterns -> normalised value: texts without padding, numbers. Without a valid
    header those of the dead-letter header are blank or 0."""
    header: DeadLetterHeader | None
    """The header; its date and time are those of the first message that was seen."""
    warning: str = ""
    """What is odd about a valid header, for a person."""
    replaced: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    """Headers of the message descriptor as they are without the dead-letter header."""


def decode_dead_letter(value: bytes | None, headers: Headers) -> DeadLetterProfile:
    """Decode one message.

    Args:
        value: The record's value.
        headers: The record's headers; where a name is repeated, the last one counts, and where
            that is null, the header counts as missing.

    Returns:
        Its profile. Nothing that a message contains makes this raise.
    """
    last = {name: raw for name, raw in dict(headers).items() if raw is not None}
    problem = ""
    for codec in CODECS:
        found = codec.decode(value, last)
        if isinstance(found, DeadLetterHeader):
            warning = _odd_format(last.get(_FORMAT_HEADER)) if codec.form is Form.BINARY else ""
            replaced = mqmd_headers(codec.replaced(found))
            fields = _pattern_fields(last, found)
            return DeadLetterProfile(codec.form, "", fields, found, warning, replaced)
        problem = problem or found
    return DeadLetterProfile(Form.NONE, problem, _pattern_fields(last, DeadLetterHeader()), None)


def _odd_format(raw: bytes | None) -> str:
    # The bytes decide whether there is a header, not the format (rules-table spec. Q-30).
    if raw is None or read_text(raw) == DEAD_LETTER_FORMAT:
        return ""
    return f"MQMD.Format is {read_text(raw)!r}, not {DEAD_LETTER_FORMAT}"


def _pattern_fields(last: LastHeaders, header: DeadLetterHeader) -> dict[str, str | int]:
    fields: dict[str, str | int] = {
        keyword: read(last.get(name)) for keyword, name, read in _MQMD_READERS
    }
    fields["DESTQ"] = header.dest_q_name
    fields["DESTQM"] = header.dest_q_mgr_name
    fields["FORMAT"] = header.format
    fields["REASON"] = header.reason
    return fields


class DeadLetterDecoder:
    """Decodes messages by the batch and keeps the profiles it has seen.

    What decides a profile is picked from each message; the decoding itself is done once for each
    profile. The memory is bounded: with ``limit`` profiles the next call starts a new list.

    Args:
        limit: Profiles to keep. One call may exceed it by the profiles of its own batch.
    """

    def __init__(self, limit: int = 20_000) -> None:
        self._limit = limit
        self._codes: dict[object, int] = {}
        self._codes_by_layout: dict[tuple[str, ...], dict[object, int]] = {}
        self._profiles: list[DeadLetterProfile] = []

    def decode(self, records: Records) -> tuple[npt.NDArray[np.int32], Sequence[DeadLetterProfile]]:
        """Find the profile of each record.

        Args:
            records: Any records; nothing that they contain makes this raise.

        Returns:
            For each record an index into the profiles, and the profiles. The list grows with later
            calls, its entries stay; after ``limit`` profiles a call returns another list, which is
            how a caller sees that what it kept by index is no longer valid.
        """
        if len(self._profiles) >= self._limit:
            self._codes, self._profiles = {}, []
            self._codes_by_layout.clear()
        grid = records.grid
        if grid is None:
            codes = list(map(self._code, records.values, records.headers))
        else:
            codes = self._codes_of(records, grid)
        return np.array(codes, dtype=np.int32), self._profiles

    def _codes_of(self, records: Records, grid: HeaderGrid) -> list[int]:
        """The quick way: of headers that all have one layout, only those that matter are seen."""
        known = self._codes_by_layout.get(grid.layout)
        if known is None:
            if len(self._codes_by_layout) >= _LAYOUTS:
                self._codes_by_layout.clear()
            known = self._codes_by_layout[grid.layout] = {}
        # Of a repeated name the last one counts.
        last = {name: index for index, name in enumerate(grid.layout) if name in _PROFILE_HEADERS}
        keys = zip(map(_value_key, records.values), *map(grid.column, last.values()), strict=True)
        codes = []
        for row, key in enumerate(keys):
            code = known.get(key)
            if code is None:
                code = known[key] = self._code(records.values[row], records.headers[row])
            codes.append(code)
        return codes

    def _code(self, value: bytes | None, headers: Headers) -> int:
        key = (_value_key(value), *map(dict(headers).get, _PROFILE_HEADERS))
        code = self._codes.get(key)
        if code is None:
            code = self._codes[key] = len(self._profiles)
            self._profiles.append(decode_dead_letter(value, headers))
        return code


def _value_key(value: bytes | None) -> bytes | int:
    # What a value adds to its profile: the MQDLH up to its date, or how it falls short of one.
    if value is None or value[:4] not in EYE_CATCHERS:
        return -1 if value is None else MQDLH_LENGTH
    return value[:_PUT_DATE] if len(value) >= MQDLH_LENGTH else len(value)


def remove_header(profile: DeadLetterProfile, value: bytes | None, headers: Headers) -> Message:
    """The message as it was before it was dead-lettered: RETRY and HEADER(NO).

    Only the outermost header is removed. Format, Encoding and CodedCharSetId of the message
    descriptor come from it; everything else stays, byte for byte (rules-table spec. 4.6).
    Connect's and Spring's headers had replaced nothing, so nothing comes back.

    Args:
        profile: The profile of this message.
        value: The record's value; not changed.
        headers: The record's headers; not changed.

    Returns:
        The new value and headers. A message without a valid header is returned as it is.
    """
    codec = _CODEC_OF_FORM.get(profile.form)
    if codec is None:
        return value, list(headers)
    body, kept = codec.remove(value, headers)
    return body, with_mqmd_headers(kept, profile.replaced)


def new_header(
    headers: Headers,
    *,
    reason: int,
    queue: str,
    queue_manager: str,
    timestamp: int,
    put_appl_name: str = "redrive",
    put_appl_type: int = 0,
) -> DeadLetterHeader:
    """The header for a message that cannot be delivered (rules-table spec. 8.1).

    Args:
        headers: The message's headers; Format, Encoding and CodedCharSetId come from there.
        reason: MQRC_* or MQFB_*: why.
        queue: The queue that it was for.
        queue_manager: The queue manager that it was for.
        timestamp: When it is put on the dead-letter queue, in milliseconds since 1970.
        put_appl_name: The program that does it.
        put_appl_type: Its type, MQAT_*.

    Returns:
        The header, to be put on with ``add_header``.
    """
    descriptor = mqmd_fields(headers)
    moment = datetime.fromtimestamp(timestamp / 1000, UTC)
    return DeadLetterHeader.from_fields(
        {
            "Reason": reason,
            "DestQName": queue,
            "DestQMgrName": queue_manager,
            **{name: descriptor[name] for name in ("Encoding", "CodedCharSetId", "Format")},
            "PutApplType": put_appl_type,
            "PutApplName": put_appl_name,
            "PutDate": f"{moment:%Y%m%d}",
            "PutTime": f"{moment:%H%M%S}{moment.microsecond // 10_000:02}",
        }
    )


def add_header(
    header: DeadLetterHeader, value: bytes | None, headers: Headers, *, form: Form
) -> Message:
    """Put a dead-letter header on a message.

    ``BINARY`` puts an MQDLH in front of the body, in the header's representation, and lets the
    message descriptor describe the MQDLH. ``HEADERS`` appends headers ``mqdlh.*`` and changes
    nothing: body and message descriptor still belong together. A message on which the binary form
    would be lost gets headers in either case: one without a body (a null can't have anything in
    front), a name that does not fit into an MQDLH, a message that has other dead-letter headers
    already, which would be read first.

    Args:
        header: What to write.
        value: The record's value; not changed.
        headers: The record's headers; not changed.
        form: ``BINARY`` or ``HEADERS``; others are written as headers.

    Returns:
        The new value and headers; ``remove_header`` takes them back.
    """
    if form is Form.BINARY and value is not None:
        try:
            written = encode_header(header) + value
        except ValueError:
            written = b""
        described = with_mqmd_headers(headers, mqmd_headers(_description(header)))
        if written and decode_dead_letter(written, described).form is Form.BINARY:
            return written, described
    fields = header.fields().items()
    return value, [*headers, *((DLH_PREFIX + name, str(it).encode()) for name, it in fields)]


def _description(header: DeadLetterHeader) -> dict[str, str | int]:
    return {
        "Format": DEAD_LETTER_FORMAT,
        "Encoding": header.representation.encoding,
        "CodedCharSetId": header.representation.ccsid,
    }
