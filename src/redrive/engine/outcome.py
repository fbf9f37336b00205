"""Outcomes: the result of one attempt on one dead letter, as a value and as a record.

One outcome record goes to the application's outcomes topic for every input, in the transaction
that carries its effects. The record's value is one JSON object. ``Outcome`` is the one definition
of its members and of the ledger's columns: writer, reader, schemas and documentation follow it.
"""

from __future__ import annotations

import re
from binascii import b2a_base64
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import date
from enum import StrEnum
from functools import partial
from hashlib import sha256
from operator import attrgetter
from typing import (
    Annotated,
    Any,
    ClassVar,
    Final,
    NamedTuple,
    TypeAlias,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

import orjson

from redrive.engine.commands import Replay
from redrive.messages import (
    NUMERIC_KEYWORDS,
    PATTERN_KEYWORDS,
    DeadLetterProfile,
    Headers,
    Records,
)
from redrive.messages import own_headers as own
from redrive.messages.constants import reason_name
from redrive.messages.dead_letter_header import MQDLH, MQDLH_LENGTH
from redrive.messages.dead_letters import LATEST
from redrive.messages.records import HeaderGrid
from redrive.messages.schemes import Scheme
from redrive.messages.schemes.reading import (
    BINARY,
    DLH_PREFIX,
    REDRIVE,
    AnyScheme,
    read_moment,
)
from redrive.messages.schemes.scheme import Newest, Reader, RecordPart
from redrive.rules import is_topic_name
from redrive.version import __version__

FIELDS: Final = PATTERN_KEYWORDS
"""The pattern fields, in the order of the ledger's columns."""


class Result(StrEnum):
    """The result of one attempt on one input."""

    RETRIED = "retried"
    """Put to its original destination."""
    FORWARDED = "forwarded"
    """Put to the queue that the rule names."""
    DISCARDED = "discarded"
    """Deleted, as the rule says."""
    PARKED = "parked"
    """The attempt failed; the message waits for its next one."""
    REMAINS = "remains"
    """Nothing can place it now; it is kept until new definitions or an operator place it."""
    ROUTED = "routed"
    """Put where its names lead: on its queue, or on the way to another manager."""
    DEAD_LETTERED = "dead-lettered"
    """It could not be put, and is on a dead-letter queue."""
    EXPIRED = "expired"
    """It expired and was discarded."""
    SKIPPED = "skipped"
    """Unchanged: it no longer remains, or it still waits while others are tried early."""
    CANCELLED = "cancelled"
    """Unchanged: an operator cancelled the replay."""


FINAL = frozenset(
    {
        Result.RETRIED,
        Result.FORWARDED,
        Result.DISCARDED,
        Result.ROUTED,
        Result.DEAD_LETTERED,
        Result.EXPIRED,
    }
)
"""Results that end Redrive's work on the message; a replay may undo ``DISCARDED``."""

UNTOUCHED = frozenset({Result.SKIPPED, Result.CANCELLED})
"""Results of instructions without effect: the previous outcome says where the message is."""


LAST_TIME: Final = 4_102_444_800_000
"""Milliseconds; times from here on (the year 2100) are invalid, so that nonsense does not create
partitions."""
_PUT_DATE: Final = MQDLH["PutDate"].offset
_HALF: Final = MQDLH["PutTime"].offset - _PUT_DATE
"""Bytes of a date in MQ's dead-letter header, and of a time."""
LONGEST_KEY: Final = 4096
"""Maximum bytes of a record key in an outcome."""
LONGEST_TEXT: Final = 1024
"""Maximum characters of an external text in an outcome: MQ's own names have 48. An outcome has some
twenty such texts, and a topic accepts a megabyte by default."""
LONGEST_ERROR: Final = 300
"""Maximum characters of an exception's message in an outcome; every outcome may have one."""


class Kind(StrEnum):
    """The type of a column, by its name in the Delta protocol."""

    TEXT = "string"
    INTEGER = "integer"
    LONG = "long"
    BYTES = "binary"
    TIME = "timestamp"
    DAY = "date"


class Column(NamedTuple):
    """One column of the ledger."""

    kind: Kind
    meaning: str
    name: str = ""
    """Annotations of ``Outcome`` omit it where it equals the field's name."""
    is_own: bool = False
    """Whether no text of messages or brokers can be in it, so that it is never masked."""
    member: str = ""
    """The member of the record that it is read from, ``fields.X`` for a nested one; empty if no
    record has it. Annotations omit it."""


_text: Final = partial(Column, Kind.TEXT)
_own_text: Final = partial(_text, is_own=True)
_integer: Final = partial(Column, Kind.INTEGER)
_long: Final = partial(Column, Kind.LONG)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of one attempt on one input.

    A field is a member of the record, and its annotation is the column of the ledger; a
    ``ClassVar`` is a column that no record has. They are in the order of the columns; new ones come
    last.

    A decision is serialized once, without the fields of the single message, which are None. Those
    are prepended as text for each message, because a value per message would cost too much.
    """

    time: Annotated[int | None, Column(Kind.TIME, "when the attempt was made")] = None
    """Time of the attempt, in milliseconds since 1970."""
    day: ClassVar[
        Annotated[date, Column(Kind.DAY, "UTC day of `time`; the table is partitioned by it")]
    ]
    outcome: Annotated[
        str | None, _own_text("`topic:partition:offset` of the record decided on")
    ] = None
    message: Annotated[str | None, _own_text("identity of the message, kept over all its hops")] = (
        None
    )
    message_offset: ClassVar[Annotated[int, _long("the offset in `message`, for quick look-ups")]]
    origin: Annotated[
        str | None, _own_text("`topic:partition:offset` of the dead letter itself")
    ] = None
    topic: Annotated[
        str | None,
        _own_text(
            "where the record was read: dead-letter queue, retry, remaining or replay topic",
            "source_topic",
        ),
    ] = None
    partition: Annotated[int | None, _integer("its partition", "source_partition")] = None
    offset: Annotated[int | None, _long("its offset", "source_offset")] = None
    handler: Annotated[str, _own_text("name of the handler")]
    queue_manager: Annotated[str, _own_text("queue manager of the dead-letter queue")]
    queue: Annotated[str, _own_text("the dead-letter queue")]
    table: Annotated[str, _own_text("hash of the rules table that decided", "table_hash")]
    rule_line: Annotated[int, _integer("line of the rule; 0 when none applied")] = 0
    action: Annotated[str, _own_text("RETRY, FWD, DISCARD or IGNORE; empty without a rule")] = ""
    authority: Annotated[str, _own_text("PUTAUT of the rule: DEF or CTX")] = ""
    attempt: Annotated[int, _integer("number of the attempt, from 1; 0 for none")]
    result: Annotated[
        Result,
        _own_text(
            "retried, forwarded, discarded, parked or remains;"
            " of a replay that changed nothing skipped or cancelled"
        ),
    ]
    reason: Annotated[int, _integer("why the attempt failed: MQ reason code; 0 if not")]
    reason_name: Annotated[str, _own_text("its name, such as MQRC_Q_FULL")] = ""
    detail: Annotated[str, _text("what Kafka or the rules said about it")]
    target_queue_manager: Annotated[str, _text("where the put went")]
    target_queue: Annotated[str, _text("where the put went")]
    target_topic: Annotated[str, _text("where the put went; empty if it failed")]
    form: Annotated[str, _own_text("scheme of the dead letter; none: it is none of any scheme")]
    hop: Annotated[int | None, _integer("how often Redrive had put the message before")] = None
    size: Annotated[int | None, _long("bytes of the record's value", "body_size")] = None
    key: Annotated[str | None, Column(Kind.BYTES, "the record's key", "message_key")] = None
    """In base64."""
    key_length: int | None = None
    """Bytes of a key that is longer than ``LONGEST_KEY``; not in the ledger."""
    key_sha256: str | None = None
    """The SHA-256 of such a key; not in the ledger."""
    put: Mapping[str, str] | None = None
    """See ``put_members``; not in the ledger."""
    fields: Annotated[
        Mapping[str, str | int | None], _text("pattern field {}, normalised", "field_{}")
    ]
    """Pattern fields by keyword, one column each."""
    job_version: Annotated[str, _own_text("version of Redrive that decided")] = __version__
    outcomes_partition: ClassVar[Annotated[int, _integer("partition of the outcome record")]]
    outcomes_offset: ClassVar[Annotated[int, _long("its offset: the ledger holds each pair once")]]
    malformed: ClassVar[
        Annotated[
            str,
            _text(
                "text of a record that is not an outcome, or which outcomes were deleted before"
                " the ledger had them; else null"
            ),
        ]
    ]
    replay: Annotated[
        str | None, _own_text("the plan of a replay that asked for it; else null")
    ] = None
    operator: Annotated[str | None, _own_text("who applied that plan")] = None
    purpose: Annotated[str | None, _own_text("why, in their words")] = None
    traceparent: Annotated[
        str | None,
        _text(
            "the trace that the message belongs to, as its header of this name says"
            " (W3C Trace Context); else null",
        ),
    ] = None
    error_class: Annotated[
        str | None,
        _text(
            "the exception in the dead letter, the innermost that it names; else null",
        ),
    ] = None
    consumer_group: Annotated[
        str | None,
        _text(
            "the group that could not process the message, from the dead letter; else null",
        ),
    ] = None
    incarnation: Annotated[
        int | None,
        _integer(
            "which topic of the name `source_topic` it was: 2 once the topic was recreated;"
            " null in rows of earlier versions, whose `outcome` has it",
            "source_incarnation",
        ),
    ] = None
    edit: Annotated[
        str | None,
        _own_text(
            "what was changed in the message before it was put: names of headers, SHA-256 of the"
            " value before and after; null for nothing",
        ),
    ] = None
    failed_record: Annotated[
        str | None,
        _text(
            "`topic:partition:offset` of the record that failed, as the dead letter names it; null"
            " if it does not",
        ),
    ] = None
    error_message: Annotated[
        str | None,
        _text(
            "the beginning of the exception's message in the dead letter; null if it names none",
        ),
    ] = None
    failed_at: Annotated[
        int | None,
        Column(
            Kind.TIME,
            "when the processing failed, as the dead letter says, else the time of the dead letter;"
            " null for a put, and in rows of earlier versions",
        ),
    ] = None
    """In milliseconds since 1970; never later than ``time``."""
    record_time: Annotated[
        int | None,
        Column(
            Kind.TIME,
            "the own time of the record that failed, as the dead letter says; null if it does not",
        ),
    ] = None
    """In milliseconds since 1970."""

    def __post_init__(self) -> None:
        if self.reason:
            object.__setattr__(self, "reason_name", reason_name(self.reason))

    @property
    def members(self) -> str:
        """The members that are set, as JSON text without the braces."""
        return static_members(
            {
                name: value
                for name, value in zip(_MEMBERS, _values(self), strict=True)
                if value is not None and (value or name not in _ADDED)
            }
        )


def _columns() -> Iterator[Column]:
    for field, hint in get_type_hints(Outcome, include_extras=True).items():
        is_member = get_origin(hint) is not ClassVar
        annotated = hint if is_member else get_args(hint)[0]
        for column in getattr(annotated, "__metadata__", ()):
            if field == "fields":
                yield from map(partial(_field_column, column), FIELDS)
            else:
                member = field if is_member else ""
                yield column._replace(name=column.name or field, member=member)


def _field_column(column: Column, keyword: str) -> Column:
    return Column(
        Kind.INTEGER if keyword in NUMERIC_KEYWORDS else Kind.TEXT,
        column.meaning.format(keyword),
        column.name.format(keyword.lower()),
        member=f"fields.{keyword}",
    )


COLUMNS: Final = tuple(_columns())
"""The columns of the ledger, in their order."""
ADDED: Final = COLUMNS[[column.name for column in COLUMNS].index("malformed") + 1 :]
"""Columns that ledgers and records of earlier versions lack: those after the first version's."""
MASKED: Final = frozenset(
    column.name
    for column in COLUMNS
    if column.kind in {Kind.TEXT, Kind.BYTES} and not column.is_own
)
"""Columns that may have text from messages or brokers."""

_MEMBERS: Final = tuple(field.name for field in fields(Outcome))
_ADDED: Final = frozenset(column.member for column in ADDED)
_values: Final = attrgetter(*_MEMBERS)


def static_members(members: Mapping[str, Any]) -> str:
    """The common members of many outcomes, as JSON text without the braces."""
    text = orjson.dumps(members)
    if len(text) > LONGEST_TEXT:  # otherwise no text in it is too long
        text = orjson.dumps(_bounded_members(members))
    return text.decode()[1:-1]


def _bounded_members(members: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: bounded(value)
        if isinstance(value, str)
        else _bounded_members(value)
        if isinstance(value, Mapping)
        else value
        for name, value in members.items()
    }


def replay_members(replay: Replay) -> str:
    """The members of an outcome that name its replay, without the braces."""
    return static_members(
        {"replay": replay.plan, "operator": replay.operator, "purpose": replay.purpose}
    )


def key_members(key: bytes | None) -> str:
    """A record key as members of an outcome, without the braces.

    Args:
        key: The key. If it is longer than ``LONGEST_KEY``, only its beginning is kept, with its
            length and SHA-256: an outcome must always be small enough to be written.

    Returns:
        ``"key"`` as base64 text or null; for a long one ``"key_length"`` and ``"key_sha256"`` too.
    """
    if key is None:
        return '"key":null'
    text = b2a_base64(key[:LONGEST_KEY], newline=False).decode()
    if len(key) <= LONGEST_KEY:
        return f'"key":"{text}"'
    return f'"key":"{text}","key_length":{len(key)},"key_sha256":"{sha256(key).hexdigest()}"'


def error_member(message: str | int | None) -> str:
    """The message of an exception as a member of an outcome, with a comma; empty for no text.

    A longer one than ``LONGEST_ERROR`` ends before the word that would be cut, since ``[mask]``
    cannot recognise a part of a secret.
    """
    if not message or not isinstance(message, str):
        return ""
    if len(message) > LONGEST_ERROR:
        words = message[: LONGEST_ERROR + 1].rsplit(maxsplit=1)
        message = f"{words[0] if len(words) > 1 else message[:LONGEST_ERROR]} ..."
    return f'"error_message":{orjson.dumps(message).decode()},'


PUT_MEMBER: Final = '"put":{"digest":"'
"""The beginning of the member that ``put_members`` writes."""
_OF_PUTS: Final = (own.HOPS, own.ROUNDS, own.GROUP_TOPIC)
"""Redrive's headers that such a member has."""


def put_members(digest: bytes, headers: Headers) -> str:
    """The member of an outcome about the headers of a put, without the braces.

    A message whose dead letter lacks them is found by ``digest``, that of its key and body.
    """
    own_headers = {name: (raw or b"").decode("ascii") for name, raw in headers if name in _OF_PUTS}
    return static_members({"put": {"digest": digest.hex(), **own_headers}})


def read_put(outcome: Mapping[str, Any]) -> tuple[bytes, own.OwnHeaders] | None:
    """The digest of a put, and Redrive's headers, by its outcome; None if it has no such member."""
    put = outcome.get("put")
    if not isinstance(put, dict):
        return None
    texts = {name: str(text) for name, text in put.items() if name in _OF_PUTS}
    headers: Headers = [(name, text.encode()) for name, text in texts.items()]
    return bytes.fromhex(put["digest"]), own.read_own(headers)


def bounded(text: str) -> str:
    """An external text, cut to a length that always fits into an outcome.

    A text longer than ``LONGEST_TEXT`` characters is cut, with its length and hash appended.
    """
    if len(text) <= LONGEST_TEXT:
        return text
    digest = sha256(text.encode(errors="surrogatepass")).hexdigest()
    return f"{text[:LONGEST_TEXT]}... ({len(text)} characters, SHA-256 {digest})"


# -- members of the outcomes of many records at once, since every record has them ----------------


_Value = TypeVar("_Value")


class DeadLetterColumns:
    """What outcomes have of each of some dead letters, or of copies of them, column by column.

    Args:
        records: The dead letters.
        profiles: The profile of each.
    """

    def __init__(self, records: Records, profiles: Sequence[DeadLetterProfile]) -> None:
        self._records, self._profiles = records, profiles
        self._distinct = dict(zip(map(id, profiles), profiles, strict=True))
        self._schemes = {
            key: profile.taken[0] if profile.taken else None
            for key, profile in self._distinct.items()
        }
        self.failed_records = self._failed_records()
        self.error_messages = self._error_messages()
        self.failure_times = self._failure_times()
        self.record_times = self._record_times()

    def _failed_records(self) -> Sequence[str] | None:
        """The records that failed, each as a member of an outcome, as dead letters name them.

        Returns:
            For each record ``"failed_record":"topic:partition:offset",``, or nothing if its dead
            letter names none; None if none of them can. A record that failed on a group's topic has
            its place there.
        """
        places: Sequence[str] | None = None
        for scheme in self._of_kafka():
            partitions = column_of(scheme, "origin.partition", self._records)
            offsets = column_of(scheme, "origin.offset", self._records)
            if partitions is None or offsets is None:
                continue
            prefixes = {
                key: _Prefixes(
                    profile.failed_on if self._schemes[key] is scheme else None, partitions[1]
                )
                for key, profile in self._distinct.items()
            }
            raws, read = offsets
            column_places = [
                f'{prefix}{offset}",' if prefix and isinstance(offset, int) and offset >= 0 else ""
                for prefix, offset in zip(
                    [
                        prefixes[id(profile)][raw]
                        for profile, raw in zip(self._profiles, partitions[0], strict=True)
                    ],
                    raws if read is None else [None if raw is None else read(raw) for raw in raws],
                    strict=True,
                )
            ]
            places = column_places if places is None else [*map(max, places, column_places)]
        return places

    def _error_messages(self) -> Sequence[str] | None:
        """The messages of the exceptions in dead letters, each as a member of an outcome.

        Returns:
            For each record the member with a comma, or nothing; None if no dead letter names one.
        """
        members: Sequence[str] | None = None
        for scheme in self._of_kafka():
            column = column_of(scheme, "error.message", self._records)
            if column is None:
                continue
            raws, read = column
            known = {raw: _error_member(raw, read) for raw in set(raws)}  # many say the same
            texts = self._only(scheme, [known[raw] for raw in raws], "")
            members = texts if members is None else [*map(max, members, texts)]
        return members

    def _failure_times(self) -> Sequence[int] | None:
        """When the processing failed, in milliseconds since 1970, as dead letters say.

        Returns:
            A time for each record, 0 where its dead letter does not say; None if none says.
        """
        forms = [form for form in (BINARY, REDRIVE) if form in self._schemes.values()]
        return self._times("failed_at", [(form, _put_times(form, self._records)) for form in forms])

    def _record_times(self) -> Sequence[int] | None:
        """The timestamps of the records that failed; otherwise like ``_failure_times``."""
        return self._times("origin.timestamp", [])

    def _times(
        self, name: str, more: Iterable[tuple[AnyScheme, PartColumn | None]]
    ) -> Sequence[int] | None:
        times: Sequence[int] | None = None
        named = [(scheme, column_of(scheme, name, self._records)) for scheme in self._of_kafka()]
        for scheme, column in (*named, *more):
            if column is None:
                continue
            raws, read = column
            values: Iterable[Any] = raws
            if read is not None:
                has_all = None not in raws  # nearly always
                values = map(read, raws) if has_all else (raw and read(raw) for raw in raws)
            numbers = [
                value if isinstance(value, int) and 0 < value < LATEST else 0 for value in values
            ]
            numbers = self._only(scheme, numbers, 0)
            times = numbers if times is None else [*map(max, times, numbers)]
        return times

    def _of_kafka(self) -> Iterable[Scheme]:
        return {scheme for scheme in self._schemes.values() if isinstance(scheme, Scheme)}

    def _only(self, scheme: AnyScheme, values: list[_Value], other: _Value) -> list[_Value]:
        """The values of dead letters of a scheme; those of others have another value."""
        if all(each is scheme for each in self._schemes.values()):
            return values
        rows = zip(values, self._profiles, strict=True)
        return [value if self._schemes[id(profile)] is scheme else other for value, profile in rows]


def _error_member(raw: Any, read: Reader | None) -> str:  # noqa: ANN401 - as it is in the record
    return error_member(raw if raw is None or read is None else read(raw))


PartColumn: TypeAlias = tuple[Sequence[Any], Reader | None]
"""One part of each record, and what reads it if it is not yet read."""


class _Prefixes(dict[Any, str]):
    """The start of the members about each partition of a topic; empty if that is not valid.

    A partition is as in ``PartColumn``. A topic has few, so each is read once.
    """

    def __init__(self, topic: str | None, read: Reader | None) -> None:
        super().__init__({None: ""})
        self._topic = topic if topic and is_topic_name(topic) else ""
        self._read = read

    def __missing__(self, raw: Any) -> str:  # noqa: ANN401 - as it is in the record
        number = raw if self._read is None else self._read(raw)
        is_valid = self._topic and isinstance(number, int) and number >= 0
        prefix = self[raw] = f'"failed_record":"{self._topic}:{number}:' if is_valid else ""
        return prefix


def column_of(scheme: Scheme, name: str, records: Records) -> PartColumn | None:
    """One part of a scheme in each record, as ``Scheme.read`` has it; None if no record has it."""
    parts, grid = scheme.parts.get(name, ()), records.grid
    if not parts:
        return None
    if grid is not None and all(part.place is RecordPart.HEADER for part in parts):
        is_first = scheme.newest is Newest.FIRST
        columns = [(_named(part.header, grid, is_first=is_first), part.read) for part in parts]
        there = [(raws, read) for raws, read in columns if raws is not None]
        if len(there) <= 1:  # nearly always
            return there[0] if there else None
        reads = [read for _, read in there]
        return [
            _first(raws, reads) for raws in zip(*(raws for raws, _ in there), strict=True)
        ], None
    rows = zip(records.keys, records.values, records.headers, strict=True)
    return [scheme.read(name, *row) for row in rows], None


def _named(name: str, grid: HeaderGrid, *, is_first: bool = False) -> Sequence[bytes | None] | None:
    """A header in each record, the last or the first of repeated ones; None if none has it."""
    if name not in grid.layout:
        return None
    return grid.column(grid.layout.index(name)) if is_first else grid.last(name)


def _last(name: str, records: Records) -> Sequence[bytes | None] | None:
    """The last header of a name in each record; None if none has it."""
    if records.grid is not None:
        return _named(name, records.grid)
    column = [dict(headers).get(name) for headers in records.headers]
    return column if any(column) else None


def _put_times(form: AnyScheme, records: Records) -> PartColumn | None:
    """Date and time in the dead-letter headers of a form of MQ; None if no record has them."""
    if form is BINARY:
        return [value and value[_PUT_DATE:MQDLH_LENGTH] for value in records.values], read_moment
    dates, times = _last(f"{DLH_PREFIX}PutDate", records), _last(f"{DLH_PREFIX}PutTime", records)
    if dates is None or times is None:
        return None
    pairs = zip(dates, times, strict=True)
    return [(date or b"")[:_HALF] + (time or b"")[:_HALF] for date, time in pairs], read_moment


def _first(raws: Iterable[bytes | None], reads: Iterable[Reader]) -> str | int | None:
    """The first readable one of some parts of a record."""
    values = (None if raw is None else read(raw) for raw, read in zip(raws, reads, strict=True))
    return next((value for value in values if value is not None), None)


TRACEPARENT: Final = "traceparent"
"""The header of OpenTelemetry's client instrumentation with a message's trace; its form is in W3C
Trace Context, section 3.2 (https://www.w3.org/TR/trace-context/)."""

_FORM: Final = re.compile(
    rb"(?!ff)(?P<version>[0-9a-f]{2})-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}"
)
_FIRST_VERSION: Final = b"00"


def read_traceparent(raw: bytes | None) -> str:
    """The version, trace id, parent id and flags of a header's value, which anyone may write.

    Empty if it does not have this form. Additions of later versions after the flags are left out.
    """
    match = None if raw is None else _FORM.match(raw)
    if match is None or raw is None:
        return ""
    rest = raw[match.end() :]
    if rest and (match["version"] == _FIRST_VERSION or not rest.startswith(b"-")):
        return ""
    return match[0].decode("ascii")


def traceparents(records: Records) -> Sequence[str] | None:
    """The trace of each record; None if none has the header."""
    column = _last(TRACEPARENT, records)
    return [*map(read_traceparent, column)] if column and any(column) else None
