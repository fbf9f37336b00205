"""From ranges of offsets to committed transactions, in whatever process emits.

The driver and the executor lanes run the same code: an ``Emission`` holds the handlers, the decoder
and one producer. What differs is how many lanes one transaction carries.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from redrive.checkpoints.protocol import Emitter
from redrive.checkpoints.states import StatesFollower
from redrive.decisions.attempts import Attempts
from redrive.decisions.processor import LaneRecords, Summary
from redrive.kafka.consumer import kept_consumer, read_ranges, records_of
from redrive.kafka.producer import (
    DEFAULT_BATCH_SIZE,
    KafkaCommittedOffsets,
    KafkaProducer,
    SystemClock,
)
from redrive.kafka.queues import ClusterQueues
from redrive.messages import OffsetRange, TopicPartition
from redrive.messages.dead_letters import DeadLetterDecoder
from redrive.streaming.factory import RoleMaker
from redrive.topology.states import NO_STATES

if TYPE_CHECKING:
    from confluent_kafka import Message

    from redrive.configuration import JobConfiguration

_COLLECT_EVERY = 200
"""Emissions between two runs of the cyclic garbage collector. It is off in between: walking the
many short-lived records of a batch costs a tenth of the throughput and finds nothing."""


class Emission:
    """Decides and emits the records of some lanes in one transaction.

    This class is responsible for:
        - the handlers of this process, made once from the configuration;
        - reading the records of lanes;
        - one emitter with one transactional id.
    """

    def __init__(
        self,
        configuration: JobConfiguration,
        transactional_id: str,
        check_run: Callable[[], None] = lambda: None,
    ) -> None:
        """Make the handlers and open the clients of one process.

        Args:
            configuration: The job.
            transactional_id: This process's own.
            check_run: Called once a producer is open; raises if the run it works for is over.

        Raises:
            TransientFault: The broker gave no answer in time.
        """
        self._configuration = configuration
        self.client = configuration.connection.librdkafka()
        self._transactional_id = transactional_id
        self._check_run = check_run
        self._queues = ClusterQueues(configuration.connection)
        self._role_maker = RoleMaker(configuration, self._queues)
        self._follower = _follower(configuration)
        self._states = NO_STATES
        self._roles = self._role_maker.roles()
        self._decoder = DeadLetterDecoder()
        self._offsets = KafkaCommittedOffsets(self.client, configuration.application)
        self._batch_size = DEFAULT_BATCH_SIZE
        self._producer: KafkaProducer | None = None
        self.emitter = Emitter(self._open_producer, self._offsets, SystemClock())
        self._emissions = 0
        gc.collect()
        gc.freeze()
        gc.disable()

    def emit(self, ranges: Sequence[OffsetRange], now: int) -> Summary:
        """Reads some ranges and emits their records in one transaction.

        The ranges are read here and not by Spark, which only plans them: the way through the Java
        reader and Arrow costs more than all the rest of the work on a record.

        Args:
            ranges: Of different lanes.
            now: Time of the attempts, in milliseconds.

        Returns:
            What was done.

        Raises:
            TransientFault: The broker did not answer for too long; nothing is half done.
            FatalFault: This process has to stop.
            KafkaException: A range can't be read.
            TimeoutError: The broker gave nothing for too long.
        """
        self._follow_states()
        with closing(read_ranges(kept_consumer(self.client), ranges)) as messages:
            attempts = Attempts(
                (self._part(asked, found) for asked, found in messages),
                {TopicPartition(asked.topic, asked.partition): asked.end for asked in ranges},
                self._decoder,
                self._queues,
                outcomes_topic=self._configuration.outcomes_topic,
                control_topic=self._configuration.control_topic,
                discovered=self._states.discovered,
                now=now,
            )
            self.emitter.emit(attempts)
        self._emissions += 1
        if self._emissions % _COLLECT_EVERY == 0:
            gc.collect()
        return attempts.summary()

    def _follow_states(self) -> None:
        """Decides from now on by the states that operators set (``redrive queue disable``)."""
        if self._follower is None:
            return
        states = self._follower.states()
        before = self._states.put_enabled, self._states.discovered
        if (states.put_enabled, states.discovered) != before:
            self._roles = self._role_maker.roles(states)
        self._states = states

    def close(self) -> None:
        """Closes the clients."""
        if self._follower is not None:
            self._follower.close()
        gc.unfreeze()
        gc.enable()
        self.emitter.drop_producer()
        self._offsets.close()

    def _part(self, asked: OffsetRange, messages: list[Message]) -> LaneRecords:
        handler, role = self._roles[asked.topic]
        lane = TopicPartition(asked.topic, asked.partition)
        return LaneRecords(lane, handler, role, records_of(messages))

    def _open_producer(self) -> KafkaProducer:
        if self._producer is not None and self._producer.oversized_batch:
            self._batch_size = max(4096, self._batch_size // 8)
        self._producer = KafkaProducer(
            self.client,
            self._transactional_id,
            self._offsets,
            limit_of=self._queues.max_message_bytes,
            batch_size=self._batch_size,
        )
        # In this order: a producer opened after a newer run fenced this id finds the newer run.
        self._check_run()
        return self._producer


def _follower(configuration: JobConfiguration) -> StatesFollower | None:
    if not configuration.topology:
        return None
    return StatesFollower(configuration.connection.librdkafka(), configuration.control_topic)
