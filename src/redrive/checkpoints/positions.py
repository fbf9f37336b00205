"""Commits positions of lanes without records: at a start, after markers, against expiry."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from redrive.engine.facts import Answers, Questions
from redrive.messages import OutputRecord, Refused, TopicPartition


class PositionsOnly:
    """A transaction's input without records; see ``protocol.TransactionInput``.

    Offsets of a group without members expire after a while (KIP-211), and after the last record of
    a lane there may be transaction markers, which look like waiting records.
    """

    outputs: Sequence[tuple[int, OutputRecord]] = ()
    batch_limit = 1 << 62
    is_packed = False
    has_to_be_split = False

    def __init__(
        self,
        positions: Mapping[TopicPartition, int],
        moved: Collection[TopicPartition] = frozenset(),
    ) -> None:
        """Move lanes to positions.

        Args:
            positions: The minimum position of each lane; a lane that is further stays there.
            moved: Lanes that take this position whatever is committed: records were lost, the
                offsets expired, or the topic was recreated under the same name.
        """
        self._positions = dict(positions)
        self._moved = moved

    def lanes(self) -> Sequence[TopicPartition]:
        """The lanes whose offsets are moved."""
        return list(self._positions)

    def resume(self, committed: Mapping[TopicPartition, int | None]) -> None:
        """Use the committed offset if it is further: progress never goes backwards."""
        for lane, offset in committed.items():
            if offset is not None and lane not in self._moved:
                self._positions[lane] = max(offset, self._positions[lane])

    def ends(self) -> Mapping[TopicPartition, int]:
        """The position of each lane; committing an offset again prevents its expiry."""
        return self._positions

    def decide(self) -> Questions:
        """Nothing is decided."""
        return Questions()

    def learn(self, answers: Answers) -> None:
        """Nothing is asked."""

    def refuse(self, refused: Sequence[Refused], doubted: Iterable[str]) -> None:
        """Nothing can be refused."""

    def split(self) -> Sequence[PositionsOnly]:
        """There is nothing to split."""
        return ()
