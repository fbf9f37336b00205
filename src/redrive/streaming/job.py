"""The job: one Structured Streaming query from dead letters and due retries to transactions.

Every start takes its positions from Kafka (the committed offsets of the application's group), never
from an old checkpoint: so there is one way to start, after a stop, a crash or the loss of the
directory, and sources may come and go between two starts. The checkpoint directory of a run serves
Spark for that run only.
"""

from __future__ import annotations

import contextlib
import json
import pickle
import random
import shutil
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from redrive.checkpoints.control import ControlTopic
from redrive.checkpoints.positions import PositionsOnly, RecordProbe, extents, purge
from redrive.checkpoints.registry import Registration, fence
from redrive.configuration import (
    Conflict,
    EmitterChoice,
    JobConfiguration,
)
from redrive.errors import (
    EnvironmentFault,
    FatalFault,
    RedriveError,
    TransientFault,
)
from redrive.kafka.producer import KafkaCommittedOffsets
from redrive.messages import OffsetRange, TopicPartition
from redrive.streaming import held_source
from redrive.streaming.emission import Emission
from redrive.streaming.factory import counts_depths, sources_of
from redrive.streaming.lanes import (
    RESULT_SCHEMA,
    LanePayload,
    begin_run,
    driver_id,
    emit_lanes,
    hold_all_slots,
    slot_directory,
    transactional_ids,
    unpack,
    warm_up,
)
from redrive.streaming.lifecycle import BatchSummary, JobControl, Restart, Stop
from redrive.streaming.session import start_session
from redrive.streaming.start import Start, StartFinder, committed_offsets, read_topics, table_of
from redrive.streaming.topics import TopicAdministration, own_topics
from redrive.streaming.wait import WaitRule

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from redrive.decisions.processor import Summary

_LOOK: Final = 0.2
"""Seconds between two looks of the main thread at requests and at the query."""
_LAYOUT_AGE: Final = 10.0
"""Seconds between two looks for new topics and partitions."""
_IDLE_AGE: Final = 0.5
"""Seconds between two looks whether anything is left to do, when WAIT can end the job."""
_RECOMMIT_AGE: Final = 6 * 3600.0
"""Seconds after which offsets are committed again: far below the broker's week (KIP-211)."""
_PROJECTION_DELAY: Final = 10.0
"""Seconds from the start to the projection's: its first append is slow, the job's is not to be."""
_PROJECTION_AGE: Final = 30.0
"""Seconds between two looks whether the ledger's projection still runs."""
_APPEND_PATIENCE: Final = 10.0
"""Seconds that an orderly stop waits for the ledger's running append."""
_START_PATIENCE: Final = 30.0
"""Seconds that a start waits for a broker that is there but not ready: topics that were created
this moment have no leader yet, coordinators may be moving."""
_MISSING_AGE: Final = 1.0
"""Seconds between two looks for dead-letter topics while there is none."""
_NOTHING_LEFT: Final = "nothing left that can be processed (WAIT)"
_PURGE_AGE: Final = 300.0
"""Seconds between two deletions of parked copies that are done with."""
_REPORT_AGE: Final = 600.0
"""Seconds between two reports of dead letters without a valid header: ten default intervals."""
_ANSWER_TIMEOUT: Final = 10.0
"""Seconds to wait for one answer of the broker while the query runs."""
_BACKOFF: Final = (1.0, 2.0, 5.0, 10.0)
"""Seconds before the query is started again after a failure, the last value for ever."""


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """What one micro-batch covers."""

    ranges: tuple[OffsetRange, ...]
    """The lanes with something to read."""
    now: int
    """The clock of the batch, in milliseconds: what ``current_timestamp()`` gives in it."""

    @property
    def rows(self) -> int:
        """Offsets in all ranges: at least as many as records."""
        return sum(asked.end - asked.start for asked in self.ranges)


def run(
    configuration: JobConfiguration, control: JobControl, session: SparkSession | None = None
) -> int:
    """Runs the job until it is stopped or its tables' WAIT ends it.

    Args:
        configuration: The job.
        control: Requests to the job, and who is told what it does.
        session: A Spark session to use; None to start one, and stop it in the end.

    Returns:
        0, after an orderly end.

    Raises:
        EnvironmentFault: No Java, no jars, or no broker.
        AlreadyRunningError: Another instance works on the same share.
        ConfigurationError: What Kafka holds contradicts the settings.
        FatalFault: Another instance took over.
    """
    configuration.directory.mkdir(parents=True, exist_ok=True)
    job = Job(configuration, control, session)
    try:
        reason = job.run()
    finally:
        job.close()
    control.stopped(reason)
    return 0


class Job:
    """One process of the job, over restarts of its query.

    This class is responsible for:
        - claiming the share and finding the positions before the query starts;
        - starting the query, watching it, and starting it again when it had to end;
        - choosing the emitter of each batch.
    """

    def __init__(
        self, configuration: JobConfiguration, control: JobControl, session: SparkSession | None
    ) -> None:
        """Prepare a job; nothing is started yet.

        Args:
            configuration: The job.
            control: Requests to the job, and who is told what it does.
            session: A Spark session to use, or None to start one.
        """
        self._configuration = configuration
        self._is_session_own = session is None
        self._control = control
        self._emitting = threading.Lock()
        self._ending = threading.Event()
        self._fatal: FatalFault | None = None
        self._driver: Emission | None = None
        self._registration: Registration | None = None
        self._session = session
        self._projection: StreamingQuery | None = None
        self._previous: dict[TopicPartition, int] = {}
        self._wait = WaitRule({}, 0)
        self._recommitted = time.monotonic()
        self._projected = time.monotonic()
        self._payload = b""
        self._checkpoint = Path()
        self._run = ""
        self._run_number = 0
        self._started = False
        self._is_unclean = False
        self._invalid = 0
        self._reported = self._purged = time.monotonic()
        self._admin = AdminClient({**configuration.connection.librdkafka(), "log_level": 2})
        self._failures = 0

    # -- from start to end ---------------------------------------------------------------------

    def run(self) -> str:
        """Runs until something ends the job, and returns what."""
        self._load_tables()
        with ThreadPoolExecutor(max_workers=1) as pool:
            # Spark takes longest to start, so it starts beside everything else.
            session = pool.submit(self._start_session)
            try:
                start = self._prepare()
            finally:
                self._session = session.result()
        if start is None:
            return self._control.stop_reason or _NOTHING_LEFT
        while True:
            query = self._query_of(start)
            if query is not None and not self._started:
                self._started = True
                self._control.started(self._configuration)
                self._projected = time.monotonic() - _PROJECTION_AGE + _PROJECTION_DELAY
                Thread(target=self._warm_up, name="redrive-warm-up", daemon=True).start()
            reason = None if query is None else self._watch(query, start)
            if reason is not None:
                return reason
            again = self._prepare()
            if again is None:
                return self._control.stop_reason
            start = again

    def close(self) -> None:
        """Lets go of everything; the share is free for the next instance."""
        if self._registration is not None:
            self._release(self._registration)
        if self._driver is not None:
            self._driver.close()
        with _java_may_be_gone():
            if self._projection is not None:
                self._stop_projection(self._projection)
        with _java_may_be_gone():
            if self._session is not None and self._is_session_own:
                self._session.stop()
        shutil.rmtree(self._checkpoints, ignore_errors=True)

    def _emission(self) -> Emission:
        """The driver emitter, opened when first needed."""
        if self._driver is None:
            self._driver = Emission(self._configuration, driver_id(self._configuration))
        return self._driver

    def _spark(self) -> SparkSession:
        if self._session is None:
            raise RuntimeError("Spark is asked for before it was started")
        return self._session

    @property
    def _checkpoints(self) -> Path:
        return self._configuration.own_directory / "checkpoints"

    def _start_session(self) -> SparkSession:

        from redrive.streaming.projection import spark_settings  # noqa: PLC0415 - slow to import

        session = self._session
        if session is None:
            session = start_session(self._configuration, spark_settings(self._configuration))
        session.dataSource.register(held_source.HeldSource)
        return session

    def _release(self, registration: Registration) -> None:
        registration.stop_heart()
        if self._fatal is not None:
            return
        try:
            topic = self._configuration.control_topic
            registration.release(ControlTopic(self._configuration.connection, topic))
        except RedriveError as error:
            self._control.notice("the share could not be released", error=error.message)

    # -- before the query starts ---------------------------------------------------------------

    def _prepare(self) -> Start | None:
        """Everything that must hold before the query starts; None if a stop came first."""
        patience = time.monotonic() + _START_PATIENCE
        while True:
            try:
                return self._prepare_once()
            except TransientFault as fault:
                if not self._started and time.monotonic() > patience:
                    raise EnvironmentFault(fault.message, hint=fault.hint) from fault
                self._control.notice("the start has to wait", error=fault.message)
            except EnvironmentFault as fault:
                if not self._started:
                    raise
                self._control.notice("the start has to wait", error=fault.message)
            # Instances that start together must not go on fencing each other in step.
            if not self._pause(self._backoff() * random.uniform(0.5, 1.5)):  # noqa: S311 - no secret
                return None

    def _prepare_once(self) -> Start | None:
        layout = self._await_sources()
        if layout is None:
            return None
        self._begin_run()
        start = StartFinder(self._configuration, self._control).find(layout)
        self._commit_positions(start, start.moved)
        if start.identities:
            topic = self._configuration.control_topic
            ControlTopic(self._configuration.connection, topic).set_topics(start.identities)
        return start

    def _await_sources(self) -> dict[str, int] | None:
        """Partitions of the dead-letter topics, once at least one exists."""
        told = False
        while True:
            administration = TopicAdministration(self._configuration.connection)
            try:
                layout = self._layout(administration)
                administration.ensure(own_topics(self._configuration, layout))
            finally:
                administration.close()
            if layout:
                return layout
            if not told:
                told = True
                self._tell_missing(frozenset(read_topics(self._configuration)))
            if not self._pause(_MISSING_AGE) or self._wait.is_over(time.time()):
                return None

    def _layout(self, administration: TopicAdministration) -> dict[str, int]:
        existing = administration.partitions()
        names = read_topics(self._configuration)
        return {name: existing[name] for name in names if existing.get(name)}

    def _tell_missing(self, missing: frozenset[str]) -> None:
        handled = {handler.identity.topic for handler in self._configuration.handlers}
        for topic in sorted(missing & handled):
            self._control.notice(
                "waiting for a dead-letter topic that does not exist yet", topic=topic
            )
        if defined := sorted(missing - handled):
            self._control.notice(
                "topics of the topology do not exist yet: redrive topology apply creates them",
                count=len(defined),
                first=defined[0],
            )

    def _begin_run(self) -> None:
        """Makes sure that nothing of an earlier run can emit any more."""
        configuration = self._configuration
        self._run_number += 1
        self._run = f"{time.time_ns()}-{self._run_number}"
        try:
            slot_directory(configuration).mkdir(parents=True, exist_ok=True)
            begin_run(configuration, self._run)
        except OSError as error:
            raise EnvironmentFault(
                f"the job's folder {configuration.directory} can't be written: {error.strerror}",
                hint="make room there, or give the job another folder; nothing is lost meanwhile",
            ) from error
        if self._registration is None:
            self._claim()
        elif self._is_unclean:
            if self._driver is not None:
                self._driver.close()
                self._driver = None
            fence(configuration.connection.librdkafka(), transactional_ids(configuration))
        self._is_unclean = False

    def _claim(self) -> None:
        configuration = self._configuration
        registration = Registration(
            configuration.connection,
            configuration.application,
            configuration.share,
            transactional_ids(configuration),
        )
        with hold_all_slots(configuration):
            registration.claim(
                ControlTopic(configuration.connection, configuration.control_topic),
                topic=configuration.control_topic,
                take_over=configuration.conflict is Conflict.TAKE_OVER,
                waiting=lambda name: self._control.notice(
                    "another instance holds this share and may be ending", instance=name
                ),
            )
        self._registration = registration

    def _commit_positions(
        self, start: Start, moved: Collection[TopicPartition] = frozenset()
    ) -> None:
        """Commits where every lane stands: a crash before the first batch changes nothing."""
        held = {lane: gate.start for lane, gate in start.held.items()}
        positions = {**start.positions, **held}
        with self._emitting:
            self._emission().emitter.emit(PositionsOnly(positions, moved))
        self._recommitted = time.monotonic()

    # -- the query -----------------------------------------------------------------------------

    def _load_tables(self) -> None:
        tables = {
            handler.identity.name: table_of(handler) for handler in self._configuration.handlers
        }
        waits: dict[str, float | None] = {
            name: None if (seconds := table.control.wait.seconds) is None else float(seconds)
            for name, table in tables.items()
        }
        if sources_of(self._configuration):
            waits["puts"] = None  # applications may always put
        self._wait = WaitRule(waits, time.time())

    def _query_of(self, start: Start) -> StreamingQuery | None:
        """The running query; None if a later one could not be started either, after a pause."""
        from py4j.protocol import Py4JError  # noqa: PLC0415 - comes with pyspark, slow to import
        from pyspark.errors import PySparkException  # noqa: PLC0415 - as above

        try:
            return self._start_query(start)
        except (OSError, Py4JError, PySparkException) as error:
            if not self._started:
                raise EnvironmentFault(
                    f"Spark cannot start the query: {_first_lines(str(error))}",
                    hint=f"is there room in {self._configuration.directory}?",
                ) from error
            self._ended_by_itself(str(error))
            return None

    def _start_query(self, start: Start) -> StreamingQuery:
        self._tell_missing(start.missing)
        self._ending.clear()
        payload = LanePayload(self._configuration, self._run)
        self._payload = pickle.dumps(payload)
        self._checkpoint = self._checkpoints / self._run
        held = {lane: gate.start for lane, gate in start.held.items()}
        self._previous = {**start.positions, **held}
        writer = (
            self._frame(start)
            .writeStream.foreachBatch(self._batch)
            .option("checkpointLocation", self._checkpoint.as_uri())
            .queryName(f"redrive {self._configuration.application} {self._configuration.share}")
            .trigger(processingTime="0 seconds")
        )
        return writer.start()

    def _frame(self, start: Start) -> DataFrame:
        held = (
            self._spark()
            .readStream.format(held_source.NAME)
            .options(
                **held_source.options(
                    list(start.gates),
                    self._configuration.connection.librdkafka(),
                    self._configuration.max_records_per_batch,
                    control_topic=self._configuration.control_topic,
                    group=self._configuration.application,
                    watched=start.positions,
                )
            )
            .load()
        )
        if not start.positions:
            return held
        # In this order: the held source waits for a record that the other then finds.
        return held.unionByName(self._kafka_frame(start.positions))

    def _kafka_frame(self, positions: Mapping[TopicPartition, int]) -> DataFrame:
        configuration = self._configuration
        assignment: dict[str, list[int]] = {}
        starting: dict[str, dict[str, int]] = {}
        for lane, position in positions.items():
            assignment.setdefault(lane.topic, []).append(lane.partition)
            starting.setdefault(lane.topic, {})[str(lane.partition)] = position
        options = {
            **{f"kafka.{name}": value for name, value in configuration.connection.java().items()},
            "assign": json.dumps(assignment),
            "startingOffsets": json.dumps(starting),
            "failOnDataLoss": "true",
            "maxOffsetsPerTrigger": str(configuration.max_records_per_batch),
            "kafka.isolation.level": "read_committed",
        }
        return self._spark().readStream.format("kafka").options(**options).load().select("offset")

    def _batch(self, _: DataFrame, batch: int) -> None:
        # The frame is a plan that is never carried out: whoever emits reads the ranges itself.
        started = time.monotonic()
        plan = self._plan_of(batch)
        with self._emitting, self._fatal_kept():
            if self._ending.is_set():
                return  # nothing is emitted, so nothing is committed: the next run reads it again
            driver = self._uses_driver(plan.rows)
            summaries = (
                [self._emission().emit(plan.ranges, plan.now)]
                if driver
                else self._emit_in_lanes(plan)
            )
        total: dict[tuple[str, int, str], int] = {}
        failures: dict[Any, int] = {}
        for summary in summaries:
            for key, count in summary.results.items():
                total[key] = total.get(key, 0) + count
            for failure, count in summary.failures.items():
                failures[failure] = failures.get(failure, 0) + count
        self._failures = 0
        if not total:
            return
        self._wait.useful({key[0] for key in total}, time.time())
        self._invalid += sum(summary.invalid for summary in summaries)
        self._control.batch(
            BatchSummary(
                batch=batch,
                time=max(summary.time for summary in summaries),
                records=sum(total.values()),
                results=total,
                failures=failures,
                invalid=sum(summary.invalid for summary in summaries),
                seconds=time.monotonic() - started,
                emitter=EmitterChoice.DRIVER if driver else EmitterChoice.LANES,
            )
        )

    def _emit_in_lanes(self, plan: BatchPlan) -> list[Summary]:
        ranges, now = plan.ranges, plan.now
        numbers = self._spark().range(0, len(ranges), 1, len(ranges))
        emit = partial(emit_lanes, self._payload, ranges, now)
        return [unpack(row.summary) for row in numbers.mapInArrow(emit, RESULT_SCHEMA).collect()]

    def _uses_driver(self, rows: int) -> bool:
        configuration = self._configuration
        if counts_depths(configuration):
            return True  # one process counts, so a queue is never filled beyond its depth
        if configuration.emitter is EmitterChoice.AUTO:
            return rows <= configuration.driver_batch_limit
        return configuration.emitter is EmitterChoice.DRIVER

    def _plan_of(self, batch: int) -> BatchPlan:
        """What a batch covers: Spark wrote it down before it started the batch."""
        _, metadata, *sources = (self._checkpoint / "offsets" / str(batch)).read_text().splitlines()
        ends = dict(self._previous)
        for source in sources:
            if source.startswith("{"):
                for topic, partitions in json.loads(source).items():
                    for number, end in partitions.items():
                        ends[TopicPartition(topic, int(number))] = end
        ranges = [
            OffsetRange(lane.topic, lane.partition, start, ends[lane])
            for lane, start in self._previous.items()
            if ends[lane] > start
        ]
        self._previous = ends
        return BatchPlan(tuple(ranges), json.loads(metadata)["batchTimestampMs"])

    @contextmanager
    def _fatal_kept(self) -> Iterator[None]:
        try:
            yield
        except FatalFault as fault:
            self._fatal = fault
            raise

    # -- while the query runs ------------------------------------------------------------------

    def _watch(self, query: StreamingQuery, start: Start) -> str | None:
        """Waits until the query has to end; returns why the job ends, or None to start again."""
        looked_at_layout = looked_at_work = time.monotonic()
        while True:
            request = self._control.next_request(timeout=_LOOK)
            if isinstance(request, Stop):
                self._stop_query(query)
                return request.reason
            if isinstance(request, Restart) and self._accept(request, query):
                return None
            if not query.isActive:
                self._failed(query)
                return None
            now = time.monotonic()
            if now - looked_at_layout > _LAYOUT_AGE:
                looked_at_layout = now
                if self._layout_changed(start):
                    self._stop_query(query)
                    return None
            if self._wait.ends and now - looked_at_work > _IDLE_AGE:
                looked_at_work = now
                if self._is_done(start, query):
                    self._stop_query(query)
                    return _NOTHING_LEFT
            self._keep(start)

    def _stop_query(self, query: StreamingQuery) -> None:
        # stop() would interrupt a batch: the running one ends first, a later one does nothing.
        self._ending.set()
        with self._emitting:
            pass
        with _java_may_be_gone():
            query.stop()

    def _accept(self, request: Restart, query: StreamingQuery) -> bool:
        fresh = self._control.load(request)
        if fresh is None:
            return False
        self._stop_query(query)
        if self._driver is not None:
            self._driver.close()
            self._driver = None
        self._configuration = replace(
            fresh, application=self._configuration.application, share=self._configuration.share
        )
        self._load_tables()
        self._control.restarted(self._configuration)
        return True

    def _failed(self, query: StreamingQuery) -> None:
        problem = query.exception()
        text = str(problem) if problem is not None else "the query ended by itself"
        if self._fatal is None and "FatalFault" in text:
            self._fatal = FatalFault(
                "an emitter was fenced or refused for good",
                hint="another instance with the same application name may have taken over",
            )
        if self._fatal is not None:
            raise self._fatal
        self._ended_by_itself(text)

    def _ended_by_itself(self, text: str) -> None:
        self._failures += 1
        self._is_unclean = True
        self._control.notice("the query ended and is started again", error=_first_lines(text))
        self._pause(self._backoff())

    def _backoff(self) -> float:
        return _BACKOFF[min(self._failures, len(_BACKOFF) - 1)]

    def _pause(self, seconds: float) -> bool:
        """Waits; False if a stop came."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self._control.is_stopping:
                return False
            time.sleep(0.05)
        return not self._control.is_stopping

    def _layout_changed(self, start: Start) -> bool:
        try:
            topics = self._admin.list_topics(timeout=_ANSWER_TIMEOUT).topics
        except KafkaException:
            return False  # an outage changes no layout
        names = read_topics(self._configuration)
        found = {name: len(topics[name].partitions) for name in names if name in topics}
        return found != start.layout

    def _is_done(self, start: Start, query: StreamingQuery) -> bool:
        if not self._wait.is_over(time.time()) or query.status["isDataAvailable"]:
            return False
        try:
            with self._emitting:
                return not self._has_work(start) and self._wait.is_over(time.time())
        except RedriveError:
            return False

    def _has_work(self, start: Start) -> bool:
        connection = self._configuration.connection
        lanes = list(start.positions)
        limits = {
            lane: None if gate.interval is not None else gate.release
            for lane, gate in start.held.items()
        }
        every = [*lanes, *limits]
        offsets = KafkaCommittedOffsets(connection.librdkafka(), self._configuration.application)
        probe = RecordProbe(connection)
        try:
            committed = offsets.committed(every)
            extent = extents(connection, every)
            for lane in every:
                limit = limits.get(lane)
                end = extent[lane].end if limit is None else min(limit, extent[lane].end)
                if probe.has_records(lane, committed[lane] or 0, end):
                    return True
        finally:
            offsets.close()
            probe.close()
        return False

    def _warm_up(self) -> None:
        # Beside the first batches: retries and lanes find Spark's Python workers running.
        with contextlib.suppress(Exception):  # a session that is stopping; nothing depends on it
            warm_up(self._spark(), self._configuration.cores)

    def _project(self) -> None:
        """Starts the ledger's projection, unless it runs; the job never waits for it."""
        from redrive.streaming.projection import start_projection  # noqa: PLC0415 - slow to import

        self._projected = time.monotonic()
        if self._projection is not None and self._projection.isActive:
            return
        problem = None if self._projection is None else self._projection.exception()
        if problem is not None:
            self._control.notice(
                "the ledger's projection ended and is started again",
                error=_first_lines(str(problem)),
            )
        try:
            self._projection = start_projection(self._spark(), self._configuration)
        except RedriveError as error:
            self._projection = None
            self._control.notice("the ledger is not written", error=error.message)

    @staticmethod
    def _stop_projection(projection: StreamingQuery) -> None:
        """Stops between two appends: an interrupted one does no harm, but Spark complains of it."""
        deadline = time.monotonic() + _APPEND_PATIENCE
        while projection.isActive and time.monotonic() < deadline:
            if not projection.status["isTriggerActive"]:
                break
            time.sleep(0.05)
        projection.stop()

    def _report_invalid(self) -> None:
        """Says from time to time how many dead letters have no valid header (specification 6.5)."""
        if self._invalid and time.monotonic() - self._reported > _REPORT_AGE:
            self._reported = time.monotonic()
            self._control.notice(
                "dead letters without a valid dead-letter header remain", count=self._invalid
            )

    def _purge(self, start: Start) -> None:
        """Lets the broker delete parked copies that are done with, so that topics don't grow."""
        if time.monotonic() - self._purged < _PURGE_AGE:
            return
        self._purged = time.monotonic()
        retries = [
            TopicPartition(g.topic, g.partition) for g in start.gates if g.interval is not None
        ]
        try:
            purge(self._admin, committed_offsets(self._configuration, retries))
        except (KafkaException, TransientFault) as error:
            self._control.notice("old parked copies could not be deleted", error=str(error))

    def _keep(self, start: Start) -> None:
        self._report_invalid()
        self._purge(start)
        if time.monotonic() - self._projected > _PROJECTION_AGE:
            self._project()
        if time.monotonic() - self._recommitted > _RECOMMIT_AGE:
            try:
                self._commit_positions(start)
            except TransientFault as fault:
                self._recommitted = time.monotonic()
                self._control.notice("offsets could not be committed again", error=fault.message)


@contextmanager
def _java_may_be_gone() -> Iterator[None]:
    """Stops what may have stopped already: a signal to all processes of a group ends Java too."""
    from py4j.protocol import Py4JError  # noqa: PLC0415 - comes with pyspark, slow to import

    with contextlib.suppress(Py4JError, ConnectionError):
        yield


def _first_lines(text: str) -> str:
    return " ".join(text.split())[:500]


__all__ = ["Job", "run"]
