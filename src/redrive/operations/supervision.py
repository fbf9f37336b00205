"""The report of a running job about itself, for ``redrive status`` and for monitoring.

The job writes a small file in its directory every few seconds, and removes it on a clean exit. That
needs no broker, so it also says why nothing moves while no broker answers.
"""

from __future__ import annotations

import errno
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Final, Self

import orjson

from redrive.checkpoints import machine
from redrive.configuration import JobConfiguration
from redrive.engine.breaker import BreakerState
from redrive.errors import EnvironmentFault, TransientFault
from redrive.kafka.administration import OpenTransaction, open_transactions
from redrive.kafka.connection import Connection
from redrive.masking import Mask
from redrive.messages import TopicPartition
from redrive.operations.durations import duration
from redrive.printable import counted

_SILENCE: Final = 60.0
"""Seconds without a report after which a process counts as dead: many times the interval of
reports, so that a busy machine does not raise an alarm."""
_ROOM: Final = 4096
"""Size of the file, padded with blanks to a block of most file systems."""
_FULL: Final = {errno.ENOSPC, errno.EDQUOT}
"""Errors of a full disk or quota (write(2))."""


HIDDEN_TOO_LONG: Final = 60.0
"""Seconds after which an open transaction that hides records is a problem. Kafka's own clients end
or abort theirs after a minute by default; Kafka Streams after ten seconds."""
_HIDDEN_BRIEFLY: Final = 5.0
"""Seconds of an open transaction that nobody needs to know of: its producer is at work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HiddenRecords:
    """The records of a partition behind its last stable offset.

    An open transaction hides them from every reader of committed records.
    """

    topic: str
    partition: int
    records: int
    """Offsets behind it, including transaction markers."""
    since: float
    """When the transaction began, as far as known, in seconds since 1970."""
    transactional_id: str = ""
    """Empty if this user may not see it."""

    def is_problem(self, now: float) -> bool:
        """Whether it has lasted for too long; ``now`` in seconds since 1970."""
        return now - self.since >= HIDDEN_TOO_LONG

    def is_brief(self, now: float) -> bool:
        """Whether its producer is just at work; ``now`` in seconds since 1970."""
        return now - self.since < _HIDDEN_BRIEFLY

    @property
    def owner(self) -> str:
        """Its transactional id, or the command that finds its producer."""
        if self.transactional_id:
            return f"its transactional id is {self.transactional_id}"
        return (
            f"kafka-transactions.sh describe-producers --topic {self.topic} --partition"
            f" {self.partition} shows its producer"
        )

    def sentence(self, now: float) -> str:
        """One line about it; ``now`` in seconds since 1970."""
        return (
            f"an open transaction on {self.topic}:{self.partition} has hidden"
            f" {counted(self.records, 'record')} for {duration(now - self.since)}; {self.owner}"
        )


def hidden_records(
    connection: Connection,
    hidden: Mapping[TopicPartition, int],
    known: Iterable[HiddenRecords],
    now: float,
) -> tuple[HiddenRecords, ...]:
    """The hidden records of partitions, except those of the last few seconds.

    Args:
        connection: The cluster, which is asked for transactions that are not known.
        hidden: The number of hidden records on each partition now.
        known: What was known of them before.
        now: Seconds since 1970.
    """
    reported = {TopicPartition(report.topic, report.partition): report for report in known}
    asked: Mapping[TopicPartition, OpenTransaction] = {}
    if unknown := [lane for lane in hidden if lane not in reported]:
        with suppress(TransientFault):
            asked = open_transactions(connection, unknown)
    every = []
    for lane, records in hidden.items():
        transaction = asked.get(lane, OpenTransaction("", None))
        records_of_lane = HiddenRecords(
            topic=lane.topic,
            partition=lane.partition,
            records=records,
            since=now if transaction.since is None else transaction.since,
            transactional_id=transaction.transactional_id,
        )
        if lane in reported:
            records_of_lane = replace(reported[lane], records=records)
        if lane not in asked or not records_of_lane.is_brief(now):
            every.append(records_of_lane)
    return tuple(every)


class Activity(StrEnum):
    """What a job is doing."""

    RUNNING = "running"
    """It makes progress, or there is nothing to do."""
    STALLED = "stalled"
    """There is work and no progress."""
    WAITING = "waiting"
    """It waits and continues by itself: a topic is missing, the disk is full."""
    STANDBY = "standby"
    """It has no partitions, as there are more instances than partitions."""
    STOPPING = "stopping"
    """It was asked to stop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisionState:
    """The report of a job about itself at one moment."""

    time: float
    """When it was written, in seconds since the epoch."""
    pid: int
    state: Activity
    since: float | None = None
    """When the state began, in seconds since the epoch; None if unknown."""
    step: str = ""
    """The step of the protocol that hangs, such as ``commit``; empty for none."""
    lane: str = ""
    """``topic:partition`` without progress; empty for none."""
    cause: str = ""
    """Why, as far as it is known."""
    ledger: str = ""
    """Why the ledger is not written; empty if it is, or if none is configured."""
    clusters: str = ""
    """Why messages wait for other clusters; empty if none does."""
    forwards: Mapping[str, int] = field(default_factory=dict)
    """Messages that wait to be forwarded, by cluster, including transaction markers."""
    refused: str = ""
    """Why changed settings or tables were refused; empty once a restart accepted them."""
    stopped: Mapping[str, str] = field(default_factory=dict)
    """Why handlers are stopped while others run, by the topic that each reads."""
    breakers: tuple[BreakerState, ...] = ()
    """The breakers that are not closed; retries to their targets wait."""
    hidden: tuple[HiddenRecords, ...] = ()
    """Records that open transactions hide."""
    dropping: tuple[str, ...] = ()
    """What is said of programs whose dead letters lack the headers of the record that failed."""

    def is_dead(self, now: float) -> bool:
        """Whether the process ended or is silent for too long; ``now`` in seconds since 1970."""
        return now - self.time > _SILENCE or not machine.runs(self.pid)

    def masked(self, mask: Mask) -> Self:
        """The report with secrets masked."""
        return replace(
            self,
            cause=mask.text(self.cause),
            refused=mask.text(self.refused),
            breakers=tuple(
                replace(breaker, target=mask.text(breaker.target), why=mask.text(breaker.why))
                for breaker in self.breakers
            ),
        )

    def restricted_to(self, job: JobConfiguration) -> Self:
        """The report about the handlers of part of a job."""
        topics = {handler.identity.topic for handler in job.handlers}
        names = {handler.identity.name for handler in job.handlers}
        return replace(
            self,
            lane=self.lane if self.lane.rpartition(":")[0] in topics else "",
            cause="",
            clusters="",
            forwards={},
            refused=self.refused and "users of the whole job see why",
            stopped={topic: why for topic, why in self.stopped.items() if topic in topics},
            breakers=tuple(breaker for breaker in self.breakers if breaker.handler in names),
            hidden=tuple(records for records in self.hidden if records.topic in topics),
            dropping=(),
        )

    def describe(self, now: float) -> str:
        """One line: ``stalled since 12:03:05 UTC (4 min 2 s), orders.dlq:2 at step commit, ...``.

        ``now`` is in seconds since the epoch.
        """
        if self.is_dead(now):
            how = "says nothing" if machine.runs(self.pid) else "is gone"
            return f"dead {_since(self.time, now)}: process {self.pid} {how}"
        parts = [self.state if self.since is None else f"{self.state} {_since(self.since, now)}"]
        place = f"{self.lane} at step {self.step}" if self.lane and self.step else ""
        parts.append(place or self.lane or (f"at step {self.step}" if self.step else ""))
        parts.append(f"because {self.cause}" if self.cause else "")
        return ", ".join(filter(None, parts))


def supervision_file(job: JobConfiguration) -> Path:
    """The file of a job's report about itself."""
    return job.own_directory / "supervision.json"


def write(path: Path, state: SupervisionState) -> None:
    """Write a report; a reader sees the old text or the new one, never a part.

    On a full disk the file is overwritten in place, since the report has to say that the disk is
    full.

    Raises:
        OSError: The file cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    text = orjson.dumps(asdict(state), option=orjson.OPT_INDENT_2).ljust(_ROOM)
    scratch = path.with_suffix(".new")
    try:
        scratch.write_bytes(text)
    except OSError as error:
        if error.errno not in _FULL:
            raise
        scratch.unlink(missing_ok=True)
        with path.open("r+b", buffering=0) as file:
            file.write(text)  # in one call
            file.truncate()
    else:
        scratch.replace(path)


def read(path: Path) -> SupervisionState | None:
    """The last report of a job, None if there is none; raises ``EnvironmentFault``."""
    try:
        data = orjson.loads(path.read_bytes())
        known = {"breakers": (), "hidden": (), "dropping": (), **data}
        breakers = tuple(BreakerState(**breaker) for breaker in known["breakers"])
        hidden = tuple(HiddenRecords(**records) for records in known["hidden"])
        dropping = tuple(known["dropping"])
        lists = {"breakers": breakers, "hidden": hidden, "dropping": dropping}
        return SupervisionState(**{**known, "state": Activity(data["state"]), **lists})
    except (FileNotFoundError, NotADirectoryError, KeyError, TypeError, ValueError):
        return None
    except OSError as error:
        raise EnvironmentFault(
            f"{path} cannot be read: {error.strerror}",
            hint="run this command as the user who runs the job",
        ) from error


def problem_of(
    state: SupervisionState | None, instances: Collection[str] | None, now: float
) -> str:
    """What is wrong with a job as a whole: it is dead or stalled, or no broker answers.

    ``instances`` are the processes that the broker knows of; None if it cannot be asked. ``now`` is
    in seconds since the epoch. A job without a report, which runs on another machine, is healthy if
    the broker knows of a process. Empty if healthy.
    """
    if state is not None and (state.is_dead(now) or state.state is Activity.STALLED):
        return state.describe(now)
    if instances is None:
        return "the broker does not answer"
    if state is None and not instances:
        return "no process runs the job"
    return ""


def _since(moment: float, now: float) -> str:
    began = datetime.fromtimestamp(moment, UTC)
    is_today = began.date() == datetime.fromtimestamp(now, UTC).date()
    shown = began.strftime("%H:%M:%S" if is_today else "%Y-%m-%d %H:%M:%S")
    return f"since {shown} UTC ({duration(now - moment)})"
