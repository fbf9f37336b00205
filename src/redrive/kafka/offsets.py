"""Asking a cluster for offsets: one typed way to the client's untyped specifications."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from confluent_kafka import IsolationLevel
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, not in the stub's list
    AdminClient,
    OffsetSpec,
)

from redrive.messages import TopicPartition

__all__ = ["EARLIEST", "LATEST", "OffsetSpec", "at_time", "list_offsets"]

EARLIEST: Final[OffsetSpec] = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
LATEST: Final[OffsetSpec] = OffsetSpec.latest()  # type: ignore[no-untyped-call]
"""The last stable offset, since every question is asked at read_committed."""


def at_time(milliseconds: int) -> OffsetSpec:
    """The first offset whose timestamp is not before ``milliseconds``; -1 if there is none."""
    spec: OffsetSpec = OffsetSpec.for_timestamp(milliseconds)
    return spec


def list_offsets(
    admin: AdminClient, asked: Mapping[TopicPartition, OffsetSpec], *, timeout: float
) -> dict[TopicPartition, int]:
    """The offsets asked for, as a read_committed reader would see them.

    Args:
        admin: The client to ask with.
        asked: What to ask of each partition.
        timeout: Seconds to wait for the answers.

    Raises:
        KafkaException: The broker gave no answer in time, or an error.
    """
    answers = admin.list_offsets(
        {ClientPartition(lane.topic, lane.partition): spec for lane, spec in asked.items()},
        isolation_level=IsolationLevel.READ_COMMITTED,
        request_timeout=timeout,
    )
    return {
        TopicPartition(lane.topic, lane.partition): answer.result(timeout).offset
        for lane, answer in answers.items()
    }
