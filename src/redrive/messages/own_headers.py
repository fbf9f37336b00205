"""Redrive's own record headers: their names, and how to read them.

They travel with a message, so anyone may have written them: a value in another form counts as
absent, and never stops the job.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from redrive.messages.cuts import CUT_FORM

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from redrive.messages.fields import Headers
    from redrive.messages.records import HeaderGrid

PREFIX = "redrive."
ID = "redrive.id"
"""Identity: ``topic:partition:offset`` where Redrive first saw the message."""
RULE = "redrive.rule"
"""Line of the last applied rule."""
TABLE = "redrive.table"
"""First 16 hex digits of the hash of the rules table that decided."""
HOPS = "redrive.hops"
"""How often Redrive has put the message to a queue."""
FAILURES = "redrive.failures"
"""On parked and remaining copies: failed attempts under ``redrive.table``."""
ROUNDS = "redrive.rounds"
"""On puts under a table in a dialect: the rounds of the message, see ``Rounds``."""
GROUP = "redrive.group"
"""On puts by RETRY under a table in a dialect: the group that failed, for which they are."""
GROUP_TOPIC = "redrive.group-topic"
"""On puts to a group's topic, and on parked and remaining copies of failures there: that topic and
its original topic; see ``GroupTopic``."""
FORWARD = "redrive.forward"
"""On messages on their way to another cluster: see ``Forward``."""
COUNTED = "redrive.counted"
"""On parked and remaining copies: how many of ``redrive.hops`` a RETRY of the table's dead-letter
queue counted."""
FAILED_RULES = "redrive.failed"
"""On parked and remaining copies, under a table in a dialect: ``rule:attempts`` for each rule that
was tried and failed, by its number in the table."""
QUARANTINE = "redrive.quarantine"
"""On remaining copies: present if no table may evaluate the message again."""
ORIGIN = "redrive.origin"
"""On parked and remaining copies: ``topic:partition:offset`` of the dead letter itself."""
TIMESTAMP = "redrive.timestamp"
"""The record's own timestamp, in milliseconds. On puts, where the record has another one, or where
a dead letter of it would not name it; on parked and remaining copies, that of the dead letter."""
RECORD_TIME = "redrive.record-time"
"""On parked and remaining copies of a dead letter that has ``TIMESTAMP`` of a put: its value."""
KEY = "redrive.key"
"""On remaining copies: the record's own key; absent when it has none."""
NULL = "redrive.null"
"""On remaining copies: present when the record's own value is null."""
REPLAY = "redrive.replay"
"""On instructions: their plan."""
BEHIND = "redrive.behind"
"""On parked copies of a message that only waits behind an earlier one of its key: the identity of
the first waiting one."""
MOVED = "redrive.moved"
"""On such copies, if they replace an earlier one without an outcome: its position, written like an
identity."""
IN_ROUND = "redrive.in-round"
"""On notes of rounds, which are among parked copies; see ``redrive.engine.ordering.Round``."""
CUT = "redrive.cut"
"""On truncated parked and remaining copies: what is cut; see ``redrive.messages.cuts``."""
UNREADABLE = "redrive.unreadable"
"""On a record as the job reads it, with an unreadable header name: the header's number. It is never
written."""
RESTORED = "redrive.restored"
"""On instructions: present if they were made from the dead letter itself, without a remaining copy.
``partition:offset`` of the outcomes topic, before which no outcome says that it was placed."""

WAITING = frozenset(
    {
        *(COUNTED, CUT, FAILED_RULES, FAILURES, KEY, NULL, ORIGIN, QUARANTINE, REPLAY, RESTORED),
        *(BEHIND, IN_ROUND, MOVED, RECORD_TIME, TIMESTAMP),
    }
)
"""Headers only of parked and remaining copies, and of instructions to replay them."""

_TOPIC = rb"[A-Za-z0-9._-]{1,249}"
_IDENTITY = re.compile(_TOPIC + rb"(?:~[0-9]{1,9})?:[0-9]{1,10}:[0-9]{1,19}")
"""An identity; a recreated topic has its number after the name: ``orders~2``."""
_DIGITS = 9
"""Maximum digits of the number of a recreated topic."""
_NUMBER = re.compile(rb"[0-9]{1,15}")
_FAILED = re.compile(rb"[0-9]{1,6}:[0-9]{1,9}(?:,[0-9]{1,6}:[0-9]{1,9}){0,4095}")
_TABLE = re.compile(rb"[0-9a-f]{16}")
_PLAN = re.compile(rb"[0-9a-z-]{1,64}")
_PLACE = re.compile(rb"([0-9]{1,9}):([0-9]{1,18})")
_ROUNDS = re.compile(
    rb"([0-9a-f]{16}) ((?:%b)?) ([0-9]{1,9}) ([0-9]{1,15}) (%b) (%b)"
    % (_FAILED.pattern, _TOPIC, _TOPIC)
)
_FORWARD = re.compile(rb"(%b) (%b)" % (_TOPIC, _TOPIC))
_GROUP_TOPIC = re.compile(rb"(%b) (%b)(?: ([0-9]{1,9}))?" % (_TOPIC, _TOPIC))


class GroupTopic(NamedTuple):
    """The header ``GROUP_TOPIC``: a topic for retries of one consumer group.

    For rules and views, a failure there is one on the original topic. The header counts only for a
    dead letter whose origin is that topic.
    """

    name: str
    original: str
    """Its original topic."""
    partition: int | None = None
    """The partition of the original topic; None if unknown."""

    @property
    def value(self) -> bytes:
        """The header's value."""
        parts = [self.name, self.original] + [str(self.partition)] * (self.partition is not None)
        return " ".join(parts).encode("ascii", "replace")


class Forward(NamedTuple):
    """The header ``FORWARD``: a message's destination, and where it returns after a failure."""

    topic: str
    """The topic of the other cluster."""
    dead_letters: str
    """The topic of the dead-letter queue that it came from."""

    @property
    def value(self) -> bytes:
        """The header's value."""
        return " ".join(self).encode("ascii", "replace")


class Rounds(NamedTuple):
    """The header ``ROUNDS``: what was put to be processed again, and how often.

    A put that makes a round is counted before its result is known: if the message returns as a dead
    letter of the topic that it was put to, the round has failed.
    """

    table: str
    """First 16 hex digits of the hash of the rules table that decided."""
    by_rule: tuple[tuple[int, int], ...]
    """Rules of the table by number, with their attempts, including this one."""
    counted: int
    """How many of ``redrive.hops`` a RETRY of the queue counted, under any table."""
    put_at: int
    """Milliseconds; the time of the put."""
    queue: str
    """The topic of the dead-letter queue whose table decided."""
    target: str
    """The topic that the message was put to."""

    @property
    def value(self) -> bytes:
        """The header's value."""
        rules = failed_rules(self.by_rule).decode("ascii")
        table, _, *rest = self
        # No topic has such a name, but a dead letter may have one: the put to it will fail.
        return " ".join([table, rules, *map(str, rest)]).encode("ascii", "replace")


class OwnHeaders(NamedTuple):
    """Redrive's headers of one record, checked."""

    identity: str = ""
    hops: int = 0
    failures: int = 0
    failed: tuple[tuple[int, int], ...] = ()
    """Rules of the table by number, with their failed attempts, in order."""
    is_quarantined: bool = False
    table: str = ""
    origin: str = ""
    timestamp: int | None = None
    key: bytes | None = None
    is_null: bool = False
    replay: str = ""
    is_restored: bool = False
    cut: str = ""
    """What is cut from the copy; empty for a whole one."""
    asked_until: tuple[int, int] | None = None
    """For a restored instruction: partition and offset up to which outcomes were read."""
    rounds: Rounds | None = None
    counted: int = 0
    group_topic: GroupTopic | None = None
    behind: str = ""
    """Identity of the message of the same key that it waits behind; empty if none."""
    moved: str = ""
    """Position of the copy that this one replaces."""
    record_time: int | None = None


NO_OWN_HEADERS = OwnHeaders()

_OF_ONE_COPY = frozenset({ID, ORIGIN, TIMESTAMP, RECORD_TIME, KEY})
"""Headers of a remaining copy that differ from message to message."""
_OF_MANY_COPIES = (HOPS, FAILURES, FAILED_RULES, TABLE, COUNTED, QUARANTINE, REPLAY)
"""Headers of a remaining copy that most messages have in common."""


class CopyColumns(NamedTuple):
    """Redrive's headers of instructions about whole remaining copies, column by column."""

    identities: Sequence[str]
    origins: Sequence[str]
    timestamps: Sequence[int]
    """Milliseconds; -1 for one of another form."""
    record_times: Sequence[int]
    """Milliseconds; 0 for none."""
    keys: Sequence[bytes | None]
    headers: Sequence[Headers]
    """The other headers, which travel with the message."""
    alike: Sequence[tuple[bytes | None, ...]]
    """The values of Redrive's other headers, cached by equality."""


def without_own(headers: Headers, kept: Collection[str] = ()) -> Headers:
    """The headers without Redrive's, but for those that are kept, in order."""
    return [pair for pair in headers if pair[0] in kept or not pair[0].startswith(PREFIX)]


def read_own(headers: Headers) -> OwnHeaders:
    """Redrive's headers of a record; the last of repeated ones counts."""
    own = {name: value for name, value in headers if name.startswith(PREFIX)}
    return _parse_own(own) if own else NO_OWN_HEADERS


class OwnHeadersReader:
    """Reads Redrive's headers of many records.

    Waiting copies have some twenty headers, most of them not Redrive's. If all records have the
    same header names, these are checked only once.
    """

    def __init__(
        self,
        headers: Sequence[Headers],
        layout: Sequence[str] | None,
        *,
        kept: Collection[str] = (),
    ) -> None:
        """Find the positions of Redrive's headers.

        Args:
            headers: Those of each record.
            layout: The header names of every record, in order; None if they differ.
            kept: Headers of Redrive that stay with the message, as the names of a put do.
        """
        self._headers, self._kept = headers, kept
        names = () if layout is None else layout
        self._own = {name: place for place, name in enumerate(names) if name.startswith(PREFIX)}
        self._others = [
            place for place, name in enumerate(names) if name in kept or not name.startswith(PREFIX)
        ]
        self._come_first = self._others == list(range(len(self._others)))
        self._is_varied = layout is None
        self.finds_some = self._is_varied or bool(self._own)
        """Whether any record may have some."""
        self._row, self._read = -1, NO_OWN_HEADERS

    def own(self, row: int) -> OwnHeaders:
        """Result of ``read_own`` for a row; the last one is cached."""
        if row != self._row:
            self._row, self._read = row, self._read_row(self._headers[row])
        return self._read

    def others(self, row: int) -> Headers:
        """Result of ``without_own`` for a row, with the headers that are kept."""
        headers = self._headers[row]
        if self._is_varied:
            return without_own(headers, self._kept)
        if self._come_first:
            return headers[: len(self._others)]
        return [headers[place] for place in self._others]

    def copy_columns(self, grid: HeaderGrid) -> CopyColumns | None:
        """The columns of instructions; None if they must be read individually."""
        own, rest = self._own, self._own.keys() - _OF_ONE_COPY
        is_plain = self._come_first and {ID, ORIGIN, TIMESTAMP, REPLAY} <= own.keys()
        if not is_plain or not rest <= {*_OF_MANY_COPIES}:
            return None
        missing, raw_origins = [None] * len(self._headers), grid.column(own[ORIGIN])
        origins, count = [*map(read_identity, raw_origins)], len(self._others)
        named = zip(grid.column(own[ID]), raw_origins, origins, strict=True)
        record_times = grid.column(own[RECORD_TIME]) if RECORD_TIME in own else missing
        return CopyColumns(
            [origin if raw == same else read_identity(raw) for raw, same, origin in named],
            origins,
            [own_timestamp(raw, -1) for raw in grid.column(own[TIMESTAMP])],
            [own_timestamp(raw, 0) for raw in record_times],
            grid.column(own[KEY]) if KEY in own else missing,
            [headers[:count] for headers in self._headers],
            [*zip(*(grid.column(own[name]) for name in sorted(rest)), strict=True)],
        )

    def _read_row(self, headers: Headers) -> OwnHeaders:
        if self._is_varied:
            return read_own(headers)
        if not self._own:
            return NO_OWN_HEADERS
        return _parse_own({name: headers[place][1] for name, place in self._own.items()})


def _parse_own(own: Mapping[str, bytes | None]) -> OwnHeaders:
    get = own.get
    hops, failures, failed, table, replay = _parse_common(
        get(HOPS), get(FAILURES), get(FAILED_RULES), get(TABLE), get(REPLAY)
    )
    raw_identity, raw_origin = get(ID), get(ORIGIN)
    identity = read_identity(raw_identity)
    return OwnHeaders(
        identity,
        hops,
        failures,
        failed,
        QUARANTINE in own,
        table,
        identity if raw_origin == raw_identity else read_identity(raw_origin),
        own_timestamp(get(TIMESTAMP), None),
        get(KEY),
        NULL in own,
        replay,
        RESTORED in own,
        _text(get(CUT), CUT_FORM),
        _place(get(RESTORED)),
        _rounds(get(ROUNDS)),
        int(_text(get(COUNTED), _NUMBER) or 0),
        read_group_topic(get(GROUP_TOPIC)),
        _text(get(BEHIND), _IDENTITY),
        _text(get(MOVED), _IDENTITY),
        own_timestamp(get(RECORD_TIME), None),
    )


@lru_cache(maxsize=64)
def _parse_common(
    hops: bytes | None,
    failures: bytes | None,
    failed: bytes | None,
    table: bytes | None,
    replay: bytes | None,
) -> tuple[int, int, tuple[tuple[int, int], ...], str, str]:
    """The common headers of most records of a topic, cached; few, as anyone may make them long."""
    return (
        int(_text(hops, _NUMBER) or 0),
        int(_text(failures, _NUMBER) or 0),
        _parse_failed_rules(_text(failed, _FAILED)),
        _text(table, _TABLE),
        _text(replay, _PLAN),
    )


def unreadable(headers: Headers) -> str:
    """The header of a record whose name cannot be read; empty if there is none.

    Anyone may have written this header itself: then the message remains, as with a bad name.
    """
    raw = next((raw or b"" for name, raw in headers if name == UNREADABLE), None)
    return "" if raw is None else raw.decode(errors="replace") or "a header cannot be read"


def read_identity(raw: bytes | None) -> str:
    """The identity in a header; empty if its value has another form."""
    return _text(raw, _IDENTITY)


_Else = TypeVar("_Else")


def own_timestamp(raw: bytes | None, other: _Else) -> int | _Else:
    """The value of the header ``TIMESTAMP``; ``other`` if it has none."""
    return int(raw) if raw is not None and _NUMBER.fullmatch(raw) else other


def _text(value: bytes | None, form: re.Pattern[bytes]) -> str:
    return value.decode("ascii") if value is not None and form.fullmatch(value) else ""


def _place(value: bytes | None) -> tuple[int, int] | None:
    place = None if value is None else _PLACE.fullmatch(value)
    return None if place is None else (int(place[1]), int(place[2]))


def _rounds(value: bytes | None) -> Rounds | None:
    match = None if value is None else _ROUNDS.fullmatch(value)
    if match is None:
        return None
    table, rules, counted, put_at, queue, target = (part.decode("ascii") for part in match.groups())
    return Rounds(table, _parse_failed_rules(rules), int(counted), int(put_at), queue, target)


def read_group_topic(value: bytes | None) -> GroupTopic | None:
    """The value of the header ``GROUP_TOPIC``; None if missing or in another form."""
    match = None if value is None else _GROUP_TOPIC.fullmatch(value)
    if match is None:
        return None
    name, original, partition = match.groups()
    number = None if partition is None else int(partition)
    return GroupTopic(name.decode("ascii"), original.decode("ascii"), number)


def read_forward(value: bytes | None) -> Forward | None:
    """The value of the header ``FORWARD``; None if missing or in another form."""
    match = None if value is None else _FORWARD.fullmatch(value)
    return None if match is None else Forward(*(part.decode("ascii") for part in match.groups()))


def _parse_failed_rules(text: str) -> tuple[tuple[int, int], ...]:
    pairs = (pair.split(":") for pair in text.split(",") if pair)
    return tuple((int(rule), int(attempts)) for rule, attempts in pairs)


def failed_rules(failed: Sequence[tuple[int, int]]) -> bytes:
    """Failed attempts by rule as header text."""
    return ",".join(f"{rule}:{attempts}" for rule, attempts in failed).encode("ascii")


def identity(topic: str, partition: int, offset: int) -> str:
    """``topic:partition:offset``."""
    return f"{topic}:{partition}:{offset}"


def name_in_identities(topic: str, incarnation: int) -> str:
    """A topic's name in identities: ``orders``, and ``orders~2`` once it was recreated.

    The incarnation is the number of topics of that name so far, including this one.
    """
    return f"{topic}~{incarnation}" if incarnation > 1 else topic


def incarnation_of(place: str) -> int:
    """The incarnation of the topic in an identity, or in the start of one."""
    number = place.partition("~")[2].partition(":")[0]
    return int(number) if number.isascii() and number.isdecimal() and len(number) <= _DIGITS else 1


def number(value: int) -> bytes:
    """A number as header text."""
    return str(value).encode("ascii")
