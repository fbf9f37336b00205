"""The topics of an application's own state, and Kafka's settings for each kind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from redrive.kafka.administration import NewTopic
from redrive.kafka.facts import DEFAULT_MAX_MESSAGE_BYTES

LEAST_MESSAGE_BYTES: Final = 640 * 1024
"""What each of these topics has to accept, in bytes: what larger copies are cut to, with Redrive's
own headers."""
MAX_MESSAGE_BYTES: Final = 64 * 1024 * 1024
"""Largest record of retry and remaining topics, in bytes: larger than any dead letter, whose copy
must never be refused."""
_POLICY: Final = "cleanup.policy"
_STAMP: Final = "message.timestamp.type"
_MAX_BYTES: Final = "max.message.bytes"
_OUTCOME_PARTITIONS: Final = 4
_WEEK: Final = 7 * 86_400_000
"""Milliseconds for which lost positions are found again in the outcomes, as brokers keep offsets of
a group without members for as long."""
_FOREVER: Final = {"retention.ms": "-1", "retention.bytes": "-1"}
_LARGE: Final = {_MAX_BYTES: str(MAX_MESSAGE_BYTES)}
_COMPACTED: Final = {_POLICY: "compact", "min.cleanable.dirty.ratio": "0.1", **_LARGE}


@dataclass(frozen=True, slots=True)
class OwnTopic(NewTopic):
    """A topic of an application's own state, and the settings without which it loses some."""

    least_retention: int = 0
    """Milliseconds that are enough as ``retention.ms``; 0 if it must delete nothing."""

    def corrections(self, existing: Mapping[str, Any]) -> dict[str, str]:
        """The settings to change on an existing topic with these settings, so that it is safe.

        Unknown settings count as right.
        """
        return dict(self._corrections(existing))

    def _corrections(self, existing: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        policy = self.settings.get(_POLICY, "delete")
        if str(existing.get(_POLICY) or policy) != policy:
            yield _POLICY, policy
        for name in _FOREVER if policy == "delete" else ():
            enough = self.least_retention if name == "retention.ms" else 0
            kept = int(existing.get(name) or -1)
            if kept >= 0 and not 0 < enough <= kept:
                yield name, "-1"
        stamp = self.settings.get(_STAMP)
        if stamp and str(existing.get(_STAMP) or stamp) != stamp:
            yield _STAMP, stamp
        if int(existing.get(_MAX_BYTES) or MAX_MESSAGE_BYTES) < LEAST_MESSAGE_BYTES:
            yield _MAX_BYTES, self.settings.get(_MAX_BYTES, str(DEFAULT_MAX_MESSAGE_BYTES))


def state_topic(name: str) -> OwnTopic:
    """The control topic, the topic of tables and commands, or that of waiting keys.

    One partition keeps all entries in order.
    """
    return OwnTopic(name, 1, {**_COMPACTED, **_FOREVER})


def outcomes_topic(name: str) -> OwnTopic:
    """The topic of the outcome records."""
    return OwnTopic(name, _OUTCOME_PARTITIONS, _FOREVER, least_retention=_WEEK)


def waiting_topic(name: str, partitions: int = 1) -> OwnTopic:
    """A topic of parked messages, of replay instructions, or of messages for another cluster.

    Parked messages and instructions have as many partitions as the source topic. When a message is
    due, and what time it is put with, depends on the timestamp of its copy.
    """
    return OwnTopic(name, partitions, {**_FOREVER, **_LARGE, _STAMP: "CreateTime"})


def remaining_topic(name: str, partitions: int) -> OwnTopic:
    """A topic of messages that no rule could place, partitioned like the source topic."""
    return OwnTopic(name, partitions, _COMPACTED)
