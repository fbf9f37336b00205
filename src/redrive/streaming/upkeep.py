"""Periodic tasks between batches while the query runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import Thread
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from redrive.checkpoints.clock import SteadyClock
from redrive.checkpoints.held import HeldInstructions, HeldPartitions, Kept, Parked
from redrive.checkpoints.states import StatesFollower
from redrive.configuration.deciders import read_topics
from redrive.engine.commands import NO_STATES
from redrive.errors import FatalFault, ProtocolError, RedriveError
from redrive.kafka.cluster import Cluster, next_offsets
from redrive.kafka.deadline import CLOSE, pause_after
from redrive.messages import TopicPartition
from redrive.operations.dynamic_queues import delete_overdue, is_overdue
from redrive.outcomes.status import invalid_remaining
from redrive.streaming.start import Start
from redrive.streaming.workers import keep_warm

if TYPE_CHECKING:
    from redrive.checkpoints.instances import Share
    from redrive.configuration import JobConfiguration
    from redrive.streaming.batch import BatchProcessor
    from redrive.streaming.lifecycle import JobControl
    from redrive.streaming.query import RunningQuery
    from redrive.streaming.session import Spark

_LAYOUT_AGE: Final = 10.0
"""Seconds between two checks for new topics and partitions."""
_SHARE_AGE: Final = 1.0
"""Seconds between two checks for instances that started or ended."""
_CLOCK_AGE: Final = 10.0
"""Seconds between two checks whether the machine's clock was set."""
_LEADERLESS_AGE: Final = 60.0
"""Seconds between the first two warnings of partitions without a leader; doubles each time."""
_LEADERLESS_MOST: Final = 3600.0
"""The maximum of this interval."""
_SHOWN: Final = 10
"""Maximum partitions named in one warning."""
_RECOMMIT_AGE: Final = 6 * 3600.0
"""Seconds after which offsets are committed again: far below the broker's week (KIP-211)."""
_PURGE_AGE: Final = 300.0
"""Seconds between two deletions of finished parked copies."""
_RESUME_AGE: Final = 2.0
"""Seconds between two checks for an operator's command to resume a stopped handler."""
_DYNAMIC_AGE: Final = 20.0
"""Seconds between two checks for dynamic queues with an ended lease."""
_REPORT_AGE: Final = 600.0
"""Seconds between two reports of dead letters without a valid header: ten default intervals."""
_FIRST_REPORT: Final = 20.0
"""Seconds until the first such report, which must not delay the start of the job."""
_MARKERS_AGE: Final = 2.0
"""Seconds between two checks for transaction markers after the last records."""
_RATES_AGE: Final = 10.0
"""Seconds between two reads of Spark's rates: its interval for an idle query."""
_WARM_AGE: Final = 40.0
"""Seconds between two tasks that keep Spark's Python workers, which end after an idle minute."""
_FIRST_WARM: Final = 3.0
"""Seconds until the first such task: until then the first batch needs the processors."""


@dataclass(slots=True)
class _Chore:
    """A periodic task."""

    age: float
    do: Callable[[], object]
    due: float


@dataclass(eq=False)
class Upkeep:
    """The chores of one run.

    This class runs each when it is due. A chore that fails temporarily is retried the next time;
    ``FatalFault`` is raised if another run took over, or the broker refuses permanently.
    """

    configuration: JobConfiguration
    control: JobControl
    cluster: Cluster
    """Only the thread that supervises the run uses it."""
    spark: Spark
    start: Start
    """Its lanes, with messages released by changed tables."""
    query: RunningQuery
    processor: BatchProcessor
    assigned_share: Callable[[Start], Share | None]
    """Returns the share assigned to this instance; None to stand by."""
    invalid: InvalidReport
    ends_run: bool = False
    """Whether another run must begin: topics, leaders, the clock or the share changed."""

    def __post_init__(self) -> None:
        self._share: Share | None = self.configuration.share
        """The one assigned at the last check."""
        self.backlog = Backlog(self.cluster, self.start, self.processor)
        """The unread records."""
        application = self.configuration.application
        follows = self.configuration.topology or self.start.lost
        self._follower = StatesFollower(self.cluster, application) if follows else None
        self._deletion: Thread | None = None
        self._warm_up: Thread | None = None
        self._warm_tag = f"redrive warm-up {uuid4().hex}"
        self._warn_at = 0.0
        self._silence = _LEADERLESS_AGE
        now = time.monotonic()
        self._chores = [
            _Chore(_LAYOUT_AGE, self._check_layout, now + _LAYOUT_AGE),
            _Chore(_SHARE_AGE, self._check_share, now + _SHARE_AGE),
            _Chore(_CLOCK_AGE, self._check_clock, now + _CLOCK_AGE),
            _Chore(_MARKERS_AGE, self.backlog.pass_markers, now + _LAYOUT_AGE),
            _Chore(_MARKERS_AGE, self._warn_of_leaderless, now),
            _Chore(_RECOMMIT_AGE, self.processor.commit_again, now + _RECOMMIT_AGE),
            _Chore(_PURGE_AGE, self._purge, now + _PURGE_AGE),
            _Chore(_RESUME_AGE, self._check_resumes, now + _RESUME_AGE),
            _Chore(_DYNAMIC_AGE, self._check_dynamic_queues, now + _DYNAMIC_AGE),
            _Chore(_RESUME_AGE, self._report_invalid, now + _FIRST_REPORT),
            _Chore(_RATES_AGE, self._report_rates, now + _RATES_AGE),
            _Chore(_WARM_AGE, self._keep_warm, now + _FIRST_WARM),
        ]

    def look(self) -> None:
        """Runs the chores that are due."""
        for chore in self._chores:
            if time.monotonic() >= chore.due:
                before = time.thread_time()
                self._attempt(chore.do)
                spent = time.thread_time() - before
                chore.due = time.monotonic() + pause_after(spent, chore.age)

    def change(self, configuration: JobConfiguration, start: Start) -> None:
        """Uses changed tables, with the messages they released."""
        self.configuration, self.start = configuration, start
        self.backlog.change(start)

    def is_last_run(self) -> bool:
        """Whether the topics certainly are those of this run, now that nothing is left on them.

        A partition that got its leader back has messages that no run has read yet.
        """
        is_known = self._attempt(self._check_layout)
        return is_known and not self.ends_run and self.backlog.leaderless == self.start.leaderless

    def end(self) -> None:
        """Commits past markers a last time, after the last batch."""
        self._attempt(self.backlog.pass_markers)

    def close(self) -> None:
        """Closes the follower of the control topic, and ends the start of workers.

        The session may end right after: Java would answer that thread with a stack trace.
        """
        if self._follower is not None:
            self._follower.close()
        if self._warm_up is not None and self._warm_up.is_alive():
            self.spark.cancel(self._warm_tag)
            self._warm_up.join(CLOSE)

    def _attempt(self, chore: Callable[[], object]) -> bool:
        """Do a chore; False if a broker does not answer."""
        try:
            chore()
        except FatalFault:
            raise
        except ProtocolError as fault:
            servers = self.configuration.connection.bootstrap_servers
            self.control.notice("upkeep waits for a broker", at=servers, because=fault.message)
            return False
        return True

    def _check_layout(self) -> None:
        """Ends a run whose topics changed, by partitions, leaders, rights or Kafka's ids."""
        topics = self.cluster.topics()
        self.ends_run |= self.configuration.with_topics(topics) is not self.configuration
        names = read_topics(self.configuration)
        denied = self.cluster.unreadable(names)
        layout = {name: topics[name] for name in names if name in topics and name not in denied}
        is_other = (layout, denied) != (self.start.layout, self.start.denied)
        # Of the same topics as at the start, which has the lanes of no other.
        identities, leaderless = self.cluster.identified(self.start.identities, self.start.lanes)
        before, self.backlog.leaderless = self.backlog.leaderless, leaderless
        leaders_changed = before == leaderless != self.start.leaderless  # at two checks in a row
        self.ends_run |= is_other or leaders_changed or identities != self.start.identities

    def _check_share(self) -> None:
        """Ends a run once another share is assigned, at two checks in a row."""
        before, self._share = self._share, self.assigned_share(self.start)
        self.ends_run |= self._share == before != self.configuration.share

    def _check_clock(self) -> None:
        """Ends a run whose clock differs from the wall clock: only the next run may change it."""
        by = self.start.clock.behind_wall()
        if abs(by) > SteadyClock.TOLERANCE:
            self.control.notice(
                "the clock of this machine was set; a new run uses the new time",
                seconds=round(by, 1),
            )
            self.ends_run = True

    def _warn_of_leaderless(self) -> None:
        now = time.monotonic()
        if not self.start.leaderless or now < self._warn_at:
            return
        self._warn_at, self._silence = now + self._silence, 2 * self._silence
        self._silence = min(self._silence, _LEADERLESS_MOST)
        self.control.warning(
            "partitions have no leader: their messages wait for one, all others continue",
            partitions=", ".join(sorted(map(str, self.start.leaderless))[:_SHOWN]),
            count=len(self.start.leaderless),
        )

    def _purge(self) -> None:
        """Lets the broker delete finished parked copies and instructions.

        Otherwise their topics would grow forever. Nothing that Spark's next batch may begin with is
        deleted, even if committed: a batch that begins before the first offset ends its run.
        """
        retries = [
            held.lane for held in self.start.held if isinstance(held, Parked | HeldInstructions)
        ]
        read = self.processor.read_up_to
        self.cluster.delete_records({lane: read[lane] for lane in retries if read.get(lane)})

    def _check_resumes(self) -> None:
        if self._follower is None or not self.start.lost:
            return
        resumes = self._follower.states().resumes
        self.ends_run |= any(
            lost.source in resumes and resumes[lost.source].answers(lane, lost.found)
            for lane, lost in self.start.lost.items()
        )

    def _check_dynamic_queues(self) -> None:
        is_busy = self._deletion is not None and self._deletion.is_alive()
        if self._follower is None or is_busy:
            return
        if is_overdue(self._follower.states(), int(time.time() * 1000)):
            # In another thread: the broker may be slow, and nothing waits for it.
            self._deletion = Thread(target=self._delete_dynamic_queues, daemon=True)
            self._deletion.start()

    def _delete_dynamic_queues(self) -> None:
        try:
            for queue in delete_overdue(self.configuration):
                self.control.notice(
                    "a dynamic queue was deleted: its lease ended",
                    queue=f"{queue.queue}@{queue.queue_manager}",
                )
        except RedriveError as fault:
            self.control.warning("dynamic queues cannot be deleted", error=fault.message)

    def _report_invalid(self) -> None:
        if self.configuration.share.is_first:
            self.invalid.look(self.configuration)

    def _report_rates(self) -> None:
        progress = self.query.last_progress
        if progress is not None:
            self.control.rates(
                progress["inputRowsPerSecond"] or 0.0, progress["processedRowsPerSecond"] or 0.0
            )

    def _keep_warm(self) -> None:
        if self._warm_up is not None and self._warm_up.is_alive():
            return
        # In parallel with batches; nothing depends on it.
        self._warm_up = Thread(target=self._start_workers, name="redrive-warm-up", daemon=True)
        self._warm_up.start()

    def _start_workers(self) -> None:
        from py4j.protocol import Py4JError  # noqa: PLC0415 - comes with pyspark, slow to import
        from pyspark.errors import PySparkException  # noqa: PLC0415 - as above

        session = self.spark.session
        try:
            session.sparkContext.addJobTag(self._warm_tag)
            keep_warm(session, self.configuration.cores)
        except (Py4JError, PySparkException, ConnectionError):
            return  # the run ends, or Java has ended


class InvalidReport:
    """Warns periodically of remaining messages without a valid dead-letter header.

    It outlives runs. It counts in another thread, since much may remain.
    """

    def __init__(self, control: JobControl) -> None:
        """Count nothing yet."""
        self._control = control
        self._due = 0.0
        self._thread: Thread | None = None

    def look(self, configuration: JobConfiguration) -> None:
        """Counts them if it is time."""
        is_busy = self._thread is not None and self._thread.is_alive()
        if is_busy or time.monotonic() < self._due:
            return
        self._thread = Thread(
            target=self._report, args=(configuration,), name="redrive-invalid", daemon=True
        )
        self._thread.start()

    def _report(self, configuration: JobConfiguration) -> None:
        began = time.thread_time()
        try:
            with Cluster(configuration.connection) as cluster:
                counts = invalid_remaining(configuration, cluster)
        except ProtocolError as fault:
            servers = configuration.connection.bootstrap_servers
            self._control.notice("upkeep waits for a broker", at=servers, because=fault.message)
            counts = {}
        for queue, count in sorted(counts.items()):
            self._control.warning(
                "messages without a valid dead-letter header remain, as no rule can match",
                queue=queue,
                count=count,
            )
        self._due = time.monotonic() + pause_after(time.thread_time() - began, _REPORT_AGE)


class Backlog:
    """The unread records of one run, without transaction markers.

    Offsets alone cannot distinguish them: markers may follow the last record of a lane. Positions
    are committed after markers, so that finished lanes do not look like work, and so that a start
    after a long stop still finds its position in the log: retention removes markers together with
    the records before them.
    """

    def __init__(self, cluster: Cluster, start: Start, processor: BatchProcessor) -> None:
        """Only the thread that supervises the run uses the cluster."""
        self._cluster = cluster
        self._processor = processor
        self.leaderless = start.leaderless
        """Partitions without a leader at the last check."""
        self.change(start)
        self._at_record: dict[TopicPartition, int] = {}
        """The position of each lane where a record was found, so that it is not searched again."""

    def change(self, start: Start) -> None:
        """Uses what changed tables released."""
        # Remaining copies are read only as far as a changed table released them.
        self._releases = {held.lane: held.release for held in start.held if isinstance(held, Kept)}

    def handled(self, due: Mapping[TopicPartition, int]) -> bool:
        """Whether everything below some offsets is handled, however much is behind them.

        Raises:
            TransientFault: The broker gave no answer in time, or records at a position are lost.
            FatalFault: Another run took over, or the broker refuses permanently.
        """
        positions = self._processor.positions
        # A lane that is not read belongs to a handler that has stopped meanwhile.
        if all(positions.get(lane, offset) >= offset for lane, offset in due.items()):
            return True
        return not self.pass_markers(due)

    def pass_markers(self, due: Mapping[TopicPartition, int] | None = None) -> bool:
        """Commits the positions after markers; returns whether a record is left to process.

        With ``due`` only records below these offsets count.

        Raises:
            TransientFault: The broker gave no answer in time, or records at a position are lost.
            FatalFault: Another run took over, or the broker refuses permanently.
        """
        if self._processor.began is not None:
            return True
        positions = {
            lane: offset
            for lane, offset in self._processor.positions.items()
            if lane not in self.leaderless
        }
        ends = self._cluster.ends(positions)
        wanted = {lane: min(end, self._releases.get(lane, end)) for lane, end in ends.items()}
        if due is not None:
            wanted = {lane: min(end, due.get(lane, 0)) for lane, end in wanted.items()}
        unread = {lane: end for lane, end in wanted.items() if positions[lane] < end}
        unknown = {
            lane: positions[lane] for lane in unread if self._at_record.get(lane) != positions[lane]
        }
        records = next_offsets(self._cluster, unknown, unread)
        self._at_record.update(records)
        ahead = {lane: offset for lane, offset in records.items() if offset > positions[lane]}
        if ahead:
            self._processor.commit_positions(ahead)
        after = dict(self._processor.positions)
        # A batch after the ends were read may have written beyond them, such as retries.
        has_batch = any(
            after[lane] not in {offset, ahead.get(lane)} for lane, offset in positions.items()
        )
        is_unread = any(after[lane] < end for lane, end in unread.items())
        if has_batch or is_unread or due is not None:
            return has_batch or is_unread
        # A commit returns before readers see it: a batch's retries may still be hidden.
        return bool(self.leaderless) or self._cluster.ends(positions, committed_only=False) != ends


def due_now(
    configuration: JobConfiguration, cluster: Cluster, start: Start
) -> dict[TopicPartition, int]:
    """The offset of each lane of a run up to which its messages may be read now.

    All written instructions of operators count, at whatever rate they are read.

    Raises:
        TransientFault: The broker gave no answer in time.
    """
    ends = cluster.ends(start.every_position)
    states = NO_STATES
    if any(held.follows_states for held in start.held):
        follower = StatesFollower(cluster, configuration.application)
        try:
            states = follower.states()
        finally:
            follower.close()
    begin = {held.lane: held.start for held in start.held}
    free = HeldPartitions(start.held, cluster, start.clock).free(begin, ends, states)
    instructions = [held.lane for held in start.held if isinstance(held, HeldInstructions)]
    return {**ends, **free, **{lane: ends[lane] for lane in instructions}}
