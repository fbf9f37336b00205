"""A streaming source that can be held.

It gives parked messages when they are due, remaining ones when a new table wants them, and what a
transmission queue holds while its channel runs.

Spark asks ``latestOffset`` before every batch. For a retry partition the answer is the first offset
that is not due yet, for a remaining partition the offset up to which messages were set free, for a
transmission queue its end or, if its channel is stopped, where it was; while nothing is free the
answer stands still, no batch starts and nothing else is held up (design 6).

It only plans, in a process of its own beside the driver: whoever emits reads the ranges itself.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, NoReturn

from confluent_kafka import KafkaException
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows

from redrive.checkpoints.states import StatesFollower
from redrive.errors import TransientFault
from redrive.kafka.consumer import kept_admin
from redrive.kafka.offsets import LATEST, OffsetSpec, at_time, list_offsets
from redrive.kafka.producer import KafkaCommittedOffsets
from redrive.kafka.watch import Watch
from redrive.messages import TopicPartition
from redrive.topology.states import NO_STATES, States

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

NAME: Final = "redrive_held"
"""The format name under which the source is registered."""

SCHEMA: Final = "offset bigint"
"""A column that Spark's Kafka source has too; no row is ever read from either."""

_WAIT: Final = 0.5
"""Seconds that an idle system waits for a record before it looks at everything again."""
_WAIT_WITH_PARKED: Final = 0.1
"""Seconds instead while messages wait for their next attempt: the most that one is late."""
_ANSWER_TIMEOUT = 10.0
"""Seconds to wait for one answer of the broker."""

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Gate:
    """When the messages of one partition are set free."""

    topic: str
    partition: int
    start: int
    """Where to read from: the committed offset."""
    release: int
    """Messages below this offset are free whatever their age."""
    interval: float | None
    """Seconds after its timestamp at which a message is due; None: never by age."""
    channel: tuple[str, str] | None = None
    """The queue manager and the channel that move its messages; None if no channel does."""
    is_running: bool = True
    """Whether the channel runs unless a person started or stopped it."""

    @property
    def lane(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic, self.partition)


class SteadyClock:
    """Wall-clock time that never jumps ahead while messages wait.

    A wall clock that is set forward would make parked messages due too early. The clock goes on at
    its own pace until everything parked before the jump is due by that pace, then takes the new
    time. A clock that is set back only makes messages late, which is allowed.
    """

    TOLERANCE = 1.0
    """Seconds of drift that count as no jump."""

    def __init__(self, interval: float) -> None:
        """Start the clock at the time of now.

        Args:
            interval: Seconds a message waits at most: how long a jump is held back.
        """
        self._interval = interval
        self._anchor = time.time(), time.monotonic()
        self._held_since: float | None = None

    def now(self) -> float:
        """Seconds since the epoch."""
        wall, monotonic = time.time(), time.monotonic()
        steady = self._anchor[0] + monotonic - self._anchor[1]
        if wall - steady <= self.TOLERANCE:
            self._anchor, self._held_since = (wall, monotonic), None
            return wall
        if self._held_since is None:
            self._held_since = monotonic
        if monotonic - self._held_since >= self._interval:
            self._anchor, self._held_since = (wall, monotonic), None
            return wall
        return steady


class HeldSource(DataSource):
    """Everything that is held, as one source: retries, what remains, transmission queues."""

    @classmethod
    def name(cls) -> str:
        """See ``NAME``."""
        return NAME

    def schema(self) -> str:
        """See ``SCHEMA``."""
        return SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """The reader; its options are ``gates``, ``client_secret`` (JSON) and ``max_rows``."""
        del schema
        return HeldReader(
            [_gate(gate) for gate in json.loads(self.options["gates"])],
            json.loads(self.options["client_secret"]),
            int(self.options["max_rows"]),
            control_topic=self.options["control_topic"],
            group=self.options["group"],
            watched=[
                TopicPartition(topic, number)
                for topic, number in json.loads(self.options["watched"])
            ],
        )


def _gate(values: dict[str, Any]) -> Gate:
    channel = values.pop("channel")
    return Gate(**values, channel=None if channel is None else (channel[0], channel[1]))


def options(
    gates: list[Gate],
    client: Mapping[str, Any],
    max_rows: int,
    *,
    control_topic: str,
    group: str,
    watched: Iterable[TopicPartition],
) -> dict[str, str]:
    """The source's options.

    Args:
        gates: One per partition to read.
        client: librdkafka settings of the cluster.
        max_rows: Rows one batch takes at most.
        control_topic: Where the states of channels are.
        group: The consumer group of the job.
        watched: Partitions of the query's other sources, which are asked after this one.
    """
    return {
        "gates": json.dumps([asdict(gate) for gate in gates]),
        "client_secret": json.dumps(dict(client)),
        "max_rows": str(max_rows),
        "control_topic": control_topic,
        "group": group,
        "watched": json.dumps(list(watched)),
    }


Offsets = dict[str, dict[str, int]]
"""Topic to partition (as text, which JSON wants) to offset."""


class HeldReader(DataSourceStreamReader):
    """Plans ranges of held partitions."""

    def __init__(
        self,
        gates: list[Gate],
        client: dict[str, Any],
        max_rows: int,
        *,
        control_topic: str,
        group: str,
        watched: Iterable[TopicPartition],
    ) -> None:
        """Take the gates; clients are opened when first needed.

        Args:
            gates: One per partition.
            client: librdkafka settings of the cluster.
            max_rows: Rows one batch takes at most.
            control_topic: Where the states of channels are.
            group: The consumer group of the job.
            watched: Partitions of the query's other sources: an idle system waits here for records
                of theirs.
        """
        self._gates = gates
        self._client = client
        self._max_rows = max_rows
        self._control_topic = control_topic
        self._clocks: dict[float, SteadyClock] = {}
        self._follower: StatesFollower | None = None
        self._group = group
        self._offsets: KafkaCommittedOffsets | None = None
        self._watched = tuple(watched)
        self._watch: Watch | None = None
        self._last_ends: Mapping[TopicPartition, int] = {}

    def initialOffset(self) -> Offsets:  # noqa: N802 - Spark's name
        """Where every partition starts."""
        return _offsets({gate.lane: gate.start for gate in self._gates})

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """The limit from the options."""
        return ReadMaxRows(self._max_rows)

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:  # noqa: N802 - Spark's name
        """The first offset of each partition that is not free yet, never below ``start``.

        A broker that does not answer holds everything where it is: an outage must not end the
        query, and a message may be late but never early.
        """
        begin = _flat(start)
        try:
            ends = self._ask(dict.fromkeys([*begin, *self._watched], LATEST))
            free = self._free(begin, ends)
            if free == begin and self._is_idle(ends):
                self._wait(begin, ends)
        except (KafkaException, TransientFault) as fault:
            _logger.warning("held messages stay held, the broker does not answer: %s", fault)
            return start
        most = None if isinstance(limit, ReadAllAvailable) else getattr(limit, "maxRows", None)
        return _offsets(_limited(begin, free, most))

    def partitions(self, start: Offsets, end: Offsets) -> list[InputPartition]:
        """None: whoever emits reads the ranges itself, as Spark wrote them down."""
        del start, end
        return []

    def read(self, partition: InputPartition) -> NoReturn:
        """Never called, because there are no partitions."""
        raise NotImplementedError(f"{NAME} plans batches, it does not read {partition}")

    def _is_idle(self, ends: Mapping[TopicPartition, int]) -> bool:
        """Whether no record arrived anywhere since the last look, and none is left to read."""
        has_news, self._last_ends = ends != self._last_ends, ends
        return not has_news and not self._has_backlog(ends)

    def _has_backlog(self, ends: Mapping[TopicPartition, int]) -> bool:
        """Whether a watched partition holds more than the last batch took."""
        if not self._watched:
            return False
        if self._offsets is None:
            self._offsets = KafkaCommittedOffsets(self._client, self._group)
        committed = self._offsets.committed(self._watched)
        return any((committed[lane] or 0) < ends[lane] for lane in self._watched)

    def _wait(
        self, begin: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
    ) -> None:
        """Waits for a record that is read as soon as it arrives, or for the next due time."""
        if self._watch is None:
            self._watch = Watch(self._client)
        moving = {gate.lane for gate in self._gates if gate.channel is not None}
        news = {lane: ends[lane] for lane in (*self._watched, *moving)}
        waits = any(
            gate.interval is not None and ends[gate.lane] > begin[gate.lane] for gate in self._gates
        )
        self._watch.wait(news, _WAIT_WITH_PARKED if waits else _WAIT)

    def _free(
        self, begin: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Up to where each partition is free.

        The ends were asked before: else a message that is parked meanwhile would be free at once.
        """
        asked = {
            gate.lane: at_time(self._due_before(gate.interval))
            for gate in self._gates
            if gate.interval is not None and ends[gate.lane] > begin[gate.lane]
        }
        due = self._ask(asked) if asked else {}
        states = self._states()
        free = {}
        for gate in self._gates:
            lane = gate.lane
            by_age = due.get(lane, begin[lane])
            aged = ends[lane] if by_age < 0 or _is_running(gate, states) else by_age
            release = max(gate.release, states.releases.get(lane, 0))
            free[lane] = max(begin[lane], min(ends[lane], max(aged, release)))
        return free

    def _states(self) -> States:
        if all(gate.channel is None for gate in self._gates):
            return NO_STATES
        if self._follower is None:
            self._follower = StatesFollower(self._client, self._control_topic)
        return self._follower.states()

    def _due_before(self, interval: float) -> int:
        clock = self._clocks.get(interval)
        if clock is None:
            clock = self._clocks[interval] = SteadyClock(interval)
        # A message is due once its timestamp + interval <= now: this is the first that is not.
        return int((clock.now() - interval) * 1000) + 1

    def _ask(self, asked: Mapping[TopicPartition, OffsetSpec]) -> dict[TopicPartition, int]:
        return list_offsets(kept_admin(self._client), asked, timeout=_ANSWER_TIMEOUT)


def _is_running(gate: Gate, states: States) -> bool:
    """Whether a channel moves the messages of this partition now."""
    return gate.channel is not None and states.running.get(gate.channel, gate.is_running)


def _limited(
    begin: Mapping[TopicPartition, int], free: Mapping[TopicPartition, int], most: int | None
) -> dict[TopicPartition, int]:
    if most is None:
        return dict(free)
    waiting = sum(1 for key in free if free[key] > begin[key])
    share = max(1, most // max(1, waiting))
    return {key: min(free[key], begin[key] + share) for key in free}


def _flat(offsets: Offsets) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in offsets.items()
        for partition, offset in partitions.items()
    }


def _offsets(flat: Mapping[TopicPartition, int]) -> Offsets:
    offsets: Offsets = {}
    for (topic, partition), offset in flat.items():
        offsets.setdefault(topic, {})[str(partition)] = offset
    return offsets
