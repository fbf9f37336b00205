"""The ledger without projection lag: the table, and the outcomes after it."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Self, TypeAlias

import orjson
import pyarrow as pa

from redrive.configuration import LedgerFolder
from redrive.configuration.deciders import table_of
from redrive.engine.ordering import Position, position_of
from redrive.engine.outcome import FINAL, UNTOUCHED, Result
from redrive.errors import ConfigurationError, TransientFault
from redrive.kafka.cluster import Cluster, settled_ends, without_leader
from redrive.messages import TopicPartition
from redrive.messages.own_headers import incarnation_of, read_own
from redrive.outcomes.open_letters import OpenLetters, counts_of
from redrive.outcomes.rows import GONE, INCARNATION, Row, Values, row_of
from redrive.outcomes.selection import Criteria, time_from
from redrive.outcomes.storage import explained
from redrive.outcomes.table import LedgerTable, own_ledger, source_of, sql_text
from redrive.printable import counted

if TYPE_CHECKING:
    from redrive.configuration import JobConfiguration
    from redrive.kafka.cluster import Extent

_BATCH_WINDOW: Final = 1000
"""Rows of (time, handler, result) to search for the last batches."""


Flow: TypeAlias = tuple[str, str]
"""Handler and result, by which outcomes are counted."""


class Batch(NamedTuple):
    """The number of outcomes at one moment."""

    time: datetime
    results: Mapping[str, int]


class Unseen(NamedTuple):
    """Where the outcomes topic continues after the ledger."""

    starts: Mapping[TopicPartition, int]
    """Where to read; partitions with nothing new are left out."""
    gone: Mapping[TopicPartition, int]
    """Partitions with a gap between the ledger and the topic, and the offset from which no outcome
    is missing."""
    is_new: bool = False
    """Whether the topic was recreated."""

    def notes(self) -> Iterator[str]:
        """Why outcomes are missing."""
        if self.is_new:
            yield (
                "the ledger has outcomes of a topic that was deleted since; `redrive ledger"
                " rebuild` rebuilds it"
            )
        elif self.gone:
            yield "the oldest outcomes were deleted from their topic before the ledger had them"


@dataclass(frozen=True, slots=True)
class Ledger:
    """All outcomes up to now, as far as possible."""

    table: LedgerTable | None
    """None without a table."""
    tail: tuple[Row, ...] = ()
    """Outcomes of the topic that are not yet in the table."""
    notes: tuple[str, ...] = ()
    """Why outcomes may be missing; empty if none are."""

    @classmethod
    def open(
        cls,
        path: LedgerFolder,
        cluster: Cluster | None,
        *,
        topic: str,
        seconds: float,
        wanted: Callable[[bytes], bool] | None = None,
        handlers: frozenset[str] | None = None,
    ) -> Self:
        """Open the table and read the topic from where the table ends.

        Args:
            path: The folder of the table.
            cluster: The cluster of the outcomes topic; None if it cannot be reached.
            topic: The outcomes topic.
            seconds: How long reading the topic may take.
            wanted: A filter of the topic's records by their value; None for all.
            handlers: Handlers whose outcomes to read, also from the table; None for all.

        Raises:
            EnvironmentFault: The table exists and cannot be read, or belongs to another job.
            TransientFault: The broker gave no answer in time.
        """
        source = "" if cluster is None else source_of(cluster, topic)
        table = whole = LedgerTable.open(path, source)
        if whole is not None and handlers is not None:
            table = whole.restricted_to(handlers)
        if cluster is None:
            return cls(table)
        positions = whole.positions() if whole else {}
        lanes, silent = cluster.led([topic])
        extents = cluster.extents(lanes)
        unseen = outcomes_unseen(positions, extents)
        notes = [*unseen.notes(), *without_leader(silent)]
        rows: list[Row] = []
        try:
            for record in cluster.read(unseen.starts, seconds=seconds):
                if wanted is None or wanted(record.value or b""):
                    place = record.lane.partition, record.offset
                    row = row_of(record.value, record.timestamp, *place)
                    if handlers is None or row.handler in handlers:
                        rows.append(row)
        except TransientFault:
            behind = sum(extents[lane].end - start for lane, start in unseen.starts.items())
            what = "the ledger is" if table else f"there is no ledger in {path}, so it is"
            notes.append(
                f"{what} up to {counted(behind, 'outcome')} behind the job, and not all of them"
                " could be read in time: the newest may be missing"
            )
        return cls(table, tuple(rows), tuple(notes))

    def find(self, criteria: Criteria, *, limit: int) -> list[Row]:
        """The newest outcomes that match the criteria, oldest first."""
        rows = [row for row in self.tail if criteria.matches(row)]
        if self.table is not None:
            newest = "ORDER BY time DESC, outcomes_offset DESC, outcomes_partition DESC"
            query = f"SELECT * FROM ledger {criteria.where()} {newest} LIMIT {limit}"  # noqa: S608 - quoted
            rows += self.table.outcomes(query)
        # Outcomes of one message are on one partition, so offsets give their order.
        rows.sort(key=lambda row: (row.time, row.outcomes_offset, row.outcomes_partition))
        return rows[-limit:]

    def flows(self, *earliest: datetime) -> list[Counter[Flow]]:
        """The number of outcomes of each kind: in total, then since each of some times."""
        counts: list[Counter[Flow]] = [Counter() for _ in range(1 + len(earliest))]
        for outcome in self.tail:
            if outcome.malformed is None:
                flow = outcome.handler, outcome.result
                counts[0][flow] += 1
                for count, moment in zip(counts[1:], earliest, strict=True):
                    count[flow] += outcome.time >= moment
        if self.table is not None:
            counts[0] += counts_of(self.table, OpenLetters.of(self.table))
            for row in self._flows_since(earliest):
                for part, count in enumerate(counts[1:]):
                    count[row["handler"], row["result"]] += row[f"n{part}"]
        return [+count for count in counts]

    def _flows_since(self, earliest: Sequence[datetime]) -> list[Values]:
        """Rows with ``handler``, ``result``, and the count since each time."""
        if self.table is None or not earliest:
            return []
        numbers = [
            f"count(CASE WHEN {time_from(time)} THEN 1 END) n{part}"
            for part, time in enumerate(earliest)
        ]
        kinds = ("coalesce(handler, '') handler", "coalesce(result, '') result")
        return self.table.rows(
            f"WHERE malformed IS NULL AND {time_from(min(earliest))} GROUP BY 1, 2",
            columns=", ".join((*kinds, *numbers)),
        )

    def last_batches(self, number: int) -> list[Batch]:
        """The last moments at which the job was active, newest first."""
        counts = Counter((row.time, row.result) for row in self.tail if row.malformed is None)
        for row in self._newest_counts():
            counts[row["time"], row["result"]] += row["n"]
        times = sorted({time for time, _ in counts}, reverse=True)[:number]
        return [
            Batch(time, {result: n for (at, result), n in sorted(counts.items()) if at == time})
            for time in times
        ]

    def _newest_counts(self) -> list[Values]:
        if self.table is None:
            return []
        [newest] = self.table.rows("", columns="max(day) AS day")
        if newest["day"] is None:
            return []
        return self.table.rows(
            f"WHERE malformed IS NULL AND day = DATE '{newest['day']}'"
            f" GROUP BY time, result ORDER BY time DESC LIMIT {_BATCH_WINDOW}",
            columns="time, result, count(*) n",
        )


def outcomes_unseen(seen: Mapping[int, int], extents: Mapping[TopicPartition, Extent]) -> Unseen:
    """Compare the ledger's positions with the topic.

    ``seen`` is the ledger's next outcome by partition; empty without a ledger. Of a recreated topic
    all outcomes are unseen.
    """
    starts, gone = {}, {}
    is_new = any(seen.get(lane.partition, 0) > extent.end for lane, extent in extents.items())
    for lane, extent in extents.items():
        position = seen.get(lane.partition, 0)
        if position < extent.first or (is_new and position):
            gone[lane] = max(position, extent.first)
        starts[lane] = extent.first if lane in gone else position
    unread = {lane: start for lane, start in starts.items() if start < extents[lane].end}
    return Unseen(unread, gone, is_new)


@dataclass(slots=True)
class LastOutcome:
    """A summary of the outcomes of one dead letter."""

    partition: int
    """Partition of the outcomes topic; all outcomes of a message are on one."""
    offset: int = -1
    """Offset of the last outcome with an effect."""
    result: str = ""
    """Its result; empty if there is none."""
    message: str = ""
    """The identity of the message."""
    replays: set[str] = field(default_factory=set)
    """The plans with an instruction for the dead letter, whatever its result."""

    def add(self, row: Row) -> None:
        """Add one of its outcomes."""
        if row.replay:
            self.replays.add(row.replay)
        if row.result not in UNTOUCHED and row.outcomes_offset > self.offset:
            self.offset, self.result = row.outcomes_offset, row.result
            self.message = row.message


@dataclass(frozen=True, slots=True)
class LastOutcomes:
    """The last outcomes of some dead letters at one moment; missing ones are never guessed."""

    by_origin: Mapping[str, LastOutcome]
    """By origin; dead letters without outcomes are missing."""
    ends: Mapping[int, int]
    """By partition of the outcomes topic, the offset below which every outcome was read."""
    gone: Mapping[int, int]
    """By partition, the offset below which outcomes may be missing."""

    @classmethod
    def of(cls, job: JobConfiguration, cluster: Cluster, origins: Collection[str]) -> LastOutcomes:
        """Query the ledger, and the topic from the ledger's end, about dead letters by origin.

        Reads everything that was committed before this call.

        Raises:
            EnvironmentFault: The ledger is there and can't be read.
            TransientFault: The broker gave no answer in time.
        """
        ledger = own_ledger(job, cluster)
        by_origin: dict[str, LastOutcome] = {}
        gone: dict[int, int] = {}
        if ledger is not None:
            # The offsets up to which the projection missed deleted outcomes.
            rows = ledger.rows(
                f"WHERE starts_with(malformed, {sql_text(GONE)}) GROUP BY outcomes_partition",
                columns="outcomes_partition p, max(outcomes_offset) o",
            )
            gone = {row["p"]: row["o"] + 1 for row in rows}
            for row in _outcomes_in_ledger(ledger, origins):
                _outcome_of(by_origin, row).add(row)
        cluster.topics()
        lanes = cluster.lanes([job.outcomes_topic])
        ends = settled_ends(cluster, lanes)
        unseen = outcomes_unseen(
            {} if ledger is None else ledger.positions(), cluster.extents(lanes)
        )
        gone.update({lane.partition: first for lane, first in unseen.gone.items()})
        wanted = frozenset(origins)
        for record in cluster.read(unseen.starts):
            place = record.lane.partition, record.offset
            row = row_of(record.value, record.timestamp, *place)
            if row.origin in wanted:
                _outcome_of(by_origin, row).add(row)
        return cls(by_origin, {lane.partition: end for lane, end in ends.items()}, gone)

    def result_of(self, origin: str) -> str | None:
        """The last result of a dead letter; None if outcomes are missing."""
        known = self.by_origin.get(origin)
        if known is None:
            return None
        # Nothing follows a final outcome but an undone discard; after others, one may be missing.
        is_open = known.result not in FINAL or known.result == Result.DISCARDED
        return (
            None if is_open and known.offset < self.gone.get(known.partition, 0) else known.result
        )


def _outcome_of(by_origin: dict[str, LastOutcome], row: Row) -> LastOutcome:
    return by_origin.setdefault(row.origin, LastOutcome(row.outcomes_partition))


def _outcomes_in_ledger(ledger: LedgerTable, origins: Collection[str]) -> Iterator[Row]:
    names = ("origin", "message", "result", "replay", "outcomes_partition", "outcomes_offset")
    columns = ", ".join(f"one.{name} {name}" for name in names)
    with tempfile.TemporaryDirectory(prefix="redrive-origins-") as folder:
        # As a table, so that the engine can look up any number of them at once.
        with explained(Path(folder)):
            column = pa.array(sorted(origins), pa.string())
            wanted = LedgerTable.of_rows(Path(folder), pa.table({"origin": column}))
        yield from ledger.beside(wanted=wanted).outcomes(
            f"SELECT {columns} FROM ledger one JOIN wanted ON one.origin = wanted.origin"  # noqa: S608 - made of constants
        )


def positions_from_outcomes(
    configuration: JobConfiguration, cluster: Cluster, lanes: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """The next offset to read for lanes whose committed offsets expired.

    They expire when no instance has run for a week (KIP-211). Every outcome carries the offset of
    its source record and was committed in the same transaction as the group's offset, so the newest
    outcome of a lane gives its exact position. Under ORDER(KEY) a message that still waits behind
    another has no further outcome; its copy names the one that it replaces.

    Each lane comes with the incarnation of its topic: offsets of a deleted topic do not apply to a
    recreated one.

    Returns:
        The lanes with outcomes; the others were never handled.

    Raises:
        ConfigurationError: Neither the ledger nor the topic has all outcomes.
        TransientFault: The broker gave no answer in time.
    """
    ledger = own_ledger(configuration, cluster)
    seen = {} if ledger is None else ledger.positions()
    positions: dict[TopicPartition, int] = {}
    for topic, incarnation, partition, offset in chain(
        () if ledger is None else _positions_in_ledger(ledger, lanes),
        _positions_in_tail(configuration, cluster, seen),
        _positions_in_copies(configuration, cluster, lanes),
    ):
        lane = TopicPartition(topic, partition)
        if lanes.get(lane) == incarnation:
            positions[lane] = max(offset + 1, positions.get(lane, 0))
    return positions


def _positions_in_copies(
    configuration: JobConfiguration, cluster: Cluster, lanes: Collection[TopicPartition]
) -> Iterator[Position]:
    """The positions of copies that others replace, where tables have ORDER(KEY)."""
    topics = {
        topic
        for handler in configuration.handlers
        if table_of(handler).control.is_ordered
        for topic in handler.identity.waiting_topics
    }
    extents = cluster.extents([lane for lane in lanes if lane.topic in topics])
    starts = {lane: extent.first for lane, extent in extents.items() if extent.first < extent.end}
    for record in cluster.read(starts, {lane: extents[lane].end for lane in starts}):
        if place := read_own(record.headers).moved:
            yield position_of(place)


def _positions_in_ledger(
    ledger: LedgerTable, lanes: Collection[TopicPartition]
) -> Iterator[Position]:
    topics = ", ".join(sql_text(topic) for topic in sorted({lane.topic for lane in lanes}))
    rows = ledger.rows(
        f"WHERE source_topic IN ({topics}) GROUP BY source_topic, source_partition, {INCARNATION}",
        columns=f"source_topic t, source_partition p, {INCARNATION} i, max(source_offset) o",
    )
    return (Position(row["t"], row["i"], row["p"], row["o"]) for row in rows)


def _positions_in_tail(
    configuration: JobConfiguration, cluster: Cluster, seen: Mapping[int, int]
) -> Iterator[Position]:
    topic = configuration.outcomes_topic
    count = cluster.topics().get(topic, 0)
    extents = cluster.extents(TopicPartition(topic, number) for number in range(count))
    unseen = outcomes_unseen(seen, extents)
    for lane, first in unseen.gone.items():
        raise _missing_error(lane, seen.get(lane.partition, 0), first)
    for record in cluster.read(unseen.starts):
        # What is left out was not written by a job.
        with suppress(ValueError, KeyError, TypeError, AttributeError):
            outcome = orjson.loads(record.value or b"")
            # An earlier version had the incarnation only in the name.
            incarnation = outcome.get("incarnation") or incarnation_of(outcome["outcome"])
            yield Position(
                outcome["topic"], int(incarnation), outcome["partition"], int(outcome["offset"])
            )


def _missing_error(lane: TopicPartition, seen: int, first: int) -> ConfigurationError:
    missing = (
        f"outcomes {seen} to {first - 1} of {lane}"
        if seen < first
        else f"the topic {lane.topic} whose outcomes up to {seen - 1} of {lane} the ledger has"
    )
    return ConfigurationError(
        f"the committed offsets of this application are missing, and so are {missing}, which"
        " had its positions; starting from the beginning would repeat everything that is still"
        " in the dead-letter topics",
        hint="set the offsets of the application's consumer group by hand, with"
        " `kafka-consumer-groups --reset-offsets`, to where it should continue; or rename"
        " the application to start over",
    )
