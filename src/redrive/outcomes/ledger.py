"""The ledger without projection lag: the table, and the outcomes after it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from redrive.configuration import LedgerFolder
from redrive.errors import TransientFault
from redrive.kafka.cluster import without_leader
from redrive.messages import TopicPartition
from redrive.outcomes.criteria import Criteria, time_from
from redrive.outcomes.open_letters import OpenLetters, counts_of
from redrive.outcomes.rows import Row, Values, row_of
from redrive.outcomes.table import LedgerTable, source_of
from redrive.printable import counted

if TYPE_CHECKING:
    from redrive.kafka.cluster import Cluster, Extent

_BATCH_WINDOW: Final = 1000
"""Rows of (time, handler, result) to search for the last batches."""


class Flow(NamedTuple):
    """The key under which outcomes are counted."""

    handler: str
    result: str


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
        starts, notes = _starts(positions, extents)
        notes += without_leader(silent)
        rows: list[Row] = []
        try:
            for record in cluster.read(starts, seconds=seconds):
                if wanted is None or wanted(record.value or b""):
                    place = record.lane.partition, record.offset
                    row = row_of(record.value, record.timestamp, *place)
                    if handlers is None or row.handler in handlers:
                        rows.append(row)
        except TransientFault:
            behind = sum(extents[lane].end - start for lane, start in starts.items())
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
            newest = "ORDER BY time DESC, outcomes_offset DESC"
            query = f"SELECT * FROM ledger {criteria.where()} {newest} LIMIT {limit}"  # noqa: S608 - quoted
            rows += self.table.outcomes(query)
        # Outcomes of one message are on one partition, so offsets give their order.
        rows.sort(key=lambda row: (row.time, row.outcomes_offset))
        return rows[-limit:]

    def flows(self, *earliest: datetime) -> list[Counter[Flow]]:
        """The number of outcomes of each kind: in total, then since each of some times."""
        counts: list[Counter[Flow]] = [Counter() for _ in range(1 + len(earliest))]
        for outcome in self.tail:
            if outcome.malformed is None:
                flow = Flow(outcome.handler, outcome.result)
                counts[0][flow] += 1
                for count, moment in zip(counts[1:], earliest, strict=True):
                    count[flow] += outcome.time >= moment
        if self.table is not None:
            for what, number in counts_of(self.table, OpenLetters.of(self.table)).items():
                counts[0][Flow(*what)] += number
            for row in self._flows_since(earliest):
                for part, count in enumerate(counts[1:]):
                    count[Flow(row["handler"], row["result"])] += row[f"n{part}"]
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

    ``seen`` is the ledger's next outcome by partition; empty without a ledger.
    """
    starts, gone = {}, {}
    for lane, extent in extents.items():
        position = seen.get(lane.partition, 0)
        if position < extent.first:
            gone[lane] = extent.first
        elif position > extent.end:  # the topic was recreated
            gone[lane] = position
        starts[lane] = extent.first if lane in gone else position
    unread = {lane: start for lane, start in starts.items() if start < extents[lane].end}
    return Unseen(unread, gone)


def _starts(
    positions: Mapping[int, int], extents: Mapping[TopicPartition, Extent]
) -> tuple[dict[TopicPartition, int], list[str]]:
    notes = []
    if any(positions.get(lane.partition, 0) > extent.end for lane, extent in extents.items()):
        positions = {}
        notes.append(
            "the ledger has outcomes of a topic that was deleted since; `redrive ledger rebuild`"
            " rebuilds it"
        )
    if any(positions.get(lane.partition, 0) < extent.first for lane, extent in extents.items()):
        notes.append("the oldest outcomes were deleted from their topic before the ledger had them")
    starts = {
        lane: max(positions.get(lane.partition, 0), extent.first)
        for lane, extent in extents.items()
    }
    return {lane: start for lane, start in starts.items() if start < extents[lane].end}, notes
