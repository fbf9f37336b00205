"""Names of an application's own topics and groups, and those of one handler."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Self

from redrive.topology.names import OWN_PREFIX, escape, shortened, unescape

_CONTROL: Final = "-control"


def own_prefix(application: str) -> str:
    """The prefix of the names of an application's own topics, groups and transactional ids."""
    return f"{OWN_PREFIX}{escape(application)}-"


def outcomes_topic(application: str) -> str:
    """The topic of an application's outcome records."""
    return f"{own_prefix(application)}outcomes"


def control_topic(application: str) -> str:
    """The control topic: which run may emit, and what the job knows of its topics."""
    return f"{OWN_PREFIX}{escape(application)}{_CONTROL}"


def applications_of(topics: Iterable[str]) -> frozenset[str]:
    """The applications with a control topic among some topics."""
    names = (
        unescape(topic.removeprefix(OWN_PREFIX).removesuffix(_CONTROL))
        for topic in topics
        if topic.startswith(OWN_PREFIX) and topic.endswith(_CONTROL)
    )
    return frozenset(filter(None, names))


def tables_topic(application: str) -> str:
    """The topic of all rules tables that have run, and of operators' commands."""
    return f"{own_prefix(application)}tables"


def retry_topic(application: str, handler: str) -> str:
    """The topic where a handler's dead letters wait for their next attempt."""
    return f"{own_prefix(application)}{escape(handler)}-retry"


def message_retry_topic(application: str, source: str) -> str:
    """The topic where messages of a transmission topic wait for a retry (MRRTY)."""
    return shortened(f"{own_prefix(application)}{escape(source)}-retry")


def remaining_topic(application: str, handler: str) -> str:
    """The topic of a handler's dead letters that no rule could place."""
    return shortened(f"{own_prefix(application)}{escape(handler)}-remaining")


def replay_topic(application: str, handler: str) -> str:
    """The topic of the instructions to replay a handler's remaining dead letters."""
    return shortened(f"{own_prefix(application)}{escape(handler)}-replay")


def cluster_topic(application: str, cluster: str) -> str:
    """The topic of messages on their way to another cluster.

    The other cluster has an empty topic of this name, so that its transactions can carry offsets.
    """
    return f"{own_prefix(application)}to-{cluster}"


def held_keys_topic(application: str) -> str:
    """The topic of waiting keys of ORDER(KEY), for consumers that park their own records."""
    return f"{own_prefix(application)}held-keys"


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerIdentity:
    """The names of one handler and of its topics."""

    name: str
    """Part of the names of the handler's own topics."""
    queue: str
    """The dead-letter queue."""
    queue_manager: str
    """Queue manager of the dead-letter queue; empty if unnamed."""
    topic: str
    """The topic of the dead-letter queue."""
    retry_topic: str
    remaining_topic: str
    replay_topic: str = ""
    """The topic of instructions to replay remaining messages; empty if there are no replays."""

    @classmethod
    def of(
        cls, application: str, topic: str, *, name: str = "", queue: str = "", manager: str = ""
    ) -> Self:
        """The identity of the handler of a topic.

        Args:
            application: Name of the application.
            topic: The topic of the dead-letter queue.
            name: Name of the handler; the topic's by default.
            queue: Name of the queue; the topic's by default.
            manager: Its queue manager.
        """
        name = name or topic
        return cls(
            name=name,
            queue=queue or topic,
            queue_manager=manager,
            topic=topic,
            retry_topic=retry_topic(application, name),
            remaining_topic=remaining_topic(application, name),
            replay_topic=replay_topic(application, name),
        )

    @property
    def backoff_topic(self) -> str:
        """Where dead letters wait under a table with BACKOFF or ORDER(KEY), a partition each delay.

        It is created when a table first has one.
        """
        return f"{self.retry_topic}-delays"

    @property
    def earlier_backoff_topic(self) -> str:
        """Where they waited in earlier versions: 16 partitions for each one of the queue."""
        return f"{self.retry_topic}-backoff"

    @property
    def waiting_topics(self) -> tuple[str, ...]:
        """The topics where dead letters wait for their next attempt; not all of them exist."""
        return self.retry_topic, self.backoff_topic, self.earlier_backoff_topic

    @property
    def own_topics(self) -> tuple[str, ...]:
        """The handler's own topics, which may not all exist."""
        return *self.waiting_topics, self.remaining_topic, self.replay_topic

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics of dead letters that are not placed yet."""
        return self.topic, *self.waiting_topics, self.remaining_topic


def instances_group(application: str) -> str:
    """The consumer group whose members are the live instances of an application."""
    return f"{own_prefix(application)}instances"
