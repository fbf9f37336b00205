"""Records that a run still has to read, without transaction markers.

Offsets alone can't distinguish them: transaction markers may follow the last record of a lane.
Positions are committed behind markers, so that finished lanes do not look like work, and so that a
start after a long stop still finds its position on the log: retention removes markers together with
the records before them.
"""

from __future__ import annotations

from redrive.kafka.cluster import Cluster, next_offsets
from redrive.messages import TopicPartition
from redrive.streaming.batch import BatchProcessor
from redrive.streaming.start import Start


class Backlog:
    """The unread records of one run."""

    def __init__(self, cluster: Cluster, start: Start, processor: BatchProcessor) -> None:
        """Take the run; only the thread that supervises it uses the cluster."""
        self._cluster = cluster
        self._processor = processor
        self.leaderless = start.leaderless
        """Partitions that had no leader at the last look: nobody can answer for them."""
        self.change(start)
        self._at_record: dict[TopicPartition, int] = {}
        """The position of each lane where a record was found, so it is not searched again."""

    def change(self, start: Start) -> None:
        """Goes on with what changed tables set free."""
        # Remaining copies are read only as far as a changed table released them.
        self._releases = {
            held.lane: held.release
            for held in start.held
            if held.interval is None and held.channel is None and held.behind is None
        }

    def pass_markers(self) -> bool:
        """Commits the positions behind markers; returns whether a record is left to process.

        Raises:
            TransientFault: The broker gave no answer in time, or records at a position are gone.
            FatalFault: Another run took over, or the broker refuses for good.
        """
        if self._processor.began is not None:
            return True
        positions = {
            lane: offset
            for lane, offset in self._processor.positions.items()
            if lane not in self.leaderless
        }
        ends = self._cluster.ends(positions)
        wanted = {lane: min(end, self._releases.get(lane, end)) for lane, end in ends.items()}
        unread = {lane: end for lane, end in wanted.items() if positions[lane] < end}
        unknown = {
            lane: positions[lane] for lane in unread if self._at_record.get(lane) != positions[lane]
        }
        records = next_offsets(self._cluster, unknown, unread)
        self._at_record.update(records)
        ahead = {lane: offset for lane, offset in records.items() if offset > positions[lane]}
        if ahead:
            self._processor.commit_positions(ahead)
        after = dict(self._processor.positions)
        # A batch since the ends were asked for may have written behind them, such as retries.
        has_batch = any(
            after[lane] not in {offset, ahead.get(lane)} for lane, offset in positions.items()
        )
        is_unread = any(after[lane] < end for lane, end in unread.items())
        return bool(self.leaderless) or has_batch or is_unread
