"""Held partitions: the offsets up to which their messages are free.

Parked messages are free when they are due, remaining messages when a new table evaluates them, and
messages of a transmission queue while its channel runs.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Protocol

from redrive.checkpoints.clock import SteadyClock
from redrive.engine.commands import States
from redrive.messages import TopicPartition

if TYPE_CHECKING:
    from redrive.checkpoints.control import Wait


@dataclass(frozen=True, slots=True)
class HeldPartition:
    """A partition whose messages are read once they are free; each kind of it is a class."""

    lane: TopicPartition
    start: int
    """Where to read from: the committed offset."""
    release: int = 0
    """Messages below this offset are free whatever else holds them."""

    @property
    def follows_states(self) -> bool:
        """Whether operators' commands change what is free."""
        return True


@dataclass(frozen=True, slots=True)
class NewMessages(HeldPartition):
    """New messages, on too many partitions for Spark's own source: free once they are written."""

    @property
    def follows_states(self) -> bool:
        """They are free whatever an operator commands."""
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept(HeldPartition):
    """Messages that only a new table, or an operator, releases."""

    can_be_released: bool = False
    """Whether operators' commands can release messages while the job runs."""

    @property
    def follows_states(self) -> bool:
        """Whether operators' commands can release messages."""
        return self.can_be_released


@dataclass(frozen=True, slots=True)
class HeldChannel:
    """The channel that moves the messages of a partition."""

    name: tuple[str, str]
    """Its queue manager and its own name."""
    via: tuple[tuple[str, str], ...] = ()
    """The further connections that its messages pass."""
    is_running: bool = True
    """Whether it runs if no operator started or stopped it."""

    def runs(self, states: States) -> bool:
        """Whether it moves messages."""
        return states.moves(self.name, self.via, is_running=self.is_running)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parked(HeldPartition):
    """Messages that are free when they are due, and while their channel runs if they have one."""

    interval: float
    """Seconds after its timestamp at which a message is due."""
    channel: HeldChannel | None = None

    @property
    def follows_states(self) -> bool:
        """Whether an operator can stop their channel."""
        return self.channel is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class TransmissionQueue(HeldPartition):
    """Messages that are free while their channel runs."""

    channel: HeldChannel
    paused_by: TopicPartition | None = None
    """Where messages wait for a retry by the channel's receiver. While one waits, the channel moves
    nothing else (MRRTY)."""
    head: TopicPartition | None = None
    """Where its undeliverable messages are kept. Once these are released the channel moves nothing
    else before them, because they were the head of the queue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldInstructions(HeldPartition):
    """Instructions to replay remaining messages."""

    behind: TopicPartition
    """The partition of their remaining copies. While a new table evaluates these, instructions
    wait: no batch has both."""


class Offsets(Protocol):
    """Questions to the cluster; every method raises ``TransientFault`` without an answer."""

    def ends(
        self, lanes: Collection[TopicPartition], *, committed_only: bool = True
    ) -> Mapping[TopicPartition, int]:
        """The last stable offsets, or with open transactions the very ends."""

    def first_since(
        self, times: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, tuple[int, int]]:
        """Offset and timestamp of the first record that is not older than a time; -1 for none."""


_SAVED: Final = 1.0
"""Seconds of a rate that a lane may catch up after it could not be read; more would be a burst on a
target that just recovered."""


@dataclass(slots=True)
class _Bucket:
    """The position of a lane, and the number of records that may be read now."""

    begin: int
    at: float
    saved: float = 0.0


class Pace:
    """Limits how fast lanes are read, each at its own rate (a token bucket).

    A lane starts with an empty bucket, so that a rate also applies right after a start, unless an
    upper bound is asked for.
    """

    def __init__(self, clock: Callable[[], float], *, at_most: bool = False) -> None:
        """Start without lanes; the clock gives monotonic seconds.

        With ``at_most`` the answers are an upper bound of those of another pace, which started
        earlier.
        """
        self._clock = clock
        self._saved = _SAVED if at_most else 0.0
        self._lanes: dict[TopicPartition, _Bucket] = {}

    def limit(self, lane: TopicPartition, begin: int, end: int, rate: float | None) -> int:
        """The offset up to which a lane, read up to ``begin``, may be read now.

        The rate is in records per second; None for no limit except the end.
        """
        now = self._clock()
        if rate is None or begin >= end:
            self._lanes.pop(lane, None)
            return end
        known = self._lanes.setdefault(lane, _Bucket(begin, now, self._saved * (1.0 + rate)))
        most = 1.0 + rate * _SAVED
        earned = known.saved - (begin - known.begin) + rate * (now - known.at)
        known.begin, known.at, known.saved = begin, now, min(most, earned)
        return min(end, begin + int(known.saved))


class HeldPartitions:
    """Computes the offsets up to which held partitions are free."""

    def __init__(
        self,
        partitions: Sequence[HeldPartition],
        offsets: Offsets,
        clock: SteadyClock,
        *,
        rate: float | None = None,
        at_most: bool = False,
    ) -> None:
        """Hold back these partitions.

        Args:
            partitions: Each of them once.
            offsets: Answers.
            clock: The clock of the run, which also stamps parked messages.
            rate: Messages per second, over all partitions, that releases set free; None for no
                limit. They share batches with new dead letters, which must not wait.
            at_most: Whether the answers must be an upper bound of another process's answers.
        """
        self._partitions = tuple(partitions)
        self._offsets = offsets
        self._clock = clock
        self._pace = Pace(time.monotonic, at_most=at_most)
        self._rate = rate
        self._releases = Pace(time.monotonic, at_most=at_most)
        self.is_releasing = False
        """Whether releases had more messages to free at the last call."""
        self.next_due = math.inf
        """The next due time of a parked message, in seconds of the clock, at the last call."""

    def change(self, waits: Mapping[TopicPartition, Wait]) -> None:
        """Apply how long messages of some partitions wait under changed tables."""
        self._partitions = tuple(
            _changed(held, waits[held.lane]) if held.lane in waits else held
            for held in self._partitions
        )

    def free(
        self,
        begin: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
        states: States,
    ) -> dict[TopicPartition, int]:
        """The offset up to which each partition is free, never below ``begin``.

        The ends must be older than this call, or a message that is parked meanwhile would be free
        at once. The states say which channels run.

        Raises:
            TransientFault: The broker did not answer in time.
        """
        parked = {
            held.lane: held.interval
            for held in self._partitions
            if isinstance(held, Parked)
            and ends[held.lane] > begin[held.lane]
            and (held.channel is None or held.channel.runs(states))
        }
        times = {lane: self._due_before(interval) for lane, interval in parked.items()}
        first = self._offsets.first_since(times) if times else {}
        self.next_due = min(
            (
                stamp / 1000 + parked[lane] + self._clock.late(parked[lane])
                for lane, (offset, stamp) in first.items()
                if offset >= 0
            ),
            default=math.inf,
        )
        released = {}
        for held in self._partitions:
            release = max(held.release, states.releases.get(held.lane, 0))
            released[held.lane] = max(begin[held.lane], min(ends[held.lane], release))
        paused = self._paused_lanes(begin, ends, released)
        free = {}
        for held in self._partitions:
            lane = held.lane
            freed = begin[lane]
            match held:
                case NewMessages():
                    freed = ends[lane]
                case TransmissionQueue(channel=channel) if lane not in paused:
                    freed = ends[lane] if channel.runs(states) else begin[lane]
                case Parked() if lane in first:
                    not_due, _ = first[lane]
                    freed = ends[lane] if not_due < 0 else not_due
            free[lane] = max(begin[lane], min(ends[lane], freed))
        instructions = dict(self._instructions(begin, ends, released, states))
        return {**free, **self._at_rate(begin, free, released), **instructions}

    def _at_rate(
        self,
        begin: Mapping[TopicPartition, int],
        free: Mapping[TopicPartition, int],
        released: Mapping[TopicPartition, int],
    ) -> dict[TopicPartition, int]:
        """The offsets up to which lanes are free, where releases free more than age does."""
        waiting = [lane for lane in free if released[lane] > free[lane]]
        share = None if self._rate is None else self._rate / max(1, len(waiting))
        limits = {
            lane: max(free[lane], self._releases.limit(lane, begin[lane], released[lane], share))
            for lane in waiting
        }
        self.is_releasing = any(limits[lane] < released[lane] for lane in waiting)
        return limits

    def _instructions(
        self,
        begin: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
        released: Mapping[TopicPartition, int],
        states: States,
    ) -> Iterator[tuple[TopicPartition, int]]:
        """The offsets up to which instructions are free at their replays' rates, by lane.

        They wait until a new table has evaluated all its messages, even over many batches: a later
        evaluation could not know that a copy was replayed meanwhile.
        """
        for held in self._partitions:
            if not isinstance(held, HeldInstructions):
                continue
            lane, behind = held.lane, held.behind
            waits = released.get(behind, 0) > begin.get(behind, 0)
            rates = [
                rate
                for replay in states.replays.values()
                if lane in replay.spans
                and replay.spans[lane].holds(begin[lane])
                and (rate := replay.rate_of(lane)) is not None
            ]
            rate = min(rates, default=None)
            yield (
                lane,
                begin[lane] if waits else self._pace.limit(lane, begin[lane], ends[lane], rate),
            )

    def _paused_lanes(
        self,
        begin: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
        released: Mapping[TopicPartition, int],
    ) -> set[TopicPartition]:
        """Transmission queues whose receiver retries a message (MRRTY), or whose head is released.

        A commit returns before readers see what it wrote, so open transactions count too: nothing
        overtakes a message that waits for its retry.
        """
        queues = [held for held in self._partitions if isinstance(held, TransmissionQueue)]
        waiting = {
            held.lane: held.paused_by
            for held in queues
            if held.paused_by is not None and ends[held.lane] > begin[held.lane]
        }
        marks = self._offsets.ends(waiting.values(), committed_only=False) if waiting else {}
        return {lane for lane, retries in waiting.items() if marks[retries] > begin[retries]} | {
            held.lane
            for held in queues
            if held.head is not None and released.get(held.head, 0) > begin.get(held.head, 0)
        }

    def _due_before(self, interval: float) -> int:
        # This is the first timestamp that is not due.
        return int(self._clock.due(interval) * 1000) + 1


def _changed(held: HeldPartition, wait: Wait) -> HeldPartition:
    if isinstance(held, Parked) and wait.interval is not None:
        return replace(held, release=wait.release, interval=wait.interval)
    return replace(held, release=wait.release)
