"""Readers of the topics that the job reads, and the copies of messages that it reads again.

From a record a reader makes a message with its failed attempts.

There is one reader for each kind of source. It ignores records that need no decision (a tombstone,
a copy that was replayed), or skips them with an outcome that says why.

Replay instructions contain the remaining copy. The remaining topic says whether the message still
remains: a message that a table or another replay has placed since is skipped. A restored
instruction has no copy there, or brings back a discarded message, whose copy has a tombstone; it is
carried out unless a later outcome says that another instruction was.

Only the lane of a retry topic takes parked messages from it, so none is taken twice. A plan about
parked messages names them by their offsets. The lane is then read beyond what is due: named
messages are decided, the others are parked again as they were.

A parked copy waits on the handler's retry topic for its next attempt. Its timestamp is the time of
the failed attempt, so everything due ends at one offset.

A remaining copy waits on the handler's compacted remaining topic until a new table or an operator
places it. Its key is the origin of the dead letter, not its identity: a message may be
dead-lettered twice, and compaction must not remove one of the two.

A copy that is too large for the topic refers to its original instead; see
``redrive.messages.cuts``.

Both topics have the partitions of their source, and a copy stays on the partition of its original,
so that one instance reads all of a partition.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol, TypeAlias

from redrive.engine.cache import PreparedPut
from redrive.engine.commands import Replay
from redrive.engine.context import Decided, Decider, SliceContext
from redrive.engine.decision import NO_PROFILE
from redrive.engine.facts import TAKEN_AWAY, Copies, ReplayedQuestion
from redrive.engine.message import NO_ATTEMPTS, UNKNOWN_TIME, Attempts, Message
from redrive.engine.ordering import Round
from redrive.engine.outcome import Result
from redrive.engine.put_decider import PutDecider
from redrive.engine.put_record import MSG_ID, NAMES, PUT_DATE, READ, by_priority, has_id
from redrive.engine.rules_decider import RulesDecider
from redrive.messages import (
    INTERNAL,
    DeadLetterDecoder,
    DeadLetterProfile,
    OutputRecord,
    Records,
    TopicPartition,
    cuts,
    decode_dead_letter,
    with_original,
)
from redrive.messages import own_headers as own
from redrive.messages.fields import Headers
from redrive.messages.schemes.scheme import Stamp
from redrive.rules.backoff import PARTITIONS

_PLACED: Final = "it no longer remains"


class SourceKind(StrEnum):
    """The kind of a topic, for the decider of its records."""

    DEAD_LETTERS = "dead letters"
    RETRIES = "retries"
    REMAINING = "remaining"
    REPLAYS = "replays"
    """Instructions about remaining messages, each with its copy."""
    PUTS = "puts"
    """An intake or a transmission queue."""
    UNDELIVERED = "undelivered"
    """Undeliverable messages kept for a queue manager."""


@dataclass(frozen=True, slots=True)
class PartitionRecords:
    """Some records of one lane, in offset order, with their decider."""

    lane: TopicPartition
    decider: Decider
    kind: SourceKind
    records: Records
    incarnation: int = 1
    """The number of topics that have had the lane's name, including this one."""
    may_be_gone: bool = False
    """Whether remaining copies of the lane may have been replayed; a tombstone follows each."""
    released: int = 0
    """Offset below which copies predate the current table: their counts restart, even if the same
    table has counted before."""
    since: int | None = None
    """Offset below which dead letters were written before the job first began, so that none is a
    round; None in previews, which do not ask for rounds without headers."""

    @property
    def home(self) -> int:
        """The partition of the source that the records belong to."""
        is_delayed = self.lane.topic == self.decider.identity.backoff_topic
        return self.lane.partition // PARTITIONS if is_delayed else self.lane.partition

    @property
    def prefix(self) -> str:
        """The prefix of the identity of every record of the lane."""
        name = own.name_in_identities(self.lane.topic, self.incarnation)
        return f"{name}:{self.lane.partition}:"

    def counts(self, row: int, own_headers: own.OwnHeaders) -> bool:
        """Whether a copy's attempts count for the current table."""
        is_released = self.records.offsets[row] < self.released
        return own_headers.table == self.decider.table_id and not is_released

    def may_be_round(self, row: int) -> bool:
        """Whether the dead letter of a row may be a failed round, even without a header."""
        is_dead_letter = self.kind is SourceKind.DEAD_LETTERS
        return is_dead_letter and self.since is not None and self.records.offsets[row] >= self.since

    def attempts(self, row: int, own_headers: own.OwnHeaders) -> Attempts:
        """The attempts of the copy in a row, if they count for the current table."""
        if self.counts(row, own_headers):
            return Attempts(
                own_headers.failures,
                own_headers.failed,
                own_headers.is_quarantined,
                own_headers.counted,
            )
        return Attempts(0, (), own_headers.is_quarantined, own_headers.counted)


Input: TypeAlias = tuple[Message, Attempts, "Replay | None"]
"""Input of a decision: a message, its attempts, and an operator's decision about it."""
_WORTH_A_PUT: Final = 3
"""Like messages of a slice from which on they share a prepared put, which costs as much as two."""


class Source(Protocol):
    """Reads the records of one lane, part by part."""

    @property
    def letters(self) -> DeadLetterSource | None:
        """The reader of the dead letters, or of their copies; None for puts."""

    def load(self, part: PartitionRecords, first: int) -> bool:
        """Take some records, from the row ``first`` on; earlier ones are finished.

        Returns:
            False if nothing can be read without further facts.
        """

    def rows(self, first: int) -> Iterable[int]:
        """The rows from ``first`` on, in the order of their decisions."""

    def read(self, row: int) -> Input | Decided | None:
        """One row: the input of a decision, or a decision; None for nothing."""


def source_of(part: PartitionRecords, decoder: DeadLetterDecoder, facts: SliceContext) -> Source:
    """The reader of a lane, for some of its records."""
    decider = part.decider
    if not isinstance(decider, RulesDecider):
        return PutSource(facts, by_priority=decider.by_priority)
    letters = DeadLetterSource(decider, decoder)
    match part.kind:
        case SourceKind.REMAINING:
            return RemainingSource(letters, facts)
        case SourceKind.REPLAYS:
            return InstructionSource(letters, facts)
        case SourceKind.RETRIES:
            return RetrySource(letters, facts)
    return letters


class DeadLetterSource:
    """Reads dead letters, both fresh ones and waiting copies."""

    def __init__(self, decider: RulesDecider, decoder: DeadLetterDecoder) -> None:
        self.decider = decider
        self.letters = self
        self._decoder = decoder
        self.profiles: Sequence[DeadLetterProfile] = ()
        """The profile of each row."""
        self.layout: tuple[str, ...] = ()
        """The header names of all rows, in order; empty if they differ."""
        self.is_fresh = False
        """Whether all rows are dead letters that Redrive has not seen before."""
        self.own_headers = own.OwnHeadersReader((), ())
        """Redrive's headers of each row, and the others."""

    def load(self, part: PartitionRecords, first: int) -> bool:
        """See ``Source.load``."""
        del first
        self._part, self._prefix = part, part.prefix
        codes, profiles = self._decoder.decode(part.records, self.decider.schemes)
        self.profiles = [profiles[code] for code in codes.tolist()]
        grid = part.records.grid
        names = None if grid is None else grid.layout
        self.own_headers = own.OwnHeadersReader(part.records.headers, names)
        self.layout = names or ()
        self.is_fresh = part.kind is SourceKind.DEAD_LETTERS and not self.own_headers.finds_some
        return True

    def rows(self, first: int) -> Iterable[int]:
        """See ``Source.rows``."""
        return range(first, len(self._part.records))

    def copy_columns(self) -> own.CopyColumns | None:
        """Redrive's headers of all rows; None if each row must be read individually."""
        grid = self._part.records.grid
        return None if grid is None else self.own_headers.copy_columns(grid)

    def read(self, row: int) -> Input:
        """See ``Source.read``."""
        part, records = self._part, self._part.records
        here = f"{self._prefix}{records.offsets[row]}"
        key, value, headers = records.keys[row], records.values[row], records.headers[row]
        timestamp, profile = records.timestamps[row], self.profiles[row]
        own_headers = self.own_headers.own(row)
        if own_headers is own.NO_OWN_HEADERS:
            message = Message(
                key, value, headers, timestamp, here, here, 0, "", "", profile,
                _failure_time(profile, timestamp), None, 0, part.may_be_round(row),
            )  # fmt: skip
            return message, NO_ATTEMPTS, None
        headers = self.own_headers.others(row)
        if part.kind is SourceKind.DEAD_LETTERS:
            message = Message(
                key, value, headers, timestamp, here, here, 0, "", "", profile,
                _failure_time(profile, timestamp), own_headers.group_topic, 0,
                own_headers.rounds is None and part.may_be_round(row),
            )  # fmt: skip
            return *self.decider.attempts.with_earlier_rounds(message, own_headers), None
        if part.kind in {SourceKind.REMAINING, SourceKind.REPLAYS}:
            key, value = own_headers.key, None if own_headers.is_null else value
            if key is None and value is None:
                # It may be a pointer, which its copy, with its own key, does not show.
                schemes = self.decider.schemes
                profile = with_original(
                    decode_dead_letter(value, headers, key=key, schemes=schemes),
                    own_headers.group_topic,
                )
        message = restore(
            key,
            value,
            headers,
            timestamp=timestamp,
            own_headers=own_headers,
            here=here,
            profile=profile,
        )
        attempts = part.attempts(row, own_headers)
        is_set_free = part.kind is SourceKind.RETRIES and not part.counts(row, own_headers)
        # The delays of another table apply, or the message was not tried yet.
        if part.kind is SourceKind.REMAINING or is_set_free or own_headers.behind:
            has_time = (message.profile or NO_PROFILE).stamp is Stamp.FAILURE
            # The failure was before the copy.
            message = message._replace(failed_at=message.timestamp if has_time else timestamp)
        return message, attempts, None


def _failure_time(profile: DeadLetterProfile, timestamp: int) -> int:
    """When the processing of a fresh dead letter failed, as far as its timestamp says so."""
    return timestamp if profile.stamp is Stamp.FAILURE else UNKNOWN_TIME


class RemainingSource:
    """Reads remaining copies that were not replayed since."""

    def __init__(self, letters: DeadLetterSource, facts: SliceContext) -> None:
        self.letters = letters
        self._facts = facts
        self.rows = letters.rows

    def load(self, part: PartitionRecords, first: int) -> bool:
        """See ``Source.load``."""
        self._part = part
        return self.letters.load(part, first)

    def read(self, row: int) -> Input | None:
        """See ``Source.read``."""
        return None if self._is_gone(row) else self.letters.read(row)

    def _is_gone(self, row: int) -> bool:
        """Whether a record is a tombstone, or a copy that was replayed since."""
        part = self._part
        if part.records.values[row] is None:
            return True
        if not part.may_be_gone:
            return False
        copies = self._facts.facts.copies(part.lane)
        key = part.records.keys[row] or b""
        return copies is not None and copies.get(key) != part.records.offsets[row]


class InstructionSource:
    """Reads the instructions of one partition of a replay topic."""

    def __init__(self, letters: DeadLetterSource, facts: SliceContext) -> None:
        self.letters = letters
        self._facts = facts
        self.rows = letters.rows
        self.columns: own.CopyColumns | None = None
        """Redrive's headers for a prepared put; None if each row must be read."""
        self._copies: Copies = {}
        self._prepared: dict[object, PreparedPut | None] = {}
        # Only for this slice: a plan can be cancelled before the next one.
        self._of_layout: dict[tuple[str, ...], dict[object, PreparedPut | None]] = {}

    def load(self, part: PartitionRecords, first: int) -> bool:
        """See ``Source.load``; waits until it is known whether messages still remain."""
        facts, letters = self._facts.facts, self.letters
        self._part = part
        self._remaining = part.lane._replace(topic=part.decider.identity.remaining_topic)
        copies = facts.copies(self._remaining)
        if copies is not None:
            self._copies = copies
            letters.load(part, first)
            is_plain = not part.released and not letters.decider.profiles.is_varied
            self.columns = letters.copy_columns() if is_plain else None
            self._prepared = self._of_layout.setdefault(letters.layout, {})
            return True
        # The last header of every instruction; the replay of any other is asked for with its row.
        for header in {headers[-1] for headers in part.records.headers[first:] if headers}:
            facts.replay(own.read_own([header]).replay)
        return False

    def read(self, row: int) -> Input | Decided:
        """See ``Source.read``."""
        facts, own_headers = self._facts.facts, self.letters.own_headers.own(row)
        message, attempts, _ = self.letters.read(row)
        replay, copies = facts.replay(own_headers.replay), facts.copies(self._remaining)
        if replay is None:
            return self._skip(message, "no replay of this plan was accepted", None)
        if replay.cancelled_by:
            why = f"cancelled by {replay.cancelled_by}"
            return self._skip(message, why, replay, Result.CANCELLED)
        if copies is not None and (why := self._why_not(message.origin, own_headers, copies)):
            return self._skip(message, why, replay)
        if message.origin in self._facts.replayed:
            # The effects of this transaction are not facts yet.
            return self._skip(message, "an instruction just before it was carried out", replay)
        self._facts.replayed.add(message.origin)
        return message, attempts, replay

    def _skip(
        self, message: Message, why: str, replay: Replay | None, result: Result = Result.SKIPPED
    ) -> Decided:
        profile = message.profile or NO_PROFILE
        return Decided(message, self.letters.decider.skip(profile, result, why, replay))

    def prepared_puts(
        self, profiles: Iterable[DeadLetterProfile], first: int
    ) -> Iterator[tuple[int, PreparedPut | None]]:
        """The rows from ``first`` on, each with its put; None if it must be read.

        A table in a dialect has matched the profiles.
        """
        assert self.columns is not None, "rows that differ have no prepared put"
        alike, origins, prepared = self.columns.alike, self.columns.origins, self._prepared
        for row, profile in enumerate(profiles, first):
            key = id(profile), alike[row]
            if key not in prepared:
                prepared[key] = self._prepare(row, profile)
            put = prepared[key]
            is_plain = put is not None and self.is_plain(row)
            yield row, put if is_plain else None
            if is_plain:  # only now: if the put fails, the row is read
                self._facts.replayed.add(origins[row])

    def _prepare(self, row: int, profile: DeadLetterProfile) -> PreparedPut | None:
        letters, own_headers = self.letters, self.letters.own_headers.own(row)
        replay = self._facts.facts.replay(own_headers.replay)
        if replay is None or replay.cancelled_by:
            return None
        names = tuple(name for name, _ in letters.own_headers.others(row))
        return letters.decider.prepare(
            profile,
            names,
            self._facts,
            attempts=self._part.attempts(row, own_headers),
            hops=own_headers.hops,
            replay=replay,
        )

    def is_plain(self, row: int) -> bool:
        """Whether the message of a row certainly remains, and its headers are readable."""
        assert self.columns is not None, "rows that differ have no prepared put"
        origin, identity = self.columns.origins[row], self.columns.identities[row]
        if not origin or not identity or self.columns.timestamps[row] < 0:
            return False
        remains = self._copies.get(origin.encode("ascii"), TAKEN_AWAY) != TAKEN_AWAY
        return remains and origin not in self._facts.replayed

    def _why_not(self, origin: str, own_headers: own.OwnHeaders, copies: Copies) -> str:
        """Why a message is skipped; empty if it remains, or if a fact is missing."""
        if copies.get(origin.encode("ascii"), TAKEN_AWAY) != TAKEN_AWAY:
            return ""
        if not own_headers.is_restored:
            return _PLACED
        # No copy: only another restored instruction can have placed it since, and the outcome of
        # that one lasts longer than a tombstone, which may be from a discard that is undone.
        if own_headers.asked_until is None:
            return "it was restored by an earlier version"
        question = ReplayedQuestion(*own_headers.asked_until)
        replayed = self._facts.facts.replayed(question)
        if replayed is None:
            return ""
        if replayed.first > question.since:
            return "outcomes since then were deleted"
        return _PLACED if replayed.last.get(origin, -1) >= question.since else ""


class RetrySource:
    """Reads the messages of one retry partition that are due or selected by an operator."""

    def __init__(self, letters: DeadLetterSource, facts: SliceContext) -> None:
        self.letters = letters
        self._facts = facts
        self.rows = letters.rows
        self._commands: Sequence[Replay] = ()

    def load(self, part: PartitionRecords, first: int) -> bool:
        """See ``Source.load``."""
        self._part = part
        self._wait = 1000 * part.decider.interval(part.lane) + self._facts.late
        self._commands = self._facts.facts.orders(part.lane)
        return self.letters.load(part, first)

    def read(self, row: int) -> Input | Decided | None:
        """See ``Source.read``; a message that is neither due nor selected stays parked.

        Notes of rounds are not messages; only ORDER(KEY) uses them, see ``Lane``.
        """
        records = self._part.records
        if Round.read(records.values[row], records.headers[row]) is not None:
            return None
        command = self._command(row)
        message, attempts, _ = self.letters.read(row)
        if command is not None and not command.cancelled_by:
            return message, attempts, command
        is_due = self._part.records.timestamps[row] + self._wait <= self._facts.now
        if is_due or not self._is_read_for_others(row):
            return message, attempts, None
        return self._parked_again(row, message, command)

    def _command(self, row: int) -> Replay | None:
        """The last command about a row; a cancelled one only if there is no other."""
        lane, offset = self._part.lane, self._part.records.offsets[row]
        named = [command for command in self._commands if offset in command.spans[lane].named]
        return min(named, key=lambda replay: bool(replay.cancelled_by), default=None)

    def _is_read_for_others(self, row: int) -> bool:
        """Whether any command, cancelled or not, extends reading beyond a row."""
        lane, offset = self._part.lane, self._part.records.offsets[row]
        return any(offset < (command.spans[lane].end or 0) for command in self._commands)

    def _parked_again(self, row: int, message: Message, cancelled: Replay | None) -> Decided:
        lane, records = self._part.lane, self._part.records
        result, why = Result.SKIPPED, "it still waits: a later message is tried early"
        if cancelled is not None:
            result, why = Result.CANCELLED, f"cancelled by {cancelled.cancelled_by}"
        copy = OutputRecord(
            lane.topic,
            records.keys[row],
            records.values[row],
            [pair for pair in records.headers[row] if pair[0] != own.MOVED],  # its outcome says so
            records.timestamps[row],
            lane.partition,
        )
        profile = message.profile or NO_PROFILE
        skip = self.letters.decider.skip(profile, result, why, cancelled)
        return Decided(message, skip, ((INTERNAL, copy),))


class PutSource:
    """Reads puts: from an intake, a transmission queue, or the topic where its messages wait."""

    letters = None

    def __init__(self, facts: SliceContext, *, by_priority: bool) -> None:
        self._facts, self._by_priority = facts, by_priority

    def load(self, part: PartitionRecords, first: int) -> bool:
        """See ``Source.load``."""
        del first
        self._part, self._prefix = part, part.prefix
        self._own_headers: own.OwnHeadersReader | None = None
        grid = part.records.grid
        ids = grid.last(own.ID) if grid and own.ID in grid.layout else None
        self.identities = None if ids is None else [*map(own.read_identity, ids)]
        return True

    def prepared_puts(self, first: int) -> Iterator[tuple[int, PreparedPut | None]]:
        """The rows from ``first`` on, each with its put; None if it needs a decision of its own."""
        part, decider, grid = self._part, self._part.decider, self._part.records.grid
        names = () if grid is None else grid.layout
        own_names = {name for name in names if name.startswith(own.PREFIX)} - NAMES
        # Without an identity no header is Redrive's.
        is_plain = own_names.isdisjoint((own.TIMESTAMP, own.UNREADABLE)) and (
            own.ID in own_names or not own_names
        )
        if not isinstance(decider, PutDecider) or grid is None or not is_plain:
            yield from ((row, None) for row in self.rows(first))
            return
        columns = [grid.last(name) for name in (*READ, own.HOPS, PUT_DATE) if name in names]
        ids = grid.last(MSG_ID) if MSG_ID in names else [None] * len(part.records)
        kinds = [*zip(map(has_id, ids), *columns, strict=True)]
        frequencies = Counter(kinds)
        prepared = decider.cache_in(self._facts).prepared.setdefault(names, {})
        for row in self.rows(first):
            kind = kinds[row]
            if kind not in prepared:
                item = self.read(row) if frequencies[kind] >= _WORTH_A_PUT else None
                prepared[kind] = item and decider.prepare(item[0], names, self._facts)
            # A channel that stopped at an earlier message moves none.
            is_stopped = decider.channel in self._facts.recorded
            yield row, None if is_stopped else prepared[kind]

    def rows(self, first: int) -> Iterable[int]:
        """See ``Source.rows``; a channel takes them by priority, then in order of arrival."""
        rows = range(first, len(self._part.records))
        return by_priority(self._part.records, rows) if self._by_priority else rows

    def read(self, row: int) -> Input | None:
        """See ``Source.read``."""
        part, records = self._part, self._part.records
        key, value, headers = records.keys[row], records.values[row], records.headers[row]
        if value is None and part.kind is SourceKind.UNDELIVERED:
            return None  # a tombstone
        here, timestamp = f"{self._prefix}{records.offsets[row]}", records.timestamps[row]
        names = dict(headers)
        if part.kind is SourceKind.PUTS and own.ID not in names and own.UNREADABLE not in names:
            return Message(key, value, headers, timestamp, here, here, 0), NO_ATTEMPTS, None
        if self._own_headers is None:
            layout = None if records.grid is None else records.grid.layout
            self._own_headers = own.OwnHeadersReader(records.headers, layout, kept=NAMES)
        own_headers = self._own_headers.own(row)
        headers = self._own_headers.others(row)
        if part.kind is SourceKind.PUTS:
            # The remaining copy of an unreadable message has readable names.
            unreadable = own.unreadable(records.headers[row]) if own.UNREADABLE in names else ""
            record_time = (own_headers.timestamp or 0) if self._is_own(own_headers) else 0
            message = Message(
                key, value, headers, timestamp, own_headers.identity or here, here,
                own_headers.hops, "", unreadable, record_time=record_time,
            )  # fmt: skip
            return message, NO_ATTEMPTS, None
        if part.kind is SourceKind.UNDELIVERED:
            key, value = own_headers.key, None if own_headers.is_null else value
        message = restore(
            key, value, headers, timestamp=timestamp, own_headers=own_headers, here=here
        )
        attempts = (
            part.attempts(row, own_headers) if part.kind is SourceKind.RETRIES else NO_ATTEMPTS
        )
        return message, attempts, None

    def _is_own(self, own_headers: own.OwnHeaders) -> bool:
        """Whether Redrive put a record there: an application may copy headers to its own puts."""
        decider, rounds = self._part.decider, own_headers.rounds
        if isinstance(decider, PutDecider) and not decider.receiver.takes_puts:
            return True  # a transmission queue
        return rounds is not None and rounds.target == self._part.lane.topic


def parked(
    message: Message,
    place: TopicPartition,
    *,
    table: str,
    attempts: Attempts,
    now: int,
    behind: str = "",
) -> OutputRecord:
    """The copy to park after a failed attempt.

    Args:
        message: The message.
        place: Where it waits.
        table: Short hash of the table that decided.
        attempts: The failed ones, including this one.
        now: Time of the failed attempt, in milliseconds; the delay counts from it.
        behind: Identity of the message of its key that it waits for; empty if none.
    """
    waiting = _waiting_headers(message, table, attempts)
    if behind:
        waiting.append((own.BEHIND, behind.encode("ascii")))
    return OutputRecord(place.topic, message.key, message.value, waiting, now, place.partition)


def remaining(
    message: Message, place: TopicPartition, *, table: str, attempts: Attempts, now: int
) -> OutputRecord:
    """The copy of a dead letter that no rule can place; arguments as for ``parked``."""
    waiting = _waiting_headers(message, table, attempts)
    if message.key is not None:
        waiting.append((own.KEY, message.key))
    if message.value is None:
        waiting.append((own.NULL, b"1"))
    key, value = message.origin.encode("ascii"), message.value or b""
    return OutputRecord(place.topic, key, value, waiting, now, place.partition)


def fit(message: Message, most: int) -> Message:
    """A dead letter, cut so that its copy fits a topic with a maximum record size in bytes."""
    content = cuts.RecordContent(message.key, message.value, message.headers, message.cut)
    return message._replace(**cuts.fitted(content, most)._asdict())


def _waiting_headers(message: Message, table: str, attempts: Attempts) -> Headers:
    headers: Headers = [
        *message.headers,
        (own.ID, message.identity.encode("ascii")),
        (own.ORIGIN, message.origin.encode("ascii")),
        (own.TIMESTAMP, own.number(max(0, message.timestamp))),
        (own.HOPS, own.number(message.hops)),
        (own.FAILURES, own.number(attempts.failures)),
        (own.TABLE, table.encode("ascii")),
    ]
    if message.record_time:
        headers.append((own.RECORD_TIME, own.number(message.record_time)))
    if message.group_topic:
        headers.append((own.GROUP_TOPIC, message.group_topic.value))
    if message.cut:
        headers.append((own.CUT, message.cut.encode("ascii")))
    if attempts.by_rule:
        headers.append((own.FAILED_RULES, own.failed_rules(attempts.by_rule)))
    if attempts.counted:
        headers.append((own.COUNTED, own.number(attempts.counted)))
    if attempts.is_quarantined:
        headers.append((own.QUARANTINE, b"1"))
    return headers


def restore(
    key: bytes | None,
    value: bytes | None,
    headers: Headers,
    *,
    timestamp: int,
    own_headers: own.OwnHeaders,
    here: str,
    profile: DeadLetterProfile | None = None,
) -> Message:
    """The dead letter that a parked or remaining copy holds.

    Args:
        key: The record's own key.
        value: The record's own value.
        headers: The copy's headers without Redrive's own.
        timestamp: The copy's timestamp, in milliseconds, used if it has no other.
        own_headers: Redrive's headers of the copy.
        here: ``topic:partition:offset`` of the copy, used if it has no origin.
        profile: Its failure, from its headers; None for a put.
    """
    return Message(
        key=key,
        value=value,
        headers=headers,
        timestamp=timestamp if own_headers.timestamp is None else own_headers.timestamp,
        identity=own_headers.identity or here,
        origin=own_headers.origin or here,
        hops=own_headers.hops,
        cut=own_headers.cut,
        profile=profile,
        group_topic=own_headers.group_topic,
        record_time=own_headers.record_time or 0,
    )
