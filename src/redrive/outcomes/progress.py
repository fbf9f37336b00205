"""Where lanes stood, found again in their outcomes (design 6.12).

A group's offsets expire when no instance has run for a week (KIP-211). Every outcome carries the
offset of its source record and was committed in the same transaction as the group's offset, so the
newest outcome of a lane tells exactly where the lane stood: ledger first, then the tail of the
outcomes topic that the ledger has not seen.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Final

import orjson

from redrive.errors import ConfigurationError
from redrive.kafka.cluster import Cluster, Extent
from redrive.messages import TopicPartition
from redrive.outcomes.table import LedgerTable, sql_text

if TYPE_CHECKING:
    from confluent_kafka import Message

    from redrive.configuration import JobConfiguration

_PATIENCE: Final = 600.0
"""Seconds that reading the tail of the outcomes topic may take."""


def positions_from_outcomes(
    configuration: JobConfiguration, cluster: Cluster, lanes: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    """The next offset to read of lanes whose committed offsets were forgotten.

    Args:
        configuration: The job.
        cluster: The cluster.
        lanes: The lanes.

    Returns:
        The lanes of which there is an outcome; of the others nothing was ever handled.

    Raises:
        ConfigurationError: Outcomes are gone that neither the ledger nor the topic holds.
        TransientFault: The broker gave no answer in time.
    """
    wanted = set(lanes)
    ledger = LedgerTable.open(configuration.ledger.path) if configuration.ledger.enabled else None
    seen = {} if ledger is None else ledger.positions()
    found = {} if ledger is None else _in_ledger(ledger, wanted)
    for lane, offset in _in_tail(configuration, cluster, wanted, seen).items():
        found[lane] = max(offset, found.get(lane, 0))
    return found


def _in_ledger(ledger: LedgerTable, lanes: set[TopicPartition]) -> dict[TopicPartition, int]:
    topics = ", ".join(sql_text(topic) for topic in sorted({lane.topic for lane in lanes}))
    rows = ledger.rows(
        f"WHERE source_topic IN ({topics}) GROUP BY source_topic, source_partition",
        columns="source_topic t, source_partition p, max(source_offset) o",
    )
    every = {TopicPartition(row["t"], row["p"]): row["o"] + 1 for row in rows}
    return {lane: offset for lane, offset in every.items() if lane in lanes}


def _in_tail(
    configuration: JobConfiguration,
    cluster: Cluster,
    lanes: set[TopicPartition],
    seen: Mapping[int, int],
) -> dict[TopicPartition, int]:
    topic = configuration.outcomes_topic
    count = cluster.topics().get(topic, 0)
    extents = cluster.extents(TopicPartition(topic, number) for number in range(count))
    starts = {lane: _start(lane, seen.get(lane.partition, 0), extents[lane]) for lane in extents}
    found: dict[TopicPartition, int] = {}
    unread = {lane: start for lane, start in starts.items() if start < extents[lane].end}
    for message in cluster.read(unread, seconds=_PATIENCE):
        place = _source_of(message)
        if place is not None and place[0] in lanes:
            lane, offset = place
            found[lane] = max(offset + 1, found.get(lane, 0))
    return found


def _start(lane: TopicPartition, seen: int, extent: Extent) -> int:
    if seen < extent.first:
        raise ConfigurationError(
            "the committed offsets of this application are gone, and so are outcomes"
            f" {seen} to {extent.first - 1} of {lane}, which told where it stood; to start from the"
            " beginning would do again everything that is still in the dead-letter topics",
            hint="set the offsets of the application's consumer group by hand, with"
            " `kafka-consumer-groups --reset-offsets`, to where it is to go on; or give the"
            " application another name to begin anew",
        )
    return seen


def _source_of(message: Message) -> tuple[TopicPartition, int] | None:
    try:
        outcome: dict[str, Any] = orjson.loads(message.value() or b"")
        return TopicPartition(outcome["topic"], outcome["partition"]), int(outcome["offset"])
    except (ValueError, KeyError, TypeError):
        return None  # not written by a job
