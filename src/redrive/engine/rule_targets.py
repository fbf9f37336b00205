"""Targets of rules: the queue or topic that a rule names for a dead letter, and its destination."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from redrive.engine.attempts import LOOP, loop_of
from redrive.engine.message import Attempts
from redrive.messages import DeadLetterProfile, Headers
from redrive.messages import own_headers as own
from redrive.messages.reasons import Reason
from redrive.rules import (
    GROUP_TOPIC,
    Action,
    RetryTo,
    Rule,
    group_of,
    group_topic,
    is_topic_name,
    missing_insert,
    original_target,
    resolve_target,
)
from redrive.topology.names import Names
from redrive.topology.put import Destination, Refusal


class Target(NamedTuple):
    """The target of one rule for the messages of one profile."""

    names: Names
    """The queue that the rule or the group names."""
    destination: Destination | Refusal
    """Its destination, or why the attempt fails."""
    returns: bool = False
    """Whether a message returns to the partition where it failed; else the key chooses."""
    headers: tuple[tuple[str, bytes | None], ...] = ()
    """Headers about the consumer group that failed, as far as it is known."""
    group_topic: own.GroupTopic | None = None
    """The group's topic, if the rule puts to it, without the partition."""


class Resolvers(NamedTuple):
    """Resolve the names of rules to destinations or refusals."""

    names: Callable[[str, str, int], Destination | Refusal]
    """Takes a queue manager, a queue and a seed."""
    topic: Callable[[str, str], Destination | Refusal] | None = None
    """Takes FWDT's topic and its cluster; None where queues are topics of the same name."""
    group_topic: Callable[[str, str], Destination | Refusal] | None = None
    """Takes a group's topic and its original topic; None where such topics exist."""
    group_topic_form: str = GROUP_TOPIC
    """See ``group_topic``."""


class RuleTargets:
    """Finds the targets of the rules of one dead-letter queue."""

    def __init__(self, queue: str, resolvers: Resolvers, *, hop_limit: int, is_kafka: bool) -> None:
        """Take the resolvers.

        Args:
            queue: The topic of the dead-letter queue, to which no rule may put.
            resolvers: Resolve names to topics.
            hop_limit: Redrive's puts of one message before it counts as looping.
            is_kafka: Whether the table has DIALECT(KAFKA).
        """
        resolve = resolvers.names
        self._queue = queue
        self._hop_limit = hop_limit
        self._resolve = resolve
        self._resolve_topic = resolvers.topic or (lambda topic, _: resolve("", topic, 0))
        self._resolve_group_topic = resolvers.group_topic or (lambda name, _: resolve("", name, 0))
        self._group_topic_form = resolvers.group_topic_form
        self._is_kafka = is_kafka

    def of(
        self, rule: Rule, profile: DeadLetterProfile, attempts: Attempts, *, hops: int, seed: int
    ) -> Target:
        """The target of a rule that puts; the seed chooses among instances of a cluster queue."""
        is_retry = rule.action is Action.RETRY
        names = original_names(profile) if is_retry else _forward_names(rule, profile)
        loop = self.loop(profile, attempts, hops)
        original = loop or self._resolve_names(profile, rule, names, seed)
        if isinstance(original, Refusal):
            return Target(names, original)
        destination: Destination | Refusal = original
        if rule.to is RetryTo.GROUP:
            destination = self._group_destination(profile, original)
        if isinstance(destination, Refusal):
            return Target(names, destination)
        if destination is not original:
            names = Names(queue=destination.queue)
        return Target(
            names,
            destination,
            is_retry and profile.view.origin.topic == original.topic,
            tuple(self._headers(profile, rule)),
            None if destination is original else own.GroupTopic(destination.topic, original.topic),
        )

    def loop(self, profile: DeadLetterProfile, attempts: Attempts, hops: int) -> Refusal | None:
        """The refusal of messages that loop; arguments as for ``of``."""
        return loop_of(profile, hops, attempts.counted, self._hop_limit)

    def _resolve_names(
        self, profile: DeadLetterProfile, rule: Rule, names: Names, seed: int
    ) -> Destination | Refusal:
        if missing := missing_insert(rule, profile.fields):
            return Refusal(Reason.UNKNOWN_OBJECT_NAME, f"the message has no value for {missing}")
        if rule.forward_topic:
            destination = self._resolve_topic(names.queue, rule.forward_cluster)
        else:
            destination = self._resolve(names.queue_manager, names.queue, seed)
        if isinstance(destination, Destination) and destination.topic == self._queue:
            return Refusal(LOOP, "the target is the handler's own dead-letter queue")
        return destination

    def _group_destination(
        self, profile: DeadLetterProfile, original: Destination
    ) -> Destination | Refusal:
        group = failed_group(profile)
        if not group:
            detail = "the dead letter names no consumer group, so TO(GROUP) has no topic for it"
            return Refusal(Reason.UNKNOWN_OBJECT_NAME, detail)
        name = group_topic(self._group_topic_form, topic=original.topic, group=group)
        if not is_topic_name(name):
            detail = (
                f"TO(GROUP) would put to {name!r}, which is not a valid topic"
                " name: up to 249 of the characters A-Z a-z 0-9 . _ -"
            )
            return Refusal(Reason.UNKNOWN_OBJECT_NAME, detail)
        if name == original.topic:
            return original
        if name == self._queue:
            return Refusal(LOOP, "the target is the handler's own dead-letter queue")
        return self._resolve_group_topic(name, original.topic)

    def _headers(self, profile: DeadLetterProfile, rule: Rule) -> Headers:
        """The headers about the consumer group that failed, as far as it is known.

        A RETRY names the group of its round; a FWD that keeps the dead-letter header also keeps the
        original topic.
        """
        headers: Headers = []
        group = failed_group(profile)
        if self._is_kafka and rule.action is Action.RETRY and group:
            headers.append((own.GROUP, group.encode(errors="replace")))
        if rule.action is Action.FWD and rule.header and profile.group_topic:
            headers.append((own.GROUP_TOPIC, profile.group_topic.value))
        return headers


def original_names(profile: DeadLetterProfile) -> Names:
    """The queue that messages of a profile were put to before they were dead-lettered."""
    target = original_target(profile.fields)
    return Names(queue=target.queue, queue_manager=target.queue_manager)


def _forward_names(rule: Rule, profile: DeadLetterProfile) -> Names:
    target = resolve_target(rule, profile.fields)
    return Names(queue=target.queue, queue_manager=target.queue_manager)


def failed_group(profile: DeadLetterProfile) -> str:
    """The consumer group that failed; empty if it is unknown."""
    return profile.view.consumer_group or group_of(profile.fields)
