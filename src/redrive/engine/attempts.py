"""Attempts on dead letters: failed attempts per rule, the next rule, its time, and its target.

In DIALECT(KAFKA) an attempt is a round: put and processing. A put counts its rounds in headers,
which come back with the message if its processing fails.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from redrive.engine.decision import NO_PROFILE, Put
from redrive.engine.facts import Facts, Program
from redrive.engine.message import NO_ATTEMPTS, UNKNOWN_TIME, Attempts, Message
from redrive.messages import DeadLetterProfile, Headers, with_original
from redrive.messages import own_headers as own
from redrive.messages.constants import constant_value
from redrive.messages.reasons import Reason
from redrive.messages.schemes.scheme import Stamp
from redrive.printable import counted
from redrive.rules import (
    GROUP_TOPIC,
    Action,
    Dialect,
    RetryTo,
    Rule,
    RulesTable,
    group_of,
    group_topic,
    is_topic_name,
    missing_insert,
    original_target,
    resolve_target,
    select_rule,
)
from redrive.topology.names import Names
from redrive.topology.put import Destination, Refusal

LOOP: Final = constant_value("MQRC_LOOPING_PUBLICATION") or 0
"""Reason of an attempt that would send a message in circles."""

_ORIGINALS: Final = 1_000
"""Maximum profiles to cache with their original topic."""

_CHAIN: Final = 8
"""Maximum topics of a chain of origins in a refusal."""


class AttemptCounter:
    """Counts the attempts of the rules of one table."""

    def __init__(self, table: RulesTable, queue: str) -> None:
        """Number the rules of the table; ``queue`` is its dead-letter queue's topic."""
        self._table = table
        self._table_id = table.hash[:16]
        self._queue = queue
        self._is_kafka = table.control.dialect is Dialect.KAFKA
        self.has_group_topics = any(rule.to is RetryTo.GROUP for rule in table.rules)
        """Whether rules put to topics of groups."""
        self._numbers = {id(rule): number for number, rule in enumerate(table.rules)}
        # Decisions are shared by a profile's id, so each profile gets one derived object.
        self._originals: dict[
            tuple[int, own.GroupTopic], tuple[DeadLetterProfile, DeadLetterProfile]
        ] = {}

    def next_rule(self, candidates: int, attempts: Attempts) -> int | None:
        """The number of the rule that applies after failed attempts; None if none is left.

        The candidates are the rules that match, as bits.
        """
        # In DIALECT(KAFKA) other rules may match at the next attempt, so each has its own count.
        failed = dict(attempts.by_rule) if self._is_kafka else attempts.failures
        return select_rule(self._table, candidates, failed)

    def attempts_by(self, rule: Rule, attempts: Attempts) -> int:
        """The number of attempts that a rule made."""
        return dict(attempts.by_rule).get(self._numbers[id(rule)], 0)

    def next_attempt(self, rule: Rule | None, attempts: Attempts) -> str:
        """The name of a rule's next attempt: ``round 3 of 5``, or ``attempt 3`` of a put."""
        if rule is None or not self._is_kafka or rule.action is not Action.RETRY:
            return f"attempt {attempts.failures + 1}"
        return f"round {self.attempts_by(rule, attempts) + 1} of {rule.retry}"

    def last_tried(self, attempts: Attempts) -> Rule | None:
        """The rule that most likely made the last attempt; None if there was none."""
        return self._table.rules[attempts.by_rule[-1][0]] if attempts.by_rule else None

    def add_failure(self, rule: Rule | None, before: Attempts) -> Attempts:
        """The attempts plus one failed attempt by a rule."""
        counts = dict(before.by_rule)
        if self._is_kafka and rule is not None:
            number = self._numbers[id(rule)]
            counts[number] = counts.get(number, 0) + 1
        by_rule = tuple(sorted(counts.items()))
        return Attempts(before.failures + 1, by_rule, counted=before.counted)

    def delay(self, rule: Rule | None, attempts: Attempts) -> int | None:
        """Seconds to wait before a rule's next attempt; None for RETRYINT."""
        if rule is None or rule.backoff is None:
            return None
        made = self.attempts_by(rule, attempts)
        return rule.wait_before(made, self._table.control.retry_interval)

    def wait(self, rule: Rule, attempts: Attempts) -> int:
        """Seconds from the failure of the processing to a rule's next attempt."""
        if not self._is_kafka:
            return 0
        delay = self.delay(rule, attempts)
        return self._table.control.retry_interval if delay is None else delay

    def with_earlier_rounds(
        self, message: Message, own_headers: own.OwnHeaders
    ) -> tuple[Message, Attempts]:
        """A dead letter and its failed attempts, by the rounds in Redrive's headers.

        A service may copy headers to derived events. They count only if the message comes back from
        the topic that it was put to. The headers are those of the dead letter, or of its original.
        """
        if own_headers.group_topic and not message.group_topic:  # read from the record that failed
            message = self._with_original(message, own_headers.group_topic)
        rounds, profile = own_headers.rounds, message.profile or NO_PROFILE
        if (
            rounds is not None
            and rounds.target == self._queue
            and own_headers.timestamp is not None
        ):
            # It was put here as a dead letter.
            message = message._replace(timestamp=own_headers.timestamp)
        known = message._replace(
            identity=own_headers.identity or message.identity,
            hops=own_headers.hops,
            record_time=own_headers.timestamp or 0,
        )
        if profile.stamp is Stamp.RECORD and own_headers.timestamp is not None:
            known = known._replace(timestamp=own_headers.timestamp)  # not that of the put
        if rounds is None or not self._is_kafka:
            return known, NO_ATTEMPTS
        if profile.comes_from_kafka and profile.failed_on != rounds.target:
            return message, NO_ATTEMPTS
        if message.failed_at <= rounds.put_at:  # some programs copy the time of the record
            known = known._replace(failed_at=UNKNOWN_TIME)
        known = known._replace(put_at=rounds.put_at)
        if rounds.queue != self._queue:
            return known._replace(put_at=0), NO_ATTEMPTS
        if rounds.table != self._table_id:
            return known._replace(put_at=0), Attempts(0, counted=rounds.counted)
        failures = sum(failed for _, failed in rounds.by_rule)
        return known, Attempts(failures, rounds.by_rule, counted=rounds.counted)

    def _with_original(self, message: Message, group_topic: own.GroupTopic) -> Message:
        """A dead letter whose program dropped the header with its original topic."""
        profile = message.profile or NO_PROFILE
        key = id(profile), group_topic
        if key not in self._originals:
            if len(self._originals) >= _ORIGINALS:
                self._originals.clear()
            self._originals[key] = profile, with_original(profile, group_topic)
        return message._replace(profile=self._originals[key][1], group_topic=group_topic)

    def may_lack_rounds(self, message: Message, facts: Facts) -> bool:
        """Whether a fresh dead letter may have no rounds because its program drops headers."""
        profile = message.profile or NO_PROFILE
        is_fresh = message.may_be_round or bool(message.failed_at)
        if not self._is_kafka or not is_fresh or message.hops:
            return False
        if drops_headers(profile, facts):
            return True
        return message.may_be_round and not facts.copies_headers(program_of(profile))

    def may_be_repeated(self, put: Put, facts: Facts) -> bool:
        """Whether a put may have been made before, and its message have lost its headers.

        A put to another topic than the one where the message failed can't: it was not there.
        """
        if put.rounds is None or put.rule is None:
            return False
        failed_on, topic = put.profile.failed_on, put.destination.topic
        is_elsewhere = put.rule.action is not Action.RETRY and failed_on != topic
        if is_elsewhere and not self.has_group_topics:
            return False
        return not facts.copies_headers(program_of(put.profile, topic))

    def is_counted_by_body(self, put: Put, facts: Facts, *, names_record: bool) -> bool:
        """Whether the outcome of a put has what its headers say, by a digest of key and body.

        It is looked up if the message returns without its headers, and the record that failed can't
        be asked. ``names_record`` is whether its dead letter says which record that is.
        """
        if not self.may_be_repeated(put, facts):
            return False
        target = facts.topic(put.destination.topic)
        return not names_record or not target.may_read or target.wants_keys

    def rounds_of_probe(self, rule: Rule, rounds: own.Rounds, attempts: Attempts) -> own.Rounds:
        """The rounds of a put that does not count: the earlier ones, or 0."""
        by_rule = {self._numbers[id(rule)]: 0} | dict(attempts.by_rule)
        return rounds._replace(by_rule=tuple(sorted(by_rule.items())))

    def rounds(self, rule: Rule, attempts: Attempts, destination: Destination) -> own.Rounds | None:
        """The rounds that a put carries; None if they are not counted."""
        if not self._is_kafka:
            return None
        is_counted = id(rule) in self._numbers  # a replay's rule does not count
        return own.Rounds(
            table=self._table_id,
            by_rule=(self.add_failure(rule, attempts) if is_counted else attempts).by_rule,
            counted=attempts.counted + is_counted,
            put_at=0,
            queue=self._queue,
            target=destination.topic,
        )


def program_of(profile: DeadLetterProfile, topic: str = "") -> Program:
    """The program that wrote a dead letter, or that would if its record came from a topic."""
    group = profile.view.consumer_group or ""
    return Program(profile.scheme, topic or profile.failed_on or "", group)


def drops_headers(profile: DeadLetterProfile, facts: Facts) -> bool:
    """Whether the program of a dead letter drops headers, by its scheme or by what was seen."""
    return profile.drops_headers or program_of(profile) in facts.dropping


def loop_of(profile: DeadLetterProfile, hops: int, counted: int, limit: int) -> Refusal | None:
    """The refusal of a message that loops more often than its RETRY rules explain.

    ``hops`` are Redrive's puts of it on queues, ``counted`` those by a RETRY of the queue.
    """
    # Loops through other programs, and our own rounds, leave traces in headers.
    returns = (profile.view.hop or 1) - 1 if profile.comes_from_kafka and not counted else 0
    if hops - counted + returns < limit:
        return None
    return Refusal(LOOP, _loop_text(profile, hops, returns, limit))


def _loop_text(profile: DeadLetterProfile, hops: int, returns: int, limit: int) -> str:
    before = f" and came back {counted(returns, 'time')} before" if returns else ""
    text = f"put {counted(hops, 'time')} already{before}, the limit is {limit}"
    chain = profile.origins
    if len(chain) > _CHAIN:
        chain = (*chain[: _CHAIN // 2], "...", *chain[-_CHAIN // 2 :])
    return f"{text}; it failed on {' -> '.join(chain)}" if chain else text


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
