"""Replays: what a person decided about messages that wait, as entries of the tables topic.

A replay is a plan that was accepted. Its instructions, one record for each message, lie on the
replay topics of the handlers, which the job reads as one more input; what is to be done with all of
them stands here once. So a plan that was accepted can be known by its entry, and a cancelled one,
too.

A plan about parked messages has no such records: its entry names the parked copies, and whoever
reads the retry topic anyway does it. So nothing else ever takes a message from there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from redrive.messages import TopicPartition

__all__ = [
    "CANCELLED",
    "REPLAY",
    "Replay",
    "Span",
    "To",
    "cancelled_entry",
    "free_by_order",
    "orders_on",
    "read_replays",
]

REPLAY: Final = "replay/"
CANCELLED: Final = "cancelled/"

Entry = tuple[str, dict[str, Any]]
"""Key and value of one entry of the tables topic."""


class To(StrEnum):
    """What is to become of the messages of a replay."""

    ORIGINAL = "original"
    """Put where they were for, without the dead-letter header."""
    QUEUE = "queue"
    """Put on a queue that the operator names."""
    RULES = "rules"
    """Evaluated from the first rule on, with no attempt counted."""
    DISCARD = "discard"
    """Deleted."""
    ATTEMPT = "attempt"
    """Of parked messages: tried now, before they are due; the attempt counts as any other."""
    REMAIN = "remain"
    """Of parked messages: not tried any more, and kept with what remains."""

    @property
    def is_about_parked(self) -> bool:
        """Whether it is done with parked messages, and not with what remains."""
        return self in {To.ATTEMPT, To.REMAIN}


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """The instructions of one replay on one partition of a replay topic."""

    first: int
    """Where the topic ended before the first of them was written."""
    count: int
    """How many the plan has there."""
    end: int | None = None
    """The offset behind the last of them; None while they are being written."""
    read: int = 0
    """Up to where the remaining copies were turned into instructions."""
    until: int = 0
    """Up to where they are to be: the end of the remaining topic when the replay was accepted."""
    named: frozenset[int] = frozenset()
    """Of a retry topic: the offsets of the parked copies that are meant."""

    def holds(self, offset: int) -> bool:
        """Whether an offset of the partition may be one of an instruction."""
        return self.first <= offset and (self.end is None or offset < self.end)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """An accepted plan."""

    plan: str
    """Its id."""
    to: To = To.ORIGINAL
    queue: str = ""
    """The queue of ``To.QUEUE``."""
    queue_manager: str = ""
    keeps_header: bool = False
    """Whether the dead-letter header stays on messages that go to a queue."""
    rate: float | None = None
    """Messages a second, over all partitions; None for as fast as possible."""
    operator: str = ""
    """Who applied it."""
    purpose: str = ""
    """Why, in their words."""
    accepted: float = 0.0
    """When, in seconds since 1970."""
    planned: int = 0
    """How many messages the plan has."""
    instructed: int = 0
    """For how many of them there are instructions."""
    placed: int = 0
    """How many of them had been placed already when the plan was applied, as outcomes tell."""
    is_complete: bool = False
    """Whether every instruction is written."""
    cancelled_by: str = ""
    """Who cancelled it; empty if nobody did."""
    spans: Mapping[TopicPartition, Span] = field(default_factory=dict)

    def rate_of(self, lane: TopicPartition) -> float | None:
        """Messages a second that may be read of one partition; None for any number.

        The rate is shared out as the messages are, so that all partitions are done together.
        """
        span = self.spans.get(lane)
        if self.rate is None or self.cancelled_by or span is None:
            return None
        total = sum(one.count for one in self.spans.values())
        return self.rate * span.count / total if total else None

    def entry(self) -> Entry:
        """Key and value of its entry; whether it is cancelled is told by another one."""
        return f"{REPLAY}{self.plan}", {
            "to": self.to.value,
            "queue": self.queue,
            "queue_manager": self.queue_manager,
            "keeps_header": self.keeps_header,
            "rate": self.rate,
            "operator": self.operator,
            "purpose": self.purpose,
            "accepted": self.accepted,
            "planned": self.planned,
            "instructed": self.instructed,
            "placed": self.placed,
            "is_complete": self.is_complete,
            "spans": [
                [*lane, one.first, one.count, one.end, one.read, one.until, *sorted(one.named)]
                for lane, one in self.spans.items()
            ],
        }


def cancelled_entry(plan: str, operator: str) -> Entry:
    """The entry that cancels what is left of a replay.

    Args:
        plan: The id of the plan.
        operator: Who cancels it.
    """
    return f"{CANCELLED}{plan}", {"by": operator}


def free_by_order(replays: Iterable[Replay]) -> dict[TopicPartition, int]:
    """Up to where retry topics are read before their messages are due, for those that are named.

    Args:
        replays: Accepted replays.
    """
    free: dict[TopicPartition, int] = {}
    for replay in replays:
        if replay.to.is_about_parked and not replay.cancelled_by:
            for lane, span in replay.spans.items():
                free[lane] = max(free.get(lane, 0), span.end or 0)
    return free


def orders_on(lane: TopicPartition, replays: Iterable[Replay]) -> tuple[Replay, ...]:
    """The replays about parked messages of a partition, cancelled ones too; the latest first."""
    found = (one for one in replays if one.to.is_about_parked and lane in one.spans)
    return tuple(sorted(found, key=lambda one: one.accepted, reverse=True))


def read_replays(entries: Mapping[str, Mapping[str, Any]]) -> dict[str, Replay]:
    """The replays among the entries of a tables topic, by the id of their plan.

    An entry of a plan that cannot be read, as a later version may have written it, is left out.
    """
    found = {}
    for key, value in entries.items():
        if key.startswith(REPLAY):
            plan = key.removeprefix(REPLAY)
            cancelled = entries.get(f"{CANCELLED}{plan}", {})
            replay = _replay(plan, value, str(cancelled.get("by", "")))
            if replay is not None:
                found[plan] = replay
    return found


def _replay(plan: str, value: Mapping[str, Any], cancelled_by: str) -> Replay | None:
    try:
        told = {name: value[name] for name in value if name not in {"to", "spans"}}
        spans = {
            TopicPartition(topic, number): Span(
                first=first, count=count, end=end, read=read, until=until, named=frozenset(named)
            )
            for topic, number, first, count, end, read, until, *named in value["spans"]
        }
        return Replay(plan=plan, to=To(value["to"]), cancelled_by=cancelled_by, spans=spans, **told)
    except (KeyError, TypeError, ValueError):
        return None
