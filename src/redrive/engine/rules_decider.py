"""The decider of a dead-letter queue: its rules table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from redrive.engine.attempts import (
    AttemptCounter,
    Resolvers,
    RuleTargets,
    drops_headers,
    failed_group,
    program_of,
)
from redrive.engine.breaker import PROBE, BreakerSettings, OpenBreaker, breaker_of, is_refused
from redrive.engine.cache import DecisionCache, PreparedPut, ProfileMatcher, put_bounds
from redrive.engine.commands import Replay, To
from redrive.engine.context import Decided, SliceContext
from redrive.engine.decision import (
    NO_PROFILE,
    Decision,
    DecisionWriter,
    Discard,
    Hold,
    Keep,
    Park,
    Put,
    Skip,
    Suspend,
    TimestampMode,
    Wait,
    with_detail,
    with_edit,
)
from redrive.engine.edits import Change
from redrive.engine.facts import Gone
from redrive.engine.message import NO_ATTEMPTS, Attempts, Message, seed_of
from redrive.engine.names import HandlerIdentity
from redrive.engine.ordering import Ahead, Round
from redrive.engine.outcome import Result
from redrive.engine.pointers import (
    NO_PAYLOAD,
    failed_record,
    original_of,
    own_headers_of_original,
    own_headers_of_put,
    restore_dead_letter,
    with_own_headers,
)
from redrive.engine.put_decider import PutAttempt, PutDecider
from redrive.engine.put_record import PutTimes, persistence_of, record_of
from redrive.messages import DeadLetterProfile, TopicPartition
from redrive.messages import own_headers as own
from redrive.messages.dead_letters import names_offset, origin_partition
from redrive.messages.reports import ReportKind
from redrive.messages.schemes import KNOWN, SchemeTable
from redrive.rules import Action, Rule, RulesTable
from redrive.rules.backoff import HOLDS, jitter_of
from redrive.topology.names import NO_NAMES, Names
from redrive.topology.put import Refusal


class HeldKeys:
    """Makes messages of one dead-letter queue wait behind earlier ones of their key."""

    def __init__(
        self,
        identity: HandlerIdentity,
        table: RulesTable,
        interval: Callable[[TopicPartition], float],
        decisions: DecisionWriter,
    ) -> None:
        self._identity = identity
        self._delays = table.backoff_partitions
        self._interval = interval
        self._decisions = decisions

    def hold(self, message: Message, attempts: Attempts, ahead: Ahead, now: int) -> Hold:
        """The decision to wait behind earlier messages; ``now`` in milliseconds.

        It is decided again soon after the message ahead may have moved, and later if more messages
        are ahead. No failed attempt is added.
        """
        seconds = float(min(ahead.messages, HOLDS[-1]))
        lane, (position, since) = ahead.lane, ahead.first
        if lane is not None and lane.topic == self._identity.remaining_topic:
            seconds = HOLDS[-1]
        elif lane is not None:
            seconds = max(seconds, since / 1000 + self._interval(lane) - now / 1000)
        identity = position.identity
        return self._decisions.write(
            Hold,
            Result.PARKED,
            message.profile or NO_PROFILE,
            attempts=attempts,
            attempt=0,
            detail=f"waits behind {identity}, which has its key",
            of_kind={"behind": identity, "delay": self._delays.longest_within(seconds)},
        )

    def round_of(self, decided: Decided, home: int, now: int) -> Round | None:
        """The round that a decision begins; None if its message is not processed again.

        ``home`` is the message's partition of the dead-letter queue, ``now`` the time of the put in
        milliseconds.
        """
        put = decided.decision
        if not isinstance(put, Put) or put.rule is None or put.rule.action is not Action.RETRY:
            return None
        ((_, record),) = decided.records
        letters = TopicPartition(self._identity.topic, home)
        return Round(record.topic, record.partition, failed_group(put.profile), now, letters)

    def note_place(self, noted: Round, now: int) -> TopicPartition:
        """Where the note of a round waits: longer for an older round."""
        age = (now - noted.put_at) / 1000
        delay = self._delays.longest_within(min(age / 4, HOLDS[-1]))
        partition = self._delays.partition(noted.letters.partition, delay, 0)
        return TopicPartition(self._identity.backoff_topic, partition)


class BreakerGuard:
    """Makes retries of one rules table wait while their breakers are open."""

    def __init__(
        self,
        handler: str,
        settings: BreakerSettings,
        attempts: AttemptCounter,
        decisions: DecisionWriter,
    ) -> None:
        self.failures = settings.failures
        self._handler = handler
        self._attempts = attempts
        self._decisions = decisions

    def decide(
        self,
        message: Message,
        decision: Decision,
        attempts: Attempts,
        facts: SliceContext,
        attempt: Callable[[Decision], Decided],
    ) -> Decided:
        """The result of a decision under its breaker: an attempt, a probe, or a wait.

        ``attempt`` carries out a decision about the message.
        """
        key = breaker_of(self._handler, decision.rule, decision.profile)
        if key is None:
            return attempt(decision)
        breaker = facts.breakers.of(key)
        is_tried = isinstance(decision, Put) or is_refused(decision)
        if not is_tried or (message.failed_at and facts.is_waiting(message, decision.wait)):
            return attempt(decision)
        if breaker is not None and not facts.breakers.admits(key, breaker):
            return Decided(message, decision.derive(self._suspend, attempts, breaker.detail))
        tried = decision
        if breaker is not None and not breaker.is_tried and isinstance(decision, Put):
            tried = decision.derive(self._probe, attempts, breaker.detail)
        decided = attempt(tried)
        if not is_refused(decided.decision):
            return decided
        facts.breakers.refuse(key, decided.decision.detail)
        if breaker is None:
            return decided
        return Decided(message, decision.derive(self._suspend, attempts, breaker.detail))

    def note_return(
        self, profile: DeadLetterProfile, attempts: Attempts, put_at: int, facts: SliceContext
    ) -> None:
        """Count a returned round, put at a time in milliseconds, for its rule's breaker.

        The last of the failed attempts was by that rule.
        """
        key = breaker_of(self._handler, self._attempts.last_tried(attempts), profile)
        if key is not None:
            facts.breakers.note_return(key, put_at)

    def open_breaker(self, decision: Decision, facts: SliceContext) -> OpenBreaker | None:
        """The breaker of a decision, if it is open."""
        if not facts.breakers:
            return None
        key = breaker_of(self._handler, decision.rule, decision.profile)
        return None if key is None else facts.breakers.of(key)

    def _suspend(self, decision: Decision, attempts: Attempts, why: str) -> Suspend:
        return self._decisions.write(
            Suspend,
            Result.PARKED,
            decision.profile,
            attempts=attempts,
            attempt=attempts.failures + 1,
            rule=decision.rule,
            target=decision.target,
            detail=why,
            of_kind={"delay": self._attempts.delay(decision.rule, attempts)},
        )

    def _probe(self, put: Put, attempts: Attempts, why: str) -> Put:
        """A put whose round does not count."""
        rounds = put.rounds
        if rounds is not None and put.rule is not None:
            rounds = self._attempts.rounds_of_probe(put.rule, rounds, attempts)
        return with_detail(replace(put, rounds=rounds), f"{PROBE}: {why}")


NO_TRANSFORMS: Final[Mapping[str, Change]] = MappingProxyType({})


class _Case(NamedTuple):
    """Equal messages before an attempt; see ``RulesDecider.decide_profile``."""

    profile: DeadLetterProfile
    attempts: Attempts
    hops: int = 0
    seed: int = 0
    replay: Replay | None = None

    @property
    def in_quarantine(self) -> _Case:
        return self._replace(attempts=self.attempts._replace(is_quarantined=True))


class RulesDecider:
    """One dead-letter queue and its rules table; see ``redrive.engine.context.Decider``.

    It chooses the rule for a dead letter after its failed attempts, and what follows when the put
    fails.
    """

    def __init__(
        self,
        identity: HandlerIdentity,
        table: RulesTable,
        resolvers: Resolvers,
        *,
        hop_limit: int,
        schemes: SchemeTable = KNOWN,
        transforms: Mapping[str, Change] = NO_TRANSFORMS,
        breaker: BreakerSettings | None = None,
        timestamps: TimestampMode = TimestampMode.AUTO,
        puts: PutDecider | None = None,
    ) -> None:
        """Build the index of the table.

        Args:
            identity: The handler's names.
            table: The rules table.
            resolvers: Resolve the names of rules to topics.
            hop_limit: Redrive's puts of one message before it counts as looping.
            schemes: The schemes of dead letters to look for.
            transforms: The transforms that TRANSFORM of the table may name.
            breaker: When retries wait for their target; None for never.
            timestamps: The timestamps of the records that are put.
            puts: Decides puts at the handler's queue manager, which reports arrivals; None where
                there are no reports.
        """
        self.identity = identity
        self.table = table
        self.table_id = table.hash[:16]
        self.by_priority = False
        self.schemes = schemes
        self.profiles = ProfileMatcher(table, schemes)
        self._transforms, self._puts, self._timestamps = transforms, puts, timestamps
        self._targets = RuleTargets(
            identity.topic, resolvers, hop_limit=hop_limit, is_kafka=self.profiles.is_kafka
        )
        self._decisions = DecisionWriter(
            identity, self.table_id, identity.queue_manager, expects_dead_letters=True
        )
        self.attempts = AttemptCounter(table, identity.topic)
        self._cache = DecisionCache()
        self.held_keys = self.guard = None
        if table.control.is_ordered:
            self.held_keys = HeldKeys(identity, table, self.interval, self._decisions)
        if breaker is not None:
            self.guard = BreakerGuard(identity.name, breaker, self.attempts, self._decisions)

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
            whole = restore_dead_letter(message, self.schemes, facts.facts)
            if isinstance(whole, Gone):
                gone = whole
            else:
                message = whole
        message, attempts, unknown = self.identify(message, attempts, facts)
        if unknown is not None and unknown.may_come:
            gone = unknown
        decided = self._decide_known(
            message, attempts, facts, entry=entry, replay=replay, gone=gone
        )
        if unknown is None or unknown.may_come:
            return decided
        detail = f"the number of its attempts is unknown: {unknown.detail}"
        return decided._replace(decision=with_detail(decided.decision, detail))

    def identify(
        self, message: Message, attempts: Attempts, facts: SliceContext
    ) -> tuple[Message, Attempts, Gone | None]:
        """A message with the identity and the rounds that its program may have dropped.

        Returns:
            The message, its failed attempts, and why they are unknown if so.
        """
        known, profile = facts.facts, message.profile or NO_PROFILE
        if message.put_at and not message.may_be_round:
            known.note_copied(program_of(profile))
        if attempts != NO_ATTEMPTS or not self.attempts.may_lack_rounds(message, known):
            return message, attempts, None
        is_dropped = drops_headers(profile, known)
        if not is_dropped and not self._may_be_repeated(message, facts):
            return message, attempts, None
        own_headers = own_headers_of_original(message, self.schemes, known)
        if isinstance(own_headers, Gone):
            if own_headers.may_come and not own_headers.is_denied:
                return message, attempts, own_headers
            if message.may_be_round:
                last = own_headers_of_put(message, known)
                if last.rounds is not None:
                    return *self.attempts.with_earlier_rounds(message, last), None
            is_unknown = is_dropped and not own_headers.is_denied
            return message, attempts, own_headers if is_unknown else None
        if own_headers.rounds is not None and own_headers.rounds.target == profile.failed_on:
            known.note_dropped(program_of(profile))
        return *self.attempts.with_earlier_rounds(message, own_headers), None

    def _may_be_repeated(self, message: Message, facts: SliceContext) -> bool:
        """Whether the first put of a message by this table may be one that was made before."""
        if self.attempts.has_group_topics:  # the rule of the original topic may be another one
            return True
        profile = self.profiles.match(message, facts.now)
        first = self.decision_of(message, profile, NO_ATTEMPTS, facts)
        return isinstance(first, Put) and self.attempts.may_be_repeated(first, facts.facts)

    def _decide_known(
        self,
        message: Message,
        attempts: Attempts,
        facts: SliceContext,
        *,
        entry: int,
        replay: Replay | None,
        gone: Gone | None,
    ) -> Decided:
        if self.profiles.is_kafka:
            profile = self.profiles.match(message, facts.now)
        else:
            profile = message.profile or NO_PROFILE
        decision = self.decision_of(message, profile, attempts, facts, replay)
        if self.guard is None or replay is not None:
            return self._attempt(message, decision, attempts, facts, entry=entry, gone=gone)
        if message.put_at:
            self.guard.note_return(profile, attempts, message.put_at, facts)

        def attempt(tried: Decision) -> Decided:
            return self._attempt(message, tried, attempts, facts, entry=entry, gone=gone)

        return self.guard.decide(message, decision, attempts, facts, attempt)

    def _attempt(
        self,
        message: Message,
        decision: Decision,
        attempts: Attempts,
        facts: SliceContext,
        *,
        entry: int,
        gone: Gone | None,
    ) -> Decided:
        """A decision, carried out as far as a put is known to succeed."""
        if gone is not None and isinstance(decision, Put):
            return Decided(message, self._without_payload(decision, gone))
        if message.failed_at and facts.is_waiting(message, decision.wait):
            if isinstance(decision, Put):
                decision = PutTimes.of(decision, facts).decided(message, decision)
            return Decided(message, decision.derive(self.wait, attempts))
        if isinstance(decision, Put):
            return self._put(message, decision, attempts, facts, entry)
        if gone is not None and isinstance(decision, Keep):
            decision = with_detail(decision, gone.detail)
        return Decided(message, decision)

    def _put(
        self, message: Message, put: Put, attempts: Attempts, facts: SliceContext, entry: int
    ) -> Decided:
        source, decision = message, put
        if put.profile.view.pointer:
            original = original_of(message, self.schemes, facts.facts)
            if isinstance(original, Gone):
                return Decided(message, self._without_payload(put, original))
            if original.hops > message.hops:
                again = self.decision_of(original, put.profile, attempts, facts, put.replay)
                if not isinstance(again, Put):
                    return Decided(message, again)
                decision = again
            source = original
        partition = None
        if decision.returns:
            partition = origin_partition(
                decision.profile, message.key, message.value, message.headers
            )
        record, edit = record_of(source, decision, partition, facts, self._transforms)
        if isinstance(record, Refusal):  # not cached, as the text may be specific to this message
            return Decided(message, self.on_refusal(decision, record))
        record, put = PutTimes.of(decision, facts).applied(record, source, decision)
        refusal = facts.check(entry, record, persistence_of(decision), decision.destination)
        if refusal is not None:
            return Decided(message, decision.derive(self.on_refusal, refusal))
        records = [(entry, record)]
        if self._puts is not None and decision.is_reported:
            arrived = source._replace(value=record.value, headers=record.headers or [])
            attempt = PutAttempt(self._puts, arrived, facts, entry)
            report = attempt.report(ReportKind.ARRIVAL, arrived)
            put = put.derive(with_detail, report.detail)
            records += report.entries
        decided = with_edit(put, edit)
        if self._is_counted_by_body(message, decision, facts):
            decided = with_own_headers(decided, record)
        return Decided(message, decided, tuple(records))

    def _is_counted_by_body(self, message: Message, put: Put, facts: SliceContext) -> bool:
        if not self.attempts.may_be_repeated(put, facts.facts):
            return False
        names_record = failed_record(message, self.schemes) is not None
        return self.attempts.is_counted_by_body(put, facts.facts, names_record=names_record)

    def _without_payload(self, put: Put, gone: Gone) -> Decision:
        if gone.may_come:
            return put.derive(self.on_refusal, Refusal(NO_PAYLOAD, gone.detail))
        case = _Case(put.profile, put.attempts, replay=put.replay)
        return self._keep(
            case, put.rule, gone.detail, NO_PAYLOAD, target=put.target, is_worth_logging=True
        )

    # -- decisions for equal messages ------------------------------------------------------------

    def decision_of(
        self,
        message: Message,
        profile: DeadLetterProfile,
        attempts: Attempts,
        facts: SliceContext,
        replay: Replay | None = None,
    ) -> Decision:
        """The decision for one message; its identity chooses among equal instances.

        Arguments as for ``decide_profile``.
        """
        hops = message.hops
        decision = self.decision_of_profile(profile, attempts, facts, hops=hops, replay=replay)
        if isinstance(decision, Put) and decision.destination.is_choice:
            seed = seed_of(message.identity)
            decision = self.decision_of_profile(
                profile, attempts, facts, hops=hops, seed=seed, replay=replay
            )
        return decision

    def decision_of_profile(
        self,
        profile: DeadLetterProfile,
        attempts: Attempts,
        facts: SliceContext,
        *,
        hops: int,
        seed: int = 0,
        replay: Replay | None = None,
    ) -> Decision:
        """The decision of ``decide_profile``, made once under the same facts."""
        if self._cache.begun is not facts.begun:
            self._cache.begin(facts)
        key = id(profile), attempts, hops, seed, id(replay)
        decision = self._cache.decisions.get(key)
        if decision is None:
            decision = self.decide_profile(profile, attempts, hops=hops, seed=seed, replay=replay)
            # Otherwise another object could get an id in the key.
            assert decision.profile is profile
            assert decision.replay is replay
            self._cache.decisions[key] = decision
        return decision

    def prepared_puts(
        self, layout: tuple[str, ...], facts: SliceContext
    ) -> dict[int, PreparedPut | None]:
        """Results of ``prepare`` for fresh dead letters with these header names, by profile id."""
        if self._cache.begun is not facts.begun:
            self._cache.begin(facts)
        return self._cache.prepared.setdefault(layout, {})

    def prepare(
        self,
        profile: DeadLetterProfile,
        layout: tuple[str, ...],
        facts: SliceContext,
        *,
        attempts: Attempts = NO_ATTEMPTS,
        hops: int = 0,
        replay: Replay | None = None,
    ) -> PreparedPut | None:
        """The prepared put of a profile's dead letters; None if each needs its own decision.

        A replay ignores breakers. Arguments as for ``decide_profile``; the layout is the header
        names without Redrive's own, in order.
        """
        decision = self.decision_of_profile(profile, attempts, facts, hops=hops, replay=replay)
        if not isinstance(decision, Put):
            return None
        if self.guard is not None and replay is None and self.guard.open_breaker(decision, facts):
            return None
        bounds = put_bounds(decision, facts)
        if bounds is None:
            return None
        names_record = names_offset(profile, layout)
        return PreparedPut(
            decision,
            layout,
            bounds,
            facts,
            hops=hops,
            may_lack_rounds=replay is None and self.attempts.may_be_repeated(decision, facts.facts),
            is_counted_by_body=self.attempts.is_counted_by_body(
                decision, facts.facts, names_record=names_record
            ),
        )

    def decide_profile(
        self,
        profile: DeadLetterProfile,
        attempts: Attempts,
        *,
        hops: int,
        seed: int = 0,
        replay: Replay | None = None,
    ) -> Decision:
        """Decide the messages of a profile, before a put is tried.

        A replay has its own rule for a remaining message: if the put fails, the message stays where
        it was, and no rule of the table follows. A parked message continues with the table, or
        remains.

        Args:
            profile: Their failure, from their headers.
            attempts: Their failed attempts.
            hops: Redrive's puts of them on queues.
            seed: Determines the choice among equal instances of a cluster queue.
            replay: The operator's decision about them.
        """
        case = _Case(profile, attempts, hops, seed, replay)
        if replay is None or replay.to is To.ATTEMPT:
            return self._by_table(case)
        if replay.to is To.REMAIN:
            return self._keep(case, None, f"{replay.operator} ended the retries")
        if replay.rule is not None:
            return self._apply(case, replay.rule)
        return self._by_table(case._replace(attempts=NO_ATTEMPTS))

    def _by_table(self, case: _Case) -> Decision:
        profile, attempts = case.profile, case.attempts
        if not profile.is_dead_letter:
            return self._keep(case, None, profile.problem)
        if attempts.is_quarantined:
            return self._keep(case, None, "in quarantine, no rule is tried")
        candidates = self.profiles.candidates_of(profile)
        index = self.attempts.next_rule(candidates, attempts)
        if index is None:
            tries = "all attempts" if attempts.failures > 1 else "the only attempt"
            why = f"{tries} failed" if candidates else "no rule matches"
            return self._keep(case, None, why)
        rule = self.table.rules[index]
        if self.profiles.is_kafka and rule.action.can_fail:
            loop = self._targets.loop(profile, attempts, case.hops)
            if loop is not None:
                return self._keep(case.in_quarantine, None, loop.detail, loop.reason)
        return self._apply(case, rule)

    def on_refusal(self, decision: Put, refusal: Refusal) -> Decision:
        """The decision after a failed put: the next attempt, or the message remains."""
        case = _Case(decision.profile, decision.attempts, replay=decision.replay)
        return self._after_failure(case, decision.rule, decision.target, refusal)

    def wait(self, decision: Decision, attempts: Attempts) -> Wait:
        """The decision to wait for an attempt until its delay has passed.

        ``attempts`` are the failed ones before it.
        """
        name = self.attempts.next_attempt(decision.rule, attempts)
        return self._decisions.write(
            Wait,
            Result.PARKED,
            decision.profile,
            attempts=attempts,
            attempt=decision.attempt,
            rule=decision.rule,
            target=decision.target,
            detail=f"{name} is {decision.wait} s after the failure",
            of_kind={
                "delay": self.attempts.delay(decision.rule, attempts),
                "attempt_now": decision,
            },
        )

    def skip(
        self, profile: DeadLetterProfile, result: Result, detail: str, replay: Replay | None
    ) -> Skip:
        """The decision to leave a message as it is; the result is ``SKIPPED`` or ``CANCELLED``."""
        return self._decisions.write(Skip, result, profile, attempt=0, detail=detail, replay=replay)

    def waiting_place(self, message: Message, decision: Park, partition: int) -> TopicPartition:
        """See ``Decider.waiting_place``; a BACKOFF chooses the partition by the wait."""
        if decision.delay is None:
            return TopicPartition(self.identity.retry_topic, partition)
        jitter = jitter_of(message.identity, decision.attempts.failures)
        partition = self.table.backoff_partitions.partition(partition, decision.delay, jitter)
        return TopicPartition(self.identity.backoff_topic, partition)

    def park(self, message: Message, rule: Rule | None, attempts: Attempts) -> Park:
        """The decision that parked a message, with only the time of the next attempt.

        ``rule`` is that of the next attempt, None if unknown; ``attempts`` are the failed ones.
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

    def _apply(self, case: _Case, rule: Rule) -> Decision:
        profile, attempts, replay = case.profile, case.attempts, case.replay
        match rule.action:
            case Action.IGNORE:
                return self._keep(case, rule, f"ignored by the rule at line {rule.line}")
            case Action.QUARANTINE:
                why = f"quarantined by the rule at line {rule.line}"
                return self._keep(case.in_quarantine, rule, why)
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
        is_retry = rule.action is Action.RETRY
        wait = self.attempts.wait(rule, attempts) if is_retry and replay is None else 0
        target = self._targets.of(rule, profile, attempts, hops=case.hops, seed=case.seed)
        names, destination = target.names, target.destination
        if isinstance(destination, Refusal):
            return self._after_failure(case, rule, names, destination, wait)
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
                "returns": target.returns,
                "group_topic": target.group_topic,
                "strip": is_retry or not rule.header,
                "timestamps": self._timestamps,
                "wait": wait,
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
        self, case: _Case, rule: Rule | None, target: Names, refusal: Refusal, wait: int = 0
    ) -> Park | Keep:
        """The decision after a rule's failed attempt: the next one, or the message remains.

        ``wait`` is the attempt's, in seconds since the failure of the processing.
        """
        profile, attempts, replay = case.profile, case.attempts, case.replay
        of_kind: dict[str, Any] = {}
        following = None
        # Otherwise the table decided nothing, or its next attempt would lack the edit.
        if replay is None or (replay.to in {To.RULES, To.ATTEMPT} and not replay.edit):
            attempts = self.attempts.add_failure(rule, attempts)
            following = self.attempts.next_rule(self.profiles.candidates_of(profile), attempts)
        if following is not None:
            of_kind["delay"] = self.attempts.delay(self.table.rules[following], attempts)
        header = profile.header
        is_known = header is not None and (refusal.reason, target) == (
            header.reason,
            Names(queue=header.dest_q_name, queue_manager=header.dest_q_mgr_name),
        )
        kind: type[Park | Keep] = Keep if following is None else Park
        return self._decisions.write(
            kind,
            Result.REMAINS if following is None else Result.PARKED,
            profile,
            attempts=attempts,
            attempt=case.attempts.failures + 1,
            rule=rule,
            target=target,
            reason=refusal.reason,
            detail=refusal.detail,
            replay=replay,
            of_kind={"is_worth_logging": not is_known, "wait": wait, **of_kind},
        )

    def _keep(
        self,
        case: _Case,
        rule: Rule | None,
        detail: str,
        reason: int = 0,
        *,
        target: Names = NO_NAMES,
        is_worth_logging: bool = False,
    ) -> Keep:
        return self._decisions.write(
            Keep,
            Result.REMAINS,
            case.profile,
            attempts=case.attempts,
            attempt=0,
            rule=rule,
            target=target,
            reason=reason,
            detail=detail,
            replay=case.replay,
            of_kind={"is_worth_logging": is_worth_logging},
        )
