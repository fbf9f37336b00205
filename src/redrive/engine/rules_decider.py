"""The decider of a dead-letter queue: its rules table (rules-table specification 6)."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from redrive.engine.attempts import LOOP, AttemptCounter
from redrive.engine.breaker_guard import BreakerGuard
from redrive.engine.commands import Replay, To
from redrive.engine.deciders import Decided
from redrive.engine.decision import (
    NO_PROFILE,
    Decision,
    DecisionWriter,
    Discard,
    Keep,
    Park,
    Put,
    Skip,
    Wait,
    with_detail,
    with_edit,
)
from redrive.engine.edits import NO_EDIT, Content, Edit, changes
from redrive.engine.facts import Gone
from redrive.engine.held_keys import HeldKeys
from redrive.engine.message import NO_ATTEMPTS, Attempts, Message
from redrive.engine.names import HandlerIdentity
from redrive.engine.outcome import Result
from redrive.engine.pointers import original_of, own_headers_of_original, restored
from redrive.engine.profiles import ProfileMatcher
from redrive.engine.put_descriptor import PERSISTENCE_AS_QUEUE_IS_DEFINED, settled
from redrive.engine.rule_targets import RuleTargets
from redrive.messages import (
    DeadLetterProfile,
    OutputRecord,
    TopicPartition,
    decode_dead_letter,
    original_key,
    remove_header,
    with_original,
    without_stacks,
)
from redrive.messages import own_headers as own
from redrive.messages.constants import constant_value
from redrive.messages.reasons import Reason
from redrive.messages.schemes import KNOWN, SchemeTable
from redrive.rules import (
    GROUP_TOPIC,
    Action,
    Rule,
    RulesTable,
)
from redrive.rules.backoff import jitter_of
from redrive.topology.names import Names
from redrive.topology.put import Destination, Refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from redrive.engine.breaker import BreakerSettings
    from redrive.engine.context import SliceContext
    from redrive.engine.transforms import Transform

__all__ = ["LOOP", "NO_PAYLOAD", "RulesDecider"]

NO_PAYLOAD: Final = constant_value("MQRC_NO_MSG_AVAILABLE") or 0
"""Reason of a dead letter that points at a payload which cannot be read."""
NO_TRANSFORMS: Final[Mapping[str, Transform]] = MappingProxyType({})


class RulesDecider:
    """One dead-letter queue and its rules table; see ``redrive.engine.deciders.Decider``.

    This class is responsible for:
        - which rule applies to a dead letter after its failed attempts;
        - the destination of that rule, in names and, through the resolver, in topics;
        - what follows when the put fails.
    """

    def __init__(
        self,
        identity: HandlerIdentity,
        table: RulesTable,
        resolve: Callable[[str, str, int], Destination | Refusal],
        *,
        hop_limit: int,
        resolve_topic: Callable[[str, str], Destination | Refusal] | None = None,
        resolve_group_topic: Callable[[str, str], Destination | Refusal] | None = None,
        group_topic_form: str = GROUP_TOPIC,
        schemes: SchemeTable = KNOWN,
        transforms: Mapping[str, Transform] = NO_TRANSFORMS,
        breaker: BreakerSettings | None = None,
        flood_limit: int = 0,
    ) -> None:
        """Build the index of the table.

        Args:
            identity: The handler's names.
            table: The rules table.
            resolve: Queue manager, queue name and seed to a destination or a refusal.
            hop_limit: Redrive's puts of one message before it counts as looping.
            resolve_topic: FWDT's topic and the cluster that it names, to a destination or a
                refusal; None where queues are topics of the same name.
            resolve_group_topic: The topic of a group's rounds, and the topic that it stands for, to
                a destination or a refusal; None where such topics exist.
            group_topic_form: See ``group_topic``.
            schemes: The schemes of dead letters to look for.
            transforms: What TRANSFORM of the table may name.
            breaker: When retries wait for their target; None for never.
            flood_limit: The most new dead letters of a minute that are handled; 0 for all.
        """
        self.identity = identity
        self.table = table
        self.table_id = table.hash[:16]
        self.by_priority = False
        self.schemes = schemes
        self.flood_limit = flood_limit
        self.profiles = ProfileMatcher(table, schemes)
        self._transforms = transforms
        self._targets = RuleTargets(
            identity.topic,
            resolve,
            hop_limit=hop_limit,
            resolve_topic=resolve_topic,
            resolve_group_topic=resolve_group_topic,
            group_topic_form=group_topic_form,
            is_kafka=self.profiles.is_kafka,
        )
        self._decisions = DecisionWriter(
            identity, self.table_id, identity.queue_manager, expects_dead_letters=True
        )
        self.attempts = AttemptCounter(table, identity.topic)
        self.held_keys = (
            HeldKeys(identity, table, self.interval, self._decisions)
            if table.control.is_ordered
            else None
        )
        self.guard = None
        if breaker is not None:
            self.guard = BreakerGuard(
                identity.name, breaker.failures, self.attempts, self._decisions
            )

    # -- one message -----------------------------------------------------------------------------

    def decide(
        self,
        message: Message,
        attempts: Attempts,
        facts: SliceContext,
        *,
        entry: int = 0,
        replay: Replay | None = None,
    ) -> Decided:
        """See ``Decider.decide``."""
        gone: Gone | None = None
        if message.cut:
            whole = restored(message, facts.facts)
            if isinstance(whole, Gone):
                gone = whole
            else:
                message = whole if whole.cut else self._decoded(whole)
        message, attempts, unknown = self.identified(message, attempts, facts)
        detail = ""
        if unknown is not None and unknown.may_come:
            gone = unknown
        elif unknown is not None:
            detail = f"how often it was tried is not known: {unknown.detail}"
        decided = self._decided(message, attempts, facts, entry=entry, replay=replay, gone=gone)
        if detail:
            return decided._replace(decision=with_detail(decided.decision, detail))
        return decided

    def identified(
        self, message: Message, attempts: Attempts, facts: SliceContext
    ) -> tuple[Message, Attempts, Gone | None]:
        """A message with the identity and the rounds that its program may have dropped.

        Args:
            message: The message as it was read.
            attempts: The failed ones, as they were read.
            facts: What is known of the cluster.

        Returns:
            The message, its failed attempts, and why they are not known if so.
        """
        if attempts != NO_ATTEMPTS or not self.attempts.may_lack_rounds(message):
            return message, attempts, None
        mine = own_headers_of_original(message, self.schemes, facts.facts)
        if isinstance(mine, Gone):
            return message, attempts, mine
        return *self.attempts.returned(message, mine), None

    def _decided(
        self,
        message: Message,
        attempts: Attempts,
        facts: SliceContext,
        *,
        entry: int,
        replay: Replay | None,
        gone: Gone | None,
    ) -> Decided:
        """The decision about a message, a part of which may be gone."""
        if self.profiles.is_kafka:
            profile = self.profiles.matched(message, facts.now)
        else:
            profile = message.profile or NO_PROFILE
        decision = facts.cache.decide(self, profile, attempts, message, replay)
        if self.guard is None or replay is not None:
            return self._tried(message, decision, attempts, facts, entry=entry, gone=gone)
        if message.put_at:
            self.guard.note_return(profile, attempts, message.put_at, facts)

        def attempt(tried: Decision) -> Decided:
            return self._tried(message, tried, attempts, facts, entry=entry, gone=gone)

        return self.guard.decided(message, decision, attempts, facts, attempt)

    def _tried(
        self,
        message: Message,
        decision: Decision,
        attempts: Attempts,
        facts: SliceContext,
        *,
        entry: int,
        gone: Gone | None,
    ) -> Decided:
        """A decision, carried out as far as a put can be known to succeed."""
        if isinstance(decision, Put):
            if gone is not None:
                return Decided(message, self._without_payload(decision, gone, facts))
            if message.failed_at and facts.is_waiting(message, decision.wait):
                return Decided(message, facts.cache.shared(self.waiting, decision))
            return self._put(message, decision, attempts, facts, entry)
        if gone is not None and isinstance(decision, Keep):
            decision = with_detail(decision, gone.detail)
        return Decided(message, decision)

    def _decoded(self, message: Message) -> Message:
        """A message whose copy was cut, with the profile of the whole message."""
        profile = decode_dead_letter(
            message.value, message.headers, key=message.key, schemes=self.schemes
        )
        return message._replace(profile=with_original(profile, message.group_topic))

    def _put(
        self, message: Message, put: Put, attempts: Attempts, facts: SliceContext, entry: int
    ) -> Decided:
        """A put, or the decision after it failed."""
        source, decision = message, put
        if put.profile.view.pointer:
            found = original_of(message, self.schemes, facts.facts)
            if isinstance(found, Gone):
                return Decided(message, self._without_payload(put, found, facts))
            if found.hops > message.hops:
                again = facts.cache.decide(self, put.profile, attempts, found, put.replay)
                if not isinstance(again, Put):
                    return Decided(message, again)
                decision = again
            source = found
        record, edit = self._record(source, decision, facts)
        if isinstance(record, Refusal):  # its sentence may be of this message alone: not cached
            return Decided(message, self.on_refusal(decision, record))
        persistence = int(decision.profile.fields.get("PERSIST", 0))
        if persistence == PERSISTENCE_AS_QUEUE_IS_DEFINED:
            persistence = decision.destination.persistence
        refusal = facts.check(entry, record, persistence, decision.destination)
        if refusal is not None:
            return Decided(message, facts.cache.shared(self.on_refusal, decision, refusal))
        return Decided(message, with_edit(decision, edit), ((entry, record),))

    def _without_payload(self, put: Put, gone: Gone, facts: SliceContext) -> Decision:
        """The decision to keep a dead letter whose payload cannot be read."""
        if gone.may_come:
            return facts.cache.shared(self.on_refusal, put, Refusal(NO_PAYLOAD, gone.detail))
        return self._decisions.write(
            Keep,
            Result.REMAINS,
            put.profile,
            attempts=put.attempts,
            attempt=0,
            rule=put.rule,
            target=put.target,
            reason=NO_PAYLOAD,
            detail=gone.detail,
            of_kind={"is_worth_logging": True},
            replay=put.replay,
        )

    def _record(
        self, message: Message, put: Put, facts: SliceContext
    ) -> tuple[OutputRecord | Refusal, str]:
        """The record that a put writes or why there is none, and what was changed in it."""
        key, value, headers = message.key, message.value, message.headers
        if put.strip:
            key = original_key(put.profile, key, headers)
            value, headers = remove_header(put.profile, value, headers)
        else:
            headers = without_stacks(put.profile, headers)
        edit = ""
        transform = put.rule.transform if put.rule else ""
        edited = put.replay.edit if put.replay else NO_EDIT
        if transform or edited:
            before = Content(value, headers)
            after = self._changed(before, transform, edited)
            if isinstance(after, Refusal):
                return after, ""
            (value, headers), edit = after, changes(before, after)
        headers = [
            *settled(headers, put.destination),
            (own.ID, message.identity.encode("ascii")),
            *put.added_headers(facts.now),
            (own.HOPS, own.number(message.hops + 1)),
        ]
        topic = put.destination.topic
        partition = facts.facts.topic(topic).partition(put.partition)
        return OutputRecord(topic, key, value, headers, message.timestamp, partition), edit

    def _changed(self, content: Content, transform: str, edit: Edit) -> Content | Refusal:
        """What is put of a content; the operator's edit comes last, as the preview shows it."""
        if transform:
            known = self._transforms.get(transform)
            if known is None:
                detail = f"the settings have no [transforms.{transform}]"
                return Refusal(Reason.FORMAT_ERROR, detail)
            changed = known.applied(content)
            if isinstance(changed, Refusal):
                return changed
            content = changed
        return edit.applied(content)

    # -- all messages of a profile ---------------------------------------------------------------

    def decide_profile(
        self,
        profile: DeadLetterProfile,
        attempts: Attempts,
        *,
        hops: int,
        seed: int = 0,
        replay: Replay | None = None,
    ) -> Decision:
        """Decide about the messages of a profile, before a put is tried (specification 6.1).

        A replay carries its own rule for a remaining message: if the put fails, the message stays
        where it was, and no rule of the table follows. A parked message continues with the table,
        or remains.

        Args:
            profile: Their failure, as their headers describe it.
            attempts: Their failed attempts.
            hops: Redrive's puts of them on queues.
            seed: Decides among equal instances of a cluster queue.
            replay: The operator's decision about them.
        """
        if replay is not None and replay.to is To.REMAIN:
            why = f"{replay.operator} wants no more attempts"
            return self._keep(profile, attempts, None, why, replay)
        rule = None if replay is None else replay.rule
        if rule is not None:
            return self._applied(profile, rule, attempts, hops=hops, seed=seed, replay=replay)
        if replay is not None and replay.to is not To.ATTEMPT:
            attempts = NO_ATTEMPTS
        return self._by_table(profile, attempts, hops=hops, seed=seed, replay=replay)

    def _by_table(
        self,
        profile: DeadLetterProfile,
        attempts: Attempts,
        *,
        hops: int,
        seed: int,
        replay: Replay | None,
    ) -> Decision:
        """The decision of the first matching rule that has attempts left."""
        if not profile.is_dead_letter:
            return self._keep(profile, attempts, None, profile.problem, replay)
        if attempts.is_quarantined:
            return self._keep(profile, attempts, None, "in quarantine, no rule is asked", replay)
        candidates = self.profiles.candidates_of(profile)
        index = self.attempts.following(candidates, attempts)
        if index is None:
            why = f"all {attempts.failures} attempts failed" if candidates else "no rule matches"
            return self._keep(profile, attempts, None, why, replay)
        rule = self.table.rules[index]
        if self.profiles.is_kafka and rule.action.can_fail:
            loop = self._targets.loop(profile, attempts, hops)
            if loop is not None:
                kept = attempts._replace(is_quarantined=True)
                return self._keep(profile, kept, None, loop.detail, replay, reason=loop.reason)
        return self._applied(profile, rule, attempts, hops=hops, seed=seed, replay=replay)

    def on_refusal(self, decision: Put, refusal: Refusal) -> Decision:
        """The decision after a failed put: the next attempt, or the message remains."""
        return self._after_failure(
            decision.profile,
            decision.rule,
            decision.attempts,
            target=decision.target,
            refusal=refusal,
            replay=decision.replay,
        )

    def waiting(self, decision: Put) -> Wait:
        """The decision to wait until a put's delay is over."""
        rule = decision.rule
        assert rule is not None, "only rules of a table have delays"
        name = self.attempts.following_name(rule, decision.attempts)
        return self._decisions.write(
            Wait,
            Result.PARKED,
            decision.profile,
            attempts=decision.attempts,
            attempt=decision.attempt,
            rule=rule,
            target=decision.target,
            detail=f"{name} is {decision.wait} s after the failure",
            of_kind={"delay": self.attempts.delay(rule, decision.attempts)},
        )

    def flooded(self, profile: DeadLetterProfile, attempts: Attempts, why: str) -> Keep:
        """The decision to keep a dead letter beyond the flood limit.

        Args:
            profile: The messages.
            attempts: Their failed attempts.
            why: What the limit says.
        """
        return self._keep(profile, attempts, None, why, None)

    def skip(
        self, profile: DeadLetterProfile, result: Result, detail: str, replay: Replay | None
    ) -> Skip:
        """The decision to leave a message as it is.

        Args:
            profile: Its failure, as its headers describe it.
            result: ``SKIPPED`` or ``CANCELLED``.
            detail: Why.
            replay: The replay that is about it, if known.
        """
        return self._decisions.write(
            Skip,
            result,
            profile,
            attempt=0,
            detail=detail,
            replay=replay,
        )

    # -- waiting ---------------------------------------------------------------------------------

    def waiting_place(self, message: Message, decision: Park, partition: int) -> TopicPartition:
        """See ``Decider.waiting_place``; a BACKOFF chooses the partition by the wait."""
        if decision.delay is None:
            return TopicPartition(self.identity.retry_topic, partition)
        jitter = jitter_of(message.identity, decision.attempts.failures)
        partition = self.table.backoff_partitions.partition(partition, decision.delay, jitter)
        return TopicPartition(self.identity.backoff_topic, partition)

    def parked(self, message: Message, rule: Rule | None, attempts: Attempts) -> Park:
        """The decision that parked a message, with only the time of the next attempt.

        Args:
            message: The message.
            rule: The rule of the next attempt; None if unknown.
            attempts: The failed ones.
        """
        return self._decisions.write(
            Park,
            Result.PARKED,
            message.profile or NO_PROFILE,
            attempts=attempts,
            attempt=attempts.failures,
            rule=rule,
            of_kind={"delay": self.attempts.delay(rule, attempts)},
        )

    def interval(self, lane: TopicPartition) -> float:
        """See ``Decider.interval``."""
        if lane.topic == self.identity.backoff_topic:
            return self.table.backoff_partitions.seconds(lane.partition)
        return self.table.control.retry_interval

    # -- rules -----------------------------------------------------------------------------------

    def _applied(
        self,
        profile: DeadLetterProfile,
        rule: Rule,
        attempts: Attempts,
        *,
        hops: int,
        seed: int,
        replay: Replay | None,
    ) -> Decision:
        """The decision of a rule about messages of a profile."""
        match rule.action:
            case Action.IGNORE:
                why = f"ignored by the rule at line {rule.line}"
                return self._keep(profile, attempts, rule, why, replay)
            case Action.QUARANTINE:
                kept = attempts._replace(is_quarantined=True)
                why = f"quarantined by the rule at line {rule.line}"
                return self._keep(profile, kept, rule, why, replay)
            case Action.DISCARD:
                return self._decisions.write(
                    Discard,
                    Result.DISCARDED,
                    profile,
                    attempts=attempts,
                    attempt=attempts.failures + 1,
                    rule=rule,
                    replay=replay,
                )
        target = self._targets.of(rule, profile, attempts, hops=hops, seed=seed)
        names, destination = target.names, target.destination
        if isinstance(destination, Refusal):
            return self._after_failure(
                profile, rule, attempts, target=names, refusal=destination, replay=replay
            )
        is_retry = rule.action is Action.RETRY
        return self._decisions.write(
            Put,
            Result.RETRIED if is_retry else Result.FORWARDED,
            profile,
            attempts=attempts,
            attempt=attempts.failures + 1,
            rule=rule,
            target=names,
            destination=destination,
            replay=replay,
            of_kind={
                "partition": target.partition,
                "strip": is_retry or not rule.header,
                "wait": self.attempts.wait(rule, attempts) if is_retry and replay is None else 0,
                "rounds": self.attempts.rounds(rule, attempts, destination),
                "headers": (
                    *destination.headers,
                    (own.RULE, own.number(rule.line)),
                    (own.TABLE, self.table_id.encode("ascii")),
                    *target.headers,
                ),
            },
        )

    def _after_failure(
        self,
        profile: DeadLetterProfile,
        rule: Rule | None,
        before: Attempts,
        *,
        target: Names,
        refusal: Refusal,
        replay: Replay | None,
    ) -> Park | Keep:
        """The decision after a rule's failed attempt: the next one, or the message remains."""
        attempts, following = before, None
        # Otherwise the table decided nothing, or its next attempt would lack the edit.
        if replay is None or (replay.to in {To.RULES, To.ATTEMPT} and not replay.edit):
            attempts = self.attempts.counted(rule, before)
            candidates = self.profiles.candidates_of(profile)
            following = self.attempts.following(candidates, attempts)
        header = profile.header
        is_known = header is not None and (refusal.reason, target) == (
            header.reason,
            Names(queue=header.dest_q_name, queue_manager=header.dest_q_mgr_name),
        )
        kind: type[Park | Keep] = Keep
        delay: dict[str, int | None] = {}
        if following is not None:
            kind, delay = (
                Park,
                {"delay": self.attempts.delay(self.table.rules[following], attempts)},
            )
        return self._decisions.write(
            kind,
            Result.REMAINS if following is None else Result.PARKED,
            profile,
            attempts=attempts,
            attempt=before.failures + 1,
            rule=rule,
            target=target,
            reason=refusal.reason,
            detail=refusal.detail,
            replay=replay,
            of_kind={"is_worth_logging": not is_known, **delay},
        )

    def _keep(
        self,
        profile: DeadLetterProfile,
        attempts: Attempts,
        rule: Rule | None,
        detail: str,
        replay: Replay | None,
        *,
        reason: int = 0,
    ) -> Keep:
        return self._decisions.write(
            Keep,
            Result.REMAINS,
            profile,
            attempts=attempts,
            attempt=0,
            rule=rule,
            reason=reason,
            detail=detail,
            replay=replay,
        )
