"""Reconciles inputs, outcomes and puts while a job goes on, in bounded memory.

A kafka-python reader at read_committed follows every topic. What it knows of an input is forgotten
once the input has its final outcome and its put was seen; of all that ended only the place is kept,
as a range of offsets, so that whatever comes a second time is found however late it comes.

The rules are those of ``benchmarks.crash``, and hold over changed tables too: what remains may be
decided again by another table, and attempts count anew with each.
"""

from __future__ import annotations

import itertools
import json
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from benchmarks.crash import (
    DEAD_LETTERS,
    FINAL,
    LAST,
    LATE,
    OPEN,
    OUTCOMES,
    SMALL,
    Findings,
)
from kafka import KafkaConsumer, TopicPartition

_TARGETS: Final = (OPEN, SMALL, LATE, LAST)
_PUT: Final = {"retried", "forwarded"}
_PATIENCE: Final = 120.0
"""Seconds after a final outcome in which its put has to be seen."""
_LOOK: Final = 5.0
"""Seconds that a look takes at most."""
_SILENCE: Final = 15.0
"""Seconds without any record after which another client is taken."""
_LEAST_AGE: Final = 5.0
"""Seconds after a final outcome before an input counts as ended: markers of one transaction reach
partitions one after the other, so an outcome may be seen before an earlier one."""


class _Outcome(NamedTuple):
    time: int
    attempt: int
    result: str
    target: str
    name: str


@dataclass(slots=True)
class _Put:
    """A put in the order of its partition and key."""

    place: tuple[int, int]
    """Partition and offset of the input."""
    is_direct: bool | None = None
    """Whether its input was never retried; None as long as that is not known."""


@dataclass(slots=True)
class _Course:
    """What is known of one input that has not come to its end."""

    outcomes: list[_Outcome] = field(default_factory=list)
    puts: list[tuple[str, _Put]] = field(default_factory=list)
    ended_at: float = float("inf")
    """When a final outcome was seen."""


class Places:
    """Offsets of one partition: all below a bound, and some above."""

    def __init__(self) -> None:
        self.below = 0
        self._above: set[int] = set()

    def __contains__(self, offset: int) -> bool:
        return offset < self.below or offset in self._above

    def __len__(self) -> int:
        return self.below + len(self._above)

    def add(self, offset: int) -> None:
        """Adds one offset."""
        self._above.add(offset)
        while self.below in self._above:
            self._above.remove(self.below)
            self.below += 1

    def missing(self, end: int) -> list[int]:
        """The offsets below an end that are not in it."""
        return [offset for offset in range(self.below, end) if offset not in self._above]


class Reconciliation:
    """Decides about inputs by what was committed for them.

    This class is responsible for: what is known of inputs that are on their way; which have ended;
    the findings.
    """

    def __init__(
        self,
        interval: float,
        *,
        tables_change: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin with nothing.

        Args:
            interval: RETRYINT in seconds.
            tables_change: Whether what remains may be decided again: then every course is kept
                until ``finish``.
            clock: Seconds.
        """
        self.findings = Findings()
        self.taken = 0
        """Outcomes that were read."""
        self._interval = interval
        self._tables_change = tables_change
        self._clock = clock
        self._courses: defaultdict[tuple[int, int], _Course] = defaultdict(_Course)
        self._ended: defaultdict[int, Places] = defaultdict(Places)
        self._order: defaultdict[tuple[str, int, bytes], deque[_Put]] = defaultdict(deque)
        self._last: dict[tuple[str, int, bytes], tuple[int, int]] = {}

    @property
    def kept(self) -> int:
        """Inputs that are kept in memory."""
        return len(self._courses)

    @property
    def ended(self) -> int:
        """Inputs that came to their end."""
        return sum(map(len, self._ended.values()))

    def has_ended(self, inputs: Mapping[int, int]) -> bool:
        """Whether every input has an outcome that may be its last.

        Args:
            inputs: How many there are in each partition.
        """
        ended = self.ended + sum(
            bool(course.outcomes) and _last(course).result in FINAL
            for course in self._courses.values()
        )
        return ended >= sum(inputs.values())

    def take(self, record: Any) -> None:  # noqa: ANN401 - a ConsumerRecord has no types
        """Takes a committed record; those of one partition come in their order."""
        if record.topic == OUTCOMES:
            self._take_outcome(json.loads(record.value))
            return
        identity = dict(record.headers)["redrive.id"].decode()
        place = _place(identity)
        self.findings.puts += 1
        if place[1] in self._ended[place[0]]:
            self.findings.duplicated.append(f"put {identity} on {record.topic}")
            return
        put = _Put(place)
        self._order[record.topic, record.partition, record.key].append(put)
        self._courses[place].puts.append((record.topic, put))

    def settle(self) -> None:
        """Decides about inputs that have ended for some time, and forgets them."""
        if not self._tables_change:
            before = self._clock() - _LEAST_AGE
            courses = self._courses.items()
            self._decide(
                [one for one, it in courses if it.ended_at < before and self._is_whole(it)]
            )

    def finish(self, inputs: Mapping[int, int]) -> Findings:
        """Decides about everything that is left.

        Args:
            inputs: How many there are in each partition.
        """
        self._decide(list(self._courses))
        self.findings.inputs = sum(inputs.values())
        known = {text.partition(": ")[0] for text in self.findings.lost}
        for partition, end in inputs.items():
            missing = (_identity(partition, one) for one in self._ended[partition].missing(end))
            self.findings.lost += [identity for identity in missing if identity not in known]
        return self.findings

    def _take_outcome(self, outcome: Mapping[str, Any]) -> None:
        place = _place(outcome["origin"])
        self.taken += 1
        if place[1] in self._ended[place[0]]:
            self.findings.duplicated.append(f"outcome {outcome['outcome']}")
            return
        course = self._courses[place]
        course.outcomes.append(
            _Outcome(
                outcome["time"], outcome["attempt"], outcome["result"], outcome["target_topic"],
                outcome["outcome"],
            )
        )  # fmt: skip
        if outcome["result"] in FINAL:
            course.ended_at = min(course.ended_at, self._clock())

    def _is_whole(self, course: _Course) -> bool:
        """Whether every attempt and the put were seen, or should have been seen long ago."""
        last = _last(course)
        is_seen = bool(course.puts) == (last.result in _PUT) and (
            len(course.outcomes) >= last.attempt
        )
        return is_seen or course.ended_at < self._clock() - _PATIENCE

    def _decide(self, over: Iterable[tuple[int, int]]) -> None:
        for place in over:
            self._check(place, self._courses.pop(place))
        for queue, puts in self._order.items():
            while puts and puts[0].is_direct is not None:
                put = puts.popleft()
                if put.is_direct and put.place < self._last.get(queue, (-1, -1)):
                    self.findings.disordered.append(str(queue))
                if put.is_direct:
                    self._last[queue] = put.place

    def _check(self, place: tuple[int, int], course: _Course) -> None:
        outcomes = sorted(course.outcomes)
        shown = f"{_identity(*place)}: {[(one.result, one.attempt) for one in outcomes]}"
        for _, put in course.puts:
            put.is_direct = len(outcomes) == 1
        if not outcomes or outcomes[-1].result not in FINAL:
            self.findings.lost.append(shown)
            return
        self._ended[place[0]].add(place[1])
        self.findings.results[outcomes[-1].result] += 1
        if len({one.name for one in outcomes}) < len(outcomes):
            self.findings.duplicated.append(f"outcome of {shown}")
        for one, following in itertools.pairwise(outcomes):
            self._check_step(shown, one, following)
        self._check_puts(shown, outcomes[-1], Counter(topic for topic, _ in course.puts))

    def _check_step(self, shown: str, one: _Outcome, following: _Outcome) -> None:
        is_anew = self._tables_change  # a table may have come and gone between the two
        if one.result != "parked" and not (one.result == "remains" and is_anew):
            self.findings.duplicated.append(f"decided after its end: {shown}")
        if following.attempt <= one.attempt and not is_anew:
            self.findings.duplicated.append(f"attempts of {shown}")
        if one.result == "parked" and following.time - one.time < self._interval * 1000:
            self.findings.early.append(f"{shown} at {one.time} and {following.time}")

    def _check_puts(self, shown: str, last: _Outcome, found: Counter[str]) -> None:
        expected = Counter([last.target] if last.result in _PUT else [])
        self.findings.lost += [f"put on {topic}: {shown}" for topic in expected - found]
        self.findings.duplicated += [f"put on {topic}: {shown}" for topic in found - expected]


class Reader:
    """Follows the topics of one job for a reconciliation.

    This class is responsible for: reading what was committed since the last look, whatever becomes
    of brokers meanwhile.
    """

    def __init__(self, servers: str, reconciliation: Reconciliation) -> None:
        """Open the reader.

        Args:
            servers: The broker.
            reconciliation: Gets what is read.
        """
        self.reconciliation = reconciliation
        self._servers = servers
        self._positions: dict[TopicPartition, int] = {}
        self._moved_at = time.monotonic()
        self._consumer = self._opened()

    def close(self) -> None:
        """Closes the reader."""
        self._consumer.close()

    def look(self) -> None:
        """Reads what was committed until now, and decides about inputs that have ended.

        Raises:
            KafkaError: A broker is away; nothing is lost, the next look goes on.
        """
        if time.monotonic() - self._moved_at > _SILENCE:
            # A client that lost its brokers may look for them at the wrong place for minutes.
            self._consumer.close()
            self._consumer = self._opened()
            self._moved_at = time.monotonic()
        self._assign()
        deadline = time.monotonic() + _LOOK
        while time.monotonic() < deadline:
            batches = self._consumer.poll(timeout_ms=500, max_records=5_000)
            if not batches:
                break
            self._moved_at = time.monotonic()
            for lane, records in batches.items():
                for record in records:
                    self.reconciliation.take(record)
                self._positions[lane] = records[-1].offset + 1
        self.reconciliation.settle()

    def inputs(self) -> dict[int, int]:
        """How many dead letters each partition holds, those that were deleted by age included."""
        lanes = [TopicPartition(DEAD_LETTERS, n) for n in self._partitions(DEAD_LETTERS)]
        return {lane.partition: end for lane, end in self._consumer.end_offsets(lanes).items()}

    def _opened(self) -> KafkaConsumer:
        consumer = KafkaConsumer(
            bootstrap_servers=self._servers,
            isolation_level="read_committed",
            enable_auto_commit=False,
            auto_offset_reset="none",
        )
        self._follow(consumer, list(self._positions))
        return consumer

    def _partitions(self, topic: str) -> set[int]:
        return self._consumer.partitions_for_topic(topic) or set()

    def _assign(self) -> None:
        """Follows the partitions that there are now."""
        there = [
            TopicPartition(topic, number)
            for topic in (OUTCOMES, *_TARGETS)
            for number in sorted(self._partitions(topic))
        ]
        if not set(there) <= set(self._positions):
            self._follow(self._consumer, there)

    def _follow(self, consumer: KafkaConsumer, lanes: list[TopicPartition]) -> None:
        """Reads each from its beginning or from where it stood."""
        consumer.assign(lanes)
        for lane in lanes:
            consumer.seek(lane, self._positions.setdefault(lane, 0))


def _place(identity: str) -> tuple[int, int]:
    """Partition and offset of an input."""
    _, partition, offset = identity.rsplit(":", 2)
    return int(partition), int(offset)


def _identity(partition: int, offset: int) -> str:
    return f"{DEAD_LETTERS}:{partition}:{offset}"


def _last(course: _Course) -> _Outcome:
    return max(course.outcomes)
