"""The last outcomes of given messages, searched in all existing outcomes.

The ledger is read first, then the later outcomes of the topic; without a ledger all outcomes of the
topic. Outcomes that neither has any more are reported as missing, never guessed.
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from redrive.engine.outcome import UNTOUCHED, Result
from redrive.kafka.cluster import settled_ends
from redrive.outcomes.ledger import outcomes_unseen
from redrive.outcomes.rows import GONE, Row, row_of
from redrive.outcomes.storage import explained
from redrive.outcomes.table import LedgerTable, own_ledger, sql_text

if TYPE_CHECKING:
    from redrive.configuration import JobConfiguration
    from redrive.kafka.cluster import Cluster

_COLUMNS: Final = ("origin", "result", "replay", "outcomes_partition", "outcomes_offset")


@dataclass(slots=True)
class LastOutcome:
    """A summary of the outcomes of one dead letter."""

    partition: int
    """Partition of the outcomes topic; all outcomes of a message are on one."""
    offset: int = -1
    """Offset of the last outcome with an effect."""
    result: str = ""
    """Its result; empty if there is none."""
    replays: set[str] = field(default_factory=set)
    """The plans with an instruction for the dead letter, whatever its result."""

    def add(self, row: Row) -> None:
        """Add one of its outcomes."""
        if row.replay:
            self.replays.add(row.replay)
        if row.result not in UNTOUCHED and row.outcomes_offset > self.offset:
            self.offset, self.result = row.outcomes_offset, row.result


@dataclass(frozen=True, slots=True)
class LastOutcomes:
    """The last outcomes of some dead letters at one moment."""

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
            gone = _gone_in(ledger)
            for row in _in_ledger(ledger, origins):
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
        # Nothing follows a final outcome; after any other, a missing outcome may follow.
        is_open = known.result in {"", Result.REMAINS, Result.PARKED}
        return (
            None if is_open and known.offset < self.gone.get(known.partition, 0) else known.result
        )


def _outcome_of(by_origin: dict[str, LastOutcome], row: Row) -> LastOutcome:
    return by_origin.setdefault(row.origin, LastOutcome(row.outcomes_partition))


def _gone_in(ledger: LedgerTable) -> dict[int, int]:
    """The offsets up to which the projection missed deleted outcomes."""
    rows = ledger.rows(
        f"WHERE starts_with(malformed, {sql_text(GONE)}) GROUP BY outcomes_partition",
        columns="outcomes_partition p, max(outcomes_offset) o",
    )
    return {row["p"]: row["o"] + 1 for row in rows}


def _in_ledger(ledger: LedgerTable, origins: Collection[str]) -> Iterator[Row]:
    columns = ", ".join(f"one.{name} {name}" for name in _COLUMNS)
    with tempfile.TemporaryDirectory(prefix="redrive-origins-") as folder:
        # As a table, so that the engine can look up any number of them at once.
        with explained(Path(folder)):
            column = pa.array(sorted(origins), pa.string())
            wanted = LedgerTable.of_rows(Path(folder), pa.table({"origin": column}))
        yield from ledger.beside(wanted=wanted).outcomes(
            f"SELECT {columns} FROM ledger one JOIN wanted ON one.origin = wanted.origin"  # noqa: S608 - made of constants
        )
