"""The records of dead letters, found where they lie, and messages selected by their bodies."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from redrive.engine.ordering import position_of
from redrive.engine.outcome import LONGEST_KEY, Result
from redrive.errors import EnvironmentFault, TransientFault, UsageError
from redrive.kafka.cluster import Cluster, without_leader
from redrive.kafka.deadline import BROWSING
from redrive.kafka.records import StoredRecord
from redrive.messages import TopicPartition, decode_dead_letter, remove_header
from redrive.messages.own_headers import read_own
from redrive.outcomes.conditions import BodyFilter
from redrive.outcomes.open_letters import OPEN
from redrive.outcomes.rows import Row
from redrive.printable import counted

if TYPE_CHECKING:
    from redrive.configuration import HandlerConfiguration, JobConfiguration
    from redrive.masking import Mask
    from redrive.outcomes.inventory import Inventory, Selection

MOST_BODIES: Final = 100_000
"""Maximum bodies to look at for one command."""
_SHOWN_EVERY: Final = 100
"""Bodies from one look at the progress to the next."""


class Bodies(NamedTuple):
    """How many bodies were read for conditions on them."""

    looked_at: int
    matching: int
    not_json: int
    """Those that a path cannot be looked up in."""
    left_out: Sequence[str]
    """Why others were not looked at."""

    def __str__(self) -> str:
        looked = "body was" if self.looked_at == 1 else "bodies were"
        verb = "matches" if self.matching == 1 else "match"
        others = f"; {self.not_json:,} are not JSON" if self.not_json else ""
        return f"{self.looked_at:,} {looked} looked at: {self.matching:,} {verb}{others}"


def select_by_body(
    cluster: Cluster | None,
    job: JobConfiguration,
    inventory: Inventory,
    selection: Selection,
    *,
    mask: Mask,
    show_progress: Callable[[int, int], None],
) -> tuple[Selection, Bodies]:
    """The selection by the messages whose bodies match, in place of its conditions on bodies.

    Bodies are those before the dead-letter header was added, as ``mask`` shows them.
    ``show_progress`` gets the number of bodies read, and of all.

    Raises:
        EnvironmentFault: A topic or the ledger cannot be read.
        UsageError: The messages of this state do not wait, or a condition is not valid.
    """
    wanted = BodyFilter.of(selection.body, selection.body_text)
    if not set(selection.state.results) <= set(OPEN):
        raise UsageError(
            f"--body and --body-text are not for --status {selection.state}",
            hint="they search messages that wait: open, parked, held, remaining, quarantined",
        )
    if cluster is None:
        raise EnvironmentFault(
            "bodies cannot be read: the broker cannot be reached",
            hint="leave out --body and --body-text, or check the broker",
        )
    selection = replace(selection, body="", body_text="")
    total = inventory.count(selection)
    rows = inventory.places(selection, limit=MOST_BODIES).rows
    matching, read, not_json = set(), 0, 0
    schemes = job.scheme_table
    for row, record in find_records(cluster, job, rows):
        value, headers = record.value, record.headers
        profile = decode_dead_letter(value, headers, key=record.key, schemes=schemes)
        body, _ = remove_header(profile, value, headers)
        is_match = wanted.matches(mask.bytes_or_none(body))
        not_json += is_match is None
        if is_match:
            matching.add(row.message)
        read += 1
        if not read % _SHOWN_EVERY:
            show_progress(read, len(rows))
    left_out = []
    if beyond := total - len(rows):
        left_out.append(
            f"{counted(beyond, 'message')} that failed last were not looked at:"
            f" {MOST_BODIES:,} bodies are the most; other options narrow the search"
        )
    if unread := len(rows) - read:
        left_out.append(f"{counted(unread, 'body')} could not be read")
    bodies = Bodies(read, len(matching), not_json, left_out)
    return replace(selection, messages=frozenset(matching)), bodies


@dataclass(frozen=True, slots=True)
class Lost:
    """A message that was not found."""

    reason: str
    """The reason: deleted from its topics, or unreadable at present."""


def find_record(
    cluster: Cluster, handler: HandlerConfiguration | None, row: Row
) -> StoredRecord | Lost:
    """The record of a dead letter: the dead letter itself or its waiting copy, if found.

    The dead letter is tried first, as its position is known; a copy must be searched. A record at
    that position counts only if it has the size and the key from the ledger, as the topic may have
    been recreated. The row is the last outcome; the settings may no longer have the handler.
    """
    waiting: dict[str, Sequence[str]] = {}
    if handler is not None:
        waiting[Result.PARKED] = handler.identity.waiting_topics
        waiting[Result.REMAINS] = (handler.identity.remaining_topic,)
    own = _origin(row)[0]
    try:
        lanes, silent = cluster.led([own.topic, *waiting.get(row.result, ())])
        record = _original(cluster, row) if own in lanes else None
        if record is None:
            record = _copy(cluster, [lane for lane in lanes if lane.topic != own.topic], row)
    except TransientFault as fault:
        return Lost(f"it could not be read: {fault.message}")
    if record is not None:
        return record
    # Only one partition of the dead-letter topic matters.
    if missing := [lane for lane in silent if lane == own or lane.topic != own.topic]:
        return Lost(f"it was not found; {without_leader(missing)[0]}")
    if row.result in {Result.PARKED, Result.REMAINS}:
        return Lost("it was deleted from its dead-letter topic and from the topic where it waits")
    return Lost("it was deleted from its dead-letter topic")


def find_records(
    cluster: Cluster, job: JobConfiguration, rows: Sequence[Row]
) -> Iterator[tuple[Row, StoredRecord]]:
    """The records of parked and remaining dead letters, in any order, as far as they are there.

    Whole copies come first, because they name their dead letter; each topic is read once. Where a
    copy is cut or lost, it is the dead letter itself. Partitions without a leader are left out.
    Raises ``TransientFault``.
    """
    wanted = {row.origin: row for row in rows}
    if not wanted:
        return
    waiting = [handler.identity for handler in job.handlers]
    remaining, _ = cluster.led([identity.remaining_topic for identity in waiting])
    parked, _ = cluster.led([name for identity in waiting for name in identity.waiting_topics])
    committed = cluster.committed(job.application, parked)
    starts = dict.fromkeys(remaining, 0) | {lane: committed[lane] or 0 for lane in parked}
    for record in cluster.read(starts):
        own = read_own(record.headers)
        if own.origin in wanted and not own.cut:
            yield wanted.pop(own.origin), record
        if not wanted:
            return
    yield from _originals(cluster, wanted.values())


def _originals(cluster: Cluster, rows: Collection[Row]) -> Iterator[tuple[Row, StoredRecord]]:
    by_lane: dict[TopicPartition, dict[int, Row]] = {}
    for row in rows:
        lane, offset = _origin(row)
        by_lane.setdefault(lane, {})[offset] = row
    led, _ = cluster.led(sorted({lane.topic for lane in by_lane}))
    there = [lane for lane in led if lane in by_lane]
    extents = cluster.extents(there)
    starts = {lane: max(extents[lane].first, min(by_lane[lane])) for lane in there}
    ends = {lane: min(extents[lane].end, max(by_lane[lane]) + 1) for lane in there}
    for record in cluster.read(starts, ends):
        known = by_lane[record.lane].get(record.offset)
        if known is not None and _is_same(record, known):
            yield known, record


def _origin(row: Row) -> tuple[TopicPartition, int]:
    place = position_of(row.origin)
    return TopicPartition(place.topic, place.partition), place.offset


def _original(cluster: Cluster, row: Row) -> StoredRecord | None:
    lane, place = _origin(row)
    extent = cluster.extents([lane])[lane]
    if not extent.first <= place < extent.end:
        return None
    records = cluster.read({lane: place}, {lane: place + 1})
    return next((record for record in records if _is_same(record, row)), None)


def _is_same(record: StoredRecord, row: Row) -> bool:
    key = None if record.key is None else record.key[:LONGEST_KEY]
    is_copied = row.outcome != row.origin
    has_size = is_copied or len(record.value or b"") == row.body_size
    return has_size and bool(key == row.message_key)


def _copy(cluster: Cluster, lanes: Sequence[TopicPartition], row: Row) -> StoredRecord | None:
    last: StoredRecord | None = None
    for record in cluster.read(dict.fromkeys(lanes, 0), seconds=BROWSING):
        own = read_own(record.headers)
        if row.origin == own.origin:
            last = record
    return last
