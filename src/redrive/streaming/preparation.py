"""Prepares the runs of the query, and releases the share after the last one.

Any step can fail temporarily: an unreachable broker, topics without leaders, a full disk. It is
then retried at growing intervals, and the log and the supervisor report the problem.
"""

from __future__ import annotations

import random
import time
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Final

from redrive.checkpoints.control import ControlTopic, LaneBegin
from redrive.checkpoints.epoch import RunIdentity, check_current
from redrive.checkpoints.instances import Share
from redrive.checkpoints.other_applications import (
    NewTopics,
    OtherApplication,
    kept_again,
    new_topics,
    no_positions,
    other_applications,
    refusal,
    take_over,
    waiting_messages,
)
from redrive.checkpoints.registry import Registration
from redrive.checkpoints.tables import RunningTable, keep_tables
from redrive.configuration import Conflict, HandlerConfiguration, JobConfiguration
from redrive.configuration.deciders import inhibited_queues, read_topics, table_of
from redrive.errors import (
    ConfigurationError,
    EnvironmentFault,
    RedriveError,
    TransientFault,
    UnreachableFault,
)
from redrive.kafka.administration import TopicAdministration
from redrive.kafka.cluster import Cluster
from redrive.kafka.deadline import COORDINATOR, PATIENCE, PAUSE, DeadlineThread
from redrive.messages import TopicPartition
from redrive.operations.process import this_user
from redrive.operations.rights import check_start
from redrive.streaming.batch import BatchProcessor
from redrive.streaming.kept_lanes import count_kept_lanes, kept_identities, kept_lanes
from redrive.streaming.lifecycle import JobControl
from redrive.streaming.start import Start, StartFinder, StoppedTopic
from redrive.streaming.supervision import Supervisor
from redrive.streaming.topics import check_own_topics, own_topics
from redrive.streaming.wait import WaitRule

_MISSING_AGE: Final = 1.0
"""Seconds between two checks for dead-letter topics while there are none."""
_SHARE_AGE: Final = 0.5
"""Seconds between two checks for a share that others give up."""
_ROOM: Final = 1024 * 1024
"""Free bytes of disk for a run: its checkpoint takes some kilobytes."""
_BACKOFF: Final = (0.5, 1.0, 2.0, 5.0, 10.0)
"""Seconds before the next run after each failure; the last value repeats."""


class Preparation:
    """Prepares the runs of one job.

    This class waits for the broker and required topics, begins a run after which nothing older can
    emit, finds its start positions, and retries each of these.
    """

    def __init__(
        self, configuration: JobConfiguration, control: JobControl, supervisor: Supervisor
    ) -> None:
        self.configuration = configuration
        """The current configuration; a restart changes it."""
        self.failures = 0
        """Failed starts and runs since the last commit."""
        self.missing: tuple[str, ...] = ()
        """Dead-letter topics that did not exist at the last check."""
        self._stopped: Mapping[str, StoppedTopic] = {}
        self._left_out: dict[str, int] = {}
        """Topics above the maximum of each subscription at the last check."""
        self._denied: frozenset[str] = frozenset()
        """Topics that this user was not allowed to read at the last check."""
        self._control = control
        self._supervisor = supervisor
        self._cluster = Cluster(configuration.connection)
        self._registration = Registration(
            self._cluster,
            configuration.application,
            None if configuration.rebalances else configuration.share,
        )
        self._recorded_tables: tuple[RunningTable, ...] = ()
        self.refuses_others = True
        """Whether the next run must not begin on topics that other applications handle."""
        self._new_topics = NewTopics()
        """The topics that this application has not handled yet, at the last check."""
        self._predecessor: OtherApplication | None = None
        """The application whose positions on them the next run continues."""
        self._taken: Mapping[TopicPartition, int] = {}
        """These positions, on the partitions of all shares."""
        self._is_unclaimed = True
        """Whether this process has not requested its share yet."""

    def await_broker(self) -> bool:
        """Waits for a broker that answers, authenticates the job and grants what a start needs.

        Returns:
            False if a stop came first.

        Raises:
            EnvironmentFault: The broker refuses the job: waiting does not help.
        """
        reported = ""
        while not self._control.is_stopping:
            try:
                if self._may_start():
                    self.failures = 0
                    # Not ready yet, but the broker is.
                    self._supervisor.waits_for("Spark and the first run start")
                    return True
            except UnreachableFault as fault:
                self.failures += 1
                self._supervisor.waits_for(fault.message)
                if fault.message != reported:
                    reported = fault.message
                    self._control.notice("waiting for a broker", because=reported, hint=fault.hint)
                self.pause()
        return False

    def _may_start(self) -> bool:
        """Asks the cluster in a separate thread: a stop does not wait for the answer."""
        thread = DeadlineThread("redrive: first answer of the cluster")
        check = thread.submit(
            "first answer of the cluster", lambda: check_start(self.configuration)
        )
        thread.end()
        while not check.is_made_within(PAUSE):
            if self._control.is_stopping:
                return False
        check.answer(0)
        return True

    def prepare(self, wait: WaitRule, *, is_first: bool) -> tuple[Start, RunIdentity] | None:
        """A new run, and its start positions.

        Args:
            wait: Ends the job when there is nothing to read.
            is_first: Whether this is the first run: then a permanent problem is an error.

        Returns:
            None if a stop came first, or if there is nothing left to wait for.

        Raises:
            EnvironmentFault: At the first start: the broker cannot be reached, unless the job waits
                for it, or the folder cannot be written.
            AlreadyRunningError: Another instance works on the same share.
            ConfigurationError: What Kafka holds contradicts the settings.
        """
        gives_up = is_first and not self.configuration.wait_for_broker
        failing_since: float | None = None
        while True:
            try:
                return self._prepare_once(wait)
            except TransientFault as fault:
                failing_since = failing_since or time.monotonic()
                if gives_up and time.monotonic() - failing_since > PATIENCE:
                    raise EnvironmentFault(fault.message, hint=fault.hint) from fault
                self._report_fault(fault)
            except EnvironmentFault as fault:
                if is_first:
                    raise
                self._report_fault(fault)
            if not self.pause():
                return None

    def commit(self, start: Start, processor: BatchProcessor) -> None:
        """Commits every lane's start and the deciding tables; then the first batch begins.

        So a crash before the first batch changes nothing. The query already runs: Spark needs a
        second or more to plan that batch.

        Raises:
            TransientFault: The broker gave no answer in time.
            ConfigurationError: Another application has begun to handle the same topics.
        """
        processor.commit_positions(start.every_position, start.moved)
        if self._new_topics.all and not self.configuration.beside:
            # Two applications that start together see no positions of each other before.
            self._check_other_applications(start.layout)
        if start.topics or start.begins or self._new_topics.taken:
            with self._entries() as entries:
                # Another share begins where the other application has stopped, too.
                taken = {
                    lane: LaneBegin(offset, start.identities.get(lane.topic, ""))
                    for lane, offset in self._taken.items()
                }
                entries.set_begins({**taken, **start.begins}, start.since)
                entries.set_topics(start.topics)
                entries.write(kept_again(self._new_topics.taken))
        self._new_topics, self._predecessor, self._taken = NewTopics(), None, {}
        self.refuses_others = False
        self._record_tables(self.configuration)
        processor.begin()

    def change_tables(
        self, configuration: JobConfiguration, start: Start, processor: BatchProcessor
    ) -> Start | None:
        """Lets changed tables decide from the next batch on, while the query continues.

        Work that need not be done between two batches is done before.

        Returns:
            The lanes, with messages released by the tables; None if another run is needed, since
            more changed or something failed.

        Raises:
            FatalFault: Another run took over, or the broker refuses for good.
        """
        try:
            return self._change_tables(configuration, start, processor)
        except (TransientFault, ConfigurationError) as fault:
            self._control.notice(
                "the tables cannot change while the query runs, so it is restarted",
                error=fault.message,
            )
            return None

    def release(self, *, is_superseded: bool) -> None:
        """Releases the share, unless another instance has taken it."""
        try:
            if self._is_unclaimed:
                return
            if is_superseded:
                self._registration.end_heartbeat()
                return
            with self._entries() as entries:
                self._registration.release(entries)
        except RedriveError as error:
            self._registration.end_heartbeat()
            self._control.notice("the share could not be released", error=error.message)
        finally:
            self._cluster.close()

    def assigned_share(self, start: Start) -> Share | None:
        """The share assigned to this instance; None to stand by.

        Raises:
            TransientFault: The broker gave no answer in time.
        """
        if not self.configuration.rebalances:
            return self.configuration.share
        return self._registration.assigned(_most_shares(start.layout))

    def lose_share(self) -> None:
        """Another instance took the share, or a part of it: the next run uses another."""
        self._registration.lose()

    def nothing_left(self, *, once: bool = False) -> str:
        """The reason of an end by WAIT, or with ``once`` of a run of what was due.

        Raises:
            EnvironmentFault: A dead-letter topic does not exist: its queue could not be opened,
                which is an error of IBM's command too. Or a handler is stopped.
        """
        end = "what was due is handled" if once else "the job ends by WAIT"
        for topic, lost in self._stopped.items():
            raise EnvironmentFault(
                f"{end}, and the handler of {topic} is stopped: {lost.problem}", hint=lost.hint
            )
        if not self.missing:
            return end if once else "nothing left that can be processed (WAIT)"
        verb = "does" if len(self.missing) == 1 else "do"
        raise EnvironmentFault(
            f"{end}, and {' and '.join(self.missing)} {verb} not exist: no dead letter was read",
            hint="check the name and the broker's address, or create the topic; with WAIT(YES)"
            f" the job{' without --once' if once else ''} waits for it",
        )

    def pause(self) -> bool:
        """Waits according to the number of failures; False if a stop came."""
        backoff = _BACKOFF[min(self.failures, len(_BACKOFF)) - 1] if self.failures else 0.0
        # Instances that start together must not fence each other repeatedly.
        return self._sleep(backoff * random.uniform(0.5, 1.5))  # noqa: S311 - no secret

    def _sleep(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not self._control.is_stopping:
            time.sleep(0.05)
        return not self._control.is_stopping

    def _report_fault(self, fault: RedriveError) -> None:
        self.failures += 1
        self._supervisor.troubled(fault.message, "start")
        facts = {"hint": fault.hint} if fault.hint else {}
        self._control.warning(
            "the start has to wait", tries=self.failures, error=fault.message, **facts
        )

    def _prepare_once(self, wait: WaitRule) -> tuple[Start, RunIdentity] | None:
        layout = self._await_sources(wait)
        if layout is None:
            return None
        self._is_unclaimed = False
        if self.configuration.rebalances and not self._take_share(_most_shares(layout), wait):
            return None
        configuration = self.configuration
        _check_room(configuration)
        with self._entries() as entries:
            identity = self._registration.begin_run(
                entries,
                topic=configuration.control_topic,
                take_over=configuration.rebalances
                or configuration.on_conflict is Conflict.TAKE_OVER,
                waiting=lambda name: self._control.notice(
                    "another instance holds this share and may be ending", instance=name
                ),
            )
            self._take_positions()
            finder = StartFinder(configuration, self._control, self._cluster, entries, self._taken)
            start = finder.find(layout, self._denied)
        self._report_missing(start.missing)
        self._report_stopped(start.stopped)
        return start, identity

    def _take_share(self, partitions: int, wait: WaitRule) -> bool:
        """Waits for a share of the partitions; False if a stop came, or WAIT ends the job."""
        registration, reported = self._registration, ""
        registration.join(self.configuration.control_topic)
        while lack := self._lack_of_share(partitions):
            if lack != reported:
                reported = lack
                self._control.notice(lack)
            if not self._sleep(_SHARE_AGE) or wait.is_over(time.time()):
                return False
        assert registration.share is not None
        if registration.share != self.configuration.share or reported:
            self._control.notice("this instance took a share", share=str(registration.share))
        self.configuration = replace(self.configuration, share=registration.share)
        return True

    def _lack_of_share(self, partitions: int) -> str:
        """Takes the assigned share; returns what it waits for, if it cannot yet."""
        registration, topic = self._registration, self.configuration.control_topic
        share = registration.assigned(partitions)
        if registration.share not in {None, share}:
            with self._entries() as entries:
                registration.give_up(entries)
        if share is not None:
            holders = share != registration.share and registration.take(share, topic)
            lack = f"others must give up share {share}: {holders}" if holders else ""
        elif registration.is_member:
            self._supervisor.stands_by()
            return "this instance stands by: others have every partition"
        else:
            lack = "the broker does not know this instance yet"
        self._supervisor.waits_for(lack)
        return lack

    def _change_tables(
        self, configuration: JobConfiguration, start: Start, processor: BatchProcessor
    ) -> Start | None:
        existing = self._cluster.topics()
        configuration = configuration.with_topics(existing)
        if not _differ_in_tables_only(self.configuration, configuration):
            return None
        every = start.every_position
        kept = [
            kept_lane
            for kept_lane in kept_lanes(configuration, start.layout, existing, start.denied)
            if kept_lane.remaining in every
        ]
        if not all(lane in every for kept_lane in kept for lane in kept_lane.waiting):
            return None  # a first BACKOFF, whose topic is not created yet
        self._record_tables(configuration)
        with self._entries() as entries:
            check_current(entries.entries, processor.run)
            finder = StartFinder(configuration, self._control, self._cluster, entries)
            until = time.monotonic() + COORDINATOR
            changed = processor.change_tables(
                configuration,
                lambda: finder.change_tables(start, kept, processor.run),
                gives_up=lambda: self._control.is_stopping or time.monotonic() > until,
            )
        if changed is not None:
            self.configuration = configuration
        return changed

    def _record_tables(self, configuration: JobConfiguration) -> None:
        running = tuple(
            _running_table(handler, configuration) for handler in configuration.handlers
        )
        if running == self._recorded_tables:
            return
        keep_tables(
            self._cluster,
            configuration.tables_topic,
            [table for table in running if table not in self._recorded_tables],
            now=time.time(),
            by=configuration.operator or this_user(),
        )
        self._recorded_tables = running

    def _entries(self) -> ControlTopic:
        return ControlTopic(self._cluster, self.configuration.control_topic)

    def _await_sources(self, wait: WaitRule) -> dict[str, int] | None:
        is_reported = False
        while True:
            if (layout := self._ensured_layout()) is not None:
                return layout
            if not is_reported:
                is_reported = True
                self._report_missing(frozenset(read_topics(self.configuration)) - self._denied)
                self._report_stopped({topic: StoppedTopic.denied(topic) for topic in self._denied})
                lack = f"this user may not read {min(self._denied)}" if self._denied else ""
                self._supervisor.waits_for(lack or "no topic to read exists")
            if not self._sleep(_MISSING_AGE) or wait.is_over(time.time()):
                return None

    def _ensured_layout(self) -> dict[str, int] | None:
        """Partitions of the topics that can be read; None if there is no lane to read.

        The job's own topics are created; those of a deleted topic are still read.
        """
        existing = self._cluster.topics()
        self.configuration = self.configuration.with_topics(existing)
        self._report_left_out(existing)
        names = read_topics(self.configuration)
        self._denied = self._cluster.unreadable(names)
        layout = {
            name: existing[name]
            for name in names
            if existing.get(name) and name not in self._denied
        }
        if layout and not self.configuration.only_replays:
            self._check_other_applications(layout)
        wanted = own_topics(self.configuration, layout, existing)
        check_own_topics(self._cluster, wanted, existing)
        if any(existing.get(topic.name, 0) < topic.partitions for topic in wanted):
            TopicAdministration(self.configuration.connection).ensure(wanted)
        has_lanes = any(
            count_kept_lanes(identity, layout, existing)
            for identity in kept_identities(self.configuration)
            if identity.topic not in self._denied
        )
        return layout if has_lanes else None

    def _check_other_applications(self, layout: Mapping[str, int]) -> None:
        """Refuses a first start on topics that another application handles.

        A topic that appears later is read by every application that subscribes to it.

        Raises:
            ConfigurationError: Another application handles some, and no setting says what to do.
            TransientFault: The broker gave no answer in time: it is unknown.
        """
        configuration = self.configuration
        # Once found, topics stay new until their positions are committed.
        self._new_topics |= new_topics(self._cluster, configuration.application, layout)
        names = self._new_topics.all & layout.keys()
        if not names:
            return
        with Cluster(configuration.connection) as cluster:
            others = other_applications(cluster, configuration.application, names)
            if others.hidden:
                self._control.warning(
                    "whether other applications handle the same topics is unknown: this user may"
                    " not see their groups",
                    applications=", ".join(others.hidden),
                )
            if configuration.take_over and self.refuses_others and self._predecessor is None:
                self._predecessor = others.named(configuration.take_over)
                if self._predecessor is None and names == layout.keys():
                    raise no_positions(configuration.take_over, names)
            for other in others.found:
                if other.name == configuration.take_over:
                    continue
                is_revoked = not self._new_topics.taken.isdisjoint(other.topics)
                if not configuration.beside and (self.refuses_others or is_revoked):
                    raise refusal(cluster, other)
                self._control.warning(
                    "another application handles the same messages",
                    application=other.name,
                    topics=", ".join(other.topics),
                )

    def _take_positions(self) -> None:
        """Takes over the positions of another application, before the first run on its topics."""
        other, configuration = self._predecessor, self.configuration
        if other is None:
            return
        with Cluster(configuration.connection) as cluster:
            cluster.topics()
            topics = self._new_topics.all.intersection(other.topics)
            self._taken = take_over(cluster, other, topics=topics, by=configuration.application)
            waiting = waiting_messages(cluster, other.name)
        parked, remaining = waiting or ("?", "?")
        self._control.warning(
            "the positions of another application are taken over; what it parked and what remains"
            " stays with it: redrive parked now and redrive replay with its settings put it back",
            application=other.name,
            topics=", ".join(sorted(topics)),
            parked=parked,
            remaining=remaining,
        )

    def _report_left_out(self, existing: Collection[str]) -> None:
        for subscription in self.configuration.subscriptions:
            topics = subscription.handlers(self.configuration.application, existing)[1]
            if len(topics) > self._left_out.get(subscription.name, 0):
                self._control.warning(
                    "more topics match than max_topics: the others are not read",
                    queue=subscription.name,
                    max_topics=subscription.max_topics,
                    count=len(topics),
                    first=topics[0],
                )
            self._left_out[subscription.name] = len(topics)

    def _report_stopped(self, stopped: Mapping[str, StoppedTopic]) -> None:
        for topic, lost in stopped.items():
            if lost != self._stopped.get(topic):
                self._control.warning(
                    "a handler is stopped, all others continue",
                    topic=topic,
                    because=lost.problem,
                    hint=lost.hint,
                )
        self._stopped = stopped

    def _report_missing(self, missing: frozenset[str]) -> None:
        handled = {handler.identity.topic for handler in self.configuration.handlers}
        self.missing = tuple(sorted(missing & handled))
        for topic in self.missing:
            self._control.notice(
                "waiting for a dead-letter topic that does not exist yet", topic=topic
            )
        for inhibited in inhibited_queues(self.configuration).values():
            self._control.notice(
                "the handler waits: its dead-letter queue has GET(DISABLED)", queue=inhibited.place
            )
        if defined := sorted(missing - handled):
            self._control.notice(
                "topics of the topology do not exist yet: redrive topology apply creates them",
                count=len(defined),
                first=defined[0],
            )


def _most_shares(layout: Mapping[str, int]) -> int:
    """The maximum number of shares: messages may wait although every source was deleted."""
    return max(1, sum(layout.values()))


def _running_table(handler: HandlerConfiguration, job: JobConfiguration) -> RunningTable:
    table = table_of(handler)
    lines = tuple(rule.line for rule in table.rules)
    name, source = handler.identity.name, handler.rules_name
    return RunningTable(
        name, table.hash, handler.rules, source, lines, job.schemes, handler.origin_topic
    )


def _differ_in_tables_only(before: JobConfiguration, after: JobConfiguration) -> bool:
    alike = replace(after, handlers=before.handlers, operator=before.operator)
    if before.only_replays or alike != before or len(before.handlers) != len(after.handlers):
        return False
    pairs = list(zip(before.handlers, after.handlers, strict=True))
    return any(old.rules != new.rules for old, new in pairs) and all(
        replace(new, rules=old.rules, rules_name=old.rules_name) == old for old, new in pairs
    )


def _check_room(configuration: JobConfiguration) -> None:
    """Makes the folder of this instance, and checks that a run can write there.

    Spark would report a failure too, but not the folder.
    """
    folder = configuration.own_directory
    probe = folder / "room"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            probe.write_bytes(bytes(_ROOM))
        finally:
            probe.unlink(missing_ok=True)
    except OSError as error:
        raise no_folder(configuration, error) from error


def no_folder(configuration: JobConfiguration, error: OSError) -> EnvironmentFault:
    """The fault of a job's folder that cannot be written."""
    return EnvironmentFault(
        f"the job's folder {configuration.directory} cannot be written: {error.strerror}",
        hint="free disk space there, or set another folder; nothing is lost meanwhile",
    )
