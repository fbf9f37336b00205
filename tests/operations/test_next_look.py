"""The table that decided last says when remaining messages are evaluated again."""

from __future__ import annotations

from dataclasses import replace

from tests.outcomes.conftest import small_job
from tests.outcomes.small_job import SmallJob

from redrive.checkpoints.control import ControlTopic, TableIdentity
from redrive.kafka.cluster import Cluster
from redrive.messages import TopicPartition
from redrive.operations.tables import NextLook, next_looks
from redrive.rules import parse

__all__ = ["small_job"]


def test_a_changed_table_looks_again_at_the_next_start(small_job: SmallJob) -> None:
    job = small_job.configuration
    assert next_looks(job) == {}
    [handler] = job.handlers
    identity = TableIdentity(parse(handler.rules).required().hash, 0, 0)
    with ControlTopic(Cluster(job.connection), job.control_topic) as control:
        control.set_tables({TopicPartition(small_job.identity.topic, n): identity for n in (0, 1)})
    assert next_looks(job) == {"orders": NextLook.WITH_ANOTHER_TABLE}
    changed = replace(handler, rules="REASON(2053) ACTION(DISCARD)\n")
    assert next_looks(replace(job, handlers=(changed,))) == {"orders": NextLook.AT_THE_NEXT_START}
