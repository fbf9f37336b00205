"""Records that a run has still to read, told apart from markers of transactions.

Offsets alone can't tell them apart: behind the last record of a lane there may be markers, which
nobody handles. Positions are committed behind them, so that what is done does not look like work,
and so that a start after a long stop finds its position still on the log: retention removes markers
together with the records before them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redrive.kafka.cluster import next_offsets

if TYPE_CHECKING:
    from redrive.kafka.cluster import Cluster
    from redrive.messages import TopicPartition
    from redrive.streaming.batch import BatchProcessor
    from redrive.streaming.start import Start


class Backlog:
    """The unread records of one run."""

    def __init__(self, cluster: Cluster, start: Start, processor: BatchProcessor) -> None:
        """Take the run.

        Args:
            cluster: Answers questions; used by the thread alone that looks after the run.
            start: Where the run began.
            processor: Knows the positions, and commits them.
        """
        self._cluster = cluster
        self._processor = processor
        self._leaves_out = bool(start.leaderless)
        # What remains is read only as far as a changed table released it.
        self._releases = {
            held.lane: held.release
            for held in start.held
            if held.interval is None and held.channel is None and held.behind is None
        }
        self._at_record: dict[TopicPartition, int] = {}
        """The position of each lane where a record was found: it is not looked for again."""

    def pass_markers(self) -> bool:
        """Commits the positions behind markers; whether a record is left that can be processed.

        Raises:
            TransientFault: The broker gave no answer in time, or records at a position are gone.
            FatalFault: Another run took over, or the broker refuses for good.
        """
        if self._processor.began is not None:
            return True
        positions = dict(self._processor.positions)
        ends = self._cluster.ends(positions)
        wanted = {lane: min(end, self._releases.get(lane, end)) for lane, end in ends.items()}
        unread = {lane: end for lane, end in wanted.items() if positions[lane] < end}
        unknown = {
            lane: positions[lane] for lane in unread if self._at_record.get(lane) != positions[lane]
        }
        found = next_offsets(self._cluster, unknown, unread)
        self._at_record.update(found)
        ahead = {lane: offset for lane, offset in found.items() if offset > positions[lane]}
        if ahead:
            self._processor.commit_positions(ahead)
        after = self._processor.positions
        return self._leaves_out or any(after[lane] < end for lane, end in unread.items())
