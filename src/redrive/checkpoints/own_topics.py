"""The topics of an application's own state, and Kafka's settings for each kind."""

from __future__ import annotations

from typing import Final

from redrive.kafka.administration import NewTopic

MAX_MESSAGE_BYTES: Final = 64 * 1024 * 1024
"""Largest record of retry and remaining topics, in bytes: larger than any dead letter, whose copy
must never be refused."""
_OUTCOME_PARTITIONS: Final = 4
_FOREVER: Final = {"retention.ms": "-1", "retention.bytes": "-1"}
_LARGE: Final = {"max.message.bytes": str(MAX_MESSAGE_BYTES)}
_COMPACTED: Final = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1", **_LARGE}


def state_topic(name: str) -> NewTopic:
    """The control topic, the topic of tables and commands, or that of waiting keys.

    One partition keeps all entries in order.
    """
    return NewTopic(name, 1, {**_COMPACTED, **_FOREVER})


def outcomes_topic(name: str) -> NewTopic:
    """The topic of the outcome records."""
    return NewTopic(name, _OUTCOME_PARTITIONS, _FOREVER)


def waiting_topic(name: str, partitions: int = 1) -> NewTopic:
    """A topic of parked messages, of replay instructions, or of messages for another cluster.

    Parked messages and instructions have as many partitions as the source topic.
    """
    return NewTopic(name, partitions, {**_FOREVER, **_LARGE})


def remaining_topic(name: str, partitions: int) -> NewTopic:
    """A topic of messages that no rule could place, partitioned like the source topic."""
    return NewTopic(name, partitions, _COMPACTED)
