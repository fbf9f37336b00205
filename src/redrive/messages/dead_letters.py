"""Dead letters: read the header in any scheme, remove it, or add one.

The match fields are the same for many messages: header fields repeat, bodies and times do not. So
messages are decoded into *profiles*, one for all messages with equal header fields, and a decision
about a profile applies to all its messages.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from operator import itemgetter
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from redrive.messages import own_headers as own
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
    is_default,
    mqmd_fields,
    mqmd_headers,
    put_moment,
    read_long,
    read_text,
    with_mqmd_headers,
)
from redrive.messages.records import HeaderGrid, Records
from redrive.messages.schemes import KNOWN, NO_SCHEME, DeadLetterView, Message, Scheme, SchemeTable
from redrive.messages.schemes.reading import (
    BINARY,
    DLH_PREFIX,
    REDRIVE,
    AnyScheme,
    Reading,
    replaced_fields,
)
from redrive.messages.schemes.scheme import (
    DecisiveHeader,
    RecordPart,
    Stamp,
    valid_partition,
)

NO_VALID_SCHEME: Final = "none"
"""The scheme's name of a message that is not a dead letter of any scheme."""

DEAD_LETTER_FORMAT: Final = "MQDEAD"
"""MQFMT_DEAD_LETTER_HEADER: the format of a message that starts with an MQDLH."""

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
"""The keywords of patterns: the match fields of a dead letter."""

NUMERIC_KEYWORDS: Final = frozenset(
    [
        "REASON",
        *(name for name, mq_field in _MQMD_PATTERNS.items() if mq_field.type is FieldType.LONG),
    ]
)
"""The keywords with numbers as values."""

_MQMD_READERS: Final = [
    (keyword, mq_field.header, read_long if mq_field.type is FieldType.LONG else read_text)
    for keyword, mq_field in _MQMD_PATTERNS.items()
]
_FORMAT_HEADER: Final = MQMD["Format"].header
_REPORT_HEADER: Final = MQMD["Report"].header

# The headers that determine a profile, besides those of the message's schemes. Dates and times are
# left out: they differ in every message.
_PROFILE_HEADERS: Final = frozenset(
    [
        *(mq_field.header for mq_field in _MQMD_PATTERNS.values()),
        _FORMAT_HEADER,
        _REPORT_HEADER,
        *REDRIVE.headers,
        *BINARY.headers,
        own.GROUP_TOPIC,
    ]
)
_PUT_DATE: Final = MQDLH["PutDate"].offset
LATEST: Final = 10**15
"""Milliseconds since 1970 above which a number is no time: Redrive's headers hold 15 digits."""
_LAYOUTS: Final = 64
"""Layouts of headers whose profiles a decoder finds the fast way."""


class Form(StrEnum):
    """How Redrive writes a dead-letter header."""

    BINARY = "binary"
    """An MQDLH in front of the body."""
    HEADERS = "headers"
    """Headers ``mqdlh.*``."""


@dataclass(frozen=True, slots=True)
class DeadLetterProfile:
    """The common part of all dead letters with equal header fields."""

    scheme: str
    """Name of the scheme; ``NO_VALID_SCHEME`` if the message is not a dead letter of any."""
    problem: str
    """Why there is no valid scheme; empty if there is one."""
    fields: Mapping[str, str | int]
    """Keyword of patterns -> normalised value: texts without padding, numbers. Without a valid
    scheme those of the dead-letter header are blank or 0."""
    header: DeadLetterHeader | None
    """The failure as MQ's dead-letter header, with date and time of the first message seen."""
    view: DeadLetterView = NO_SCHEME
    """The failure, without what differs in every message, such as offsets, times and messages of
    exceptions (``VARYING``)."""
    warning: str = ""
    """What is odd about a valid dead letter, for users."""
    origins: tuple[str, ...] = ()
    """The topics where the message failed, from its headers, the first failure first."""
    replaced: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    """Headers of the message descriptor without the dead-letter header."""
    absent: frozenset[str] = frozenset()
    """Headers of the message descriptor that the message had not before it had an MQDLH."""
    report: int = 0
    """The Report field of a dead letter of MQ: the reports that it asks for."""
    taken: tuple[AnyScheme, ...] = field(default=(), repr=False)
    """The schemes whose headers are removed when the message returns."""
    group_topic: own.GroupTopic | None = None
    """The group's topic, if it failed there; then everything else here names the original topic."""

    @property
    def failed_on(self) -> str | None:
        """The topic of the failed record; None if unknown."""
        return self.group_topic.name if self.group_topic else self.view.origin.topic

    @property
    def is_dead_letter(self) -> bool:
        """Whether the message is a dead letter of any scheme."""
        return self.scheme != NO_VALID_SCHEME

    @property
    def comes_from_kafka(self) -> bool:
        """Whether another program dead-lettered it and names a record as its origin."""
        return any(isinstance(scheme, Scheme) for scheme in self.taken)

    @property
    def drops_headers(self) -> bool:
        """Whether the program that dead-lettered it may leave out the record's headers."""
        return any(isinstance(scheme, Scheme) and scheme.drops_headers for scheme in self.taken)

    @property
    def stamp(self) -> Stamp:
        """The timestamp that the writer of the dead letter gave it; UNKNOWN for MQ's forms."""
        scheme = self.taken[0] if self.taken else None
        return scheme.stamp if isinstance(scheme, Scheme) else Stamp.UNKNOWN

    @property
    def is_wrapped(self) -> bool:
        """Whether a scheme replaces the record's key or value."""
        return any(
            isinstance(scheme, Scheme) and (scheme.original_key or scheme.original_value)
            for scheme in self.taken
        )


def decode_dead_letter(
    value: bytes | None,
    headers: Headers,
    *,
    key: bytes | None = None,
    schemes: SchemeTable = KNOWN,
) -> DeadLetterProfile:
    """The profile of one message. No content of a message makes this raise."""
    reading = schemes.reading([name for name, _ in headers])
    return _profile(reading, key, value, headers)


def read_view(
    key: bytes | None, value: bytes | None, headers: Headers, *, schemes: SchemeTable = KNOWN
) -> DeadLetterView:
    """One message's failure, with everything that a profile leaves out.

    A failure on a group's topic names the original topic, if the headers have Redrive's own; its
    offset there is unknown. No content of a message makes this raise; a message that is not a dead
    letter has ``NO_SCHEME``.
    """
    view = schemes.reading([name for name, _ in headers]).find(key, value, headers).view
    group_topic = own.read_group_topic(dict(headers).get(own.GROUP_TOPIC))
    return view if group_topic is None else _original_view(view, group_topic)


def _profile(
    reading: Reading, key: bytes | None, value: bytes | None, headers: Headers
) -> DeadLetterProfile:
    scheme, view, header, problem = reading.find(key, value, headers, shared=True)
    last = dict(headers)
    if scheme is None:
        if problem.startswith("the value "):  # there is no trace of MQ's headers either
            problem = f"no header of a known scheme, and {problem}"
        fields = _pattern_fields(last, DeadLetterHeader())
        return DeadLetterProfile(NO_VALID_SCHEME, problem, fields, None)
    if isinstance(scheme, Scheme):
        header = scheme.header(view)
        taken = tuple(scheme for scheme in reading.schemes if isinstance(scheme, Scheme))
        origins = tuple(reading.origins(headers))
        if scheme not in taken:
            taken, origins = (scheme, *taken), (*origins, view.origin.topic or "")
        profile = DeadLetterProfile(
            scheme.name,
            "",
            _pattern_fields(last, header),
            header,
            view,
            origins=origins or (view.origin.topic or "",),
            taken=taken,
        )
        return with_original(profile, own.read_group_topic(last.get(own.GROUP_TOPIC)))
    header = header or DeadLetterHeader()
    replaced, absent = mqmd_headers(replaced_fields(header)), frozenset[str]()
    if scheme is BINARY:
        absent = frozenset(name for name, text in replaced.items() if is_default(name, text))
    return DeadLetterProfile(
        scheme.name,
        "",
        _pattern_fields(last, header),
        header,
        view,
        _odd_format(last.get(_FORMAT_HEADER)) if scheme is BINARY else "",
        replaced=replaced,
        absent=absent,
        report=read_long(last.get(_REPORT_HEADER)),
        taken=(scheme,),
    )


def origin_partition(
    profile: DeadLetterProfile, key: bytes | None, value: bytes | None, headers: Headers
) -> int | None:
    """The partition of the failed record on its original topic; None if unknown.

    A profile leaves it out, since only a return to the same partition needs it.
    """
    if profile.group_topic is not None:
        return profile.group_topic.partition
    scheme = profile.taken[0] if profile.taken else None
    if not isinstance(scheme, Scheme):
        return None
    return valid_partition(scheme.read("origin.partition", key, value, headers))


def origin_partition_headers(profile: DeadLetterProfile) -> frozenset[str] | None:
    """The headers that determine ``origin_partition``; None if key or value does."""
    scheme = profile.taken[0] if profile.taken else None
    if profile.group_topic is not None or not isinstance(scheme, Scheme):
        return frozenset()
    parts = scheme.parts.get("origin.partition", ())
    is_known = all(part.place is RecordPart.HEADER for part in parts)
    return frozenset(part.header for part in parts) if is_known else None


def origin_time(
    profile: DeadLetterProfile, key: bytes | None, value: bytes | None, headers: Headers
) -> int:
    """The timestamp of the failed record in milliseconds; 0 if unknown.

    A profile leaves it out, since it differs in every message.
    """
    scheme = profile.taken[0] if profile.taken else None
    if not isinstance(scheme, Scheme):
        return 0
    return valid_time(scheme.read("origin.timestamp", key, value, headers))


def valid_time(number: str | int | None) -> int:
    """A time in milliseconds as read from a message; 0 if it is none."""
    return number if isinstance(number, int) and 0 < number < LATEST else 0


def names_offset(profile: DeadLetterProfile, layout: Collection[str]) -> bool:
    """Whether dead letters with these header names name the offset of the record that failed."""
    scheme = profile.taken[0] if profile.taken else None
    parts = scheme.parts.get("origin.offset", ()) if isinstance(scheme, Scheme) else ()
    return any(part.place is RecordPart.HEADER and part.header in layout for part in parts)


def with_original(
    profile: DeadLetterProfile, group_topic: own.GroupTopic | None
) -> DeadLetterProfile:
    """The profile of a failure on a group's topic, as if on the original topic.

    Redrive's header counts only if the profile's origin is that topic, since a service may copy the
    header to another event.
    """
    header = profile.header
    if group_topic is None or header is None or profile.view.origin.topic != group_topic.name:
        return profile
    name = group_topic.original
    return replace(
        profile,
        fields={**profile.fields, "DESTQ": name},
        header=replace(header, dest_q_name=name),
        view=_original_view(profile.view, group_topic),
        origins=tuple(name if origin == group_topic.name else origin for origin in profile.origins),
        group_topic=group_topic,
    )


def _original_view(view: DeadLetterView, group_topic: own.GroupTopic) -> DeadLetterView:
    if view.origin.topic != group_topic.name:
        return view
    origin = replace(
        view.origin, topic=group_topic.original, partition=group_topic.partition, offset=None
    )
    return replace(view, origin=origin)


def _odd_format(raw: bytes | None) -> str:
    # The bytes determine whether there is a header, not the format.
    if raw is None or read_text(raw) == DEAD_LETTER_FORMAT:
        return ""
    return f"MQMD.Format is {read_text(raw)!r}, not {DEAD_LETTER_FORMAT}"


def _pattern_fields(
    last: Mapping[str, bytes | None], header: DeadLetterHeader
) -> dict[str, str | int]:
    fields: dict[str, str | int] = {
        keyword: read(last.get(name)) for keyword, name, read in _MQMD_READERS
    }
    fields["DESTQ"] = header.dest_q_name
    fields["DESTQM"] = header.dest_q_mgr_name
    fields["FORMAT"] = header.format
    fields["REASON"] = header.reason
    return fields


class _Layout(NamedTuple):
    """Cached knowledge about messages with the same header names in the same order."""

    reading: Reading
    columns: Sequence[DecisiveHeader]
    """The headers that determine their profile."""
    signature: Hashable
    """Equal for layouts whose messages have the same profile if these headers are equal."""
    codes: dict[object, int]
    """Profiles by what determines them."""

    @classmethod
    def of(cls, names: tuple[str, ...], schemes: SchemeTable) -> _Layout:
        reading = schemes.reading(names)
        # The last of repeated MQ headers counts.
        last = {name: index for index, name in enumerate(names) if name in _PROFILE_HEADERS}
        columns = sorted(
            {*(DecisiveHeader(index, None) for index in last.values()), *reading.columns()},
            key=itemgetter(0),
        )
        signature = schemes, tuple(names[index] for index, _ in columns), reading.signature
        return cls(reading, columns, signature, {})

    def key(self, key: bytes | None, value: bytes | None, headers: Headers) -> Hashable:
        """What determines the profile of one record, equal to the result of ``keys``."""
        parts: list[object] = [_value_key(value)]
        for index, part in self.columns:
            raw = headers[index][1]
            parts.append(raw if part is None else raw and part.read(raw))
        if self.reading.looks_into_records:
            parts.append(self.reading.decisive(key, value))
        return tuple(parts)

    def keys(self, records: Records, grid: HeaderGrid) -> Iterable[Hashable]:
        """What determines the profile of each record."""
        parts: list[Iterable[object]] = [map(_value_key, records.values)]
        for index, part in self.columns:
            raws = grid.column(index)
            parts.append(raws if part is None else [raw and part.read(raw) for raw in raws])
        if self.reading.looks_into_records:
            parts.append(map(self.reading.decisive, records.keys, records.values))
        return zip(*parts, strict=True)


class DeadLetterDecoder:
    """Decodes messages by the batch and caches profiles.

    What determines a profile is read from each message; decoding itself is done once for each
    profile. The cache is bounded: after ``limit`` profiles, which one call may exceed by those of
    its own batch, the next call starts a new list.
    """

    def __init__(self, limit: int = 20_000) -> None:
        self._limit = limit
        self._codes: dict[object, int] = {}
        self._layouts: dict[tuple[SchemeTable, tuple[str, ...]], _Layout] = {}
        self._profiles: list[DeadLetterProfile] = []

    def decode(
        self, records: Records, schemes: SchemeTable = KNOWN
    ) -> tuple[npt.NDArray[np.int32], Sequence[DeadLetterProfile]]:
        """Find the profile of each record, by these schemes.

        Returns:
            For each record an index into the profiles, and the profiles. The list grows with later
            calls, while its entries stay; after ``limit`` profiles a call returns another list,
            which is how a caller sees that its indexes are no longer valid.
        """
        if len(self._profiles) >= self._limit:
            self._codes, self._profiles = {}, []
            self._layouts.clear()
        grid = records.grid
        if grid is None:
            code = partial(self._code, schemes)
            codes = list(map(code, records.keys, records.values, records.headers))
        else:
            codes = self._codes_of(records, grid, schemes)
        return np.array(codes, dtype=np.int32), self._profiles

    def _codes_of(self, records: Records, grid: HeaderGrid, schemes: SchemeTable) -> list[int]:
        """The fast way: with one layout, only the headers that matter are read."""
        layout = self._layout(grid.layout, schemes)
        known, codes = layout.codes, []
        for row, decisive in enumerate(layout.keys(records, grid)):
            code = known.get(decisive)
            if code is None:
                key, value = records.keys[row], records.values[row]
                code = self._learn(layout, decisive, key, value, records.headers[row])
            codes.append(code)
        return codes

    def _code(
        self, schemes: SchemeTable, key: bytes | None, value: bytes | None, headers: Headers
    ) -> int:
        layout = self._layout(tuple([name for name, _ in headers]), schemes)
        decisive = layout.key(key, value, headers)
        code = layout.codes.get(decisive)
        return self._learn(layout, decisive, key, value, headers) if code is None else code

    def _learn(
        self,
        layout: _Layout,
        decisive: Hashable,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
    ) -> int:
        whole = layout.signature, decisive
        code = self._codes.get(whole)
        if code is None:
            code = self._codes[whole] = len(self._profiles)
            self._profiles.append(_profile(layout.reading, key, value, headers))
        layout.codes[decisive] = code
        return code

    def _layout(self, names: tuple[str, ...], schemes: SchemeTable) -> _Layout:
        layout = self._layouts.get((schemes, names))
        if layout is None:
            if len(self._layouts) >= _LAYOUTS:
                self._layouts.clear()
            layout = self._layouts[schemes, names] = _Layout.of(names, schemes)
        return layout


def _value_key(value: bytes | None) -> bytes | int:
    # What a value adds to its profile: the MQDLH up to its date, or why it is not one.
    if value is None or value[:4] not in EYE_CATCHERS:
        return -1 if value is None else MQDLH_LENGTH
    return value[:_PUT_DATE] if len(value) >= MQDLH_LENGTH else len(value)


def remove_header(profile: DeadLetterProfile, value: bytes | None, headers: Headers) -> Message:
    """The message before it was dead-lettered, for RETRY and HEADER(NO).

    Of MQ's headers only the outermost is removed. Format, Encoding and CodedCharSetId of the
    message descriptor come from it, those that are blank or 0 in an MQDLH are removed; everything
    else is unchanged. All headers of other schemes are
    removed, whichever hop wrote them. They had replaced nothing, so nothing is restored, except a
    payload that a user's scheme wraps. A message that is not a dead letter is returned as it is. No
    argument is changed.
    """
    kept = list(headers)
    for scheme in profile.taken:
        if not isinstance(scheme, Scheme):
            value, kept = scheme.remove(value, kept)
            continue
        kept = [pair for pair in kept if not scheme.owns(pair[0])]
        if scheme.original_value is not None and not profile.view.pointer:
            value = scheme.original_value(value or b"")
    if profile.absent:
        kept = [pair for pair in kept if pair[0] not in profile.absent]
    return value, with_mqmd_headers(kept, profile.replaced)


def original_key(profile: DeadLetterProfile, key: bytes | None, headers: Headers) -> bytes | None:
    """The record's key before it was dead-lettered."""
    for scheme in profile.taken:
        if isinstance(scheme, Scheme) and scheme.original_key is not None:
            last = {name: raw for name, raw in dict(headers).items() if raw is not None}
            return scheme.original_key(key, last)
    return key


def without_stacks(profile: DeadLetterProfile, headers: Headers) -> Headers:
    """The headers without stack traces, which are never forwarded; no argument is changed."""
    stacks = {
        name for scheme in profile.taken if isinstance(scheme, Scheme) for name in scheme.stacks
    }
    return [pair for pair in headers if pair[0] not in stacks] if stacks else headers


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
    """A header, for ``add_header``, for a message that cannot be put.

    Args:
        headers: The message's headers; Format, Encoding and CodedCharSetId come from there.
        reason: The reason, MQRC_* or MQFB_*.
        queue: The queue that it was meant for.
        queue_manager: The queue manager that it was meant for.
        timestamp: When it is put on the dead-letter queue, in milliseconds since 1970.
        put_appl_name: The program that puts it there.
        put_appl_type: Its type, MQAT_*.
    """
    descriptor = mqmd_fields(headers)
    moment = put_moment(timestamp)
    return DeadLetterHeader(
        reason=reason,
        dest_q_name=queue,
        dest_q_mgr_name=queue_manager,
        encoding=int(descriptor["Encoding"]),
        coded_char_set_id=int(descriptor["CodedCharSetId"]),
        format=str(descriptor["Format"]),
        put_appl_type=put_appl_type,
        put_appl_name=put_appl_name,
        put_date=moment["PutDate"],
        put_time=moment["PutTime"],
    )


def add_header(
    header: DeadLetterHeader, value: bytes | None, headers: Headers, *, form: Form
) -> Message:
    """Add a dead-letter header to a message.

    ``BINARY`` puts an MQDLH in front of the body, in the header's representation, and makes the
    message descriptor describe the MQDLH. ``HEADERS`` appends headers ``mqdlh.*`` and changes
    nothing else: body and message descriptor still match. A message on which the binary form would
    be lost gets headers in either case: one without a body (a null cannot have anything in front),
    one with a name that does not fit into an MQDLH, one with other dead-letter headers that would
    be read first. No argument is changed; ``remove_header`` reverses it.
    """
    if form is Form.BINARY and value is not None:
        try:
            written = encode_header(header) + value
        except ValueError:
            written = b""
        description: dict[str, str | int] = {
            "Format": DEAD_LETTER_FORMAT,
            "Encoding": header.representation.encoding,
            "CodedCharSetId": header.representation.ccsid,
        }
        described = with_mqmd_headers(headers, mqmd_headers(description))
        if written and decode_dead_letter(written, described).scheme == BINARY.name:
            return written, described
    fields = header.fields().items()
    return value, [
        *headers,
        *((DLH_PREFIX + name, str(content).encode()) for name, content in fields),
    ]
