"""The common case, prepared: a fresh dead letter that a rule puts on a queue without limits.

Of the records of a lane nearly all carry the same header names in the same order, and few distinct
dead-letter headers. What can be computed once for all of them is computed here; what is left for
each record is one list, one slice and one line of JSON. Whatever is not of this kind is done by
``attempts`` in its careful way; the two must give the same records, which a test holds them to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from redrive.messages import own_headers as own
from redrive.messages import remove_header, without_stacks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redrive.engine.plans import Plan
    from redrive.messages import DeadLetterProfile, Headers

_PROBE: Final = bytes(4096)
"""A value longer than any dead-letter header, to see how much of it is removed."""


_UNLIKELY: Final = b"\xff"
"""A header value that no field of a message descriptor has, so that every edit shows."""


class Delivery:
    """How to write every fresh dead letter of one kind that one plan puts on a queue."""

    __slots__ = (
        "_added", "_edits", "_gaps", "_tail", "cut", "earliest", "latest", "partition", "plan",
        "room", "topic",
    )  # fmt: skip

    def __init__(
        self,
        plan: Plan,
        letter: DeadLetterProfile,
        layout: Sequence[str],
        room: int,
        timestamps: tuple[int, int],
        *,
        partition: int,
    ) -> None:
        """Prepare.

        Args:
            plan: A plan with a destination.
            letter: The kind of dead letter.
            layout: The header names of every record, in their order.
            room: Longest value, in bytes, that the destination surely takes.
            timestamps: Earliest and latest timestamp that it surely takes, in milliseconds.
            partition: Where to put it; -1 leaves the choice to the key.
        """
        if plan.destination is None:
            raise ValueError("a plan without a destination puts nothing")
        self.plan = plan
        self.topic = plan.destination.topic
        self.partition = partition
        self.room = room
        self.earliest, self.latest = timestamps
        self.cut = 0
        self._edits: list[tuple[int, tuple[str, bytes | None]]] = []
        self._gaps: list[int] = []
        self._added: Headers = []
        self._tail: Headers = [*plan.headers, (own.HOPS, b"1")]
        self._prepare_edits(letter, layout, strip=plan.strip)

    def headers(self, headers: Headers, identity: bytes) -> Headers:
        """The headers to write, from those of the dead letter."""
        written = headers.copy()
        for index, pair in self._edits:
            raw = written[index][1]
            if raw is None or raw.rstrip(b" ") != pair[1]:  # what says so already stays as it is
                written[index] = pair
        for index in self._gaps:
            del written[index]
        written += self._added
        written.append((own.ID, identity))
        written += self._tail
        return written

    def _prepare_edits(
        self, letter: DeadLetterProfile, layout: Sequence[str], *, strip: bool
    ) -> None:
        """Learns from one message what is done to every record of this layout."""
        probe: Headers = [(name, _UNLIKELY) for name in layout]
        value: bytes | None = _PROBE
        if strip:
            value, kept = remove_header(letter, value, probe)
        else:
            kept = without_stacks(letter, probe)
        self.cut = len(_PROBE) - len(value or b"")
        position = {id(pair): index for index, pair in enumerate(probe)}
        survivors = [position.get(id(pair)) for pair in kept]
        taken = 0
        for pair, index in zip(kept, survivors, strict=True):
            if index is not None:
                self._gaps += range(taken, index)
                taken = index + 1
            elif taken < len(layout) and layout[taken] == pair[0]:
                self._edits.append((taken, pair))
                taken += 1
            else:
                self._added.append(pair)
        self._gaps += range(taken, len(layout))
        self._gaps.reverse()
