"""Reconciles inputs, outcomes and puts while a job goes on, in bounded memory.

A kafka-python reader at read_committed follows every topic. What it knows of an input is forgotten
once the input has its final outcome and its put was seen; of all that ended only the place is kept,
as a range of offsets, so that whatever comes a second time is found however late it comes.

    - every input has one final outcome, and the put that it claims, once and nowhere else;
    - nothing follows a final outcome, but what a replay or another table made of what remained;
    - a put has the header of an edit if its outcome says so, and only then;
    - attempts grow; no replay acts on a message twice;
    - no retry comes before RETRYINT is over by the true time, whatever the job's clock showed;
    - messages that needed one attempt keep their order by key within a partition.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from benchmarks.load import DEAD_LETTERS, EDITED, OUTCOMES, TARGETS
from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError, LeaderNotAvailableError

_FINAL: Final = {"retried", "forwarded", "discarded", "remains"}
_PUT: Final = {"retried", "forwarded"}
_UNTOUCHED: Final = {"skipped", "cancelled"}
"""Results of a replay that changed nothing."""
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
    time: float
    """True time in milliseconds."""
    attempt: int
    result: str
    target: str
    name: str
    replay: str
    table: str
    reason: int
    is_edited: bool

    @property
    def waits(self) -> bool:
        """Whether nothing was tried yet: the delay since the failure is not over."""
        return self.result == "parked" and not self.reason


_REMAINED: Final = _Outcome(float("-inf"), 0, "remains", "", "", "", "", 0, is_edited=False)
"""What a message that remained and was forgotten has behind it."""


@dataclass
class Findings:
    """What the audit counted."""

    inputs: int = 0
    results: Counter[str] = field(default_factory=Counter)
    puts: int = 0
    replayed: Counter[str] = field(default_factory=Counter)
    """The results of the messages of replays, those that did not have to be touched included."""
    lost: list[str] = field(default_factory=list)
    duplicated: list[str] = field(default_factory=list)
    disordered: list[str] = field(default_factory=list)
    early: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    """What else is not as it should be: an exit code, a command that did not end."""

    @property
    def are_clean(self) -> bool:
        """Whether everything adds up."""
        return not (self.lost or self.duplicated or self.disordered or self.early or self.wrong)

    def line(self) -> str:
        """One line for a person."""
        results = " + ".join(f"{count} {result}" for result, count in sorted(self.results.items()))
        replays = ", ".join(f"{count} {result}" for result, count in sorted(self.replayed.items()))
        return (
            f"{self.inputs} in = {results}; {self.puts} puts;"
            f"{f' by replays: {replays};' if replays else ''} {len(self.lost)} lost,"
            f" {len(self.duplicated)} duplicated, {len(self.disordered)} out of order,"
            f" {len(self.early)} early"
        )


@dataclass(slots=True)
class _Put:
    """A put in the order of its partition and key."""

    place: tuple[int, int]
    """Partition and offset of the input."""
    is_edited: bool
    is_direct: bool | None = None
    """Whether its input was never retried; None as long as that is not known."""


@dataclass(slots=True)
class _Course:
    """What is known of one input that has not come to its end."""

    outcomes: list[_Outcome] = field(default_factory=list)
    """In the order of their partition, which is the order in which they were decided."""
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
        offsets: Sequence[float] = (0.0,),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin with nothing.

        Args:
            interval: RETRYINT in seconds.
            tables_change: Whether what remains may be decided again without a replay: then every
                course is kept until ``finish``.
            offsets: Seconds by which the clock of the job was ahead, at any time until now.
            clock: Seconds.
        """
        self.findings = Findings()
        self.taken = 0
        """Outcomes that were read."""
        self._interval = interval
        self._tables_change = tables_change
        self._offsets = offsets
        self._clock = clock
        self._courses: defaultdict[tuple[int, int], _Course] = defaultdict(_Course)
        self._ended: defaultdict[int, Places] = defaultdict(Places)
        self._remaining: set[tuple[int, int]] = set()
        self._replayed: set[tuple[str, str]] = set()
        self._order: defaultdict[tuple[str, int, bytes], deque[_Put]] = defaultdict(deque)
        self._last: dict[tuple[str, int, bytes], tuple[int, int]] = {}

    @property
    def kept(self) -> int:
        """Inputs that are kept in memory."""
        return len(self._courses)

    @property
    def ended(self) -> int:
        """Inputs that came to their end, those included that a replay took up again."""
        return sum(map(len, self._ended.values()))

    @property
    def unplaced(self) -> int:
        """Inputs that are parked or remain, of those that are kept in memory."""
        ends = (course.outcomes[-1].result for course in self._courses.values() if course.outcomes)
        return sum(result in {"parked", "remains"} for result in ends)

    def has_ended(self, inputs: Mapping[int, int]) -> bool:
        """Whether every input has an outcome that may be its last.

        Args:
            inputs: How many there are in each partition.
        """
        known = [(self._has_ended(place), course) for place, course in self._courses.items()]
        if any(course.outcomes and course.outcomes[-1].result not in _FINAL for _, course in known):
            return False
        first = sum(bool(course.outcomes) for has_ended, course in known if not has_ended)
        return self.ended + first >= sum(inputs.values())

    def take(self, record: Any) -> None:  # noqa: ANN401 - a ConsumerRecord has no types
        """Takes a committed record; those of one partition come in their order."""
        if record.topic == OUTCOMES:
            self._take_outcome(json.loads(record.value), record.timestamp)
            return
        headers = dict(record.headers)
        identity = headers["redrive.id"].decode()
        place = _place(identity)
        self.findings.puts += 1
        if not self._is_open(place):
            self.findings.duplicated.append(f"put {identity} on {record.topic}")
            return
        put = _Put(place, EDITED in headers)
        self._order[record.topic, record.partition, record.key].append(put)
        self._courses[place].puts.append((record.topic, put))

    def settle(self) -> None:
        """Decides about inputs that have ended for some time, and forgets them."""
        if not self._tables_change:
            before = self._clock() - _LEAST_AGE
            courses = self._courses.items()
            self._decide(
                [
                    place
                    for place, course in courses
                    if course.ended_at < before and self._is_whole(course)
                ]
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
            missing = (
                _identity(partition, offset) for offset in self._ended[partition].missing(end)
            )
            self.findings.lost += [identity for identity in missing if identity not in known]
        return self.findings

    def _take_outcome(self, outcome: Mapping[str, Any], appended: float) -> None:
        self.taken += 1
        replay, result = outcome.get("replay") or "", outcome["result"]
        if replay:
            self.findings.replayed[result] += 1
            if (replay, outcome["origin"]) in self._replayed:
                self.findings.duplicated.append(f"replay {replay}: {outcome['origin']} again")
            self._replayed.add((replay, outcome["origin"]))
        if result in _UNTOUCHED:
            return
        place = _place(outcome["origin"])
        if not self._is_open(place):
            self.findings.duplicated.append(f"outcome {outcome['outcome']}")
            return
        course = self._courses[place]
        course.outcomes.append(
            _Outcome(
                self._true_time(outcome["time"], appended), outcome["attempt"], result,
                outcome["target_topic"], outcome["outcome"], replay, outcome.get("table", ""),
                outcome["reason"], EDITED in (outcome.get("edit") or ""),
            )
        )  # fmt: skip
        course.ended_at = self._clock() if result in _FINAL else float("inf")

    def _true_time(self, shown: float, appended: float) -> float:
        """When something was decided, by what the job's clock showed and the broker's shows."""
        true = (shown - 1000 * ahead for ahead in self._offsets)
        return min(true, key=lambda moment: abs(appended - moment))

    def _has_ended(self, place: tuple[int, int]) -> bool:
        return place[1] in self._ended[place[0]]

    def _is_open(self, place: tuple[int, int]) -> bool:
        """Whether more may be read of an input: it is on its way, or remains."""
        is_known = place in self._courses or place in self._remaining
        return is_known or not self._has_ended(place)

    def _is_whole(self, course: _Course) -> bool:
        """Whether the put was seen, or should have been seen long ago."""
        is_seen = bool(course.puts) == (course.outcomes[-1].result in _PUT)
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
        outcomes = [_REMAINED] * (place in self._remaining) + course.outcomes
        shown = (
            f"{_identity(*place)}: {[(outcome.result, outcome.attempt) for outcome in outcomes]}"
        )
        for _, put in course.puts:
            put.is_direct = len(outcomes) == 1
            if outcomes and put.is_edited != outcomes[-1].is_edited:
                self.findings.wrong.append(f"edited or not: {shown}")
        if len({outcome.name for outcome in outcomes}) < len(outcomes):
            self.findings.duplicated.append(f"outcome of {shown}")
        for outcome, following in itertools.pairwise(outcomes):
            self._check_step(shown, outcome, following)
        if not outcomes or outcomes[-1].result not in _FINAL:
            self.findings.lost.append(shown)
            return
        self.findings.results["remains"] -= place in self._remaining
        self.findings.results[outcomes[-1].result] += 1
        self._remaining.discard(place)
        if outcomes[-1].result == "remains":
            self._remaining.add(place)
        if not self._has_ended(place):
            self._ended[place[0]].add(place[1])
        if not any(outcome.replay for outcome in outcomes) and not self._tables_change:
            attempts = [outcome.attempt for outcome in outcomes if not outcome.waits]
            if attempts != sorted(set(attempts)):
                self.findings.duplicated.append(f"attempts of {shown}")
        self._check_puts(shown, outcomes[-1], Counter(topic for topic, _ in course.puts))

    def _check_step(self, shown: str, outcome: _Outcome, following: _Outcome) -> None:
        # A table may have come and gone between the two.
        goes_on = outcome.result == "remains" and (following.replay or self._tables_change)
        if outcome.result != "parked" and not goes_on:
            self.findings.duplicated.append(f"decided after its end: {shown}")
        # The delay of a round begins before it is parked, when the processing failed.
        may_be_early = following.replay or following.table != outcome.table or outcome.waits
        # Attempts begin again only if another table came and went, which released the message.
        begins_again = self._tables_change and following.attempt <= outcome.attempt
        is_early = following.time - outcome.time < self._interval * 1000
        if outcome.result == "parked" and is_early and not (may_be_early or begins_again):
            self.findings.early.append(f"{shown} at {outcome.time:.0f} and {following.time:.0f}")

    def _check_puts(self, shown: str, last: _Outcome, puts: Counter[str]) -> None:
        expected = Counter([last.target] if last.result in _PUT else [])
        self.findings.lost += [f"put on {topic}: {shown}" for topic in expected - puts]
        self.findings.duplicated += [f"put on {topic}: {shown}" for topic in puts - expected]


class Reader:
    """Follows the topics of one job for a reconciliation.

    This class is responsible for: reading what was committed since the last look, whatever becomes
    of brokers meanwhile.
    """

    def __init__(
        self, servers: str, reconciliation: Reconciliation, targets: Sequence[str] = TARGETS
    ) -> None:
        """Open the reader.

        Args:
            servers: The broker.
            reconciliation: Gets what is read.
            targets: Topics of puts.
        """
        self._targets = targets
        self.reconciliation = reconciliation
        self._servers = servers
        self._positions: dict[TopicPartition, int] = {}
        self._moved_at = time.monotonic()
        self._consumer = self._opened()

    def close(self) -> None:
        """Closes the reader."""
        self._consumer.close()

    def look(self) -> bool:
        """Reads what was committed until now, and decides about inputs that have ended.

        A reader that is behind decides nothing: it may have read an outcome long before the put.

        Returns:
            Whether it read all of it; it takes some seconds at most.

        Raises:
            KafkaError: A broker is away; nothing is lost, the next look goes on.
        """
        if time.monotonic() - self._moved_at > _SILENCE:
            # A client that lost its brokers may look for them at the wrong place for minutes.
            self._consumer.close()
            self._consumer = self._opened()
            self._moved_at = time.monotonic()
        self._assign()
        deadline, ends = time.monotonic() + _LOOK, self._ends(list(self._positions))
        while is_behind := any(self._consumer.position(lane) < end for lane, end in ends.items()):
            if time.monotonic() > deadline:
                break
            batches = self._consumer.poll(timeout_ms=500, max_records=5_000)
            if batches:
                self._moved_at = time.monotonic()
            for lane, records in batches.items():
                for record in records:
                    self.reconciliation.take(record)
                self._positions[lane] = records[-1].offset + 1
        if not is_behind:
            # Past the end of the last transaction: retention deletes it with its records, and a
            # reader that was opened again would begin before the log.
            self._positions = {lane: self._consumer.position(lane) for lane in ends}
            self._moved_at = time.monotonic()
            self.reconciliation.settle()
        return not is_behind

    def inputs(self) -> dict[int, int]:
        """How many dead letters each partition holds, those that were deleted by age included."""
        lanes = [TopicPartition(DEAD_LETTERS, n) for n in self._partitions(DEAD_LETTERS)]
        return {lane.partition: end for lane, end in self._ends(lanes).items()}

    def _ends(self, lanes: list[TopicPartition]) -> dict[TopicPartition, int]:
        try:
            ends: dict[TopicPartition, int] = self._consumer.end_offsets(lanes)
        except KeyError as error:  # this client's answer for a partition whose leader is away
            raise LeaderNotAvailableError(f"{error} has no leader") from error
        return ends

    def read_until_ended(self, patience: float) -> dict[int, int]:
        """Reads until every input has an outcome that may be its last, or nothing comes any more.

        Args:
            patience: Seconds without any outcome after which to give up.

        Returns:
            How many inputs each partition has.
        """
        inputs, deadline = self.inputs(), time.monotonic() + patience
        with contextlib.suppress(KafkaError):  # a broker that has just come back
            self.read_all(patience)  # a replay may have taken up again what had ended
        while not self.reconciliation.has_ended(inputs) and time.monotonic() < deadline:
            time.sleep(1)
            taken = self.reconciliation.taken
            with contextlib.suppress(KafkaError):  # a broker that has just come back
                self.look()
            if self.reconciliation.taken > taken:
                deadline = time.monotonic() + patience
        time.sleep(2)  # what was committed last is visible everywhere
        self.read_all(patience)
        return inputs

    def read_all(self, patience: float) -> None:
        """Reads what was committed until now, to its end.

        Args:
            patience: The most seconds.

        Raises:
            KafkaError: A broker is away.
            SystemExit: It took longer.
        """
        deadline = time.monotonic() + patience
        while not self.look():
            if time.monotonic() > deadline:
                raise SystemExit(f"the reader did not come to the end in {patience:g} s")

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
            for topic in (OUTCOMES, *self._targets)
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
