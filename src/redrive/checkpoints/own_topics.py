"""The topics of an application's own state, and Kafka's settings for each kind."""

from __future__ import annotations

from typing import Final

from redrive.kafka.administration import NewTopic

MAX_MESSAGE_BYTES: Final = 64 * 1024 * 1024
"""Largest record of retry and remaining topics, in bytes: larger than any dead letter, as its copy
must never be refused."""
_OUTCOME_PARTITIONS: Final = 4
_FOREVER: Final = {"retention.ms": "-1", "retention.bytes": "-1"}
_LARGE: Final = {"max.message.bytes": str(MAX_MESSAGE_BYTES)}
_COMPACTED: Final = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1", **_LARGE}


def control_topic(name: str) -> NewTopic:
    """The topic of instances and registered ids, and of known lanes, topics and tables."""
    return NewTopic(name, 1, {**_COMPACTED, **_FOREVER})


def tables_topic(name: str) -> NewTopic:
    """The topic of all rules tables that ever ran, and of operators' commands."""
    return NewTopic(name, 1, {**_COMPACTED, **_FOREVER})


def held_keys_topic(name: str) -> NewTopic:
    """The topic of the keys that wait; one partition keeps keys and positions in their order."""
    return NewTopic(name, 1, {**_COMPACTED, **_FOREVER})


def outcomes_topic(name: str) -> NewTopic:
    """The topic of the outcome records."""
    return NewTopic(name, _OUTCOME_PARTITIONS, _FOREVER)


def retry_topic(name: str, partitions: int) -> NewTopic:
    """A topic of parked messages, with as many partitions as the topic they came from."""
    return NewTopic(name, partitions, {**_FOREVER, **_LARGE})


def cluster_topic(name: str) -> NewTopic:
    """A topic of messages on their way to another cluster, in the order of their puts."""
    return NewTopic(name, 1, {**_FOREVER, **_LARGE})


def replay_topic(name: str, partitions: int) -> NewTopic:
    """A topic of instructions to replay remaining messages; partitions as for a retry topic."""
    return NewTopic(name, partitions, {**_FOREVER, **_LARGE})


def remaining_topic(name: str, partitions: int) -> NewTopic:
    """A topic of messages that no rule could place; partitions as for a retry topic."""
    return NewTopic(name, partitions, _COMPACTED)
