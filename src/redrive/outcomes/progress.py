"""Positions of lanes, recovered from their outcomes.

A group's offsets expire when no instance has run for a week (KIP-211). Every outcome carries the
offset of its source record and was committed in the same transaction as the group's offset, so the
newest outcome of a lane gives its exact position: ledger first, then the tail of the outcomes topic
that the ledger has not seen. Under ORDER(KEY) a message that still waits behind another has no
further outcome; its copy names the one that it replaces.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import orjson

from redrive.configuration.deciders import table_of
from redrive.engine.ordering import position_of
from redrive.errors import ConfigurationError
from redrive.kafka.cluster import Cluster
from redrive.messages import TopicPartition
from redrive.messages.own_headers import incarnation_of, read_own
from redrive.outcomes.ledger import outcomes_unseen
from redrive.outcomes.rows import INCARNATION
from redrive.outcomes.table import LedgerTable, own_ledger, sql_text

if TYPE_CHECKING:
    from redrive.configuration import JobConfiguration
    from redrive.kafka.records import StoredRecord


def positions_from_outcomes(
    configuration: JobConfiguration, cluster: Cluster, lanes: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """The next offset to read for lanes whose committed offsets expired.

    Each lane comes with the incarnation of its topic: offsets of a deleted topic do not apply to a
    recreated one.

    Returns:
        The lanes with outcomes; the others were never handled.

    Raises:
        ConfigurationError: Neither the ledger nor the topic has all outcomes.
        TransientFault: The broker gave no answer in time.
    """
    ledger = own_ledger(configuration, cluster)
    seen = {} if ledger is None else ledger.positions()
    positions = {} if ledger is None else _in_ledger(ledger, lanes)
    for lane, offset in _in_tail(configuration, cluster, lanes, seen).items():
        positions[lane] = max(offset, positions.get(lane, 0))
    for lane, offset in _in_copies(configuration, cluster, lanes).items():
        positions[lane] = max(offset, positions.get(lane, 0))
    return positions


def _in_copies(
    configuration: JobConfiguration, cluster: Cluster, lanes: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """The next offset after the copies that others replace, where tables have ORDER(KEY)."""
    topics = {
        topic
        for handler in configuration.handlers
        if table_of(handler).control.is_ordered
        for topic in handler.identity.waiting_topics
    }
    extents = cluster.extents([lane for lane in lanes if lane.topic in topics])
    starts = {lane: extent.first for lane, extent in extents.items() if extent.first < extent.end}
    positions: dict[TopicPartition, int] = {}
    for record in cluster.read(starts, {lane: extents[lane].end for lane in starts}):
        place = read_own(record.headers).moved
        if not place:
            continue
        topic, incarnation, partition, offset = position_of(place)
        lane = TopicPartition(topic, partition)
        if lanes.get(lane) == incarnation:
            positions[lane] = max(offset + 1, positions.get(lane, 0))
    return positions


def _in_ledger(
    ledger: LedgerTable, lanes: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    topics = ", ".join(sql_text(topic) for topic in sorted({lane.topic for lane in lanes}))
    rows = ledger.rows(
        f"WHERE source_topic IN ({topics}) GROUP BY source_topic, source_partition, {INCARNATION}",
        columns=f"source_topic t, source_partition p, {INCARNATION} i, max(source_offset) o",
    )
    return {
        lane: row["o"] + 1
        for row in rows
        for lane in [TopicPartition(row["t"], row["p"])]
        if lanes.get(lane) == row["i"]
    }


def _in_tail(
    configuration: JobConfiguration,
    cluster: Cluster,
    lanes: Mapping[TopicPartition, int],
    seen: Mapping[int, int],
) -> dict[TopicPartition, int]:
    topic = configuration.outcomes_topic
    count = cluster.topics().get(topic, 0)
    extents = cluster.extents(TopicPartition(topic, number) for number in range(count))
    unseen = outcomes_unseen(seen, extents)
    for lane, first in unseen.gone.items():
        raise _gone(lane, seen.get(lane.partition, 0), first)
    positions: dict[TopicPartition, int] = {}
    for record in cluster.read(unseen.starts):
        source = _source_of(record)
        if source is None:
            continue
        lane, incarnation, offset = source
        if lanes.get(lane) == incarnation:
            positions[lane] = max(offset + 1, positions.get(lane, 0))
    return positions


def _gone(lane: TopicPartition, seen: int, first: int) -> ConfigurationError:
    missing = (
        f"outcomes {seen} to {first - 1} of {lane}"
        if seen < first
        else f"the topic {lane.topic} whose outcomes up to {seen - 1} of {lane} the ledger has"
    )
    return ConfigurationError(
        f"the committed offsets of this application are missing, and so are {missing}, which"
        " had its positions; starting from the beginning would repeat everything that is still"
        " in the dead-letter topics",
        hint="set the offsets of the application's consumer group by hand, with"
        " `kafka-consumer-groups --reset-offsets`, to where it should continue; or rename"
        " the application to start over",
    )


def _source_of(record: StoredRecord) -> tuple[TopicPartition, int, int] | None:
    """The source of an outcome's record: lane, incarnation, offset."""
    try:
        outcome = orjson.loads(record.value or b"")
        lane = TopicPartition(outcome["topic"], outcome["partition"])
        # An earlier version had the incarnation only in the name.
        incarnation = outcome.get("incarnation") or incarnation_of(outcome["outcome"])
        return lane, int(incarnation), int(outcome["offset"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return None  # not written by a job
