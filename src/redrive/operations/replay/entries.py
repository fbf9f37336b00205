"""The entries of accepted plans in the control topic, and who may write the one of a plan.

Every plan has a transactional id of its own: whoever applies it fences whoever does so at the same
moment, so its entry and what is written with it come about once.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import orjson

from redrive.checkpoints.control import read_entries
from redrive.errors import FencedFault, OutcomeUnknown, TransientFault
from redrive.kafka.producer import KafkaProducer
from redrive.messages import OutputRecord
from redrive.topology.replays import Replay, read_replays

if TYPE_CHECKING:
    from redrive.configuration import JobConfiguration
    from redrive.kafka.cluster import Cluster

__all__ = ["Writer", "read_accepted", "written_with_patience"]

_PATIENCE: Final = 60.0
"""Seconds without an answer after which applying gives up; applying again goes on from there."""
_PAUSE: Final = 0.5
"""Seconds before what failed is tried again."""


def read_accepted(job: JobConfiguration, cluster: Cluster) -> dict[str, Replay]:
    """Every replay that was accepted, by the id of its plan.

    Args:
        job: The application.
        cluster: Its cluster.

    Raises:
        TransientFault: The broker gave no answer in time.
    """
    if job.control_topic not in cluster.topics():
        return {}
    return read_replays(read_entries(job.connection, job.control_topic))


@dataclass(frozen=True, slots=True)
class Writer:
    """Writes chunks in transactions of a producer that fenced every other for the plan."""

    producer: KafkaProducer
    control_topic: str

    def write(self, records: Sequence[OutputRecord], replay: Replay) -> None:
        """Writes instructions together with how far their plan is then.

        Raises:
            TransientFault: The broker refused, or gave no answer in time.
            FencedFault: Somebody else applies the plan.
            OutcomeUnknown: The answer to the commit was lost.
        """
        key, value = replay.entry()
        now = int(time.time() * 1000)
        entry = OutputRecord(self.control_topic, key.encode(), orjson.dumps(value), None, now, 0)
        self.producer.begin()
        self.producer.produce([(0, record) for record in [*records, entry]])
        report = self.producer.flush()
        if report.may_commit:
            report = self.producer.commit()
        if not report.may_commit:
            detail = report.failed[0].detail if report.failed else "records were refused"
            raise TransientFault(f"instructions can't be written: {detail}")


def written_with_patience(
    job: JobConfiguration, cluster: Cluster, plan: str, write: Callable[[Writer], Replay]
) -> Replay:
    """What ``write`` returns, called again while the broker is silent or somebody else applies.

    Args:
        job: The application.
        cluster: Its cluster.
        plan: The id of the plan.
        write: Writes what is not written yet. Whoever wrote before it is called is fenced, and what
            he wrote is settled.

    Raises:
        TransientFault: The broker gave no answer for a minute. Applying the plan again goes on.
    """
    failing_since = time.monotonic()
    while True:
        before = _instructed(job, cluster, plan)
        try:
            with _writer(job, plan) as writer:
                return write(writer)
        except (TransientFault, FencedFault, OutcomeUnknown):
            # Whoever applies the same plan at this moment fences us, and we them.
            if _instructed(job, cluster, plan) != before:
                failing_since = time.monotonic()
            if time.monotonic() - failing_since > _PATIENCE:
                raise
            time.sleep(_PAUSE)


def _instructed(job: JobConfiguration, cluster: Cluster, plan: str) -> int:
    with contextlib.suppress(TransientFault):
        accepted = read_accepted(job, cluster).get(plan)
        return 0 if accepted is None else accepted.instructed
    return 0


@contextlib.contextmanager
def _writer(job: JobConfiguration, plan: str) -> Iterator[Writer]:
    name = f"{job.control_topic}-replay-{plan}"
    producer = KafkaProducer(job.connection.librdkafka(), name, name)
    try:
        producer.initialise()
        yield Writer(producer, job.control_topic)
    finally:
        producer.close()
