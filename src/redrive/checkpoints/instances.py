"""Instances of one application: disjoint shares of the partitions."""

from __future__ import annotations

import math
import re
import zlib
from dataclasses import dataclass
from typing import Final

from redrive.messages import TopicPartition

AUTO: Final = "auto"
"""The setting of an instance whose share depends on the live instances."""


@dataclass(frozen=True, slots=True)
class Share:
    """Part ``number`` of ``total`` of every source's partitions."""

    number: int
    """From 1."""
    total: int

    def __post_init__(self) -> None:
        """Raise ``ValueError`` unless 1 <= number <= total."""
        if not 1 <= self.number <= self.total:
            raise ValueError(f"{self.number}/{self.total} is not a valid instance")

    @classmethod
    def parse(cls, text: str) -> Share:
        """Read ``"1/2"``.

        Raises:
            ValueError: The text does not have this form.
        """
        match = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", text.strip())
        if match is None:
            raise ValueError(f"{text!r} is not of the form 1/2")
        return cls(int(match[1]), int(match[2]))

    def owns(self, lane: TopicPartition) -> bool:
        """Whether this share includes a partition.

        The partitions of a topic are assigned round-robin, starting at an offset from the topic's
        name, so that topics with one partition are distributed too. It depends on nothing else:
        shares that do not overlap are disjoint, whatever each instance knows of topics.
        """
        begin = zlib.crc32(lane.topic.encode())
        return (begin + lane.partition) % self.total == self.number - 1

    @property
    def is_first(self) -> bool:
        """Whether this share does the work that is done once for all shares."""
        return self.number == 1

    def overlaps(self, other: Share) -> bool:
        """Whether some partition belongs to both shares, for sources of any size."""
        return (self.number - other.number) % math.gcd(self.total, other.total) == 0

    def contains(self, other: Share) -> bool:
        """Whether every partition of another share is also in this one."""
        return other.total % self.total == 0 and self.overlaps(other)

    def __str__(self) -> str:
        return f"{self.number}/{self.total}"


def assigned(members: frozenset[str], member: str, partitions: int) -> Share | None:
    """The share of one of the live instances, which have equal parts in order of their names.

    Every instance computes this itself. While they see different members their shares may overlap;
    fencing (``epoch``) ensures that at most one emits for a partition. Partitions are those of all
    topics.

    Returns:
        None if the instance stands by, because there is no partition for it.

    Raises:
        ValueError: The instance is not among the members.
    """
    number = sorted(members).index(member) + 1
    return Share(number, min(len(members), partitions)) if number <= partitions else None
